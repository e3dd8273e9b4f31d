"""capture/branching_loops.py: programs with loops whose steps take different paths, compiled as one node, against eager."""

from __future__ import annotations

import contextlib
import math
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tests.branching_programs import (
    PROGRAMS,
    agrees,
    around_a_loop,
    assert_equal,
    ball,
    best_so_far,
    collatz,
    density,
    leaving,
    loops_of_paths,
    metropolis,
    normal,
    of,
    outcome,
    outlined,
    rejection,
    rows,
    swaps,
    two_in_a_row,
)
from tests.test_outlined_loops import defined


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_loop_whose_steps_take_different_paths_is_one_node(name: str) -> None:
    function, given, callees, options = PROGRAMS[name]
    agrees(function, given, *callees, **options)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_recording_serves_the_call_that_it_was_made_of(name: str) -> None:
    function, given, callees, _ = PROGRAMS[name]
    for k in range(3):
        compiled = outlined(function, *callees)
        for _ in range(2):
            assert_equal(outcome(function, given(k), k), outcome(compiled, given(k), k))
        assert compiled.stats.compiled_calls == 1, compiled.explain()


@pytest.mark.parametrize("backend", ["reference", "interpret", "numba"])
@pytest.mark.parametrize("program", [ball, collatz, leaving, rejection], ids=lambda f: f.__name__)
def test_every_backend_runs_such_a_loop(program: Any, backend: str) -> None:
    given: dict[Any, Callable[[int], tuple[Any, ...]]] = {
        ball: lambda k: (of(0.1 * k).sum(), of(0.0).sum(), 20),
        collatz: lambda k: (T.tensor(7 + k),),
        leaving: lambda k: (normal(k, 6),),
        rejection: lambda k: (5,),
    }
    agrees(program, given[program], recordings=6, calls=12, backend=backend)


# -- by the policy itself
@pytest.mark.parametrize(
    ("function", "given", "recordings"),
    [
        (metropolis, lambda k: (T.ones(3) * (1 + 0.1 * k), 1000), 2),
        (lambda h, n: ball(h, h * 0, n), lambda k: (T.tensor(1 + 0.1 * k), 700), 2),
        (rejection, lambda k: (200,), 2),
        (lambda xs: rows(xs), lambda k: (normal(k, 400, 4),), 3),
    ],
    ids=["metropolis", "ball", "rejection", "rows"],
)
def test_a_long_loop_that_branches_is_recorded_again_as_one_node(function: Any, given: Any, recordings: int) -> None:
    compiled = T.compile(function, wait=True)
    agrees(function, given, compiled=compiled, recordings=recordings)
    assert compiled.stats.piecewise_calls == 0
    assert not compiled.reasons, compiled.explain()


def test_what_is_outlined_in_vain_runs_in_pieces() -> None:
    def walked(x: Any, steps: int) -> Any:
        path = []
        for _ in range(steps):
            x = x + T.rand(()) - 0.5
            if x > 0.5:
                path.insert(0, x)
                x = x - 1
        return x, len(path)

    compiled = T.compile(walked, wait=True)
    for k in range(6):
        assert_equal(outcome(walked, (T.zeros(()), 500), k), outcome(compiled, (T.zeros(()), 500), k))
    assert compiled.stats.traces == 2 and compiled.stats.piecewise_calls == 4, compiled.explain()
    assert [reason.code for reason in compiled.reasons] == ["outlined_loop"]
    assert "runs in pieces" in compiled.explain()


# -- tuples
def transition(state: Any) -> Any:
    x, (v, accepted), name = state
    proposed = x + 0.3 * v + T.randn(3)
    if T.rand(()) < density(proposed):
        return proposed, (v * 0.9, accepted + 1), name
    return x, (-v, accepted), name


def functional(x: Any, v: Any, n: int) -> Any:
    state = x, (v, 0), "chain"
    for _ in range(n):
        state = transition(state)
    return state


def greatest(xs: Any) -> Any:
    found = (0.0, None)
    for x in xs:
        if found[1] is None or x.sum() > found[1].sum():
            found = (x.sum().item(), x + 0)
    return found


def exchanged(x: Any, n: int) -> Any:
    s = (x, x * 2)
    for _ in range(n):
        if s[0].sum() > 3:
            s = (s[1], s[0] * 0.5)
        elif s[0].sum() > 1:
            s = (s[0] + 1, s[1])
    return s, s[0] is x


def with_gradients(w: Any, n: int) -> Any:
    s = (w * 1.0, 0)
    for _ in range(n):
        s = (s[0] * w, s[1] + 1) if s[0].sum() > 2 else (s[0] + w, s[1])
    return T.autograd.grad(s[0].sum(), w)[0], s[1]


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (functional, lambda k: (T.ones(3) * k, T.ones(3) * 0.1, 30)),
        (greatest, lambda k: (normal(k, 12, 2),)),
        (exchanged, lambda k: (normal(k, 3), 14)),
        (with_gradients, lambda k: (normal(k, 3).requires_grad_(), 12)),
    ],
    ids=["functional", "greatest", "exchanged", "with_gradients"],
)
def test_a_variable_may_hold_a_tuple_of_what_steps_carry_on(function: Any, given: Any) -> None:
    compiled = agrees(function, given)
    assert not compiled.reasons, compiled.explain()


def test_a_tuple_of_another_form_is_of_another_kind() -> None:
    def named(x: Any, n: int) -> Any:
        s: Any = (x, "small")
        for _ in range(n):
            s = (s[0] * 0.5, "large") if s[0].sum() > 1 else (s[0] + 1, "small", 0)
        return s

    compiled = agrees(named, lambda k: (normal(k, 2), 9), recordings=8, calls=40)
    assert not compiled.reasons, compiled.explain()


