"""passes/pullbacks.py: what a rule has added for one node is added again for others that are alike, and for no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from graph_programs import op

from tracejit.core.aval import Aval
from tracejit.core.dtypes import float32, float64
from tracejit.core.op import REGISTRY, VjpContext
from tracejit.ir.builder import GraphBuilder
from tracejit.ir.graph import Graph, Literal, Node
from tracejit.ir.interpreter import interpret
from tracejit.ir.tracer import Tracer, TracingInterpreter, trace
from tracejit.passes import backward
from tracejit.passes.backward import backward_graph
from tracejit.passes.pullbacks import PullBacks

MATRIX = Aval((3, 3), float64)


class AskedEachTime(PullBacks):
    """Remembers nothing."""

    def _once(self, about: Any, operands: Any, line: str, action: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
        return action()


def steps(h: Any, x: Any, w: Any) -> Any:
    for k in range(6):
        h = op("tanh", h @ w + x)
        h = h * h + h * (0.5 if k < 3 else 0.25) + x * w
    return h


def shapes(h: Any, x: Any, w: Any) -> Any:
    for _ in range(4):
        h = h * op("select", x, 1, dim=0) + w * op("select", h, 0, dim=1)
        h = op("permute", h, dims=(1, 0)) / (x * x + 1.0)
    return h


def marked(function: Callable[..., Any], avals: list[Aval]) -> Graph:
    return trace(function, avals, requires_grad=[True] * len(avals))


def gradients(graph: Graph) -> Graph:
    return backward_graph(graph, (), graph.inputs, [True], graph.inputs)


@pytest.mark.parametrize("function", [steps, shapes])
@pytest.mark.parametrize("dtype", [float32, float64])
def test_the_graph_is_the_one_of_rules_that_are_asked_each_time(
    function: Callable[..., Any], dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = marked(function, [Aval((3, 3), dtype)] * 3)
    found = gradients(graph)
    monkeypatch.setattr(backward, "PullBacks", AskedEachTime)
    expected = gradients(graph)
    assert found == expected
    assert [node.line for node in found.nodes] == [node.line for node in expected.nodes]


def test_rules_are_asked_twice_of_however_many_nodes_that_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    tanh, rule = REGISTRY["tanh"], REGISTRY["tanh"].vjp_rule
    assert rule is not None
    monkeypatch.setattr(tanh, "vjp_rule", lambda context, *given: asked.append(given) or rule(context, *given))

    def repeated(count: int) -> int:
        def function(h: Any) -> Any:
            for _ in range(count):
                h = tanh.of(h)
            return h

        asked.clear()
        gradients(marked(function, [MATRIX]))
        return len(asked)

    assert repeated(3) == repeated(30) == 2


def test_lines_are_those_of_each_node() -> None:
    tanh = REGISTRY["tanh"]
    nodes = tuple([Node(tanh, (k,), (), (k + 1,), f"file:{k}") for k in range(5)])
    graph = Graph((0,), dict.fromkeys(range(6), MATRIX), nodes, (5,), requires_grad=frozenset(range(6)))
    lines = [node.line for node in gradients(graph).nodes if node.op is not tanh]
    assert set(lines) >= {f"file:{k}" for k in range(5)}


def context_of(*inputs: Any) -> VjpContext:
    return VjpContext(inputs, (None,), (True,) * len(inputs), (MATRIX,) * len(inputs), {})


def asked_of(rule: Callable[..., Any], times: int) -> tuple[GraphBuilder, list[tuple[Any, ...]]]:
    """What a rule has added when it was asked so often, of a primitive's cotangents."""
    builder = GraphBuilder()
    interpreter = TracingInterpreter(builder)
    pull_backs = PullBacks(interpreter)
    node = Node(REGISTRY["neg"], (0,), (), (1,))
    found = []
    before = REGISTRY["neg"].vjp_rule
    REGISTRY["neg"].vjp_rule = rule
    try:
        for _ in range(times):
            g = Tracer(interpreter, builder.input(MATRIX), MATRIX)
            found.append(pull_backs.of(node, context_of(None), [g], lambda node, context, answer: answer))
    finally:
        REGISTRY["neg"].vjp_rule = before
    return builder, found


def test_a_constant_that_a_rule_makes_is_made_each_time() -> None:
    numbers = iter(range(10))
    builder, _ = asked_of(lambda c, g: g * np.full((3, 3), float(next(numbers))), 4)
    assert sorted(float(array.flat[0]) for array in builder.constants.values()) == [0.0, 1.0, 2.0, 3.0]


def test_a_rule_that_reads_what_it_was_not_given_is_asked_each_time() -> None:
    kept: list[Any] = []

    def rule(c: Any, g: Any) -> Any:
        kept.append(g)
        return g + kept[0]

    builder, found = asked_of(rule, 4)
    assert len(kept) == 4 and len(builder.nodes) == 4
    assert [x.id for (x,) in found] == [node.outputs[0] for node in builder.nodes]


def test_numbers_of_different_types_and_signs_are_told_apart() -> None:
    avals = [MATRIX]

    def function(x: Any) -> Any:
        for number in (2, 2, 2.0, 2.0, 0.0, 0.0, -0.0, -0.0, 2):
            x = x * number
        return x

    graph = marked(function, avals)
    literals = [x for node in gradients(graph).nodes for x in node.operands if isinstance(x, Literal)]
    for literal in (Literal(2), Literal(2.0), Literal(0.0), Literal(-0.0)):
        assert literal in literals


def test_gradients_are_those_of_differences() -> None:
    graph = marked(steps, [MATRIX] * 3)
    rng = np.random.default_rng(0)
    values = [rng.normal(0, 0.3, (3, 3)) for _ in range(3)]
    slope = interpret(gradients(graph), [*values, np.ones((3, 3))])
    for k in range(3):
        moved = [v.copy() for v in values]
        moved[k][1, 2] += 1e-6
        difference = (interpret(graph, moved)[0].sum() - interpret(graph, values)[0].sum()) / 1e-6
        assert abs(difference - slope[k][1, 2]) < 1e-4
