"""capture/varying_kinds.py: variables of branching loops that hold things of different kinds in different steps, against eager."""

from __future__ import annotations

from typing import Any

import pytest

import tracejit as T
from tests.branching_programs import agrees, assert_equal, normal, outcome, outlined
from tests.test_branching_loops import messages
from tests.test_gradients_of_branching_loops import weight


def total_of_some(x: Any, n: int) -> Any:
    total = 0
    for _ in range(n):
        u = T.rand(())
        if u > 0.7:
            total += u.item()
    return total, type(total).__name__


def first_event(x: Any, n: int) -> Any:
    event = None
    for t in range(n):
        x = x + T.rand(3) * 0.1
        if event is None and x.sum() > 1.5:
            event = t
    return x, event


def difference_from_before(x: Any, n: int) -> Any:
    before = None
    for t in range(n):
        x = x * 0.7 if x.sum() > 0.1 else x * 0.999
        if t > 9 or (before is not None and (x - before).abs().max() < 1e-2):
            break
        before = x
    return x, t, before


def thermostat(x: Any, n: int) -> Any:
    state, cycles = "heat", 0
    for _ in range(n):
        if state == "heat":
            x = x + T.rand(3)
            state = "cool" if x.sum() > 4 else state
        elif state == "cool":
            x = x * 0.7
            if x.sum() < 1:
                state, cycles = "wait", cycles + 1
        else:
            state = "heat"
    return x, state, cycles


def best_of_some(x: Any, n: int) -> Any:
    best, at = None, -1
    for t in range(n):
        y = x + T.randn(3)
        if y.sum() < 2:
            continue
        if best is None or y.sum() > best.sum():
            best, at = y, t
    return best, at


def pair_or_none(x: Any, n: int) -> Any:
    last = None
    for t in range(n):
        y = T.randn(3)
        if y.sum() > 1:
            last = t, y
        elif last is not None and t - last[0] > 3:
            last = None
    return last


def word_of_the_last_step(x: Any, n: int) -> Any:
    for _ in range(n):
        x = x * 0.9 if x.sum() > 0.5 else x + T.rand(3)
        word = "large" if x.sum() > 1 else "small"
    return x, word


def two_that_vary(x: Any, n: int) -> Any:
    low = high = None
    for t in range(n):
        y = T.randn(())
        if y < -1:
            low = y if low is None else T.minimum(low, y)
        elif y > 1:
            high = t if high is None else high + 0.5
    return low, high


def number_then_none(x: Any, n: int) -> Any:
    left: Any = 0
    for t in range(n):
        x = x * 0.9 if x.sum() > 0.5 else x + 1
        if t > 2 and x.sum() < 2.5:
            left = None
        elif left is not None:
            left = left + 1
    return x, left


PROGRAMS = (
    number_then_none,
    total_of_some, first_event, difference_from_before, thermostat, best_of_some, pair_or_none, word_of_the_last_step,
)  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_a_variable_of_several_kinds_is_carried_by_one_node(program: Any) -> None:
    compiled = agrees(program, lambda k: (normal(k, 3).abs(), 16), recordings=8, calls=40)
    assert not compiled.reasons, compiled.explain()


def test_two_variables_may_vary() -> None:
    compiled = outlined(two_that_vary)
    for k in range(24):
        given = normal(k, 3), 16
        assert_equal(outcome(two_that_vary, given, k), outcome(compiled, given, k))
    assert not compiled.reasons and compiled.stats.compiled_calls > 4, compiled.explain()


@pytest.mark.parametrize("backend", ["reference", "interpret", "numba"])
def test_every_backend_carries_several_kinds(backend: str) -> None:
    agrees(thermostat, lambda k: (normal(k, 3).abs(), 16), recordings=8, calls=40, backend=backend)


def test_gradients_go_through_a_variable_of_several_kinds() -> None:
    def program(w: Any, n: int) -> Any:
        best = None
        h = w * 1.0
        for t in range(n):
            h = h * 0.8 if h.sum() > 0.5 else h + w
            if t > 2 and (best is None or h.sum() > best.sum()):
                best = h * w
        return best.sum()

    compiled = outlined(program)
    for k in range(14):
        plain, fast = weight(k, 3), weight(k, 3)
        program(plain, 9).backward()
        compiled(fast, 9).backward()
        assert plain.grad.sub(fast.grad).abs().max() < 1e-5 * plain.grad.abs().max()
    assert compiled.stats.compiled_calls > 4, compiled.explain()


def grows(x: Any, n: int) -> Any:
    for t in range(n):
        x = T.cat([x, x[:1]]) if x.sum() < 1 or t == 3 else x * 0.9
    return x


def words(x: Any, n: int) -> Any:
    word = "a"
    for _ in range(n):
        x = x * 0.9 if x.sum() > 0.5 else x + 1
        word = word + "a" if len(word) < 9 else "a"
    return x, word


def lists(x: Any, n: int) -> Any:
    seen: Any = None
    for _ in range(n):
        x = x * 0.9 if x.sum() > 0.5 else x + 1
        seen = [x] if seen is None else [*seen, x]
    return seen


REFUSED = {grows: "'x' holds other kinds", words: "'word'", lists: "'seen'"}


@pytest.mark.parametrize("program", REFUSED, ids=lambda f: f.__name__)
def test_a_variable_of_too_many_kinds_is_refused(program: Any) -> None:
    compiled = outlined(program)
    for k in range(6):
        given = (normal(k, 3).abs(), 9)
        assert_equal(outcome(program, given, k), outcome(compiled, given, k))
    assert REFUSED[program] in messages(compiled), compiled.explain()
