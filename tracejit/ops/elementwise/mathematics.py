"""Elementary functions of one number, and powers."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.special

from tracejit.ops.declare import FLOAT, elementwise
from tracejit.ops.elementwise.comparison import where

__all__ = ["abs_", "cos", "erf", "exp", "expm1", "log", "log1p", "pow_", "reciprocal", "relu", "rsqrt", "sigmoid", "sign", "sin", "sqrt", "tanh"]


@elementwise(lambda b, x: b.exp(x), promotion=FLOAT)
def exp(x: Any) -> Any:
    """Elementwise exponential."""
    return np.exp(x)


@exp.vjp(saves="out")
def _(c: Any, g: Any) -> Any:
    return g * c.outputs[0]


@elementwise(lambda b, x: b.expm1(x), promotion=FLOAT)
def expm1(x: Any) -> Any:
    """Elementwise exp(x) - 1, accurate near zero."""
    return np.expm1(x)


@expm1.vjp(saves="out")
def _(c: Any, g: Any) -> Any:
    return g * (c.outputs[0] + 1.0)


@elementwise(lambda b, x: b.log(x), promotion=FLOAT)
def log(x: Any) -> Any:
    """Elementwise natural logarithm."""
    return np.log(x)


@log.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    return g / c.inputs[0]


@elementwise(lambda b, x: b.log1p(x), promotion=FLOAT)
def log1p(x: Any) -> Any:
    """Elementwise log(1 + x), accurate near zero."""
    return np.log1p(x)


@log1p.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    return g / (c.inputs[0] + 1.0)


@elementwise(lambda b, x: b.sqrt(x), promotion=FLOAT)
def sqrt(x: Any) -> Any:
    """Elementwise square root; NaN for negative numbers."""
    return np.sqrt(x)


@sqrt.vjp(saves="out")
def _(c: Any, g: Any) -> Any:
    return g / (c.outputs[0] * 2.0)


@elementwise(lambda b, x: 1.0 / b.sqrt(x), promotion=FLOAT)
def rsqrt(x: Any) -> Any:
    """Elementwise 1 / sqrt(x)."""
    return np.true_divide(1.0, np.sqrt(x))


@rsqrt.vjp(saves="out")
def _(c: Any, g: Any) -> Any:
    (out,) = c.outputs
    return g * (out * out * out * -0.5)


@elementwise(lambda b, x: 1.0 / x, promotion=FLOAT)
def reciprocal(x: Any) -> Any:
    """Elementwise 1 / x."""
    return np.true_divide(1.0, x)


@reciprocal.vjp(saves="out")
def _(c: Any, g: Any) -> Any:
    (out,) = c.outputs
    return -g * (out * out)


@elementwise(lambda b, x: b.tanh(x), promotion=FLOAT)
def tanh(x: Any) -> Any:
    """Elementwise hyperbolic tangent."""
    return np.tanh(x)


@tanh.vjp(saves="out")
def _(c: Any, g: Any) -> Any:
    (out,) = c.outputs
    return g * (1.0 - out * out)


@elementwise(lambda b, x: b.sigmoid(x), promotion=FLOAT)
def sigmoid(x: Any) -> Any:
    """Elementwise 1 / (1 + exp(-x))."""
    return scipy.special.expit(x)


@sigmoid.vjp(saves="out")
def _(c: Any, g: Any) -> Any:
    (out,) = c.outputs
    return g * (out * (1.0 - out))


@elementwise(lambda b, x: b.sin(x), promotion=FLOAT)
def sin(x: Any) -> Any:
    """Elementwise sine of an angle in radians."""
    return np.sin(x)


@sin.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    return g * cos(c.inputs[0])


@elementwise(lambda b, x: b.cos(x), promotion=FLOAT)
def cos(x: Any) -> Any:
    """Elementwise cosine of an angle in radians."""
    return np.cos(x)


@cos.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    return -g * sin(c.inputs[0])


_TWO_OVER_SQRT_PI = 1.1283791670955126


@elementwise(lambda b, x: b.erf(x), promotion=FLOAT)
def erf(x: Any) -> Any:
    """Elementwise error function."""
    return scipy.special.erf(x)


@erf.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    (x,) = c.inputs
    return g * (exp(-x * x) * _TWO_OVER_SQRT_PI)


@elementwise(lambda b, x: b.abs(x), name="abs")
def abs_(x: Any) -> Any:
    """Elementwise absolute value."""
    return np.abs(x)


@abs_.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    return g * sign(c.inputs[0])


@elementwise(lambda b, x: b.sign(x))
def sign(x: Any) -> Any:
    """Elementwise -1, 0 or 1 by the sign; NaN stays NaN."""
    return x.copy() if getattr(x, "dtype", None) == np.bool_ else np.sign(x)


@sign.vjp()
def _(c: Any, g: Any) -> Any:
    return g * 0.0


@elementwise(lambda b, x: b.select(x <= 0, b.const(0, x.dtype), x))
def relu(x: Any) -> Any:
    """Elementwise max(x, 0); NaN stays NaN.  The gradient at 0 is 0."""
    return np.maximum(x, 0)


@relu.vjp(saves="out")
def _(c: Any, g: Any) -> Any:
    return g * (c.outputs[0] > 0)


@elementwise(lambda b, x, y: b.pow(x, y), name="pow")
def pow_(x: Any, y: Any) -> Any:
    """Elementwise power.  Raises RuntimeError for an integer raised to a negative integer, as PyTorch does."""
    if isinstance(y, int) and y < 0 and getattr(x, "dtype", np.dtype(float)).kind in "iu":
        raise RuntimeError("pow(): integers to negative integer powers are not allowed; convert the base to a floating-point dtype")
    if type(y) in (int, float):
        if y == 2:
            return np.multiply(x, x)
    return np.power(x, y)


@pow_.vjp(saves=("0 1", "0 1 out"))
def _(c: Any, g: Any) -> Any:
    x, y = c.inputs
    gx = gy = None
    if c.needs[0]:
        if isinstance(y, int | float):
            gx = g * 0.0 if y == 0 else (g * (x * 2.0) if y == 2 else g * (pow_(x, y - 1) * y))
        else:
            gx = where(y == 0, g * 0.0, g * (y * pow_(x, y - 1.0)))
    if c.needs[1]:
        (out,) = c.outputs
        gy = where((x == 0) & (y >= 0), g * 0.0, g * (out * log(x)))
    return gx, gy