# -- paths
def test_a_path_that_no_recording_knows_is_recorded_and_both_serve_afterwards() -> None:
    def stepped(xs: Any) -> Any:
        h = xs[0] * 0
        for x in xs:
            if x > 100:
                h = h - 1
            elif x > 0:
                h = h + x
            else:
                h = h * 0.5
        return h

    def given(k: int) -> tuple[Any, ...]:
        xs = normal(k, 20)
        return (T.where(T.arange(20) == 7, 200.0, xs) if k in (4, 6, 7, 9) else xs,)

    compiled = outlined(stepped)
    served = []
    for k in range(10):
        before = compiled.stats.compiled_calls
        assert_equal(outcome(stepped, given(k), k), outcome(compiled, given(k), k), exact=True)
        served.append(compiled.stats.compiled_calls > before)
    assert served == [k not in (0, 4) for k in range(10)]
    assert compiled.stats.traces == 2 and all(loops_of_paths(compiled)), compiled.explain()


def many_paths(bits: int) -> Any:
    terms = " + ".join(f"({k + 1} if x[{k}] > 0 else {-k - 1})" for k in range(bits))
    return defined(f"def f(xs):\n    h = xs[0, 0] * 0\n    for x in xs:\n        h = h + {terms}\n    return h\n")


def test_a_loop_of_sixty_four_paths_is_one_node_and_one_of_more_is_not() -> None:
    def signs(bits: int, seed: int) -> Any:
        numbers = np.random.default_rng(seed).permutation(2**bits)
        return T.tensor(np.array([[1.0 if n >> k & 1 else -1.0 for k in range(bits)] for n in numbers]))

    agrees(many_paths(6), lambda k: (signs(6, k),), recordings=1, calls=4, exact=True)
    function = many_paths(7)
    compiled = outlined(function)
    for k in range(2):
        assert_equal(outcome(function, (signs(7, k),), k), outcome(compiled, (signs(7, k),), k), exact=True)
    assert "outlined_loop" in messages(compiled) and "paths" in messages(compiled)


def test_a_step_that_takes_the_last_path_in_the_last_call_leaves_nothing_of_the_call_before() -> None:
    def drawn(x: Any, steps: int) -> Any:
        kept = T.zeros(2)
        for _ in range(steps):
            if T.rand(()) < 0.1:
                kept = kept + T.randn(2)
            x = x + 1 if x < 3 else x * 0.1
        return x, kept

    agrees(drawn, lambda k: (T.tensor(0.5 * k), 30), calls=12)


# -- numbers and lengths
def test_numbers_that_a_step_carries_keep_their_types() -> None:
    def mixed(xs: Any) -> Any:
        count, total, is_low = 0, 0.5, False
        for x in xs:
            if x > 0:
                count, total = count + 3, total * 0.5 + x.item()
            else:
                is_low = not is_low
        return count, total, xs.sum() if is_low else -xs.sum()

    compiled = agrees(mixed, lambda k: (normal(k, 15),), recordings=2, calls=10)
    assert [type(x) for x in compiled(normal(3, 15))[:2]] == [int, float]


def test_bools_that_leave_the_loop_have_a_recording_for_each_outcome() -> None:
    def high_and_low(xs: Any) -> Any:
        is_high = is_low = False
        for x in xs:
            if x > 3:
                is_high = True
            elif x < -3:
                is_low = True
        return is_high, is_low

    compiled = agrees(high_and_low, lambda k: (normal(k % 10, 20),), recordings=8, calls=40)
    assert not compiled.reasons, compiled.explain()


def test_a_loop_over_the_rows_of_a_tensor_has_a_recording_for_each_length() -> None:
    agrees(rows, lambda k: (normal(k, 5 + k % 2, 4),), recordings=2, calls=14)


def test_a_loop_without_steps_is_passed_over() -> None:
    def stepped(x: Any, n: Any) -> Any:
        count = 0
        while x > n:
            x = x * 0.5 if x > 4 else x - 1
            count += 1
        return x, count

    compiled = outlined(stepped)
    for k in (5, 0, 3, 0, 9):
        given = of(float(k)).sum(), of(2.0).sum()
        assert_equal(outcome(stepped, given, k), outcome(compiled, given, k), exact=True)


def test_an_integer_of_the_call_that_only_a_step_reads_is_no_obstacle() -> None:
    def repeated(xs: Any, times: int) -> Any:
        h = xs[0] * 0
        for x in xs:
            if x > 0:
                for _ in range(times):
                    h = h * 0.5 if h > 1 else h + x
        return h

    agrees(repeated, lambda k: (normal(k, 9), 4), exact=True)


# -- objects
def test_results_are_the_objects_that_eager_mode_gives() -> None:
    below, above = T.zeros(3), T.ones(3) * 99
    compiled = agrees(best_so_far, lambda k: (normal(k, 12, 3), normal(k + 99, 3) + 2), recordings=3, calls=14)
    xs = normal(1, 12, 3)
    for _ in range(3):
        assert compiled(xs, above.double())[0] is not below
        best = above.double()
        assert compiled(xs, best)[0] is best and compiled(xs, best)[1] == -1
        best = below.double() - 50
        assert compiled(xs, best)[0] is not best

    a, b = normal(0, 3), normal(1, 3)
    exchanging = agrees(swaps, lambda k: (normal(k, 3), normal(k, 3), normal(k + 1, 9)), exact=True, calls=10)
    for signs, first in ((of(1, -1, 1), a), (of(1, -1, -1), b), (of(1, 1, 1), b)):
        found = exchanging(a, b, signs)
        assert found[0] is first and found[2] is first and found[1] is (b if first is a else a)


def test_one_argument_given_twice_stays_one_object() -> None:
    def given(k: int) -> tuple[Any, ...]:
        a = normal(k, 3)
        return (a, a, normal(k + 1, 9)) if k % 2 else (a, normal(k + 7, 3), normal(k + 1, 9))

    agrees(swaps, given, exact=True, calls=20, recordings=5)


