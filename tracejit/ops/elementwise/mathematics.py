"""Exponentials, logarithms, roots and powers, signs, and the activations that are primitives."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy

from tracejit.core import kernels
from tracejit.core.dtypes import bool_
from tracejit.core.numbers import settled
from tracejit.ops.creation import zero_gradient
from tracejit.ops.declare import FLOAT, elementwise, refuse_bool
from tracejit.ops.elementwise.arithmetic import mul
from tracejit.ops.elementwise.comparison import logical_or, where
from tracejit.ops.samples import binary, unary

__all__ = [
    "abs_",
    "deviation",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "pow_",
    "power",
    "reciprocal",
    "relu",
    "rsqrt",
    "sigmoid",
    "sign",
    "sqrt",
]  # fmt: skip

LN2 = math.log(2.0)
LN10 = math.log(10.0)


@elementwise(lambda b, x: b.exp(x), promotion=FLOAT, samples=unary(), ufunc=np.exp)
def exp(x: Any) -> Any:
    """Elementwise exponential."""


@exp.vjp(saves="out")
def _(c: Any, g: Any) -> Any:
    return g * c.outputs[0]


@elementwise(lambda b, x: b.exp2(x), promotion=FLOAT, samples=unary(), ufunc=np.exp2)
def exp2(x: Any) -> Any:
    """Elementwise 2 ** x."""


@exp2.vjp(saves="out")
def _(c: Any, g: Any) -> Any:
    return g * (c.outputs[0] * LN2)


@elementwise(lambda b, x: b.expm1(x), promotion=FLOAT, samples=unary(), ufunc=np.expm1)
def expm1(x: Any) -> Any:
    """Elementwise exp(x) - 1, accurate near zero."""


@expm1.vjp(saves="out")
def _(c: Any, g: Any) -> Any:
    return g * (c.outputs[0] + 1.0)


@elementwise(lambda b, x: b.log(x), promotion=FLOAT, samples=unary(0.3, 3.0), ufunc=np.log)
def log(x: Any) -> Any:
    """Elementwise natural logarithm."""


@log.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    return g / c.inputs[0]


@elementwise(lambda b, x: b.log2(x), promotion=FLOAT, samples=unary(0.3, 3.0), ufunc=np.log2)
def log2(x: Any) -> Any:
    """Elementwise logarithm to base 2."""


@log2.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    return g / (c.inputs[0] * LN2)


@elementwise(lambda b, x: b.log10(x), promotion=FLOAT, samples=unary(0.3, 3.0), ufunc=np.log10)
def log10(x: Any) -> Any:
    """Elementwise logarithm to base 10."""


@log10.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    return g / (c.inputs[0] * LN10)


@elementwise(lambda b, x: b.log1p(x), promotion=FLOAT, samples=unary(-0.7, 2.0), ufunc=np.log1p)
def log1p(x: Any) -> Any:
    """Elementwise log(1 + x), accurate near zero."""


log1p.named("Log1PBackward0")


@log1p.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    return g / (c.inputs[0] + 1.0)


def _logaddexp_lowering(b: Any, x: Any, y: Any) -> Any:
    difference = b.abs(x - y)
    return b.select(b.eq(x, y), x + LN2, b.maximum(x, y) + b.log1p(b.exp(-difference)))


@elementwise(_logaddexp_lowering, promotion=FLOAT, samples=binary(), ufunc=np.logaddexp)
def logaddexp(x: Any, y: Any) -> Any:
    """Elementwise log(exp(x) + exp(y)), without overflow."""


@logaddexp.vjp(saves="0 1")
def _(c: Any, g: Any) -> Any:
    x, y = c.inputs
    return g / (exp.of(y - x) + 1.0) if c.needs[0] else None, g / (exp.of(x - y) + 1.0) if c.needs[1] else None


@elementwise(lambda b, x: b.sqrt(x), promotion=FLOAT, samples=unary(0.3, 3.0), ufunc=np.sqrt)
def sqrt(x: Any) -> Any:
    """Elementwise square root; NaN for negative numbers."""


@sqrt.vjp(saves="out")
def _(c: Any, g: Any) -> Any:
    return g / (c.outputs[0] * 2.0)


@elementwise(lambda b, x: b.sqrt(x), promotion=FLOAT, samples=unary(0.3, 3.0))
def deviation(x: Any) -> Any:
    """Elementwise square root of a variance: its derivative is 0 at 0, where all values are the same, as PyTorch's std() has it."""
    return np.sqrt(x)


