"""Python's own loops whose length may be another one in each call: what they go through, what counts their steps, and lists that they fill
and read."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracejit as tj
from tests.loop_programs import LENGTHS, WIDTH, U, W, agree, cell, of_any_length, parameter, zeros
from tracejit import nn

# -- what a loop goes through


def every_second(xs: Any) -> Any:
    h = zeros()
    for t in range(0, xs.shape[0], 2):
        h = cell(h, xs[t])
    return h


def every_second_down(xs: Any) -> Any:
    h, found = zeros(), []
    for t in range(xs.shape[0] - 1, 0, -2):
        h = cell(h, xs[t] - xs[t - 1]) * (t * 0.1)
        found.append(h)
    return tj.stack(found), h


def unbound_backwards(xs: Any) -> Any:
    h = zeros()
    for x in reversed(xs.unbind(0)):
        h = cell(h, x)
    return h


def backwards_by_reversed(xs: Any) -> Any:
    h = zeros()
    for x in reversed(xs * 2):
        h = cell(h, x)
    return h


def numbered_backwards(xs: Any) -> Any:
    h = zeros()
    for t, x in enumerate(reversed(xs.unbind(0))):
        h = cell(h, x) * (1 / (t + 1))
    return h


def backwards_side_by_side(xs: Any) -> Any:
    h, found = zeros(), []
    for t, x in zip(reversed(range(xs.shape[0])), reversed(xs.unbind(0)), strict=True):
        h = cell(h, x) + xs[t]
        found.append(h)
    return tj.stack(found[::-1])


def numbered_pairs(xs: Any) -> Any:
    h = zeros()
    for t, (x, y) in enumerate(zip(xs, xs * 2, strict=True)):
        h = cell(h, x) * (1 / (t + 1)) + y
    return h


def rows_of_several_lengths(xs: Any) -> Any:
    h = zeros()
    for x, after, rate in zip(xs, xs[1:], RATES):  # noqa: B905
        h = cell(h, after - x) * rate
    return h


def numbers_beside_rows(xs: Any) -> Any:
    h = zeros()
    for t, x in zip(range(1, xs.shape[0]), xs):  # noqa: B905
        h = cell(h, xs[t] - x)
    return h


RATES = tj.tensor(np.linspace(0.5, 1, 100))

HEADERS = (
    every_second, every_second_down, unbound_backwards, backwards_by_reversed, numbered_backwards, backwards_side_by_side, numbered_pairs,
    rows_of_several_lengths, numbers_beside_rows,
)  # fmt: skip

# -- what counts steps


def counted_by_hand(xs: Any) -> Any:
    h, i = zeros(), 0
    for x in xs:
        h = cell(h, x) + xs[i]
        i += 1
    return h, i


def counted_before(xs: Any) -> Any:
    h, t = zeros(), 0
    for x in xs:
        t = t + 1
        h = cell(h, x) * (1 / t)
    return h, h * t


def counted_down_by_two(xs: Any) -> Any:
    h, i, j = zeros(), 2 * xs.shape[0] - 1, -1
    for x in xs:
        if i > 1:
            h = cell(h, x) * (i * 0.01 - j * 0.005)
        i -= 2
        j = j + 1
    return h, i, j


def while_less(xs: Any) -> Any:
    h, i = zeros(), 0
    while i < xs.shape[0]:
        h = cell(h, xs[i])
        i += 1
    return h, i


def while_not_at_the_end(xs: Any) -> Any:
    h, t, n, found = zeros(), 0, len(xs), []
    while t != n and h.sum() < 1e6:
        h = cell(h, xs[t]) * (t * 0.1)
        found.append(h)
        t += 1
    return tj.stack(found), t


def while_not_below(xs: Any) -> Any:
    h, t = zeros(), len(xs) - 1
    while t >= 0:
        h = cell(h, xs[t])
        t -= 1
    return h, t


def while_in_twos(xs: Any) -> Any:
    h, t, n = zeros(), 1, xs.size(0)
    while n > t:
        h = cell(h, xs[t] - xs[t - 1])
        t += 2
    return h, t


def by_turns(xs: Any) -> Any:
    h, n = zeros(), xs.shape[0]
    for t in range(n):
        h = cell(h, xs[t] * (t % 2)) + (t // 2) * 0.01 - ((n - 1 - t) % 3) * 0.1
    return h


def counted_by_hand_in_turns(xs: Any) -> Any:
    h, i = zeros(), 3
    for x in xs:
        h = cell(h, x) * (i % 4 - 1)
        i += 2
    return h, i % 5


def one_of_several_tensors(xs: Any) -> Any:
    h, phases = zeros(), W[:3] @ U
    for t, x in enumerate(xs):
        h = cell(h, x) + phases[t % 3] * phases[:, (t + 1) % 4].sum()
    return h


def around_the_end(xs: Any) -> Any:
    h, n, data = zeros(), xs.shape[0], xs.detach()
    for t in range(n):
        h = cell(h, data[(t + 1) % n]) - data[t // 2]
    return h


COUNTERS = (
    by_turns,
    counted_by_hand_in_turns,
    one_of_several_tensors,
    around_the_end,
    counted_by_hand,
    counted_before,
    counted_down_by_two,
    while_less,
    while_not_at_the_end,
    while_not_below,
    while_in_twos,
)


def masked_by_lengths(xs: Any) -> Any:
    h, lengths = zeros(), tj.tensor([14, 28])
    for t in range(xs.shape[0]):
        h = tj.where((lengths > t).unsqueeze(1), cell(h, xs[t]), h)
    return h


def masked_from_the_other_side(xs: Any) -> Any:
    h, total, lengths = zeros(), 0.0, tj.tensor([30.0, 11.0])
    for t, x in enumerate(xs):
        mask = (t + 1 <= lengths).to(tj.float64).unsqueeze(-1)
        h = mask * cell(h, x) + (1 - mask) * h
        total = total + (h * mask).sum()
    return h, total


MASKED = (masked_by_lengths, masked_from_the_other_side)

# -- lists that are filled, and read by another loop


def added_to_a_list(xs: Any) -> Any:
    h, found, others = zeros(), [], []
    for x in xs:
        h = cell(h, x)
        found = found + [h]
        others += [h * 2]
    return tj.stack(found), tj.cat(others)


def in_front(xs: Any) -> Any:
    total, found = tj.zeros(2, dtype=tj.float64), []
    data = xs.detach()
    for t in reversed(range(xs.shape[0])):
        total = data[t, :, 0] + 0.9 * total
        found.insert(0, total)
    return tj.stack(found), total


def joined_inside(xs: Any) -> Any:
    found = []
    with tj.no_grad():
        h = zeros()
        for x in xs:
            h = cell(h, x)
            found.append(h)
        found = tj.stack(found)
    return found


def read_by_position(xs: Any) -> Any:
    h, k, hs = zeros(), zeros(), []
    for x in xs:
        h = cell(h, x)
        hs.append(h.detach())
    for t in range(1, xs.shape[0]):
        k = cell(k, hs[t] - hs[t - 1]) + hs[xs.shape[0] - 1 - t]
    return k


def read_in_order(xs: Any) -> Any:
    h, k, hs = zeros(), zeros(), []
    for x in xs:
        h = cell(h, x)
        hs.append(h.detach())
    for each in hs:
        k = cell(k, each)
    return k, tj.stack(hs), hs[-2]


def read_backwards(xs: Any) -> Any:
    k, hs, ks = zeros(), [], []
    with tj.no_grad():
        h = zeros()
        for x in xs:
            h = cell(h, x)
            hs.append(h @ W)
    for each in reversed(hs):
        k = cell(k, each)
        ks.append(k)
    return tj.stack(ks[::-1])


def compared_with_targets(xs: Any) -> Any:
    h, loss, hs = zeros(), 0.0, []
    for x in xs:
        h = cell(h, x)
        hs.append(h.detach())
    for t, (each, y) in enumerate(zip(hs[:-1], xs[1:], strict=True)):
        loss = loss + (each - y).square().mean() * (0.9**t)
    return loss


def both_directions(xs: Any) -> Any:
    forward, backward = [], []
    with tj.no_grad():
        h = zeros()
        for t in range(xs.shape[0]):
            h = cell(h, xs[t])
            forward.append(h)
        h = zeros()
        for t in reversed(range(xs.shape[0])):
            h = cell(h, xs[t])
            backward.append(h)
        backward.reverse()
        return tj.stack([tj.cat([a, b], -1) for a, b in zip(forward, backward, strict=True)])


def returns(xs: Any) -> Any:
    h, rewards, found, total = zeros(), [], [], tj.zeros((), dtype=tj.float64)
    for x in xs:
        h = cell(h, x)
        rewards.append(h.sum().detach())
    for reward in rewards[::-1]:
        total = reward + 0.9 * total
        found.insert(0, total)
    return tj.stack(found), h


def asked_for_items(xs: Any) -> Any:
    h, outs = zeros(), []
    for x in xs:
        h = cell(h, x)
        outs.append(h)
    if not outs:
        return h
    return tj.stack(outs) if outs else xs


def sum_of_losses(xs: Any) -> Any:
    h, hs = zeros(), []
    for x in xs:
        h = cell(h, x)
        hs.append(h)
    return sum((h - x).square().mean() for h, x in zip(hs, xs, strict=True)) / max(len(hs), 1)


def sums_of_rows(xs: Any) -> Any:
    total = sum((cell(xs[t], xs[t - 1]) * (t * 0.1) for t in range(1, xs.shape[0])), start=0.5)
    for _ in range(2):
        total += sum(cell(x, x) for x in xs)
    return total


def sum_of_noise(xs: Any) -> Any:
    return sum(x * tj.randn(2, WIDTH, dtype=tj.float64) for x in xs)


LISTS = (
    added_to_a_list, in_front, joined_inside, asked_for_items, sums_of_rows, sum_of_noise,
)  # fmt: skip


# -- tensors whose rows are written, with a backward pass inside


def trained(result: Any, *more: Any) -> Any:
    """Gradients that the call itself takes."""
    of = [x for x in (W, U, *more) if x.requires_grad]
    return tj.autograd.grad(result.square().sum(), of, allow_unused=True) if result.requires_grad else result


def rows_written(xs: Any) -> Any:
    h, out = zeros(), tj.zeros(xs.shape[0], 2, WIDTH, dtype=tj.float64)
    for t in range(xs.shape[0]):
        h = cell(h, xs[t])
        out[t] = h
    return trained(out, xs), out.detach()


def columns_written(xs: Any) -> Any:
    h, out = zeros(), tj.zeros(2, xs.shape[0], WIDTH, dtype=tj.float64)
    for t in range(xs.shape[0]):
        h = cell(h, xs[t])
        out[:, t] = h * 2
    return trained(out)


def rows_written_from_the_end(xs: Any) -> Any:
    h, out = zeros(), tj.zeros(xs.shape[0] + 1, 2, WIDTH, dtype=tj.float64)
    for t in range(xs.shape[0] - 1, -1, -1):
        h = cell(h, xs[t])
        out[t] = h
    return trained(out[1:] - out[:-1])


def rows_written_over_others(xs: Any) -> Any:
    h, out = zeros(), xs * 1
    for t in range(xs.shape[0]):
        h = cell(h, xs[t])
        out[t] = h
    with tj.no_grad():
        before = out.clone()
        out[-1:].mul_(0)
    return trained(out + before, xs)


def fixed_rows_written(xs: Any) -> Any:
    h, n = zeros(), xs.shape[0]
    out = tj.zeros(n, 2, WIDTH, dtype=tj.float64)
    for x in xs:
        h = cell(h, x)
    if n > 3:
        out[n - 1] = h
        out[1:3] = h * h
        out[n - 2 :, 0] = h[0]
    return trained(out)


WRITTEN = (rows_written, columns_written, rows_written_from_the_end, rows_written_over_others, fixed_rows_written)


# -- views of slices that are carried on, and variables without a value


def taught(xs: Any) -> Any:
    """What a decoder is given next is what it should have given."""
    ys = xs.detach().transpose(0, 1)
    h, given = zeros(), tj.zeros(2, 1, WIDTH, dtype=tj.float64)
    for t in range(ys.shape[1]):
        h = cell(h, given[:, 0])
        given = ys[:, t].unsqueeze(1)
    return h, given.sum()


def taught_with_gradients_inside(xs: Any) -> Any:
    h, given = taught(xs)
    return trained(h + given) if xs.shape[0] else h


def looked_up_next(xs: Any) -> Any:
    """Positions in a table, as a column, of one step and the one before that."""
    ys = (xs.detach()[:, :, 0] * 4).long() % WIDTH
    h, given, before = zeros(), tj.zeros(2, 1, dtype=tj.long), tj.zeros(2, 1, dtype=tj.long)
    for y in ys:
        h = cell(h, nn.functional.embedding(given, W)[:, 0]) + U[before.squeeze(1)]
        given, before = y.unsqueeze(1), given
    return h


def views_of_several_kinds(xs: Any) -> Any:
    xs, n = xs.detach(), xs.shape[0]
    h, a, b, c, d = zeros(), zeros(), zeros(), zeros()[0], zeros()[:, :1]
    for t in range(n):
        h = cell(h, a * b + c) + d
        a, b, c, d = xs[t].view(WIDTH, 2).t(), xs[n - 1 - t].flip(0), xs[t][1], xs[t, :, 2:3].expand(2, WIDTH)
    return h, a, b + c, d.clone()


@tj.no_grad()
def memory_after_the_loop(xs: Any) -> Any:
    xs, h, before = xs.detach() * 2, zeros(), zeros()[None]
    for t in range(xs.shape[0]):
        h = cell(h, before[0])
        before = xs[t].unsqueeze(0)
    before.add_(1)
    return h, xs


@tj.no_grad()
def memory_in_the_loop(xs: Any) -> Any:
    """Each step writes the row that a view from the step before looks at."""
    out, h = xs.detach() * 2, zeros()
    after = out[:1] * 1
    for t in range(xs.shape[0] - 1):
        out[t] = h
        h = cell(h, after[0])
        after = out[t + 1].unsqueeze(0)
    return h, out


@tj.no_grad()
def written_in_the_loop(xs: Any) -> Any:
    data, h = xs.detach() * 2, zeros()
    before = data[:1] * 1
    for t in range(xs.shape[0]):
        h = cell(h, before[0])
        before *= 2
        before = data[t].unsqueeze(0)
    return h, data


def looked_at_without_gradients(xs: Any) -> Any:
    """Slices of what requires grad that require none, of the step before and the one before that, and in a list."""
    h, before, last, kept = zeros(), zeros()[None], zeros(), []
    row = earlier = zeros()
    for t in range(xs.shape[0]):
        h = cell(h, before[0] + last) + row + xs[t]
        last = row
        with tj.no_grad():
            row, before = xs[t], xs[t].unsqueeze(0)
            kept.append(xs[t])
        earlier = last
    return h + earlier, tj.stack(kept) if kept else None, (row.requires_grad, last.requires_grad, before.requires_grad)


VIEWS = (taught, taught_with_gradients_inside)


def never_assigned(xs: Any) -> Any:
    h = zeros()
    for x in xs:
        if xs.shape[1] > 2:
            shift = x + 1
            x = x + shift
        h = cell(h, x)
    try:
        return h + shift
    except UnboundLocalError as error:
        return h, str(error)


def deleted_in_each_step(xs: Any) -> Any:
    h, part, count = zeros(), zeros(), 0
    i = 0
    while i < xs.shape[0]:
        part = cell(h, xs[i])
        h = part * 0.5
        del part
        for _ in range(0):
            count += 1
            last = count
        i += 1
    try:
        return h, part
    except UnboundLocalError as error:
        try:
            del last
        except UnboundLocalError as other:
            return h, str(error), str(other)


def assigned_in_the_last_step(xs: Any) -> Any:
    h, n, time = zeros(), xs.shape[0], 0.0
    for t, x in enumerate(xs):
        h, time = cell(h, x) * (1 + time), time + 0.01
        if t == n - 1:
            end = h * 2
    try:
        return h, end, time
    except UnboundLocalError as error:
        return h, str(error)


def assigned_in_the_first_step(xs: Any) -> Any:
    h = zeros()
    for t, x in enumerate(xs):
        if t == 0:
            first = x @ U
        h = cell(h, x) + first
    try:
        return h, first
    except UnboundLocalError as error:
        return h, str(error)


def used_without_a_value(xs: Any) -> Any:
    h = zeros()
    for t, x in enumerate(xs):
        if t > 30:
            h = h + shift  # noqa: F821
        h = cell(h, x)
        if xs.shape[1] > 2:
            shift = x  # noqa: F841
    return h


WITHOUT_VALUES = (never_assigned, deleted_in_each_step, assigned_in_the_last_step, assigned_in_the_first_step)


@pytest.mark.parametrize("function", [*HEADERS, *COUNTERS, *MASKED, *LISTS, *WRITTEN, *VIEWS, *WITHOUT_VALUES])
def test_another_length_is_another_recording_once_at_most(function: Callable[..., Any]) -> None:
    assert of_any_length(function).stats.traces <= 4 + sum(length < 13 for length in LENGTHS)


# -- numbers of steps that functions and tables are given


def scaled(h: Any, t: Any) -> Any:
    return h * (0.1 * t) if t > 0 else h + 1


def embedding(t: Any) -> Any:
    return tj.tensor([math.sin(t * 0.1), float(t)], dtype=tj.float64)


def given_to_functions(xs: Any) -> Any:
    h = zeros()
    for t in range(xs.shape[0]):
        h = scaled(cell(h, xs[t]), t) + embedding(t=t).sum() + tj.full((2, 1), t, dtype=tj.float64) * 0.01
    return h


def sampled_backwards(xs: Any) -> Any:
    h = zeros()
    with tj.no_grad():
        for t in reversed(range(xs.shape[0])):
            noise = tj.randn(2, WIDTH, dtype=tj.float64) if t > 0 else zeros()
            h = (cell(h, xs[t]) - FACTORS[t] * h) * RATES[t] + PAIRS[t] * noise
    return h


def looked_up(xs: Any) -> Any:
    h, i, factors = zeros(), 1, [0.5 + 0.001 * k for k in range(200)]
    for x in xs:
        h = cell(h, x) * factors[i] + factors[i - 1]
        i += 1
    return h


FACTORS = [0.01 * k for k in range(100)]
PAIRS = tuple(range(100))


@pytest.mark.parametrize("function", [given_to_functions, sampled_backwards, looked_up])
def test_numbers_of_steps_that_others_are_given_are_those_of_the_program(function: Callable[..., Any]) -> None:
    of_any_length(function)


def test_a_table_that_ends_before_the_loop_raises_there() -> None:
    def function(xs: Any) -> Any:
        h = zeros()
        for t in range(xs.shape[0]):
            h = cell(h, xs[t]) * FACTORS[t]
        return h

    agree(tj.compile(function), function, (40, 25, 60, 33, 120, 99, 101, 100, 80))


def test_a_function_called_sum_gets_a_generator() -> None:
    def first(elements: Any) -> Any:
        return next(iter(elements))

    scope = {"sum": first, "cell": cell, "zeros": zeros}
    exec("def function(xs):\n    return sum(cell(zeros(), x) for x in xs)", scope)
    function = scope["function"]
    agree(tj.compile(function), function, (40, 25, 33, 12))


# -- what else steps do


def changing_items(xs: Any) -> Any:
    data, hs, k = xs.detach(), [], zeros()
    for t in range(xs.shape[0]):
        hs.append(data[t] * 2)
    third = hs[-3] if len(hs) > 2 else zeros()
    for each in hs:
        third.add_(1)
        k = k + each
    for t in range(len(hs)):
        hs[t].mul_(0.5)
        k = k + hs[t]
    return k, tj.stack(hs) if hs else None, third


def keeping_the_item_before(xs: Any) -> Any:
    h, k, before, hs = zeros(), zeros(), zeros(), []
    for x in xs:
        h = cell(h, x)
        hs.append(h)
    for each in reversed(hs):
        k = k * 0.5 + before * each
        before = each
    return k, before


def items_in_another_list(xs: Any) -> Any:
    h, hs, others = zeros(), [], []
    for x in xs:
        h = cell(h, x)
        hs.append(h)
    for each in hs[1:]:
        others.append(each)
    return tj.stack(others), sum(others)


def stepping_out(xs: Any) -> Any:
    h, i, found = zeros(), 0, []
    for x in xs:
        i += 1
        if i == 20:
            break
        h = cell(h, x)
        found.append(h)
    else:
        h = h * 2
    return h, i, len(found), tj.stack(found)


def reading_too_far(xs: Any) -> Any:
    h, hs, k = zeros(), [], zeros()
    for x in xs:
        h = cell(h, x)
        hs.append(h)
    for t in range(xs.shape[0]):
        k = k + hs[t + 1 if t < 30 else t]
    i = 0
    while i < xs.shape[0]:
        k = k + xs[i + 1 if xs.shape[0] > 70 else i]
        i += 1
    return k


def in_turns(xs: Any) -> Any:
    h, k, weights = zeros(), zeros(), [W, U]
    for t in range(xs.shape[0]):
        if t % 2 == 0:
            h = cell(h, xs[t])
        else:
            h = h + xs[t]
        k = k @ weights[t % 2] + (h if (t + 1) % 3 else 0.5)
    return h, k


def tables_in_turns(xs: Any) -> Any:
    h, rates = zeros(), [0.5, 0.25, 2.0]
    for t, x in enumerate(xs):
        h = cell(h, x) * rates[t % 3]
    return h


def out_of_a_table(xs: Any) -> Any:
    h, rows = zeros(), xs[:10]
    for t, x in enumerate(xs.detach()):
        h = cell(h, x) + rows[t // 2]
    return h


def sums_of_numbers(xs: Any) -> Any:
    """Python's own sum rounds floats in its own way."""
    by_rows = (
        sum(x.sum().item() for x in xs),
        sum(0.1 for _ in xs),
        sum(x.shape[1] for x in xs),
        sum(t for t in range(xs.shape[0])),
    )
    mixed = sum((x if k % 4 == 1 else 0.1 * k) for k, x in enumerate(xs))
    return by_rows, mixed, sum(0.1 * k for k in range(xs.shape[0]))