def test_an_argument_that_steps_replace_is_not_written_to() -> None:
    def moved(x: Any, steps: int) -> Any:
        for _ in range(steps):
            x = x * 0.5 if x.sum() > 1 else x + 1
        return x

    compiled, x = outlined(moved), normal(0, 3)
    before = x.clone()
    for _ in range(4):
        result = compiled(x, 9)
        result.add_(1)
    assert bool((x == before).all()) and compiled.stats.compiled_calls == 3


def test_what_a_call_returned_stays_when_the_next_call_is_served() -> None:
    compiled = agrees(metropolis, lambda k: (T.ones(3) * k, 20))
    T.manual_seed(5)
    one = compiled(T.ones(3), 20)
    values = [x.clone() if isinstance(x, T.Tensor) else x for x in one]
    compiled(T.zeros(3), 20)
    assert all(bool((x == y).all()) if isinstance(x, T.Tensor) else x == y for x, y in zip(one, values, strict=True))


# -- compiled functions
def test_a_compiled_function_is_called_in_such_a_loop() -> None:
    grown = T.compile(lambda x: x * 1.5 + 0.1, wait=True)

    def stepped(x: Any, steps: int) -> Any:
        for _ in range(steps):
            x = grown(x) if x < 2 else x - 1.5
        return x

    agrees(stepped, lambda k: (of(0.1 * k).sum(), 20))


def test_such_a_loop_is_in_a_compiled_function_that_a_compiled_one_calls() -> None:
    inner = T.compile(two_in_a_row, wait=True)

    def outer(xs: Any) -> Any:
        h, count = inner(xs)
        return inner(xs * h)[0], count

    agrees(outer, lambda k: (normal(k, 12),), two_in_a_row, recordings=6, calls=16, loops=4)


def test_without_gradients_a_parameter_is_no_obstacle() -> None:
    weight = normal(0, 2, 2).requires_grad_()

    def stepped(x: Any, steps: int) -> Any:
        with T.no_grad():
            for _ in range(steps):
                x = (weight @ x).tanh() if x.sum() > 0 else x + 0.7
        return x

    agrees(stepped, lambda k: (normal(k, 2), 15))


def test_gradients_go_through_what_is_around_the_loop() -> None:
    weight = normal(0, 3).requires_grad_()

    def scaled(x: Any, steps: int) -> Any:
        count = 0
        y = x.detach()
        for _ in range(steps):
            if y.sum() > 1:
                count += 1
            y = y * 0.5 if y.sum() > 1 else y + 0.4
        return (weight * x * y).sum() * count

    def slope(function: Any) -> Callable[..., Any]:
        return lambda x, steps: T.autograd.grad(function(x, steps), (x, weight))

    compiled = outlined(scaled)
    for k in range(6):
        x = normal(k, 3).requires_grad_()
        assert_equal(outcome(slope(scaled), (x, 9), k), outcome(slope(compiled), (x, 9), k))
    assert compiled.stats.compiled_calls >= 3 and all(loops_of_paths(compiled)), compiled.explain()


# -- errors
def test_an_error_that_a_step_raises_reaches_the_caller() -> None:
    def checked(xs: Any) -> Any:
        h = xs[0] * 0
        for x in xs:
            if x > 100:
                raise ValueError(f"{int(x)} is too large")
            h = h + x if x > 0 else h * 0.5
        return h

    def given(k: int) -> tuple[Any, ...]:
        xs = normal(k, 12)
        return (T.where(T.arange(12) == k % 12, 200.0 + k, xs) if k in (3, 5, 6) else xs,)

    compiled = outlined(checked)
    for k in range(9):
        expected = outcome(checked, given(k), k)
        assert_equal(expected, outcome(compiled, given(k), k), exact=True)
        assert (expected[0][0] is ValueError) == (k in (3, 5, 6))
    assert compiled.stats.compiled_calls >= 4, compiled.explain()
    with pytest.raises(ValueError, match="204 is too large"):
        outlined(checked)(*((T.ones(12) * 204,)))


def test_a_variable_without_a_value_is_missed_as_in_eager_mode() -> None:
    def last(xs: Any, is_wanted: bool) -> Any:
        count = 0
        for x in xs:
            if x > 1:
                seen = x * 2
                count += 1
        return (seen, count) if is_wanted or count else count

    compiled = outlined(last)
    for k, (top, is_wanted) in enumerate([(1, True), (0, True), (0, False), (1, False), (0, True), (1, True)] * 2):
        given = of(0.5, 3.0 * top, -1.0), is_wanted
        assert_equal(outcome(last, given, k), outcome(compiled, given, k), exact=True)


# -- what is refused
class Box:
    total: Any = None


BOX, SEEN = Box(), []
SQUARE = normal(0, 2, 2)


def gradient_in_an_inner_loop(x: Any, steps: int) -> Any:
    weight = T.ones(2, dtype=T.float64, requires_grad=True)
    for _ in range(steps):
        x = x * 0.5 if x.sum() > 1 else x + 1
        while x.sum() < 1:
            x = x + weight
    return x


def one_tensor_in_two_variables(x: Any, steps: int) -> Any:
    weight, last = T.ones(2, dtype=T.float64, requires_grad=True), x
    for _ in range(steps):
        x = x * weight if x.sum() > 1 else x + weight
        last = x
    return last


def several_results(x: Any, steps: int) -> Any:
    weight = T.ones(2, dtype=T.float64, requires_grad=True)
    for _ in range(steps):
        one, other = (x * weight).sort()
        x = one * 0.5 if x.sum() > 1 else one + 1 + other
    return x


def put_in_front(x: Any, steps: int) -> Any:
    seen = []
    for _ in range(steps):
        if x.sum() > 1:
            seen.insert(0, x)
        x = x * 0.5 if x.sum() > 1 else x + 1
    return x, len(seen)


