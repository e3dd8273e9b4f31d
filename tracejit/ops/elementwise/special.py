"""Special functions: the relatives of the error function and the gamma family."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy

from tracejit.ops.declare import FLOAT, elementwise
from tracejit.ops.elementwise.mathematics import exp
from tracejit.ops.samples import cases, floats, unary

__all__ = ["digamma", "erf", "erfc", "erfinv", "lgamma", "polygamma"]

TWO_OVER_SQRT_PI = 2.0 / math.sqrt(math.pi)


@elementwise(lambda b, x: b.erf(x), promotion=FLOAT, samples=unary())
def erf(x: Any) -> Any:
    """Elementwise error function."""
    return scipy.special.erf(x)


@erf.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    (x,) = c.inputs
    return g * (exp.of(-x * x) * TWO_OVER_SQRT_PI)


@elementwise(lambda b, x: b.erfc(x), promotion=FLOAT, samples=unary())
def erfc(x: Any) -> Any:
    """Elementwise 1 - erf(x), accurate where erf(x) is near 1."""
    return scipy.special.erfc(x)


@erfc.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    (x,) = c.inputs
    return g * (exp.of(-x * x) * -TWO_OVER_SQRT_PI)


@elementwise(promotion=FLOAT, samples=unary(-0.9, 0.9))
def erfinv(x: Any) -> Any:
    """Elementwise inverse of the error function; infinite at -1 and 1, NaN outside."""
    return scipy.special.erfinv(x)


@erfinv.vjp(saves="out")
def _(c: Any, g: Any) -> Any:
    (out,) = c.outputs
    return g * (exp.of(out * out) * (1.0 / TWO_OVER_SQRT_PI))


@elementwise(lambda b, x: b.libm("lgamma", x), promotion=FLOAT, samples=unary(0.3, 4.0))
def lgamma(x: Any) -> Any:
    """Elementwise logarithm of the absolute value of the gamma function."""
    known = np.where(x == -np.inf, np.inf, scipy.special.gammaln(x))  # as in C; SciPy's answer is -inf
    return np.where(np.abs(x) < np.finfo(x.dtype).tiny, -np.log(np.abs(x)), known)  # and inf for subnormal numbers


@lgamma.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    return g * digamma.of(c.inputs[0])


@elementwise(promotion=FLOAT, samples=unary(0.3, 4.0))
def digamma(x: Any) -> Any:
    """Elementwise derivative of lgamma; NaN at negative integers, an infinity at 0 with the sign opposite to the zero's."""
    x = np.asarray(x)
    return np.where(x == 0, np.copysign(x.dtype.type(np.inf), -x), scipy.special.digamma(x))


@digamma.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    return g * polygamma.of(c.inputs[0], n=1)


@elementwise(
    promotion=FLOAT,
    samples=cases((floats(4, low=0.5, high=3.0), {"n": 1}), (floats(2, 3, low=0.5, high=3.0).T, {"n": 2}), (floats(0), {"n": 1})),
)
def polygamma(x: Any, n: int) -> Any:
    """Elementwise n-th derivative of digamma."""
    x = np.asarray(x)
    return scipy.special.polygamma(n, x).astype(x.dtype)


@polygamma.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    return g * polygamma.of(c.inputs[0], n=c.attributes["n"] + 1)
