"""Groups that recur are scheduled once, and what they are given is what scheduling each of them would have given."""

from __future__ import annotations

from typing import Any

import pytest

from tests.graph_programs import f32, i64, layer_norm, op, softmax, total
from tests.random_graphs import random_graph
from tracejit.ir.graph import Graph
from tracejit.ir.tracer import trace
from tracejit.lowering import recurring
from tracejit.lowering.likeness import form
from tracejit.lowering.lower import NeedsHost, lower
from tracejit.lowering.schedule import Scheduled
from tracejit.lowering.steps import NestCall, NestRun, addresses
from tracejit.passes.pipeline import optimise

LAYERS = 5


def told(graph: Graph) -> list[Any]:
    """All that the steps of a program are, nests by their form."""
    lowered = lower(optimise(graph), {})
    found: list[Any] = [lowered.arena_bytes, lowered.outputs, lowered.text]
    for step in lowered.spec.steps:
        if isinstance(step, NestCall | NestRun):
            calls = (step,) if isinstance(step, NestCall) else step.calls
            found += [(form(call.nest), call.buffers, call.sizes, call.scalars, call.division) for call in calls]
        else:
            found.append((step, addresses(step)))
    return found


def told_one_by_one(graph: Graph, patch: pytest.MonkeyPatch) -> list[Any]:
    """The same where no group is found again."""
    with patch.context() as m:
        m.setattr(recurring.Schedules, "_described", lambda self, group: (object(), []))
        return told(graph)


def scheduled(graph: Graph, patch: pytest.MonkeyPatch, how: str = "schedule") -> int:
    """How many groups are scheduled; or, how="special", nodes that stand alone."""
    count = 0
    original = getattr(recurring, how)

    def counting(*args: Any) -> Scheduled:
        nonlocal count
        count += 1
        return original(*args)

    with patch.context() as m:
        m.setattr(recurring, how, counting)
        lower(optimise(graph), {})
    return count


def deep(layer: Any, *avals: Any, layers: int = LAYERS) -> Graph:
    """x after some layers, each with values of its own."""

    def function(x: Any, *others: Any) -> Any:
        for k in range(layers):
            x = layer(x, *others[k * len(avals) : (k + 1) * len(avals)])
        return x

    return trace(function, [f32(6, 8), *avals * layers])


def attends(x: Any, w: Any, b: Any) -> Any:
    return layer_norm(x + softmax(op("permute", x, dims=(1, 0)) @ (x @ w))[0:6] + b)


def masks(x: Any, w: Any, b: Any) -> Any:
    rows = op("arange", 0, 1, length=8, dtype=x.dtype)
    return op("where", op("lt", rows, 3.0), x @ w, op("full", 0.5, shape=(6, 8), dtype=x.dtype) * x) + total(x * b)


def sums_up(x: Any, w: Any, b: Any) -> Any:
    rows = op("cumsum", x @ w, dim=0)
    return op("permute", op("cumsum", op("permute", rows, dims=(1, 0)), dim=0), dims=(1, 0)) + b


def test_equal_layers_are_scheduled_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (scheduled(deep(masks, f32(8, 8), f32(8), layers=n), monkeypatch) for n in (3, 12))
    assert few == many


def test_nodes_that_stand_alone_are_scheduled_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (scheduled(deep(sums_up, f32(8, 8), f32(8), layers=n), monkeypatch, "special") for n in (3, 12))
    assert few == many > 0


@pytest.mark.parametrize("layer", [masks, sums_up, lambda x, w, b: layer_norm(x @ w) * b, lambda x, w, b: softmax(x @ w + b)])
def test_steps_are_those_of_groups_scheduled_one_by_one(layer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = deep(layer, f32(8, 8), f32(8))
    assert told(graph) == told_one_by_one(graph, monkeypatch)


def test_steps_of_any_program_are_those_of_groups_scheduled_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0
    for seed in range(120):
        graph, _ = random_graph(seed)
        try:
            expected = told_one_by_one(graph, monkeypatch)
        except NeedsHost:
            continue
        assert told(graph) == expected, seed
        compared += 1
    assert compared > 40


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x: x * 2.0, lambda x: x * 3.0),
        (lambda x: op("sum", x, dims=(0,), keepdim=True), lambda x: op("sum", x, dims=(1,), keepdim=True)),
        (lambda x: op("tanh", x), lambda x: op("exp", x)),
        (lambda x: x + x, lambda x: x - x),
    ],
    ids=["literals", "attributes", "operations", "operators"],
)
def test_groups_that_differ_have_nests_of_their_own(one: Any, other: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: Any, w: Any) -> Any:
        return one(x @ w), other((x @ w) @ w)

    assert scheduled(trace(function, [f32(8, 8), f32(8, 8)]), monkeypatch) == 2


def test_a_group_reads_its_own_values_in_any_order_of_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: Any, y: Any, w: Any) -> Any:
        return (x @ w) - y, y - (x @ w @ w)

    graph = trace(function, [f32(8, 8), f32(8, 8), f32(8, 8)])
    assert told(graph) == told_one_by_one(graph, monkeypatch)


def test_groups_with_exits_are_scheduled_each_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: Any, w: Any, index: Any) -> Any:
        for _ in range(LAYERS):
            x = op("index_select", x, index, dim=0) @ w
        return x

    graph = trace(function, [f32(8, 8), f32(8, 8), i64(8)])
    assert scheduled(graph, monkeypatch) == LAYERS
    assert told(graph) == told_one_by_one(graph, monkeypatch)
