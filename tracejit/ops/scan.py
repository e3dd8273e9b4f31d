"""Scans along one dimension: running sums, products, extremes, and the linear recurrence that differentiates products."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.core.aval import Aval
from tracejit.core.dtypes import int64
from tracejit.core.op import Kind
from tracejit.core.shapes import same
from tracejit.ops.declare import custom, require_one_dtype
from tracejit.ops.elementwise.comparison import where
from tracejit.ops.elementwise.mathematics import exp
from tracejit.ops.movement.copies import flip, pad
from tracejit.ops.movement.views import slice_
from tracejit.ops.samples import Samples, cases, floats

__all__ = ["cumprod", "cumsum", "exclusive", "linear_recurrence", "logcumsumexp", "running_argmax", "running_argmin"]


def _samples() -> Samples:
    return cases((floats(4), {"dim": 0}), (floats(2, 3).T, {"dim": 1}), (floats(2, 3, 2), {"dim": 1}), (floats(0, 2), {"dim": 0}))


def _same(x: Aval, dim: int) -> Aval:
    return x


@custom(Kind.SCAN, _same, reducer="sum", samples=_samples())
def cumsum(x: Any, dim: int) -> Any:
    """Sum of the elements up to each one along `dim`, in the dtype of the input."""
    return np.add.accumulate(x, axis=dim, dtype=x.dtype)


@cumsum.vjp()
def _(c: Any, g: Any) -> Any:
    dim = c.attributes["dim"]
    return flip.of(cumsum.of(flip.of(g, dims=(dim,)), dim=dim), dims=(dim,))


def exclusive(x: Any, dim: int, first: float) -> Any:
    """The elements moved one position up along `dim`: `first` at the beginning, the last one gone."""
    n = x.shape[dim]
    if n == 0:
        return x
    low = tuple(int(i == dim) for i in range(len(x.shape)))
    return pad.of(slice_.of(x, dim=dim, start=0, stop=n - 1, step=1), first, low=low, high=(0,) * len(low))


def _recurrence_rule(a: Aval, b: Aval, dim: int) -> Aval:
    require_one_dtype("linear_recurrence", a, b)
    if not same(a.shape, b.shape):
        raise ValueError(f"linear_recurrence: expected operands of one shape, got {a.shape} and {b.shape}")
    return b


@custom(
    Kind.SCAN,
    _recurrence_rule,
    nest="recurrence",
    samples=cases(
        (floats(4), floats(4, seed=1), {"dim": 0}),
        (floats(2, 3).T, floats(3, 2), {"dim": 1}),
        (floats(2, 0), floats(2, 0), {"dim": 1}),
    ),
)
def linear_recurrence(a: Any, b: Any, dim: int) -> Any:
    """y[0] = b[0], y[k] = a[k] * y[k - 1] + b[k] along `dim`.  a[0] plays no part."""
    out = np.array(b, order="C")
    rows, coefficients = np.moveaxis(out, dim, 0), np.moveaxis(a, dim, 0)
    for k in range(1, len(rows)):
        rows[k] += coefficients[k] * rows[k - 1]
    return out


@linear_recurrence.vjp(saves=("0 out", "0"))
def _(c: Any, g: Any) -> Any:
    dim = c.attributes["dim"]
    ga = gb = flip.of(
        linear_recurrence.of(exclusive(flip.of(c.inputs[0], dims=(dim,)), dim, 0.0), flip.of(g, dims=(dim,)), dim=dim),
        dims=(dim,),
    )
    if c.needs[0]:
        ga = gb * exclusive(c.outputs[0], dim, 0.0)
    return ga, gb


@custom(Kind.SCAN, _same, reducer="prod", samples=_samples())
def cumprod(x: Any, dim: int) -> Any:
    """Product of the elements up to each one along `dim`, in the dtype of the input."""
    return np.multiply.accumulate(x, axis=dim, dtype=x.dtype)


@cumprod.vjp(saves="0 out")
def _(c: Any, g: Any) -> Any:
    # dy[j]/dx[k] is the product without x[k], which exists where x[k] is 0 too: y[k-1] times a sum that obeys a recurrence
    (x,), (out,), dim = c.inputs, c.outputs, c.attributes["dim"]
    later = linear_recurrence.of(exclusive(flip.of(x, dims=(dim,)), dim, 0.0), flip.of(g, dims=(dim,)), dim=dim)
    return exclusive(out, dim, 1.0) * flip.of(later, dims=(dim,))


def _last_reached(x: Any, reached: Any, dim: int) -> Any:
    """The position along `dim` of the last element up to each one that was `reached` or is NaN."""
    reached = reached | (x != x)
    position = np.arange(x.shape[dim]).reshape([-1 if d == dim else 1 for d in range(x.ndim)])
    return np.maximum.accumulate(np.where(reached, position, 0), axis=dim)


def _positions(x: Aval, dim: int) -> Aval:
    return Aval(x.shape, int64)


@custom(Kind.OPAQUE, _positions, samples=_samples(), traits=("not differentiable",))
def running_argmax(x: Any, dim: int) -> Any:
    """The position of the largest element up to each one along `dim`: of equal ones the last, and of a NaN from the first on."""
    best = np.maximum.accumulate(x, axis=dim)
    return _last_reached(x, x >= best, dim)


@custom(Kind.OPAQUE, _positions, samples=_samples(), traits=("not differentiable",))
def running_argmin(x: Any, dim: int) -> Any:
    """The position of the smallest element up to each one along `dim`: of equal ones the last, and of a NaN from the first on."""
    best = np.minimum.accumulate(x, axis=dim)
    return _last_reached(x, x <= best, dim)


def _same_floating(x: Aval, dim: int) -> Aval:
    if not x.dtype.is_floating_point:
        raise RuntimeError(f"logcumsumexp(): expected a floating-point input, got {x.dtype.name}; convert it with .float()")
    return x


@custom(Kind.OPAQUE, _same_floating, samples=_samples())
def logcumsumexp(x: Any, dim: int) -> Any:
    """Logarithm of the sum of the exponentials of the elements up to each one along `dim`."""
    return np.logaddexp.accumulate(x, axis=dim)


@logcumsumexp.vjp(saves="0 out")
def _(c: Any, g: Any) -> Any:
    # dx[i] is the sum of g[j] * exp(x[i] - y[j]) over j >= i: exp(x[i] - y[i]) times r[i] = g[i] + exp(y[i] - y[i + 1]) * r[i + 1]
    (x,), (out,), dim = c.inputs, c.outputs, c.attributes["dim"]
    backwards = flip.of(out, dims=(dim,))
    behind = exclusive(backwards, dim, 0.0)
    falls = where.of(backwards == behind, 0.0, backwards - behind)
    decay = exp.of(where.of(falls > 0, 0.0, falls))  # the first plays no part; the others cannot grow
    later = flip.of(linear_recurrence.of(decay, flip.of(g, dims=(dim,)), dim=dim), dims=(dim,))
    return exp.of(where.of(out == -np.inf, 0.0, x - out)) * later
