"""clamp() with numbers: NaN, zeros of both signs, limits that cross, integers, and gradients at the limits.  A limit of NaN gives NaN."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tracejit.ops.elementwise import comparison

NUMBERS = [-2.0, -0.5, -0.0, 0.0, 0.5, 2.0, float("inf"), float("-inf"), float("nan"), None]
LIMITS = [pair for pair in itertools.product(NUMBERS, repeat=2) if pair != (None, None)]


def by_comparisons(x: Any, low: Any, high: Any) -> Any:
    if any(limit is not None and np.isnan(limit) for limit in (low, high)):
        return np.full_like(x, np.nan)
    if low is not None:
        x = np.where(x < low, np.asarray(low, x.dtype), x)
    return x if high is None else np.where(x > high, np.asarray(high, x.dtype), x)


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("low", "high"), LIMITS)
def test_limits_choose_as_comparisons_do_bit_for_bit(
    low: Any, high: Any, dtype: Any, keeps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "_ZEROS_STAY", keeps and comparison._ZEROS_STAY)
    x = np.array([n for n in NUMBERS if n is not None] * 9 + [1e-42, -1e-42], dtype)
    found = T.clamp(T.from_numpy(x), low, high).numpy()
    expected = by_comparisons(x, low, high)
    assert found.dtype == dtype and np.array_equal(found, expected, equal_nan=True)
    assert np.array_equal(np.signbit(found)[~np.isnan(found)], np.signbit(expected)[~np.isnan(expected)])


@pytest.mark.parametrize(("low", "high"), [(-0.0, 1.0), (0.0, None), (None, -0.0), (0.5, -0.5), (-1, 1)])
def test_programs_choose_as_eager_mode_does(low: Any, high: Any) -> None:
    x = T.tensor([-2.0, -0.0, 0.0, 0.25, 3.0, float("nan")]).requires_grad_()

    def limited(x: Any) -> Any:
        out = T.clamp(x, low, high)
        return out.detach(), T.autograd.grad(out.sum(), x)[0]

    compiled, expected = T.compile(limited), limited(x)
    for _ in range(3):
        for one, other in zip(compiled(x), expected, strict=True):
            assert one.numpy().tobytes() == other.numpy().tobytes(), compiled.explain()


def test_the_gradient_is_that_of_what_is_within_the_limits_which_belong_to_it() -> None:
    x = T.tensor([-1.0, -0.5, 0.0, 0.5, 1.0]).requires_grad_()
    T.clamp(x, -0.5, 0.5).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [0, 1, 1, 1, 0]


def test_integers_stay_integers_with_limits_that_are_such() -> None:
    x = T.tensor([-3, 0, 7])
    assert T.clamp(x, -1, 5).tolist() == [-1, 0, 5] and T.clamp(x, -1, 5).dtype is T.int64
    assert T.clamp(x, max=2.5).tolist() == [-3, 0, 2.5] and T.clamp(x, max=2.5).dtype is T.float32
    assert T.clamp(T.tensor([1, 200], dtype=T.uint8), 3, 100).dtype is T.uint8
    assert T.clamp(T.tensor([1.0, 9.0]).half(), 2.0).dtype is T.float16