def sum_of_what_cannot_be_added(xs: Any) -> Any:
    """Elements after the one that cannot be added are never asked for."""
    asked = []

    def element(k: int, x: Any) -> Any:
        asked.append(k)
        return x[:1, :3] if k == 9 else x

    try:
        return sum(element(k, x) for k, x in enumerate(xs)), asked
    except RuntimeError as error:
        return str(error), asked


def written_and_looked_at_again(xs: Any) -> Any:
    """Views that have been written through have other places on the tape when they are used."""
    h, n = zeros(), xs.shape[0]
    out = tj.zeros(n, 2, WIDTH, dtype=tj.float64)
    for t in range(n):
        h = cell(h, xs[t])
        out[t] = h
    if n < 5:
        return h
    row = out[n - 2]
    out[n - 2] *= 3
    row += out[1]
    return trained(out[:-1] + row, xs), row.detach()


def gradients_of_items(xs: Any) -> Any:
    h, hs = zeros(), []
    for x in xs:
        h = cell(h, x)
        hs.append(h)
    for each in hs:
        each.retain_grad()
    loss = sum(each.square().sum() for each in hs)
    slopes = [tj.autograd.grad(loss, each, retain_graph=True)[0] for each in hs]
    if hs:
        loss.backward(retain_graph=True)
    return slopes, [each.grad for each in hs], [type(each.grad_fn).__name__ for each in hs]


