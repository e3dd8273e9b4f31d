"""capture/branching_loops.py: loops that branch, where what steps read, carry, collect and write has sizes that differ from call to call,
compiled against eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tracejit as T
from tests.branching_programs import assert_equal, normal, outcome, outlined


# -- programs: given a matrix of some rows, and a vector of as many numbers
def fitted(xs: Any, y: Any) -> Any:
    w, rate, before = T.zeros(3, dtype=T.float64), 0.3, 1e9
    for _ in range(200):
        left = xs @ w - y
        loss = (left * left).mean()
        if (before - loss).abs() < 1e-3:
            break
        rate = rate * 0.5 if loss > before else rate
        before, w = loss, w - rate * 2 * (xs.mT @ left) / len(xs)
    return w, loss, rate


def clustered(xs: Any, y: Any) -> Any:
    centres = xs[:2] * 1
    nearest = None
    for _ in range(30):
        nearest = ((xs[:, None] - centres[None]) ** 2).sum(-1).argmin(1)
        weights = [(nearest == k).to(xs.dtype) for k in range(2)]
        new = T.stack([(xs * w[:, None]).sum(0) / (w.sum() + 1e-9) for w in weights])
        if (new - centres).abs().max() < 1e-3:
            break
        centres = new
    return centres, nearest


def direction(xs: Any, y: Any) -> Any:
    v, matrix, steps = T.ones(len(y), dtype=T.float64), xs @ xs.mT + T.eye(len(y), dtype=T.float64), 0
    while True:
        w = matrix @ v
        w = w / w.norm()
        steps += 1
        if (w - v).norm() < 1e-2 or steps > 40:
            return w, steps
        v = w


def conjugate_gradients(xs: Any, y: Any) -> Any:
    matrix = xs @ xs.mT + 2 * T.eye(len(y), dtype=T.float64)
    x = T.zeros_like(y)
    left = y - matrix @ x
    p, size = left, (left * left).sum()
    for _ in range(len(y)):
        moved = matrix @ p
        rate = size / (p * moved).sum()
        x, left = x + rate * p, left - rate * moved
        now = (left * left).sum()
        if now.sqrt() < 1e-3:
            break
        p, size = left + (now / size) * p, now
    return x, left


def bouncing(xs: Any, y: Any) -> Any:
    x, v, bounces = y.abs(), T.zeros_like(y), 0
    for _ in range(40):
        x, v = x + 0.05 * v, v - 0.1
        hit = x < 0
        if hit.any():
            x, v, bounces = T.where(hit, -x, x), T.where(hit, -0.9 * v, v), bounces + int(hit.sum())
    return x, v, bounces


def collected(xs: Any, y: Any) -> Any:
    seen, kept, y = [], [], y.abs() + 1
    for t in range(12):
        if y.mean() > 0.8:
            y = y * 0.7
            kept.append(y * t)
        else:
            y = y + 0.3
        seen.append(y)
    return T.stack(seen), seen, len(kept), kept


def written(xs: Any, y: Any) -> Any:
    total, counts = T.zeros_like(y), T.zeros(len(y), 3, dtype=T.float64)
    for t in range(15):
        if y.sum() > t * 0.3 - 1:
            total += y * 0.1
        else:
            counts[:, t % 3] += total
        y = y * 0.95 - 0.01
    return total, counts


def lowered(xs: Any, y: Any) -> Any:
    while xs.mean() > -1:
        xs = xs - 0.2
    return xs


def nested(xs: Any, y: Any) -> Any:
    for x in xs:
        while (y * y).sum() > 2:
            y = y * 0.7
        y = y + x.sum() if x[0] > 0 else y - 0.1
    return y


def differentiated(xs: Any, y: Any) -> Any:
    y = y.detach().requires_grad_()
    state = y
    for x in xs:
        state = (state + x.sum()).tanh() if state.sum() > 0 else state * x[0]
    return T.autograd.grad((state * y).sum(), y)[0]


def rows_of_any_width(xs: Any, y: Any) -> Any:
    h, out = xs.mT[0] * 0, []
    for column in xs.mT:
        h = h + column if column.sum() > 0 else h * 0.5 + y
        out.append(h)
    return T.stack(out)


def drawn(xs: Any, y: Any) -> Any:
    accepted = 0
    for _ in range(20):
        proposed = y + 0.3 * T.randn(len(y), dtype=T.float64)
        if T.rand(()) < T.exp(-0.5 * ((proposed * proposed).sum() - (y * y).sum())):
            y, accepted = proposed, accepted + 1
    return y, accepted


PROGRAMS = [
    fitted, clustered, direction, conjugate_gradients, bouncing, collected, written, lowered, nested, differentiated,
    rows_of_any_width, drawn,
]  # fmt: skip
SIZES = (9, 11, 10, 14, 8, 11, 17, 23, 12, 30, 6)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_one_recording_serves_all_sizes(program: Callable[..., Any]) -> None:
    compiled, served = outlined(program), 0
    for k, n in enumerate(SIZES):
        given = normal(k, 3 * n).reshape(n, 3).clone(), normal(k + 50, n)
        assert_equal(outcome(program, given, k), outcome(compiled, given, k))
        served = compiled.stats.compiled_calls if k == 5 else served
    assert compiled.stats.compiled_calls - served >= 4 and compiled.stats.traces <= 6, compiled.explain(verbose=True)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_sizes_that_are_equal_by_chance_are_not_taken_for_one(program: Callable[..., Any]) -> None:
    def of_two(xs: Any, y: Any, others: Any) -> Any:
        return program(xs, y), others * 2 if others.sum() > 0 else others

    compiled = T.compile(of_two, wait=True)
    for k, (n, m) in enumerate(((9, 9), (10, 10), (11, 11), (12, 5), (7, 12), (3, 3), (2, 3), (12, 12))):
        given = normal(k, 3 * n).reshape(n, 3).clone(), normal(k + 50, n), normal(k, m)
        assert_equal(outcome(of_two, given, k), outcome(compiled, given, k))
