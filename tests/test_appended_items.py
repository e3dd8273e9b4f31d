"""capture/appended_items.py: lists that grow in loops whose steps take different paths, compiled as one node, against eager."""

from __future__ import annotations

from typing import Any

import pytest

import tracejit as T
from tests.branching_programs import agrees, density, normal


def rejection(n: int) -> Any:
    samples: list[Any] = []
    while len(samples) < n:
        x = T.randn(3)
        if T.rand(()) < density(x):
            samples.append(x)
    return T.stack(samples)


def rejection_of_many(n: int) -> Any:
    samples, tries = [], 0
    while len(samples) < n and tries < 500:
        tries += 1
        x = T.rand(2)
        if x.sum() < 1:
            samples.append(x)
            samples += [1 - x]
    return T.cat(samples), tries, len(samples)


def found_in_time(n: int) -> Any:
    found = []
    for _ in range(500):
        x = T.randn(2)
        if x.sum() > 1.5:
            found.append(x)
            if len(found) == n:
                break
    return T.stack(found)


def thinned(x: Any, n: int) -> Any:
    kept = []
    for _ in range(n):
        x = 0.9 * x + T.randn(3)
        if x.sum() > 0:
            kept.append(x)
    return T.stack(kept).mean(0), len(kept)


def after_continue(xs: Any) -> Any:
    kept = []
    for x in xs:
        if x.sum() < 0:
            continue
        kept.append(x * 2)
    kept = T.stack(kept)
    return (kept * kept).sum(), kept.amax(0)


def before_break(xs: Any) -> Any:
    kept, total = [], 0.0
    for x in xs:
        total = total + x.abs().sum().item()
        kept.append(x * total)
        if total > 9:
            break
    return T.stack(kept).sum(0), total


def two_in_some_steps(xs: Any) -> Any:
    kept: list[Any] = [xs[0]]
    for x in xs:
        kept.append(x * 0.5)
        if x.sum() > 0:
            kept.append(x * 2)
    return T.cat(kept).sum(), len(kept)


def in_either_branch(xs: Any) -> Any:
    kept, others = [], []
    for x in xs:
        if x.sum() > 0:
            kept.append(x)
        else:
            others.append(x)
    if not others:
        return len(kept)
    return T.stack(kept).sum(0) - T.stack(others).sum(0), len(kept) - len(others)


def trajectory(y: Any, t: float, end: float, dt: float) -> Any:
    ys, ts = [y], [t]
    while t < end:
        error = (y.sin() * dt).abs().max().item()
        t, y = (t + dt, y - dt * y.sin()) if error < 0.1 else (t, y + 0)
        dt = dt * (1.2 if error < 0.05 else 0.7)
        ys.append(y)
        ts.append(t)
    return T.stack(ys).sum(0), T.tensor(ts).sum(), len(ts)


def rows_of_a_state(xs: Any) -> Any:
    """Items that are views of what steps carry on."""
    state, seen = xs[0] * 1, []
    for x in xs:
        state = state + x if x.sum() > 0 else state * 0.5
        seen.append(state[0])
    return T.stack(seen), state


def integers(xs: Any) -> Any:
    at = []
    for k, x in enumerate(xs):
        if x > 0:
            at.append(k)
    return T.tensor(at).sum(), len(at)


def first_of_other_kind(xs: Any) -> Any:
    best, improved = None, []
    for x in xs:
        if best is None or x.sum() > best.sum():
            best = x + 0
            improved.append(best)
    return T.stack(improved).sum(0), len(improved)


def steps(k: int) -> tuple[Any, ...]:
    return (normal(k, 12, 3),)


PROGRAMS: dict[Any, Any] = {
    rejection: lambda k: (9,),
    rejection_of_many: lambda k: (10,),
    found_in_time: lambda k: (7,),
    thinned: lambda k: (T.ones(3), 20),
    after_continue: steps,
    before_break: lambda k: (normal(k, 20, 3),),
    two_in_some_steps: steps,
    in_either_branch: lambda k: (normal(k, 20, 3),),
    trajectory: lambda k: (normal(k, 3), 0.0, 2.0, 0.1),
    rows_of_a_state: steps,
    integers: lambda k: (normal(k, 20),),
    first_of_other_kind: steps,
}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_a_list_that_some_steps_append_to_is_an_output_of_one_node(program: Any) -> None:
    compiled = agrees(program, PROGRAMS[program], recordings=6, calls=14)
    assert not compiled.reasons, compiled.explain()
