"""capture/loop_nodes.py and elements.py: steps of Python's own loops as one node of the graph, and any number of them."""

from __future__ import annotations

import math
import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracejit as tj
from tests.loop_programs import (
    COUNT,
    LSTM,
    RUN,
    SETTINGS,
    WIDTH,
    B,
    U,
    W,
    backwards,
    by_position,
    by_second_position,
    cell,
    from_the_end,
    from_the_last_item,
    gradients,
    gradients_of_slices,
    gradients_of_weights,
    gru_with_outputs,
    in_a_list_from_the_end,
    in_branches,
    inputs,
    loops,
    loss_in_each_step,
    losses_added_in_place,
    lstm,
    numbers_in_the_program,
    outputs_of_two_lists,
    parameter,
    recurrent,
    second_derivatives,
    solver,
    some_detached,
    state_in_a_tuple,
    steps_left_out,
    training,
    writing,
    writing_rows,
    zeros,
)
from tracejit import nn
from tracejit.capture import loop_nodes
from tracejit.capture.session import record
from tracejit.core.interpreter import state
from tracejit.core.op import REGISTRY
from tracejit.core.tree import flatten
from tracejit.cpython import call_hook
from tracejit.llvm import driver
from tracejit.tensor import Tensor

# -- steps that are one node


def two_layers(xs: Any) -> Any:
    h, k, loss = zeros(), zeros(), 0.0
    for x in xs:
        h = cell(h, x)
        k = (k @ U + h).tanh()
        loss = loss + (k @ W - x).square().mean()
    return h, k, loss


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (recurrent, 1), (gradients_of_weights, 2), (gradients_of_slices, 2), (second_derivatives, 4), (by_position, 1),
        (by_second_position, 2), (backwards, 1), (solver, 2), (lstm, 2), (state_in_a_tuple, 1), (loss_in_each_step, 2), (training, 2),
        (some_detached, 2), (in_branches, 1), (two_layers, 1), (gru_with_outputs, 0), (writing, 1), (losses_added_in_place, 2),
        (writing_rows, 1), (from_the_end, 1), (from_the_last_item, 1),
    ],
)  # fmt: skip
def test_steps_that_carry_tensors_on_and_leave_nothing_else_are_one_node(function: Callable[..., Any], expected: int) -> None:
    recording, _ = record(function, (inputs(),), {})
    count = COUNT - RUN - (function is losses_added_in_place)  # whose first step makes what the others write to
    assert loops(recording) == [count] * expected


def chains(xs: Any) -> Any:
    h, k = zeros(), zeros()
    for x in xs:
        h = cell(h, x)
        k = (k @ U + x).sin()
    return h, k


def by_turns(xs: Any) -> Any:
    a, b, h = zeros() @ W, zeros() @ W + 1, zeros() @ W
    for x in xs:
        a, b = b * 0.5 + x @ W, a
        h = h * 0.5 + a
    return a, h


def slices_that_are_shared(xs: Any) -> Any:
    xs, h = xs @ W, zeros()
    for t in range(COUNT):
        h = cell(h, xs[t]) + xs.mean()
    return h


def views_with_gradients_carried_on(xs: Any) -> Any:
    ys, h = xs * W[0], zeros()
    before = ys[0]
    for y in ys:
        h, before = cell(h, y) + before, y
    return h, before


def three_views_carried_on(xs: Any) -> Any:
    h = zeros()
    a = b = c = xs[0]
    for x in xs:
        h = cell(h, x) + c
        c, b, a = b, a, x
    return h, a, b, c


def views_handed_on(xs: Any) -> Any:
    h, a, b = zeros(), xs[0], xs[-1]
    for x in xs:
        h = cell(h, x) + a
        a, b = b, a
    return h, a, b


def columns(xs: Any) -> Any:
    h = zeros()
    for x in xs:
        h = (h @ W + x).tanh().mT.contiguous().mT
    return h


def saved_and_written(xs: Any) -> Any:
    h, k = zeros() @ W, zeros()
    for x in xs:
        h = cell(h, x)
        k = h.exp()
        h *= 2.0
    return k


def rows_read_again(xs: Any) -> Any:
    h, out = zeros(), tj.zeros(COUNT, 2, WIDTH, dtype=tj.float64)
    for t in range(1, COUNT):
        h = cell(h, xs[t]) + out[t - 1]
        out[t] = h
    return out


def rows_that_are_viewed(xs: Any) -> Any:
    h, out = zeros(), tj.zeros(COUNT, 2, WIDTH, dtype=tj.float64)
    first = out[:, 0]
    for t, x in enumerate(xs):
        h = cell(h, x)
        out[t] = h
    return out, first


def own_row_viewed(xs: Any) -> Any:
    out, seen = xs.clone(), tj.zeros_like(xs)
    for t in range(1, COUNT):
        own = out[t]
        first = own[0]
        out[t] = out[t - 1] * 0.5 + xs[t]
        seen[t] = own + first  # what has been written since
    return out, seen


def two_rows_written(xs: Any) -> Any:
    out = xs.clone()
    for t in range(COUNT - 1):
        out[t + 1] = out[t].sin()
        out[t] = out[t + 1] * 0.5
    return out


def row_before_kept(xs: Any) -> Any:
    out, before = xs.clone(), xs[0] * 1
    for t in range(1, COUNT):
        out[t] = out[t - 1].sin() + before
        before = out[t - 1]
    before *= 2.0
    return out, before


def rows_written_elsewhere(xs: Any) -> Any:
    out = xs.clone()
    for t in range(1, COUNT):
        out[t] = out[t - 1].sin()
        out[t - 1][0] = 1.0
    return out


def rows_saved(xs: Any) -> Any:
    out, loss = xs.clone(), 0.0
    for t in range(1, COUNT):
        loss = loss + (out[t - 1] * W[:2]).sum()
        out[t] = out[t - 1].sin()
    return out, loss


def rows_of_numbers(xs: Any) -> Any:
    h, out = zeros(), tj.zeros(COUNT, 2, WIDTH, dtype=tj.float64)
    for t, x in enumerate(xs):
        h = cell(h, x)
        out[t] = 2.0
    return out + h


def written_and_viewed(xs: Any) -> Any:
    h, total = zeros(), zeros()
    first = total[0]
    for x in xs:
        h = cell(h, x)
        total += h
    return h, total, first


def one_without_anything_saved(xs: Any) -> Any:
    h, k = zeros(), zeros()
    for x in xs:
        k = k * 0.9 + B
        h = cell(h, x) + k
    return h, k


