"""The verifier refuses each way in which a graph can be wrong, and names the position."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from graph_programs import MLP_AVALS, f32, f64, mlp, op, write_programs
from hypothesis import given

from tracejit.core.op import REGISTRY
from tracejit.ir.graph import Graph, Literal, Node
from tracejit.ir.tracer import trace
from tracejit.ir.verifier import VerificationError, verify


@pytest.fixture
def graph() -> Graph:
    """v0, v1 -> v2 = v0 * v1, v3 = exp(v2)."""
    return trace(lambda x, y: op("exp", x * y), (f32(3), f32(3)), (True, False))


def refused(graph: Graph, message: str, functional: bool = False) -> None:
    with pytest.raises(VerificationError, match=message):
        verify(graph, functional)


def test_a_traced_graph_is_accepted(graph: Graph) -> None:
    assert verify(graph) is graph
    verify(trace(mlp, MLP_AVALS, (True,) * 5), functional=True)


@given(write_programs())
def test_random_raw_programs_are_accepted(graph: Graph) -> None:
    verify(graph)


def test_use_before_definition_is_refused_and_the_node_is_named(graph: Graph) -> None:
    refused(replace(graph, nodes=graph.nodes[::-1]), r"node 0, `v3 = exp\(v2\).*v2, which is defined later")


def test_an_unknown_operand_is_refused(graph: Graph) -> None:
    nodes = (graph.nodes[0], Node(REGISTRY["exp"], (9,), (), (3,)))
    refused(replace(graph, nodes=nodes), "v9, which is defined nowhere")


def test_a_value_defined_twice_is_refused(graph: Graph) -> None:
    refused(replace(graph, nodes=(*graph.nodes, graph.nodes[1])), "v3 is defined a second time")


def test_an_aval_against_the_shape_rule_is_refused(graph: Graph) -> None:
    refused(replace(graph, avals={**graph.avals, 3: f64(3)}), r"shape rule says \(float32\[3\]\), recorded is \(float64\[3\]\)")


def test_operands_that_the_shape_rule_refuses_are_refused(graph: Graph) -> None:
    refused(replace(graph, avals={**graph.avals, 1: f32(4)}), "refuses the operands: .*broadcast")


def test_an_operand_of_another_kind_is_refused(graph: Graph) -> None:
    nodes = (Node(REGISTRY["mul"], (0, "v1"), (), (2,)), graph.nodes[1])  # type: ignore[arg-type]
    refused(replace(graph, nodes=nodes), "expected a value id, a Literal")


@pytest.mark.parametrize(
    ("attributes", "message"),
    [((("keepdim", False), ("dims", (0,))), "not sorted"), ((("dims", [0]), ("keepdim", False)), "not hashable")],
)
def test_attributes_must_be_sorted_and_hashable(attributes: Any, message: str) -> None:
    graph = trace(lambda x: op("sum", x, dims=(0,), keepdim=False), (f32(3),))
    node = replace(graph.nodes[0], attributes=attributes)
    refused(replace(graph, nodes=(node,)), message)


def test_outputs_must_be_defined(graph: Graph) -> None:
    refused(replace(graph, outputs=(7,)), "output 0 is 7")
    verify(replace(graph, outputs=(3, None, Literal(1.0), 0)))


def test_constants_must_have_the_data_of_their_aval(graph: Graph) -> None:
    refused(replace(graph, avals={**graph.avals, 9: f32(2)}, constants={9: np.zeros(2)}), "constant v9 is declared float32")


def test_inputs_must_be_distinct(graph: Graph) -> None:
    refused(replace(graph, inputs=(0, 0)), "not distinct")


def test_only_floating_point_values_require_grad() -> None:
    graph = trace(lambda x: x > 0, (f32(3),))
    refused(replace(graph, requires_grad=frozenset({1})), "only floating-point")
    refused(replace(graph, requires_grad=frozenset({5})), "no node defines")


def test_a_functional_graph_does_not_write_through_nodes() -> None:
    graph = trace(lambda x: op("write", x, x + 1.0), (f32(3),))
    verify(graph)
    refused(graph, r"v2 = write\(v0, v1\).*writes to memory", functional=True)


def test_writes_of_another_dtype_or_shape_are_refused() -> None:
    graph = trace(lambda x, y: op("write", x, y), (f32(3), f32(3)))
    refused(replace(graph, avals={**graph.avals, 1: f64(3)}), "writes float64 to float32")
    refused(replace(graph, avals={**graph.avals, 1: f32(2)}), "does not broadcast")


def test_a_write_to_a_view_of_a_constant_is_refused() -> None:
    graph = trace(lambda x: op("write", op("permute", x + np.zeros((2, 2)), dims=(1, 0)), 0.0), (f64(2, 2),))
    nodes = (Node(REGISTRY["permute"], (1,), (("dims", (1, 0)),), (3,)), graph.nodes[2])
    refused(replace(graph, nodes=nodes), "writes to a constant")


@pytest.mark.parametrize(
    ("writes", "message"),
    [
        (((2, 3),), "no tensor input"),
        (((0, 9),), "no node defines"),
        (((0, 2), (0, 3)), "twice"),
        (((0, 4),), "both must be the same"),
    ],
)
def test_commits_give_each_input_once_a_value_of_its_own_aval(writes: Any, message: str) -> None:
    graph = trace(lambda x, y: (op("exp", x * y), op("reshape", x, shape=(3, 1))), (f32(3), f32(3)))
    verify(replace(graph, writes=((0, 2), (1, 3))))
    refused(replace(graph, writes=writes), message)


def test_guards_test_one_element_against_a_literal() -> None:
    graph = trace(lambda x: op("guard", op("sum", x, dims=(0,), keepdim=False), expected=Literal(1.0)), (f32(3),))
    verify(graph)
    refused(replace(graph, nodes=(graph.nodes[0], replace(graph.nodes[1], operands=(0,)))), "one element")
    refused(replace(graph, nodes=(graph.nodes[0], replace(graph.nodes[1], attributes=(("expected", 1.0),)))), "no Literal")
