"""Printed graphs: Python that runs and round-trips."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from graph_programs import MLP_AVALS, f32, f64, gelu_chain, mlp, op, write_programs
from hypothesis import given

from tracejit.core import dtypes
from tracejit.core.array_constant import ArrayConstant
from tracejit.core.aval import ScalarAval
from tracejit.core.interpreter import pushed
from tracejit.core.op import REGISTRY
from tracejit.ir.builder import GraphBuilder
from tracejit.ir.graph import Graph, Literal, Node
from tracejit.ir.printer import parse, to_text
from tracejit.ir.tracer import ScalarTracer, Tracer, TracingInterpreter, trace
from tracejit.passes.pipeline import prepare


def round_trips(graph: Graph) -> bool:
    parsed = parse(to_text(graph))
    return parsed.equals(graph) and parsed.history == graph.history


def test_a_node_prints_as_one_line_of_python() -> None:
    graph = trace(lambda x, s: x * s, (f32(64, 784), ScalarAval(float)), (True,))
    assert to_text(graph) == (
        "from tracejit.ir.prelude import *\n"
        "\n"
        "\n"
        'def graph(v0: "float32[64, 784] grad", v1: "float"):\n'
        "    v2 = mul(v0, v1)  # float32[64, 784] grad\n"
        "    return (v2,)\n"
    )


@pytest.mark.parametrize(("function", "avals"), [(gelu_chain, (f32(8),)), (mlp, MLP_AVALS)])
def test_compositions_round_trip(function: Any, avals: Any) -> None:
    assert round_trips(trace(function, avals, (True,) * len(avals)))


@given(write_programs())
def test_raw_and_functional_programs_round_trip(graph: Graph) -> None:
    assert round_trips(graph)
    assert round_trips(prepare(graph))


def test_marks_of_gradients_and_of_stale_values_round_trip() -> None:
    def program(x: Any) -> Any:
        y = op("exp", x)
        op("write", y, y + 1.0)
        return y

    graph = prepare(trace(program, (f64(3),), (True,)))
    assert graph.requires_grad and graph.stale
    assert round_trips(graph)


def test_every_kind_of_operand_and_attribute_round_trips() -> None:
    def program(x: Any, n: Any) -> tuple[Any, ...]:
        y = op("full", float("-inf"), shape=(2,), dtype=dtypes.float32) + float("nan") - (-0.0)
        z = op("constant", array=ArrayConstant(np.array([np.nan, 1.0], np.float32)))
        op("guard", op("any", x > 0, dims=(0,), keepdim=False), expected=Literal(True))
        return (
            y,
            op("acc", None, x) + np.arange(40.0, dtype=np.float32)[:2],
            z * n,
            op("cast", x, dtype=dtypes.bool_),
            None,
            3,
            -0.0,
        )

    graph = trace(program, (f32(2), ScalarAval(int)))
    assert round_trips(graph)


def test_constants_keep_their_bits() -> None:
    odd = np.array([np.nan, -0.0, np.inf, 1e-45], np.float32)
    long = np.linspace(0, 1, 100)
    graph = trace(lambda x, y: (x + odd, y + long, x + np.array(True)), (f32(4), f64(100)))
    assert round_trips(graph)


def test_lines_of_the_user_survive() -> None:
    builder = GraphBuilder()
    x = builder.input(f32(2))
    (y,) = builder.add(REGISTRY["exp"], (x,), {}, "some  odd name.py:12")
    (z,) = builder.add(REGISTRY["sum"], (y,), {"dims": (0,), "keepdim": False}, "")
    builder.add(REGISTRY["guard"], (z,), {"expected": Literal(1.5)}, "model.py:13")
    graph = builder.build((y,))
    assert [node.line for node in parse(to_text(graph)).nodes] == ["some  odd name.py:12", "", "model.py:13"]


def test_a_printed_graph_runs_through_the_door_and_gives_the_same_graph() -> None:
    graph = trace(lambda x, s: total_of(x * s), (f64(3), ScalarAval(float)))
    namespace: dict[str, Any] = {}
    exec(to_text(graph), namespace)
    builder = GraphBuilder()
    tracing = TracingInterpreter(builder)
    tensor = Tracer(tracing, builder.input(f64(3)), f64(3))
    arguments = [tensor, ScalarTracer(tracing, builder.input(ScalarAval(float)), ScalarAval(float))]
    with pushed(tracing):
        (result,) = namespace["graph"](*arguments)
    assert builder.build((result.id,)).equals(graph)


def total_of(x: Any) -> Any:
    return op("sum", x, dims=(0,), keepdim=False)


def test_committed_writes_print_and_run() -> None:
    graph = prepare(trace(lambda x: op("write", x, x + 1.0), (f64(3),)))
    assert "commit((v0, v1))" in to_text(graph)
    assert round_trips(graph)


def test_what_cannot_be_printed_is_refused() -> None:
    graph = trace(lambda x: x + 1.0, (f32(2),))
    node = graph.nodes[0]
    odd = Graph(graph.inputs, graph.avals, (Node(node.op, node.operands, (("hook", print),), node.outputs),), graph.outputs)
    with pytest.raises(TypeError, match="builtin_function_or_method"):
        to_text(odd)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("v1 = nonsense(v0)", "no primitive"),
        ("x = exp(v0)", "no value"),
        ("v1 = exp(open)", "no value"),
        ("import os", "one application"),
    ],
)
def test_text_that_is_no_graph_is_refused_with_its_line(line: str, message: str) -> None:
    with pytest.raises(SyntaxError, match=message):
        parse(f'def graph(v0: "float32[2]"):\n    {line}\n    return (v0,)\n')
