"""Powers: halves are square roots, and bools have those of Python's bools, eager and compiled."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from test_equality import FLOATS, both

import tracejit as T


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_power_of_a_half_is_a_square_root_where_the_exponent_is_a_number(dtype: type) -> None:
    """As in PyTorch: the two differ at -0.0 and minus infinity.  NumPy takes a square root where the exponent is 0.5 along a dimension."""
    x = np.array([-0.0, -np.inf, 4.0, 0.0, np.inf, np.nan, -1.0], dtype)
    half = np.full_like(x, 0.5)
    by_roots = np.array([-0.0, np.nan, 2.0, 0.0, np.inf, np.nan, np.nan], dtype)
    by_definition = np.array([0.0, np.inf, 2.0, 0.0, np.inf, np.nan, np.nan], dtype)
    inverse = np.array([-np.inf, np.nan, 0.5, np.inf, 0.0, np.nan, np.nan], dtype)
    for (eager, compiled), expected in (
        (both(lambda a: a**0.5, x), by_roots),
        (both(lambda a: T.pow(a, -0.5), x), inverse),
        (both(lambda a, b: a**b, x, half), by_definition),
        (both(lambda a, b: a**b, x, half[:1]), by_definition),
        (both(lambda a, b: a[:1] ** b, x, half[:1]), by_definition[:1]),
        (both(lambda a: a ** T.full((), 0.5, dtype=a.dtype), x), by_definition),
    ):
        for result in (eager, compiled):
            np.testing.assert_array_equal(result, expected)
            numbers = ~np.isnan(expected)
            np.testing.assert_array_equal(np.signbit(result)[numbers], np.signbit(expected)[numbers])
            assert result.dtype == dtype


def test_exponents_that_vary_from_call_to_call_are_halves_or_not() -> None:
    call = T.compile(lambda x, n: x**n)
    for n in (1.25, 2.5, 0.5, 1.5, -0.5, 3.25, 0.5):
        results = []
        for function in (call, lambda x, n: x**n):
            x = T.tensor([-0.0, -math.inf, 2.0], requires_grad=True)
            out = function(x, n)
            out.sum().backward()
            assert x.grad is not None
            results.append(np.stack([out.detach().numpy(), x.grad.numpy()]))
        np.testing.assert_allclose(results[0], results[1], rtol=1e-6)
        numbers = ~np.isnan(results[0])
        np.testing.assert_array_equal(np.signbit(results[0])[numbers], np.signbit(results[1])[numbers])
    assert call.stats.compiled_calls == 2


def test_a_bool_tensor_has_powers_of_python_bools_only() -> None:
    x = T.tensor([True, False])
    for power in (T.pow, T.compile(lambda a, b: T.pow(a, b))):
        for _ in range(2):
            assert power(x, True).tolist() == [True, False] and power(x, False).tolist() == [True, True]
            with pytest.raises(RuntimeError, match="bool"):
                power(x, x)


@pytest.mark.parametrize("function", [T.floor_divide, T.remainder, T.fmod])
def test_arithmetic_that_bools_lack_raises_in_eager_and_compiled(function: Callable[..., T.Tensor]) -> None:
    for call in (function, T.compile(function)):
        with pytest.raises(RuntimeError, match="bool"):
            call(T.tensor([True, False]), True)
