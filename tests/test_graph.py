"""Graphs, their builder, and tracers."""

from __future__ import annotations

import numpy as np
import pytest
from graph_programs import f32, f64, gelu_chain, i64, names, op

from tracejit.core import dtypes
from tracejit.core.aval import Aval, ScalarAval
from tracejit.core.op import REGISTRY
from tracejit.ir.builder import GraphBuilder, next_id, rebuild, substitute
from tracejit.ir.graph import Graph, Literal, Node, operand_aval
from tracejit.ir.interpreter import interpret
from tracejit.ir.tracer import trace


def test_literals_are_equal_by_type_and_bits() -> None:
    different = [Literal(v) for v in (1, 1.0, True, 0, 0.0, -0.0, False, float("nan"), float("inf"))]
    assert len(set(different)) == len(different)
    assert Literal(float("nan")) == Literal(float("nan"))


def test_the_aval_of_an_operand_is_its_type_for_a_number_and_none_for_an_absent_one() -> None:
    assert operand_aval(Literal(True), {}) == ScalarAval(bool)
    assert operand_aval(None, {}) is None
    assert operand_aval(3, {3: f32(2)}) == f32(2)


def test_a_builder_infers_avals_and_never_reuses_ids() -> None:
    builder = GraphBuilder(first_id=5)
    x = builder.input(f32(2, 3))
    (y,) = builder.add(REGISTRY["permute"], (x,), {"dims": (1, 0)}, "model.py:3")
    graph = builder.build((y,))
    assert (x, y) == (5, 6)
    assert next_id(graph) == 7
    assert graph.avals[y] == f32(3, 2)
    assert graph.nodes[0].line == "model.py:3"


def test_substituting_nothing_keeps_the_node_itself() -> None:
    node = Node(REGISTRY["add"], (1, Literal(2)), (), (3,))
    assert substitute(node, {7: 8}) is node
    assert substitute(node, {1: 8}).operands == (8, Literal(2))


def test_rebuilding_drops_avals_marks_and_constants_that_are_gone() -> None:
    graph = trace(lambda x: (x + np.ones(3), x * 2.0), (f64(3),), (True,))
    assert graph.constants
    kept = rebuild(graph, graph.nodes[1:], outputs=(graph.outputs[1],))
    assert not kept.constants
    assert set(kept.avals) == {graph.inputs[0], graph.outputs[1]}
    assert kept.requires_grad == set(kept.avals)


def test_equal_graphs_compare_constants_by_contents() -> None:
    def add(c: float) -> Graph:
        return trace(lambda x: x + np.full(3, c), (f64(3),))

    assert add(1.0).equals(add(1.0))
    assert not add(1.0).equals(add(2.0))
    assert not add(0.0).equals(add(-0.0))


def test_tracing_promotes_as_eager_mode_does() -> None:
    graph = trace(lambda i, x: i * 2.5 + x, (i64(3), f32(3)))
    assert names(graph) == ["cast", "mul", "add"]
    assert graph.avals[graph.outputs[0]] == f32(3)


def test_operators_of_tracers_are_the_primitives() -> None:
    graph = trace(lambda x, y: (-(x + y) / y - x**2.0, (x > y) & (x != 1.0), 2.0 - x, x @ y), (f64(2, 2), f64(2, 2)))
    assert names(graph) == ["add", "neg", "div", "pow", "sub", "gt", "ne", "logical_and", "sub", "matmul"]


def test_an_array_beside_a_tracer_becomes_a_constant() -> None:
    graph = trace(lambda x: np.arange(3.0) - x, (f64(3),))
    assert names(graph) == ["sub"]
    (result,) = interpret(graph, [np.ones(3)])
    np.testing.assert_array_equal(result, [-1.0, 0.0, 1.0])


def test_a_run_time_number_is_weak_beside_a_tensor_and_computes_in_float64_alone() -> None:
    graph = trace(lambda x, s: (x * s, x * (s / 3 - 1.0)), (f32(2), ScalarAval(float)))
    assert [graph.avals[v] for v in graph.outputs] == [f32(2), f32(2)]
    x, s = np.array([1.0, 3.0], np.float32), 0.1
    direct, computed = interpret(graph, [x, s])
    np.testing.assert_array_equal(direct, x * s)
    np.testing.assert_array_equal(computed, x * (s / 3 - 1.0))


def test_a_run_time_float_lifts_an_integer_tensor_as_the_number_would() -> None:
    graph = trace(lambda x, s: x + s, (i64(2), ScalarAval(float)))
    assert graph.avals[graph.outputs[0]].dtype is dtypes.default_dtype()


def test_branching_on_a_tracer_is_an_error_that_names_the_remedy() -> None:
    with pytest.raises(TypeError, match=r"where\(\)"):
        trace(lambda x: x if x > 0 else -x, (f32(),))


def test_foreign_objects_are_refused() -> None:
    with pytest.raises(TypeError, match="cannot hold a str"):
        trace(lambda x: op("clone", "x"), (f32(),))


def test_marks_follow_differentiable_values_only() -> None:
    graph = trace(lambda x, y: (x * y, op("detach", x) + y, x > y), (f32(2), f32(2)), (True, False))
    product, detached, comparison = graph.outputs
    assert graph.requires_grad == {graph.inputs[0], product}
    assert {detached, comparison}.isdisjoint(graph.requires_grad)


def test_a_composition_of_ops_traces_to_one_node_per_primitive() -> None:
    assert len(trace(gelu_chain, (Aval((8,), dtypes.float32),)).nodes) == 13
