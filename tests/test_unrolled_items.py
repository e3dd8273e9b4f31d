"""Lists of tensors that require grad, filled by one loop and read by another: whoever gets an item gets what its step has made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracejit as tj
from tracejit.core.tree import flatten
from tracejit.tensor import Tensor

W, U = (tj.tensor(np.random.default_rng(k).normal(0, 0.6, (2, 4)), requires_grad=True) for k in range(2))
LENGTHS = (30, 21, 44, 18, 0, 1, 2, 37)


def cell(h: Any, x: Any) -> Any:
    """Operations whose results have the same bits however they are computed."""
    y = h * W + x * U
    return y / (1 + y.abs())


def zeros() -> Any:
    return tj.zeros(2, 4, dtype=tj.float64)


def outcome(called: Callable[..., Any], length: int) -> list[Any]:
    """All that there is to know of results, and of gradients of them; or the error."""
    xs = tj.tensor(np.random.default_rng(length).normal(0, 1, (length, 2, 4)), requires_grad=True)
    W.grad = U.grad = None

    def seen(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        return x.shape, x.dtype, x.requires_grad, x.is_leaf, x.stride(), x.detach().numpy().tobytes()

    try:
        results = flatten(called(xs))[0]
        found = list(map(seen, results))
        of = [x for x in results if isinstance(x, Tensor) and x.requires_grad]
        if of:
            slopes = tj.autograd.grad([x.sum() for x in of], [xs, W, U], allow_unused=True)
            found += list(map(seen, slopes))
        return [*found, seen(W.grad), seen(U.grad)]
    except RuntimeError as error:
        return [str(error)]


def agree(function: Callable[..., Any], lengths: tuple[int, ...] = LENGTHS, **options: Any) -> Any:
    compiled = tj.compile(function, **options)
    for length in (*lengths, *lengths[::-1]):
        assert outcome(compiled, length) == outcome(function, length)
    return compiled


# -- second loops, in which nobody gets an item of the piece


def carried_items(xs: Any) -> Any:
    h, k, hs = zeros(), zeros(), []
    for x in xs:
        h = cell(h, x)
        hs.append(h)
    for each in hs:
        k = cell(k, each)
    return k


def collected_items(xs: Any) -> Any:
    h, loss, hs = zeros(), zeros(), []
    for t in range(xs.shape[0]):
        h = cell(h, xs[t])
        hs.append(h * 2)
    for t in range(xs.shape[0]):
        loss = loss + (hs[t] - xs[t]) * hs[t]
    return loss, h


def items_with_no_gradient_but_that_of_the_next_step(xs: Any) -> Any:
    """Where a rectifier is off, gradients are negative zeros: nothing may be added to these."""
    h, loss, hs = zeros(), zeros(), []
    for x in xs:
        h = (cell(h, x) - 0.1).relu()
        hs.append(h)
    for each in hs:
        loss = loss - (each - 0.2).relu()
    return loss


def neighbours(xs: Any) -> Any:
    h, loss, hs = zeros(), zeros(), []
    for x in xs:
        h = cell(h, x)
        hs.append(h)
    for t in range(2, len(hs)):
        loss = loss + (hs[t] - hs[t - 1] * hs[t - 2]).abs()
    return loss, tj.stack(hs) if hs else loss


def neighbours_side_by_side(xs: Any) -> Any:
    h, loss, hs = zeros(), zeros(), []
    for x in xs:
        h = cell(h, x)
        hs.append(h)
    for a, b in zip(hs[:-1], hs[1:], strict=True):  # noqa: RUF007
        loss = loss + a * b
    return loss, tj.stack(hs) if hs else loss


def several_layers(xs: Any) -> Any:
    ys = [cell(x, x) for x in xs]
    zs = [cell(y, y * 0.5) for y in ys]
    total, most = zeros(), zeros()
    for z in zs:
        total = total + z
    for z in zs:
        most = tj.maximum(most, z)
    return total, most


def decided_in_each_step(xs: Any) -> Any:
    """A divisor is compared with 0."""
    h, k, hs = zeros(), zeros(), []
    for t, x in enumerate(xs):
        h = cell(h, x * (1.0 / (t + 1)) + t % 3)
        hs.append(h)
    for each in hs:
        k = cell(k, each)
    return k


def turned_around(xs: Any) -> Any:
    h, k, hs = zeros(), zeros(), []
    for x in xs:
        h = cell(h, x)
        hs.append(h * x)
    hs.reverse()
    for t in range(len(hs)):
        k = k + hs[t] * xs[t]
    return k


def from_the_end(xs: Any) -> Any:
    h, k, hs = zeros(), zeros(), []
    for x in xs:
        h = cell(h, x)
        hs.append(h)
    for each in reversed(hs):
        k = cell(k, each)
    return k


def gradients_inside(xs: Any) -> Any:
    loss = collected_items(xs)[0]
    if xs.shape[0]:
        loss.sum().backward()
    return loss.detach()


SECOND_LOOPS = (
    carried_items, collected_items, items_with_no_gradient_but_that_of_the_next_step, neighbours, neighbours_side_by_side, several_layers,
    decided_in_each_step, turned_around, from_the_end, gradients_inside,
)  # fmt: skip


@pytest.mark.parametrize("function", SECOND_LOOPS)
def test_second_loops_over_items_that_require_grad_are_of_any_length(function: Callable[..., Any]) -> None:
    compiled = agree(function)
    assert not compiled.reasons
    few = sum(length < 12 for length in LENGTHS)
    assert compiled.stats.traces <= 3 + few
    before = compiled.stats.traces
    for length in (25, 40):
        assert outcome(compiled, length) == outcome(function, length)
    assert compiled.stats.traces == before


# -- where somebody gets one


def gradients_of_items(xs: Any) -> Any:
    h, loss, hs = zeros(), zeros(), []
    for x in xs:
        h = cell(h, x)
        hs.append(h)
    for each in hs:
        loss = loss + each * each
    slopes = []
    for each in hs:
        slopes.append(tj.autograd.grad(loss.sum(), each, retain_graph=True)[0])
    return slopes, loss


def an_item_in_the_middle(xs: Any) -> Any:
    h, k, hs = zeros(), zeros(), []
    for x in xs:
        h = cell(h, x)
        hs.append(h)
    for each in hs:
        k = cell(k, each)
    if not hs:
        return k
    item = hs[xs.shape[0] // 2]
    return k, item, tj.autograd.grad(k.sum(), item, retain_graph=True)[0]


def every_second_item(xs: Any) -> Any:
    h, total, hs = zeros(), zeros(), []
    for x in xs:
        h = cell(h, x)
        hs.append(h)
    for t in range(0, len(hs), 2):
        total = total + hs[t].relu()
    return total


def every_third_item_of_decided_steps(xs: Any) -> Any:
    h, total, hs = zeros(), zeros(), []
    for t, x in enumerate(xs):
        h = cell(h, x * (1.0 / (t + 1)))
        hs.append(h)
    for t in range(0, len(hs), 3):
        total = total + hs[t].relu()
    return total


def less_than_all_items(xs: Any) -> Any:
    h, total, hs = zeros(), zeros(), []
    for x in xs:
        h = cell(h, x)
        hs.append(h)
    for each, x in zip(hs, xs[3:], strict=False):
        total = total + each * x
    return total


def both_ways_at_once(xs: Any) -> Any:
    h, total, hs = zeros(), zeros(), []
    for x in xs:
        h = cell(h, x)
        hs.append(h)
    for each, other in zip(hs, hs[::-1], strict=True):
        total = total + each * other
    return total


def items_changed_in_place(xs: Any) -> Any:
    h, k, hs = zeros(), zeros(), []
    for x in xs:
        h = cell(h, x)
        hs.append(h * 2 + 1)
    for t in range(len(hs)):
        if t % 2:
            hs[t].mul_(0.5)
        k = cell(k, hs[t])
    return k


def items_changed_that_are_saved(xs: Any) -> Any:
    h, k, hs = zeros(), zeros(), []
    for x in xs:
        h = cell(h, x)
        hs.append(h)
    for t in range(len(hs)):
        if t % 2:
            hs[t].mul_(0.5)
        k = cell(k, hs[t])
    return tj.autograd.grad(k.sum(), [W, U]) if hs else k


def retained(xs: Any) -> Any:
    h, loss, hs = zeros(), zeros(), []
    for x in xs:
        h = cell(h, x)
        hs.append(h)
    for each in hs:
        loss = loss + each
    for each in hs:
        each.retain_grad()
    if hs:
        loss.sum().backward(retain_graph=True)
    slopes = []
    for each in hs:
        slopes.append(each.grad)
    return slopes, loss


def after_a_backward_pass(xs: Any) -> Any:
    h, loss, total, hs = zeros(), zeros(), zeros(), []
    for x in xs:
        h = cell(h, x)
        hs.append(h)
    for each in hs:
        loss = loss + each
    if hs:
        loss.sum().backward()
        with tj.no_grad():
            W.add_(0.0)
    for t, each in enumerate(hs):
        if t % 3 == 0:
            total = total * 0.5 + each.detach()
    return total, loss.detach()


def first_changes_what_steps_have_read(xs: Any) -> Any:
    data, h, k, hs = xs * 1, zeros(), zeros(), []
    for x in data.detach():
        h = cell(h, x)
        hs.append(h)
    data.detach().add_(1)
    for each in hs:
        print(end="")
        k = k + each
    return k


ONE_BY_ONE = (
    gradients_of_items, an_item_in_the_middle, every_second_item, every_third_item_of_decided_steps, less_than_all_items,
    both_ways_at_once, items_changed_in_place,
    items_changed_that_are_saved, retained, after_a_backward_pass, first_changes_what_steps_have_read,
)  # fmt: skip


@pytest.mark.parametrize("function", ONE_BY_ONE)
def test_whoever_gets_an_item_gets_what_its_step_has_made(function: Callable[..., Any]) -> None:
    agree(function)


def test_recordings_that_follow_keep_items_one_by_one() -> None:
    compiled = agree(every_second_item, (30, 21, 44, 18))
    assert [reason.code for reason in compiled.reasons] == ["items_used"]
    assert sum(compiled.reasons.values()) == 1
    assert compiled.stats.traces == 5  # the second one has found that out
    before = compiled.stats.compiled_calls
    assert outcome(compiled, 44) == outcome(every_second_item, 44)
    assert compiled.stats.compiled_calls == before + 1


def test_that_is_no_error_where_a_function_has_to_be_one_graph() -> None:
    agree(every_second_item, (30, 21, 44, 18), fullgraph=True)


def test_items_of_a_recorded_call_have_their_places_on_the_tape_after_it() -> None:
    """What the recorded call returns leads to the steps themselves, hooks and all."""
    seen: list[Any] = []

    def function(xs: Any, hook: Any) -> Any:
        h, k, hs = zeros(), zeros(), []
        for x in xs:
            h = cell(h, x)
            hs.append(h)
        for t in range(len(hs)):
            if t % 5 == 2:
                hs[t].register_hook(hook)
            k = cell(k, hs[t])
        return k

    compiled = tj.compile(function)
    for length in (30, 21, 44):
        for called in (compiled, function):
            xs = tj.tensor(np.random.default_rng(length).normal(0, 1, (length, 2, 4)))
            seen.append([])
            tj.autograd.grad(called(xs, lambda g: seen[-1].append(g.numpy().tobytes())).sum(), [W, U])
        assert seen[-1] == seen[-2]
        assert len(seen[-1]) == len(range(2, length, 5))
