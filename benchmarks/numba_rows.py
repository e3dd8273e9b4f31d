"""Rows written by hand in Numba: what a careful author gets who knows the computation and spends an afternoon on each row.

They are the limit that generated code is measured against: derivatives by hand, one pass where one is possible, vector code, buffers
that are kept, results in fresh arrays as the row returns them.  Nothing checks the inputs.  Products go through the BLAS that Numba
calls (np.dot).
Imported only for `--peers numba`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from benchmarks import elementwise, models, modules, statistics_rows, training
from benchmarks.numba_functions import exp, larger, log, normal_cdf, tanh
from benchmarks.training import ADAM_BETA1, ADAM_BETA2, ADAM_EPSILON, ADAM_RATE, SGD_RATE, Sizes
from benchmarks.workload import Side

__all__ = ["SIDES"]

_f = np.float32
_ZERO, _HALF, _ONE, _TWO, _THREE = _f(0), _f(0.5), _f(1), _f(2), _f(3)
_SLOPE, _WEIGHT = _f(elementwise.GELU_SLOPE), _f(elementwise.GELU_WEIGHT)
_RATE, _BETA1, _BETA2, _REST1, _REST2 = _f(SGD_RATE), _f(ADAM_BETA1), _f(ADAM_BETA2), _f(1 - ADAM_BETA1), _f(1 - ADAM_BETA2)
_ADAM_EPSILON, _NORM_EPSILON, _INTEREST = _f(ADAM_EPSILON), _f(models.NORM_EPSILON), _f(statistics_rows.INTEREST)

_kernel = njit(fastmath={"contract", "reassoc", "nsz"}, error_model="numpy")
"""Sums may be reordered, which makes them vector code; NaN and infinity keep their meaning."""


def _arrays(results: Any) -> list[np.ndarray]:
    return [np.asarray(r, np.float32) for r in results]


@_kernel
def _multiply_add(a: Any, b: Any, out: Any) -> None:
    for i in range(a.size):
        out[i] = a[i] * b[i] + _ONE


def _latency() -> Side:
    a, b = elementwise.latency_inputs()

    def run() -> Any:
        out = np.empty(3, np.float32)
        _multiply_add(a, b, out)
        return out

    return Side(run, lambda result: [result])


@_kernel
def _gelu_kernel(x: Any, gradient: Any) -> Any:
    total: Any = 0.0
    for start in range(0, x.size, 1024):  # blocks: float32 partial sums stay small
        partial = _ZERO
        for i in range(start, min(start + 1024, x.size)):
            square = x[i] * x[i]
            t = tanh(_SLOPE * (x[i] + _WEIGHT * square * x[i]))
            y = _HALF * x[i] * (_ONE + t)
            e = exp(-y * y)
            slope = _SLOPE * (_ONE + _THREE * _WEIGHT * square)
            derivative = _HALF * (_ONE + t) + _HALF * x[i] * (_ONE - t * t) * slope
            gradient[i] = e * (_ONE - _TWO * y * y) * derivative
            partial += y * e
        total += partial
    return total


def _gelu(n: int) -> Side:
    x = elementwise.gelu_input(n)

    def run() -> Any:
        gradient = np.empty_like(x)
        return _gelu_kernel(x, gradient), gradient

    return Side(run, _arrays)


@_kernel
def _cross_entropy(z: Any, y: Any) -> Any:
    """The loss; logits become their gradient."""
    rows, classes = z.shape
    scale = _ONE / _f(rows)
    loss = _ZERO
    for i in range(rows):
        top = z[i, 0]
        for j in range(1, classes):
            top = larger(top, z[i, j])
        right = z[i, y[i]] - top
        total = _ZERO
        for j in range(classes):
            z[i, j] = exp(z[i, j] - top)
            total += z[i, j]
        loss += log(total) - right
        for j in range(classes):
            z[i, j] *= scale / total
        z[i, y[i]] -= scale
    return loss * scale


@_kernel
def _add_rows(z: Any, out: Any) -> None:
    out[:] = _ZERO
    for i in range(z.shape[0]):
        for j in range(z.shape[1]):
            out[j] += z[i, j]


@_kernel
def _mlp_gradients(
    x: Any, y: Any, w1: Any, b1: Any, w2: Any, b2: Any, h: Any, z: Any, dh: Any, g1: Any, c1: Any, g2: Any, c2: Any
) -> Any:
    np.dot(x, w1.T, h)
    for i in range(h.shape[0]):
        for j in range(h.shape[1]):
            h[i, j] = tanh(h[i, j] + b1[j])
    np.dot(h, w2.T, z)
    for i in range(z.shape[0]):
        for j in range(z.shape[1]):
            z[i, j] += b2[j]
    loss = _cross_entropy(z, y)
    np.dot(z, w2, dh)
    for i in range(h.shape[0]):
        for j in range(h.shape[1]):
            dh[i, j] *= _ONE - h[i, j] * h[i, j]
    np.dot(dh.T, x, g1)
    np.dot(z.T, h, g2)
    _add_rows(dh, c1)
    _add_rows(z, c2)
    return loss


@_kernel
def _row_gradients(
    x: Any, y: Any, w1: Any, b1: Any, w2: Any, b2: Any, h: Any, z: Any, dh: Any, g1: Any, c1: Any, g2: Any, c2: Any
) -> Any:
    """For a batch of one: products of a row are loops of their own, cheaper than calls."""
    hidden, features = w1.shape
    for j in range(hidden):
        total = _ZERO
        for k in range(features):
            total += x[0, k] * w1[j, k]
        h[0, j] = total
    for j in range(hidden):
        h[0, j] = tanh(h[0, j] + b1[j])
    for j in range(w2.shape[0]):
        total = _ZERO
        for k in range(hidden):
            total += h[0, k] * w2[j, k]
        z[0, j] = total + b2[j]
    loss = _cross_entropy(z, y)
    c1[:] = _ZERO
    for j in range(w2.shape[0]):
        c2[j] = z[0, j]
        for k in range(hidden):
            c1[k] += z[0, j] * w2[j, k]
            g2[j, k] = z[0, j] * h[0, k]
    for j in range(hidden):
        c1[j] *= _ONE - h[0, j] * h[0, j]
        for k in range(features):
            g1[j, k] = c1[j] * x[0, k]
    return loss


@_kernel
def _descend(p: Any, g: Any) -> None:
    for i in range(p.size):
        p[i] -= _RATE * g[i]


@_kernel
def _adam_update(p: Any, g: Any, m: Any, v: Any, rate: Any, correction: Any) -> None:
    for i in range(p.size):
        m[i] = _BETA1 * m[i] + _REST1 * g[i]
        v[i] = _BETA2 * v[i] + _REST2 * g[i] * g[i]
        p[i] -= rate * m[i] / (np.sqrt(v[i]) * correction + _ADAM_EPSILON)


@njit
def _adam_scalars(t: int) -> Any:
    return _f(ADAM_RATE / (1 - ADAM_BETA1**t)), _f((1 - ADAM_BETA2**t) ** -0.5)


def _step_kernel(gradients: Any) -> Any:
    """A whole training step as one kernel; parameters, gradients and moments each in one flat array, of which w1 ... are views."""

    @_kernel
    def step(x: Any, y: Any, w1: Any, b1: Any, w2: Any, b2: Any, h: Any, z: Any, dh: Any, g1: Any, c1: Any, g2: Any, c2: Any,
             p: Any, g: Any, m: Any, v: Any, t: Any) -> Any:  # fmt: skip
        loss = gradients(x, y, w1, b1, w2, b2, h, z, dh, g1, c1, g2, c2)
        if t == 0:
            _descend(p, g)
        else:
            rate, correction = _adam_scalars(t)
            _adam_update(p, g, m, v, rate, correction)
        return loss

    return step


_batch_step, _row_step = _step_kernel(_mlp_gradients), _step_kernel(_row_gradients)


def _flat(arrays: list[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    """One array with the contents of all, and the views of it in their shapes."""
    flat = np.concatenate([a.ravel() for a in arrays])
    ends = list(itertools.accumulate(a.size for a in arrays))
    return flat, [flat[end - a.size : end].reshape(a.shape) for a, end in zip(arrays, ends, strict=True)]


def _mlp(sizes: Sizes, adam: bool) -> Side:
    x, labels, start = training.initial(sizes)
    p, parameters = _flat(start)
    g, gradients = _flat([np.zeros_like(a) for a in start])
    m, v = np.zeros_like(p), np.zeros_like(p)
    h, dh = (np.empty((sizes.batch, sizes.hidden), np.float32) for _ in range(2))
    z = np.empty((sizes.batch, sizes.classes), np.float32)
    kernel = _row_step if sizes.batch == 1 else _batch_step
    following = itertools.cycle(labels).__next__
    count = itertools.count(1).__next__ if adam else lambda: 0

    def run() -> Any:
        return kernel(x, following(), *parameters, h, z, dh, *gradients, p, g, m, v, count())

    return Side(run, lambda loss: _arrays([loss, *(a - before for a, before in zip(parameters, start, strict=True))]))


def _adam() -> Side:
    start, gradients = modules.adam_inputs()
    p, parameters = _flat(start)
    g, _ = _flat(gradients)
    m, v = np.zeros_like(p), np.zeros_like(p)
    count = itertools.count(1).__next__

    def run() -> None:
        rate, correction = _adam_scalars(count())
        _adam_update(p, g, m, v, rate, correction)

    return Side(run, lambda _: _arrays([a - before for a, before in zip(parameters, start, strict=True)]))


@_kernel
def _norm_kernel(x: Any, weighting: Any, scale: Any, shift: Any, e: Any, dx: Any, dscale: Any, dshift: Any) -> Any:
    """One row of x at a time, which stays in the first-level cache: normalise, softmax, and both backwards."""
    rows, n = x.shape
    share = _ONE / _f(n)
    dscale[:] = _ZERO
    dshift[:] = _ZERO
    value: Any = 0.0
    for i in range(rows):
        total = _ZERO
        for j in range(n):
            total += x[i, j]
        mean = total * share
        total = _ZERO
        for j in range(n):
            total += (x[i, j] - mean) * (x[i, j] - mean)
        inverse = _ONE / np.sqrt(total * share + _NORM_EPSILON)
        top = _f(-np.inf)
        for j in range(n):
            e[j] = (x[i, j] - mean) * inverse * scale[j] + shift[j]
            top = larger(top, e[j])
        total = _ZERO
        weighted = _ZERO
        for j in range(n):
            e[j] = exp(e[j] - top)
            total += e[j]
            weighted += e[j] * weighting[i, j]
        over = _ONE / total
        weighted *= over
        value += weighted
        first = _ZERO
        second = _ZERO
        for j in range(n):
            normal = (x[i, j] - mean) * inverse
            dz = e[j] * over * (weighting[i, j] - weighted)
            dscale[j] += dz * normal
            dshift[j] += dz
            e[j] = dz * scale[j]
            first += e[j]
            second += e[j] * normal
        first *= share
        second *= share
        for j in range(n):
            dx[i, j] = inverse * (e[j] - first - (x[i, j] - mean) * inverse * second)
    return value


def _norm() -> Side:
    x, weighting, scale, shift = models.norm_inputs()
    row = np.empty_like(scale)

    def run() -> Any:
        dx, dscale, dshift = np.empty_like(x), np.empty_like(scale), np.empty_like(shift)
        return _norm_kernel(x, weighting, scale, shift, row, dx, dscale, dshift), dx, dscale, dshift

    return Side(run, _arrays)


@_kernel
def _logistic_kernel(x: Any, outcomes: Any, coefficients: Any, logits: Any, gradient: Any) -> Any:
    np.dot(x, coefficients, logits)
    value = _ZERO
    for i in range(logits.size):
        z = logits[i]
        e = exp(-abs(z))
        value += outcomes[i] * z - max(z, _ZERO) - log(_ONE + e)
        logits[i] = outcomes[i] - (_ONE if z >= _ZERO else e) / (_ONE + e)
    np.dot(logits, x, gradient)
    for k in range(coefficients.size):
        value -= _HALF * coefficients[k] * coefficients[k]
        gradient[k] -= coefficients[k]
    return value


def _logistic() -> Side:
    x, outcomes, coefficients = statistics_rows.logistic_inputs()
    logits = np.empty_like(outcomes)

    def run() -> Any:
        gradient = np.empty_like(coefficients)
        return _logistic_kernel(x, outcomes, coefficients, logits, gradient), gradient

    return Side(run, _arrays)


@_kernel
def _options_kernel(spot: Any, strike: Any, years: Any, volatility: Any, price: Any, delta: Any, vega: Any) -> None:
    for i in range(spot.size):
        root = np.sqrt(years[i])
        deviation = volatility[i] * root
        d1 = (log(spot[i] / strike[i]) + (_INTEREST + _HALF * volatility[i] * volatility[i]) * years[i]) / deviation
        below1, density = normal_cdf(d1)
        below2, _ = normal_cdf(d1 - deviation)
        price[i] = spot[i] * below1 - strike[i] * exp(-_INTEREST * years[i]) * below2
        delta[i] = below1
        vega[i] = spot[i] * root * density


def _options(n: int) -> Side:
    spot, strike, years, volatility = statistics_rows.option_inputs(n)

    def run() -> Any:
        price, delta, vega = np.empty_like(spot), np.empty_like(spot), np.empty_like(spot)
        _options_kernel(spot, strike, years, volatility, price, delta, vega)
        return price, delta, vega

    return Side(run, _arrays)


SIDES: dict[str, Callable[[], Side]] = {
    "a*b+1": _latency,
    **{f"gelu_{n}": functools.partial(_gelu, n) for n in elementwise.GELU_SIZES},
    **{f"mlp_sgd_{sizes.batch}": functools.partial(_mlp, sizes, False) for sizes in training.SIZES},
    **{f"mlp_adam_{sizes.batch}": functools.partial(_mlp, sizes, True) for sizes in training.ADAM_SIZES},
    "softmax_layer_norm": _norm,
    "logistic": _logistic,
    **{f"black_scholes_{n}": functools.partial(_options, n) for n in statistics_rows.OPTION_COUNTS},
    f"adam_{modules.ADAM_TENSORS}": _adam,
}
"""Row name -> a fresh hand-written side of it."""