def new_item_of_a_dictionary(x: Any, steps: int) -> Any:
    counts: dict[str, int] = {}
    for _ in range(steps):
        size = "large" if x.sum() > 1 else "small"
        counts[size] = counts.get(size, 0) + 1
        x = x * 0.5 if x.sum() > 1 else x + 1
    return x, counts


def texts(x: Any, steps: int) -> Any:
    last = "none"
    for _ in range(steps):
        last = last + "." if x.sum() > 1 else last + "-"
        x = x * 0.5 if x.sum() > 1 else x + 1
    return x, last


def shapes(x: Any, steps: int) -> Any:
    for _ in range(steps):
        x = T.cat([x, x[:1]]) if x.sum() > 1 else x + 1
    return x


def view_of_a_row(x: Any, steps: int) -> Any:
    before = SQUARE[0]
    for k in range(steps):
        if x.sum() > 1:
            before = SQUARE[k % 2][:]
        x = x * 0.5 if x.sum() > before.sum() else x + 1
    return x, before


def decomposes(x: Any, steps: int) -> Any:
    for _ in range(steps):
        x = T.linalg.pinv(SQUARE) @ x
        x = x * 0.5 if x.sum() > 1 else x + 1
    return x


def over_a_dictionary(x: Any, steps: int) -> Any:
    for k in dict.fromkeys(range(steps)):
        x = x * 0.5 if x.sum() > 1 else x + k
    return x


def other_results(x: Any, steps: int) -> Any:
    for k in range(steps):
        if x.sum() > 1:
            return (x, k) if k % 2 else [x]
        x = x + 0.3 * SQUARE[0].abs()
    return x


def float_by_its_value(x: Any, steps: int) -> Any:
    found = {}
    for _ in range(steps):
        found[round(x.sum().item())] = True
        x = x * 0.5 if x.sum() > 1 else x + 1
    return x, sorted(found)


def same_twice(a: Any, b: Any, x: Any) -> Any:
    n = 0
    for _ in range(3):
        x = x - 1 if x > 1 else x + 2
        if a is b:
            n = n + 1
        if a is b:
            n = n + 10
        a, b = b, a
    return n, x


def same_in_a_nested_loop(a: Any, b: Any, x: Any) -> Any:
    for _ in range(2):
        a, b = b, a
        while x < 5:
            if a is not b:
                return x, a
            x = x + 1
    return x, a


def same_until_assigned(a: Any, b: Any, x: Any) -> Any:
    for _ in range(4):
        for _ in range(3):
            if a is b:
                continue
            x = x + 1
            a = a * 1
    return x, a


@pytest.mark.parametrize("function", [same_twice, same_in_a_nested_loop, same_until_assigned], ids=lambda f: f.__name__)
@pytest.mark.parametrize("is_same", [True, False])
def test_which_object_a_variable_holds_is_told_as_in_eager_mode(function: Any, is_same: bool) -> None:
    compiled = outlined(function)
    for _ in range(3):
        a = T.ones(3)
        given = (a, a if is_same else T.zeros(3), of(1.0).sum())
        assert_equal(outcome(function, given, 0), outcome(compiled, given, 0))
        assert (function(*given)[-1] is a) == (compiled(*given)[-1] is a)


def backwards(xs: Any) -> Any:
    total = xs[0] * 0
    for x in reversed(xs):
        total = total + x if x > 0.5 else total * 0.5
        x += 1
    return total, xs


def backwards_in_pairs(xs: Any) -> Any:
    total = xs[0] * 0
    for x, y in reversed(zip(xs, xs, strict=True)):  # type: ignore[call-overload]
        total = total + x if x > y else total * 0.5
    return total


@pytest.mark.parametrize("function", [backwards, backwards_in_pairs], ids=lambda f: f.__name__)
def test_reversed_goes_over_a_copy_of_a_tensor_and_over_sequences_alone(function: Any) -> None:
    compiled = outlined(function)
    for k in range(3):
        assert_equal(outcome(function, (normal(k, 9),), 0), outcome(compiled, (normal(k, 9),), 0))


def test_what_a_loop_around_reads_is_left_by_a_loop() -> None:
    compiled = outlined(around_a_loop)
    for k in range(6):
        assert_equal(outcome(around_a_loop, (of(0.3 + k).sum(),), k), outcome(compiled, (of(0.3 + k).sum(),), k))


def returned_in_a_list(x: Any, y: Any) -> Any:
    for k in range(3):
        if x > 1:
            y = y * 1
        if k == 1:
            return [x, {"y": y, "all": (x, y)}]
        BOX.total = x
    return x


def named_and_written(x: Any, y: Any) -> Any:
    for _ in range(3):
        x.mul_(0.7)
        last = y * 1 if x.sum() > 1 else x
    return x, last


def rows_that_are_written(x: Any, y: Any) -> Any:
    total = y * 1
    for _ in range(3):
        x[0] += 1
        total = total + 1 if x.sum() > 3 else total - 1
        row = x[0]
        x[0] += total.sum()
    return row, total


@pytest.mark.parametrize("function", [returned_in_a_list, named_and_written, rows_that_are_written], ids=lambda f: f.__name__)
def test_tensors_that_steps_were_given_are_the_same_objects_after_them(function: Any) -> None:
    compiled = outlined(function)
    for k in range(3):
        shape = () if function is returned_in_a_list else (2,)
        given = [(T.ones(*shape) * 0.9, T.ones(*shape) * 2) for _ in range(2)]
        assert_equal(outcome(function, given[0], k), outcome(compiled, given[1], k))


def other_kinds_and_draws(x: Any, steps: int) -> Any:
    total, last = 0, x
    for _ in range(steps):
        total = total + T.rand(()).item()
        last = x * 1
        if total > 2:
            total = 0.5
    return total, last


def test_a_first_step_of_other_kinds_may_draw() -> None:
    compiled = outlined(other_kinds_and_draws)
    for k in range(4):
        assert_equal(outcome(other_kinds_and_draws, (normal(k, 2), 20), k), outcome(compiled, (normal(k, 2), 20), k))
    assert {reason.code for reason in compiled.reasons} <= {"outlined_loop"}


