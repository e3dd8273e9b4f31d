"""capture/syntax/stored_lists.py: lists whose items steps of outlined loops store to, compiled against eager."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracejit as T
from tests.branching_programs import agrees, assert_equal, loops_of_paths, normal, outcome, outlined
from tests.test_branching_loops import messages
from tests.test_outlined_loops import loops_of


def counts(x: Any, n: int) -> Any:
    found = [0, 0, 0]
    for _ in range(n):
        found[int(3 * T.rand(()))] += 1
    return found


def chains(x: Any, n: int) -> Any:
    states = [x, x + 1, x * 2]
    for _ in range(n):
        k = 0 if T.rand(()) < 0.5 else 2
        proposed = states[k] + T.randn(3)
        if T.rand(()).log() < (states[k] ** 2 - proposed**2).sum():
            states[k] = proposed
    return states, len(states)


def bandit(x: Any, n: int) -> Any:
    values, pulls = [0.0] * 3, [0] * 3
    for _ in range(n):
        arm = int(3 * T.rand(())) if T.rand(()) < 0.3 else values.index(max(values))
        reward = T.randn(()).item() + 0.1 * arm
        pulls[arm] += 1
        values[arm] += (reward - values[arm]) / pulls[arm]
    return values, pulls


def in_a_nested_loop(x: Any, n: int) -> Any:
    found, same = [0, 0], []
    for _ in range(n):
        for _ in range(3):
            if T.rand(()) < 0.5:
                found[0] += 1
            else:
                found[1] -= 1
        same.append(x * found[0])
    return found, T.stack(same)


def filled(x: Any, n: int) -> Any:
    best: Any = [None, None]
    for _ in range(n):
        y = T.randn(3)
        side = 0 if y[0] > 0 else 1
        if best[side] is None or y.sum() > best[side].sum():
            best[side] = y
        if best[0] is not None and best[0].sum() > 4:
            break
    return best


def with_exits(x: Any, n: int) -> Any:
    found = [1]
    found.append(2)
    for k in range(n):
        y = T.rand(())
        if y < 0.3:
            found[0] += 1
            continue
        if y > 0.95:
            return found[0], k
        found[-1] = found[-1] * 2 % 1000
        if y > 0.85:
            break
    found[0] += 10
    return found


def thompson(x: Any, n: int) -> Any:
    """Steps that go over lists which they store to."""
    wins, losses, shares = [1.0] * 2, [1.0] * 2, 0.0
    for _ in range(n):
        scores = T.tensor([w / (w + v) for w, v in zip(wins, losses, strict=True)]) + 0.1 * T.randn(2)
        arm = int(scores.argmax())
        for w in wins:
            shares += w
        if T.rand(()) < 0.3 + 0.4 * arm:
            wins[arm] += 1
        else:
            losses[arm] += sum(wins) / sum([2 * w for w in reversed(wins)])
    return wins, losses, shares


@pytest.mark.parametrize(
    "program", [counts, chains, bandit, in_a_nested_loop, filled, with_exits, thompson], ids=lambda f: f.__name__
)
def test_a_list_of_a_fixed_length_is_carried_by_one_node(program: Any) -> None:
    compiled = outlined(program)
    for k in range(40):
        assert_equal(outcome(program, (normal(k, 3), 14), k), outcome(compiled, (normal(k, 3), 14), k))
    assert compiled.stats.compiled_calls >= 20 and not compiled.stats.piecewise_calls, compiled.explain()
    assert not compiled.reasons and min(loops_of_paths(compiled)) == 1, compiled.explain()


def test_the_list_stays_the_object_that_it_was() -> None:
    def program(x: Any, n: int) -> Any:
        found = [0, 0]
        for _ in range(n):
            found[0 if T.rand(()) < 0.5 else 1] += 1
        same = found
        same[0] += 1
        return found, same is found

    compiled = agrees(program, lambda k: (normal(k, 3), 9), recordings=4, calls=12)
    assert not compiled.reasons


@pytest.mark.parametrize(
    "before",
    [
        "c = given",
        "c = [0, 0]; d = c",
        "c = [0, 0]; print(c)",
        "c = [[0], [0]]; d = [c]",
        "c = {0: 0, 1: 0}",
        "c = given * [1, 2]",
        "c = [0] * given",
        "c = [0, 0]; it = reversed(c)",
        "c = [0, 0]; d = max(c, given)",
    ],
)
def test_a_list_that_something_else_may_reach_is_a_variable_of_the_step(before: str) -> None:
    (loop,) = loops_of(f"def f(xs, given):\n    {before}\n    for x in xs:\n        c[0 if x > 0 else 1] += 1\n    return c\n")
    assert not any("stored" in name for name in loop.live_ins)


@pytest.mark.parametrize(
    "step",
    [
        "c[t] = x",
        "c[t - 1] += x",
        "c[0:1] = [x]",
        "c[0] = x; d = c",
        "c[0] = x; c = [1, 2]",
        "c[0] = x; g(c)",
        "c[0] = x; d = max(c, [1])",
        "c[0] = x; it = enumerate(c)",
        "c[0] = x; d = [*c]",
        "c[0] = x; d = [y for y in g(c)]",
        "c[0] = x; d = list(zip(c, c))",
        "c[0] = x; d = max(c, key=g)",
    ],
)
def test_steps_that_do_more_with_a_list_have_it_as_a_variable(step: str) -> None:
    (loop,) = loops_of(f"def f(xs, g):\n    c = [0, 0]\n    for t, x in enumerate(xs):\n        {step}\n    return c\n")
    assert not any("stored" in name for name in loop.live_ins)


def test_a_long_list_is_refused_with_a_reason() -> None:
    def program(x: Any, n: int) -> Any:
        found = [0] * 100
        for _ in range(n):
            found[int(3 * T.rand(()))] += 1
        return found

    compiled = outlined(program)
    for k in range(5):
        assert_equal(outcome(program, (normal(k, 3), 9), k), outcome(compiled, (normal(k, 3), 9), k))
    assert messages(compiled)


def over_itself(x: Any, n: int) -> Any:
    c, total = [1, 2, 3, 4], 0
    for k, y in enumerate(c):
        total += y
        if x[k % 3] > 0:
            c[3] += 10
        else:
            c[2] = 7
    return c, total


def of_an_array(x: Any, n: int) -> Any:
    c = np.ones(3, dtype=np.int64) * [1, 2, 3]
    for k in range(n):
        if x[k % 3] > 0:
            c[1] = c[1] + 1.7
        else:
            c[2] = 0.6 + c[2]
    return c.tolist()


def of_a_number_of_times(x: Any, n: int) -> Any:
    size = len(x)
    found = [0] * size
    for _ in range(n):
        found[int(3 * T.rand(()))] += 1
    return found


@pytest.mark.parametrize("program", [over_itself, of_an_array, of_a_number_of_times], ids=lambda f: f.__name__)
def test_what_steps_store_to_is_found_where_eager_mode_finds_it(program: Any) -> None:
    compiled = outlined(program)
    for k in range(10):
        assert_equal(outcome(program, (normal(k, 3), 9), k), outcome(compiled, (normal(k, 3), 9), k))
    assert program is not of_a_number_of_times or compiled.stats.compiled_calls > 4, compiled.explain()
