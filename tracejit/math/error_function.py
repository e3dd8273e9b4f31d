"""Elementary functions: the error function and its complement.

The same promises as exponential.py.  erf of large arguments is 1 - exp(-x**2) times a polynomial, the scaled complementary error function;
erfc is exp(-x**2) times a polynomial in a variable that takes all positive numbers to a bounded range.
"""

from __future__ import annotations

from typing import Final

from tracejit.core import dtypes
from tracejit.loops.expressions import Expr, builder
from tracejit.math import exponential
from tracejit.math.exponential import horner

__all__ = ["erf", "erfc"]

b = builder
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


def erf(x: Expr) -> Expr:
    """exp(-x**2) is written as in the derivative of erf: a kernel that computes both evaluates it once."""
    centre, saturation, coefficients = _ERFCX[x.dtype]
    size = b.abs(x)
    square = (-x) * x
    inner = b.fma(horner(square, _ERF_SMALL[x.dtype]), x, x)
    argument = b.select(size > saturation, saturation, size)
    outer = b.fma(-exponential.exp(square), horner(argument - centre, coefficients), 1.0)
    return b.select(size > _ERF_SPLIT[x.dtype], b.copysign(outer, x), inner)


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
    if x.dtype is dtypes.float32:
        tail = exponential.short_exp2(square * -exponential.LOG2_E) * (product / divisor)
        return b.cast(b.select(wide < 0.0, 2.0 - tail, tail), dtypes.float32)
    reciprocal = 1.0 / divisor
    quotient = product * reciprocal
    divisor_low = b.fma(size, 2.0, 1.0 - divisor)
    rest = b.fma(-quotient, divisor_low, b.fma(-quotient, divisor, product)) * reciprocal
    power = exponential.exp_of_sum(-square, -b.fma(size, size, -square))
    tail = b.fma(power, quotient, power * rest)
    near_zero = 1.0 - b.fma(horner(-square, _ERF_SMALL[x.dtype]), x, x)
    return b.select(size < 0.5, near_zero, b.select(x < 0.0, 2.0 - tail, tail))
