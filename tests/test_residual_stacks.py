"""passes/residual_stacks.py: what loops keep for the backward pass stays in one piece, and is the same values."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.graph_programs import f32, names, op, total
from tracejit.core.aval import Aval
from tracejit.core.op import Kind
from tracejit.ir.graph import Body, Graph
from tracejit.ir.interpreter import interpret
from tracejit.ir.loop import loop
from tracejit.ir.tracer import trace
from tracejit.ir.verifier import verify
from tracejit.passes.residual_stacks import stack_residuals

COUNT = 6
BODY = Body(trace(lambda h, x: (op("tanh", op("add", h, x)),) * 2, [f32(3), f32(3)]))


def graph_of(*indices: int) -> Graph:
    """A result, and residuals: one of its own, then slices of what a loop collects, of which the first is there twice."""

    def function(h: Any, xs: Any) -> Any:
        end, states = loop(0).of(h, xs, body=BODY, carried=1, sliced=1, count=COUNT, reverse=False)
        slices = [op("select", states, i, dim=0) for i in indices]
        return total(end), op("exp", h), *[op("clone", s) for s in slices], slices[0]

    return trace(function, [f32(3), f32(COUNT, 3)])


def test_the_slab_holds_what_the_loop_collects_and_gives_the_same_residuals() -> None:
    graph = graph_of(4, 1, 2, 3)
    inputs = [np.ones(3, np.float32), np.random.default_rng(0).normal(size=(COUNT, 3)).astype(np.float32)]
    forward, kept = stack_residuals(graph, 1)
    assert kept.has_stacks and "select" not in names(forward)
    assert [aval.shape for aval in kept.avals] == [(3,), (COUNT, 3)]
    expected = interpret(graph, inputs)
    found = interpret(verify(forward, functional=True), inputs)
    residuals = kept.residuals(found[1:])
    for a, b in zip((found[0], *residuals), expected, strict=True):
        assert a.tobytes() == b.tobytes()


def test_the_backward_graph_begins_with_the_slices() -> None:
    _, kept = stack_residuals(graph_of(4, 1, 2, 3), 1)
    avals: list[Aval] = [f32(3)] * 6
    backward = trace(lambda *xs: sum(k * x for k, x in enumerate(xs)), [*avals, f32(3)])
    given, in_slab = kept.read_by(backward)
    verify(given, functional=True)
    generator = np.random.default_rng(0)
    tensors = [generator.normal(size=aval.shape).astype(np.float32) for aval in kept.avals]
    cotangent = np.ones(3, np.float32)
    assert given.inputs[: len(in_slab)] == in_slab and len(given.inputs) == len(in_slab) + 1
    (a,) = interpret(given, [*tensors, cotangent])
    (b,) = interpret(backward, [*kept.residuals(tensors), cotangent])
    assert a.tobytes() == b.tobytes()


def test_few_slices_of_much_stay_what_they_are() -> None:
    graph = graph_of(4)
    forward, kept = stack_residuals(graph, 1)
    assert forward is graph and not kept.has_stacks and len(kept.avals) == 3
    assert any(node.op.kind is Kind.LOOP for node in graph.nodes)
