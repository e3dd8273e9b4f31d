"""Trigonometric and hyperbolic functions and their inverses."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.ops.declare import FLOAT, elementwise
from tracejit.ops.elementwise.comparison import where
from tracejit.ops.elementwise.mathematics import rsqrt
from tracejit.ops.samples import binary, unary

__all__ = ["acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh", "hypot", "sin", "sinh", "tan", "tanh"]


@elementwise(lambda b, x: b.sin(x), promotion=FLOAT, samples=unary(), ufunc=np.sin)
def sin(x: Any) -> Any:
    """Elementwise sine of an angle in radians."""


@sin.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    return g * cos.of(c.inputs[0])


@elementwise(lambda b, x: b.cos(x), promotion=FLOAT, samples=unary(), ufunc=np.cos)
def cos(x: Any) -> Any:
    """Elementwise cosine of an angle in radians."""


@cos.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    return -g * sin.of(c.inputs[0])


@elementwise(lambda b, x: b.tanh(x), promotion=FLOAT, samples=unary(), ufunc=np.tanh)
def tanh(x: Any) -> Any:
    """Elementwise hyperbolic tangent."""


@tanh.vjp(saves="out")
def _(c: Any, g: Any) -> Any:
    (out,) = c.outputs
    return g * (1.0 - out * out)


@elementwise(lambda b, x: b.tan(x), promotion=FLOAT, samples=unary(-1.2, 1.2), ufunc=np.tan)
def tan(x: Any) -> Any:
    """Elementwise tangent of an angle in radians."""


@tan.vjp(saves="out")
def _(c: Any, g: Any) -> Any:
    (out,) = c.outputs
    return g * (1.0 + out * out)


@elementwise(lambda b, x: b.sinh(x), promotion=FLOAT, samples=unary(), ufunc=np.sinh)
def sinh(x: Any) -> Any:
    """Elementwise hyperbolic sine."""


@sinh.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    return g * cosh.of(c.inputs[0])


@elementwise(lambda b, x: b.cosh(x), promotion=FLOAT, samples=unary(), ufunc=np.cosh)
def cosh(x: Any) -> Any:
    """Elementwise hyperbolic cosine."""


@cosh.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    return g * sinh.of(c.inputs[0])


@elementwise(lambda b, x: b.asin(x), promotion=FLOAT, samples=unary(-0.9, 0.9), ufunc=np.arcsin)
def asin(x: Any) -> Any:
    """Elementwise angle whose sine is x; NaN outside [-1, 1]."""


@asin.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    (x,) = c.inputs
    return g * rsqrt.of(1.0 - x * x)


@elementwise(lambda b, x: b.acos(x), promotion=FLOAT, samples=unary(-0.9, 0.9), ufunc=np.arccos)
def acos(x: Any) -> Any:
    """Elementwise angle whose cosine is x; NaN outside [-1, 1]."""


@acos.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    (x,) = c.inputs
    return -g * rsqrt.of(1.0 - x * x)


@elementwise(lambda b, x: b.atan(x), promotion=FLOAT, samples=unary(), ufunc=np.arctan)
def atan(x: Any) -> Any:
    """Elementwise angle whose tangent is x."""


@atan.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    (x,) = c.inputs
    return g / (x * x + 1.0)


@elementwise(lambda b, x: b.asinh(x), promotion=FLOAT, samples=unary(), ufunc=np.arcsinh)
def asinh(x: Any) -> Any:
    """Elementwise inverse of the hyperbolic sine."""


@asinh.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    (x,) = c.inputs
    return g * rsqrt.of(x * x + 1.0)


@elementwise(lambda b, x: b.acosh(x), promotion=FLOAT, samples=unary(1.2, 3.0), ufunc=np.arccosh)
def acosh(x: Any) -> Any:
    """Elementwise inverse of the hyperbolic cosine; NaN below 1."""


@acosh.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    (x,) = c.inputs
    return g * rsqrt.of(x * x - 1.0)


@elementwise(lambda b, x: b.atanh(x), promotion=FLOAT, samples=unary(-0.9, 0.9), ufunc=np.arctanh)
def atanh(x: Any) -> Any:
    """Elementwise inverse of the hyperbolic tangent; NaN outside [-1, 1]."""


@atanh.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    (x,) = c.inputs
    return g / (1.0 - x * x)


@elementwise(lambda b, y, x: b.atan2(y, x), promotion=FLOAT, samples=binary(0.3, 2.0), ufunc=np.arctan2)
def atan2(y: Any, x: Any) -> Any:
    """Elementwise angle of the point (x, y), in (-pi, pi].  The gradient at the origin is 0."""


@atan2.vjp(saves="0 1")
def _(c: Any, g: Any) -> Any:
    y, x = c.inputs
    square = x * x + y * y
    scaled = where.of(square == 0, 0.0, g / square)
    return scaled * x if c.needs[0] else None, scaled * -y if c.needs[1] else None


@elementwise(lambda b, x, y: b.libm("hypot", x, y), promotion=FLOAT, samples=binary(0.3, 2.0), ufunc=np.hypot)
def hypot(x: Any, y: Any) -> Any:
    """Elementwise sqrt(x**2 + y**2) without overflow on the way."""


@hypot.vjp(saves=("0 out", "1 out"))
def _(c: Any, g: Any) -> Any:
    x, y = c.inputs
    (out,) = c.outputs
    return g * (x / out) if c.needs[0] else None, g * (y / out) if c.needs[1] else None