@pytest.mark.parametrize(
    "function",
    [
        saved_and_written, written_and_viewed, rows_read_again, rows_that_are_viewed, rows_of_numbers, own_row_viewed,
        two_rows_written, row_before_kept, rows_written_elsewhere, rows_saved, chains, by_turns, slices_that_are_shared,
        views_with_gradients_carried_on, views_handed_on,
        three_views_carried_on, columns, one_without_anything_saved,
    ],
)  # fmt: skip
def test_a_node_would_not_be_as_good_as_these_steps(function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert steps_left_out(function, monkeypatch) == 0
    recording, _ = record(function, (inputs(),), {})
    assert not loops(recording)


@pytest.mark.parametrize(("function", "of"), [(chains, (U, U)), (one_without_anything_saved, (W, B))])
def test_passes_that_meet_nothing_of_each_other_need_no_retained_graph(function: Callable[..., Any], of: tuple[Any, Any]) -> None:
    compiled = tj.compile(function)
    for _ in range(3):
        for order in (1, -1):
            results = compiled(inputs()), function(inputs())
            for k, operand in [*enumerate(of)][::order]:
                slopes = [tj.autograd.grad(found[k].sum(), operand)[0].numpy() for found in results]
                np.testing.assert_allclose(*slopes, rtol=1e-9)


def neighbours(xs: Any) -> Any:
    h, loss = xs[0], 0.0
    for t in range(1, COUNT - 1):
        h = cell(h, xs[t]) + xs[t - 1] * 0.1 + xs[t + 1] * xs[t]
        loss = loss + (h - W[0]).square().mean()
    return loss * h


def read_as_a_whole_at_first(xs: Any) -> Any:
    h, before = zeros(), None
    for x in xs:
        if before is None:
            h = h + xs.mean(0) + xs[-1] * xs.sum(0)
        before = h = cell(h, x)
    return h


def written_to_at_first(xs: Any) -> Any:
    xs, h, before = xs * 2, zeros(), None
    for x in xs:
        if before is None:
            xs.mul_(0.5)
        before = h = cell(h, x)
    return h


@pytest.mark.parametrize(
    "function",
    [
        recurrent, state_in_a_tuple, backwards, by_position, neighbours, read_as_a_whole_at_first, written_to_at_first, writing,
        writing_rows, from_the_end, in_a_list_from_the_end, from_the_last_item,
    ],
)  # fmt: skip
@pytest.mark.parametrize("seed", range(3))
def test_gradients_of_a_recorded_call_have_the_bits_of_eager_ones(function: Callable[..., Any], seed: int) -> None:
    def slopes(call: Callable[..., Any], earlier: bool) -> Any:
        xs = inputs(seed).requires_grad_()
        result = flatten(call(xs))[0][0]
        loss = (result * result).sum() + ((result @ W).sin() * xs[20] @ U * earlier).sum()
        return tj.autograd.grad(loss, (W, U, B, xs, *LSTM.parameters()), allow_unused=True)

    for earlier in (False, True):
        for x, y in zip(slopes(tj.compile(function), earlier), slopes(function, earlier), strict=True):
            assert (x is None) == (y is None)
            if x is not None:
                assert x.numpy().tobytes() == y.numpy().tobytes()


@pytest.mark.parametrize("what", ["weight", "bias", "inputs"])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_loop_has_saved_what_its_steps_would_and_nothing_else(what: str, times: int) -> None:
    def function(xs: Any, weight: Any, bias: Any) -> Any:
        h = zeros()
        for x in xs:
            h = (h @ weight + x + bias).tanh()
        return h.sum()

    compiled = tj.compile(function)
    for call in (compiled, function):
        given = {"weight": parameter(WIDTH, WIDTH), "bias": parameter(WIDTH), "inputs": inputs()}
        for _ in range(times):
            loss = call(given["inputs"], given["weight"], given["bias"])
        with tj.no_grad():
            given[what].mul_(2.0)
        if what == "weight":
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.backward()
        else:
            loss.backward()
    assert compiled.stats.traces == 1


# -- other numbers of steps


def by_length(xs: Any) -> Any:
    h = zeros()
    for t in range(xs.shape[0]):
        h = cell(h, xs[t])
    return h, h.sum() * t


def from_the_second_on(xs: Any) -> Any:
    h, n = xs[0], len(xs)
    for t in range(1, n):
        h = cell(h, xs[t]) + xs[t - 1] * 0.1
    return h / n


def loss_of_the_next_row(xs: Any) -> Any:
    h, loss = zeros(), 0.0
    for t in range(len(xs) - 1):
        h = cell(h, xs[t])
        loss = loss + (h - xs[t + 1]).square().mean()
    return loss


def along_the_second_dimension(xs: Any) -> Any:
    xs, h = xs.transpose(0, 1), zeros()
    for t in range(xs.size(1)):
        h = cell(h, xs[:, t])
    return h


def with_both(xs: Any) -> Any:
    h, total = zeros(), zeros()
    for t, x in enumerate(xs):
        h = cell(h, x) + xs[t] * 0.1
        total += h
    for x, y in zip(xs, xs * 2, strict=True):
        h = cell(h, x) * y
    for t, x in enumerate(xs * 3, 1):
        h = cell(h, x) * xs[t - 1]
    return h, total, total.sum() * t


def rows_of_two(xs: Any) -> Any:
    h, out, other = zeros(), xs.new_zeros(len(xs) + 2, 2, WIDTH), tj.zeros(2, len(xs), 3, dtype=tj.float64)
    for t in range(len(xs)):
        h = cell(h, xs[t])
        out[t + 1] = h
        other[:, t] = h[:, :3]
        h = h + h * h
    return out, other, h


def mapped(xs: Any) -> Any:
    out = tj.zeros_like(xs)
    for t, x in enumerate(xs):
        out[t] = (x @ W).tanh() + xs[t]
    return out * 2


def with_the_row_after(xs: Any) -> Any:
    h, n = zeros(), len(xs) - 1
    for t in reversed(range(n)):
        h = 0.9 * h + xs[t] - 0.5 * xs[t + 1]
    return h


def along_dimensions(xs: Any) -> Any:
    h, n, out = zeros(), len(xs), tj.zeros_like(xs)
    for x in xs.transpose(0, 2).unbind(-1):
        h = cell(h, x.t())
    for t, x in enumerate(xs.unbind()):
        h = cell(h, x)
        out[t] = h
    for x, y in zip(xs.unbind(dim=0), (xs * 2).transpose(0, 1).unbind(1), strict=True):
        h = cell(h, x) * y
    return h / n, out


def handed_on(xs: Any) -> Any:
    a, b, h, k, p, q, r = (zeros() + number for number in range(7))
    named, last = {"a": xs[0].detach() * 1, "b": zeros()}, zeros()
    for x in xs.detach():
        a, b = b, a
        h, k, named["a"], named["b"] = k, named["a"], named["b"], h
        r, q, p = q, p, last
        last = (last + x).sin()
    return a, b, h, k, p, q, r, named["a"], named["b"], last


def test_steps_may_hand_tensors_on_without_computing_with_them() -> None:
    for length in (200, 201, 202, 203):
        xs = parameter(length, 2, WIDTH).detach()
        recording, found = record(handed_on, (xs,), {})
        assert loops(recording) == [length - RUN]
        for x, y in zip(found, handed_on(xs), strict=True):
            assert np.array_equal(x.numpy(), y.numpy())


def by_its_shape(xs: Any) -> Any:
    h, loss = zeros(), 0.0
    for x in xs:
        h = cell(h, x.view(-1, x.shape[-1])) + tj.ones(xs.shape[1], WIDTH, dtype=tj.float64)
        loss = loss + h.sum() / xs.shape[0]
    return loss


def at_mirrored_places(xs: Any) -> Any:
    h, n, out = zeros(), len(xs), tj.zeros_like(xs)
    for t in range(n):
        h = cell(h, xs[n - 1 - t])
        out[t] = h
    return h, out


def in_both_directions(xs: Any) -> Any:
    data, forth, back, n, out = xs.detach(), zeros(), zeros(), len(xs), tj.zeros_like(xs)
    for t in range(n):
        forth = (0.5 * forth + data[t]).sin()
        back = (0.5 * back + data[n - t - 1]).cos()
        out[n - 1 - t] = forth * back
    return forth + back + xs.sum(), out + xs


def until_the_end(xs: Any) -> Any:
    h = zeros()
    for x in xs:
        h = cell(h, x)
    else:
        h = h * 2
    return h, x


def trajectory(xs: Any) -> Any:
    data, n = xs.detach(), len(xs)
    out, wave = tj.zeros(n + 1, 2, WIDTH, dtype=tj.float64), tj.zeros_like(data)
    out[0] = data[0]
    for t in range(n):
        slope = (out[t] * out[t, 0]).sin()
        out[t + 1] = out[t] + 0.1 * ((out[t] + 0.1 * slope).sin() + data[t])
    wave[0], wave[1] = data[0], data[1]
    for t in range(2, n):
        wave[t] = 1.5 * wave[t - 1] - 0.6 * wave[t - 2] + 0.1 * out[t - 1]
    return out, wave


def values_of_what_follows(xs: Any) -> Any:
    data, n = xs.detach(), len(xs)
    values, columns = tj.zeros(n + 1, 2, WIDTH, dtype=tj.float64), data.permute(1, 2, 0).contiguous()
    for t in range(n - 1, -1, -1):
        values[t] = data[t] + 0.9 * values[t + 1]
    for t in reversed(range(n - 1)):  # whose steps all run where n is a number
        columns[..., t] += 0.5 * columns[..., t + 1]
    return values[:-1], columns


def in_place_of_the_data(xs: Any) -> Any:
    sums, smooth, total = xs.detach().clone(), xs.detach().clone(), zeros()
    for t in range(1, len(xs)):
        sums[t] += sums[t - 1]
    for t in range(1, len(xs) - 1):
        smooth[t] = 0.25 * (smooth[t - 1] + 2 * smooth[t] + smooth[t + 1])
        smooth[t] *= 0.9
        total = total + smooth[t] * smooth[t - 1]
    return sums, smooth, total


def leapfrog(xs: Any) -> Any:
    data, n = xs.detach(), len(xs)
    place, speed = tj.empty(n, 2, WIDTH, dtype=tj.float64), tj.empty(n, 2, WIDTH, dtype=tj.float64)
    place[0], speed[0] = data[0], data[1]
    for t in range(n - 1):
        half = speed[t] - 0.05 * place[t].sin()
        place[t + 1] = place[t] + 0.1 * half
        speed[t + 1] = half - 0.05 * place[t + 1].sin()
    return place, speed


@pytest.mark.parametrize("function", [trajectory, values_of_what_follows, in_place_of_the_data, leapfrog])
def test_steps_that_read_rows_which_they_write_all_run(function: Callable[..., Any]) -> None:
    recording, found = record(function, (inputs(),), {})
    assert not loops(recording)
    for x, y in zip(found, function(inputs()), strict=True):
        assert np.array_equal(x.numpy(), y.numpy())


def the_one_before(xs: Any) -> Any:
    h, before = zeros(), xs[0]
    for x in xs:
        h, before = cell(h, x - before), x
    return h, before


def the_two_before(xs: Any) -> Any:
    h, before, last = zeros(), xs[0], xs[0]
    for x in xs:
        h, before, last = cell(h, before), last, x
    return h, before


@pytest.mark.parametrize(("function", "at", "is_loop"), [(the_one_before, -1, True), (the_two_before, -2, False)])
def test_what_steps_keep_of_their_slices_are_views_of_the_same_tensor(function: Any, at: int, is_loop: bool) -> None:
    compiled = tj.compile(function)
    for length in (20, 15, 31, 26, 40):
        xs, ys = parameter(length, 2, WIDTH).detach(), parameter(length, 2, WIDTH).detach()
        for x, y in zip(compiled(xs), function(ys), strict=True):
            np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=1e-9, atol=1e-12)
        before = compiled(xs)[1]
        before += 1.0
        assert np.array_equal(xs[at].numpy(), ys[at].numpy() + 1.0)
    assert (compiled.stats.traces <= 3) is is_loop
    recording, _ = record(function, (inputs(),), {})
    assert loops(recording) == [COUNT - RUN] * is_loop