@deviation.vjp(saves="out")
def _(c: Any, g: Any) -> Any:
    (out,) = c.outputs
    return where.of(out == 0, 0.0, g / (out * 2.0))


@elementwise(lambda b, x: 1.0 / b.sqrt(x), promotion=FLOAT, samples=unary(0.3, 3.0))
def rsqrt(x: Any) -> Any:
    """Elementwise 1 / sqrt(x)."""
    return np.true_divide(1.0, np.sqrt(x))


@rsqrt.vjp(saves="out")
def _(c: Any, g: Any) -> Any:
    (out,) = c.outputs
    return g * (out * out * out * -0.5)


@elementwise(lambda b, x: 1.0 / x, promotion=FLOAT, samples=unary(0.3, 3.0), ufunc=np.reciprocal, evaluates=True)
def reciprocal(x: Any) -> Any:
    """Elementwise 1 / x."""
    return np.true_divide(1.0, x)


@reciprocal.vjp(saves="out")
def _(c: Any, g: Any) -> Any:
    (out,) = c.outputs
    return -g * (out * out)


@elementwise(lambda b, x: b.sigmoid(x), promotion=FLOAT, samples=unary(), loops="expit", most=kernels.LEAST - 1)
def sigmoid(x: Any) -> Any:
    """Elementwise 1 / (1 + exp(-x))."""
    return kernels.elementwise("sigmoid", scipy.special.expit, x)


@sigmoid.vjp(saves="out")
def _(c: Any, g: Any) -> Any:
    (out,) = c.outputs
    return g * (out * (1.0 - out))


@elementwise(lambda b, x: b.abs(x), name="abs", samples=unary(), ufunc=np.abs)
def abs_(x: Any) -> Any:
    """Elementwise absolute value."""


@abs_.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    return g * sign.of(c.inputs[0])


def _sign_lowering(b: Any, x: Any) -> Any:
    positive = b.select(x > 0, b.const(1, x.dtype), b.const(0, x.dtype))
    if x.dtype.category == 0 or not x.dtype.is_signed:
        return positive
    signed = b.select(x < 0, b.const(-1, x.dtype), positive)
    return b.select(b.isnan(x), x, signed) if x.dtype.is_floating_point else signed


@elementwise(_sign_lowering, samples=unary(), ufunc=np.sign, evaluates=True)
def sign(x: Any) -> Any:
    """Elementwise -1, 0 or 1 by the sign; NaN stays NaN.  The gradient is zero."""
    return x.copy() if getattr(x, "dtype", None) == np.bool_ else np.sign(x)


@sign.vjp()
def _(c: Any, g: Any) -> Any:
    return zero_gradient(c, g, 0)


@elementwise(lambda b, x: b.select(x <= 0, b.const(0, x.dtype), x), samples=unary())
def relu(x: Any) -> Any:
    """Elementwise max(x, 0), bools being what they are; NaN stays NaN.  The gradient at 0 is 0."""
    return np.array(x) if getattr(x, "dtype", None) == np.bool_ else kernels.elementwise("relu", _positive_part, x)


def _positive_part(x: Any) -> Any:
    return np.maximum(x, 0)


@relu.vjp(saves="out")
def _(c: Any, g: Any) -> Any:
    return where.of(c.outputs[0] <= 0, 0.0, g)


def _pow_lowering(b: Any, x: Any, y: Any) -> Any:
    """A constant exponent of 2 or 3 is multiplications (within 1.5 ulp), -1 a division, 0.5 a square root (but for -0.0 and minus
    infinity)."""
    exponent = getattr(y, "value", None)
    if x.dtype.is_floating_point and exponent is not None and exponent in (2, 3):
        return x * x if exponent == 2 else x * x * x
    if x.dtype.is_floating_point and exponent == -1:
        return 1.0 / x
    if x.dtype.is_floating_point and exponent == 0.5:
        return b.select(b.eq(x, -math.inf), -x, b.sqrt(x) + 0.0)
    return b.pow(x, y)


