"""capture/syntax/grown_lists.py: lists whose last items, or lengths, the steps of outlined loops read, compiled against eager."""

from __future__ import annotations

from typing import Any

import pytest

import tracejit as T
from tests.branching_programs import agrees, assert_equal, density, normal, outcome, outlined
from tests.test_branching_loops import messages
from tests.test_gradients_of_branching_loops import weight
from tests.test_outlined_loops import defined


def chain(x: Any, n: int) -> Any:
    """The item that a step reads may be appended once more."""
    samples = [x]
    for _ in range(n):
        proposed = samples[-1] + 0.8 * T.randn(3)
        if T.rand(()) < density(proposed) / density(samples[-1]):
            samples.append(proposed)
        else:
            samples.append(samples[-1])
    return T.stack(samples)


def until_long_enough(x: Any, n: int) -> Any:
    found = [x]
    while len(found) < n:
        y = found[-1] * 0.9 + T.randn(3)
        if y.sum() > -1:
            found.append(y)
    return found


def empty_at_first(x: Any, n: int) -> Any:
    found: list[Any] = []
    for _ in range(n):
        y = (found[-1] if found else x) * 0.9 + T.randn(3)
        if y.sum() > 0:
            found.append(y)
    return T.stack(found).sum(0) if found else x


def two_steps_back(x: Any, n: int) -> Any:
    xs = [x, x + 0.1]
    for _ in range(n):
        now, before = xs[-1], xs[-2]
        xs.append(now + 0.1 * (0.5 * before - 1.5 * now) if now.sum() > 0.2 else now - before + xs[0] * 0.1)
    return T.stack(xs)


def times_and_states(x: Any, end: float) -> Any:
    times, xs = [0.0], [x]
    while times[-1] < end:
        dt = 0.1 if xs[-1].abs().max() > 0.5 else 0.3
        xs.append(xs[-1] - dt * xs[-1])
        times.append(times[-1] + dt)
    return T.stack(xs), times


def two_in_a_step(x: Any, n: int) -> Any:
    xs = [x]
    for k in range(n):
        xs.append(xs[-1] * 0.5 + k)
        if xs[-1].sum() > 3:
            xs += [xs[-1] - 3]
        if not xs[-1].sum() < 20:
            break
    return T.cat(xs), len(xs)


def in_two_loops(x: Any, n: int) -> Any:
    xs = [x, x * 2]
    for _ in range(n):
        xs.append(xs[-1] * 0.5 if xs[-1].sum() > 0.1 else xs[-1] + 1)
    for _ in range(n):
        xs.append(xs[-1] - 1 if xs[-1].sum() > 0 else xs[-1] + xs[-2])
    return T.stack(xs)


def in_a_loop_around(x: Any, n: int) -> Any:
    xs = [x]
    total = 0.0
    for k in range(n):
        y = xs[-1]
        while y.sum() > 0.5:
            y = y * 0.7
            total += xs[-1].sum().item()
        xs.append(y + 0.3 * (k % 4))
    return T.stack(xs), total


PROGRAMS: dict[Any, Any] = {
    chain: lambda k: (normal(k, 3), 20),
    until_long_enough: lambda k: (normal(k, 3), 9),
    empty_at_first: lambda k: (normal(k, 3), 12),
    two_steps_back: lambda k: (normal(k, 3), 15),
    times_and_states: lambda k: (normal(k, 3), 3.0),
    two_in_a_step: lambda k: (normal(k, 3), 9),
    in_two_loops: lambda k: (normal(k, 3), 9),
    in_a_loop_around: lambda k: (normal(k, 3), 9),
}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_steps_read_the_last_items_of_the_list_that_they_append_to(program: Any) -> None:
    compiled = agrees(program, PROGRAMS[program], recordings=7, calls=16)
    assert not compiled.reasons, compiled.explain()


def decayed(w: Any, n: int) -> Any:
    xs = [w]
    for _ in range(n):
        xs.append(xs[-1] * 0.9 if xs[-1].sum() > 0.3 else xs[-1] + w * w)
    return T.stack(xs).sum()


def kept_at_times(w: Any, n: int) -> Any:
    xs: list[Any] = []
    for k in range(n):
        y = (xs[-1] if xs else w) * 0.8 + 0.1 * k * w
        if y.sum() > 0.2:
            xs.append(y)
    return T.stack(xs).sum() if xs else w.sum()


