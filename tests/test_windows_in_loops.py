"""Loops of Python whose steps read several rows that lie side by side, some of which the next step reads as well, or rows at multiples of
their number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracejit as tj
from tests.loop_programs import LENGTHS as ALL
from tests.loop_programs import WIDTH, W, agree, cell, of_any_length, parameter, zeros

LENGTHS = (40, 25, 60, 2, 0, 4, 1, 17)
KERNEL = parameter(3, 1, WIDTH, seed=3)


def autoregressive(xs: Any) -> Any:
    h, series = zeros(), xs.detach()
    for t in range(3, xs.shape[0]):
        h = cell(h, (series[t - 3 : t] * KERNEL).sum(0))
    return h


def errors_of_predictions(xs: Any) -> Any:
    loss, series = 0.0, xs.detach()
    for t in range(3, len(xs)):
        loss = loss + (((KERNEL * series[t - 3 : t]).sum(0) - series[t]) ** 2).sum()
    return loss


def convolved(xs: Any) -> Any:
    series, out = xs.detach(), []
    for t in range(xs.shape[0] - 2):
        out.append((series[t : t + 3] * KERNEL).sum(0))
    return tj.stack(out)


def smoothed(xs: Any) -> Any:
    series = xs.detach()
    out = series.clone()
    for t in range(2, xs.shape[0] - 2):
        out[t] = series[t - 2 : t + 3].mean(0)
    return out


def along_the_second_dimension(xs: Any) -> Any:
    h, series = zeros(), xs.detach().transpose(0, 1).contiguous()
    for t in range(xs.shape[0] - 1):
        h = cell(h, series[:, t : t + 2].sum(1))
    return h


def backwards(xs: Any) -> Any:
    h, series = zeros(), xs.detach()
    for t in range(xs.shape[0] - 3, -1, -1):
        h = cell(h, series[t : t + 3].prod(0))
    return h


def some_rows_apart(xs: Any) -> Any:
    h, series = zeros(), xs.detach()
    for t in range(0, xs.shape[0] - 2, 2):
        h = cell(h, series[t : t + 3].sum(0))
    return h


def of_two_lengths(xs: Any) -> Any:
    h, series = zeros(), xs.detach()
    for t in range(2, xs.shape[0] - 1):
        h = cell(h, series[t - 2 : t].sum(0) - series[t - 1 : t + 2].mean(0) * series[t])
    return h


def carried_on(xs: Any) -> Any:
    h, series = zeros(), xs.detach()
    before = series[0:2]
    for t in range(1, xs.shape[0] - 1):
        now = series[t : t + 2]
        h = cell(h, (now * before).sum(0))
        before = now
    return h


def beside_a_fixed_one(xs: Any) -> Any:
    h, series = zeros(), xs.detach()
    for t in range(xs.shape[0]):
        h = cell(h, series[t] * series[1:4].sum(0))
    return h


@pytest.mark.parametrize(
    "function",
    [
        autoregressive, errors_of_predictions, convolved, smoothed, along_the_second_dimension, backwards, some_rows_apart,
        of_two_lengths, carried_on, beside_a_fixed_one,
    ],
)  # fmt: skip
def test_windows_are_of_any_number(function: Callable[..., Any]) -> None:
    compiled = of_any_length(function, LENGTHS, (27, 66))
    assert compiled.stats.traces <= 5 + sum(length < 17 for length in LENGTHS)


def with_gradients(xs: Any) -> Any:
    h, series = zeros(), xs * 2
    for t in range(xs.shape[0] - 2):
        h = cell(h, series[t : t + 3].sum(0))
    return h


def growing(xs: Any) -> Any:
    h, series = zeros(), xs.detach()
    for t in range(1, xs.shape[0]):
        h = cell(h, series[:t].mean(0))
    return h


def collected(xs: Any) -> Any:
    out, series = [], xs.detach()
    for t in range(xs.shape[0] - 2):
        out.append(series[t : t + 3])
    out[0].mul_(2)
    return tj.stack(out), out[-1], series


def written(xs: Any) -> Any:
    series = xs.detach().clone()
    for t in range(xs.shape[0] - 2):
        series[t : t + 2] = series[t + 1 : t + 3] * 0.5
    return series


def written_beside(xs: Any) -> Any:
    h, series = zeros(), xs.detach().clone()
    for t in range(xs.shape[0] - 2):
        h = h * 0.5 + series[t : t + 2].sum(0)
        series[t + 1] = h
    return h, series


def in_place(xs: Any) -> Any:
    series = xs.detach().clone()
    for t in range(xs.shape[0] - 2):
        series[t : t + 3].mul_(0.5)
    return series


def without_elements(xs: Any) -> Any:
    h, series = zeros(), xs.detach()
    for t in range(xs.shape[0]):
        h = cell(h, series[t:t].sum(0) + series[t])
    return h


def past_the_end(xs: Any) -> Any:
    h, series = zeros(), xs.detach()
    for t in range(xs.shape[0]):
        h = cell(h, series[t : t + 3].sum(0))
    return h


def before_the_beginning(xs: Any) -> Any:
    h, series = zeros(), xs.detach()
    for t in range(xs.shape[0]):
        h = cell(h, series[t - 2 : t + 1].sum(0))
    return h


@pytest.mark.parametrize(
    "function",
    [
        with_gradients,
        growing,
        collected,
        written,
        written_beside,
        in_place,
        without_elements,
        past_the_end,
        before_the_beginning,
    ],
)
def test_steps_that_do_more_with_windows_give_what_eager_calls_give(function: Callable[..., Any]) -> None:
    agree(tj.compile(function), function, ALL)


def test_a_loop_over_windows_has_the_bits_of_its_steps() -> None:
    """Sums of the same length in the same order: nothing is a kernel of its own."""

    def decayed(series: Any) -> Any:
        h = tj.zeros(3, dtype=tj.float64)
        for t in range(series.shape[0] - 2):
            h = h * 0.9 + series[t : t + 3]
        return h, tj.autograd.grad((h * W[0, :3]).sum(), W)[0]

    compiled = tj.compile(decayed)
    for length in (20, 33, 57, 24, 90):
        series = parameter(length, seed=length).detach()
        for x, y in zip(compiled(series), decayed(series), strict=True):
            np.testing.assert_array_equal(x.numpy(), y.numpy())
    assert compiled.stats.instances >= 2


# -- positions at multiples of the number of the step


def parts_of_four(xs: Any) -> Any:
    h, series = zeros(), xs.detach()
    for k in range(len(xs) // 4):
        h = cell(h, series[k * 4 : (k + 1) * 4].mean(0))
    return h


def parts_from_a_position_on(xs: Any) -> Any:
    h, series = zeros(), xs.detach()
    for k in range(xs.shape[0] // 4):
        h = cell(h, series[4 * k + 1 : 4 * k + 3].sum(0))
    return h


def in_pairs(xs: Any) -> Any:
    h = zeros()
    for k in range(len(xs) // 2):
        h = cell(h, xs[2 * k] - xs[2 * k + 1])
    return h


def in_pairs_from_the_end(xs: Any) -> Any:
    h, n = zeros(), len(xs)
    for k in range(n // 2):
        h = cell(h, xs[n - 1 - 2 * k])
    return h


def every_other_row_written(xs: Any) -> Any:
    out = tj.zeros(len(xs), 2, WIDTH, dtype=tj.float64)
    for k in range(len(xs) // 2):
        out[2 * k] = xs[2 * k + 1] * 2
    return out


def in_loops(xs: Any) -> Any:
    h = zeros()
    for k in range(len(xs) // 4):
        for j in range(4):
            h = cell(h, xs[k * 4 + j])
    return h


def of_a_number_that_is_kept(xs: Any) -> Any:
    h, k = zeros(), 0
    for _ in range(len(xs) // 2):
        h = cell(h, xs[k * 2])
        k += 1
    return h, k


@pytest.mark.parametrize(
    "function",
    [
        parts_of_four, parts_from_a_position_on, in_pairs, in_pairs_from_the_end, every_other_row_written, in_loops,
        of_a_number_that_is_kept,
    ],
)  # fmt: skip
def test_positions_may_be_multiples(function: Callable[..., Any]) -> None:
    of_any_length(function, (40, 64, 81, 7, 3, 12, 0, 44), (92, 85))


def negative_multiples(xs: Any) -> Any:
    h = zeros()
    for k in range(len(xs) // 2):
        h = cell(h, xs[-2 * k - 1])
    return h


def multiples_of_nothing(xs: Any) -> Any:
    h = zeros()
    for k in range(len(xs)):
        h = cell(h, xs[0 * k])
    return h


def squares(xs: Any) -> Any:
    h, k = zeros(), 0
    while k * k < len(xs):
        h = cell(h, xs[k * k])
        k += 1
    return h


def multiples_of_a_number_that_changes(xs: Any) -> Any:
    h, factor = zeros(), 1
    for k in range(len(xs) // 4):
        h = cell(h, xs[k * factor])
        factor = 3 - factor
    return h


@pytest.mark.parametrize("function", [negative_multiples, multiples_of_nothing, squares, multiples_of_a_number_that_changes])
def test_other_products_as_positions_give_what_eager_calls_give(function: Callable[..., Any]) -> None:
    agree(tj.compile(function), function, ALL)


# -- numbers from outside as parts of positions


class Settings:
    batch = 4
    shift = 2


def batches(xs: Any) -> Any:
    h, series = zeros(), xs.detach()
    for k in range(len(xs) // Settings.batch):
        h = cell(h, series[k * Settings.batch : (k + 1) * Settings.batch].mean(0))
    return h


def starts_of_batches(xs: Any) -> Any:
    h = zeros()
    for start in range(0, len(xs) - Settings.batch + 1, Settings.batch):
        h = cell(h, xs[start])
    return h


def differences_over_a_while(xs: Any) -> Any:
    h = zeros()
    for t in range(len(xs) - Settings.shift):
        h = cell(h, xs[t + Settings.shift] - xs[t])
    return h


@pytest.mark.parametrize("function", [batches, starts_of_batches, differences_over_a_while])
def test_integers_from_outside_are_parts_of_positions(function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = (40, 64, 48, 80, 44, 63)
    compiled = of_any_length(function, lengths, (92, 68, 71))
    monkeypatch.setattr(Settings, "batch", 5)
    monkeypatch.setattr(Settings, "shift", 3)
    agree(compiled, function, (*lengths, 3, 0, 7))


def test_integers_from_outside_stay_operands_in_loops_of_one_length() -> None:
    def function(xs: Any, settings: Any) -> Any:
        h = zeros()
        for t in range(12):
            h = cell(h, xs[t + settings.shift] - xs[t * settings.batch])
        return h

    compiled = tj.compile(function)
    settings = Settings()
    for k in range(12):
        settings.shift, settings.batch = k, 1 + k % 3
        xs = parameter(40, 2, WIDTH, seed=k).detach()
        np.testing.assert_allclose(compiled(xs, settings).detach(), function(xs, settings).detach(), rtol=1e-12)
    assert compiled.stats.traces == 1, compiled.explain()