REFUSED: dict[Any, str] = {
    gradient_in_an_inner_loop: "in a loop, has a tensor that requires grad, and that is not so in all steps",
    one_tensor_in_two_variables: "two variables hold one tensor that requires grad after a step",
    several_results: "gives several tensors",
    put_in_front: "a step reads, or changes otherwise, a list in an object",
    new_item_of_a_dictionary: "a step changes what it has not made",
    texts: "'last' is another str after each step",
    shapes: "'x' holds other kinds of things after some steps",
    view_of_a_row: "a step leaves a view of what it was given",
    over_a_dictionary: "it goes over neither a range, nor a tensor, nor a list or tuple",
    decomposes: "a step has NumPy or SciPy compute pinv",
}  # fmt: skip
"""Functions whose loops are no nodes, and what the reason says."""


def messages(compiled: Any) -> str:
    return "\n".join([f"{reason.code}: {reason.message}" for reason in compiled.reasons])


def refused_given(k: int) -> tuple[Any, ...]:
    return normal(k, 2), 12


@pytest.mark.parametrize("function", REFUSED, ids=lambda f: f.__name__)
def test_steps_that_do_more_are_refused_with_a_reason_and_the_call_gives_what_eager_mode_gives(function: Any) -> None:
    compiled = outlined(function)
    for k in range(5):
        seen = []
        for f in (function, compiled):
            BOX.total = None
            SEEN.clear()
            found = outcome(f, refused_given(k), k)
            seen.append((found, str(BOX.total), [*SEEN]))
        assert_equal(seen[0][0], seen[1][0])
        assert seen[0][1:] == seen[1][1:]
    (reason,) = [x for x in compiled.reasons if x.code == "outlined_loop"]
    assert re.match(r"steps of the loop at .*test_branching_loops\.py:\d+: ", reason.message)
    assert REFUSED[function] in reason.message
    assert "docs/branching-loops.md" in compiled.explain().replace("\n", "") or "docs/branching-loops.md" in str(reason.remedy)


@pytest.mark.parametrize("function", [other_results, float_by_its_value], ids=lambda f: f.__name__)
def test_whatever_becomes_of_a_loop_its_values_are_those_of_eager_mode(function: Any) -> None:
    compiled = outlined(function)
    for k in range(8):
        assert_equal(outcome(function, (normal(k, 2) * 0, 7 + k % 2), k), outcome(compiled, (normal(k, 2) * 0, 7 + k % 2), k))


def test_the_call_in_which_a_recording_stops_goes_on_where_the_steps_were() -> None:
    def stopped(xs: Any, best: Any) -> Any:
        count, kept, first = 0, T.zeros(2), best
        label: Any = "none"
        for x in xs:
            if x.sum() > best.sum():
                best, count = x + 0, count + 1
            if T.rand(()) < 0.5:
                kept = kept + T.rand(2)
            if count == 3:
                label = SEEN
        return best, count, kept, label, first

    compiled = outlined(stopped)
    for k in range(6):
        given = normal(k, 12, 3), normal(k, 3) - 4
        assert_equal(outcome(stopped, given, k), outcome(compiled, given, k))
    assert "outlined_loop" in messages(compiled)


def test_what_a_step_has_stored_when_the_recording_stops_is_the_object_of_eager_mode() -> None:
    def kept(h: Any, steps: int) -> Any:
        seen = []
        for _ in range(steps):
            if h.sum() > 1:
                seen.append(h)
            h = h * 0.5 if h.sum() > 1 else h + 1
        return h, seen

    compiled = outlined(kept)
    for k in range(4):
        given = normal(k, 2) + 2, 5
        assert_equal(outcome(kept, given, k), outcome(compiled, given, k), exact=True)


def test_a_nested_loop_that_makes_no_step_at_times_is_one_loop() -> None:
    def rejected(x: Any, steps: int) -> Any:
        for _ in range(steps):
            while T.rand(()) > density(x):
                x = 3 * T.rand(3)
            x = x + 0.1 * T.randn(3)
        return x

    agrees(rejected, lambda k: (T.ones(3) * 0.1 * k, 20))


def test_a_function_of_which_one_loop_is_refused_has_no_loop_that_is_lost() -> None:
    def two(x: Any, steps: int) -> Any:
        for _ in range(steps):
            x = x * 0.5 if x.sum() > 1 else x + 1
        for _ in range(steps):
            SEEN[:] = [x]
            x = x * 0.25 if x.sum() > 1 else x + 1
        return x

    compiled = outlined(two)
    for k in range(4):
        assert_equal(outcome(two, (normal(k, 2), 9), k), outcome(compiled, (normal(k, 2), 9), k), exact=True)
    assert "outlined_loop" in messages(compiled)


# -- loops in `try`, and those with `else`
def reaches(h: Any, bound: float) -> Any:
    steps = 0
    while h.sum() < bound:
        h = h * 1.5 if h.sum() > 1 else h + 0.4
        steps += 1
        if steps > 12:
            break
    else:
        return h, -steps
    return h, steps


def checked_in_the_function(h: Any, n: int, limit: float) -> Any:
    last, seen = h, []
    try:
        for k in range(n):
            last = h
            h = h * 0.5 if h.sum() > 1 else h + T.rand(3)
            seen.append(h * 2)
            if h.sum() > limit:
                raise ValueError(f"{k} is too much")
            h = h * 1
    except ValueError as error:
        return h, last, k, error.args
    return h, last, T.stack(seen)


def suppressed(h: Any, n: int, limit: float) -> Any:
    with contextlib.suppress(IndexError):
        for _ in range(n):
            h = h * 0.5 if h.sum() > 1 else h + T.rand(3)
            part = h[3] if h.sum() > limit else h[0]
            h = h + part * 0.1
    return h


