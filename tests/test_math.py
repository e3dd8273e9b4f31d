"""Tests of the elementary functions: accuracy over their whole range, special values, and the ends of the range."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from nest_runner import run_compiled

from tracejit.core import dtypes
from tracejit.core.dtypes import DType
from tracejit.loops.evaluate import evaluate
from tracejit.loops.expressions import Load, Var, builder
from tracejit.loops.language import Axis, Buffer, For, Index, Nest, Store

b = builder
FLOATS = (dtypes.float32, dtypes.float64)
WIDE = np.longdouble
INF, NAN = np.inf, np.nan


def compiled(name: str, dtype: DType, *operands: np.ndarray) -> np.ndarray:
    """The function's values, by machine code (test_llvm_nests shows that the reference has the same bits)."""
    buffers, axis = [Buffer(f"x{k}", dtype) for k in range(len(operands))], Axis("i")
    out, at = Buffer("out", dtype), Index(((axis, 1),))
    value = getattr(b, name)(*(Load(x, at) for x in buffers))
    nest = Nest(name, (*buffers, out), (), (), (For(axis, operands[0].size, (Store(out, at, value),), vector=True),))
    result = np.empty_like(operands[0])
    assert run_compiled(nest, (*operands, result)) == 0
    return result


def logarithmic(low: float, high: float, count: int, seed: int) -> np.ndarray:
    return np.exp(np.random.default_rng(seed).uniform(np.log(low), np.log(high), count))


def uniform(low: float, high: float, count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(low, high, count)


def erf_and_erfc(x: Any) -> tuple[Any, Any]:
    """(erf by its series, erfc of |x| >= 2 by its continued fraction) in extended precision (Abramowitz and Stegun 7.1.6, 7.1.14)."""
    term = total = x * WIDE(2) / np.sqrt(WIDE(np.pi) + WIDE(1.2246467991473532e-16))
    for n in range(1, 120):
        term = term * (2 * x * x) / (2 * n + 1)
        total = total + term
    series = total * np.exp(-x * x)
    size = np.maximum(abs(x), 2)
    fraction = size
    for n in range(120, 0, -1):
        fraction = size + WIDE(n) / 2 / fraction
    tail = np.exp(-size * size) / fraction / np.sqrt(WIDE(np.pi) + WIDE(1.2246467991473532e-16))
    return series, tail


def erf_wide(x: Any) -> Any:
    series, tail = erf_and_erfc(x)
    return np.where(abs(x) < 2.5, series, np.copysign(1 - tail, x))


def erfc_wide(x: Any) -> Any:
    series, tail = erf_and_erfc(x)
    return np.where(abs(x) < 2, 1 - series, np.where(x < 0, 2 - tail, tail))


N = 20_000
CASES: dict[str, tuple[Callable[[Any], Any], Callable[[float, float], list[np.ndarray]]]] = {
    "exp": (np.exp, lambda low, high: [uniform(np.log(low), np.log(high), N, 1), uniform(-1, 1, N, 2)]),
    "exp2": (np.exp2, lambda low, high: [uniform(np.log2(low), np.log2(high), N, 1), uniform(-1, 1, N, 2)]),
    "expm1": (np.expm1, lambda low, high: [uniform(-50, np.log(high), N, 1), uniform(-1, 1, N, 2), logarithmic(low, 1, N, 3)]),
    "log": (np.log, lambda low, high: [logarithmic(low, high, N, 1), uniform(0.5, 2, N, 2)]),
    "log2": (np.log2, lambda low, high: [logarithmic(low, high, N, 1), uniform(0.5, 2, N, 2)]),
    "log10": (np.log10, lambda low, high: [logarithmic(low, high, N, 1), uniform(0.5, 2, N, 2)]),
    "log1p": (np.log1p, lambda low, high: [logarithmic(low, high, N, 1), uniform(-0.999, 1, N, 2), -logarithmic(low, 0.5, N, 3)]),
    "sin": (
        np.sin,
        lambda low, high: [
            uniform(-20, 20, N, 1),
            uniform(-1e5, 1e5, N, 2),
            np.arange(1, 3000) * np.pi / 2,
            logarithmic(low, high, 2000, 3),
        ],
    ),
    "cos": (
        np.cos,
        lambda low, high: [
            uniform(-20, 20, N, 1),
            uniform(-1e5, 1e5, N, 2),
            np.arange(1, 3000) * np.pi / 2,
            logarithmic(low, high, 2000, 3),
        ],
    ),
    "tan": (
        np.tan,
        lambda low, high: [
            uniform(-20, 20, N, 1),
            uniform(-1e5, 1e5, N, 2),
            np.arange(1, 3000) * np.pi / 4,
            logarithmic(low, high, 2000, 3),
        ],
    ),
    "sinh": (
        np.sinh,
        lambda low, high: [
            uniform(-np.log(high) - 0.6, np.log(high) + 0.6, N, 1),
            uniform(-2, 2, N, 2),
            logarithmic(low, 1, N, 3),
        ],
    ),
    "cosh": (np.cosh, lambda low, high: [uniform(-np.log(high) - 0.6, np.log(high) + 0.6, N, 1), uniform(-2, 2, N, 2)]),
    "asin": (np.arcsin, lambda low, high: [uniform(-1, 1, N, 1), 1 - logarithmic(1e-9, 0.1, N, 2), -logarithmic(low, 1, N, 3)]),
    "acos": (np.arccos, lambda low, high: [uniform(-1, 1, N, 1), 1 - logarithmic(1e-9, 0.1, N, 2), -logarithmic(low, 1, N, 3)]),
    "atan": (np.arctan, lambda low, high: [uniform(-2, 2, N, 1), logarithmic(low, high, N, 2), -logarithmic(0.1, 1e10, N, 3)]),
    "asinh": (
        np.arcsinh,
        lambda low, high: [uniform(-10, 10, N, 1), logarithmic(low, high, N, 2), -logarithmic(0.1, 1e10, N, 3)],
    ),
    "acosh": (np.arccosh, lambda low, high: [uniform(1, 10, N, 1), logarithmic(1, high, N, 2), 1 + logarithmic(1e-16, 1, N, 3)]),
    "atanh": (
        np.arctanh,
        lambda low, high: [uniform(-0.999, 1, N, 1), 1 - logarithmic(1e-6, 0.1, N, 2), -logarithmic(low, 0.9, N, 3)],
    ),
    "tanh": (np.tanh, lambda low, high: [uniform(-22, 22, N, 1), uniform(-1, 1, N, 2), logarithmic(low, 1, N, 3)]),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), lambda low, high: [uniform(np.log(low), 40, N, 1), uniform(-1, 1, N, 2)]),
    "erfc": (
        erfc_wide,
        lambda low, high: [uniform(-6.5, np.sqrt(np.log(high)) * 0.98, N, 1), uniform(-1, 1.2, N, 2), logarithmic(low, 1, N, 3)],
    ),
    "erf": (erf_wide, lambda low, high: [uniform(-6.5, 6.5, N, 1), uniform(-1.2, 1.2, N, 2), logarithmic(low, 1, N, 3)]),
}


