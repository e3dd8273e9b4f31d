"""Modified Bessel functions of the first kind, plain and scaled by exp(-|x|)."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

from tracejit.ops.declare import FLOAT, elementwise
from tracejit.ops.elementwise.comparison import where
from tracejit.ops.elementwise.mathematics import sign
from tracejit.ops.samples import unary

__all__ = ["i0", "i0e", "i1", "i1e"]


def _evaluated(function: Any, x: Any) -> Any:
    x = np.asarray(x)
    return np.asarray(function(x)).astype(x.dtype)


@elementwise(lambda b, x: b.scipy("i0", x), promotion=FLOAT, samples=unary())
def i0(x: Any) -> Any:
    """Elementwise modified Bessel function of the first kind, of order 0."""
    return _evaluated(scipy.special.i0, x)


@i0.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    return g * i1.of(c.inputs[0])


@elementwise(lambda b, x: b.scipy("i0e", x), promotion=FLOAT, samples=unary())
def i0e(x: Any) -> Any:
    """Elementwise exp(-|x|) * i0(x)."""
    return _evaluated(scipy.special.i0e, x)


@i0e.vjp(saves="0 out")
def _(c: Any, g: Any) -> Any:
    (x,), (out,) = c.inputs, c.outputs
    return g * (i1e.of(x) - sign.of(x) * out)


@elementwise(lambda b, x: b.scipy("i1", x), promotion=FLOAT, samples=unary(0.2, 2.0))
def i1(x: Any) -> Any:
    """Elementwise modified Bessel function of the first kind, of order 1."""
    return _evaluated(scipy.special.i1, x)


@i1.vjp(saves="0 out")
def _(c: Any, g: Any) -> Any:
    (x,), (out,) = c.inputs, c.outputs
    return g * where.of(x == 0, 0.5, i0.of(x) - out / where.of(x == 0, 1.0, x))


@elementwise(lambda b, x: b.scipy("i1e", x), promotion=FLOAT, samples=unary(0.2, 2.0))
def i1e(x: Any) -> Any:
    """Elementwise exp(-|x|) * i1(x)."""
    return _evaluated(scipy.special.i1e, x)


@i1e.vjp(saves="0 out")
def _(c: Any, g: Any) -> Any:
    (x,), (out,) = c.inputs, c.outputs
    return g * where.of(x == 0, 0.5, i0e.of(x) - out * (sign.of(x) + 1.0 / where.of(x == 0, 1.0, x)))
