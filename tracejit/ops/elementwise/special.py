"""Special functions: the relatives of the error function and the gamma family."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy

from tracejit.core import kernels
from tracejit.ops.declare import FLOAT, ON_HOST, elementwise
from tracejit.ops.elementwise.mathematics import exp
from tracejit.ops.samples import cases, floats, unary

__all__ = ["digamma", "erf", "erfc", "erfinv", "hurwitz", "lgamma", "polygamma"]

FAR = -1e4  # below it polygamma and zeta are not added up term by term
TWO_OVER_SQRT_PI = 2.0 / math.sqrt(math.pi)


@elementwise(lambda b, x: b.erf(x), promotion=FLOAT, samples=unary(), loops="erf", most=kernels.LEAST - 1)
def erf(x: Any) -> Any:
    """Elementwise error function."""
    return kernels.elementwise("erf", scipy.special.erf, x)


@erf.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    (x,) = c.inputs
    return g * (exp.of(-x * x) * TWO_OVER_SQRT_PI)


@elementwise(lambda b, x: b.erfc(x), promotion=FLOAT, samples=unary(), loops="erfc", most=kernels.LEAST - 1)
def erfc(x: Any) -> Any:
    """Elementwise 1 - erf(x), accurate where erf(x) is near 1."""
    return kernels.elementwise("erfc", scipy.special.erfc, x)


@erfc.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    (x,) = c.inputs
    return g * (exp.of(-x * x) * -TWO_OVER_SQRT_PI)


@elementwise(lambda b, x: b.scipy("erfinv", x), promotion=FLOAT, samples=unary(-0.9, 0.9))
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


def _digamma_expression(b: Any, x: Any) -> Any:
    return b.select(b.eq(x, 0), b.copysign(b.const(math.inf, x.dtype), -x), b.scipy("psi", x))


@elementwise(_digamma_expression, promotion=FLOAT, samples=unary(0.3, 4.0))
def digamma(x: Any) -> Any:
    """Elementwise derivative of lgamma; NaN at negative integers, an infinity at 0 with the sign opposite to the zero's."""
    x = np.asarray(x)
    return np.where(x == 0, np.copysign(x.dtype.type(np.inf), -x), scipy.special.digamma(x))


@digamma.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    return g * polygamma.of(c.inputs[0], n=1)


@elementwise(
    ON_HOST,
    promotion=FLOAT,
    samples=cases((floats(4, low=0.5, high=3.0), {"n": 1}), (floats(2, 3, low=0.5, high=3.0).T, {"n": 2}), (floats(0), {"n": 1})),
)
def polygamma(x: Any, n: int) -> Any:
    """Elementwise n-th derivative of digamma, n at least 1: (-1) ** (n + 1) * n! * zeta(n + 1, x)."""
    x = np.asarray(x)
    return (float((-1) ** (n + 1)) * scipy.special.gamma(n + 1.0) * hurwitz(n + 1.0, x)).astype(x.dtype)


def hurwitz(s: Any, q: Any) -> Any:
    """The sum of (k + q) ** -s over k = 0, 1, ..., elementwise, in float64.

    SciPy adds up the terms with k < -q one by one, which has no end for large negative q.  For integers s the terms of all integers k are
    known by the fractional part f of q, zeta(s, f) + (-1) ** s * zeta(s, 1 - f), and those of negative k are (-1) ** s * zeta(s, 1 - q)
    (DLMF 25.11.4 on both sides of zero); for other s SciPy's answer is NaN, at the poles it is infinite."""
    s, q = np.asarray(s, np.float64), np.asarray(q, np.float64)
    far = (q < FAR) & (q != np.floor(q)) & (s == np.floor(s))
    near = scipy.special.zeta(s, np.where(far, 1.0, q))
    if not far.any():
        return near
    q = np.where(far, q, FAR - 0.5)
    f, sign = q - np.floor(q), np.where(s % 2 == 0, 1.0, -1.0)
    both = scipy.special.zeta(s, f) + sign * (scipy.special.zeta(s, 1.0 - f) - scipy.special.zeta(s, 1.0 - q))
    return np.where(far, both, near)


@polygamma.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    return g * polygamma.of(c.inputs[0], n=c.attributes["n"] + 1)
