"""Trigonometric and hyperbolic functions and their inverses."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.ops.declare import FLOAT, elementwise
from tracejit.ops.elementwise.comparison import where
from tracejit.ops.elementwise.mathematics import rsqrt
from tracejit.ops.samples import binary, unary

__all__ = ["acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh", "hypot", "sin", "sinh", "tan", "tanh"]


@elementwise(lambda b, x: b.sin(x), promotion=FLOAT, samples=unary())
def sin(x: Any) -> Any:
    """Elementwise sine of an angle in radians."""
    return np.sin(x)


@sin.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    return g * cos(c.inputs[0])


@elementwise(lambda b, x: b.cos(x), promotion=FLOAT, samples=unary())
def cos(x: Any) -> Any:
    """Elementwise cosine of an angle in radians."""
    return np.cos(x)


@cos.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    return -g * sin(c.inputs[0])


@elementwise(lambda b, x: b.tanh(x), promotion=FLOAT, samples=unary())
def tanh(x: Any) -> Any:
    """Elementwise hyperbolic tangent."""
    return np.tanh(x)


@tanh.vjp(saves="out")
def _(c: Any, g: Any) -> Any:
    (out,) = c.outputs
    return g * (1.0 - out * out)


@elementwise(lambda b, x: b.tan(x), promotion=FLOAT, samples=unary(-1.2, 1.2))
def tan(x: Any) -> Any:
    """Elementwise tangent of an angle in radians."""
    return np.tan(x)


@tan.vjp(saves="out")
def _(c: Any, g: Any) -> Any:
    (out,) = c.outputs
    return g * (1.0 + out * out)


@elementwise(lambda b, x: b.sinh(x), promotion=FLOAT, samples=unary())
def sinh(x: Any) -> Any:
    """Elementwise hyperbolic sine."""
    return np.sinh(x)


@sinh.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    return g * cosh(c.inputs[0])


@elementwise(lambda b, x: b.cosh(x), promotion=FLOAT, samples=unary())
def cosh(x: Any) -> Any:
    """Elementwise hyperbolic cosine."""
    return np.cosh(x)


@cosh.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    return g * sinh(c.inputs[0])


@elementwise(lambda b, x: b.asin(x), promotion=FLOAT, samples=unary(-0.9, 0.9))
def asin(x: Any) -> Any:
    """Elementwise angle whose sine is x; NaN outside [-1, 1]."""
    return np.arcsin(x)


@asin.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    (x,) = c.inputs
    return g * rsqrt(1.0 - x * x)


@elementwise(lambda b, x: b.acos(x), promotion=FLOAT, samples=unary(-0.9, 0.9))
def acos(x: Any) -> Any:
    """Elementwise angle whose cosine is x; NaN outside [-1, 1]."""
    return np.arccos(x)


@acos.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    (x,) = c.inputs
    return -g * rsqrt(1.0 - x * x)


@elementwise(lambda b, x: b.atan(x), promotion=FLOAT, samples=unary())
def atan(x: Any) -> Any:
    """Elementwise angle whose tangent is x."""
    return np.arctan(x)


@atan.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    (x,) = c.inputs
    return g / (x * x + 1.0)


@elementwise(lambda b, x: b.asinh(x), promotion=FLOAT, samples=unary())
def asinh(x: Any) -> Any:
    """Elementwise inverse of the hyperbolic sine."""
    return np.arcsinh(x)


@asinh.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    (x,) = c.inputs
    return g * rsqrt(x * x + 1.0)


@elementwise(lambda b, x: b.acosh(x), promotion=FLOAT, samples=unary(1.2, 3.0))
def acosh(x: Any) -> Any:
    """Elementwise inverse of the hyperbolic cosine; NaN below 1."""
    return np.arccosh(x)


@acosh.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    (x,) = c.inputs
    return g * rsqrt(x * x - 1.0)


@elementwise(lambda b, x: b.atanh(x), promotion=FLOAT, samples=unary(-0.9, 0.9))
def atanh(x: Any) -> Any:
    """Elementwise inverse of the hyperbolic tangent; NaN outside [-1, 1]."""
    return np.arctanh(x)


@atanh.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    (x,) = c.inputs
    return g / (1.0 - x * x)


@elementwise(lambda b, y, x: b.atan2(y, x), promotion=FLOAT, samples=binary(0.3, 2.0))
def atan2(y: Any, x: Any) -> Any:
    """Elementwise angle of the point (x, y), in (-pi, pi].  The gradient at the origin is 0."""
    return np.arctan2(y, x)


@atan2.vjp(saves="0 1")
def _(c: Any, g: Any) -> Any:
    y, x = c.inputs
    square = x * x + y * y
    scaled = where(square == 0, 0.0, g / square)
    return scaled * x if c.needs[0] else None, scaled * -y if c.needs[1] else None


@elementwise(lambda b, x, y: b.libm("hypot", x, y), promotion=FLOAT, samples=binary(0.3, 2.0))
def hypot(x: Any, y: Any) -> Any:
    """Elementwise sqrt(x**2 + y**2) without overflow on the way."""
    return np.hypot(x, y)


@hypot.vjp(saves=("0 out", "1 out"))
def _(c: Any, g: Any) -> Any:
    x, y = c.inputs
    (out,) = c.outputs
    return g * (x / out) if c.needs[0] else None, g * (y / out) if c.needs[1] else None