@pytest.mark.parametrize("program", [decayed, kept_at_times], ids=lambda f: f.__name__)
def test_gradients_go_through_the_items_that_steps_read(program: Any) -> None:
    compiled = outlined(program)
    for k in range(14):
        plain, fast = weight(k, 3), weight(k, 3)
        program(plain, 12).backward()
        compiled(fast, 12).backward()
        assert plain.grad.sub(fast.grad).abs().max() < 1e-5 * plain.grad.abs().max()
    assert compiled.stats.compiled_calls > 4, compiled.explain()


def test_where_there_is_no_item_the_step_raises_what_eager_mode_raises() -> None:
    def program(x: Any, n: int) -> Any:
        xs: list[Any] = []
        for k in range(n):
            if x.sum() > k:
                xs.append(x * k)
            y = xs[-1] * 2
        return T.stack(xs), y

    compiled = outlined(program)
    expected = [outcome(program, (normal(k, 3), 5), k) for k in range(16)]
    assert {x[0][0] for x in expected if x[0][0] is IndexError} and len([x for x in expected if x[0][0] is not IndexError]) > 3
    for k in range(16):
        assert_equal(expected[k], outcome(compiled, (normal(k, 3), 5), k))
    assert compiled.stats.compiled_calls > 2, compiled.explain()


def test_an_error_of_a_step_leaves_the_items_so_far() -> None:
    def program(x: Any, n: int) -> Any:
        xs = [x]
        try:
            for k in range(n):
                xs.append(xs[-1] * 0.9 if xs[-1].sum() > 0 else xs[-1] + 0.1)
                if xs[-1].sum() > 1.5:
                    raise ValueError(k)
        except ValueError as error:
            return len(xs), xs[-1], error.args[0]
        return T.stack(xs)

    compiled = outlined(program)
    for k in range(12):
        assert_equal(outcome(program, (normal(k, 3), 9), k), outcome(compiled, (normal(k, 3), 9), k))
    assert compiled.stats.compiled_calls > 2, compiled.explain()


def made_anew_in_a_branch(x: Any, n: int) -> Any:
    xs = [x, x * 2]
    if n > 5:
        xs = []
    for _ in range(n):
        xs.append(x)
        x = xs[-1] * 0.5 if x.sum() > 0.1 else xs[-1] + 1
    return T.stack(xs)


def made_anew_around(x: Any, n: int) -> Any:
    total = x * 0
    for k in range(2):
        xs = [x]
        if k:
            xs = []
        for _ in range(n):
            xs.append(x)
            x = xs[-1] * 0.5 if x.sum() > 0.1 else xs[-1] + 1
        total = total + T.stack(xs).sum(0)
    return total


@pytest.mark.parametrize("program", [made_anew_in_a_branch, made_anew_around], ids=lambda f: f.__name__)
def test_a_list_that_is_made_anew_in_a_branch_may_have_no_items(program: Any) -> None:
    compiled = outlined(program)
    for k in range(12):
        given = normal(k, 3), 4 + k % 4
        assert_equal(outcome(program, given, k), outcome(compiled, given, k))
    assert compiled.stats.compiled_calls > 1, compiled.explain()


OTHER_USES = {
    "xs.append(xs[-2] + x) if k > 2 else xs.append(x)": "a step leaves a view of what it was given",
    "xs.append(xs[1] + x) if x.sum() > 0 else xs.append(x)": "a step leaves a view of what it was given",
    "xs.append(xs[k] + x)": "a step reads, or changes otherwise, a list in an object",
    "xs.append(xs[-1] + x); xs[-1] = x": "a step reads, or changes otherwise, a list in an object",
    "xs.append(xs[-1] + x); xs.pop(0)": "a step changes what it has not made: 'xs'",
    "xs.append(sum(y[-1] for y in xs) + x)": "a step reads, or changes otherwise, a list in an object",
}


@pytest.mark.parametrize("step", OTHER_USES)
def test_a_step_that_does_more_with_the_list_has_it_as_a_variable(step: str) -> None:
    source = (
        f"def f(xs_, n):\n    xs = [xs_[0]]\n    for k, x in enumerate(xs_):\n        {step}\n        if x.sum() > 0: n = n + x\n"
    )
    program = defined(source + "    return xs, n\n")
    compiled = outlined(program)
    for k in range(5):
        given = normal(k, 9, 3), normal(k, 3)
        assert_equal(outcome(program, given, k), outcome(compiled, (normal(k, 9, 3), normal(k, 3)), k))
    assert OTHER_USES[step] in messages(compiled), messages(compiled)
