"""Gradients through loops whose steps take different paths (capture/branching_loops.py, passes/loop_gradient.py), against eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tests.branching_programs import loops_of_paths, normal, outlined

Given = Callable[[int], tuple[Any, ...]]


# -- what is asked
def weight(k: int, *shape: int) -> Any:
    return normal(k, *shape).mul(0.3).add(1.0).requires_grad_()


def outcome(function: Any, given: tuple[Any, ...], seed: int) -> tuple[list[Any], list[Any]]:
    """(what a call gives, the gradients that it leaves).  A result that requires grad is pulled back."""
    T.manual_seed(seed)
    result = function(*given)
    results = [*result] if isinstance(result, tuple) else [result]
    for x in results:
        if isinstance(x, T.Tensor) and x.requires_grad:
            (x * x).sum().backward()
    return results, [x.grad for x in given if isinstance(x, T.Tensor)]


def assert_same(expected: Any, found: Any, exact: bool) -> None:
    for x, y in zip([*expected[0], *expected[1]], [*found[0], *found[1]], strict=True):
        assert type(x) is type(y), (x, y)
        if not isinstance(x, T.Tensor):
            assert x == y
            continue
        assert (x.shape, x.dtype, x.requires_grad) == (y.shape, y.dtype, y.requires_grad)
        one, other = x.detach().numpy(), y.detach().numpy()
        if exact:
            np.testing.assert_array_equal(one, other)
            assert np.array_equal(np.signbit(one), np.signbit(other)), (one, other)
        else:
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def agrees(function: Any, given: Given, recordings: int = 3, calls: int = 8, exact: bool = False, compiled: Any = None) -> Any:
    """Calls give what eager calls do, and are served by loops of paths."""
    compiled = outlined(function) if compiled is None else compiled
    for k in range(calls):
        assert_same(outcome(function, given(k), k), outcome(compiled, given(k), k), exact)
    assert compiled.stats.traces <= recordings and not compiled.stats.piecewise_calls, compiled.explain()
    assert compiled.stats.compiled_calls == calls - compiled.stats.traces, compiled.explain()
    assert not compiled.reasons, compiled.explain()
    assert all(loops_of_paths(compiled))
    return compiled


# -- programs
def scaled(h: Any, w: Any, n: int) -> Any:
    for _ in range(n):
        h = h * w if h.sum() > 2 else h + w
    return h


def momentum(x: Any, v: Any, n: int) -> Any:  # v has a gradient where a step was made that uses it
    x, v = x * 1.0, v * 1.0
    for _ in range(n):
        v = v * 0.75
        x = x + v if x.sum() > 2 else x * 0.5
    return x


def until(h: Any, w: Any, bound: float) -> Any:
    while h.sum() < bound:
        h = h * 1.25 + w * w if h[0] > 1 else h + w * w
    return h


def leaves(h: Any, w: Any, n: int) -> Any:
    for i in range(n):
        h = h * 1.25
        if h.sum() > 8:
            break
        if i == n - 1:
            return h * w
        if h[1] > 2:
            h = h - w
    else:
        h = h + 1
    return h


def swapped(a: Any, b: Any, n: int) -> Any:
    a, b = a * 1.0, b * 1.0
    for _ in range(n):
        if a.sum() > b.sum():
            a, b = b, a * 0.5
        else:
            a = a + b * 0.25
    return a * 2


def stacked(w: Any, xs: Any) -> Any:
    h, items = (w * 1.0).sum(), []
    for x in xs:
        h = h * 0.5 + x * w.sum()
        h = h * 0.25 if h > 2 else h
        items.append(h)
    return T.stack(items)


def best(w: Any, xs: Any) -> Any:
    h, found = w.sum(), w.sum() * 0 - 10
    for x in xs:
        h = h * 0.5 + x * w.sum()
        if h > found:
            found = h * 1
    return found


def drawn(h: Any, w: Any, n: int) -> Any:
    h = h * w
    for _ in range(n):
        proposed = h + w * T.randn(3).double()
        if T.rand(()) < T.exp(-0.1 * (proposed * proposed).sum()):
            h = proposed
    return h


def at_its_parameter(w: Any, n: int) -> Any:  # the state is the parameter itself, at first
    h = w
    for _ in range(n):
        h = h * w if h.sum() > 3 else h + 0.25
    return h


def over_embeddings(h: Any, table: Any, words: Any) -> Any:
    for x in table[words]:
        h = h * x + x if h.sum() < 1 else h * 0.5 - x
    return h


def used_after_the_loop(x: Any, w: Any, n: int) -> Any:
    y = x * 2
    h = y
    for _ in range(n):
        h = h * w if h.sum() > 1 else h + w * h
    return (h * y).sum() + (y**2).sum()


def with_numbers(h: Any, w: Any, end: float) -> Any:  # an adaptive step
    t, dt = 0.0, 0.05
    while t < end:
        slope = w * h
        error = (slope * dt).abs().max().item()
        if error < 0.1:
            h, t = h - dt * slope, t + dt
        dt = dt * (1.25 if error < 0.05 else 0.75)
    return h


def trained(w: Any, xs: Any) -> Any:
    h = T.zeros(3, dtype=T.float64)
    for x in xs:
        h = (h + w * x).tanh() if x > 0 else h * 0.5 + w
    loss = (h * h).sum()
    loss.backward()
    return loss.detach()


def solved(h: Any, w: Any, n: int) -> Any:  # a system on one of the paths
    for _ in range(n):
        if h.sum() > 2:
            h = T.linalg.solve(w @ w.T + T.eye(3, dtype=T.float64), h)
        else:
            h = h + w[0] * 0.5
    return h


def hidden_weight(h: Any, n: int) -> Any:
    w = T.ones(2, dtype=T.float64, requires_grad=True)
    for _ in range(n):
        h = h * w if h.sum() > 1 else h + w
    return (h.detach(), T.autograd.grad(h.sum(), w)[0])


PROGRAMS: dict[Any, tuple[Given, dict[str, Any]]] = {
    scaled: (lambda k: (normal(k, 3), weight(k, 3), 12), {"exact": True}),
    momentum: (lambda k: (weight(k, 3), weight(k + 9, 3), 10), {"exact": True}),
    until: (lambda k: (normal(k, 3), weight(k, 3), 60.0), {"exact": True}),
    leaves: (lambda k: (weight(k + 5, 3), weight(k, 3), 5 + 3 * (k % 3)), {"recordings": 6, "calls": 16}),
    swapped: (lambda k: (weight(k, 3), weight(k + 9, 3), 10), {"recordings": 4, "exact": True}),
    stacked: (lambda k: (weight(k, 3), normal(k, 9)), {}),
    best: (lambda k: (weight(k, 3), normal(k, 9)), {}),
    drawn: (lambda k: (normal(k, 3), weight(k, 3), 10), {}),
    at_its_parameter: (lambda k: (weight(k, 3), 8), {"exact": True}),
    over_embeddings: (lambda k: (normal(k, 3), weight(k, 4, 3), T.tensor([1, 2, k % 4, 1, 0, 2, 3, 2])), {"exact": True}),
    used_after_the_loop: (lambda k: (weight(k, 3), weight(k + 9, 3), 10), {"exact": True}),
    with_numbers: (lambda k: (normal(k, 3), weight(k, 3), 2.0), {}),
    trained: (lambda k: (weight(k, 3), normal(k, 9)), {}),
    solved: (lambda k: (normal(k, 3), weight(k, 3, 3), 9), {}),
    hidden_weight: (lambda k: (normal(k, 2), 12), {"exact": True}),
}


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_gradients_through_a_loop_of_paths_are_those_of_its_steps(function: Any) -> None:
    given, options = PROGRAMS[function]
    agrees(function, given, **options)


@pytest.mark.parametrize("backend", ["reference", "interpret", "numba"])
@pytest.mark.parametrize("function", [scaled, momentum, with_numbers], ids=lambda f: f.__name__)
def test_every_backend_takes_such_gradients(function: Any, backend: str) -> None:
    given, options = PROGRAMS[function]
    agrees(function, given, **options, compiled=outlined(function, backend=backend))


def test_the_policy_outlines_a_long_loop_that_gradients_go_through() -> None:
    given: Given = lambda k: (weight(k, 3), normal(k, 200))
    agrees(trained, given, recordings=2, compiled=T.compile(trained, wait=True))


# -- what exists, and what does not
def used_on_some_paths(a: Any, b: Any, xs: Any) -> Any:
    h = a * 1.0
    for x in xs:
        if x > 3:
            h = h * b
        elif x > 1:
            h = h + 1
        else:
            h = h * 0.5
    return h


def takes_gradients_of_some(a: Any, b: Any, xs: Any) -> Any:
    return T.autograd.grad(used_on_some_paths(a, b, xs).sum(), [a, b], allow_unused=True)


@pytest.mark.parametrize("function", [used_on_some_paths, takes_gradients_of_some], ids=lambda f: f.__name__)
def test_a_parameter_that_no_step_of_a_call_has_used_has_no_gradient(function: Any) -> None:
    def given(k: int) -> tuple[Any, ...]:
        xs = T.tensor([0.0, 2.0, 0.0, 2.0, 4.0 if k in (0, 3, 4, 7) else 0.0, 2.0], dtype=T.float64)
        return weight(k, 3), weight(k + 9, 3), xs

    compiled = outlined(function, used_on_some_paths)
    gradients = []
    for k in range(10):
        expected, found = outcome(function, given(k), k), outcome(compiled, given(k), k)
        assert_same(expected, found, exact=True)
        of_b = found[1][1] if function is used_on_some_paths else found[0][1]
        gradients.append(of_b is not None)
    assert gradients == [k in (0, 3, 4, 7) for k in range(10)]
    assert compiled.stats.compiled_calls >= 8, compiled.explain()


def turns_later(h: Any, w: Any, xs: Any) -> Any:
    for x in xs:
        h = h * w if x > 0 else h * 0.5
    return h


def test_a_result_requires_grad_if_a_step_of_the_call_made_it_so() -> None:
    def given(k: int) -> tuple[Any, ...]:
        xs = normal(k, 8)
        return normal(k, 3), weight(k, 3), -xs.abs() if k % 3 == 2 else xs

    compiled = agrees(turns_later, given, recordings=4, calls=12, exact=True)
    assert not compiled(*given(2)).requires_grad and compiled(*given(3)).requires_grad


def not_taken(w: Any, n: int) -> Any:  # the square root and the logarithm are NaN on steps that do not come there
    h = w * 1.0
    for _ in range(n):
        if h[0] > 0.5:
            h = h - w
        elif h.min() > 0:
            h = h.sqrt() + h.log()
        else:
            h = h + 1.25
    return h


def infinite_derivative(w: Any, n: int) -> Any:  # the derivative of the square root is infinite where a step takes it of 0
    h = w * 1.0
    for _ in range(n):
        h = (h - h.min()).sqrt() if h.min() > 1 else h * 0.5 + w * w
    return h


@pytest.mark.parametrize("function", [not_taken, infinite_derivative], ids=lambda f: f.__name__)
def test_nan_and_infinity_come_from_paths_that_were_taken_and_from_no_others(function: Any) -> None:
    compiled = agrees(function, lambda k: (weight(k, 3), 12), recordings=4)
    w = weight(1, 3)
    compiled(w, 12).sum().backward()
    assert bool(w.grad.isfinite().all()) is (function is not_taken)


def unread_at_the_end(
    x: Any, y: Any, n: int
) -> Any:  # the last steps give the root of y no cotangent: infinity times -0.0 is NaN
    x, y = x * 1.0, y * 1.0
    for i in range(n):
        x = x + y.sum() if x.sum() < i else x * 0.5
        y = (y - y.min()).sqrt() + 1 if i > n - 3 else y + 0.25
    return x


def test_what_has_no_cotangent_is_not_pulled_back() -> None:
    agrees(unread_at_the_end, lambda k: (weight(k, 3), weight(k + 9, 3), 10), recordings=4)


def overwritten(h: Any, w: Any, n: int) -> Any:  # what the last step has left does not depend on what the first one was given
    for _ in range(n):
        h = w * w if h.sum() > 0 else w * 2
    return h


def read_and_overwritten(h: Any, w: Any, n: int) -> Any:  # `y` has a cotangent that comes from behind the loop
    y = h = h * 1.0
    for _ in range(n):
        h = w * w if h.sum() > 3 else h * 1.5 + 0.25
    return h * y


@pytest.mark.parametrize("function", [overwritten, read_and_overwritten], ids=lambda f: f.__name__)
def test_what_the_steps_have_overwritten_has_no_cotangent_of_the_loop(function: Any) -> None:
    agrees(function, lambda k: (weight(k, 3), weight(k + 9, 3), 6), recordings=4, exact=True)


def shared_by_two_loops(h: Any, w: Any, u: Any, xs: Any) -> Any:
    h = h * u
    for x in xs:
        h = h * w if x > 1 else h + 1.0
    for x in xs:
        h = h * w if x < -1 else h * 0.5
    return h


def read_in_a_later_loop(h: Any, w: Any, u: Any, xs: Any) -> Any:  # else the root of 0 gives NaN
    h, g = h * 1.0, h * w
    for x in xs:
        h = h * u if x > 0 else h * 0.5
        g = (g * 0).sqrt() if x > 0 else g + w
    for x in xs:
        h = h * g if x < -1 else h * 0.5
    return h


def list_read_in_a_later_loop(h: Any, w: Any, u: Any, xs: Any) -> Any:
    h, g, items = h * 1.0, h * w, []
    for x in xs:
        h = h * u if x > 0 else h * 0.5
        g = g * w if x > 0 else g + w
        items.append(g)
    total = T.stack(items).sum(0)
    for x in xs:
        h = h * total if x < -1 else h * 0.5
    return h


def begun_in_a_later_loop(h: Any, w: Any, u: Any, xs: Any) -> Any:
    y = h = w * h
    for x in xs:
        h = u * u if x > 1 else h * 0.5
    g = u
    for x in xs:
        g = g * y if x < -1 else g * 0.5
    return h * g


@pytest.mark.parametrize(
    "function",
    [shared_by_two_loops, read_in_a_later_loop, list_read_in_a_later_loop, begun_in_a_later_loop],
    ids=lambda f: f.__name__,
)
def test_a_loop_is_told_which_of_its_cotangents_a_later_loop_has_given(function: Any) -> None:
    def given(k: int) -> tuple[Any, ...]:
        low, high = (-0.9 if k & 1 else -3.0), (0.9 if k & 2 else 3.0)
        return weight(k + 5, 3), weight(k, 3), weight(k + 9, 3), normal(k + 3, 6).clamp(low, high)

    compiled = outlined(function)
    for k in range(12):
        assert_same(outcome(function, given(k), k), outcome(compiled, given(k), k), exact=False)
    assert compiled.stats.compiled_calls >= 8 and not compiled.reasons, compiled.explain()


def rows_of(h: Any, w: Any, xs: Any, n: int) -> Any:
    for i in range(n):
        x = xs[i]
        h = h * w if x.sum() > 0 else h * w + x
    return h


def rows_of_some_steps(h: Any, w: Any, xs: Any, n: int) -> Any:
    for i in range(n):
        h = h * w + xs[i] if i < 4 else h * w
    return h


@pytest.mark.parametrize("function", [rows_of, rows_of_some_steps], ids=lambda f: f.__name__)
def test_steps_that_are_not_made_look_at_no_positions(function: Any) -> None:
    n = 5 if function is rows_of else 7
    agrees(function, lambda k: (normal(k, 3), weight(k, 3), normal(k + 1, 5, 3), n), exact=True)


def writes_to_another(w: Any, xs: Any) -> Any:
    h, written = w * 1.0, T.ones(2, dtype=T.float64)
    for x in xs:
        h = h * 0.5
        if x > 0:
            written[0] += h.detach()[0] + 1
            h = h + w
    return h, written


def test_steps_may_write_to_tensors_that_need_no_gradient() -> None:
    agrees(writes_to_another, lambda k: (weight(k, 3), normal(k, 8)), recordings=3, exact=True)


# -- items of lists
def items_alone(w: Any, xs: Any) -> Any:  # what is carried requires no grad
    h, items = xs[0] * 1.0, []
    for x in xs:
        h = h * 0.5 if h > x else h + x
        items.append(h * w)
    return T.stack(items)


def test_items_that_require_grad_have_gradients_where_nothing_that_is_carried_does() -> None:
    agrees(items_alone, lambda k: (weight(k, 3), normal(k, 8)), recordings=3)


def some_items(w: Any, xs: Any) -> Any:
    h, items = xs[0] * 1.0, []
    for x in xs:
        h = h * 0.5 if h > x else h + x
        items.append(h * w if x > 0 else h * w.detach())
    return T.stack(items)


def rarely_printed(w: Any, xs: Any) -> Any:
    h, items = w * 1.0, []
    for x in xs:
        h = w * x if h[0] > 1 else h + w
        if x > 2:
            BOX.append(len(BOX))
        items.append(h * w)
    return items[0] * T.stack(items)


def two_of_one_and_items(w: Any, xs: Any) -> Any:
    h = g = w * 1.0
    items = []
    for x in xs:
        h = w * x if h[0] > 1 else h + w
        if x > 1:
            g = h
        items.append(h * w)
    return g * T.stack(items)


@pytest.mark.parametrize("function", [some_items, rarely_printed, two_of_one_and_items], ids=lambda f: f.__name__)
def test_where_a_recording_stops_items_keep_their_gradients(function: Any, capsys: Any) -> None:
    compiled = outlined(function)
    for k in range(8):
        xs = -normal(k, 8).abs() if k == 5 else normal(k, 8)
        assert_same(outcome(function, (weight(k, 3), xs), k), outcome(compiled, (weight(k, 3), xs), k), exact=False)
    assert compiled.reasons


# -- steps that write
def read_then(h: Any, w: Any, n: int) -> Any:
    for _ in range(n):
        if h.sum() < 6:
            h = h + w
        else:
            y = h.detach() * 1.0
            y.mul_(0.25)
            h = y * w
    return h


def writes(h: Any, w: Any, n: int) -> Any:
    for _ in range(n):
        h = h * w if h.sum() > 3 else h + w * w
        h[0] = 1.0
        h += 0.25 * w
    return h


def writes_rows(h: Any, w: Any, n: int) -> Any:
    for i in range(n):
        h = h.clone()
        h[i % 3] = (h.sum() * w).sum().tanh()
        if h.sum() > 1:
            h[1:] *= 0.5
    return h


def writes_on_a_path(h: Any, w: Any, n: int) -> Any:  # the root of what is negative is not taken
    for _ in range(n):
        y = h + w
        if y.sum() > 3:
            y.sub_(2.5)
        else:
            y[:2] = (y[1:] - 0.25).abs().sqrt() + w[:2]
        h = y
    return h


@pytest.mark.parametrize("function", [read_then, writes, writes_rows, writes_on_a_path], ids=lambda f: f.__name__)
def test_a_step_may_write_to_what_it_has_made_and_requires_grad(function: Any) -> None:
    agrees(function, lambda k: (weight(k, 3), weight(k + 9, 3), 9), recordings=4, calls=12)


def zeros_and_own(w: Any, xs: Any) -> Any:  # steps that write to what they have made were recorded before `h` requires grad
    h = T.zeros(3, dtype=T.float64)
    for x in xs:
        if x > 0:
            h = h + w
        else:
            y = h * 1.0
            y.mul_(0.5)
            h = y
    return h


def part_of_own(w: Any, xs: Any) -> Any:
    h = T.zeros(3, dtype=T.float64)
    for x in xs:
        if x > 0:
            h = h + w
        else:
            h = h * 1.0
            h[0] = 0.5
    return h


def saved_then_written(w: Any, xs: Any) -> Any:  # eager mode's backward pass raises
    h = w * 1.0
    for x in xs:
        y = h.detach() * 1.0
        h = h + y * w
        if x < 0:
            y.mul_(0.5)
    return h


def saved_by_other_steps(w: Any, xs: Any) -> Any:  # eager mode's backward pass raises
    h, written = w * 1.0, T.ones(3, dtype=T.float64)
    for x in xs:
        if x > 0:
            h = h + written * w
        else:
            written.add_(1.0)
    return h


@pytest.mark.parametrize("is_late", [False, True], ids=["writes first", "reads first"])
@pytest.mark.parametrize(
    "function",
    [zeros_and_own, part_of_own, saved_then_written, saved_by_other_steps],
    ids=lambda f: f.__name__,
)
def test_where_gradients_need_what_steps_write_to_the_recording_stops(function: Any, is_late: bool) -> None:
    def outcome_or_refusal(called: Any, k: int) -> Any:
        xs = T.tensor([[-1.0, 1, -1, -1, 1, -1], [-1, -1, 1, 1, -1, 1]][k % 2], dtype=T.float64)
        given = weight(k, 3), -xs if is_late else xs
        try:
            return outcome(called, given, k)
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
            return [called(*given)], []

    compiled = outlined(function)
    for k in range(5):
        assert_same(outcome_or_refusal(function, k), outcome_or_refusal(compiled, k), exact=True)
    assert "requires grad" in next(iter(compiled.reasons)).message, compiled.explain()


# -- what depends on which tensors require grad
def asks(w: Any, xs: Any) -> Any:
    h, g = w * 1.0, T.zeros(3, dtype=T.float64)
    for x in xs:
        g = g * 0.5 if g.requires_grad else g + 1
        if x > 0:
            g, h = h, g
    return g + h


def catches(w: Any, xs: Any) -> Any:
    h = T.zeros(3, dtype=T.float64)
    for x in xs:
        if x > 0:
            h = h + w
        else:
            try:
                h.sum().backward(retain_graph=True)
            except RuntimeError:
                h = h + 7
            h = h + 1
    return h


def asks_for_a_leaf(w: Any, xs: Any) -> Any:
    for x in xs:
        added = 1.0 if w.is_leaf else 2.0
        w = w * 0.5 + added if x > 0 else w + 1
    return w


@pytest.mark.parametrize("function", [asks, catches, asks_for_a_leaf], ids=lambda f: f.__name__)
def test_where_a_step_asks_for_what_requires_grad_the_recording_stops(function: Any) -> None:
    compiled = outlined(function)
    for k in range(6):
        xs = normal(k, 6) if k else T.tensor([-1.0, 1, -1, -1, -1, 1], dtype=T.float64)
        assert_same(outcome(function, (weight(k, 3), xs), k), outcome(compiled, (weight(k, 3), xs), k), exact=True)
    assert "requires grad" in next(iter(compiled.reasons)).message, compiled.explain()


def changes_a_leaf(w: Any, xs: Any) -> Any:
    for x in xs:
        if x > 0:
            w.mul_(0.5)
        w = w + 1
    return w


def test_a_step_may_not_write_to_a_leaf() -> None:
    compiled = outlined(changes_a_leaf)
    for k in range(8):
        raised = []
        for function in (changes_a_leaf, compiled):
            try:
                raised.append(function(weight(k, 3), normal(k, 6)).tolist())
            except RuntimeError as error:
                raised.append(str(error))
        assert raised[0] == raised[1] and ("leaf" in str(raised[0])) == bool(normal(k, 6)[0] > 0)


def sums(w: Any, xs: Any) -> Any:
    h = w * 1.0
    for x in xs:
        h = h + w if x > 0 else h * 0.5
    return h.sum()


def test_a_loop_whose_steps_save_nothing_can_be_pulled_back_twice() -> None:
    compiled = outlined(sums)
    for k in range(4):
        gradients = []
        for function in (sums, compiled):
            w = weight(k, 3)
            result = function(w, normal(k, 6))
            result.backward()
            result.backward()
            gradients.append(w.grad)
        np.testing.assert_array_equal(*[x.numpy() for x in gradients])
    assert compiled.stats.compiled_calls >= 2, compiled.explain()


# -- room for steps
def test_a_call_of_more_steps_than_there_is_room_for_is_recorded_with_more_room() -> None:
    def given(k: int) -> tuple[Any, ...]:
        return T.ones(3, dtype=T.float64), weight(1, 3), 400.0 if k in (3, 6) else 20.0

    compiled = outlined(until)
    for k in range(9):
        assert_same(outcome(until, given(k), k), outcome(compiled, given(k), k), exact=True)
    assert compiled.stats.traces == 2 and compiled.stats.compiled_calls == 7, compiled.explain()


# -- loops in loops
def in_a_loop(w: Any, n: int) -> Any:
    h = w * 1.0
    for _ in range(n):
        while h.sum() > 4:
            h = h * 0.5
        h = h + w
    return h


def implicit(y: Any, w: Any, n: int) -> Any:  # a fixed point in each step; that of a later one may need no second iteration
    for _ in range(n):
        z = y
        while True:
            new = y - 0.25 * (z * w).tanh()
            error = (new - z).abs().max()
            z = new
            if error < 1e-4:
                break
        y = z
    return y


def on_a_path(x: Any, w: Any, n: int) -> Any:
    for i in range(n):
        if x.sum() > 4:
            while x.sum() > 2:
                x = x * 0.75 * w.tanh() if x[0] > 1 else x * 0.5
        else:
            x = x + w * w if i % 3 else x + w.sqrt()
    return x


def three_deep(x: Any, w: Any, n: int) -> Any:
    x = x * 1.0
    for _ in range(n):
        while x.sum() > 4:
            y = x * w
            while y.sum() > 3:
                y = y * 0.75
            x = x * 0.5 + y * 0.125
        x = x + w
    return x


def counted_inside(x: Any, w: Any, n: int) -> Any:
    x = x * 1.0
    for _ in range(n):
        if x[1] > 1:
            for _ in range(4):
                x = x * 0.75 if x.sum() > 3 else x + w * 0.25
        x = x + w
    return x


def not_taken_inside(x: Any, w: Any, n: int) -> Any:  # the root of what is negative, on steps and in loops that do not come there
    x = x * 1.0
    for _ in range(n):
        y = x - 1.5
        if y.min() > 0:
            while y.sum() > 1:
                y = y.sqrt() * 0.5 + y.log() * 0.0625 if y.min() > 0.25 else y * 0.5
        x = y + w
    return x


@pytest.mark.parametrize(
    "function", [in_a_loop, implicit, on_a_path, three_deep, counted_inside, not_taken_inside], ids=lambda f: f.__name__
)
def test_gradients_go_through_loops_in_loops(function: Any) -> None:
    def given(k: int) -> tuple[Any, ...]:
        return (weight(k, 3), 9) if function is in_a_loop else (weight(k, 3), weight(k + 4, 3), 9)

    agrees(function, given, recordings=9, calls=20)


def test_a_loop_in_a_loop_has_room_for_as_many_steps_as_a_call_makes() -> None:
    def given(k: int) -> tuple[Any, ...]:
        return ((weight(1, 3) * (300.0 if k in (3, 6) else 1.0)).detach().requires_grad_(), weight(1, 3), 6)

    def settles(h: Any, w: Any, n: int) -> Any:
        h = h * 1.0
        for _ in range(n):
            while h.sum() > 4:
                h = h * 0.75
            h = h + w
        return h

    compiled = agrees(settles, given, recordings=2, calls=9, exact=True)
    assert compiled.stats.traces == 2


def inner_pair(x: Any, v: Any, w: Any, n: int) -> Any:
    x, v = x * 1.0, v * 1.0
    for _ in range(n):
        while v.sum() > 2:
            v = v * 0.75
            x = x + v * w
        v = v + w
    return x, v


@pytest.mark.parametrize("ask", [0, 1], ids=["grad", "hook"])
def test_results_of_an_inner_loop_may_be_made_of_each_other(ask: int) -> None:
    compiled = outlined(inner_pair)
    for k in range(6):
        expected, found = [
            list((hooks if ask else by_the_other)(f(*given), given[:3])) for f in (inner_pair, compiled) for given in [both_of(k)]
        ]
        assert [x is None for x in expected] == [x is None for x in found]
        for x, y in zip(expected, found, strict=True):
            if x is not None:
                np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=1e-9, atol=1e-12)
    assert compiled.stats.compiled_calls and not compiled.reasons, compiled.explain()


# -- results that are made of each other
def bounced(x: Any, v: Any, w: Any, n: int) -> Any:  # symplectic Euler: the step makes `x` of `v`, unless it bounces
    x, v = x * 1.0, v * 1.0
    for _ in range(n):
        v = v - 0.75 * (x * w)
        x = x + 0.75 * v
        if x[0] < 1:
            x, v = 2 - x, v * -0.875
    return x, v


def energy(x: Any, v: Any, w: Any, n: int) -> Any:
    x, v = bounced(x, v, w, n)
    return (x * x * w).sum() + (v * v).sum()


def force(x: Any, v: Any, w: Any, n: int) -> Any:  # `v` is made of another `x`
    x, v = bounced(x, v, w, n)
    return T.autograd.grad((x * x * x).sum(), x)[0] * v.detach()


def states_and_items(x: Any, v: Any, w: Any, n: int) -> Any:
    x, v, items = x * 1.0, v * 1.0, []
    for _ in range(n):
        v = v - 0.5 * (x * w)
        x = x + 0.5 * v if x.sum() > 0 else -x
        items.append(x)
    return x, v, T.stack(items)


def scalars(x: Any, v: Any, w: Any, n: int) -> Any:
    x, v, w = x.sum(), v.sum(), w.sum()
    for _ in range(n):
        v = (v * w).tanh()
        x = (x * v).sin() if x > 1 else x + v
    return x, v


def both_of(k: int, n: int = 9) -> tuple[Any, ...]:
    return weight(k, 3), weight(k + 9, 3), weight(k + 5, 3), n


@pytest.mark.parametrize("function", [energy, force], ids=lambda f: f.__name__)
def test_results_may_be_made_of_each_other_in_a_step(function: Any) -> None:
    compiled = outlined(function, bounced)
    for k in range(8):
        assert_same(outcome(function, both_of(k), k), outcome(compiled, both_of(k), k), exact=False)
    assert compiled.stats.traces <= 3 and not compiled.stats.piecewise_calls and not compiled.reasons, compiled.explain()
    assert all(loops_of_paths(compiled))


def by_leaves(results: Any, given: Any) -> Any:
    sum((x * x).sum() for x in results).backward()
    return [x.grad for x in given]


def by_the_other(results: Any, given: Any) -> Any:
    return [y for x in results for y in T.autograd.grad(x.sum(), [*results, *given], retain_graph=True, allow_unused=True)]


def by_both(results: Any, given: Any) -> Any:
    return T.autograd.grad(sum((x * x).sum() for x in results), [*results, *given])


def hooks(results: Any, given: Any) -> Any:
    seen: list[Any] = []
    for k, x in enumerate(results, 2):
        x.register_hook(lambda g, k=k: seen.append(g.detach() * k) or g * 2)
    sum((x * x).sum() for x in results).backward()
    return [*seen, *[x.grad for x in given]]


def retained(results: Any, given: Any) -> Any:
    results[1].retain_grad()
    (results[0] * results[1]).sum().backward(retain_graph=True)
    results[0].sum().backward(inputs=[results[1], given[2]])
    return [results[1].grad, *[x.grad for x in given]]


def not_entered(results: Any, given: Any) -> Any:  # where `x` is not made of `v`, the pass frees nothing
    loss = (results[0] * results[0]).sum()
    return [*T.autograd.grad(loss, results[1], allow_unused=True, retain_graph=True), *T.autograd.grad(loss, given)]


def twice_by_one(results: Any, given: Any) -> Any:
    (first,) = T.autograd.grad((results[0] * results[0]).sum(), results[1], create_graph=True, allow_unused=True)
    return [None, *T.autograd.grad(results[1].sum(), given)] if first is None else [
        first.detach(), *T.autograd.grad((first * first).sum(), given, allow_unused=True)
    ]  # fmt: skip


def after_a_change(results: Any, given: Any) -> Any:  # the steps have saved what is changed; those that add have saved nothing
    with T.no_grad():
        given[2].add_(1.0)
    found: list[Any] = []
    for wanted in (results[1], given[0]):
        try:
            found += T.autograd.grad(results[0].sum(), wanted, retain_graph=True, allow_unused=True)
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
            found.append(None)
    return found


@pytest.mark.parametrize(
    "ask",
    [by_leaves, by_the_other, by_both, hooks, retained, not_entered, twice_by_one, after_a_change],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize(
    ("function", "n"), [(bounced, 0), (states_and_items, 7), (scalars, 6)], ids=["bounced", "items", "scalars"]
)
def test_a_result_has_the_gradients_of_the_step_that_made_another_one_of_it(function: Any, n: int, ask: Any) -> None:
    compiled, kinds = outlined(function), set()
    for k in range(9):
        expected, found = [list(ask(f(*given), given[:3])) for f in (function, compiled) for given in [both_of(k, n or k + 1)]]
        assert [x is None for x in expected] == [x is None for x in found]
        kinds.add(tuple(x is None for x in expected))
        for x, y in zip(expected, found, strict=True):
            if x is not None:
                np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=1e-9, atol=1e-12)
    assert compiled.stats.compiled_calls and not compiled.reasons, compiled.explain()
    assert len(kinds) > 1 or n or ask not in (by_the_other, not_entered)


# -- where the recording stops
def stops_on_a_rare_path(w: Any, n: int) -> Any:
    h = w * 1.0
    for i in range(n):
        if i == 5:
            BOX.append(len(BOX))
        h = h * w if h.sum() > 3 else h + w * w
    return h


def takes_a_gradient_of_the_steps_before(w: Any, n: int) -> Any:
    h = w * 1.0
    for i in range(n):
        h = h * w if h.sum() > 3 else h + w * w
        if i == 3:
            h = h - T.autograd.grad(h.sum(), w, retain_graph=True)[0]
    return h


def two_of_one(w: Any, n: int) -> Any:
    h = g = w * 1.0
    for i in range(n):
        h = h * w if h.sum() > 3 else h + w * w
        if i % 3 == 2:
            g = h
    return h * g


def coupled(w: Any, n: int) -> Any:  # eager mode has a gradient of the first result by the second one
    h, v = w * 1.0, w * 0.5
    for _ in range(n):
        v = v * 0.75
        h = h + v if h.sum() > 1 else h * 2
    return h.sum(), T.autograd.grad(h.sum(), v, retain_graph=True, allow_unused=True)[0]


def in_a_loop_at_times(w: Any, n: int) -> Any:  # what enters the inner loop requires grad from the second step on
    h = T.ones(3, dtype=T.float64) * 5
    for _ in range(n):
        while h.sum() > 4:
            h = h * 0.5
        h = h + w
    return h


def writes_to_its_state(w: Any, n: int) -> Any:
    h = w * 1.0
    for _ in range(n):
        h[0] = 1.0
        h = h * 0.5 if h.sum() > 3 else h + w * w
    return h


@pytest.mark.parametrize(
    "function",
    [stops_on_a_rare_path, takes_a_gradient_of_the_steps_before, two_of_one, coupled, in_a_loop_at_times, writes_to_its_state],
    ids=lambda f: f.__name__,
)
def test_where_a_recording_stops_gradients_go_through_the_steps_before(function: Any, capsys: Any) -> None:
    compiled = outlined(function)
    for k in range(5):
        assert_same(
            outcome(function, (weight(k, 3), 8), k), outcome(compiled, (weight(k, 3), 8), k), exact=function is not coupled
        )
    assert compiled.reasons


def made_of_each_other(x: Any, v: Any, w: Any, n: int) -> Any:
    x, v = x * 1.0, v * 1.0
    for i in range(n):
        if i == n - 1:
            BOX.append(len(BOX))
            x = x * 0.5
        else:
            v = v * 0.75 + w
            x = x + v if x.sum() > 1 else x * 2
    return x, v


@pytest.mark.parametrize("ask", [by_the_other, by_both, hooks], ids=lambda f: f.__name__)
def test_where_a_recording_stops_results_may_be_made_of_each_other(ask: Any, capsys: Any) -> None:
    compiled = outlined(made_of_each_other)
    for k in range(4):
        expected, found = [list(ask(f(*given), given[:3])) for f in (made_of_each_other, compiled) for given in [both_of(k)]]
        assert [x is None for x in expected] == [x is None for x in found]
        for x, y in zip(expected, found, strict=True):
            if x is not None:
                np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=1e-9, atol=1e-12)
    assert compiled.reasons


def draws_before_it_stops(h: Any, w: Any, n: int) -> Any:  # the first step that draws writes to what it has saved
    for i in range(n):
        if i < 4:
            h = h * w if h.sum() > 3 else h + w
        else:
            y = (h + T.rand(()).double()) * w.detach()
            h = y * w
            y.mul_(0.5)
    return h.detach(), T.autograd.grad((w * w).sum(), w)[0]


def test_a_recording_may_stop_at_the_first_step_that_draws() -> None:
    compiled = outlined(draws_before_it_stops)
    for k in range(4):
        given = normal(k, 3), weight(k, 3), 6
        assert_same(outcome(draws_before_it_stops, given, k), outcome(compiled, given, k), exact=False)
    assert compiled.reasons


def reads_a_gradient_that_there_is_not(w: Any, n: int) -> Any:
    h = w * 1.0
    for _ in range(n):
        h = h * w if h.sum() > 3 else h + w * w
        assert h.grad is None
    return h


@pytest.mark.filterwarnings("always")
def test_steps_after_the_recording_has_stopped_warn_at_their_lines() -> None:
    places = []
    for function in (reads_a_gradient_that_there_is_not, outlined(reads_a_gradient_that_there_is_not)):
        with pytest.warns(UserWarning, match="no leaf") as seen:
            function(weight(0, 3), 5)
        places.append([(x.filename, x.lineno) for x in seen])
    assert len(places[0]) == 5 and places[0] == places[1]


def after_the_loop(w: Any, n: int) -> Any:
    h = w * 1.0
    for _ in range(n):
        h = h * w if h.sum() > 3 else h + w * w
    h.register_hook(lambda g: g * 2)
    BOX.append(len(BOX))
    return h


BOX: list[int] = []


def test_what_stops_a_recording_after_the_loop_leaves_its_tape() -> None:
    compiled = outlined(after_the_loop)
    for k in range(4):
        assert_same(outcome(after_the_loop, (weight(k, 3), 8), k), outcome(compiled, (weight(k, 3), 8), k), exact=True)


def writes_to_two_variables(a: Any, w: Any, n: int) -> Any:
    h = v = a
    for _ in range(n):
        v *= 0.5
        h = h * w if h.sum() > 1 else h + w * h
    return h


def reads_items(xs: Any, w: Any, n: int) -> Any:
    h = w * 1.0
    for x in xs:
        h = h * w * x if h.sum() > 1 else h + w * x
        BOX.append(len(BOX))
    xs[0].mul_(0.5)
    return h


def begins_with_a_view(a: Any, w: Any, n: int) -> Any:
    h = a[:]
    for _ in range(n):
        h = h * w if h.sum() > 1 else h + w * h
        BOX.append(len(BOX))
    a.mul_(0.5)
    return h


@pytest.mark.parametrize("function", [writes_to_two_variables, reads_items, begins_with_a_view], ids=lambda f: f.__name__)
def test_where_a_recording_stops_what_a_step_has_saved_must_not_change(function: Any, capsys: Any) -> None:
    compiled = outlined(function)
    for k in range(4):
        for f in (function, compiled):
            a = [normal(k + j, 3) for j in range(5)] if function is reads_items else normal(k, 3)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                f(a, weight(k, 3), 5).sum().backward()
    assert compiled.reasons


# -- gradients of gradients
def second_order(w: Any, n: int) -> Any:
    h = w * 1.0
    for _ in range(n):
        h = h * w if h.sum() > 3 else h + w * w
    (first,) = T.autograd.grad(h.sum(), w, create_graph=True)
    (second,) = T.autograd.grad((first * first).sum(), w)
    return first.detach(), second


def test_gradients_of_gradients_go_through_the_same_steps() -> None:
    compiled = outlined(second_order)
    for k in range(6):
        assert_same(outcome(second_order, (weight(k, 3), 6), k), outcome(compiled, (weight(k, 3), 6), k), exact=False)
    assert compiled.stats.compiled_calls >= 3, compiled.explain()


def test_gradients_of_gradients_outside_of_the_call_go_through_the_same_steps() -> None:
    compiled = outlined(scaled)

    def derivatives(function: Any, k: int) -> list[Any]:
        h, w = normal(k, 3), weight(k, 3)
        (first,) = T.autograd.grad((function(h, w, 9) ** 2).sum(), w, create_graph=True)
        return [first, *T.autograd.grad((first * first).sum(), w)]

    for k in range(5):
        for x, y in zip(derivatives(scaled, k), derivatives(compiled, k), strict=True):
            np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=1e-9)
    assert compiled.stats.compiled_calls >= 3, compiled.explain()


# -- gradients of gradients to results: what an operation has saved is the result itself, or is made of it
def saves_its_result(w: Any, n: int) -> Any:
    h = w * 1.0
    for _ in range(n):
        h = (h * w).tanh() if h.sum() > 2 else (h + w).sin()
    return (h,)


def saves_what_it_makes_of_another(w: Any, n: int) -> Any:
    v, x = w * 1.0, w * 0.5
    for _ in range(n):
        v = (v * w).tanh() if v.sum() > 1 else v
        x = (x + v * v).tanh()
    return v, x


def saves_items(w: Any, n: int) -> Any:
    h, items = w * 1.0, []
    for _ in range(n):
        h = (h * w).tanh() if h.sum() > 2 else (h + w).sin()
        items.append(h)
    return T.stack(items), h


def second_to_results(results: Any, first: Any, w: Any) -> Any:
    return T.autograd.grad((first * first).sum(), [w, *results])


def second_by_hooks(results: Any, first: Any, w: Any) -> Any:
    seen: list[Any] = []
    for x in results:
        x.register_hook(lambda g: seen.append(g.detach() * 1) or g * 2)
    (first * first).sum().backward()
    return [*seen, w.grad]


@pytest.mark.parametrize("ask", [second_to_results, second_by_hooks], ids=lambda f: f.__name__)
@pytest.mark.parametrize("is_inside", [False, True], ids=["outside", "first_inside"])
@pytest.mark.parametrize("function", [saves_its_result, saves_what_it_makes_of_another, saves_items], ids=lambda f: f.__name__)
def test_gradients_of_gradients_reach_results_by_what_steps_have_saved(function: Any, is_inside: bool, ask: Any) -> None:
    def first(results: Any, w: Any) -> Any:
        return T.autograd.grad(sum((x * x).sum() for x in results), w, create_graph=True)[0]

    def with_gradient(w: Any, n: int) -> Any:
        results = function(w, n)
        return results, first(results, w)

    compiled = outlined(with_gradient, function) if is_inside else outlined(function)
    for k in range(6):
        found = []
        for f in (function, compiled):
            w = weight(k, 3)
            results, slope = f(w, 6) if f is compiled and is_inside else (f(w, 6), None)
            found.append([x.detach().numpy() for x in ask(results, first(results, w) if slope is None else slope, w)])
        for x, y in zip(*found, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)
    assert compiled.stats.compiled_calls >= 3 and not compiled.reasons, compiled.explain()


# -- leaves that steps are given
def descent_in_place(x: Any, w: Any, n: int) -> Any:
    w = w.detach().requires_grad_()
    for _ in range(n):
        loss = ((x * w).sum() - 1) ** 2
        loss.backward()
        with T.no_grad():
            w -= 0.05 * w.grad
            w.grad.zero_()
        if loss < 0.3:
            break
    return w.detach(), w.grad, w.is_leaf


def descent_that_asks(x: Any, w: Any, n: int) -> Any:
    w, missing = w.detach().requires_grad_(), 0
    for _ in range(n):
        loss = ((x * w).sum() - 1) ** 2
        loss.backward()
        with T.no_grad():
            if w.grad is None or not w.is_leaf or w.grad_fn is not None:
                missing += 1
            else:
                w -= 0.05 * w.grad
                w.grad = None
        if loss < 0.3:
            break
    return w.detach(), missing


def descent_with_new_leaves(x: Any, w: Any, n: int) -> Any:
    w = w.detach().requires_grad_()
    for _ in range(n):
        loss = ((x * w).sum() - 1) ** 2
        loss.backward()
        w = (w - 0.05 * w.grad.sign()).detach().requires_grad_()
        if loss < 0.3:
            break
    return w.detach(), w.grad


def descent_of_an_argument(x: Any, w: Any, n: int) -> Any:
    def step(w: Any) -> Any:
        loss = ((x * w).sum() - 1) ** 2
        loss.backward()
        return loss

    while n:
        loss = step(w)
        with T.no_grad():
            w -= 0.05 * w.grad
        w.grad = None if n % 2 else w.grad
        n = 0 if loss < 0.3 else n - 1
    return w.detach(), w.grad


def twice_in_a_step(x: Any, w: Any, n: int) -> Any:
    v = w
    for _ in range(n):
        ((x * w).sum() - 1).square().backward()
        (w * w).sum().backward()
        seen = w.grad * 1
        if seen.sum() > 0.5:
            w = w.detach().requires_grad_()
    return seen, w.detach(), v.grad, w is v


@pytest.mark.parametrize(
    "function",
    [descent_in_place, descent_that_asks, descent_with_new_leaves, descent_of_an_argument, twice_in_a_step],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("is_outlined", [True, False])
def test_a_leaf_that_a_step_is_given_gets_its_gradients(function: Any, is_outlined: bool) -> None:
    compiled = outlined(function) if is_outlined else T.compile(function, wait=True)
    for k in range(12):
        expected, found = [(f(normal(k, 3), weight(k, 3), 9), ()) for f in (function, compiled)]
        assert_same(expected, found, exact=False)