# -- steps that draw, check what is in tensors, and ask which step they are

TABLE, CLASSES = parameter(6, WIDTH, seed=7), parameter(WIDTH, 6, seed=8)


def symbols(xs: Any) -> Any:
    """int64[steps, 2]."""
    return ((xs.detach() * 100).abs().long() % 6)[:, :, 0]


def with_noise(xs: Any) -> Any:
    h = zeros()
    for x in xs:
        h = cell(h, x) + 0.1 * tj.randn(2, WIDTH, dtype=tj.float64)
        h = nn.functional.dropout(h, 0.25)
    return h


def diffusion(xs: Any) -> Any:
    z = xs[0].detach()
    with tj.no_grad():
        for _ in range(xs.shape[0]):
            z = z - 0.1 * z + 0.3 * tj.randn_like(z)
    return z


def cross_entropies(xs: Any) -> Any:
    h, loss, targets = zeros(), 0.0, symbols(xs)
    for t in range(xs.shape[0]):
        h = cell(h, xs[t])
        loss = loss + nn.functional.cross_entropy(h @ CLASSES, targets[t])
    return loss


def embedded(xs: Any) -> Any:
    h, found = zeros(), []
    for symbol in symbols(xs):
        h = cell(h, nn.functional.embedding(symbol, TABLE))
        found.append(h)
    return tj.stack(found), h


