"""Graphs made ready to be run many times: what the interpreter gives, in each run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from graph_programs import MLP_AVALS, arrays_for, f32, f64, gelu_chain, i64, mlp, op, total

from tracejit.core import dtypes
from tracejit.core.floating import quietly
from tracejit.ir.graph import Graph, Literal
from tracejit.ir.interpreter import GuardFailed, NodeFailed, interpret
from tracejit.ir.runner import Runner
from tracejit.ir.tracer import trace

RUNS = 40  # more than it interprets


def several(x: Any, i: Any, matrix: Any) -> Any:
    sign, logarithm = op("slogdet", matrix)
    return sign * 2.0, logarithm, op("index_select", x, i, dim=0), total(x), x > 0, 3.0 - total(x)


GRAPHS = {
    "a network": trace(mlp, MLP_AVALS),
    "several outputs, numbers, and positions": trace(several, (f32(4), i64(2), f64(2, 2))),
    "nothing but an input": trace(lambda x: x, (f32(2),)),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_each_run_gives_what_the_interpreter_gives(name: str) -> None:
    graph = GRAPHS[name]
    run = Runner(graph)
    for k in range(RUNS):
        inputs = [x if x.dtype.kind == "f" else abs(x) % 4 for x in arrays_for(graph, k)]
        for expected, given in zip(interpret(graph, inputs), quietly(run, inputs), strict=True):
            assert type(given) is np.ndarray and given.dtype == expected.dtype
            np.testing.assert_array_equal(given, expected)


def test_what_does_not_go_on_is_told_with_its_node_in_each_run() -> None:
    def program(x: Any, i: Any) -> Any:
        op("guard", op("any", x > 0, dims=(0,), keepdim=False), expected=Literal(True))
        op("guard", op("cast", total(x), dtype=dtypes.int64), expected=Literal(3))
        return op("index_select", x, i, dim=0)

    run = Runner(trace(program, (f64(2), i64(1))))
    for _ in range(RUNS):
        for values, position, cause, name in (
            ([-1.0, -2.0], 0, GuardFailed, "guard"),
            ([1.0, 3.0], 0, GuardFailed, "guard"),
            ([1.0, 2.0], 2, IndexError, "index_select"),
        ):
            with pytest.raises(NodeFailed) as failed:
                quietly(run, [np.array(values), np.array([position])])
            assert type(failed.value.__cause__) is cause and failed.value.node.op.name == name
            if isinstance(failed.value.__cause__, GuardFailed):
                assert failed.value.__cause__.index == int(values[0] > 0)
        (given,) = quietly(run, [np.array([1.0, 2.0]), np.array([1])])
        np.testing.assert_array_equal(given, [2.0])


def test_an_op_that_contradicts_its_shape_rule_is_caught_in_each_run() -> None:
    graph = trace(gelu_chain, (f32(4),))
    lying = Graph(graph.inputs, {**graph.avals, graph.nodes[3].outputs[0]: f32(5)}, graph.nodes, graph.outputs)
    run = Runner(lying)
    for _ in range(RUNS):
        with pytest.raises(NodeFailed) as failed:
            quietly(run, [np.zeros(4, np.float32)])
        assert "shape rule" in str(failed.value.__cause__) and failed.value.node is graph.nodes[3]
