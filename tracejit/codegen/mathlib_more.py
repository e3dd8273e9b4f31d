"""Elementary functions, second part: sin, cos, tan, erf, erfc, pow; and `expand`, the way in to all of them.

The same promises as `mathlib.py`.  sin and cos reduce by three parts of pi/2 with fma, which is exact enough up to a limit; beyond
it the lanes concerned call libm.  erf of large arguments is 1 - exp(-x**2) times a polynomial, the scaled complementary error
function.  pow in float32 goes through float64, in short polynomials; in float64 the logarithm is carried in two floats (T. J. Dekker,
"A floating-point technique for extending the available precision", 1971), so that the exponential sees an argument good to 2**-65.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from tracejit.codegen import mathlib, mathlib_inverse
from tracejit.codegen.expr import Apply, Expr, builder
from tracejit.codegen.mathlib import FORMATS, INFINITY, horner, round_by_magic
from tracejit.core import dtypes

__all__ = ["complete", "cos", "erf", "erfc", "expand", "pow", "sin", "tan"]

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
# Up to here erf is x + x * P(-x**2), P(-x**2) = erf(x) / x - 1; beyond, 1 - exp(-x**2) Q(|x|), Q(s) = exp(s**2) erfc(s)
_ERF_SPLIT: Final = {dtypes.float32: 1.0, dtypes.float64: 1.15}
_ERF_SMALL: Final = {
    dtypes.float32: (7.8538535e-05, 0.00080101914, 0.0051883273, 0.026853811, 0.112835854, 0.37612626, 0.12837917),
    dtypes.float64: (
        5.130962441812281e-11,
        1.0820397455568978e-09,
        1.4497302113034893e-08,
        1.632272226292259e-07,
        1.645801465655402e-06,
        1.4925380853121733e-05,
        0.00012055320796066398,
        0.0008548326652843098,
        0.005223977618183187,
        0.026866170644282355,
        0.1128379167094995,
        0.37612638903183626,
        0.12837916709551256,
    ),
}
# Q in powers of s - centre: (centre, where erf becomes 1, coefficients); the error of exp(-s**2) Q(s) is relative to erf
_ERFCX: Final = {
    dtypes.float32: (
        2.0,
        4.0,
        (-0.00039376196, 0.00055280083, -0.0016011307, 0.0055800937, -0.015489446, 0.04177024, -0.10679995, 0.25539613),
    ),
    dtypes.float64: (
        2.5,
        6.0,
        (
            6.886863786240661e-13,
            -3.9748531839823724e-12,
            8.215362840124776e-12,
            -3.287160914256443e-11,
            2.1099017163114715e-10,
            -9.22438977963308e-10,
            3.776815368403566e-09,
            -1.610552682767095e-08,
            6.722644602903166e-08,
            -2.7299947498630043e-07,
            1.0851243533087532e-06,
            -4.214294464021042e-06,
            1.5961908498173252e-05,
            -5.886894944704817e-05,
            0.00021101981115005544,
            -0.0007335909435284619,
            0.002467036816393433,
            -0.008001569381374456,
            0.024937997086715187,
            -0.07434734678980798,
            0.21080636406114248,
        ),
    ),
}
# exp(x**2) erfc(x) (1 + 2 x) in powers of (x - centre) / (x + centre): (centre, where erfc becomes 0, coefficients)
_ERFC: Final = {
    dtypes.float32: (
        2.0,
        10.1,
        (
            7.916298266549363e-05,
            0.00016880334180861627,
            -0.0004008637424601287,
            -0.001420269394064274,
            0.0012529536456192176,
            0.008708940034408318,
            -0.008030956999623131,
            -0.05421781027385066,
            0.1640510501121462,
            -0.16603052227639,
            -0.09276382094964473,
            1.2769783826825307,
        ),
    ),
    dtypes.float64: (
        4.0,
        27.3,
        (
            1.185035102214321e-09,
            1.6315359092142153e-09,
            -1.4090829664466245e-08,
            -1.7370951947610293e-08,
            1.104414846798756e-07,
            7.40306853847805e-08,
            -8.261105849794963e-07,
            2.941747324094369e-07,
            5.710294089087928e-06,
            -1.1222168480847038e-05,
            -2.4399480864270895e-05,
            0.00015062171278390536,
            -0.00019925661611548432,
            -0.0007577732959219985,
            0.0050319699634831065,
            -0.016197734056764636,
            0.03716751553909988,
            -0.06633036581230946,
            0.09373283499825054,
            -0.10103906603629999,
            0.06809705425469545,
            0.01537965210261966,
            -0.13962111684056253,
            1.2329951186255526,
        ),
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
# log2(1 + f) / s in powers of s**2, s = f / (2 + f), and 2**t for |t| <= 1/2: in float64, as exact as pow in float32 needs
_LOG2_SHORT: Final = (0.3407398512924719, 0.4116722461647867, 0.5770835919691285, 0.9617966733098978, 2.8853900817901095)
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
_TWO_THIRDS: Final = (0.6666666666666666, 3.700743415417188e-17)


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


def erf(x: Expr) -> Expr:
    """exp(-x**2) is written as in the derivative of erf: a kernel that computes both evaluates it once."""
    centre, saturation, coefficients = _ERFCX[x.dtype]
    size = b.abs(x)
    square = (-x) * x
    inner = b.fma(horner(square, _ERF_SMALL[x.dtype]), x, x)
    argument = b.select(size > saturation, saturation, size)
    outer = b.fma(-mathlib.exp(square), horner(argument - centre, coefficients), 1.0)
    return b.select(size > _ERF_SPLIT[x.dtype], b.copysign(outer, x), inner)


def _short_exp2(x: Expr) -> Expr:
    """2**x in float64 for |x| < 1000, as exact as a result in float32 needs."""
    whole, exponent = round_by_magic(x, 1.0)
    power = b.bitcast(horner(x - whole, _EXP2_SHORT), dtypes.int64)
    return b.bitcast(power + b.shl(exponent, FORMATS[dtypes.float64].mantissa), dtypes.float64)


def erfc(x: Expr) -> Expr:
    """M. M. Shepherd and J. G. Laframboise, "Chebyshev approximation of (1 + 2x) exp(x**2) erfc x in 0 <= x < inf" (1981): that product
    varies little.  float32 is computed in float64; there near 0 it is 1 - erf(x), which the product would not round well enough."""
    centre, end, coefficients = _ERFC[x.dtype]
    wide = b.cast(x, dtypes.float64)
    size = b.abs(wide)
    size = b.select(size > end, end, size)
    square = size * size
    product = horner((size - centre) / (size + centre), coefficients)
    divisor = b.fma(size, 2.0, 1.0)
    if x.dtype is F32:
        tail = _short_exp2(square * -mathlib.LOG2_E) * (product / divisor)
        return b.cast(b.select(wide < 0.0, 2.0 - tail, tail), F32)
    reciprocal = 1.0 / divisor
    quotient = product * reciprocal
    divisor_low = b.fma(size, 2.0, 1.0 - divisor)
    rest = b.fma(-quotient, divisor_low, b.fma(-quotient, divisor, product)) * reciprocal
    power = mathlib.exp_of_sum(-square, -b.fma(size, size, -square))
    tail = b.fma(power, quotient, power * rest)
    near_zero = 1.0 - b.fma(horner(-square, _ERF_SMALL[x.dtype]), x, x)
    return b.select(size < 0.5, near_zero, b.select(x < 0.0, 2.0 - tail, tail))


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
    return product, b.cast(_short_exp2(product), F32)


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
    "erf": erf,
    "erfc": erfc,
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
