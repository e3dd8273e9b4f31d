"""capture/step_elements.py: loops that branch, over rows and integers whose number differs from call to call, compiled against eager."""

from __future__ import annotations

from typing import Any

import pytest

import tracejit as T
from tests.branching_programs import assert_equal, normal, outcome, outlined


# -- given rows, and as many numbers
def over_rows(xs: Any, ys: Any) -> Any:
    h = T.zeros(4, dtype=T.float64)
    for x in xs:
        h = h * 0.5 + x if x.sum() > 0 else h - x
    return h


def over_positions(xs: Any, ys: Any) -> Any:
    h, out = T.zeros(4, dtype=T.float64), []
    for t in range(len(xs)):
        h = h * 0.5 + xs[t] if xs[t].sum() > 0 else h - xs[t] / (t + 1)
        out.append(h)
    return T.stack(out).mean(0), out, len(out)


def over_pairs(xs: Any, ys: Any) -> Any:
    w, mistakes = T.zeros(4, dtype=T.float64), 0
    for k, (x, y) in enumerate(zip(xs, ys, strict=True)):
        if y * (w * x).sum() <= 0:
            w, mistakes = w + y * x, mistakes + k
    return w, mistakes


def until_one_is_large(xs: Any, ys: Any) -> Any:
    total = 0.0
    for x in xs:
        total += x.abs().sum().item()
        if total > 1000:
            break
    else:
        return total, xs[0] * 1
    return total, x


def of_fewer_rows(xs: Any, ys: Any) -> Any:
    h = T.zeros(4, dtype=T.float64)
    for x, t in zip(xs, range(2, len(ys) - 3), strict=False):
        h = h * 0.5 + x if x[0] > 0 else h - x * t
    return h


def in_both_directions(xs: Any, ys: Any) -> Any:
    out = []
    for t in range(1, xs.shape[0] - 1):
        out.append(xs[t + 1] - xs[t - 1] if xs[t].sum() > 0 else xs[t] * 2)
    return T.stack(out[::-1]), T.stack(out), sum(out)


def with_gradients(xs: Any, ys: Any) -> Any:
    w = T.full((4,), 0.3, dtype=T.float64, requires_grad=True)
    h = T.zeros(4, dtype=T.float64)
    for x in xs:
        h = (h * w + x).tanh() if x.sum() > 0 else h * w
    return T.autograd.grad(h.sum(), w)[0]


def with_kept_states(xs: Any, ys: Any) -> Any:
    h, chosen, out = T.zeros(4, dtype=T.float64), [], []
    for t, x in enumerate(xs):
        h = h * 0.5 + x
        out.append(h)
        if h.sum() > 0:
            chosen.append(t)
    return T.cat(out), len(chosen), chosen


ANY_LENGTH = [
    over_rows, over_positions, over_pairs, until_one_is_large, of_fewer_rows, in_both_directions, with_gradients, with_kept_states,
]  # fmt: skip


@pytest.mark.parametrize("is_view", [False, True], ids=["", "slices"])
@pytest.mark.parametrize("function", ANY_LENGTH, ids=lambda f: f.__name__)
def test_one_recording_serves_all_lengths(function: Any, is_view: bool) -> None:
    compiled, served = outlined(function), 0
    for k, n in enumerate((20, 23, 21, 30, 17, 24, 23, 40, 12)):
        xs, ys = normal(k, 50 * 4).reshape(50, 4), normal(k + 100, 50).sign()
        xs, ys = xs[:n] if is_view else xs[:n].clone(), ys[:n].clone()
        assert_equal(outcome(function, (xs, ys), k), outcome(compiled, (xs, ys), k))
        served = compiled.stats.compiled_calls if k == 3 else served
    assert compiled.stats.compiled_calls - served >= 5 and compiled.stats.traces <= 4, compiled.explain(verbose=True)


def test_a_loop_that_is_empty_at_times_gives_what_eager_mode_gives() -> None:
    compiled = outlined(over_positions)
    for k, n in enumerate((20, 23, 1, 2, 3, 25, 1, 9)):
        given = normal(k, 4 * n).reshape(n, 4), normal(k, n)
        assert_equal(outcome(over_positions, given, k), outcome(compiled, given, k))
    given = T.zeros(0, 4, dtype=T.float64), T.zeros(0, dtype=T.float64)
    assert_equal(outcome(over_rows, given, 0), outcome(outlined(over_rows), given, 0))


def test_rows_of_different_numbers_end_together() -> None:
    def together(xs: Any, ys: Any) -> Any:
        h = T.zeros((), dtype=T.float64)
        for x, y in zip(xs, ys, strict=False):
            h = h + x.sum() * y if y > 0 else h - x[0]
        return h

    def strictly(xs: Any, ys: Any) -> Any:
        h = T.zeros((), dtype=T.float64)
        for x, y in zip(xs, ys, strict=True):
            h = h + x.sum() * y if y > 0 else h - x[0]
        return h

    for function in (together, strictly):
        compiled = outlined(function)
        for k, (n, m) in enumerate(((9, 9), (10, 10), (11, 13), (13, 11), (12, 12), (14, 13), (13, 14), (15, 15))):
            given = normal(k, 4 * n).reshape(n, 4), normal(k, m)
            assert_equal(outcome(function, given, k), outcome(compiled, given, k))


def test_integers_that_are_counted_or_paired_are_guarded() -> None:
    def program(x: Any, n: int) -> Any:
        for t, (k, m) in enumerate(zip(range(n), range(1, n + 1), strict=True)):
            x = x * 0.9 + t * 0.01 if x.sum() > 0 else x + k - m * 0.5
        return x

    compiled = outlined(program)
    for k in range(12):
        n = 6 + k % 3
        assert_equal(outcome(program, (normal(k, 3), n), k), outcome(compiled, (normal(k, 3), n), k))
    assert compiled.stats.compiled_calls >= 4 and not compiled.reasons, compiled.explain()