def retried(h: Any, n: int, limit: float) -> Any:
    tries = 0
    for _ in range(4):
        try:
            while True:
                h = h * 0.5 if h.sum() > 1 else h + T.rand(3)
                tries += 1
                if h.sum() > limit:
                    raise ArithmeticError
                if tries % n == 0:
                    break
        except ArithmeticError:
            h = h * 0.1
        else:
            h = h + 0.5
    return h, tries


def test_a_while_loop_with_else_is_one_node() -> None:
    agrees(reaches, lambda k: (normal(k, 3).abs(), 4 + k % 3 * 40.0), recordings=4, calls=20)


@pytest.mark.parametrize("function", [checked_in_the_function, suppressed, retried], ids=lambda f: f.__name__)
def test_a_loop_in_a_try_is_one_node_and_the_handler_sees_what_a_step_raises(function: Any) -> None:
    def given(k: int) -> tuple[Any, ...]:
        return normal(k, 3), 9, 99.0 if k not in (5, 8, 9) else 1.2

    compiled, served = outlined(function), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k in range(16):
            before = compiled.stats.compiled_calls
            assert_equal(outcome(function, given(k), k), outcome(compiled, given(k), k))
            served.append(compiled.stats.compiled_calls > before)
    assert sum(served) >= 9 and served[-1] and not {5, 8, 9} & {k for k, x in enumerate(served) if x}, (
        served,
        compiled.explain(),
    )
    assert min(loops_of_paths(compiled)) >= 1, compiled.explain()


def test_a_loop_in_a_try_that_no_node_goes_over_is_as_in_eager_mode() -> None:
    def divided(h: Any, numbers: Any) -> Any:
        try:
            for n in (6 / m for m in numbers):
                h = h * 0.5 if h.sum() > n else h + T.rand(3)
        except ZeroDivisionError:
            return h, n
        return h

    compiled = outlined(divided)
    for k in range(4):
        numbers = [3, 2, 4, 1 if k % 2 else 0, 5]
        assert_equal(outcome(divided, (normal(k, 3), numbers), k), outcome(compiled, (normal(k, 3), numbers), k))


def test_the_policy_itself_makes_a_long_loop_in_a_try_one_node() -> None:
    compiled = T.compile(checked_in_the_function, wait=True)
    agrees(checked_in_the_function, lambda k: (normal(k, 3), 600, 99.0), compiled=compiled, calls=10)
    assert not compiled.reasons, compiled.explain()


def read_before_written(xs: Any) -> Any:
    h, whole, part = xs[:3] * 1.0, T.ones(3, dtype=T.float64), T.ones(3, dtype=T.float64)
    for x in xs:
        if x > 0:
            h = h * whole + part
        else:
            whole.add_(h)
            part[0] += 1.0
    return h, whole, part


def test_steps_read_what_later_steps_were_the_first_to_write() -> None:
    signs = [[1, 1, -1, -1, -1, 1], [1, -1, 1, -1, 1, 1], [-1, -1, 1, 1, 1, 1], [1, 1, 1, -1, 1, -1]]
    agrees(read_before_written, lambda k: (T.tensor(signs[k % 4], dtype=T.float64),), exact=True)


def items_that_nothing_reads(w: Any, xs: Any) -> Any:
    items = []
    for x in xs:
        items.append(w[int(x)] * 2.0)
    return w * 2


@pytest.mark.parametrize("is_outlined", [False, True])
def test_a_loop_that_may_leave_and_gives_nothing_that_is_read_is_compiled(is_outlined: bool) -> None:
    compiled = outlined(items_that_nothing_reads) if is_outlined else T.compile(items_that_nothing_reads, wait=True)
    xs = T.tensor([float(k % 3) for k in range(40)])
    for k in range(4):
        np.testing.assert_array_equal(compiled(normal(k, 3), xs).numpy(), (normal(k, 3) * 2).numpy())
    assert compiled.stats.compiled_calls == 3, compiled.explain()
    with pytest.raises(IndexError):
        compiled(normal(0, 3), xs + 1)


# -- steps as programs have them
def rows_of_states(x: Any, n: int) -> Any:
    out, accepted = T.zeros(n, 3), T.zeros(n, dtype=T.bool)
    for k in range(n):
        proposed = x + 0.5 * T.randn(3)
        if T.rand(()) < 0.5:
            x = proposed
            accepted[k] = True
        out[k] = x
        out[k, 0] = x[0] * 2
    return out, accepted


def chain_of_states(x: Any, n: int) -> Any:
    state, visits = T.tensor(1), T.zeros(5)
    for _ in range(n):
        state = (state + 3) % 5 if T.rand(()) < 0.4 else (state + 1) % 5
        visits[state] += x[state % 3]
    return state, visits


def learnt(x: Any, n: int) -> Any:
    values, state = T.zeros(6, 2), 0
    for _ in range(n):
        action = int(values[state].argmax()) if T.rand(()) > 0.2 else int(T.randint(0, 2, ()))
        following = min(max(state + (1 if action else -1), 0), 5)
        reward = 1.0 if following == 5 else 0.0
        values[state, action] += 0.1 * (reward + 0.9 * values[following].max() - values[state, action])
        state = 0 if following == 5 else following
    return values + x.sum()


def of_gaussians(x: Any, n: int) -> Any:
    def log_density(x: Any) -> Any:
        return -0.5 * (x * x).sum() - 0.5 * len(x) * math.log(2 * math.pi)

    for _ in range(n):
        proposed = x + T.randn(3) * (np.sqrt(2.0) / math.sqrt(n))
        if T.rand(()).log() < log_density(proposed) - log_density(x):
            x = proposed
    return x


def of_distributions(x: Any, n: int) -> Any:
    normal_ = T.distributions.Normal(0.0, 1.0)
    for _ in range(n):
        proposed = x + normal_.sample((3,))
        if T.rand(()).log() < (normal_.log_prob(proposed) - normal_.log_prob(x)).sum():
            x = proposed
    return x


