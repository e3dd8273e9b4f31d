"""Elementary functions: pow.

The same promises as exponential.py.  In float32 it goes through float64, in short polynomials; in float64 the logarithm is carried in two
floats (T. J. Dekker, "A floating-point technique for extending the available precision", 1971), so that the exponential sees an argument
good to 2**-65.
"""

from __future__ import annotations

from typing import Final

from tracejit.core import dtypes
from tracejit.loops.expressions import Expr, builder
from tracejit.math import exponential
from tracejit.math.exponential import INFINITY, horner

__all__ = ["complete_pow", "pow"]

b = builder
F32: Final = dtypes.float32
# (2 atanh(s) - 2 s - 2/3 s**3) / s**5 in powers of s**2
_ATANH_TAIL: Final = (
    0.1198901732324525,
    0.11674818011086155,
    0.13336317443034254,
    0.15384556870398008,
    0.1818181887032273,
    0.2222222221753641,
    0.2857142857144511,
    0.3999999999999998,
)
_TWO_THIRDS: Final = (0.6666666666666666, 3.700743415417188e-17)
# log2(1 + f) / s in powers of s**2, s = f / (2 + f): in float64, as exact as pow in float32 needs
_LOG2_SHORT: Final = (0.3407398512924719, 0.4116722461647867, 0.5770835919691285, 0.9617966733098978, 2.8853900817901095)


def _log_in_two_floats(k: Expr, f: Expr) -> tuple[Expr, Expr]:
    """log(2**k * (1 + f)) in float64 as an unevaluated sum, good to about 2**-66 relative."""
    d = f + 2.0
    d_low = f - (d - 2.0)
    reciprocal = 1.0 / d
    s = f * reciprocal
    s_low = b.fma(-s, d_low, b.fma(-s, d, f)) * reciprocal
    z = s * s
    z_low = b.fma(s + s, s_low, b.fma(s, s, -z))
    tail = horner(z, _ATANH_TAIL)
    product = z * tail
    t = product + _TWO_THIRDS[0]
    t_low = (product - (t - _TWO_THIRDS[0])) + (b.fma(z, tail, -product) + b.fma(z_low, tail, _TWO_THIRDS[1]))
    w = z * t
    w_low = b.fma(z_low, t, b.fma(z, t_low, b.fma(z, t, -w)))
    v = s * w
    v_low = b.fma(s_low, w, b.fma(s, w_low, b.fma(s, w, -v)))
    double = s + s
    high = double + v
    low = (v - (high - double)) + (s_low + s_low + v_low)
    ln2, ln2_low = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # k * ln2 is exact: 21 trailing zeros
    base = k * ln2
    total = base + high
    return total, (high - (total - base)) + b.fma(k, ln2_low, low)


def _pow_product(k: Expr, f: Expr, y: Expr) -> tuple[Expr, Expr]:
    """y * log(2**k * (1 + f)) in float64 and its rounding error."""
    high, low = _log_in_two_floats(k, f)
    product = high * y
    return product, b.fma(y, low, b.fma(y, high, -product))


def _pow_magnitude(x: Expr, y: Expr) -> Expr:
    """x ** y for positive finite float64 x other than 1; y any number."""
    product, correction = _pow_product(*exponential.split(x), y)
    beyond = b.abs(product) > 800.0
    correction = b.select(beyond, 0.0, correction)
    return exponential.exp_of_sum(exponential.clamp(product, -800.0, 800.0), correction)


def _short_pow(x: Expr, y: Expr) -> tuple[Expr, Expr]:
    """(y log2(x), x ** y) for positive normal float32 x: the first, a float64, must be below 1000 in magnitude."""
    k, f = (b.cast(part, dtypes.float64) for part in exponential.split_normal(x))
    s = f / (f + 2.0)
    product = b.cast(y, dtypes.float64) * b.fma(horner(s * s, _LOG2_SHORT), s, k)
    return product, b.cast(exponential.short_exp2(product), F32)


def _parity(y: Expr) -> tuple[Expr, Expr]:
    """Whether y is an integer, and whether an odd one."""
    integral = b.eq(b.trunc(y), y)
    half = y * 0.5
    return integral, integral & b.ne(b.trunc(half), half)


def pow(x: Expr, y: Expr) -> Expr:
    size = b.abs(x)
    if x.dtype is F32:
        product, usual = _short_pow(size, y)
    else:
        product, correction = _pow_product(*exponential.split_normal(size), y)
        usual = exponential.exp_of_sum(product, correction)
    integral, odd = _parity(y)
    of_negative = b.select(odd, -usual, b.select(integral, usual, float("nan")))
    ordinary = b.abs(product) < 700.0  # false for NaN
    return b.elementary_where(exponential.is_unusual(size) | ~ordinary, "pow", (x, y), b.select(x < 0.0, of_negative, usual))


def complete_pow(x: Expr, y: Expr) -> Expr:
    """pow of any operands."""
    if x.dtype is F32:
        wide_x, wide_y = b.cast(b.abs(x), dtypes.float64), b.cast(y, dtypes.float64)
        magnitude = b.cast(exponential.exp(exponential.complete_logarithm("log", wide_x) * wide_y), F32)
    else:
        magnitude = _pow_magnitude(b.abs(x), y)
    size = b.abs(x)
    magnitude = b.select(b.eq(size, 1.0), 1.0, magnitude)
    infinite = b.eq(size, INFINITY)
    grows = (y < 0.0) ^ infinite  # 0 ** negative and infinity ** positive
    at_extreme = b.select(grows, b.const(INFINITY, x.dtype), 0.0)
    magnitude = b.select(b.eq(size, 0.0) | infinite, at_extreme, magnitude)
    integral, odd = _parity(y)
    negative = b.signbit(x)
    result = b.select(negative & odd, -magnitude, magnitude)
    undefined = (x < 0.0) & (size < INFINITY) & ~integral
    result = b.select(undefined, float("nan"), result)
    result = b.select(b.isnan(x) | b.isnan(y), x + y, result)
    return b.select(b.eq(x, 1.0) | b.eq(y, 0.0), 1.0, result)
