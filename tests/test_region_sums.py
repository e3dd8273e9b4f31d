"""Tensors added up at positions of their own in zeros, and the gradients of slices that are made of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracejit
from tests.graph_programs import f32, names, op
from tracejit.core import dtypes
from tracejit.core.aval import Aval
from tracejit.core.op import REGISTRY
from tracejit.ir.graph import Graph, Node
from tracejit.ir.tracer import trace
from tracejit.passes.pipeline import optimise
from tracejit.runtime.program import build

SUM = REGISTRY["sum_at"]


def random_sum(generator: np.random.Generator) -> tuple[list[np.ndarray[Any, Any]], dict[str, Any], Any]:
    """Parts with many zeros of both signs, some of them empty or in column-major order; attributes; dtype."""
    rank = int(generator.integers(1, 4))
    shape = tuple(int(s) for s in generator.integers(1, (1500, 90, 25)[rank - 1], rank))
    count = int(generator.integers(1, 6))
    dtype = (dtypes.float32, dtypes.float64, dtypes.int32)[int(generator.integers(3))]
    parts, starts, steps = [], [], []
    for _ in range(count):
        step = tuple(1 if count > 1 else int(generator.integers(1, 3)) for _ in shape)
        start = tuple(int(generator.integers(0, min(s, 4))) for s in shape)
        sizes = tuple(-(-(s - a - int(generator.integers(0, s - a))) // b) for s, a, b in zip(shape, start, step, strict=True))
        if generator.random() < 0.3:
            sizes, start, step = shape, (0,) * rank, (1,) * rank
        if generator.random() < 0.1:
            sizes = (0, *sizes[1:])
        x = generator.integers(-1, 2, sizes) * generator.choice([1.0, 1.5, 3.1])
        x = np.where(generator.random(sizes) < 0.5, -0.0, x).astype(dtype.numpy)
        parts.append(np.asfortranarray(x) if generator.random() < 0.3 else x)
        starts.append(start)
        steps.append(step)
    return parts, {"shape": shape, "starts": tuple(starts), "steps": tuple(steps)}, dtype


@pytest.mark.parametrize("seed", range(24))
def test_the_sum_has_the_bits_of_adding_padded_tensors(seed: int) -> None:
    parts, attributes, dtype = random_sum(np.random.default_rng(seed))
    count = len(parts)
    avals = {k: Aval(x.shape, dtype) for k, x in enumerate(parts)} | {count: Aval(attributes["shape"], dtype)}
    node = Node(SUM, tuple(range(count)), tuple(sorted(attributes.items())), (count,))
    graph = Graph(tuple(range(count)), avals, (node,), (count,))
    layouts = {k: tuple(s // x.itemsize for s in x.strides) for k, x in enumerate(parts)}
    for backend in ("llvm", *(("reference",) if avals[count].size < 2000 else ())):
        found = build(graph, layouts, backend=backend).run(tuple(parts), ())
        assert isinstance(found, tuple)
        assert found[0].tobytes() == SUM.evaluate(*parts, **attributes).tobytes(), (backend, attributes)


def scattered(value: Any, shape: tuple[int, ...], dim: int, start: int) -> Any:
    zeros = op("full", 0.0, shape=shape, dtype=dtypes.float32)
    return op("slice_scatter", zeros, value, dim=dim, start=start, stop=start + value.shape[dim], step=1)


def test_gradients_of_slices_are_added_up_in_one_nest() -> None:
    def gradient(a: Any, b: Any, c: Any) -> Any:
        wide = scattered(scattered(a, (4, 9), 1, 2), (6, 9), 0, 1)
        return op("add", op("add", wide, scattered(b, (6, 9), 0, 0)), scattered(c, (6, 9), 1, 8))

    (node,) = optimise(trace(gradient, (f32(4, 7), f32(5, 9), f32(6, 1)))).nodes
    assert node.op is SUM
    assert node.attrs["starts"] == ((1, 2), (0, 0), (0, 8))


def test_sums_of_sums_keep_the_order_of_their_additions() -> None:
    def gradient(a: Any, b: Any) -> Any:
        left = op("add", scattered(a, (6,), 0, 0), scattered(b, (6,), 0, 1))
        right = op("add", scattered(b, (6,), 0, 2), scattered(a, (6,), 0, 1))
        return op("add", left, right)

    assert names(optimise(trace(gradient, (f32(4), f32(4))))) == ["sum_at", "sum_at", "add"]


def test_a_slice_put_into_negative_zeros_is_no_sum() -> None:
    def gradient(a: Any) -> Any:
        zeros = op("full", -0.0, shape=(6,), dtype=dtypes.float32)
        return op("slice_scatter", zeros, a, dim=0, start=1, stop=5, step=1)

    assert "sum_at" not in names(optimise(trace(gradient, (f32(4),))))


@pytest.mark.parametrize("shape", [(9, 9), (120, 101), (3, 2000)])
def test_the_gradient_of_a_stencil_is_that_of_eager_mode_bit_for_bit(shape: tuple[int, int]) -> None:
    def gradient(u: Any) -> Any:
        inside = u[1:-1, 1:-1]
        step = inside + 0.1 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * inside)
        return tracejit.autograd.grad((step * step + u[::2, 1:][:1, :1]).sum(), (u,))[0]

    u = tracejit.tensor(np.random.default_rng(3).standard_normal(shape).astype(np.float32)).requires_grad_()
    compiled = tracejit.compile(gradient)
    compiled(u)
    found = compiled(u)
    assert compiled.stats.compiled_calls == 1, compiled.explain()
    np.testing.assert_array_equal(found.numpy(), gradient(u).numpy())