def perceptron(x: Any, n: int) -> Any:
    weights, mistakes = T.zeros(3), 0
    for _ in range(n):
        y = x + T.randn(3)
        if (weights * y).sum() <= 0:
            weights += 0.1 * y
            mistakes += 1
        else:
            weights *= 0.99
    return weights, mistakes


def walk_of_an_argument(x: Any, n: int) -> Any:
    same = x
    for _ in range(n):
        change = T.randn(3)
        if change.sum() > same[0]:
            x += change
        else:
            x -= 0.5 * change
    return x, same is x


def updated_and_assigned(x: Any, n: int) -> Any:
    before = x
    for _ in range(n):
        if x.sum() > 0:
            x -= T.rand(3)
        else:
            x = x + 1
    return x, before


@pytest.mark.parametrize(
    "program",
    [rows_of_states, chain_of_states, learnt, of_gaussians, of_distributions, perceptron, walk_of_an_argument],
    ids=lambda f: f.__name__,
)
def test_steps_as_programs_have_them_are_those_of_one_node(program: Any) -> None:
    compiled = agrees(program, lambda k: (normal(k, 3), 20), recordings=4, calls=14)
    assert not compiled.reasons, compiled.explain()


def test_a_variable_that_some_steps_update_in_place_and_others_assign_to_is_refused() -> None:
    compiled = outlined(updated_and_assigned)
    for k in range(6):
        assert_equal(outcome(updated_and_assigned, (normal(k, 3), 9), k), outcome(compiled, (normal(k, 3), 9), k))
    assert "writes to a tensor in a variable that steps assign to" in messages(compiled)


def two_whiles(x: Any, n: int) -> Any:
    a = b = 0
    for _ in range(n):
        while T.rand(()) < 0.5:
            a += 1
        while T.rand(()) < 0.4:
            b += 1
    return a, b, x


def two_decays(x: Any, n: int) -> Any:
    for _ in range(n):
        a, b = x[0] + 0.5, x[1] + 0.5
        while a > 0.1:
            a = a - 0.3 * T.rand(())
        while b > 0.1:
            b = b - 0.3 * T.rand(())
        x = x + 0.1 + a + b if x.sum() < 3 else x * 0.5
    return x


@pytest.mark.parametrize("program", [two_whiles, two_decays], ids=lambda f: f.__name__)
def test_by_itself_each_while_loop_in_a_step_becomes_a_node(program: Any) -> None:
    compiled = T.compile(program, wait=True)
    agrees(program, lambda k: (normal(k, 3).abs(), 40), compiled=compiled, recordings=6, calls=24)
    assert compiled.stats.piecewise_calls == 0 and not compiled.reasons, compiled.explain()


def test_a_bool_that_a_step_decides_is_added_to_a_count() -> None:
    def program(x: Any, n: int) -> Any:
        accepted = 0
        for _ in range(n):
            x, is_accepted = (x + T.randn(3), True) if T.rand(()) < 0.5 else (x, False)
            accepted += is_accepted
        return x, accepted

    compiled = agrees(program, lambda k: (normal(k, 3), 20))
    assert not compiled.reasons, compiled.explain()


def in_numbers(statement: str) -> Any:
    text = "def f(x, n, T):\n    s, m, u = 0, 7.5, 3\n    for t in range(n):\n        x = x + T.randn(3)\n"
    text += f"        if x.sum() > 0:\n            s += 1\n        {statement}\n    return s, m, u, x\n"
    return defined(text)


@pytest.mark.parametrize(
    "statement",
    [
        "s = max(s, 1.5)", "m = min(m, s)", "u = (u + s) >> 2", "u = (s << 3) - (u >> 1)", "u = int(u) + 1", "u = -s & 6 | u ^ s",
        "m = s ** 2", "u = round(s)", "m = m if m < s else s / 3",
    ],
)  # fmt: skip
def test_numbers_of_several_types_are_computed_in_the_program(statement: str) -> None:
    function = in_numbers(statement)
    compiled = agrees(function, lambda k: (normal(k, 3), 20, T), calls=12, recordings=4, exact=False)
    assert not compiled.reasons, compiled.explain()


def test_the_reason_names_the_number_that_the_program_cannot_compute() -> None:
    function = in_numbers("m = round(m * 0.9, 2)")
    compiled = outlined(function)
    for k in range(2):
        assert_equal(outcome(function, (normal(k, 3), 20, T), k), outcome(compiled, (normal(k, 3), 20, T), k))
    assert "cannot compute a number that steps change: 'm'" in messages(compiled)


# -- steps in which functions of numbers raise
def logarithms(xs: Any) -> Any:
    total, errors = 0.0, 0
    for x in xs:
        try:
            total += math.log(x.item())
        except ValueError:
            errors += 1
    return total, errors


def quotients(xs: Any) -> Any:
    total = 0.0
    for x in xs:
        try:
            total += 1 / int(x.item())
        except ZeroDivisionError:
            total -= 1
    return total


def arcs(xs: Any) -> Any:
    total, large, small = 0.0, 0, 0
    for x in xs:
        value = x.item()
        try:
            total += math.asin(value)
        except ValueError:
            if value > 0:
                large += 1
            else:
                small += 1
    return total, large, small


def exponentials(xs: Any) -> Any:
    total, errors = 0.0, 0
    for x in xs:
        try:
            total += 1 / math.exp(1e6 * x.item())
        except (OverflowError, ZeroDivisionError):
            errors += 1
    return total, errors


@pytest.mark.parametrize("function", [logarithms, quotients, arcs, exponentials], ids=lambda f: f.__name__)
def test_a_step_whose_function_of_a_number_raises_is_a_path(function: Any) -> None:
    agrees(function, lambda k: (normal(k, 40),), recordings=6, calls=14)


