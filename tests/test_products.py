"""Sums of batches of matrix products: one product where the memory allows it, else one matrix to which all are added."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.graph_programs import f32, f64, i64, names, op
from tracejit.core import dtypes
from tracejit.ir.graph import Graph
from tracejit.ir.interpreter import interpret
from tracejit.ir.tracer import trace
from tracejit.ir.verifier import verify
from tracejit.lowering.lower import lower
from tracejit.lowering.steps import GemmCall, NestCall
from tracejit.passes.products import products
from tracejit.runtime.program import build


def summed(rank: int, turned: bool, keepdim: bool = False) -> Any:
    """sum(a @ b), b being given transposed or not."""

    def function(a: Any, b: Any) -> Any:
        if turned:
            b = op("permute", b, dims=(*range(rank - 2), rank - 1, rank - 2))
        return op("sum", op("matmul", a, b), dims=tuple(range(rank - 2)), keepdim=keepdim)

    return function


def steps(graph: Graph) -> tuple[list[GemmCall], int]:
    """Products and the number of nests."""
    found = lower(graph, {}).spec.steps
    return [s for s in found if isinstance(s, GemmCall)], sum(isinstance(s, NestCall) for s in found)


def test_large_products_of_a_batch_are_added_up_without_copies() -> None:
    graph = trace(summed(3, True), (f32(6, 16, 300), f32(6, 40, 300)))
    (product,), nests = steps(graph)
    assert nests == 1  # the zeros
    assert product.beta == 1.0
    assert product.batch == ((6, 4800, 12000, 0),)


def test_products_that_lie_like_one_are_one() -> None:
    def function(a: Any, b: Any) -> Any:
        return op("sum", op("matmul", op("permute", a, dims=(0, 2, 1)), b), dims=(0,), keepdim=False)

    (product,), nests = steps(trace(function, (f32(6, 300, 16), f32(6, 300, 40))))
    assert (nests, product.batch, product.k, product.beta) == (0, (), 1800, 0.0)


def test_small_products_of_a_batch_are_copied_into_one() -> None:
    (product,), nests = steps(trace(summed(3, True), (f32(6, 16, 20), f32(6, 40, 20))))
    assert (nests > 0, product.batch, product.k) == (True, (), 120)


@pytest.mark.parametrize("backend", ["llvm", "reference"])
@pytest.mark.parametrize("aval", [f32, f64])
@pytest.mark.parametrize(("batch", "keepdim"), [((5,), False), ((2, 3), True), ((1,), False), ((4, 1), False)])
@pytest.mark.parametrize("turned", [False, True])
def test_sums_of_products_are_right(batch: tuple[int, ...], keepdim: bool, turned: bool, aval: Any, backend: str) -> None:
    generator = np.random.default_rng(7)
    m, k, n = 17, 93, 31
    avals = (aval(*batch, m, k), aval(*batch, n, k) if turned else aval(*batch, k, n))
    a, b = (generator.standard_normal(x.shape).astype(x.dtype.numpy) for x in avals)
    graph = trace(summed(len(batch) + 2, turned, keepdim), avals)
    found = build(graph, {}, backend=backend).run((a, b), ())
    assert isinstance(found, tuple)
    expected = (a @ (b.swapaxes(-1, -2) if turned else b)).sum(tuple(range(len(batch))), keepdims=keepdim)
    tolerance = 1e-4 if avals[0].dtype is dtypes.float32 else 1e-12
    np.testing.assert_allclose(found[0], expected, rtol=0, atol=tolerance)


def test_products_are_added_to_another_one_and_to_a_sum_of_a_batch() -> None:
    def function(a: Any, b: Any, c: Any, d: Any) -> Any:
        return op("add", summed(3, True)(a, b), op("matmul", c, d))

    avals = (f32(6, 16, 300), f32(6, 40, 300), f32(16, 50), f32(50, 40))
    generator = np.random.default_rng(8)
    arrays = tuple(generator.standard_normal(x.shape).astype(np.float32) for x in avals)
    a, b, c, d = arrays
    for backend in ("llvm", "reference"):
        found = build(trace(function, avals), {}, backend=backend).run(arrays, ())
        assert isinstance(found, tuple)
        np.testing.assert_allclose(found[0], (a @ b.swapaxes(1, 2)).sum(0) + c @ d, rtol=0, atol=1e-3)


def sum_of_products(a: Any, b: Any, c: Any, d: Any) -> Any:
    return op("add", op("add", op("matmul", a, b), op("matmul", c, d)), op("matmul", a, d))


@pytest.mark.parametrize(
    ("function", "avals", "expected"),
    [
        (summed(3, False), (f32(6, 16, 300), f32(6, 300, 40)), ["full", "matmul_add"]),
        (summed(3, False, True), (f32(6, 6, 5), f32(6, 5, 7)), ["permute", "reshape", "reshape", "matmul", "reshape"]),
        (sum_of_products, (f32(8, 8),) * 4, ["matmul", "matmul_add", "matmul_add"]),
        (lambda a, b: op("permute", op("matmul", a, b), dims=(1, 0)), (f32(8, 8),) * 2, ["permute", "permute", "matmul"]),
        (lambda a, b: op("permute", op("matmul", a, b), dims=(0, 1)), (f32(8, 8),) * 2, ["matmul", "permute"]),
        (lambda a, b: op("add", op("matmul", a, b), a), (f32(8, 8),) * 2, ["matmul", "add"]),
        (lambda a, b: op("add", op("matmul", a, b), op("matmul", b, a)), (f32(3, 3),) * 2, ["matmul", "matmul", "add"]),
        (lambda a, b: (c := op("matmul", a, b), op("add", c, op("matmul", b, a))), (f32(8, 8),) * 2, ["matmul", "matmul", "add"]),
    ],
)
def test_the_pass_gives_a_verified_graph_that_means_the_same(function: Any, avals: Any, expected: list[str]) -> None:
    graph = trace(function, avals)
    done = verify(products(graph), functional=True)
    assert names(done) == expected
    assert all(len(node.operands) == 2 for node in done.nodes if node.op.name == "matmul")
    generator = np.random.default_rng(4)
    arrays = [generator.standard_normal(a.shape).astype(np.float32) for a in avals]
    for x, y in zip(interpret(graph, arrays), interpret(done, arrays), strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-3)


def test_products_of_integers_and_without_sums_are_left_alone() -> None:
    graph = trace(lambda a, b: op("add", op("matmul", a, b), op("matmul", b, a)), (i64(8, 8), i64(8, 8)))
    assert names(products(graph)) == names(graph)
    graph = trace(lambda a, b: a + b, (f32(8), f32(8)))
    assert products(graph) is graph
