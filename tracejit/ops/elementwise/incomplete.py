"""Distribution functions: of the normal distribution where erf is not accurate, and of the gamma distribution."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy

from tracejit.core.dtypes import float64
from tracejit.ops.creation import tensors_in_place_of_numbers
from tracejit.ops.declare import FLOAT, elementwise
from tracejit.ops.elementwise.mathematics import exp, log
from tracejit.ops.elementwise.special import TWO_OVER_SQRT_PI, digamma, lgamma, polygamma
from tracejit.ops.samples import cases, floats, unary

__all__ = ["erfcx", "gamma_quantile", "gammainc", "gammainc_slope", "gammaincc", "log_ndtr", "ndtri"]

SQRT_TWO_PI = math.sqrt(2.0 * math.pi)


_PAIRS = (
    (floats(5, low=0.6, high=3.0), floats(5, low=0.6, high=3.0, seed=1)),
    (floats(2, 3, low=0.6, high=3.0).T, floats(3, 1, low=0.6, high=3.0, seed=2)),
    (floats(low=0.6, high=3.0), floats(0, 2)),
)
_SHARES = tuple((a, x * 0.25) for a, x in _PAIRS)


def _evaluated(function: Any, *operands: Any) -> Any:
    arrays = [np.asarray(x) for x in operands]
    return np.asarray(function(*arrays)).astype(np.result_type(*arrays))


@elementwise(lambda b, x: b.scipy("erfcx", x), promotion=FLOAT, samples=unary())
def erfcx(x: Any) -> Any:
    """Elementwise exp(x**2) * erfc(x)."""
    return _evaluated(scipy.special.erfcx, x)


@erfcx.vjp(saves="0 out")
def _(c: Any, g: Any) -> Any:
    (x,), (out,) = c.inputs, c.outputs
    return g * (x * out * 2.0 - TWO_OVER_SQRT_PI)


@elementwise(lambda b, x: b.scipy("ndtri", x), promotion=FLOAT, samples=unary(0.1, 0.9))
def ndtri(x: Any) -> Any:
    """Elementwise quantile of the standard normal distribution."""
    return _evaluated(scipy.special.ndtri, x)


@ndtri.vjp(saves="out")
def _(c: Any, g: Any) -> Any:
    (out,) = c.outputs
    return g * (exp.of(out * out * 0.5) * SQRT_TWO_PI)


@elementwise(lambda b, x: b.scipy("log_ndtr", x), promotion=FLOAT, samples=unary())
def log_ndtr(x: Any) -> Any:
    """Elementwise logarithm of the distribution function of the standard normal distribution."""
    return _evaluated(scipy.special.log_ndtr, x)


@log_ndtr.vjp(saves="0 out")
def _(c: Any, g: Any) -> Any:
    (x,), (out,) = c.inputs, c.outputs
    return g * (exp.of(x * x * -0.5 - out) / SQRT_TWO_PI)


def _density(a: Any, x: Any) -> Any:
    """Of the gamma distribution of shape a, at x."""
    return exp.of((a - 1.0) * log.of(x) - x - lgamma.of(a))


@elementwise(lambda b, a, x: b.scipy("gammainc", a, x), promotion=FLOAT, samples=cases(*_PAIRS))
def gammainc(a: Any, x: Any) -> Any:
    """Elementwise regularised lower incomplete gamma function: the distribution function of the gamma distribution of shape `a`
    at `x`."""
    return _evaluated(scipy.special.gammainc, a, x)


@gammainc.vjp(saves="0 1")
def _(c: Any, g: Any) -> Any:
    a, x = tensors_in_place_of_numbers(c, g)
    return g * gammainc_slope.of(a, x, order=1) if c.needs[0] else None, g * _density(a, x) if c.needs[1] else None


@elementwise(lambda b, a, x: b.scipy("gammaincc", a, x), promotion=FLOAT, samples=cases(*_PAIRS))
def gammaincc(a: Any, x: Any) -> Any:
    """Elementwise 1 - gammainc(a, x), accurate where that is near 1."""
    return _evaluated(scipy.special.gammaincc, a, x)


@gammaincc.vjp(saves="0 1")
def _(c: Any, g: Any) -> Any:
    a, x = tensors_in_place_of_numbers(c, g)
    return -g * gammainc_slope.of(a, x, order=1) if c.needs[0] else None, -g * _density(a, x) if c.needs[1] else None


# weights of f(a + k h) for k = -3 ... 3, and the step as a share of a
_DIFFERENCES = {
    1: ((0, 1 / 12, -2 / 3, 0, 2 / 3, -1 / 12, 0), 1e-3),
    2: ((0, -1 / 12, 4 / 3, -5 / 2, 4 / 3, -1 / 12, 0), 1e-2),
    3: ((1 / 8, -1, 13 / 8, 0, -13 / 8, 1, -1 / 8), 1e-2),
}


def _difference(weights: Sequence[float], value: Callable[[int], Any]) -> Any:
    return functools.reduce(operator.add, [w * value(k) for k, w in zip(range(-3, 4), weights, strict=True) if w])


def _slope_expression(b: Any, a: Any, x: Any, order: int = 1) -> Any:
    """gammainc_slope, in float64."""
    weights, share = _DIFFERENCES[order]
    wide_a, wide_x = b.cast(a, float64), b.cast(x, float64)
    h = share * wide_a

    def slope(tail: str) -> Any:
        return _difference(weights, lambda k: b.scipy(tail, wide_a + k * h, wide_x)) / math.prod([h] * (order - 1), start=h)

    return b.cast(b.select(b.lt(wide_x, wide_a), slope("gammainc"), -slope("gammaincc")), a.dtype)


@elementwise(_slope_expression, promotion=FLOAT, samples=cases(*_PAIRS, order=1))
def gammainc_slope(a: Any, x: Any, order: int = 1) -> Any:
    """Elementwise derivative of gammainc(a, x) by `a`, once to three times: central differences of fourth order, of the smaller
    tail."""
    a64, x64 = (np.asarray(v, np.float64) for v in (a, x))
    weights, share = _DIFFERENCES[order]
    h = share * a64

    def slope(tail: Any) -> Any:
        return _difference(weights, lambda k: tail(a64 + k * h, x64)) / math.prod([h] * (order - 1), start=h)

    out = np.where(x64 < a64, slope(scipy.special.gammainc), -slope(scipy.special.gammaincc))
    return out.astype(np.result_type(np.asarray(a), np.asarray(x)))


@gammainc_slope.vjp(saves="0 1")
def _(c: Any, g: Any) -> Any:
    a, x = tensors_in_place_of_numbers(c, g)
    order = c.attributes["order"]
    if order == 3:
        raise NotImplementedError("gammainc: derivatives by its first argument are known up to the third")
    by_a = g * gammainc_slope.of(a, x, order=order + 1) if c.needs[0] else None
    if not c.needs[1]:
        return by_a, None
    score = log.of(x) - digamma.of(a)
    factor = score if order == 1 else score * score - polygamma.of(a, n=1)
    return by_a, g * _density(a, x) * factor


@elementwise(lambda b, a, u: b.scipy("gammaincinv", a, u), promotion=FLOAT, samples=cases(*_SHARES))
def gamma_quantile(a: Any, u: Any) -> Any:
    """Elementwise inverse of gammainc(a, .): the number below which a share `u` of the gamma distribution of shape `a` lies."""
    a64, u64 = (np.asarray(v, np.float64) for v in (a, u))
    return scipy.special.gammaincinv(a64, u64).astype(np.result_type(np.asarray(a), np.asarray(u)))


@gamma_quantile.vjp(saves="0 out")
def _(c: Any, g: Any) -> Any:
    (a, _), x = tensors_in_place_of_numbers(c, g), c.outputs[0]
    scaled = g / _density(a, x)
    return -scaled * gammainc_slope.of(a, x, order=1) if c.needs[0] else None, scaled if c.needs[1] else None
