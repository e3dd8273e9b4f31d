"""passes/own_slices.py: readers of a slice take it themselves, so that loops keep what it is a slice of, and not both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.graph_programs import f64, names, op
from tests.test_loop import arrays
from tracejit.core.op import Kind
from tracejit.ir.graph import Graph
from tracejit.ir.interpreter import interpret
from tracejit.ir.tracer import trace
from tracejit.ir.verifier import verify
from tracejit.passes.own_slices import own_slices
from tracejit.passes.pipeline import optimise

STEPS, ROWS, WIDTH = 16, 3, 4


def columns(x: Any, start: int) -> Any:
    return op("slice", x, dim=1, start=start, stop=start + WIDTH, step=1)


def changed(function: Callable[..., Any]) -> tuple[Graph, Graph]:
    """The graph of a function before and after the pass, which computes the same."""
    graph = trace(function, [f64(ROWS, 2 * WIDTH)])
    found = verify(own_slices(graph), functional=True)
    for a, b in zip(interpret(found, arrays(graph)), interpret(graph, arrays(graph)), strict=True):
        np.testing.assert_array_equal(a, b)
    return graph, found


def test_each_reader_has_a_slice_of_its_own_just_before_it() -> None:
    def function(x: Any) -> Any:
        part = columns(op("sin", x), 1)
        return op("cos", part), op("mul", part, part)

    _, found = changed(function)
    assert names(found) == ["sin", "slice", "cos", "slice", "mul"]


def test_what_is_returned_or_looked_at_again_stays() -> None:
    def function(x: Any) -> Any:
        part = columns(op("sin", x), 1)
        return op("cos", part), op("tanh", part), part, op("exp", op("permute", part, dims=(1, 0)))

    _, found = changed(function)
    assert names(found) == ["sin", "slice", "slice", "cos", "slice", "tanh", "permute", "exp"]
    (part,) = [node.outputs[0] for node in found.nodes if node.outputs[0] in found.outputs and node.op.kind is Kind.VIEW]
    assert found.nodes[1].outputs[0] == part


def of_an_input(x: Any) -> Any:
    part = columns(x, 1)
    return op("cos", part), op("sin", part)


def read_once(x: Any) -> Any:
    return op("cos", columns(op("sin", x), 1))


def of_a_view(x: Any) -> Any:
    part = columns(op("reshape", op("sin", x), shape=(ROWS, 2 * WIDTH)), 1)
    return op("cos", part), op("sin", part)


@pytest.mark.parametrize("function", [of_an_input, read_once, of_a_view])
def test_other_graphs_are_the_same_object(function: Callable[..., Any]) -> None:
    before, after = changed(function)
    assert after is before


def test_a_loop_keeps_a_value_and_not_its_slices_beside_it() -> None:
    def function(h: Any, w: Any) -> Any:
        kept = []
        for _ in range(STEPS):
            both = op("sin", op("matmul", h, w))
            entry, forget = columns(both, 0), columns(both, WIDTH)
            h = op("mul", op("add", h, entry), op("tanh", forget))
            kept.append((both, entry, forget))
        g, total = h, h
        for both, entry, forget in reversed(kept):
            g = op("mul", op("add", op("mul", g, entry), forget), 0.5)
            squares = op("mul", both, op("sub", 1.0, both))
            total = op("add", op("mul", total, g), op("mul", columns(squares, 0), columns(squares, WIDTH)))
        return h, g, total

    graph = trace(function, [f64(ROWS, WIDTH), f64(WIDTH, 2 * WIDTH)])
    found = optimise(graph, check=True, has_loops=True)
    for a, b in zip(interpret(found, arrays(graph)), interpret(graph, arrays(graph)), strict=True):
        np.testing.assert_array_equal(a, b)
    ahead, back = [node for node in found.nodes if node.op.kind is Kind.LOOP]
    kept = [found.avals[v].shape[1:] for v in ahead.outputs[ahead.attrs["carried"] :]]  # type: ignore[union-attr]
    assert kept == [(ROWS, 2 * WIDTH)]
    assert back.attrs["sliced"] == 1
