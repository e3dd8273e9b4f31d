"""Elementary functions, written once over the Builder: the exponential and logarithm families, sinh, cosh, tanh, sigmoid.

Each function takes and gives an Expr of float32 or float64, without branches but those around lanes with rare operands
(`Builder.elementary_where`), so that it runs in vector lanes and both renderings agree bit for bit.  Within 2.5 units in the last place
over the whole range (tests measure it); NaN, infinities, signed zeros and denormals are those of C99.  functions.py
is the way in.

Argument reductions are Cody and Waite's ("Software Manual for the Elementary Functions", 1980) with fma; tanh through expm1
(a polynomial near 0) and the argument split of log are those of fdlibm (Sun, 1993) and Cephes (Moshier).  The coefficients are
minimax polynomials computed for these forms with a Remez exchange in 50 digits, relative to the function's value, then rounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tracejit.core import dtypes
from tracejit.core.dtypes import DType
from tracejit.loops.expressions import Expr, builder

__all__ = [
    "FORMATS",
    "complete_logarithm",
    "cosh",
    "exp",
    "exp2",
    "exp_of_sum",
    "expm1",
    "horner",
    "is_unusual",
    "log",
    "log1p",
    "log1p_at_ends",
    "log1p_reduced",
    "log2",
    "log10",
    "short_exp2",
    "sigmoid",
    "sinh",
    "split",
    "split_normal",
    "tanh",
]  # fmt: skip

b = builder
LOG2_E: Final = 1.4426950408889634
LN_2: Final = 0.6931471805599453
INFINITY: Final = float("inf")


@dataclass(frozen=True, slots=True)
class Format:
    """What depends on the floating-point format."""

    integer: DType
    mantissa: int  # stored bits
    bias: int
    magic: float  # 1.5 * 2**mantissa: adding it rounds to an integer, which its low bits then hold
    ln2: tuple[float, float]  # the nearest float, and the rest
    log10_2: tuple[float, float]
    exp_range: tuple[float, float]  # beyond: 0 and infinity
    exp: tuple[float, ...]  # (e**r - 1 - r) / r**2 on |r| <= ln(2)/2, highest power first
    expm1_low: float  # below: -1
    tanh_high: float  # above: 1
    tiny: float  # f(x) = x for expm1, log1p below this
    least_normal: float


FORMATS: Final = {
    dtypes.float32: Format(
        integer=dtypes.int32,
        mantissa=23,
        bias=127,
        magic=12582912.0,
        ln2=(0.6931471824645996, -1.9046542121259336e-09),
        log10_2=(0.3010300099849701, -1.432098883924482e-08),
        exp_range=(-104.0, 89.0),
        exp=(0.001381458, 0.008368745, 0.04166839, 0.16666521, 0.49999994),
        expm1_low=-30.0,
        tanh_high=9.1,
        tiny=2.0**-26,
        least_normal=2.0**-126,
    ),
    dtypes.float64: Format(
        integer=dtypes.int64,
        mantissa=52,
        bias=1023,
        magic=6755399441055744.0,
        ln2=(0.6931471805599453, 2.3190468138462996e-17),
        log10_2=(0.3010299956639812, -2.8037281277851704e-18),
        exp_range=(-746.0, 710.0),
        exp=(
            2.500001120812371e-08,
            2.7630306292627637e-07,
            2.7557586826456074e-06,
            2.4801492949463016e-05,
            0.00019841269505750853,
            0.001388888894376021,
            0.008333333333494987,
            0.041666666666529725,
            0.1666666666666641,
            0.5000000000000011,
        ),
        expm1_low=-50.0,
        tanh_high=20.0,
        tiny=2.0**-55,
        least_normal=2.0**-1022,
    ),
}
# (log(1 + f) - f + f**2 / 2) / f**3 for sqrt(1/2) <= 1 + f <= sqrt(2), in float32
_LOG_32: Final = (0.069155395, -0.11789848, 0.11872917, -0.12384337, 0.14218666, -0.16669253, 0.20002227, -0.24999987, 0.3333331)
# 2**t for |t| <= 1/2, in float64, as exact as a result in float32 needs
_EXP2_SHORT: Final = (
    1.5166839822902646e-05,
    0.00015465424908398822,
    0.0013333967146524385,
    0.009618039562014038,
    0.05550410365842772,
    0.2402265106692295,
    0.6931471807047881,
    1.0,
)
# (tanh(x) - x) / x**3 in powers of x**2, for |x| up to the limit
_TANH_SMALL: Final = {
    dtypes.float32: (0.6, (-0.005905846, 0.020805364, -0.053786676, 0.13331959, -0.333333)),
    dtypes.float64: (
        0.5,
        (
            5.6858289182204845e-05,
            -0.00021790269100474498,
            0.0005833383723737972,
            -0.0014544999400453145,
            0.003591955727141713,
            -0.008863221225180549,
            0.021869487799184684,
            -0.05396825394639404,
            0.1333333333330119,
            -0.3333333333333317,
        ),
    ),
}
# (sinh(x) - x) / x**3 in powers of x**2, for |x| <= 1
_SINH_SMALL: Final = {
    dtypes.float32: (2.7822123e-06, 0.00019842896, 0.0083333105, 0.16666667),
    dtypes.float64: (
        7.77659871564377e-13,
        1.6056659155290057e-10,
        2.5052130999283692e-08,
        2.755731910675308e-06,
        0.00019841269841593416,
        0.008333333333332912,
        0.16666666666666669,
    ),
}
# (2 atanh(s) - 2 s) / s**3 in powers of s**2, where s = f / (2 + f), in float64
_ATANH_64: Final = (
    0.1479610463708204,
    0.15314035926270983,
    0.18183564862737678,
    0.22222198563570503,
    0.2857142874247384,
    0.39999999999414326,
    0.6666666666666734,
)


def horner(x: Expr, coefficients: Sequence[float]) -> Expr:
    """A polynomial by fma, highest power first."""
    result: Expr = b.const(coefficients[0], x.dtype)
    for c in coefficients[1:]:
        result = b.fma(result, x, c)
    return result


def clamp(x: Expr, low: float, high: float) -> Expr:
    """x within [low, high]; NaN stays."""
    x = b.select(x < low, low, x)
    return b.select(x > high, high, x)


def round_by_magic(x: Expr, scale: float) -> tuple[Expr, Expr]:
    """The integer next to x * scale, as a float and as an integer; its magnitude must be below 2**(mantissa - 1)."""
    form = FORMATS[x.dtype]
    shifted = b.fma(x, scale, form.magic)
    magic = b.const(form.magic, x.dtype)
    return shifted - magic, b.bitcast(shifted, form.integer) - b.bitcast(magic, form.integer)


def power_of_two(k: Expr, dtype: DType) -> Expr:
    """2.0**k for k in the range of normal numbers."""
    form = FORMATS[dtype]
    return b.bitcast(b.shl(k + form.bias, form.mantissa), dtype)


def _reduce(x: Expr) -> tuple[Expr, Expr]:
    """(k, r) with x = k ln 2 + r."""
    high, low = FORMATS[x.dtype].ln2
    k_float, k = round_by_magic(x, LOG2_E)
    return k, b.fma(k_float, -low, b.fma(k_float, -high, x))


def _expm1_reduced(r: Expr) -> Expr:
    """e**r - 1 for |r| <= ln(2)/2."""
    return b.fma(horner(r, FORMATS[r.dtype].exp), r * r, r)


def _exp_reduced(r: Expr) -> Expr:
    """e**r for |r| <= ln(2)/2: shorter than _expm1_reduced(r) + 1, and rounded better."""
    return horner(r, (*FORMATS[r.dtype].exp, 1.0, 1.0))


def exp(x: Expr) -> Expr:
    low, high = FORMATS[x.dtype].exp_range
    is_zero = x < low  # processors take long for results that underflow, and masks of attention are -inf
    k, r = _reduce(b.select(x > high, high, b.select(is_zero, 0.0, x)))
    return b.select(is_zero, 0.0, b.ldexp(_exp_reduced(r), k))


def exp_of_sum(x: Expr, correction: Expr) -> Expr:
    """exp(x + correction), the correction being small beside x; x within the range of exp."""
    k, r = _reduce(x)
    return b.ldexp(_exp_reduced(r + correction), k)


def short_exp2(x: Expr) -> Expr:
    """2**x in float64 for |x| < 1000, as exact as a result in float32 needs."""
    whole, exponent = round_by_magic(x, 1.0)
    power = b.bitcast(horner(x - whole, _EXP2_SHORT), dtypes.int64)
    return b.bitcast(power + b.shl(exponent, FORMATS[dtypes.float64].mantissa), dtypes.float64)


def exp2(x: Expr) -> Expr:
    form = FORMATS[x.dtype]
    y = clamp(x, -(form.bias + form.mantissa + 1.0), form.bias + 1.0)
    k_float, k = round_by_magic(y, 1.0)
    return b.ldexp(_exp_reduced((y - k_float) * LN_2), k)


def expm1(x: Expr) -> Expr:
    form = FORMATS[x.dtype]
    k, r = _reduce(clamp(x, form.expm1_low, form.exp_range[1]))
    half = power_of_two(k - 1, x.dtype)  # half of 2**k, which may overflow
    result = b.fma(half, _expm1_reduced(r), half - 0.5) * 2.0
    return b.select(b.abs(x) < form.tiny, x, result)


def _half_exp(x: Expr) -> Expr:
    """exp(x) / 2 for x >= 0."""
    limit = FORMATS[x.dtype].exp_range[1] + 1.0
    k, r = _reduce(b.select(x > limit, limit, x))
    return b.ldexp(_exp_reduced(r), k - 1)


def sinh(x: Expr) -> Expr:
    size = b.abs(x)
    half = _half_exp(size)
    square = x * x
    near_zero = b.fma(horner(square, _SINH_SMALL[x.dtype]) * square, x, x)
    return b.select(size < 1.0, near_zero, b.copysign(half - 0.25 / half, x))


def cosh(x: Expr) -> Expr:
    half = _half_exp(b.abs(x))
    return half + 0.25 / half


def tanh(x: Expr) -> Expr:
    size = b.abs(x)
    size = b.select(size > FORMATS[x.dtype].tanh_high, FORMATS[x.dtype].tanh_high, size)
    k, r = _reduce(size + size)
    scale = power_of_two(k, x.dtype)
    e = b.fma(scale, _expm1_reduced(r), scale - 1.0)
    limit, coefficients = _TANH_SMALL[x.dtype]
    square = x * x
    near_zero = b.fma(horner(square, coefficients) * square, x, x)
    return b.copysign(b.select(b.abs(x) < limit, near_zero, e / (e + 2.0)), x)


def sigmoid(x: Expr) -> Expr:
    e = exp(-b.abs(x))
    return b.select(x < 0.0, e, 1.0) / (e + 1.0)


def split(x: Expr) -> tuple[Expr, Expr]:
    """(k as a float, f) with x = 2**k * (1 + f) and 1 + f in [sqrt(1/2), sqrt(2)), for x > 0, denormals included."""
    form = FORMATS[x.dtype]
    small = x < form.least_normal
    k, f = split_normal(b.select(small, x * 2.0 ** (form.mantissa + 1), x))
    return k - b.select(small, b.const(form.mantissa + 1.0, x.dtype), 0.0), f


def split_normal(x: Expr) -> tuple[Expr, Expr]:
    """`split` without denormals."""
    form = FORMATS[x.dtype]
    bits = b.bitcast(x, form.integer)
    root = b.bitcast(b.const(0.7071067811865476, x.dtype), form.integer)
    k = b.shr(bits - root, form.mantissa)
    return b.cast(k, x.dtype), b.bitcast(bits - b.shl(k, form.mantissa), x.dtype) - 1.0


def log1p_reduced(f: Expr, tail: Expr) -> tuple[Expr, Expr]:
    """log(1 + f) + tail as a large part f and a small part to be added to it."""
    square = f * f
    if f.dtype is dtypes.float32:
        return f, b.fma(square, -0.5, b.fma(horner(f, _LOG_32) * f, square, tail))
    # log(1 + f) = 2 atanh(s) = f - (f*f/2 - s * (f*f/2 + R)), R = s**2 * P(s**2)
    s = f / (f + 2.0)
    z = s * s
    half = square * 0.5
    return f, b.fma(s, b.fma(horner(z, _ATANH_64), z, half), tail) - half


def _log_of_parts(k: Expr, f: Expr) -> Expr:
    """log(2**k * (1 + f))."""
    high, low = FORMATS[f.dtype].ln2
    large, small = log1p_reduced(f, k * low)
    return b.fma(k, high, large + small)


def _log2_of_parts(k: Expr, f: Expr) -> Expr:
    large, small = log1p_reduced(f, b.const(0.0, f.dtype))
    return b.fma(large + small, LOG2_E, k)


def _log10_of_parts(k: Expr, f: Expr) -> Expr:
    high, low = FORMATS[f.dtype].log10_2
    large, small = log1p_reduced(f, b.const(0.0, f.dtype))
    return b.fma(k, high, b.fma(k, low, (large + small) * 0.4342944819032518))


_LOGARITHMS: Final = {"log": _log_of_parts, "log2": _log2_of_parts, "log10": _log10_of_parts}


def is_unusual(x: Expr) -> Expr:
    """Whether x is anything but a positive normal number, in one comparison: of its bits, moved so that those numbers are the least."""
    form = FORMATS[x.dtype]
    least, infinite = 1 << form.mantissa, (2 * form.bias + 1) << form.mantissa
    wrap = 1 << (8 * form.integer.itemsize - 1)
    return b.bitcast(x, form.integer) + (wrap - least) >= infinite - least - wrap


def _logarithm(name: str, x: Expr) -> Expr:
    return b.elementary_where(is_unusual(x), name, (x,), _LOGARITHMS[name](*split_normal(x)))


def complete_logarithm(name: str, x: Expr) -> Expr:
    """log, log2 or log10 of any x."""
    result = b.select(x < INFINITY, _LOGARITHMS[name](*split(x)), x)
    result = b.select(b.eq(x, 0.0), -INFINITY, result)
    return b.select(x < 0.0, float("nan"), result)


def log(x: Expr) -> Expr:
    return _logarithm("log", x)


def log2(x: Expr) -> Expr:
    return _logarithm("log2", x)


def log10(x: Expr) -> Expr:
    return _logarithm("log10", x)


def log1p(x: Expr) -> Expr:
    """log of the rounded sum u = 1 + x, and the rounding error of the sum to first order: log(1 + x) = log(u) + error / u."""
    form = FORMATS[x.dtype]
    u = x + 1.0
    seen = u - 1.0
    error = (1.0 - (u - seen)) + (x - seen)
    k, f = split_normal(u)
    large, small = log1p_reduced(f, b.fma(k, form.ln2[1], error / u))
    usual = b.copysign(b.fma(k, form.ln2[0], large + small), x)  # of 0, its sign
    return b.elementary_where(is_unusual(u), "log1p", (x,), usual)


def log1p_at_ends(x: Expr) -> Expr:
    """log1p where 1 + x rounds to no positive normal number: x is -1, less, infinite or NaN."""
    return b.select(b.eq(x, -1.0), -INFINITY, b.select(x < -1.0, float("nan"), x))
