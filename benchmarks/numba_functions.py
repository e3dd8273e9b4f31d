"""Elementary functions of float32 for the hand-written Numba kernels: branch-free, so that loops over them become vector code.

`math.exp` and its like are calls into libm, which stop the vectoriser (4 to 21 ns an element).  The polynomials are those of Cephes
(S. Moshier, expf and logf) and, for the normal distribution, Abramowitz and Stegun 26.2.17 (absolute error below 1e-7).  Only `contract`
is allowed here (a fused multiply-add rounds once): reordering would undo the reductions of the arguments.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import float32, njit
from numba.extending import intrinsic

__all__ = ["exp", "larger", "log", "normal_cdf", "tanh"]

_f = np.float32
_LOG2_E, _LN2_HIGH, _LN2_LOW, _ROUNDER = _f(1.44269504), _f(0.693359375), _f(-2.12194440e-4), _f(12582912.0)
_EXP = tuple(
    _f(c) for c in (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
)
_LOG = tuple(
    _f(c)
    for c in (
        7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
        -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
    )
)  # fmt: skip
_CDF = tuple(_f(c) for c in (1.330274429, -1.821255978, 1.781477937, -0.356563782, 0.319381530))
_CDF_POLE, _DENSITY = _f(0.2316419), _f(0.3989422804)
_ZERO, _HALF, _ONE, _TWO, _LEAST, _GREATEST = _f(0), _f(0.5), _f(1), _f(2), _f(-87), _f(88)
_INTEGER, _FLOAT = ir.IntType(32), ir.FloatType()


@intrinsic  # type: ignore[misc]
def _power_of_two(typing_context: Any, k: Any) -> Any:
    """2.0 ** k for a whole k in -126..127."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        shifted = builder.add(builder.fptosi(arguments[0], _INTEGER), _INTEGER(127))
        return builder.bitcast(builder.shl(shifted, _INTEGER(23)), _FLOAT)

    return float32(float32), generate


def _parts(builder: Any, x: Any) -> tuple[Any, Any]:
    """The exponent k and the mantissa in sqrt(1/2)..sqrt(2) of a positive normal x."""
    bits = builder.bitcast(x, _INTEGER)
    exponent = builder.ashr(builder.sub(bits, _INTEGER(0x3F3504F3)), _INTEGER(23))
    mantissa = builder.bitcast(builder.sub(bits, builder.shl(exponent, _INTEGER(23))), _FLOAT)
    return builder.sitofp(exponent, _FLOAT), mantissa


@intrinsic  # type: ignore[misc]
def _exponent(typing_context: Any, x: Any) -> Any:
    return float32(float32), lambda context, builder, signature, arguments: _parts(builder, arguments[0])[0]


@intrinsic  # type: ignore[misc]
def _mantissa(typing_context: Any, x: Any) -> Any:
    return float32(float32), lambda context, builder, signature, arguments: _parts(builder, arguments[0])[1]


@intrinsic  # type: ignore[misc]
def larger(typing_context: Any, a: Any, b: Any) -> Any:
    """llvm.maximum: the one form of a maximum that LLVM vectorises in a reduction without further licence."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function = builder.module.declare_intrinsic("llvm.maximum", [_FLOAT], ir.FunctionType(_FLOAT, [_FLOAT, _FLOAT]))
        return builder.call(function, arguments)

    return float32(float32, float32), generate


def _function(body: Any) -> Any:
    return njit(fastmath={"contract"}, error_model="numpy")(body)


@_function
def _reduced(x: Any) -> Any:
    """(2 ** k, expm1(x - k log 2)) with k the nearest whole number to x / log 2."""
    x = min(max(x, _LEAST), _GREATEST)
    k = (x * _LOG2_E + _ROUNDER) - _ROUNDER
    r = x - k * _LN2_HIGH
    r = r - k * _LN2_LOW
    p = _EXP[0] * r + _EXP[1]
    p = p * r + _EXP[2]
    p = p * r + _EXP[3]
    p = p * r + _EXP[4]
    p = p * r + _EXP[5]
    return _power_of_two(k), p * (r * r) + r


@_function
def exp(x: Any) -> Any:
    """Saturates at exp(-87) and exp(88)."""
    power, q = _reduced(x)
    return q * power + power


@_function
def tanh(x: Any) -> Any:
    """expm1(2|x|) / (expm1(2|x|) + 2), with the sign of x: accurate near zero, too."""
    power, q = _reduced(_TWO * abs(x))
    e = q * power + (power - _ONE)
    return np.copysign(e / (e + _TWO), x)


@_function
def log(x: Any) -> Any:
    """For positive normal x."""
    k, f = _exponent(x), _mantissa(x) - _ONE
    z = f * f
    p = _LOG[0] * f + _LOG[1]
    p = p * f + _LOG[2]
    p = p * f + _LOG[3]
    p = p * f + _LOG[4]
    p = p * f + _LOG[5]
    p = p * f + _LOG[6]
    p = p * f + _LOG[7]
    p = p * f + _LOG[8]
    return (k * _LN2_LOW + f * z * p) - _HALF * z + f + k * _LN2_HIGH


@_function
def normal_cdf(d: Any) -> Any:
    """(cumulative distribution, density) of the standard normal distribution at d: the tail needs the density anyway."""
    density = _DENSITY * exp(-_HALF * d * d)
    t = _ONE / (_ONE + _CDF_POLE * abs(d))
    p = _CDF[0] * t + _CDF[1]
    p = p * t + _CDF[2]
    p = p * t + _CDF[3]
    p = p * t + _CDF[4]
    tail = density * p * t
    return (_ONE - tail if d > _ZERO else tail), density
