"""Functionalisation: views and writes become pure values and commits, and mean the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from graph_programs import f64, names, op, total, write_programs
from hypothesis import given, settings

from tracejit.core.aval import ScalarAval
from tracejit.ir.graph import Graph
from tracejit.ir.interpreter import interpret
from tracejit.ir.tracer import trace
from tracejit.ir.verifier import verify
from tracejit.passes.functionalise import functionalise
from tracejit.passes.pipeline import optimise, prepare


def outcome(graph: Graph) -> tuple[Any, ...]:
    """Outputs, then inputs, after a run."""
    inputs = [np.arange(1.0, 1.0 + graph.avals[v].size).reshape(graph.avals[v].shape) for v in graph.inputs]  # type: ignore[union-attr]
    outputs = interpret(graph, inputs)
    return (*(np.array(x) for x in outputs), *inputs)


def same_outcome(one: Graph, other: Graph) -> None:
    for a, b in zip(outcome(one), outcome(other), strict=True):
        np.testing.assert_array_equal(a, b)


@settings(max_examples=300, deadline=None)
@given(write_programs())
def test_any_program_of_views_and_writes_means_the_same_after_functionalisation(raw: Graph) -> None:
    pure = functionalise(raw)
    verify(pure, functional=True)
    same_outcome(raw, pure)
    same_outcome(raw, prepare(raw, check=True))
    same_outcome(raw, optimise(pure, check=True))


def test_a_program_without_writes_is_returned_as_it_is() -> None:
    graph = trace(lambda x: op("select", x, 0, dim=0) * 2.0, (f64(2, 3),))
    assert functionalise(graph) is graph


def test_a_write_to_an_input_becomes_a_commit_of_the_written_value() -> None:
    pure = functionalise(trace(lambda x: op("write", x, x + 1.0), (f64(3),)))
    assert names(pure) == ["add"]
    assert pure.writes == ((0, 1),) and pure.outputs == (1,)


VIEWS: dict[str, Callable[[Any], Any]] = {
    "slice": lambda x: op("slice", x, dim=1, start=1, stop=4, step=2),
    "select": lambda x: op("select", x, 2, dim=0),
    "permute": lambda x: op("permute", x, dims=(1, 0)),
    "reshape": lambda x: op("reshape", x, shape=(2, 6)),
    "diagonal": lambda x: op("diagonal", x, offset=-1, dim1=1, dim2=0),
    "detach": lambda x: op("detach", x),
    "expand": lambda x: op("expand", x, shape=(3, 4)),
}


@pytest.mark.parametrize("name", VIEWS)
def test_each_view_can_be_written_through(name: str) -> None:
    def program(x: Any) -> tuple[Any, ...]:
        view = VIEWS[name](x)
        other = op("permute", x, dims=(1, 0))
        op("write", view, view * -1.0)
        return total(other * 2.0), view, x

    raw = trace(program, (f64(3, 4),))
    same_outcome(raw, prepare(raw, check=True))


@pytest.mark.parametrize("outer", [name for name in VIEWS if name != "expand"])
def test_views_of_views_can_be_written_through(outer: str) -> None:
    def program(x: Any) -> Any:
        inner = op("permute", op("slice", x, dim=0, start=1, stop=4, step=1), dims=(1, 0))
        view = VIEWS[outer](op("permute", inner, dims=(1, 0)))
        op("write", view, 7.0)
        return op("write", inner, inner + 1.0)

    raw = trace(program, (f64(5, 4),))
    same_outcome(raw, prepare(raw, check=True))


def test_a_write_to_an_expanded_view_is_refused() -> None:
    raw = trace(lambda x: op("write", op("expand", x, shape=(3, 4)), 1.0), (f64(4),))
    with pytest.raises(RuntimeError, match=r"expand\(\).*clone\(\)"):
        functionalise(raw)


def test_an_index_given_at_run_time_keeps_its_value() -> None:
    def program(x: Any, i: Any) -> Any:
        op("write", op("select", x, i, dim=0), 9.0)
        return x

    raw = trace(program, (f64(3, 2), ScalarAval(int)))
    pure = prepare(raw, check=True)
    for graph in (raw, pure):
        x = np.zeros((3, 2))
        interpret(graph, [x, 2])
        np.testing.assert_array_equal(x, [[0, 0], [0, 0], [9, 9]])


def test_a_tensor_filled_from_another_stays_a_tensor_of_its_own() -> None:
    """Were the copy returned as the id of the input, changing one later would change the other."""

    def program(x: Any) -> tuple[Any, ...]:
        copy = op("full", 0.0, shape=(3,), dtype=x.dtype)
        op("write", copy, x)
        return copy, op("write", x, copy)

    pure = prepare(trace(program, (f64(3),)))
    assert set(pure.outputs).isdisjoint(pure.inputs)
    assert len(set(pure.outputs)) == 2


def marked(graph: Graph, v: Any) -> bool:
    return v in graph.requires_grad


def test_a_differentiable_write_makes_the_new_version_require_grad() -> None:
    def program(x: Any, y: Any) -> Any:
        view = op("permute", x, dims=(1, 0))
        op("write", op("select", x, 0, dim=0), y)
        return view

    pure = functionalise(trace(program, (f64(2, 3), f64(3)), (False, True)))
    assert not marked(pure, pure.inputs[0])
    assert marked(pure, pure.outputs[0]) and marked(pure, pure.writes[0][1])


def without_mark(raw: Graph, name: str = "write") -> Graph:
    """The graph as recorded when the node called `name` ran under no_grad."""
    (node,) = (n for n in raw.nodes if n.op.name == name)
    return replace(raw, requires_grad=raw.requires_grad - set(node.outputs))


def test_a_write_under_no_grad_of_a_differentiable_value_lets_no_gradient_through() -> None:
    def program(x: Any, y: Any) -> Any:
        op("write", x, y)
        return x * 2.0

    pure = functionalise(without_mark(trace(program, (f64(3), f64(3)), (False, True))))
    (target,) = (v for _, v in pure.writes)
    assert not marked(pure, target)


def test_a_write_under_no_grad_to_a_tensor_that_requires_grad_keeps_its_gradient_path() -> None:
    def program(p: Any) -> Any:
        op("write", p, op("detach", p) * 0.5)
        return p * 2.0

    pure = functionalise(without_mark(trace(program, (f64(3),), (True,))))
    node = next(n for n in pure.nodes if n.op.name == "replace_data")
    assert node.operands[0] == pure.inputs[0]
    assert marked(pure, node.outputs[0]) and marked(pure, pure.outputs[0])
