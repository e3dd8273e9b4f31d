"""Rounding to integers, and questions about what kind of number an element is."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.core.dtypes import bool_
from tracejit.ops.creation import zero_gradient
from tracejit.ops.declare import FLOAT, elementwise
from tracejit.ops.elementwise.comparison import where
from tracejit.ops.samples import binary, unary

__all__ = ["ceil", "copysign", "floor", "isfinite", "isinf", "isnan", "rint", "signbit", "trunc"]


def _is_float(x: Any) -> bool:
    return getattr(x, "dtype", np.dtype(type(x))).kind == "f"


@elementwise(lambda b, x: b.floor(x), samples=unary(), ufunc=np.floor, evaluates=True)
def floor(x: Any) -> Any:
    """Elementwise largest integer not above x.  The gradient is zero."""
    return np.floor(x) if _is_float(x) else np.array(x)


@floor.vjp()
def _(c: Any, g: Any) -> Any:
    return zero_gradient(c, g, 0)


@elementwise(lambda b, x: b.ceil(x), samples=unary(), ufunc=np.ceil, evaluates=True)
def ceil(x: Any) -> Any:
    """Elementwise smallest integer not below x.  The gradient is zero."""
    return np.ceil(x) if _is_float(x) else np.array(x)


@ceil.vjp()
def _(c: Any, g: Any) -> Any:
    return zero_gradient(c, g, 0)


@elementwise(lambda b, x: b.trunc(x), samples=unary(), ufunc=np.trunc, evaluates=True)
def trunc(x: Any) -> Any:
    """Elementwise x without its fractional part.  The gradient is zero."""
    return np.trunc(x) if _is_float(x) else np.array(x)


@trunc.vjp()
def _(c: Any, g: Any) -> Any:
    return zero_gradient(c, g, 0)


@elementwise(lambda b, x: b.rint(x), samples=unary(), ufunc=np.rint, evaluates=True)
def rint(x: Any) -> Any:
    """Elementwise nearest integer, halves to the even one.  The gradient is zero."""
    return np.rint(x) if _is_float(x) else np.array(x)


@rint.vjp()
def _(c: Any, g: Any) -> Any:
    return zero_gradient(c, g, 0)


@elementwise(lambda b, x: b.isnan(x), result=bool_, samples=unary(), ufunc=np.isnan)
def isnan(x: Any) -> Any:
    """Whether each element is NaN."""


@elementwise(lambda b, x: b.isinf(x), result=bool_, samples=unary(), ufunc=np.isinf)
def isinf(x: Any) -> Any:
    """Whether each element is an infinity."""


@elementwise(lambda b, x: b.isfinite(x), result=bool_, samples=unary(), ufunc=np.isfinite)
def isfinite(x: Any) -> Any:
    """Whether each element is neither NaN nor an infinity."""


@elementwise(lambda b, x: b.signbit(x), result=bool_, samples=unary(), ufunc=np.signbit, evaluates=True)
def signbit(x: Any) -> Any:
    """Whether the sign bit of each element is set: true for -0.0; for integers whether it is negative."""
    return np.signbit(x) if _is_float(x) else np.less(x, 0)


@elementwise(lambda b, x, y: b.copysign(x, y), promotion=FLOAT, samples=binary(), ufunc=np.copysign)
def copysign(x: Any, y: Any) -> Any:
    """Elementwise magnitude of x with the sign of y."""


@copysign.vjp(saves=("0 out", ""))
def _(c: Any, g: Any) -> Any:
    gx = None
    if c.needs[0]:
        x, (out,) = c.inputs[0], c.outputs
        same = (x > 0) == (out > 0)
        gx = where.of(x == 0, 0.0, where.of(same, g, -g))
    return gx, zero_gradient(c, g, 1)