def worst_ulp(actual: np.ndarray, exact: Any) -> float:
    """The greatest error in units in the last place of the exact value."""
    dtype = actual.dtype.type
    limits = np.finfo(dtype)
    spacing = np.ldexp(WIDE(1), np.maximum(np.frexp(exact)[1], limits.minexp + 1) - 1 - limits.nmant)
    with np.errstate(invalid="ignore"):
        error = np.where(actual == exact.astype(dtype), 0, abs(actual.astype(WIDE) - exact) / spacing)
    return float(error.max())


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 60, reason="needs extended precision to compare with")
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize("name", CASES)
def test_functions_are_within_two_and_a_half_units_in_the_last_place(name: str, dtype: DType) -> None:
    function, samples = CASES[name]
    limits = np.finfo(dtype.numpy)
    x = np.concatenate(samples(float(limits.smallest_subnormal), float(limits.max) * 0.99)).astype(dtype.numpy)
    assert worst_ulp(compiled(name, dtype, x), function(x.astype(WIDE))) <= 2.5


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 60, reason="needs extended precision to compare with")
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_atan2_is_within_two_and_a_half_units_in_the_last_place_in_all_quadrants(dtype: DType) -> None:
    limits = np.finfo(dtype.numpy)
    signs = np.random.default_rng(5).choice([-1.0, 1.0], (2, 2 * N))
    low, high = float(limits.smallest_subnormal), float(limits.max) * 0.99
    y, x = (
        (sign * np.concatenate([logarithmic(0.1, 10, N, seed), logarithmic(low, high, N, seed + 2)])).astype(dtype.numpy)
        for sign, seed in zip(signs, (1, 2), strict=True)
    )
    assert worst_ulp(compiled("atan2", dtype, y, x), np.arctan2(y.astype(WIDE), x.astype(WIDE))) <= 2.5


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_atan2_has_c99s_special_values(dtype: DType) -> None:
    limits = np.finfo(dtype.numpy)
    values = np.concatenate([SPECIALS, [limits.max, -limits.max, limits.smallest_subnormal, -limits.smallest_subnormal]])
    y, x = (v.ravel().astype(dtype.numpy) for v in np.meshgrid(values, values))
    expected, actual = np.arctan2(y, x), compiled("atan2", dtype, y, x)
    np.testing.assert_allclose(actual, expected, rtol=3 * float(limits.eps), atol=float(limits.smallest_subnormal))
    ordinary = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(actual[ordinary]), np.signbit(expected[ordinary]))


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 60, reason="needs extended precision to compare with")
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_pow_is_within_two_and_a_half_units_in_the_last_place(dtype: DType) -> None:
    limits = np.finfo(dtype.numpy)
    largest = float(np.log(limits.max)) * 0.99
    x = np.concatenate(
        [logarithmic(1e-30, 1e30, N, 1), 1 + uniform(-1e-3, 1e-3, N, 2), logarithmic(float(limits.smallest_subnormal), 1, N, 3)]
    )
    x = x.astype(dtype.numpy)
    with np.errstate(divide="ignore"):
        reach = np.minimum(largest / np.maximum(abs(np.log(x.astype(np.float64))), 1e-300), 1e30)
    y = (uniform(-1, 1, x.size, 4) * reach).astype(dtype.numpy)
    assert worst_ulp(compiled("pow", dtype, x, y), np.power(x.astype(WIDE), y.astype(WIDE))) <= 2.5