def test_a_number_that_is_none_has_paths_of_its_own() -> None:
    compiled = outlined(logarithms)
    for k in range(12):
        xs = normal(k, 12)
        xs[k % 12] = [math.nan, 0.0, math.inf, -math.inf, -0.0, 1.0][k % 6]
        assert_equal(outcome(logarithms, (xs,), k), outcome(compiled, (xs,), k))


# -- lists whose last item is in a variable, too
def trajectory(x: Any, n: int) -> Any:
    seen = []
    for _ in range(n):
        x = 0.9 * x + 0.3 * T.randn(3)
        x = x * 0.5 if x.sum() > 0 else x
        seen.append(x)
    return x, seen


def accepted_states(x: Any, n: int) -> Any:
    seen = []
    for _ in range(n):
        proposed = x + 0.5 * T.randn(3)
        if T.rand(()) < density(proposed) / density(x):
            x = proposed
            seen.append(x)
    return seen, x


def until_outside(x: Any, bound: float) -> Any:
    path = []
    while x.norm() < bound:
        x = x + T.randn(3)
        x = x * 0.5 if x.sum() > 2 else x
        path.append(x)
    return {"x": x}, path


def states_before_steps(x: Any, n: int) -> Any:
    seen = []
    for _ in range(n):
        seen.append(x)
        x = 0.9 * x + 0.3 * T.randn(3)
        x = x * 0.5 if x.sum() > 0 else x
    return seen, x


def states_before_steps_until(x: Any, n: int) -> Any:
    seen = []
    for _ in range(n):
        if x.norm() > 2:
            break
        seen.append(x)
        x = x + 0.5 * T.randn(3) if x.sum() > 0 else x - 0.5 * T.randn(3)
    return x, seen


def states_before_steps_at_times(x: Any, n: int) -> Any:  # the first item may be any
    seen = []
    for _ in range(n):
        if x.sum() > 0:
            seen.append(x)
        x = 0.9 * x + 0.3 * T.randn(3)
    return seen


def the_same_state_again(x: Any, n: int) -> Any:  # some steps append what one before has appended
    seen = []
    for _ in range(n):
        seen.append(x)
        if T.rand(()) < 0.5:
            x = x + T.randn(3)
    return seen


def the_state_before_and_after(x: Any, n: int) -> Any:  # each state is there twice
    seen = []
    for _ in range(n):
        seen.append(x)
        x = 0.9 * x + 0.3 * T.randn(3) if x.sum() > 0 else x + T.randn(3)
        seen.append(x)
    return seen, x


def in_two_lists(x: Any, n: int) -> Any:  # both lists hold the same tensors
    seen, kept = [], []
    for _ in range(n):
        x = 0.9 * x + 0.3 * T.randn(3) if x.sum() > 0 else x + T.randn(3)
        seen.append(x)
        kept.append(x)
    return seen, kept


def in_two_lists_before_and_after(x: Any, n: int) -> Any:  # the same, before and after
    seen, kept = [], []
    for _ in range(n):
        seen.append(x)
        x = 0.9 * x + 0.3 * T.randn(3) if x.sum() > 0 else x + T.randn(3)
        kept.append(x)
    return seen, kept, x


def of_two_variables(x: Any, n: int) -> Any:  # the list may hold what `best` is, at any place
    seen, best = [], x
    for _ in range(n):
        x = 0.9 * x + 0.3 * T.randn(3)
        best = x if x.sum() > best.sum() else best
        seen.append(x)
    return best, x, seen


def at_times_without(x: Any, n: int) -> Any:  # the last item is not always in the variable
    seen = []
    for _ in range(n):
        x = 0.9 * x + 0.3 * T.randn(3)
        if x.sum() > 0:
            seen.append(x)
    return x, seen


SHARED_ITEMS = [
    trajectory, accepted_states, until_outside, states_before_steps, states_before_steps_until, of_two_variables, at_times_without,
    states_before_steps_at_times, the_same_state_again, the_state_before_and_after, in_two_lists, in_two_lists_before_and_after,
]  # fmt: skip


@pytest.mark.parametrize("function", SHARED_ITEMS, ids=lambda f: f.__name__)
def test_items_of_a_list_may_be_somewhere_else_too(function: Any) -> None:
    compiled = outlined(function)
    for k in range(18):
        given = T.zeros(3, dtype=T.float64), {until_outside: 3.0, states_before_steps_until: 40}.get(function, 5 + k % 7)
        assert_equal(outcome(function, given, k), outcome(compiled, given, k))
    assert max(loops_of_paths(compiled)) == 1 and compiled.stats.compiled_calls >= 6, compiled.explain()


def test_what_is_written_to_it_after_the_loop_is_in_both() -> None:
    def written(x: Any, n: int) -> Any:
        x, seen = trajectory(x, n)
        x += 1
        return x, seen

    compiled = outlined(written, trajectory)
    for k in range(8):
        given = (T.zeros(3, dtype=T.float64), 6)
        assert_equal(outcome(written, given, k), outcome(compiled, given, k))


@pytest.mark.parametrize("joined", ["seen", "T.stack(seen)", "T.stack(seen).mean(0)", "T.cat(seen), x"])
def test_a_list_of_as_many_items_as_the_call_asks_for_has_one_recording_from_the_second_number_on(joined: str) -> None:
    states = defined(
        "import tracejit as T\ndef f(x, n):\n    seen = []\n    for _ in range(n):\n        x = 0.9 * x + 0.3 * T.randn(3)\n"
        f"        x = x * 0.5 if x.sum() > 0 else x\n        seen.append(x)\n    return {joined}\n"
    )
    compiled = outlined(states)
    for k in range(16):
        given = (T.zeros(3, dtype=T.float64), [30, 31, 32, 28, 35, 29, 33][k % 7])
        assert_equal(outcome(states, given, k), outcome(compiled, given, k))
    assert compiled.stats.traces <= 3 and not compiled.reasons, compiled.explain()