def greedy(xs: Any) -> Any:
    with tj.no_grad():
        h, symbol, found = zeros(), tj.zeros(2, dtype=tj.int64), []
        for _ in range(xs.shape[0]):
            h = cell(h, TABLE[symbol])
            symbol = (h @ CLASSES).argmax(-1)
            found.append(symbol)
        return tj.stack(found)


def sampled(xs: Any) -> Any:
    with tj.no_grad():
        h, symbol, found = zeros(), tj.zeros(2, dtype=tj.int64), []
        for _ in range(xs.shape[0]):
            h = cell(h, TABLE[symbol])
            symbol = tj.multinomial((h @ CLASSES).softmax(-1), 1).squeeze(1)
            found.append(symbol)
        return tj.stack(found, 1)


def stopped_by_overflow(xs: Any) -> Any:
    h = zeros()
    for x in xs:
        h = cell(h, x)
        if h.isnan().any():
            break
    return h


def masked(xs: Any) -> Any:
    h, mask = zeros(), xs[:, :, 0] > 0
    for t in range(xs.shape[0]):
        chosen = mask[t : t + 1].double().reshape(2, 1)
        h = chosen * cell(h, xs[t : t + 1].squeeze(0)) + (1 - chosen) * h
    return h


def picked(xs: Any) -> Any:
    h, total, places = zeros(), tj.zeros(2, dtype=tj.float64), symbols(xs).t()
    for t in range(xs.shape[0]):
        h = cell(h, xs[t])
        total = total + (h @ CLASSES).gather(1, places[:, t : t + 1]).squeeze(1)
    return total


def split_up(xs: Any) -> Any:
    h, found = zeros(), []
    for x in xs.split(1, dim=0):
        h = cell(h, x[0])
        found.append(h)
    return tj.stack(found), h


def in_chunks(xs: Any) -> Any:
    h, y = zeros(), (xs @ W).transpose(0, 1)
    for x, again in zip(y.chunk(xs.shape[0], 1), tj.split(xs.detach(), 1), strict=True):
        h = cell(h, x.squeeze(1)) * again[0]
    return h


def side_by_side(xs: Any) -> Any:
    h, y = zeros(), xs @ W
    for x, z in zip(y, (xs * 2).unbind(), strict=True):
        h = cell(h, x) + z
    return h


def unbound_by_a_function(xs: Any) -> Any:
    h = zeros()
    for x in tj.unbind(xs, 0):
        h = cell(h, x)
    return h


def rows_of_a_view(xs: Any) -> Any:
    h, data = zeros(), xs.detach()
    for t in range(xs.shape[0]):
        h = cell(h, xs[t]) + data[:, 1][t]
    return h


def but_the_first(xs: Any) -> Any:
    h, loss = zeros(), 0.0
    for t in range(xs.shape[0]):
        h = cell(h, xs[t] - (xs[t - 1] if t > 0 else zeros()))
        if t != 0:
            loss = loss + h.square().mean()
    return loss


def but_the_last(xs: Any) -> Any:
    h, loss, steps = zeros(), 0.0, xs.shape[0]
    for t in range(steps):
        h = cell(h, xs[t])
        if t + 1 < steps:
            loss = loss + (h - xs[t + 1]).square().mean()
        elif steps - 1 == t:
            loss = loss * 2
    return loss


DRAWING = (with_noise, diffusion, sampled)


@pytest.mark.parametrize("function", DRAWING)
def test_loops_that_draw_leave_the_generator_where_their_steps_would(function: Callable[..., Any]) -> None:
    compiled = tj.compile(function)
    for k, length in enumerate((40, 25, 60, 10, 31, 9, 55)):
        xs, found = parameter(length, 2, WIDTH, seed=k).detach(), []
        for call in (compiled, function):
            tj.manual_seed(k)
            result = call(xs)
            found.append((result, tj.get_rng_state().tolist(), tj.rand(2).tolist()))
        np.testing.assert_allclose(*[result.detach().numpy() for result, *_ in found], rtol=1e-9, atol=1e-12)
        assert found[0][1:] == found[1][1:]
    assert compiled.stats.traces <= 3
    assert compiled.stats.instances >= 4


def test_who_draws_while_a_loop_is_recorded_has_numbers_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate, others = loop_nodes.emit_loop, []

    def interrupted(*arguments: Any) -> Any:
        left = evaluate(*arguments)
        others.append(draw(tj.default_generator, REGISTRY["random_uniform"], {"shape": (3,), "dtype": tj.float64}, 2))
        return left

    draw = state.base.draw
    for function in (interrupted, draw.__func__, tj.Generator._advance):
        call_hook.allow(function.__code__, lasting=True)
    tj.manual_seed(3)
    expected = with_noise(inputs())
    tj.manual_seed(3)
    monkeypatch.setattr(loop_nodes, "emit_loop", interrupted)
    recording, result = record(with_noise, (inputs(),), {})
    assert others
    assert recording.left_out == 0
    assert not np.array_equal(result.detach().numpy(), expected.detach().numpy())


@pytest.mark.parametrize("length", [40, 25])
def test_an_index_that_is_wrong_in_some_step_raises_there(length: int) -> None:
    def looked_up(places: Any) -> Any:
        h = zeros()
        for t in range(places.shape[0]):
            h = nn.functional.dropout(cell(h, TABLE[places[t]]), 0.5)
        return h

    compiled = tj.compile(looked_up)
    right = tj.zeros(40, 2, dtype=tj.int64)
    for k in range(4):
        wrong = tj.zeros(length, 2, dtype=tj.int64)
        wrong[17] = 6
        states = []
        for call in (compiled, looked_up):
            tj.manual_seed(k)
            with pytest.raises(IndexError):
                call(wrong)
            states.append(tj.get_rng_state().tolist())
            call(right)
        assert states[0] == states[1]
    assert compiled.stats.compiled_calls >= 2


@pytest.mark.parametrize("step", [3, 17, 39])
def test_a_guard_that_fails_in_some_step_is_another_path(step: int) -> None:
    compiled = tj.compile(stopped_by_overflow)
    compiled._policy.may_outline = False  # else the loop is one node that branches
    for k in range(5):
        xs = inputs(k)
        if k % 2:
            xs[step] = np.nan
        x, y = compiled(xs), stopped_by_overflow(xs)
        np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=1e-9, atol=1e-12)
    assert compiled.stats.traces == 2
    recording, _ = record(stopped_by_overflow, (inputs(),), {})
    assert loops(recording) == [COUNT - RUN]


# -- counters that steps compute with


def over_time(xs: Any) -> Any:
    def slope(time: float, h: Any) -> Any:
        return (h @ W).sin() * time - h

    h, dt = zeros(), 0.05
    for k in range(len(xs)):
        time = k * dt
        middle = h + slope(time, h) * (dt / 2)
        h = h + slope(time + dt / 2, middle) * dt + xs[k]
    return h


