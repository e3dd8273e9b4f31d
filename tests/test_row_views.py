"""capture/row_views.py: rows in variables of branching loops, which are views after it, against eager."""

from __future__ import annotations

from typing import Any

import pytest

import tracejit as T
from tests.branching_programs import agrees, assert_equal, normal, outcome, outlined
from tests.test_branching_loops import messages

SEEN: list[int] = []


def best_row(xs: Any) -> Any:
    best = xs[0]
    for row in xs:
        if row.sum() > best.sum():
            best = row
    return best


def best_by_position(xs: Any) -> Any:
    best, at = xs[0], 0
    for k in range(1, len(xs)):
        if xs[k].sum() > best.sum():
            best, at = xs[k], k
    return best * 2, best, at


def first_above(xs: Any) -> Any:
    found = None
    for row in xs:
        if found is None and row.sum() > 1:
            found = row
    return found


def walk_in_a_table(xs: Any) -> Any:
    table = (xs[:, 0].abs() * 10).long() % 5
    state = table[0]
    for _ in range(20):
        state = table[state] if T.rand(()) < 0.5 else (state + 1) % 5
    return state


def drawdown(xs: Any) -> Any:
    prices = xs[:, 0].cumsum(0)
    peak, worst = prices[0], 0.0
    for price in prices:
        if price > peak:
            peak = price
        worst = max(worst, (peak - price).item())
    return peak, worst


def last_row(xs: Any) -> Any:
    total = 0.0
    for row in xs:
        total = total + row.sum().item() if row[0] > 0 else total * 0.5
    return row, total


def written_after_the_loop(xs: Any) -> Any:
    best = xs[0]
    for row in xs:
        if row.sum() > best.sum():
            best = row
    xs.mul_(2)
    kept = best.clone()
    best.add_(1)
    return best, kept, xs


def of_a_tensor_of_the_call(xs: Any) -> Any:
    ys = xs * 2
    best = ys[0]
    for row in ys:
        if row.sum() > best.sum():
            best = row
    return best, ys


def a_row_or_a_new_tensor(xs: Any) -> Any:
    best = xs[0]
    for row in xs:
        if row.sum() > best.sum():
            best = row
        elif row.sum() < -2:
            best = best * 0.5
    return best


PROGRAMS = (
    best_row, best_by_position, first_above, walk_in_a_table, drawdown, last_row, written_after_the_loop, of_a_tensor_of_the_call,
    a_row_or_a_new_tensor,
)  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_a_row_in_a_variable_is_a_view_after_the_loop(program: Any) -> None:
    compiled = agrees(program, lambda k: (normal(k, 14, 3),), recordings=8, calls=30)
    assert not compiled.reasons, compiled.explain()


@pytest.mark.parametrize("backend", ["reference", "interpret", "numba"])
def test_every_backend_makes_views(backend: str) -> None:
    agrees(best_row, lambda k: (normal(k, 14, 3),), recordings=6, calls=24, backend=backend)


def of_what_steps_write_to(xs: Any) -> Any:
    best = xs[0]
    for k in range(len(xs)):
        if xs[k].sum() > best.sum():
            best = xs[k]
        else:
            xs[k] = xs[k] * 0.5
    return best, xs


def in_two_variables(xs: Any) -> Any:
    best = before = xs[0]
    for row in xs:
        if row.sum() > best.sum():
            before = best
            best = row
    return best, before


def in_two_variables_at_once(xs: Any) -> Any:
    best = last = xs[0]
    for row in xs:
        if row.sum() > best.sum():
            best = last = row
    return best, last, best is last


def returned(xs: Any) -> Any:
    best = xs[0]
    for row in xs:
        if row.sum() > best.sum():
            best = row
        if best.sum() > 2:
            return best
    return None


def in_a_tuple(xs: Any) -> Any:
    best = (xs[0], 0)
    for k, row in enumerate(xs):
        if row.sum() > best[0].sum():
            best = (row, k)
    return best


def that_requires_grad(xs: Any) -> Any:
    xs = xs.detach().requires_grad_()
    best = xs[0]
    for row in xs:
        if row.sum() > best.sum():
            best = row
    (best * best).sum().backward()
    return xs.grad


def where_the_recording_stops(xs: Any) -> Any:
    best = xs[0]
    for row in xs:
        if row.sum() > best.sum():
            best = row
        if row.sum() < -2:
            SEEN.insert(0, 1)
    best.mul_(2)
    return best, xs


def moved_on(xs: Any) -> Any:
    best = before = xs[0]
    for row in xs:
        before = best
        if row.sum() > best.sum():
            best = row
    xs.mul_(2)
    return before