@elementwise(_pow_lowering, name="pow", traits=("no negative integers",), samples=binary(0.4, 2.0, -2.0, 2.0))
def pow_(x: Any, y: Any) -> Any:
    """Elementwise power.  Raises RuntimeError for integers raised to a negative Python integer, as PyTorch does; to negative elements of
    an integer tensor they give the integer part of the quotient (0 for 0).  Raises RuntimeError for two bools, as PyTorch does."""
    refuse_bool("pow", x, y)
    if type(y) is int and y < 0 and getattr(x, "dtype", np.dtype(float)).kind in "iu":
        raise RuntimeError(
            "pow(): integers to negative integer powers are not allowed; convert the base to a floating-point dtype"
        )
    if type(y) in (int, float) and y == 2:
        return np.multiply(x, x)
    if isinstance(y, np.ndarray) and y.dtype.kind == "i" and y.size and y.min() < 0:
        return _signed_integer_power(np.asarray(x), y)
    out = np.power(x, y)
    half = y == 0.5
    if half is True or (half is not False and half.any()):
        out = np.where(half, _power_of_a_half(x), out).astype(out.dtype, copy=False)
    return out


@pow_.simplified
def _(s: Any, x: Any, y: Any) -> Any:
    """x ** 2 is evaluated as x * x."""
    return s(mul, x, x) if type(y) is not bool and y == 2 and s.same(x) else None


def _power_of_a_half(x: Any) -> Any:
    """x ** 0.5 as C99 defines it.  The square root, which NumPy takes where the exponent is 0.5 throughout, is -0.0 at -0.0 and NaN at
    minus infinity."""
    out = np.sqrt(x) + 0
    return np.where(np.isneginf(x), -x, out) if np.any(np.isneginf(x)) else out


def _signed_integer_power(x: Any, y: Any) -> Any:
    reciprocal = np.where(x == 1, 1, np.where(x == -1, np.where(y & 1, -1, 1), 0))
    return np.where(y < 0, reciprocal, np.power(x, np.maximum(y, 0))).astype(y.dtype)


def power(input: Any, exponent: Any) -> Any:
    """Elementwise power, of two tensors or a tensor and a number, as PyTorch computes it: where the exponent is the number 0.5 or -0.5 by
    square roots (-0.0 at -0.0, NaN at minus infinity), else as C99 defines it.

    Raises RuntimeError for integers raised to a negative Python integer and for two tensors of bools."""
    exponent = settled(exponent)
    if isinstance(exponent, float) and exponent * 2 % 2 == 1:
        exponent = float(exponent)  # a constant of a recording: the exponents of its derivatives are halves, too
        if exponent in (0.5, -0.5):
            return pow_half(input, exponent=exponent)
    if isinstance(exponent, bool) and getattr(input, "dtype", None) is bool_:
        return logical_or(input, not exponent)
    return pow_(input, exponent)


@elementwise(
    lambda b, x, exponent: b.sqrt(x) if exponent > 0 else 1.0 / b.sqrt(x),
    promotion=FLOAT,
    samples=lambda: (*unary(0.3, 3.0, exponent=0.5)(), *unary(0.3, 3.0, exponent=-0.5)()),
)
def pow_half(x: Any, exponent: float) -> Any:
    """x to the power of 0.5 or -0.5, by way of the square root; its derivative is that of a power."""
    root = np.sqrt(x)
    return root if exponent > 0 else np.true_divide(1.0, root)


def _raised(x: Any, exponent: float) -> Any:
    """`power` of a number, inside a rule: the exponents of the derivatives of halves are halves, too."""
    return pow_half.of(x, exponent=exponent) if exponent in (0.5, -0.5) else pow_.of(x, exponent)


pow_half.named("PowBackward0")
pow_.named(lambda node: {(True, False): "PowBackward2", (False, False): "PowBackward1"}.get(node.numbers, "PowBackward0"))


@pow_half.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    exponent = c.attributes["exponent"]
    return g * (_raised(c.inputs[0], exponent - 1.0) * exponent)


@pow_.vjp(saves=("0 1", "0 1 out"))
def _(c: Any, g: Any) -> Any:
    x, y = c.inputs
    gx = gy = None
    if c.needs[0]:
        if isinstance(y, bool | int | float):  # stand-ins of numbers, too
            gx = zero_gradient(c, g, 0) if y == 0 else (g * (x * 2.0) if y == 2 else g * (_raised(x, y - 1) * y))
        else:
            gx = where.of(y == 0, 0.0, g * (y * pow_.of(x, y - 1.0)))
    if c.needs[1]:
        (out,) = c.outputs
        if isinstance(x, bool | int | float):
            slope = g * (out * (math.log(x) if x > 0 else -math.inf if x == 0 else math.nan))
            gy = where.of(y >= 0, 0.0, slope) if x == 0 else slope
        else:
            gy = where.of((x == 0) & (y >= 0), 0.0, g * (out * log.of(x)))
    return gx, gy