def over_the_length(xs: Any) -> Any:
    h, n = zeros(), len(xs)
    for t in range(n):
        share = t / n
        h = h * (1 - share) + cell(h, xs[t]) * share
    return h


def discounted(xs: Any) -> Any:
    total = 0.0
    for t, x in enumerate(xs):
        total = total + 0.9**t * (x * x).sum()
    return total


def of_a_downward_count(xs: Any) -> Any:
    h = zeros()
    for t in reversed(range(len(xs))):
        h = cell(h, xs[t]) * (t * 0.01 + 1)
    return h


def of_functions(xs: Any) -> Any:
    h = zeros()
    for t in range(len(xs)):
        h = cell(h, xs[t]) * math.exp(-t) + math.cos(math.pi * (t / len(xs))) + float(t)
    return h


def corrected_means(xs: Any) -> Any:
    mean, square, point = zeros(), zeros(), zeros() + 1
    for t in range(1, len(xs) + 1):
        slope = (point @ W - xs[t - 1]).tanh()
        mean, square = 0.9 * mean + 0.1 * slope, 0.99 * square + 0.01 * slope * slope
        point = point - 0.05 * (mean / (1 - 0.9**t)) / ((square / (1 - 0.99**t)).sqrt() + 1e-8)
    return point


def averaged(xs: Any) -> Any:
    mean = zeros()
    for t in range(len(xs)):
        count = t + 1
        mean = mean + (xs[t] - mean) / count
    return mean


def numbered_rows(xs: Any) -> Any:
    h, outs = zeros(), []
    for t, x in enumerate(xs, 3):
        h = cell(h, x / t)
        outs.append(h * t)
    return tj.stack(outs)


def and_a_position(xs: Any) -> Any:
    h, ys = zeros(), xs.detach()
    for t in range(1, len(xs)):
        h = cell(h, xs[t] - ys[t - 1]) if t > 1 else cell(h, xs[t])
        h = h - t * 0.5 * ys[len(xs) - 1 - t]
    return h


def mask_carried_on(xs: Any) -> Any:
    mask, total = tj.zeros(2, WIDTH, dtype=tj.bool), zeros()
    for x in xs:
        total = total + (x @ W).masked_fill(mask, -9.0).log_softmax(-1)
        mask = mask | (x > 1)
    return gradients(total.square().sum(), W), mask


def positions_made(xs: Any) -> Any:
    total = zeros()[0, :2]
    for x in xs:
        total = total + (x @ W)[tj.arange(2), tj.arange(2) + 1].tanh()
    return gradients(total.square().sum(), W)


def floats_carried_on(xs: Any) -> Any:
    h, time, rate, total, most, a, b = zeros(), 0.0, 1.0, 0.0, 0.0, 1.0, 2.0
    for x in xs:
        h = cell(h, x * rate) * math.cos(time)
        time += 0.125
        rate = rate * 0.9
        a, b = b * 0.5, a + 0.25
        total, most = total + h.sum().item() * a, max(most, h.max().item())
    return h * time + b, h * rate + total * most


def after_the_first(xs: Any) -> Any:
    states = [zeros()]
    for x in xs:
        states.append(cell(states[-1], x))
    return tj.stack(states[1:]), tj.stack(states[:-1]), sum(states[2:-1]) / len(states)


def rows_read_and_appended(xs: Any) -> Any:
    h, rows, others = zeros(), [], []
    for x in xs:
        h = cell(h, x)
        rows.append(x)
        others.append(x)
    return h, tj.stack(rows), tj.cat(others, 1)


def columns_read_and_appended(xs: Any) -> Any:
    h, columns = zeros(), []
    for x in xs.transpose(0, 1).unbind(1):
        h = cell(h, x)
        columns.append(x)
    return h, tj.stack(columns).view(-1), tj.stack(columns, 1)


def test_steps_that_check_rows_and_keep_them_run() -> None:
    def checked(xs: Any) -> Any:
        rows = []
        for x in xs:
            if x.isnan().any():
                break
            rows.append(x)
        return tj.stack(rows)

    compiled = tj.compile(checked)
    for k, length in enumerate((15, 12, 40, 18) * 5):
        xs = parameter(length, 2, WIDTH, seed=k).detach()
        assert compiled(xs).equal(checked(xs))
        xs[7, 1, 2] = math.nan
        assert compiled(xs).equal(checked(xs))
    assert compiled.stats.compiled_calls + compiled.stats.piecewise_calls >= 24, compiled.explain()


GRU = nn.GRU(WIDTH, WIDTH, dtype=tj.float64)


def module_in_each_step(xs: Any) -> Any:
    h = tj.zeros(1, xs.size(1), WIDTH, dtype=tj.float64)
    for t in range(xs.size(0)):
        out, h = GRU(xs[t : t + 1], h)
    return out, h


def test_steps_may_look_at_shapes_with_two_symbolic_sizes() -> None:
    compiled = tj.compile(module_in_each_step)
    sizes = np.random.default_rng(0)
    for k in range(16):
        xs = parameter(int(sizes.integers(9, 20)), int(sizes.integers(2, 9)), WIDTH, seed=k).detach()
        for x, y in zip(compiled(xs), module_in_each_step(xs), strict=True):
            np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=1e-9, atol=1e-12)
    assert compiled.stats.traces <= 3, compiled.explain()


def joined_under_its_name(xs: Any) -> Any:
    total, states = 0.0, zeros()
    for k in range(2):
        h, states = zeros() + k, []
        for x in xs:
            h = cell(h, x)
            states.append(h)
        states = tj.stack(states, 1)
        total = total + states.mean(1)
    return total, states


def rows_computed_with(xs: Any) -> Any:
    h = zeros()
    for x in xs:
        h = cell(h, -x) * 2 - x
    return h


def squares_of_time(xs: Any) -> Any:
    h = zeros()
    for t in range(len(xs)):
        h = cell(h, xs[t]) * (t * t - 3) + tj.full((2, 1), t * 0.5)
    return h


def decided_by_none(xs: Any) -> Any:
    h = zeros()
    for t in range(len(xs)):
        h = cell(h, xs[t]) if t * 0.5 < 1e6 else h
    return h