def gradients_of_elements(xs: Any) -> Any:
    ys = [cell(zeros(), x) for x in xs]
    loss = sum(y.square().sum() for y in ys)
    return [tj.autograd.grad(loss, y, retain_graph=True)[0] for y in ys], tj.stack(ys) if ys else None


def items_of_two_lists(xs: Any) -> Any:
    h, hs, others, rows = zeros(), [], [], []
    data = xs.detach() * 1
    for t in range(data.shape[0]):
        h = cell(h, data[t]).detach()
        hs.append(h)
        others.append(h)
        rows.append(data[t])
    for each in hs:
        each.mul_(2)
    for each in rows:
        each.add_(1)
    return tj.stack(others), data, hs[0] is others[0]


@pytest.mark.parametrize(
    "function",
    [
        read_by_position,
        read_in_order,
        read_backwards,
        compared_with_targets,
        both_directions,
        returns,
        sum_of_losses,
        looked_up_next,
        views_of_several_kinds,
        looked_at_without_gradients,
        in_turns,
        tables_in_turns,
        out_of_a_table,
        sums_of_numbers,
        sum_of_what_cannot_be_added,
        written_and_looked_at_again,
        gradients_of_items,
        gradients_of_elements,
        items_of_two_lists,
        changing_items,
        keeping_the_item_before,
        items_in_another_list,
        stepping_out,
        reading_too_far,
        memory_after_the_loop,
        memory_in_the_loop,
        written_in_the_loop,
        used_without_a_value,
    ],
)
def test_steps_that_do_more_give_what_eager_calls_give(function: Callable[..., Any]) -> None:
    agree(tj.compile(function), function)


