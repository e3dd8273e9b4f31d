"""Literals as inputs: which may be, that graphs keep their meaning, and what graphs of other sizes have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graph_programs import arrays_for, f32, i64, op, total
from tracejit.core.aval import ScalarAval
from tracejit.core.op import REGISTRY
from tracejit.core.symbolic import ShapeEnv
from tracejit.ir.graph import Body, Graph, Literal, Node
from tracejit.ir.interpreter import interpret
from tracejit.ir.loop import loop
from tracejit.ir.tracer import trace
from tracejit.ir.verifier import verify
from tracejit.lowering.lower import lower
from tracejit.passes.literals import as_inputs, literals, skeleton, with_sizes_given
from tracejit.runtime.program import Program


def scaled(x: Any) -> Any:
    y = op("mul", op("add", x, 0.3), 1.7)
    return op("pow", op("div", y, 31), 3), op("select", y, 2, dim=0)


def test_literals_of_operations_that_round_correctly_may_be_inputs() -> None:
    graph = trace(scaled, (f32(5),))
    assert list(literals(graph).values()) == [0.3, 1.7, 31]


def test_integers_that_have_no_64_bits_stay_literals() -> None:
    graph = trace(lambda x: op("add", op("mul", x, 1 << 70), -5), (i64(3),))
    assert list(literals(graph).values()) == [-5]


@settings(max_examples=20, deadline=None)
@given(st.sets(st.integers(0, 2)))
def test_a_graph_with_literals_as_inputs_means_the_same(numbers: set[int]) -> None:
    graph = trace(scaled, (f32(5),))
    chosen = [position for k, position in enumerate(literals(graph)) if k in numbers]
    general, values = as_inputs(graph, chosen)
    verify(general)
    given = [values[v] for v in general.inputs if isinstance(general.avals[v], ScalarAval)]
    arrays = arrays_for(graph)
    for a, b in zip(interpret(graph, arrays), interpret(general, [*arrays, *given]), strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("value", [31, -7.25, 1e-30, float("inf")])
def test_a_program_has_fixed_numbers_as_data(value: float) -> None:
    graph = trace(lambda x: op("mul", op("add", x, value), 0.3), (f32(6),))
    general, values = as_inputs(graph, literals(graph))
    program = Program.made(lower(general, {}, numbers=values))
    (x,) = arrays_for(graph)
    (found,) = program.run((x,), ())
    assert np.array_equal(found, interpret(graph, [x])[0])
    other, values = as_inputs(trace(lambda x: op("mul", op("add", x, value), 0.7), (f32(6),)), literals(graph))
    assert Program.made(lower(other, {}, numbers=values)).llvm() == program.llvm()


def test_graphs_of_other_sizes_have_a_skeleton_in_common() -> None:
    def mean(n: int) -> Any:
        return trace(lambda x: op("div", total(x), float(n)), (f32(n),))

    assert skeleton(mean(3)) == skeleton(mean(8))
    assert skeleton(mean(3)) != skeleton(trace(lambda x: op("mul", total(x), 3.0), (f32(3),)))
    assert skeleton(mean(3)) != skeleton(trace(lambda x: op("div", total(x), 3), (f32(3),)))


def test_sizes_in_the_steps_of_a_loop_are_given_to_the_loop() -> None:
    env = ShapeEnv()
    with env:
        n = env.size(5, "n")
        number = i64()
        twice = Node(REGISTRY["mul"], (0, Literal(n)), (), (1,)), Node(REGISTRY["add"], (1, Literal(n)), (), (2,))
        attributes = {"body": Body(Graph((0,), dict.fromkeys(range(3), number), twice, (2,))), "carried": 1, "count": 3}
        node = Node(loop(0), (0,), tuple(sorted({**attributes, "sliced": 0, "reverse": False}.items())), (1,))
        graph = Graph((0,), dict.fromkeys(range(2), number), (node,), (1,))
        given_sizes = with_sizes_given(graph)
        (given_loop,) = given_sizes.nodes
        assert given_loop.operands == (0, Literal(n)) and with_sizes_given(given_sizes).nodes[0].operands == (0, Literal(n))
        steps = given_loop.attrs["body"].graph
        assert not any(isinstance(x, Literal) for step in steps.nodes for x in step.operands) and len(steps.inputs) == 2
        assert [interpret(g, [np.array(2)])[0].item() for g in (graph, given_sizes)] == [((2 * 5 + 5) * 5 + 5) * 5 + 5] * 2
    assert with_sizes_given(trace(scaled, (f32(5),))).nodes == trace(scaled, (f32(5),)).nodes
