"""passes/hoist.py: one product of many rows instead of one in each step of a loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.graph_programs import f32, f64, i64, names, op
from tests.test_loop import arrays, looped, run_everywhere
from tracejit.core.op import Kind
from tracejit.ir.graph import Graph
from tracejit.ir.interpreter import interpret
from tracejit.ir.tracer import trace
from tracejit.ir.verifier import verify
from tracejit.passes import hoist as module
from tracejit.passes.hoist import hoist

ROWS, IN, OUT = 2, 3, 4


def hoisted(graph: Graph) -> tuple[Graph, Graph]:
    """The graph after the pass, which computes the same in all renderings, and the body of its loop."""
    found = verify(hoist(graph), functional=True)
    inputs = arrays(graph)
    for a, b in zip(run_everywhere(found, given=inputs), interpret(graph, inputs), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    (loop,) = [node for node in found.nodes if node.op.kind is Kind.LOOP]
    return found, loop.attrs["body"].graph


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kept", [False, True])
def test_products_of_slices_with_a_shared_matrix_are_one_before_the_loop(kept: bool, reverse: bool) -> None:
    def step(h: Any, x: Any, w: Any) -> Any:
        h = op("tanh", op("add", op("matmul", x, op("permute", w, dims=(1, 0))), h))
        return h, h

    graph, body = hoisted(looped(step, [f64(ROWS, OUT), f64(ROWS, IN), f64(OUT, IN)], 1, 1, kept, reverse))
    assert "matmul" not in names(body) and names(graph).count("matmul") == 1
    assert len(body.inputs) == 2  # neither the slice nor the matrix


def turned(x: Any) -> Any:
    return op("permute", x, dims=(1, 0))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("stored_transposed", [False, True])
def test_sums_of_products_over_the_steps_are_one_after_the_loop(stored_transposed: bool, reverse: bool) -> None:
    def step(total: Any, h: Any, x: Any) -> Any:
        g = op("sin", op("mul", h, x))
        product = op("matmul", turned(x), g)
        return op("add", total, turned(product) if stored_transposed else product), g

    graph, body = hoisted(looped(step, [f64(OUT, OUT), f64(ROWS, OUT), f64(ROWS, OUT)], 2, 1, reverse=reverse))
    assert "matmul" not in names(body) and "add" not in names(body) and "permute" not in names(body)
    assert names(graph).count("matmul") == 1 and len(body.outputs) == 2  # what is carried, which is collected now


def test_products_that_are_only_collected_are_one_after_the_loop() -> None:
    def step(g: Any, x: Any, w: Any) -> Any:
        g = op("tanh", op("mul", g, x))
        return g, op("matmul", g, w)

    graph, body = hoisted(looped(step, [f64(ROWS, IN), f64(ROWS, IN), f64(IN, OUT)], 1, 1))
    assert "matmul" not in names(body) and names(graph).count("matmul") == 1


@pytest.mark.parametrize("read_once_more", [False, True])
def test_a_product_whose_transpose_sums_are_made_of_is_taken_out_if_nothing_else_reads_it(read_once_more: bool) -> None:
    def step(total: Any, h: Any, x: Any, w: Any) -> Any:
        h = op("sin", h)
        turned = op("permute", op("matmul", h, w), dims=(1, 0))
        read = (op("tanh", turned),) if read_once_more else ()
        return op("add", total, op("matmul", turned, x)), h, *read

    graph, body = hoisted(looped(step, [f64(OUT, OUT), f64(ROWS, IN), f64(ROWS, OUT), f64(IN, OUT)], 2, 1))
    assert names(body).count("matmul") == read_once_more and names(graph).count("matmul") == 2 - read_once_more


def carried_on(h: Any, x: Any, w: Any) -> Any:
    return op("matmul", op("tanh", op("add", h, x)), w)


def read_inside(total: Any, x: Any, w: Any) -> Any:
    return op("add", total, op("matmul", op("permute", x, dims=(1, 0)), op("sin", op("matmul", x, total))))


def subtracted(total: Any, x: Any, w: Any) -> Any:
    return op("sub", op("matmul", op("permute", x, dims=(1, 0)), op("sin", x)), total)


def read_before_it_is_transposed(total: Any, x: Any, w: Any) -> Any:
    product = op("matmul", turned(x), op("sin", x))
    return op("add", total, turned(product)), op("tanh", product)


@pytest.mark.parametrize("step", [carried_on, read_inside, subtracted, read_before_it_is_transposed])
def test_products_that_steps_need_themselves_stay(step: Callable[..., Any]) -> None:
    graph = looped(step, [f64(IN, IN)] * 3, 1, 1)
    assert hoist(graph) is graph


def test_products_of_integers_and_of_batches_stay_and_so_do_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    def step(h: Any, x: Any, w: Any) -> Any:
        return op("add", h, op("matmul", x, w))

    for graph in (looped(step, [i64(IN, IN)] * 3, 1, 1), looped(step, [f32(2, IN, IN)] * 3, 1, 1)):
        assert hoist(graph) is graph
    graph = looped(step, [f32(IN, IN)] * 3, 1, 1)
    assert hoist(graph) is not graph
    for limit, value in (("LARGE", IN), ("MOST_KEPT", 5 * IN * IN * 4 - 1)):
        with monkeypatch.context() as patch:
            patch.setattr(module, limit, value)
            assert hoist(graph) is graph


def test_products_that_would_need_much_more_memory_in_all_steps_stay() -> None:
    def attend(total: Any, query: Any, key: Any) -> Any:
        scores = op("sin", op("matmul", query, op("permute", key, dims=(1, 0))))
        return op("add", total, op("matmul", op("permute", scores, dims=(1, 0)), query))

    few, many = [f32(keys, IN) for keys in (20, 40_000)]
    graph, body = hoisted(looped(attend, [few, f32(ROWS, IN), few], 1, 1))
    assert "matmul" not in names(body) and names(graph).count("matmul") == 2
    graph = looped(attend, [many, f32(8 * ROWS, IN), many], 1, 1)
    assert hoist(graph) is graph


def test_a_graph_without_loops_is_the_same_object() -> None:
    graph = trace(lambda x, w: op("matmul", x, w), [f32(ROWS, IN), f32(IN, OUT)])
    assert hoist(graph) is graph
