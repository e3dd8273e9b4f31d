"""capture/appended_items.py: lists that grow in loops whose steps take different paths, compiled as one node, against eager."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tests.branching_programs import agrees, assert_equal, density, loops_of_paths, normal, outcome, outlined, trades
from tests.test_branching_loops import messages
from tests.test_gradients_of_branching_loops import weight


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


def rows_of_an_argument(xs: Any) -> Any:
    """Items that are views of what is from before the loop."""
    state, seen = xs[0] * 1, []
    for x in xs:
        state = state + x if x.sum() > 0 else state * 0.5
        if state[0] > 0:
            seen.append(x)
        seen.append(x[0] + 1 + xs[1])
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


SEEN: list[int] = []
OTHER = SimpleNamespace(stack=lambda items: items[-1])
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
    rows_of_an_argument: steps,
    integers: lambda k: (normal(k, 20),),
    first_of_other_kind: steps,
}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_a_list_that_some_steps_append_to_is_an_output_of_one_node(program: Any) -> None:
    compiled = agrees(program, PROGRAMS[program], recordings=6, calls=14)
    assert not compiled.reasons, compiled.explain()


def kept_and_left(xs: Any) -> Any:
    kept, last = [], None
    for x in xs:
        y = x * 2
        if y.sum() > 0:
            last = y
            kept.append(y)
    return kept, last


def list_of_samples(n: int) -> Any:
    samples: list[Any] = []
    while len(samples) < n:
        x = T.randn(3)
        if T.rand(()) < density(x):
            samples.append(x)
    return samples


def list_and_stack(xs: Any) -> Any:
    kept: list[Any] = [xs[0]]
    times = []
    for k, x in enumerate(xs):
        if x.sum() > 0:
            kept.append(x * 2)
            times.append(0.5 * k)
    if not times:
        return None
    return {"kept": kept, "times": times}, T.stack(kept), len(times), T.tensor(times)


def whole_trajectory(y: Any, t: float, end: float, dt: float) -> Any:
    ys, ts = [y], [t]
    while t < end:
        error = (y.sin() * dt).abs().max().item()
        t, y = (t + dt, y - dt * y.sin()) if error < 0.1 else (t, y + 0)
        dt = dt * (1.2 if error < 0.05 else 0.7)
        ys.append(y)
        ts.append(t)
    return T.stack(ys), ts, ys


RETURNED: dict[Any, Any] = {
    list_of_samples: lambda k: (9,),
    list_and_stack: lambda k: (normal(k, 20, 3),),
    whole_trajectory: lambda k: (normal(k, 3), 0.0, 2.0, 0.1),
    kept_and_left: lambda k: (normal(k, 20, 3),),
}


@pytest.mark.parametrize("program", RETURNED, ids=lambda f: f.__name__)
def test_a_list_is_returned_with_as_many_items_as_each_call_appends(program: Any) -> None:
    compiled = agrees(program, RETURNED[program], recordings=6, calls=14)
    assert not compiled.reasons, compiled.explain()
    if program is not list_of_samples:
        assert len({outcome(program, RETURNED[program](k), k)[1] for k in range(14)}) > 3  # lengths


def test_what_a_call_returned_is_no_part_of_what_the_next_call_returns() -> None:
    compiled = outlined(list_and_stack)
    results = [outcome(compiled, (normal(k, 20, 3),), k) for k in range(6)]
    for k, result in enumerate(results):
        assert_equal(outcome(list_and_stack, (normal(k, 20, 3),), k), result)
    found = compiled(normal(0, 20, 3))
    found[0]["kept"][1].add_(1)
    found[0]["times"].append(0)
    assert_equal(outcome(list_and_stack, (normal(1, 20, 3),), 1), outcome(compiled, (normal(1, 20, 3),), 1))


def test_a_function_that_calls_one_that_returns_a_list_gets_its_items() -> None:
    def middle(n: int) -> Any:
        samples = list_of_samples(n)
        return samples[n // 2] + samples[0], len(samples)

    compiled = agrees(middle, lambda k: (9,), list_of_samples, recordings=6, calls=12)
    assert not compiled.reasons, compiled.explain()


@pytest.mark.parametrize("backend", ["reference", "interpret", "numba"])
def test_every_backend_keeps_items_of_some_steps(backend: str) -> None:
    agrees(rejection, lambda k: (4,), recordings=6, calls=10, backend=backend)
    agrees(list_and_stack, lambda k: (normal(k, 9, 3),), recordings=6, calls=10, backend=backend)


def test_by_itself_a_long_loop_is_recorded_again_as_one_node() -> None:
    for program, given, recordings in ((rejection, (100,), 3), (thinned, (T.ones(3), 300), 2), (whole_trajectory, None, 6)):
        compiled = T.compile(program, wait=True)
        of_call = (lambda k: (normal(k, 3), 0.0, 20.0, 0.1)) if given is None else lambda k, given=given: given
        agrees(program, of_call, compiled=compiled, recordings=recordings, calls=14)
        assert compiled.stats.piecewise_calls == 0 and not compiled.reasons, compiled.explain()


# -- gradients
def weighted(w: Any, xs: Any) -> Any:
    h, kept = xs[0] * 1.0, []
    for x in xs:
        h = h * 0.5 if h.sum() > x.sum() else h + x
        if x.sum() > 0:
            kept.append((h * w).sqrt())
    return T.stack(kept).nan_to_num().sum(), len(kept)


def until_enough(w: Any, n: int) -> Any:
    kept: list[Any] = []
    while len(kept) < n:
        x = T.randn(3)
        if x.sum() > 0:
            kept.append(x * w)
    return T.stack(kept).sum(0)


def states(w: Any, xs: Any) -> Any:
    h, seen = w * 1.0, []
    for x in xs:
        h = h * x if x.sum() > 0 else h + w
        seen.append(h)
        if h.abs().sum() > 20:
            break
    return T.stack(seen)


def test_gradients_go_through_items_of_some_steps() -> None:
    for program, given in (
        (weighted, lambda k: (weight(k, 3), normal(k, 12, 3))),
        (until_enough, lambda k: (weight(k, 3), 6)),
        (states, lambda k: (weight(k, 3), normal(k, 12, 3))),
    ):
        compiled = outlined(program)
        for k in range(12):
            gradients = []
            for f in (program, compiled):
                T.manual_seed(k)
                arguments: Any = given(k)
                result = f(*arguments)
                total = result[0] if type(result) is tuple else result
                total.sum().backward()
                gradients.append([total.detach(), arguments[0].grad])
            for x, y in zip(*gradients, strict=True):
                np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=2e-5, atol=1e-6)
        assert compiled.stats.compiled_calls > 5 and not compiled.reasons, compiled.explain()


# -- items of which several are one object
def kept_twice(xs: Any) -> Any:
    kept = []
    for x in xs:
        y = x * 2
        if y.sum() > 0:
            kept.append(y)
        kept.append(y)
    return kept


def chain(xs: Any) -> Any:
    state, kept = xs[0] * 1, []
    for x in xs:
        if x.sum() > state.sum() - 1:
            state = x * 0.5
        kept.append(state)
    return state, kept


def from_before(xs: Any) -> Any:
    first = xs[0] * 1
    state, kept = first, [first]
    for x in xs:
        state = x * 0.5 if x.sum() > 0.5 else first if x.sum() < -0.5 else state
        kept.append(state)
    return kept, first


def in_two_lists(xs: Any) -> Any:
    kept, others = [], []
    for k, x in enumerate(xs):
        y = x + 1
        kept.append(y)
        if x[0] > 0:
            others.append((k, y))
    return kept, others


def of_a_function(xs: Any) -> Any:
    return {"chain": chain(xs)}


def put_outside(xs: Any) -> Any:
    state, kept = xs[0] * 1, []
    for x in xs:
        state = x * 0.5 if x.sum() > 0 else state
        kept.append(state)
    place = {"kept": kept, "state": state}
    return place, kept


@pytest.mark.parametrize(
    "program", [kept_twice, chain, from_before, in_two_lists, of_a_function, put_outside], ids=lambda f: f.__name__
)
def test_items_are_the_objects_that_they_are_in_eager_mode(program: Any) -> None:
    compiled = outlined(program, chain)
    for k in range(10):
        assert_equal(outcome(program, steps(k), k), outcome(compiled, steps(k), k))
    assert compiled.stats.compiled_calls >= 3, compiled.explain()


def test_a_list_that_is_read_later_gets_its_items_where_it_is_read() -> None:
    def stored(xs: Any, n: int, box: dict[str, Any]) -> Any:
        kept, x = [], xs[0]
        for t in range(n):
            x = x * 0.5 if x.sum() > 0 else x + xs[t]
            kept.append(x * 2)
        box["kept"] = kept
        return x

    compiled = outlined(stored)
    for k in range(8):
        boxes: list[dict[str, Any]] = [{"kept": None}, {"kept": None}]
        for f, box in zip((stored, compiled), boxes, strict=True):
            f(normal(k, 12, 3), 9 + k % 3, box)
        assert [y.tolist() for y in boxes[0]["kept"]] == [y.tolist() for y in boxes[1]["kept"]]
    assert compiled.stats.compiled_calls >= 4 and max(len(path.recording.graph.nodes) for path in compiled._table.paths) < 40


# -- what is none
def kinds(xs: Any) -> Any:
    kept: list[Any] = []
    for x in xs:
        kept.append(x.sum().item() if x.sum() > 0 else 0)
    return kept


def texts(xs: Any) -> Any:
    kept = []
    for x in xs:
        if x.sum() > 0:
            kept.append("large")
    return len(kept)


def in_a_nested_loop(xs: Any) -> Any:
    total = xs[0] * 0
    for x in xs:
        kept: list[Any] = []
        for k in range(5):
            if x.sum() > 0.3 * k:
                kept.append(x * k)
        total = total + len(kept)
    return total


def before_it_is_written(xs: Any) -> Any:
    total, kept = xs[0] * 0, []
    for x in xs:
        if x.sum() > 0:
            kept.append(total)
        else:
            total.add_(x)
    return T.stack(kept)


REFUSED: dict[Any, str] = {
    kinds: "items of a list differ in shape, dtype or type",
    texts: "a step appends a str to a list",
    in_a_nested_loop: "some steps append to a list, or values decide how many steps do, in a loop in a loop",
    before_it_is_written: "",
}


@pytest.mark.parametrize("program", REFUSED, ids=lambda f: f.__name__)
def test_what_cannot_be_kept_is_refused_with_a_reason(program: Any) -> None:
    compiled = outlined(program)
    for k in range(6):
        assert_equal(outcome(program, steps(k), k), outcome(compiled, steps(k), k))
    assert REFUSED[program] in messages(compiled) and compiled.reasons, compiled.explain()


def written_after_it(y: Any, xs: Any) -> Any:
    kept = []
    for x in xs:
        y = y * 0.9 if y.sum() > x.sum() else y + 1
        kept.append(y)
    y.add_(1)
    return T.stack(kept)


def written_where_it_may_be_an_item(y: Any, xs: Any) -> Any:
    kept = [y]
    for x in xs:
        if y.sum() > x.sum():
            y = y - 1
            kept.append(y)
        elif x.sum() > 0:
            y = y + 0.75
    y.mul_(2)
    return T.cat(kept)


def given_and_written(y: Any, xs: Any) -> Any:
    start, kept = y, []
    for x in xs:
        kept.append(y)
        y = y * 0.9 if y.sum() > x.sum() else y + 1
    start[0] = 7.0
    return T.stack(kept)


def before_the_loop_and_written(y: Any, xs: Any) -> Any:
    other, kept = y * 2, []
    for x in xs:
        y = y * 0.9 if y.sum() > x.sum() else y + 1
        kept.append(other if x.sum() > 0 else y)
    other.zero_()
    return T.stack(kept)


def rows_of_what_is_written(y: Any, xs: Any) -> Any:
    kept = []
    for x in xs:
        y = y * 0.9 if y.sum() > x.sum() else y + 1
        if y.sum() > 0:
            kept.append(x)
    xs.mul_(2)
    return T.stack(kept), y


def shown_by_another_stack(y: Any, xs: Any) -> Any:
    kept = []
    for x in xs:
        y = y * 0.9 if y.sum() > x.sum() else y + 1
        if x.sum() > -2:
            kept.append(y)
    return OTHER.stack(kept) is y


ALIASES = (
    written_after_it, written_where_it_may_be_an_item, given_and_written, before_the_loop_and_written, rows_of_what_is_written,
    shown_by_another_stack,
)  # fmt: skip


@pytest.mark.parametrize("program", ALIASES, ids=lambda f: f.__name__)
def test_where_an_item_of_a_list_is_written_to_later_the_recording_stops(program: Any) -> None:
    compiled = outlined(program)
    for k in range(8):
        given = normal(k, 3), normal(k + 1, 12, 3)
        assert_equal(outcome(program, given, k), outcome(compiled, (normal(k, 3), normal(k + 1, 12, 3)), k))
    assert "something else changes or sees an item of a list" in messages(compiled), compiled.explain()


def test_what_is_written_to_after_its_list_is_no_item_any_more_is_written() -> None:
    def program(y: Any, xs: Any) -> Any:
        kept = []
        for x in xs:
            y = y * 0.9 if y.sum() > x.sum() else y + 1
            kept.append(y * 2)
        y.add_(1)
        return T.stack(kept), y

    compiled = agrees(program, lambda k: (normal(k, 3), normal(k + 1, 12, 3)))
    assert not compiled.reasons, compiled.explain()


def refused_late(x: Any, n: int) -> Any:
    times, kept = [0.5], []
    t, best = 0.5, None
    for _ in range(n):
        t = t + x.abs().sum().item()
        times.append(t)
        best = x if best is None else best
        x = 0.9 * x + T.randn(3)
        if x.sum() > 1.5:
            SEEN.append(1)
        if x.sum() > 0:
            kept.append(t)
    return T.tensor(times), kept, times


def test_where_a_recording_stops_items_are_numbers_and_tensors() -> None:
    compiled = outlined(refused_late)
    for k in range(10):
        assert_equal(outcome(refused_late, (normal(k, 3), 10), k), outcome(compiled, (normal(k, 3), 10), k))


# -- items that are tuples
def numbered(xs: Any) -> Any:
    kept = []
    for k, x in enumerate(xs):
        if x.sum() > 0:
            kept.append((k, x * 2))
    return kept


def with_the_state(x: Any, n: int) -> Any:
    seen = []
    for k in range(n):
        x = x * 0.5 + T.randn(3)
        x = x * 0.5 if x.sum() > 0 else x
        seen.append((k, x, None))
    return x, seen


def until_there_are_enough(n: int) -> Any:
    found: list[Any] = []
    tries = 0
    while len(found) < n:
        tries += 1
        x = T.randn(3)
        if x.sum() > 0:
            found.append((tries, x.norm().item()))
    return found, len(found)


def parts_are_read(xs: Any) -> Any:
    kept = []
    for x in xs:
        if x.sum() > 0:
            kept.append((x.sum(), x.norm().item()))
    total = xs.sum()
    for x, y in kept:
        total = total + x * y
    return total, len(kept)


def in_a_try(xs: Any) -> Any:
    kept, errors = [], 0
    for x in xs:
        try:
            kept.append((x * 2, math.log(x.sum().item())))
        except ValueError:
            errors += 1
    return kept, errors


def after_others(xs: Any) -> Any:
    kept: list[Any] = [("first", xs[0] * 1)]
    for x in xs:
        if x.sum() > 0:
            kept.append(("positive", x * 2))
        else:
            kept.append(("negative", -x))
    kept.append(("last", xs[-1] * 1))
    return kept


OF_TUPLES: dict[Any, Any] = {
    numbered: lambda k: (normal(k, 20, 3),),
    trades: lambda k: (normal(k, 30),),
    with_the_state: lambda k: (T.zeros(3, dtype=T.float64), 8),
    until_there_are_enough: lambda k: (5,),
    parts_are_read: lambda k: (normal(k, 6, 3),),
    in_a_try: lambda k: (normal(k, 12, 3),),
    after_others: lambda k: (normal(k, 12, 3),),
}


@pytest.mark.parametrize("program", OF_TUPLES, ids=lambda f: f.__name__)
def test_items_may_be_tuples(program: Any) -> None:
    compiled = outlined(program)
    for k in range(14):
        assert_equal(outcome(program, OF_TUPLES[program](k), k), outcome(compiled, OF_TUPLES[program](k), k))
    assert max(loops_of_paths(compiled), default=0) >= 1 and not compiled.reasons, compiled.explain()
    many = program in (
        parts_are_read,
        after_others,
    )  # where items are read one by one, there is a recording for each number of them
    assert many or compiled.stats.compiled_calls >= 9, compiled.explain()