@pytest.mark.parametrize(
    "function",
    [
        recurrent, gradients_of_weights, second_derivatives, lstm, loss_in_each_step, some_detached, by_length, from_the_second_on,
        loss_of_the_next_row, along_the_second_dimension, until_the_end, writing, losses_added_in_place, with_both, rows_of_two, mapped,
        from_the_end, in_a_list_from_the_end, with_the_row_after, from_the_last_item, by_its_shape, handed_on,
        along_dimensions, at_mirrored_places, in_both_directions,
        cross_entropies, embedded, greedy, stopped_by_overflow, masked, picked, split_up, in_chunks, unbound_by_a_function,
        rows_of_a_view, but_the_first, but_the_last, side_by_side,
        numbers_in_the_program, over_time, over_the_length, discounted, of_a_downward_count, of_functions, corrected_means, averaged,
        numbered_rows, and_a_position, floats_carried_on, mask_carried_on, positions_made, after_the_first, joined_under_its_name,
        rows_read_and_appended, columns_read_and_appended,
        rows_computed_with, squares_of_time, decided_by_none,
    ],
)  # fmt: skip
def test_another_number_of_steps_is_no_other_recording(function: Callable[..., Any]) -> None:
    compiled = tj.compile(function)
    for k, length in enumerate((40, 25, 60, 9, 80, 31)):
        xs = parameter(length, 2, WIDTH, seed=k).detach().requires_grad_()
        for x, y in zip(flatten(compiled(xs))[0], flatten(function(xs))[0], strict=True):
            assert (x.shape, x.dtype, x.requires_grad, x.stride()) == (y.shape, y.dtype, y.requires_grad, y.stride())
            np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=1e-9, atol=1e-12)
            if x.requires_grad and function not in (lstm, loss_in_each_step, some_detached, losses_added_in_place, embedded):
                slopes = [tj.autograd.grad((v * v).sum(), xs, retain_graph=True)[0].numpy() for v in (x, y)]
                np.testing.assert_allclose(*slopes, rtol=1e-9, atol=1e-12)
    assert compiled.stats.traces <= 3
    assert compiled.stats.instances >= 3


def crossing(xs: Any) -> Any:
    h = zeros()
    for t in range(len(xs)):
        h = cell(h, xs[t]) if t * 0.5 < 10.0 else h * 0.5
    return h


def test_a_number_of_steps_that_decides_otherwise_in_one_of_them_is_not_taken_for_granted() -> None:
    compiled = tj.compile(crossing)
    for k, length in enumerate((15, 12, 40, 18, 25, 14, 20, 21, 22)):  # from the twentieth step on it is another branch
        xs = parameter(length, 2, WIDTH, seed=k).detach()
        for _ in range(2):
            np.testing.assert_allclose(compiled(xs).detach().numpy(), crossing(xs).detach().numpy(), rtol=1e-9, atol=1e-12)
    assert compiled.stats.compiled_calls >= 9


def kept_by_others(xs: Any, kept: dict[str, Any]) -> Any:
    h = zeros()
    for t in range(len(xs)):
        now = t * 0.25
        h = cell(h, xs[t]) * now
        kept["time"] = now
    return h


def left_in_variables(xs: Any, kept: dict[str, Any]) -> Any:
    h, before = zeros(), 0.0
    for t in range(len(xs)):
        now = t * 0.25
        h = cell(h, xs[t]) * (now - before)
        before = now
    kept["time"] = before
    return h * now


def left_by_a_break(xs: Any, kept: dict[str, Any]) -> Any:
    h = zeros()
    for t in range(len(xs)):
        if h.sum() > 1e9:
            break
        now = t * 0.25
        h = cell(h, xs[t]) * now
    kept["time"] = now
    return h


def left_by_additions(xs: Any, kept: dict[str, Any]) -> Any:
    h, kept["time"], least, unchanged = zeros(), 0.5, 1.0, 3.0
    for x in xs:
        h = cell(h, x) * least
        kept["time"] += 0.25
        least = min(least, kept["time"] * 0.125)
        if least < -1.0:
            unchanged = 2.0
    kept["least"], kept["unchanged"] = least, unchanged
    return h * (kept["time"] + least)


def left_in_cells(xs: Any, kept: dict[str, Any]) -> Any:
    h, time = zeros(), 0.0

    def elapsed() -> float:
        return time

    for x in xs:
        h = cell(h, x) * elapsed()
        time += 0.25
    kept["time"] = elapsed()
    return h


@pytest.mark.parametrize("function", [kept_by_others, left_in_variables, left_by_a_break, left_by_additions, left_in_cells])
def test_numbers_of_steps_that_somebody_has_are_those_of_the_last_step(function: Callable[..., Any]) -> None:
    compiled = tj.compile(function)
    for k, length in enumerate((15, 12, 40, 18, 25, 7, 1)):
        xs, here, there = parameter(length, 2, WIDTH, seed=k).detach(), {}, {}
        for _ in range(2):
            np.testing.assert_allclose(compiled(xs, here).detach().numpy(), function(xs, there).detach().numpy(), rtol=1e-9)
            assert here == there and {type(x) for x in here.values()} == {float}
    assert compiled.stats.compiled_calls >= 7


def in_the_middle(xs: Any) -> Any:
    states, h = [], zeros()
    for x in xs:
        h = cell(h, x)
        states.append(h)
    return tj.stack(states[7:]), len(states)


def test_what_begins_within_the_items_of_steps_takes_them_apart() -> None:
    compiled = tj.compile(in_the_middle)
    for k, length in enumerate((15, 12, 40, 18)):
        xs = parameter(length, 2, WIDTH, seed=k).detach()
        for _ in range(2):
            (x, count), (y, expected) = compiled(xs), in_the_middle(xs)
            np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=1e-9)
            assert count == expected
    with pytest.raises(RuntimeError) as said:
        in_the_middle(xs[:6])
    for _ in range(2):
        with pytest.raises(RuntimeError, match=re.escape(str(said.value))):
            compiled(xs[:6])


def training_step(xs: Any) -> Any:
    h, k = zeros(), zeros()
    for x in xs:
        h, k = cell(h, x), (k @ W + h).sin() * cell(k, h)
    slopes = gradients((h * k).square().mean(), W, U, B)
    return [value - 0.1 * slope for value, slope in zip((W, U, B), slopes, strict=True)]


def test_a_loop_of_one_length_confirms_that_of_any_and_there_are_two_programs() -> None:
    compiled = tj.compile(training_step)
    with tj.config.override(cache=False):
        before = driver.compilations()
        for k, length in enumerate((40, 25, 60, 10, 31, 80, 9, 8, 55)):
            xs = parameter(length, 2, WIDTH, seed=k).detach()
            for x, y in zip(compiled(xs), training_step(xs), strict=True):
                np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=1e-9, atol=1e-12)
        assert driver.compilations() - before == 2
    assert compiled.stats.traces == 2


def linear_recurrence(xs: Any) -> Any:
    rates, inflow, state, found = (xs @ W).sigmoid(), xs @ U, zeros(), []
    for t in range(xs.shape[0]):
        state = state * rates[t] + inflow[t]
        found.append(state)
    return tj.stack(found), gradients(tj.stack(found).square().mean() + state.sum(), W, U)


