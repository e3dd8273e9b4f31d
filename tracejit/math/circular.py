"""Elementary functions: sin, cos, tan.

The same promises as exponential.py.  They reduce by three parts of pi/2 with fma, which is exact enough up to a limit; beyond it the lanes
concerned call libm.
"""

from __future__ import annotations

from typing import Final

from tracejit.core import dtypes
from tracejit.loops.expressions import Expr, builder
from tracejit.math.exponential import FORMATS, horner, round_by_magic

__all__ = ["cos", "sin", "tan"]

b = builder
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
