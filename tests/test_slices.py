"""passes/slices.py: values that are one of many slices of a tensor."""

from __future__ import annotations

from typing import Any

from tests.graph_programs import arrays_for, f32, op
from tracejit.ir.builder import GraphBuilder, next_id, rebuild
from tracejit.ir.graph import Graph
from tracejit.ir.interpreter import interpret
from tracejit.ir.tracer import trace
from tracejit.ir.verifier import verify
from tracejit.passes.slices import Slice, unbound_slices

COUNT = 9


def apart(graph: Graph) -> dict[int, Slice]:
    """The slices of a graph, after they and the other nodes have been found to compute the same."""
    builder = GraphBuilder(next_id(graph))
    builder.avals = dict(graph.avals)
    nodes, slices = unbound_slices(builder, graph.nodes, COUNT)
    after = [*[node for node in nodes if node.outputs[0] not in slices], *[s.node(v) for v, s in slices.items()]]
    outputs = [v for v in graph.outputs if v in slices]
    found = verify(rebuild(graph, after, avals=builder.avals, outputs=tuple(outputs)), functional=True)
    inputs = arrays_for(graph)
    for a, v in zip(interpret(found, inputs), outputs, strict=True):
        assert (a == interpret(graph, inputs)[graph.outputs.index(v)]).all()
    return slices


def test_slices_of_any_dimension_and_views_of_each_of_them_are_slices() -> None:
    def function(x: Any) -> Any:
        slices = [op("select", x, i, dim=1) for i in range(COUNT)]
        turned = [op("permute", s, dims=(1, 0)) for s in slices]
        return *slices, *turned, *[op("reshape", t, shape=(6, 1)) for t in turned]

    slices = apart(trace(function, [f32(2, COUNT, 3)]))
    assert len(slices) == 3 * COUNT and len({(s.base, s.dim) for s in slices.values()}) == 3
    assert sorted(s.index for s in slices.values()) == sorted([*range(COUNT)] * 3)


def test_parts_of_one_length_are_slices_of_all_such_parts() -> None:
    def function(x: Any) -> Any:
        return tuple([op("slice", x, dim=1, start=2 * i, stop=2 * i + 3, step=2) for i in range(COUNT)])

    slices = apart(trace(function, [f32(2, 2 * COUNT + 1)]))
    assert len(slices) == 2 * COUNT  # they, and what they are with the dimension where it was
    assert {s.index for s in slices.values()} == {2 * i for i in range(COUNT)}


def test_a_few_slices_and_parts_of_nothing_are_left_alone() -> None:
    def function(x: Any) -> Any:
        few = [op("select", x, i, dim=0) for i in range(COUNT - 1)]
        empty = [op("slice", x, dim=0, start=i, stop=i, step=1) for i in range(COUNT)]
        return *few, *empty

    assert not apart(trace(function, [f32(COUNT, 2)]))