def test_linear_recurrences_are_of_any_length_with_the_backward_pass_inside() -> None:
    compiled = tj.compile(linear_recurrence)
    for k, length in enumerate((40, 25, 60, 13, 31, 80, 18, 55)):
        xs = parameter(length, 2, WIDTH, seed=k).detach()
        for x, y in zip(flatten(compiled(xs))[0], flatten(linear_recurrence(xs))[0], strict=True):
            np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=1e-9, atol=1e-12)
    assert compiled.stats.traces == 2


def item_in_the_middle(xs: Any) -> Any:
    h, outs = zeros(), []
    for x in xs:
        h = cell(h, x)
        outs.append(h)
    return h, outs[xs.shape[0] // 2]


@pytest.mark.parametrize("function", [item_in_the_middle, outputs_of_two_lists])
def test_steps_that_are_no_node_are_those_of_one_number(function: Callable[..., Any]) -> None:
    compiled = tj.compile(function)
    for k, length in enumerate((40, 25, 60, 13, 25)):
        xs = parameter(length, 2, WIDTH, seed=k).detach()
        for x, y in zip(flatten(compiled(xs))[0], flatten(function(xs))[0], strict=True):
            if isinstance(y, Tensor):
                np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=1e-9, atol=1e-12)
    assert not compiled.stats.instances


class Parts:
    def __init__(self, xs: Any) -> None:
        self.xs = xs

    def unbind(self, count: int = 3) -> list[Any]:
        return [self.xs[k] for k in range(count)]


def parts_of_others(xs: Any) -> Any:
    h = zeros()
    for x in Parts(xs).unbind(count=2):
        h = cell(h, x)
    for k, x in enumerate(xs[:3].unbind(0)):
        h = cell(h, x) * k
    for x in xs.unbind(1):
        h = h + x.sum()
    for x, y in zip(xs.unbind(), Parts(xs).unbind(), strict=False):
        h = cell(h, x) + y
    return h


def along_a_dimension_that_is_not_there(xs: Any) -> Any:
    h = zeros()
    for x in xs.unbind(3):
        h = cell(h, x)
    return h


def test_what_is_unbound_may_be_few_or_of_another_kind() -> None:
    compiled = tj.compile(parts_of_others)
    for length in (40, 25, 13, 40):
        xs = parameter(length, 2, WIDTH, seed=length).detach()
        np.testing.assert_allclose(compiled(xs).detach().numpy(), parts_of_others(xs).detach().numpy(), rtol=1e-9, atol=1e-12)
    assert compiled.stats.compiled_calls and compiled.stats.traces <= 3
    wrong = tj.compile(along_a_dimension_that_is_not_there)
    for length in (40, 25, 13):
        with pytest.raises(IndexError, match="out of range"):
            wrong(parameter(length, 2, WIDTH))


# -- loops of any length, all steps of which run after all


def stopping_rows(xs: Any) -> Any:
    h = zeros()
    for x in xs:
        h = cell(h, x)
        if SETTINGS.stops:
            pickle.dumps(h.detach())
    return h


def stopping_numbered_rows(xs: Any) -> Any:
    h, kinds = zeros(), []
    for k, x in enumerate(xs, 2):
        h = cell(h, x)
        if SETTINGS.stops:
            kinds.append(type(k))
            pickle.dumps(h.detach())
    return h, k, kinds


def stopping_positions(xs: Any) -> Any:
    h = zeros()
    for t in range(len(xs)):
        h = cell(h, xs[t])
        if SETTINGS.stops:
            pickle.dumps(h.detach())
    return h, t


def stopping_header(xs: Any) -> Any:
    h = zeros()
    for x, y in zip(xs.unbind(0), tj.tensor(pickle.loads(pickle.dumps(xs.numpy()))) if SETTINGS.stops else xs, strict=True):
        h = cell(h, x) + y
    return h


@pytest.mark.parametrize("function", [stopping_rows, stopping_numbered_rows, stopping_positions, stopping_header])
def test_a_recording_may_stop_within_a_loop_of_any_length(function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SETTINGS, "stops", False, raising=False)
    compiled = tj.compile(function, wait=True)
    for length, stops in ((40, False), (25, False), (13, True), (30, True), (50, False)):
        SETTINGS.stops = stops
        xs = parameter(length, 2, WIDTH, seed=length).detach()
        found, expected = flatten(compiled(xs))[0], flatten(function(xs))[0]
        np.testing.assert_allclose(found[0].detach().numpy(), expected[0].detach().numpy(), rtol=1e-9, atol=1e-12)
        assert found[1:] == expected[1:]
    assert "unknown_call" in compiled.explain(verbose=True) and compiled.stats.traces > 2


def changing_grad_mode(xs: Any) -> Any:
    h, rows = zeros(), []
    for x in xs * W.sum():
        h = cell(h, x)
        rows.append(x)
        if SETTINGS.stops:
            tj.set_grad_enabled(False)
    tj.set_grad_enabled(True)
    return h, [row.requires_grad for row in rows]


def test_elements_of_a_loop_require_grad_as_where_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SETTINGS, "stops", False, raising=False)
    compiled = tj.compile(changing_grad_mode, wait=True)
    for length, stops in ((40, False), (25, False), (13, True), (30, True)):
        SETTINGS.stops = stops
        xs = parameter(length, 2, WIDTH, seed=length).detach()
        (h, found), (other, expected) = compiled(xs), changing_grad_mode(xs)
        assert found == expected == [True] * length
        np.testing.assert_allclose(h.detach().numpy(), other.detach().numpy(), rtol=1e-9, atol=1e-12)
    assert compiled.stats.traces > 2


def divided_by_the_length(xs: Any) -> Any:
    h, loss = zeros(), 0
    for x in xs:
        h = cell(h, x)
        loss = loss + h.sum() / len(xs)
    return loss


def test_steps_that_ask_for_a_length_again_repeat_each_other() -> None:
    compiled = tj.compile(divided_by_the_length, wait=True)
    for length in (40, 25, 13, 60, 31):
        xs = parameter(length, 2, WIDTH, seed=length).detach()
        np.testing.assert_allclose(compiled(xs).item(), divided_by_the_length(xs).item(), rtol=1e-9)
    assert compiled.stats.traces <= 3 and compiled.stats.instances >= 2


def test_numbers_that_steps_carry_have_second_derivatives() -> None:
    def total(xs: Any) -> Any:
        h = tj.zeros((), dtype=tj.float64)
        for t in range(xs.shape[1]):
            h = tj.sin(h + xs[0, t])
            h = h + xs[1, t : t + 1].sum()
        return h

    compiled = tj.compile(total)
    for k, length in enumerate((12, 20, 20, 30, 20)):
        found = []
        for call in (compiled, total):
            xs = parameter(3, length, seed=k)
            (slope,) = tj.autograd.grad(call(xs), xs, create_graph=True)
            (slope * slope).sum().backward()
            found.append(xs.grad.numpy())
        np.testing.assert_allclose(*found, rtol=1e-9, atol=1e-12)
    assert compiled.stats.compiled_calls >= 2


