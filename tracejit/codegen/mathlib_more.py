"""Elementary functions, second part: sin, cos, tan, pow; and `expand`, the way in to all of them.

The same promises as `mathlib.py`.  sin and cos reduce by three parts of pi/2 with fma, which is exact enough up to a limit; beyond
it the lanes concerned call libm.  pow in float32 goes through float64, in short polynomials; in float64 the logarithm is carried in
two floats (T. J. Dekker, "A floating-point technique for extending the available precision", 1971), so that the exponential sees an
argument good to 2**-65.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from tracejit.codegen import mathlib, mathlib_error, mathlib_inverse
from tracejit.codegen.expr import Apply, Expr, builder
from tracejit.codegen.mathlib import FORMATS, INFINITY, horner, round_by_magic
from tracejit.core import dtypes

__all__ = ["complete", "cos", "expand", "pow", "sin", "tan"]

b = builder
F32: Final = dtypes.float32
# pi/2 as a sum of three floats, and up to where its multiples can be subtracted
_HALF_PI: Final = {
    dtypes.float32: (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
    dtypes.float64: (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
}
_TRIGONOMETRIC_LIMIT: Final = {dtypes.float32: 48000.0, dtypes.float64: 1.0e8}
# (sin r - r) / r**3 and (cos r - 1 + r**2 / 2) / r**4 in powers of r**2, for |r| <= pi/4
_SIN: Final = {
    dtypes.float32: (2.7181627e-06, -0.00019839319, 0.008333329, -0.16666667),
    dtypes.float64: (
        1.5896181844705665e-10,
        -2.5050747863828475e-08,
        2.755731362875608e-06,
        -0.00019841269829632945,
        0.008333333333322205,
        -0.16666666666666632,
    ),
}
_COS: Final = {
    dtypes.float32: (2.4437008e-05, -0.0013887355, 0.041666646),
    dtypes.float64: (
        -1.1359226995857633e-11,
        2.0875715416662043e-09,
        -2.755731429665768e-07,
        2.480158728929735e-05,
        -0.001388888888887384,
        0.041666666666666595,
    ),
}
# (tan r - r) / r**3 in powers of r**2, for |r| <= pi/4
_TAN: Final = {
    dtypes.float32: (0.0043727257, 9.820196e-05, 0.010827466, 0.021286204, 0.054058913, 0.13332675, 0.3333335),
    dtypes.float64: (
        2.0854282496020843e-05,
        -4.4838753753750584e-05,
        8.938120962041328e-05,
        -2.63072801535041e-05,
        0.00013646821676867446,
        0.00022240850549439862,
        0.0005950546229290302,
        0.0014547604899641786,
        0.0035922886397118685,
        0.008863219216226095,
        0.02186948960500177,
        0.053968253926853206,
        0.13333333333414174,
        0.3333333333333278,
    ),
}
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


def _circular(x: Expr, quadrant_shift: int, name: str) -> Expr:
    form = FORMATS[x.dtype]
    large = b.abs(x) > _TRIGONOMETRIC_LIMIT[x.dtype]  # false for NaN, which the usual path passes on; infinity goes to libm
    quotient, quadrant = round_by_magic(x, 0.6366197723675814)
    r = x
    for part in _HALF_PI[x.dtype]:
        r = b.fma(quotient, -part, r)
    z = r * r
    sine = b.fma(horner(z, _SIN[x.dtype]), z * r, r)
    half = z * 0.5
    head = 1.0 - half
    cosine = head + b.fma(horner(z, _COS[x.dtype]), z * z, (1.0 - head) - half)
    quadrant = quadrant + quadrant_shift
    value = b.select(b.eq(quadrant & 1, 1), cosine, sine)
    sign = b.shl(quadrant & 2, 8 * form.integer.itemsize - 2)
    value = b.bitcast(b.bitcast(value, form.integer) ^ sign, x.dtype)
    return b.libm_where(large, name, x, value)


def tan(x: Expr) -> Expr:
    """t = tan r, or -1 / t.  r is taken with its rounding error, which the derivative (about 1 + 1.6 r**2) doubles near pi/4."""
    large = b.abs(x) > _TRIGONOMETRIC_LIMIT[x.dtype]
    quotient, quadrant = round_by_magic(x, 0.6366197723675814)
    first, second, third = _HALF_PI[x.dtype]
    head = b.fma(quotient, -first, x)
    product = quotient * second
    r = head - product
    lost = (head - r) - product - b.fma(quotient, second, -product)
    r_low = b.fma(quotient, -third, lost)
    z = r * r
    t = r + b.fma(b.fma(z, 1.6, 1.0), r_low, horner(z, _TAN[x.dtype]) * z * r)
    inverted = b.eq(quadrant & 1, 1)
    value = b.select(inverted, -1.0, t) / b.select(inverted, t, 1.0)
    return b.libm_where(large, "tan", x, b.select(b.eq(x, 0.0), x, value))


def sin(x: Expr) -> Expr:
    return b.select(b.eq(x, 0.0), x, _circular(x, 0, "sin"))  # keeps the sign of zero


def cos(x: Expr) -> Expr:
    return _circular(x, 1, "cos")


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
    product, correction = _pow_product(*mathlib.split(x), y)
    beyond = b.abs(product) > 800.0
    correction = b.select(beyond, 0.0, correction)
    return mathlib.exp_of_sum(mathlib.clamp(product, -800.0, 800.0), correction)


def _short_pow(x: Expr, y: Expr) -> tuple[Expr, Expr]:
    """(y log2(x), x ** y) for positive normal float32 x: the first, a float64, must be below 1000 in magnitude."""
    k, f = (b.cast(part, dtypes.float64) for part in mathlib.split_normal(x))
    s = f / (f + 2.0)
    product = b.cast(y, dtypes.float64) * b.fma(horner(s * s, _LOG2_SHORT), s, k)
    return product, b.cast(mathlib.short_exp2(product), F32)


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
        product, correction = _pow_product(*mathlib.split_normal(size), y)
        usual = mathlib.exp_of_sum(product, correction)
    integral, odd = _parity(y)
    of_negative = b.select(odd, -usual, b.select(integral, usual, float("nan")))
    ordinary = b.abs(product) < 700.0  # false for NaN
    return b.elementary_where(mathlib.is_unusual(size) | ~ordinary, "pow", (x, y), b.select(x < 0.0, of_negative, usual))


def _complete_pow(x: Expr, y: Expr) -> Expr:
    """pow of any operands."""
    if x.dtype is F32:
        wide_x, wide_y = b.cast(b.abs(x), dtypes.float64), b.cast(y, dtypes.float64)
        magnitude = b.cast(mathlib.exp(mathlib.complete_logarithm("log", wide_x) * wide_y), F32)
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


_DEFINITIONS: Final[dict[str, Callable[..., Expr]]] = {
    "acos": mathlib_inverse.acos,
    "acosh": mathlib_inverse.acosh,
    "asin": mathlib_inverse.asin,
    "asinh": mathlib_inverse.asinh,
    "atan": mathlib_inverse.atan,
    "atan2": mathlib_inverse.atan2,
    "atanh": mathlib_inverse.atanh,
    "cos": cos,
    "cosh": mathlib.cosh,
    "erf": mathlib_error.erf,
    "erfc": mathlib_error.erfc,
    "exp": mathlib.exp,
    "exp2": mathlib.exp2,
    "expm1": mathlib.expm1,
    "log": mathlib.log,
    "log10": mathlib.log10,
    "log1p": mathlib.log1p,
    "log2": mathlib.log2,
    "pow": pow,
    "sigmoid": mathlib.sigmoid,
    "sin": sin,
    "sinh": mathlib.sinh,
    "tan": tan,
    "tanh": mathlib.tanh,
}


# What `elementary_where` computes in lanes that the usual path of a definition leaves out
_COMPLETE: Final[dict[str, Callable[..., Expr]]] = {
    **{name: partial(mathlib.complete_logarithm, name) for name in ("log", "log2", "log10")},
    "log1p": mathlib.log1p_at_ends,
    "pow": _complete_pow,
}


def complete(name: str, *operands: Expr) -> Expr:
    """The definition that `elementary_where` means by a name.  It contains no operation that `expand` defines."""
    return _COMPLETE[name](*operands)


def expand(e: Apply) -> Expr | None:
    """The definition of an elementary function of floats on the operands of `e`; None for any other operation."""
    definition = _DEFINITIONS.get(e.operation)
    return definition(*e.operands) if definition is not None and e.dtype.is_floating_point else None