SPECIALS = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 3.0, -3.0, 2.5, INF, -INF, NAN])
MEANING: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "tanh": np.tanh,
}


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize("name", MEANING)
def test_special_values_are_numpys(name: str, dtype: DType) -> None:
    limits = np.finfo(dtype.numpy)
    x = np.concatenate(
        [SPECIALS, [limits.max, -limits.max, limits.tiny, limits.smallest_subnormal, -limits.smallest_subnormal, 1e5, -1e5]]
    )
    x = x.astype(dtype.numpy)
    with np.errstate(all="ignore"):
        expected = MEANING[name](x)
    actual = compiled(name, dtype, x)
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
    for category in (np.isinf, lambda v: v == 0):
        np.testing.assert_array_equal(category(actual), category(expected))
    ordinary = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(actual[ordinary]), np.signbit(expected[ordinary]))
    np.testing.assert_allclose(
        actual[ordinary], expected[ordinary], rtol=3 * float(limits.eps), atol=float(limits.smallest_subnormal)
    )


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_pow_has_c99s_special_values(dtype: DType) -> None:
    values = np.concatenate([SPECIALS, [1e-40, -1e-40, 1e30, -1e30, 4097.0, 0.1, -0.1]])
    x, y = (v.ravel().astype(dtype.numpy) for v in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        expected = np.power(x, y)
    actual = compiled("pow", dtype, x, y)
    np.testing.assert_allclose(actual, expected, rtol=3 * float(np.finfo(dtype.numpy).eps))
    ordinary = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(actual[ordinary]), np.signbit(expected[ordinary]))


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_saturated_functions_reach_their_limits_exactly(dtype: DType) -> None:
    x = np.array([50.0, -50.0, INF, -INF, 0.0, -0.0, NAN], dtype.numpy)
    np.testing.assert_array_equal(compiled("tanh", dtype, x), np.array([1, -1, 1, -1, 0, 0, NAN], dtype.numpy))
    np.testing.assert_array_equal(compiled("erf", dtype, x), np.array([1, -1, 1, -1, 0, 0, NAN], dtype.numpy))
    np.testing.assert_array_equal(compiled("erfc", dtype, x), np.array([0, 2, 0, 2, 1, 1, NAN], dtype.numpy))
    assert compiled("sigmoid", dtype, x)[[0, 2, 3, 4]].tolist() == [1, 1, 0, 0.5]
    assert np.signbit(compiled("erf", dtype, x)[5]) and np.isnan(compiled("sigmoid", dtype, x)[6])


def test_exp_underflows_gradually() -> None:
    x = np.linspace(-104, -87, 500).astype(np.float32)
    result = compiled("exp", dtypes.float32, x)
    exact = np.exp(x.astype(np.float64))
    assert (abs(result - exact) <= float(np.finfo(np.float32).smallest_subnormal)).all()
    assert 0 < result[100] < np.finfo(np.float32).tiny


@pytest.mark.parametrize("name", ["exp2", "log2"])
def test_powers_of_two_are_exact(name: str) -> None:
    exponents = np.arange(-1074, 1024).astype(np.float64)
    powers = np.ldexp(1.0, exponents.astype(int))
    x, expected = (exponents, powers) if name == "exp2" else (powers, exponents)
    np.testing.assert_array_equal(compiled(name, dtypes.float64, x), expected)


def test_pow_of_small_integers_is_exact() -> None:
    x, y = (v.ravel().astype(np.float64) for v in np.meshgrid(np.arange(1, 30), np.arange(0, 10)))
    np.testing.assert_array_equal(compiled("pow", dtypes.float64, x, y), x**y)


def test_definitions_do_not_depend_on_each_other_through_state() -> None:
    x = Var("x", dtypes.float64)
    first = evaluate(b.tanh(b.exp(x)), {x: np.float64(0.3)})
    assert first == evaluate(b.tanh(b.exp(x)), {x: np.float64(0.3)})
