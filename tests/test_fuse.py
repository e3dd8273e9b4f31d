"""What becomes one nest: groups of whole models, and the rules that keep groups legal."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from tests.graph_programs import f32, gelu_chain, i64, layer_norm, op, softmax, total
from tests.nest_programs import cross_entropy, log_softmax, sgd_step, value_and_gradients
from tests.random_graphs import random_graph
from tracejit.ir.graph import Graph
from tracejit.ir.layouts import ZERO, Position, Strided
from tracejit.ir.tracer import trace
from tracejit.lowering.fuse import EPILOGUE, INNER, LATE, OUTER, Group, Growth, group_nodes, matches
from tracejit.lowering.inlining import inlined_nodes
from tracejit.lowering.values import Values
from tracejit.passes.copies import copies
from tracejit.passes.pipeline import optimise


def groups_of(graph: Graph) -> tuple[Values, list[Group]]:
    strided: dict[int, Strided] = {}
    values = Values(copies(graph, {}, strided=strided), strided)
    return values, group_nodes(values, inlined_nodes(values))


def nests(graph: Graph) -> list[list[str]]:
    """Op names of the groups that are nests."""
    values, groups = groups_of(graph)
    return [[values.nodes[n].op.name for n in sorted(g.members)] for g in groups if g.is_nest]


def graph_of(function: Callable[..., Any], *avals: Any) -> Graph:
    return optimise(trace(function, avals))


def told(graph: Graph) -> list[Any]:
    """All that groups say."""
    return [(g.axes, g.inner, g.turned, g.members) for g in groups_of(graph)[1]]


def deep(layers: int) -> Graph:
    """Layers that are alike, each with values of its own."""

    def function(x: Any, *others: Any) -> Any:
        for w, b in zip(others[::2], others[1::2], strict=True):
            x = layer_norm(x @ w + b) + softmax(op("permute", x, dims=(1, 0)) @ (x @ w)) * total(b)
        return x

    return graph_of(function, f32(8, 8), *[f32(8, 8), f32(8)] * layers)


def test_groups_that_are_alike_grow_in_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = [deep(5), *[random_graph(seed)[0] for seed in range(60)]]
    known = [told(graph) for graph in graphs]
    forms = itertools.count()
    monkeypatch.setattr(Growth, "form", lambda self, *history: next(forms))
    assert [told(graph) for graph in graphs] == known


def test_what_becomes_of_groups_that_are_alike_is_found_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, fit = [0], Group._fit

    def counting(group: Group, number: int) -> Any:
        asked[-1] += 1
        return fit(group, number)

    monkeypatch.setattr(Group, "_fit", counting)
    told(deep(3))
    asked.append(0)
    told(deep(12))
    assert asked[0] == asked[1]


@pytest.mark.parametrize(
    ("function", "avals"),
    [
        (lambda x, y: op("tanh", x * y + 1.0) * x, (f32(64, 32), f32(32))),
        (softmax, (f32(64, 32),)),
        (log_softmax, (f32(64, 32),)),
        (lambda x: softmax(layer_norm(x)), (f32(64, 32),)),
        (cross_entropy, (f32(64, 10), i64(64))),
        (lambda x: total(op("exp", x)) / 100.0, (f32(10, 10),)),
        (lambda x: op("cast", x, dtype=f32().dtype) * 2.0, (i64(5, 5),)),
        (lambda x: op("reshape", op("exp", x), shape=(5, 1, 7)) + 1.0, (f32(5, 7),)),
        (lambda x: op("permute", op("exp", x), dims=(1, 0)) * 2.0, (f32(5, 7),)),
    ],
)
def test_a_composition_is_one_nest(function: Callable[..., Any], avals: tuple[Any, ...]) -> None:
    assert len(nests(graph_of(function, *avals))) == 1


@pytest.mark.parametrize(
    ("function", "avals", "wanted"),
    [
        (gelu_chain, [f32(1000)], [0]),
        (lambda x, w: total(softmax(layer_norm(x)) * w), [f32(64, 32), f32(64, 32)], [0]),
        (cross_entropy, [f32(64, 10), i64(64)], [0]),
    ],
)
def test_a_value_and_its_gradient_are_one_nest(function: Callable[..., Any], avals: list[Any], wanted: list[int]) -> None:
    assert len(nests(value_and_gradients(function, avals, wanted))) == 1


def test_a_training_step_has_three_nests_and_the_updates() -> None:
    found = nests(sgd_step(64, 784, 128, 10))
    updates = [names for names in found if set(names) == {"mul", "sub"}]
    assert len(updates) == 4
    assert len(found) - len(updates) == 3


def test_a_bias_gradient_joins_the_group_that_makes_the_cotangent() -> None:
    def function(x: Any, g: Any) -> Any:
        masked = op("where", x <= 0.0, 0.0, g)
        return masked, op("sum", masked, dims=(0,), keepdim=False)

    assert len(nests(graph_of(function, f32(64, 32), f32(64, 32)))) == 1


def test_late_results_are_not_used_inside_the_loops_that_make_them() -> None:
    _, groups = groups_of(graph_of(lambda x: x - op("sum", x, dims=(0,), keepdim=True), f32(8, 32)))
    assert len(groups) == 2
    assert [m.level for m in groups[0].members.values()] == [LATE]


def test_a_number_made_of_a_late_result_is_an_epilogue() -> None:
    graph = graph_of(lambda x: total(op("amax", x, dims=(1,), keepdim=False)) / 8.0, f32(8, 32))
    _, (group,) = groups_of(graph)
    assert [m.level for _, m in sorted(group.members.items())] == [OUTER, LATE, EPILOGUE]


def test_a_total_and_a_later_row_reduction_share_one_pass() -> None:
    def function(x: Any) -> Any:
        y = x * x
        return total(y) / 3.0, op("sum", y, dims=(0,), keepdim=False)

    _, (group,) = groups_of(graph_of(function, f32(8, 32)))
    assert group.inner == 1
    assert {m.level for m in group.members.values()} == {INNER, LATE, EPILOGUE}


def test_a_path_through_a_product_keeps_groups_apart() -> None:
    graph = graph_of(lambda x, w: op("exp", x) + op("exp", x) @ w, f32(8, 8), f32(8, 8))
    values, groups = groups_of(graph)
    kinds = [[values.nodes[n].op.name for n in sorted(g.members)] for g in groups]
    assert kinds == [["exp"], ["matmul"], ["add"]]


def test_groups_come_in_an_order_in_which_they_can_run() -> None:
    values, groups = groups_of(sgd_step(4, 6, 5, 3))
    done: set[int] = set()
    for group in groups:
        for n in group.members:
            for o in values.nodes[n].operands:
                if values.is_tensor(o):
                    source = values.producer.get(values.root(o))  # type: ignore[arg-type]
                    assert source is None or source in done or source in group.members or source in inlined_nodes(values)
        done.update(group.members)


def test_siblings_that_read_one_value_share_its_loads() -> None:
    assert len(nests(graph_of(lambda x: (op("exp", x), op("sin", x), op("amax", x, dims=(1,), keepdim=False)), f32(8, 32)))) == 1


def test_an_expensive_value_is_not_computed_again_at_other_positions() -> None:
    found = nests(graph_of(lambda x: op("slice", op("exp", x), dim=0, start=1, stop=8, step=1) * 2.0, f32(8, 32)))
    assert found == [["exp"], ["mul"]]


def test_constants_belong_to_every_group() -> None:
    graph = graph_of(lambda x, w: (op("full", 2.0, shape=(8, 8), dtype=f32().dtype) * x) @ w, f32(8, 8), f32(8, 8))
    assert "full" not in [name for names in nests(graph) for name in names]


def test_dimensions_are_laid_over_runs_of_axes() -> None:
    assert matches((6, 4), (2, 3, 4)) == ((Position(((0, 3), (1, 1))), Position(((2, 1),))),)
    assert matches((1, 3), (2, 3, 4)) == ((ZERO, Position(((1, 1),))),)
    assert matches((5,), (2, 3)) == ()
    assert matches((3,), (3, 3)) == (
        (Position(((0, 1),)),),
        (Position(((1, 1),)),),
    )
