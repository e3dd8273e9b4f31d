"""Tests of expressions: what the builder accepts, and that operators and `evaluate` mean what NumPy means."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from tracejit.core import dtypes
from tracejit.loops.evaluate import evaluate
from tracejit.loops.expressions import Apply, Const, Expr, Var, builder, topological
from tracejit.math import libm

b = builder
X, Y = Var("x", dtypes.float32), Var("y", dtypes.float32)
K, J = Var("i", dtypes.int32), Var("j", dtypes.int32)


def test_operators_build_what_numpy_computes() -> None:
    x, y = np.array([1.5, -2.0, 0.0], np.float32), np.array([0.5, 3.0, -1.0], np.float32)
    for built, expected in (
        (X + Y * 2 - 1, x + y * np.float32(2) - np.float32(1)),
        (1 / (Y + 4.0), np.float32(1) / (y + np.float32(4))),
        (-X, -x),
        (abs(X), abs(x)),
        ((X < Y) & ~(X >= 0) | (X == Y), (x < y) & ~(x >= 0) | (x == y)),
        (2 - X, 2 - x),
    ):
        result = evaluate(built, {X: x, Y: y})
        np.testing.assert_array_equal(result, expected)
        assert result.dtype == expected.dtype


def test_integer_operators_wrap_and_shift_as_numpy() -> None:
    i, j = np.array([2**31 - 1, -5, 7], np.int32), np.array([1, 40, -1], np.int32)
    for built, expected in (((K + 1) ^ J, (i + np.int32(1)) ^ j), (K << J, i << j), (K >> J, i >> j), (K * K, i * i)):
        np.testing.assert_array_equal(evaluate(built, {K: i, J: j}), expected)


def test_python_numbers_take_the_dtype_beside_them_and_wrap() -> None:
    u = Var("u", dtypes.uint8)
    assert (u + 300).dtype is dtypes.uint8
    constant = b.const(300, dtypes.uint8)
    assert isinstance(constant, Const) and constant.value == 44
    assert b.const(-1, dtypes.int64).value == -1  # type: ignore[attr-defined]


def test_mixed_dtypes_are_refused_with_both_names() -> None:
    with pytest.raises(TypeError, match="add: operands have dtypes float32, int32"):
        X + K
    with pytest.raises(TypeError, match="not defined for int32"):
        b.div(K, J)
    with pytest.raises(TypeError, match="no operand is an Expr"):
        b.add(1, 2)


def test_an_expression_has_no_truth_value() -> None:
    with pytest.raises(TypeError, match="no truth value"):
        bool(X < Y)


def test_expressions_are_told_apart_by_identity() -> None:
    assert len({X: 1, Var("x", dtypes.float32): 2}) == 2


def test_a_cast_to_the_same_dtype_is_nothing() -> None:
    assert b.cast(X, dtypes.float32) is X


def test_rounding_of_integers_is_nothing() -> None:
    assert b.floor(K) is K and b.rint(K) is K


def test_maximum_passes_nan_on_and_prefers_the_second_of_equals() -> None:
    x = np.array([np.nan, 1.0, -0.0, 0.0], np.float32)
    y = np.array([1.0, np.nan, 0.0, -0.0], np.float32)
    with np.errstate(invalid="ignore"):
        for built, expected in ((b.maximum(X, Y), np.maximum(x, y)), (b.minimum(X, Y), np.minimum(x, y))):
            result = evaluate(built, {X: x, Y: y})
            np.testing.assert_array_equal(result, expected)
            np.testing.assert_array_equal(np.signbit(result[2:]), np.signbit(y[2:]))


def test_a_long_chain_is_walked_without_recursion() -> None:
    e: Expr = X
    for _ in range(5000):
        e = e + 1.0
    assert evaluate(e, {X: np.float32(0)}) == 5000
    assert len(topological([e])) == 10001


def test_a_shared_node_is_visited_once_and_printed_briefly() -> None:
    e: Expr = X
    for _ in range(60):
        e = e + e
    assert len(topological([e])) == 61
    assert len(repr(e)) < 100
    assert isinstance(e, Apply)


def test_a_leaf_without_a_value_is_an_error() -> None:
    with pytest.raises(KeyError, match="no value"):
        evaluate(X + Y, {X: np.float32(1)})


def test_an_unknown_libm_function_is_named() -> None:
    with pytest.raises(ValueError, match="'nosuchf'"):
        evaluate(b.libm("nosuch", X), {X: np.float32(1)})


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fma_is_rounded_once(dtype: type) -> None:
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(2, 400)).astype(dtype)
    z = (-x * y).astype(dtype)  # cancels all but the rounding error
    z[200:] = generator.normal(size=200).astype(dtype) * dtype(1e-9)
    for r, p, q, s in zip(libm.fma(x, y, z), x, y, z, strict=True):
        exact = Fraction(float(p)) * Fraction(float(q)) + Fraction(float(s))
        error = abs(Fraction(float(r)) - exact)
        for neighbour in (np.nextafter(r, dtype(np.inf)), np.nextafter(r, dtype(-np.inf))):
            assert error <= abs(Fraction(float(neighbour)) - exact)


def test_float32_fma_is_not_rounded_twice() -> None:
    # the exact result is just above halfway between two float32, too little for float64 to see
    x, y, z = np.float32(1 + 2**-12), np.float32(1 + 2**-12), np.float32(2**-60)
    assert float(np.float64(x) * np.float64(y)) == 1 + 2**-11 + 2**-24
    assert libm.fma(x, y, z) == np.float32(1 + 2**-11 + 2**-23)
    assert libm.fma(x, y, np.float32(0)) == np.float32(1 + 2**-11)
    assert math.isnan(libm.fma(np.float32(np.inf), np.float32(0), np.float32(1)))


def test_integer_powers_wrap_and_negative_exponents_truncate() -> None:
    i, j = np.array([3, -2, 2, 0, -1, 1, 7], np.int32), np.array([4, 3, -1, 0, -3, -9, 30], np.int32)
    expected = [81, -8, 0, 1, -1, 1, np.power(np.int32(7), np.int32(30))]
    np.testing.assert_array_equal(evaluate(b.pow(K, J), {K: i, J: j}), expected)
