"""passes/join.py: what is put together of slices of one tensor is a slice of it, with equal bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graph_programs import f32, i64, names, op
from tracejit.core.dtypes import bool_
from tracejit.ir.graph import Graph
from tracejit.ir.interpreter import interpret
from tracejit.ir.tracer import trace
from tracejit.ir.verifier import verify
from tracejit.passes.join import MOST_PARTS, join, sums_in_one

COUNT = 12


def joined(graph: Graph, run: Any = join) -> Graph:
    """The graph after the pass, in which the interpreter has found the same bits, zeros of both signs included."""
    found = verify(run(graph), functional=True)
    generator, inputs = np.random.default_rng(0), []
    for v in graph.inputs:
        aval: Any = graph.avals[v]
        inputs.append(generator.choice([-0.0, 0.0, 1.5, -2.0], aval.shape).astype(aval.dtype.numpy))
    for a, b in zip(interpret(found, inputs), interpret(graph, inputs), strict=True):
        assert a.tobytes() == b.tobytes() and a.shape == b.shape
    return found


@given(dim=st.integers(0, 2), step=st.sampled_from([1, -1]), apart=st.booleans(), skipped=st.sampled_from([None, 5]))
@settings(deadline=None)
def test_slices_that_follow_each_other_are_one(dim: int, step: int, apart: bool, skipped: int | None) -> None:
    def function(x: Any, y: Any) -> Any:
        rows = [op("select", x, i, dim=0) for i in range(COUNT)[::step] if i != skipped]
        if apart:  # each one beside a dimension of its own
            rows = [op("reshape", r, shape=(2, 3)[:dim] + (1,) + (2, 3)[dim:]) for r in rows]
            return op("cat", op("reshape", y, shape=(2, 3)[:dim] + (1,) + (2, 3)[dim:]), *rows, dim=dim)
        return op("cat", y, *rows, dim=min(dim, 1))

    found = joined(trace(function, [f32(COUNT, 2, 3), f32(2, 3)]))
    (node,) = [node for node in found.nodes if "joins" in node.op.traits]
    assert len(node.operands) == (2 if skipped is None else 3)


def test_what_is_in_no_order_stays() -> None:
    def function(x: Any) -> Any:
        return op("cat", *[op("select", x, i * 5 % COUNT, dim=0) for i in range(COUNT)], dim=0)

    graph = trace(function, [f32(COUNT, 2)])
    assert joined(graph) is graph


def in_zeros(x: Any, i: int, dim: int, shape: tuple[int, ...]) -> Any:
    return op("select_scatter", op("full", 0.0, shape=shape, dtype=x.dtype), x, i, dim=dim)


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("step", [1, -1])
@pytest.mark.parametrize("count", [COUNT, 3 * MOST_PARTS])
def test_additions_of_slices_put_into_zeros_are_a_sum_at_positions(dim: int, step: int, count: int) -> None:
    shape = (count, 3) if dim == 0 else (3, count)

    def function(x: Any) -> Any:
        total = None
        for i in range(count)[::step]:
            part = in_zeros(op("select", x, i, dim=0), i, dim, shape)
            total = part if total is None else op("add", total, part)
        return total

    graph = joined(trace(function, [f32(count, 3)]), sums_in_one)
    assert names(graph).count("add") == 0 and names(graph).count("sum_at") == 1
    found = joined(graph)
    (node,) = [node for node in found.nodes if node.op.name == "sum_at"]
    assert len(node.operands) == 2  # one of them apart, which makes zeros positive


def test_a_sum_that_cannot_be_joined_is_several_of_not_too_many_operands() -> None:
    count = 2 * MOST_PARTS + 3

    def function(*xs: Any) -> Any:
        total = in_zeros(xs[0], 0, 0, (count, 3))
        for i in range(1, count):
            total = op("add", total, in_zeros(xs[i], i, 0, (count, 3)))
        return total

    graph = joined(trace(function, [f32(3)] * count), sums_in_one)
    sums = [len(node.operands) for node in joined(graph).nodes if node.op.name == "sum_at"]
    assert sums == [MOST_PARTS, MOST_PARTS + 1, 3 + 1]


def test_parts_that_overlap_are_added_up_in_their_order_however_many_sums_that_are() -> None:
    count = 2 * MOST_PARTS + 3

    def function(*xs: Any) -> Any:
        starts = tuple([(i,) for i in range(count)])
        return op("sum_at", *xs, shape=(count + 2,), starts=starts, steps=((1,),) * count)

    graph = trace(function, [f32(3)] * count)
    found = joined(graph)
    assert names(found) == ["sum_at"] * 3
    inputs = [np.random.default_rng(i).standard_normal(3).astype(np.float32) for i in range(count)]
    (a,), (b,) = interpret(found, inputs), interpret(graph, inputs)
    assert a.tobytes() == b.tobytes()


def test_sums_that_others_read_and_sums_of_bools_stay() -> None:
    def read(x: Any) -> Any:
        totals = [in_zeros(op("select", x, 0, dim=0), 0, 0, (COUNT, 3))]
        for i in range(1, COUNT):
            totals.append(op("add", totals[-1], in_zeros(op("select", x, i, dim=0), i, 0, (COUNT, 3))))
        return tuple(totals)

    def decided(x: Any) -> Any:
        y = op("cast", x, dtype=bool_)
        total = op("select_scatter", op("full", False, shape=(COUNT, 3), dtype=bool_), op("select", y, 0, dim=0), 0, dim=0)
        for i in range(1, COUNT):
            zeros = op("full", False, shape=(COUNT, 3), dtype=bool_)
            part = op("select_scatter", zeros, op("select", y, i, dim=0), i, dim=0)
            total = op("logical_or", total, part)
        return total

    for function, aval in ((read, f32(COUNT, 3)), (decided, i64(COUNT, 3))):
        graph = trace(function, [aval])
        assert sums_in_one(graph) is graph
