"""Loops of any length whose steps are told apart by numbers, compute with numbers from outside, or name their step in an error."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracejit as tj
from tests.loop_programs import LENGTHS, WIDTH, agree, cell, of_any_length, parameter, zeros
from tracejit import nn


def after_some_steps(xs: Any) -> Any:
    h, total = zeros(), zeros()
    for t in range(len(xs)):
        h = cell(h, xs[t])
        if t >= 5:
            total = total + h
    return h, total


def at_another_rate_first(xs: Any) -> Any:
    h = zeros()
    for t, x in enumerate(xs):
        h = h - (0.1 if t < 7 else 0.01) * (h - cell(h, x))
    return h


def collected_after_some_steps(xs: Any) -> Any:
    h, found = zeros(), []
    for t, x in enumerate(xs):
        h = cell(h, x)
        if t > 3:
            found.append(h)
    return tj.stack(found)


def from_the_second_step_on(xs: Any) -> Any:
    h = zeros()
    for t in range(2, xs.shape[0], 2):
        h = cell(h, xs[t] - xs[t - 2])
        if t == 8:
            h = h * 2
    return h


def in_two_places(xs: Any) -> Any:
    h = zeros()
    for t in range(len(xs)):
        h = cell(h, xs[t])
        if t >= 10 and t < 12:
            h = h * 1.5
        elif t == 3:
            h = h + 1
    return h


@pytest.mark.parametrize(
    "function",
    [after_some_steps, at_another_rate_first, collected_after_some_steps, from_the_second_step_on, in_two_places],
)
def test_first_steps_may_be_told_from_the_others(function: Callable[..., Any]) -> None:
    compiled = of_any_length(function, (*LENGTHS, 80, 33), (28, 66, 42))
    assert compiled.stats.instances >= 5


def far_on(xs: Any) -> Any:
    h = zeros()
    for t in range(len(xs)):
        h = cell(h, xs[t]) * (2.0 if t > 50 else 0.5)
    return h


def counted_down(xs: Any) -> Any:
    h = zeros()
    for t in range(len(xs) - 1, -1, -1):
        h = cell(h, xs[t])
        if t < 5:
            h = h * 2
    return h


def every_third(xs: Any) -> Any:
    h = zeros()
    for t in range(len(xs)):
        h = cell(h, xs[t])
        if (t + 1) % 3 == 0:
            h = h.detach()
    return h


def taking_from_a_set(xs: Any) -> Any:
    numbers, h = set(range(10)), zeros()
    for x in xs:
        h = h + x
        numbers.add(numbers.pop())
    return h * numbers.pop()


def taking_from_a_set_in_a_step(xs: Any) -> Any:
    numbers = set(range(10))

    def step(x: Any) -> Any:
        number = numbers.pop()
        numbers.add(number)
        return x * (100.0 if number == 7 else 1.0)

    return tj.map(step, xs).sum()


def growing_a_name(xs: Any) -> Any:
    def function() -> None: ...

    function.__name__, h = "", zeros()
    for x in xs:
        h = h + x * (2.0 if len(function.__name__) == 8 else 1.0)
        function.__name__ += "a"
    return h * len(function.__name__)


def annotating_a_function(xs: Any) -> Any:
    def function() -> None: ...

    h = zeros()
    for k, x in enumerate(xs):
        h = h + x
        function.__annotations__[f"x{k}"] = int
    return h * len(function.__annotations__)


@pytest.mark.parametrize(
    "function",
    [
        far_on, counted_down, every_third, taking_from_a_set, taking_from_a_set_in_a_step, growing_a_name, annotating_a_function,
    ],
)  # fmt: skip
def test_other_steps_that_are_told_apart_give_what_eager_calls_give(function: Callable[..., Any]) -> None:
    agree(tj.compile(function), function)


def raising(xs: Any) -> Any:
    h = zeros()
    for t in range(len(xs)):
        h = cell(h, xs[t])
        assert not h.isnan().any(), f"step {t}"
        if h.abs().sum() > 100:
            raise OverflowError(f"at {t}", t)
    return h


def handled(xs: Any) -> Any:
    h = zeros()
    for t in range(len(xs)):
        try:
            if t >= 0:
                raise KeyError(t)
        except KeyError as error:
            h = cell(h, xs[t]) * (1.0 if error.args[0] < 20 else 0.5)
    return h


def test_errors_may_name_the_step() -> None:
    compiled = tj.compile(raising)
    agree(compiled, raising)
    assert compiled.stats.traces <= 4 + sum(length < 13 for length in LENGTHS)
    for length, step in ((30, 12), (44, 0), (51, 50), (23, 1), (36, 34)):
        xs = parameter(length, 2, WIDTH, seed=length).detach()
        xs[step] = math.nan
        for called in (compiled, raising):
            with pytest.raises(AssertionError, match=f"^step {step}"):
                called(xs)
    agree(tj.compile(handled), handled)


# -- numbers from outside


def test_numbers_from_outside_are_carried_and_raised_to_powers() -> None:
    settings = nn.Module()
    settings.decay = 0.9

    def function(xs: Any, gamma: float, dt: float) -> Any:
        h, time, rate = zeros(), 0.0, dt
        for t in range(len(xs)):
            h = cell(h, xs[t] * gamma**t) + time - rate * h
            time += dt
            rate *= settings.decay
        return h, time, rate

    compiled = tj.compile(function)
    for k, length in enumerate((40, 25, 60, 17, 31, 80, 22, 55, 33)):
        settings.decay = 0.5 + 0.05 * k
        xs = parameter(length, 2, WIDTH, seed=length).detach()
        found, expected = (f(xs, 0.99 - 0.03 * k, 0.01 * k + 0.5) for f in (compiled, function))
        np.testing.assert_allclose(found[0].detach().numpy(), expected[0].detach().numpy(), rtol=1e-12, atol=1e-13)
        assert found[1:] == expected[1:]
    assert compiled.stats.traces <= 3, compiled.explain()
    for gamma in (0.2, 3.0, -0.5, 0.0, 1e-200, math.inf, math.nan, 1.0):
        xs = parameter(40, 2, WIDTH, seed=3).detach()
        outcomes = []
        for called in (compiled, function):
            try:
                outcomes.append(called(xs, gamma, 0.5)[0].detach().numpy())
            except OverflowError as error:
                outcomes.append(np.array(str(error)))
        if outcomes[1].dtype == np.float64:
            np.testing.assert_allclose(outcomes[0], outcomes[1], rtol=1e-12)
        else:
            assert outcomes[0] == outcomes[1]


def test_variables_around_the_function_are_no_matter_before_they_are_read() -> None:
    scale, module, count = tj.ones(2, WIDTH, dtype=tj.float64) * 2, nn.Linear(WIDTH, 2).double(), 0

    def function(xs: Any) -> Any:
        nonlocal count, scale
        h = zeros()
        for x in xs:
            h = cell(h, x)
        count += 1
        result = module(h) * count * scale.sum()
        scale = scale * 0.5
        return result

    compiled = tj.compile(function)
    for length in (40, 25, 60, 17, 31, 80, 22, 55, 33):
        xs = parameter(length, 2, WIDTH, seed=length).detach()
        before = count, scale
        expected = function(xs)
        count, scale = before
        np.testing.assert_allclose(compiled(xs).detach().numpy(), expected.detach().numpy(), rtol=1e-12)
    assert count == 9 and compiled.stats.traces <= 4, compiled.explain()


# -- why each number of steps is a recording

LOG: list[int] = []


def told_by_a_remainder(xs: Any) -> Any:
    h = zeros()
    for t in range(len(xs)):
        h = cell(h, xs[t]) if t % 2 == 0 else h * 0.5
    return h


def with_an_iterator(xs: Any) -> Any:
    h, numbers = zeros(), iter(range(100))
    for x in xs:
        h = cell(h, x) * next(numbers)
    return h


def with_an_integer_that_turns(xs: Any) -> Any:
    h, turn = zeros(), 0
    for x in xs:
        h = cell(h, x) * turn
        turn = (turn + 1) % 3
    return h


def going_either_way(xs: Any) -> Any:
    h, best = zeros(), -math.inf
    for x in xs:
        h = cell(h, x)
        if h.sum() > best:
            best = h.sum().item()
    return h, best


def putting_something_outside(xs: Any) -> Any:
    h = zeros()
    for x in xs:
        h = cell(h, x)
        LOG.append(1)
    return h


def putting_it_in_front(xs: Any) -> Any:
    h = zeros()
    for x in xs:
        h = cell(h, x)
        LOG.insert(0, 1)
    return h


def asking_for_the_middle(xs: Any) -> Any:
    h, n = zeros(), len(xs)
    for t in range(n):
        h = cell(h, xs[t])
        if t == n // 2:
            h = h * 2
    return h


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (told_by_a_remainder, "'t' is used for more than positions"),
        (with_an_iterator, "'numbers' holds something whose state does not show"),
        (with_an_integer_that_turns, "'turn' is another value, or of another kind, in each step"),
        (putting_something_outside, "a step appends to a list what is no tensor, and no number of the program"),
        (putting_it_in_front, "each step changes something outside of the call"),
        (asking_for_the_middle, "a comparison with the number of the step comes out otherwise in a later one"),
    ],
)
def test_explain_says_what_makes_each_number_of_steps_a_recording(function: Callable[..., Any], why: str) -> None:
    compiled = tj.compile(function)
    for length in (40, 25, 60):
        compiled(parameter(length, 2, WIDTH, seed=length).detach())
    said = [line for line in compiled.explain(verbose=True).splitlines() if "has a recording for each number of steps" in line]
    assert said and all(why in line and "test_steps_told_apart.py:" in line for line in said), compiled.explain()


def test_a_loop_whose_steps_go_either_way_with_gradients_is_one_node_for_each_length() -> None:
    compiled = tj.compile(going_either_way, wait=True)
    for length in (40, 25, 60, 30, 60, 30, 60):
        xs = parameter(length, 2, WIDTH, seed=length).detach()
        (h, best), (expected, most) = compiled(xs), going_either_way(xs)
        np.testing.assert_allclose(h.detach().numpy(), expected.detach().numpy(), rtol=1e-4, atol=1e-5)
        assert math.isclose(best, most, rel_tol=1e-5)
    stats = compiled.stats
    assert stats.piecewise_calls == 0 and stats.compiled_calls >= 2 and not compiled.reasons, compiled.explain()