def test_means_over_a_symbolic_batch_in_each_step_are_of_its_dtype() -> None:
    weight = tj.ones(3, dtype=tj.float32, requires_grad=True)

    def total(xs: Any, ys: Any) -> Any:
        h, loss = xs.new_zeros(xs.shape[1], 3), 0.0
        for x, y in zip(xs, ys, strict=True):
            h = (h * 0.5 + x * weight).tanh()
            loss = loss + (h * y).mean()
        return loss.detach(), tj.autograd.grad(loss, weight)[0]

    compiled = tj.compile(total)
    for k, (length, batch) in enumerate(((12, 2), (12, 2), (15, 2), (15, 3), (12, 4), (20, 5), (15, 3), (30, 7))):
        xs, ys = (parameter(length, batch, 3, seed=seed).detach().float() for seed in (k, k + 50))
        for x, y in zip(compiled(xs, ys), total(xs, ys), strict=True):
            assert x.dtype is y.dtype is tj.float32
            np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-5, atol=1e-6)
    assert compiled.stats.instances >= 2


def counters_compared(xs: Any) -> Any:
    h = xs[0]
    for t in range(xs.shape[0]):
        for s in range(3):
            if s + 10 < t:
                h = h * 0.5 + 1
            h = (h * 1.01).tanh()
    return h


def counters_equal(xs: Any) -> Any:
    h = xs[0]
    for t in range(xs.shape[0]):
        for s in range(9):
            if s + 17 == t:
                h = h * 0.5 + 1
            h = (h * 1.01).tanh()
    return h


def inner_counters_compared(xs: Any) -> Any:
    h = xs[0]
    for t in range(3):
        for s in range(xs.shape[0]):
            if t + 20 < s:
                h = h * 0.5 + 1
            h = (h * 1.01).tanh() + xs[s]
    return h


def counters_and_numbers_compared(xs: Any) -> Any:
    h, steps = xs[0], [3, 1, 2]
    for t in range(xs.shape[0]):
        for s in range(3):
            if s * 2 + steps[s] + 10 < t or s + 5 > t:
                h = h * 0.5 + steps[s]
            h = (h * 1.01).tanh()
    return h


@pytest.mark.parametrize("count", [20, 0])
@pytest.mark.parametrize("function", [counters_compared, counters_equal, inner_counters_compared, counters_and_numbers_compared])
def test_counters_of_several_loops_may_be_compared(function: Callable[..., Any], count: int) -> None:
    compiled = tj.compile(function)
    for k, length in enumerate([count] * 4 if count else (9, 25, 40, 31, 12, 60, 33)):
        xs = parameter(length, 2, WIDTH, seed=k).detach()
        np.testing.assert_allclose(compiled(xs).numpy(), function(xs).numpy(), rtol=1e-9, atol=1e-12)


def test_what_is_taken_apart_wrongly_raises_what_it_raises_eagerly() -> None:
    def repeated(xs: Any) -> Any:
        for x in xs.unbind(0, dim=0):
            xs = xs + x
        return xs

    def too_many(xs: Any) -> Any:
        for x in xs.split(1, 0, 0):
            xs = xs + x
        return xs

    for function in (repeated, too_many):
        compiled = tj.compile(function)
        for length in (9, 20, 31, 12):
            with pytest.raises(TypeError):
                compiled(inputs()[:length])


def kept_on_the_tape(h: Any, x: Any) -> Any:
    total = tj.zeros(3)
    for r in x:
        total += h.sin() * r
        with tj.no_grad():
            total.clamp_(-1, 1)
    return total


def kept_on_the_tape_from_before(h: Any, x: Any) -> Any:
    total = tj.zeros(3)
    for r in x:
        with tj.no_grad():
            total.add_(r)
        total.add_(h * h.detach())
    return total


@pytest.mark.parametrize("function", [kept_on_the_tape, kept_on_the_tape_from_before])
def test_writes_without_grad_leave_a_tensor_its_place_on_the_tape(function: Callable[..., Any]) -> None:
    compiled = tj.compile(function, wait=True)
    for count in (14, 14, 12, 16, 13):
        found = []
        for f in (function, compiled):
            h = tj.ones(3).requires_grad_()
            f(h, tj.ones(count, 3)).sum().backward()
            found.append(h.grad.numpy())  # type: ignore[union-attr]
        np.testing.assert_allclose(found[1], found[0], rtol=1e-5)


def written_through_detach(x: Any) -> Any:
    y, h = x.detach(), tj.zeros(3)
    for t in range(1, x.size(0)):
        h = h * 0.5 + x[t - 1]
        y[t] = h
    return h


def read_through_data(x: Any) -> Any:
    out = tj.zeros(x.size(0), 3)
    view, h = out.data, tj.zeros(3)
    for t in range(x.size(0)):
        out[t] = h
        h = h * 0.5 + view[t] + x[t]
    return h


def read_as_a_whole_through_data(x: Any) -> Any:
    total = tj.zeros(3)
    view, h = total.data, tj.zeros(3)
    for r in x:
        total += r
        h = h * 0.5 + view
    return h


def written_in_a_parameter(x: Any) -> Any:
    parameter = nn.Parameter(tj.ones(3))
    view, h = parameter.data, tj.zeros(3)
    for r in x:
        with tj.no_grad():
            parameter.mul_(0.9).add_(r)
        h = h + view
    return h


@pytest.mark.parametrize(
    "function", [written_through_detach, read_through_data, read_as_a_whole_through_data, written_in_a_parameter]
)
def test_what_is_written_is_read_through_whatever_has_the_same_memory(function: Callable[..., Any]) -> None:
    compiled = tj.compile(function, wait=True)
    for count in (12, 14, 15, 11, 13, 12):
        np.testing.assert_allclose(compiled(tj.ones(count, 3)).numpy(), function(tj.ones(count, 3)).numpy(), rtol=1e-5)


def test_steps_may_draw_from_generators_of_numpy() -> None:
    def drawing(x: Any) -> Any:
        h = tj.zeros(3)
        for t in range(x.size(0)):
            h = h * 0.5 + x[t] * (np.random.rand() * t)
        return h

    compiled = tj.compile(drawing, wait=True)
    for count in (12, 9, 15, 12, 9):
        found = []
        for f in (drawing, compiled):
            np.random.seed(count)
            found.append(f(tj.ones(count, 3)).numpy())
        np.testing.assert_allclose(found[1], found[0], rtol=1e-5)