def returned_at_once(xs: Any) -> Any:
    best = xs[0]
    for row in xs:
        if best.sum() > 2:
            return best
        if row.sum() > best.sum():
            best = row
    return None


def in_an_item(xs: Any) -> Any:
    kept, best = {"row": xs[0]}, xs[0]
    for row in xs:
        if row.sum() > best.sum():
            best = row
        kept["row"] = best
    xs.mul_(2)
    return kept["row"] * 1, best


def in_a_list(xs: Any) -> Any:
    peaks, best = [], xs[0]
    for row in xs:
        peaks.append(best)
        if row.sum() > best.sum():
            best = row
    xs.mul_(2)
    return T.stack(peaks)


def in_a_list_and_a_variable(xs: Any) -> Any:
    peaks, best = [], xs[0]
    for row in xs:
        if row.sum() > best.sum():
            best = row
        peaks.append(best)
    best.mul_(2)
    return T.stack(peaks), best


def of_the_end_of_a_list(xs: Any) -> Any:
    best, peaks = [xs[0]], []
    for row in xs:
        if row.sum() > best[-1].sum():
            best.append(row)
        peaks.append(best[-1])
    xs.mul_(2)
    return T.stack(peaks), T.stack(best)


def stopped_after_it(xs: Any) -> Any:
    best, last = xs[0], None
    for k, row in enumerate(xs):
        if row.sum() > best.sum():
            best = row
        if k == 9:
            last = {k}
    best += 1
    return last, xs


def stopped_by_a_write_to_it(xs: Any) -> Any:
    best = xs[0]
    for k, row in enumerate(xs):
        if row.sum() > best.sum():
            best = row
        if k > 5 and row.sum() > 1:
            best.mul_(2)
    return best, xs


def a_view_from_before(xs: Any) -> Any:
    row, other, best = xs[1], xs[2], None
    for x in xs:
        if x.sum() > 0:
            best = row
        elif x.sum() < -1:
            best = other
    return best is row, best is other, best, row


def without_a_gradient(xs: Any) -> Any:
    xs = xs.detach().requires_grad_()
    best: Any = None
    for k in range(len(xs)):
        with T.no_grad():
            row = xs[k]
        if best is None or row.sum() > best.sum():
            best = row
    return best, best.requires_grad, best.is_leaf


OTHERS = {
    stopped_after_it: "'last' is another set after each step",
    stopped_by_a_write_to_it: "a step writes to a tensor that shares memory with another one",
    without_a_gradient: "a step leaves a view of what it was given",
    of_what_steps_write_to: "a step writes to a tensor that shares memory with another one",
    in_two_variables: "'before' becomes a view that another variable holds",
    in_two_variables_at_once: "a step leaves a view of what it was given",
    returned: "a step leaves a view of what it was given",
    in_a_tuple: "a step leaves a view of what it was given",
    that_requires_grad: "a step leaves a view of what it was given",
    where_the_recording_stops: "a step changes what it has not made: a list, by insert()",
    moved_on: "'before' becomes a view that another variable holds",
    returned_at_once: "a step returns a view that a variable holds",
    in_an_item: "a step leaves a view of what it was given",
    in_a_list: "something else changes or sees an item of a list",
    in_a_list_and_a_variable: "something else changes or sees an item of a list",
    of_the_end_of_a_list: "something else changes or sees an item of a list",
}


@pytest.mark.parametrize("program", OTHERS, ids=lambda f: f.__name__)
def test_a_row_that_is_more_than_that_is_as_in_eager_mode(program: Any) -> None:
    compiled = outlined(program)
    for k in range(10):
        assert_equal(outcome(program, (normal(k, 14, 3),), k), outcome(compiled, (normal(k, 14, 3),), k))
    assert OTHERS[program] in messages(compiled), messages(compiled)


def test_a_view_from_before_the_loop_is_an_object_of_its_own() -> None:
    compiled = agrees(a_view_from_before, lambda k: (normal(k, 14, 3),), recordings=6, calls=20)
    assert not compiled.reasons, compiled.explain()


def test_what_holds_rows_is_joined_where_nothing_writes_to_them() -> None:
    def program(xs: Any) -> Any:
        peaks, best = [], xs[0]
        for row in xs:
            if row.sum() > best.sum():
                best = row
            peaks.append(best)
        return T.stack(peaks), best

    compiled = agrees(program, lambda k: (normal(k, 14, 3),), recordings=6, calls=20)
    assert not compiled.reasons, compiled.explain()