def test_what_steps_leave_outside_is_what_eager_steps_leave() -> None:
    class Counter:
        steps = 0

    def function(xs: Any, counter: Any, log: list[Any]) -> Any:
        h, i = zeros(), 0
        while i < xs.shape[0]:
            h = cell(h, xs[i]).detach()
            log.append(i)
            counter.steps += 1
            i += 1
        counter.last = i
        return h

    compiled = tj.compile(function)
    for length in (40, 25, 60, 3, 31, 0, 25):
        xs = parameter(length, 2, WIDTH, seed=length).detach()
        here, there, logs = Counter(), Counter(), ([], [])  # type: ignore[var-annotated]
        for _ in range(2):
            found, expected = compiled(xs, here, logs[0]), function(xs, there, logs[1])
            np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-12, atol=1e-13)
            assert (here.steps, here.last, logs[0]) == (there.steps, there.last, logs[1])
            assert all(type(x) is int for x in (here.steps, here.last, *logs[0]))


def test_while_loops_up_to_an_integer_argument_are_of_any_length() -> None:
    def decayed(h: Any, n: int) -> Any:
        t = 0
        while t < n:
            h = h * 0.9 + t * 0.01
            t += 1
        return h, t

    compiled = tj.compile(decayed)
    for n in (12, 20, 30, 13, 0, 8, 1, 16, 64):
        found, expected = compiled(tj.ones(3), n), decayed(tj.ones(3), n)
        assert (found[0].tolist(), found[1]) == (expected[0].tolist(), expected[1])
    assert compiled.stats.traces <= 6 and compiled.stats.instances >= 3, compiled.explain()  # 0, 1 and 8 are few
