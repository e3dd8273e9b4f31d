"""Value numbers: the same for what is computed alike of the same inputs, whichever graph it is in."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graph_programs import f32, i64, op, total
from tests.random_graphs import random_graph
from tracejit.core.aval import Aval
from tracejit.ir.graph import Graph, Literal
from tracejit.ir.tracer import trace
from tracejit.passes.cse import cse
from tracejit.passes.value_numbers import ValueNumbers


def numbers(table: ValueNumbers, graph: Graph, keys: list[str]) -> list[int | None]:
    """The numbers of the outputs."""
    found, _ = table.of(graph, dict(zip(graph.inputs, keys, strict=False)))
    return [found.get(v) if isinstance(v, int) else None for v in graph.outputs]


def test_values_computed_alike_of_the_same_inputs_have_one_number_in_all_graphs() -> None:
    table = ValueNumbers()
    one = trace(lambda x, y: (op("mul", op("exp", x), y), op("add", x, y)), [f32(3), f32(3)])
    other = trace(lambda y, x: (op("add", x, y), op("tanh", x), op("mul", op("exp", x), y)), [f32(3), f32(3)])
    product, added = numbers(table, one, ["x", "y"])
    again, tanh, same = numbers(table, other, ["y", "x"])
    assert (again, same) == (added, product) and tanh not in (added, product)
    assert numbers(table, one, ["x", "z"])[0] != product


def test_inputs_without_a_key_are_like_nothing_else() -> None:
    table = ValueNumbers()
    graph = trace(lambda x: op("exp", x), [f32(3)])
    assert numbers(table, graph, []) != numbers(table, graph, [])


def test_literals_of_other_types_and_attributes_tell_values_apart() -> None:
    table = ValueNumbers()
    graph = trace(lambda x: (op("mul", x, 1), op("mul", x, 1.0), op("mul", x, True), op("sum", x, dims=(0,), keepdim=False),
                             op("sum", x, dims=(1,), keepdim=False)), [i64(3, 3)])  # fmt: skip
    assert len(set(numbers(table, graph, ["x"]))) == 5


def test_guards_have_the_number_of_what_they_check() -> None:
    table = ValueNumbers()

    def guarded(limit: float, expected: bool) -> int:
        def function(x: Any) -> Any:
            op("guard", total(x) > limit, expected=Literal(expected))
            return x + 1.0

        graph = trace(function, [f32(3)])
        _, nodes = table.of(graph, {graph.inputs[0]: "x"})
        return next(nodes[id(node)] for node in graph.nodes if node.op.name == "guard")

    assert guarded(1.0, True) == guarded(1.0, True)
    assert len({guarded(1.0, True), guarded(2.0, True), guarded(1.0, False)}) == 3


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1 << 20))
def test_values_with_one_number_have_one_aval_and_what_cse_merges_has_one_number(seed: int) -> None:
    graph, _ = random_graph(seed)
    table = ValueNumbers()
    found, _ = table.of(graph, {v: v for v in graph.inputs})
    seen: dict[int, Any] = {}
    for v, number in found.items():
        assert seen.setdefault(number, graph.avals[v]) == graph.avals[v] or not isinstance(graph.avals[v], Aval)
    merged, _ = table.of(cse(graph), {v: v for v in graph.inputs})
    assert all(found[v] == number for v, number in merged.items())
