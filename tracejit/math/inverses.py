"""Elementary functions: the inverses of the circular and hyperbolic functions.

The same promises as exponential.py.  atan reduces to [0, 1] by a reciprocal, atan2 by the quotient of the smaller and the greater
operand; asin and acos reduce to [0, 1/2] by the half-angle formula, as fdlibm (Sun, 1993).  asinh, acosh and atanh are log1p of the
arguments that Abramowitz and Stegun 4.6.20-22 give, free of cancellation; where squares would overflow, log(2 x).  The last sum before
a logarithm is kept with its rounding error, as log1p keeps that of 1 + x.
"""

from __future__ import annotations

from typing import Final

from tracejit.core import dtypes
from tracejit.loops.expressions import Expr, builder
from tracejit.math import exponential
from tracejit.math.exponential import FORMATS, INFINITY, horner

__all__ = ["acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh"]

b = builder
# pi/2: the nearest float, and the rest
_HALF_PI: Final = {
    dtypes.float32: (1.5707963705062866, -4.371139000186241e-08),
    dtypes.float64: (1.5707963267948966, 6.123233995736766e-17),
}
# (atan(t) - t) / t**3 in powers of t**2, for t in [0, 1]
_ATAN: Final = {
    dtypes.float32: (
        -0.0017822029,
        0.010866477,
        -0.031093815,
        0.057879057,
        -0.08399214,
        0.10950862,
        -0.14264014,
        0.1999853,
        -0.333333,
    ),
    dtypes.float64: (
        -2.0259944988238665e-05,
        0.00022303555028839198,
        -0.0011641290465271988,
        0.0038561275385200974,
        -0.009184837386297037,
        0.016978403340329466,
        -0.025827160558358896,
        0.034068086032082306,
        -0.040926542766150056,
        0.046739568591228624,
        -0.052392355296511366,
        0.05877308446490668,
        -0.06665860499395397,
        0.07692212950859748,
        -0.09090901237558685,
        0.11111110678905425,
        -0.1428571427134187,
        0.1999999999975519,
        -0.3333333333333186,
    ),
}
# (asin(t) - t) / t**3 in powers of t**2, for t in [0, 1/2]
_ASIN: Final = {
    dtypes.float32: (0.042157903, 0.024184939, 0.045469135, 0.074953094, 0.16666752),
    dtypes.float64: (
        0.03191443297647065,
        -0.016227311753087958,
        0.019530150649854163,
        0.00652731060727174,
        0.012169359425619954,
        0.013885213916758418,
        0.017359706838811453,
        0.022371757920678668,
        0.03038195914200573,
        0.04464285682821641,
        0.07500000000337137,
        0.16666666666665408,
    ),
}
_FAR: Final = {dtypes.float32: 2.0**13, dtypes.float64: 2.0**28}  # beyond, asinh and acosh are log(2 x)


def _arctangent(t: Expr) -> Expr:
    """atan(t) for t in [0, 1]."""
    square = t * t
    return b.fma(horner(square, _ATAN[t.dtype]) * square, t, t)


def atan(x: Expr) -> Expr:
    size = b.abs(x)
    inverted = size > 1.0
    angle = _arctangent(b.select(inverted, 1.0 / size, size))
    high, low = _HALF_PI[x.dtype]
    return b.copysign(b.select(inverted, high - (angle - low), angle), x)


def atan2(y: Expr, x: Expr) -> Expr:
    """The angle in the first octant, turned to where (x, y) lies: pi/2 or pi plus or minus it."""
    width, height = b.abs(x), b.abs(y)
    steep = height > width
    smaller, greater = b.select(steep, width, height), b.select(steep, height, width)
    quotient = smaller / greater
    quotient = b.select(b.eq(greater, 0.0), 0.0, b.select(b.eq(smaller, INFINITY), 1.0, quotient))
    angle = _arctangent(quotient)
    left = b.signbit(x)
    high, low = _HALF_PI[x.dtype]
    none = b.const(0.0, x.dtype)
    start = b.select(steep, high, b.select(left, 2.0 * high, none))
    rest = b.select(steep, low, b.select(left, 2.0 * low, none))
    turned = b.select(steep ^ left, -angle, angle)
    result = b.copysign(start + (turned + rest), y)
    return b.select(b.isnan(x) | b.isnan(y), x + y, result)


def _half_angle(x: Expr) -> tuple[Expr, Expr, Expr]:
    """(whether |x| > 1/2, t, asin(t) - t): there t = sqrt((1 - |x|) / 2), so that acos(|x|) = 2 asin(t); else t = |x|."""
    size = b.abs(x)
    outer = size > 0.5
    square = b.select(outer, b.fma(size, -0.5, 0.5), x * x)
    t = b.select(outer, b.sqrt(square), size)
    return outer, t, horner(square, _ASIN[x.dtype]) * square * t


def asin(x: Expr) -> Expr:
    outer, t, tail = _half_angle(x)
    high, low = _HALF_PI[x.dtype]
    near_one = (high - (t + t)) - ((tail + tail) - low)
    return b.copysign(b.select(outer, near_one, t + tail), x)


def acos(x: Expr) -> Expr:
    outer, t, tail = _half_angle(x)
    high, low = _HALF_PI[x.dtype]
    angle = t + tail
    complement = high - (b.select(outer, angle, b.copysign(angle, x)) - low)
    return b.select(outer, b.select(x < 0.0, complement + complement, angle + angle), complement)


def _log_of_sum(y: Expr, y_low: Expr, x: Expr | None) -> Expr:
    """log(1 + y + y_low) for y >= 0 and y_low within its rounding error; or log(2 x) where x is greater than _FAR."""
    form = FORMATS[y.dtype]
    u = y + 1.0
    seen = u - 1.0
    error = (1.0 - (u - seen)) + (y - seen) + y_low
    if x is not None:
        far = x > _FAR[x.dtype]
        u = b.select(far, x, u)
        error = b.select(far, 0.0, error)
    k, f = exponential.split_normal(u)
    if x is not None:
        k = b.select(far, k + 1.0, k)
    large, small = exponential.log1p_reduced(f, b.fma(k, form.ln2[1], error / u))
    return b.select(u < INFINITY, b.fma(k, form.ln2[0], large + small), u)


def asinh(x: Expr) -> Expr:
    size = b.abs(x)
    square = size * size
    quotient = square / (b.sqrt(square + 1.0) + 1.0)
    y = size + quotient
    return b.copysign(_log_of_sum(y, quotient - (y - size), size), x)


def acosh(x: Expr) -> Expr:
    beyond = x - 1.0
    root = b.sqrt(b.fma(beyond, beyond, beyond + beyond))
    y = beyond + root
    return b.select(x < 1.0, float("nan"), _log_of_sum(y, beyond - (y - root), x))


def atanh(x: Expr) -> Expr:
    size = b.abs(x)
    y = (size + size) / (1.0 - size)
    result = _log_of_sum(y, b.const(0.0, x.dtype), None) * 0.5
    return b.select(size > 1.0, float("nan"), b.copysign(result, x))
