"""Exits that machine code hands over to other paths by itself (cpython/dispatcher.py, recorded_path.py)."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tracejit import nn, optim
from tracejit.config import override
from tracejit.cpython import c_api

pytestmark = pytest.mark.skipif(not c_api.supported(), reason="entries are interpreted on this Python")

HOT = 3


@pytest.fixture(autouse=True)
def hot_soon() -> Iterator[None]:
    with override(hot_calls=HOT):
        yield


def counted(compiled: Any) -> list[int]:
    """The numbers with which machine code has asked Python to go on."""
    numbers, go_on = list[int](), compiled._table.slots[1]

    def count(args: Any, kwargs: Any, number: int, *others: Any) -> Any:
        numbers.append(number)
        return go_on(args, kwargs, number, *others)

    compiled._table.slots[1] = count
    return numbers


def all_hot(compiled: Any, calls: Any) -> None:
    for _ in range(60):
        calls()
    assert all(path.machine is not None for path in compiled._table.paths), compiled.explain()


def three_sides(x: Any) -> Any:
    y = x * 2 if x[0] > 0 else x * 3
    y = y + 1 if x[1] > 0 else y - 1
    return y.tanh() if x[2] > 0 else y.exp()


SIDES = [T.tensor([float(a), float(b), float(c)]) for a in (-1, 1) for b in (-1, 1) for c in (-1, 1)]


def test_chains_of_exits_give_eagers_results_with_python_asked_now_and_then() -> None:
    compiled = T.compile(three_sides)
    all_hot(compiled, lambda: [compiled(x) for x in SIDES])
    numbers, dice, before = counted(compiled), random.Random(0), compiled.stats.exits
    for _ in range(2000):
        x = dice.choice(SIDES)
        np.testing.assert_allclose(compiled(x).numpy(), three_sides(x).numpy(), rtol=1e-6)
    exits = compiled.stats.exits - before
    assert exits > 1500 and len(numbers) < exits / 8
    assert compiled.stats.traces == 8


def test_exits_and_bridges_are_counted_and_settled_as_if_python_had_handed_over() -> None:
    compiled = T.compile(lambda x: x * 2 if x.sum() > 0 else x * 3)
    sides = [T.ones(2), -T.ones(2)]
    all_hot(compiled, lambda: [compiled(x) for x in sides])
    exits, bridges, seen = compiled.stats.exits, compiled.stats.bridges, compiled._policy.accounts._window_calls
    for _ in range(320):
        for x in sides:
            compiled(x)
    assert compiled.stats.exits == exits + 320
    assert abs(compiled.stats.bridges - bridges - 320) <= 32
    assert (compiled._policy.accounts._window_calls - seen) % 64 in {
        *range(33),
        *range(64 - 33, 64),
    }  # windows were closed meanwhile


def test_a_bridge_whose_guards_fail_leaves_the_call_to_python_with_the_exit_that_was_taken_first() -> None:
    factor = [3.0]

    def function(x: Any) -> Any:
        if x.sum() > 0:
            return x * 2
        return x * 3 if factor[0] == 3.0 else x * 5

    compiled = T.compile(function)
    sides = [T.ones(2), -T.ones(2)]
    all_hot(compiled, lambda: [compiled(x) for x in sides])
    numbers = counted(compiled)
    factor[0] = 4.0
    assert compiled(sides[1]).tolist() == [-5.0, -5.0] and 0 not in numbers
    for _ in range(10):
        assert compiled(sides[1]).tolist() == [-5.0, -5.0] and compiled(sides[0]).tolist() == [2.0, 2.0]
    factor[0] = 3.0
    for _ in range(10):
        assert compiled(sides[1]).tolist() == [-3.0, -3.0] and compiled(sides[0]).tolist() == [2.0, 2.0]
    assert compiled.stats.traces == 3


def test_training_along_bridges_is_eagers_training() -> None:
    def trained(wrap: Any) -> list[float]:
        T.manual_seed(0)
        first, left, right = nn.Linear(4, 8), nn.Linear(8, 1), nn.Linear(8, 1)
        optimizer = optim.Adam([*first.parameters(), *left.parameters(), *right.parameters()], lr=0.01)

        def loss(x: Any) -> Any:
            hidden = first(x).tanh()
            return (left(hidden) if hidden[0, 0] > 0 else right(hidden) * 2).pow(2).mean()

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            value = loss(x)
            value.backward()
            optimizer.step()
            return value.detach()

        run, generator = wrap(step), np.random.default_rng(0)
        return [run(T.tensor(generator.normal(size=(5, 4)).astype(np.float32))).item() for _ in range(400)]

    compiled: list[Any] = []
    losses = trained(lambda step: compiled.append(T.compile(step)) or compiled[0])
    np.testing.assert_allclose(losses, trained(lambda step: step), rtol=1e-3)
    assert compiled[0].stats.exits > 50 and compiled[0].stats.compiled_calls > 380


def test_nothing_is_kept_and_nothing_freed_too_early_along_bridges() -> None:
    compiled = T.compile(three_sides)
    all_hot(compiled, lambda: [compiled(x) for x in SIDES])

    for x in SIDES * 40:
        compiled(x)
    exits = [e for path in compiled._table.paths for trace in path.traces for e in trace.exits.values()]
    things = [*SIDES, *exits, *[path.machine for path in compiled._table.paths]]

    def counts() -> list[int]:
        return [sys.getrefcount(thing) for thing in things]

    gc.collect()
    before = counts()
    for x in SIDES * 400:
        compiled(x)
    after = counts()
    assert sum(abs(a - b) for a, b in zip(before, after, strict=True)) <= 16  # a bridge may have changed


def test_what_most_calls_lead_to_is_tried_first() -> None:
    compiled = T.compile(lambda x: x * 2 if x.sum() > 0 else x * 3)
    positive, negative = T.ones(2), -T.ones(2)
    all_hot(compiled, lambda: [compiled(x) for x in (positive, negative)])
    for x in (negative, positive, negative):
        for _ in range(200):
            compiled(x)
        before = compiled.stats.exits
        for _ in range(100):
            compiled(x)
        assert compiled.stats.exits == before


def test_a_path_that_was_dropped_is_no_bridge_any_more() -> None:
    compiled = T.compile(three_sides)
    all_hot(compiled, lambda: [compiled(x) for x in SIDES])
    for path in compiled._table.paths:
        path.uses_seen = path.uses
    compiled(SIDES[0])
    assert compiled._policy.drop_unused() and len(compiled._table.paths) < 8
    assert all(e.bridge is None for path in compiled._table.paths for trace in path.traces for e in trace.exits.values())
    for x in SIDES * 3:
        np.testing.assert_allclose(compiled(x).numpy(), three_sides(x).numpy(), rtol=1e-6)
