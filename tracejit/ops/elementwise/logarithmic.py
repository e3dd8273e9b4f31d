"""Logarithms of odds, and products with logarithms, as primitives: their derivatives at the ends of the domain are PyTorch's, which no
composition has, since it multiplies an infinite slope with 0.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tracejit.core.unbroadcast import sum_to
from tracejit.ops.creation import tensors_in_place_of_numbers
from tracejit.ops.declare import FLOAT, elementwise
from tracejit.ops.elementwise.comparison import logical_and, where
from tracejit.ops.elementwise.mathematics import log, log1p
from tracejit.ops.samples import binary, unary

__all__ = ["entr", "logit", "xlog1py", "xlogy"]


@elementwise(lambda b, x: b.log(x / (1.0 - x)), promotion=FLOAT, samples=unary(0.1, 0.9))
def logit(x: Any) -> Any:
    """Elementwise log(x / (1 - x)); NaN outside of [0, 1]."""
    return np.log(x / (1.0 - x))


@logit.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    (x,) = c.inputs
    inside = logical_and.of(x >= 0, x <= 1)
    return g / where.of(inside, x * (1.0 - x), math.nan)


def _arrays(x: Any, y: Any) -> tuple[Any, Any]:
    """Two operands, one of which may be a number, as arrays of one dtype."""
    dtype = x.dtype if hasattr(x, "dtype") else y.dtype
    return np.asarray(x, dtype), np.asarray(y, dtype)


def _product(b: Any, x: Any, y: Any, logarithm: Any) -> Any:
    return b.select((x == 0) & b.logical_not(b.isnan(y)), x * 0.0, x * logarithm)


@elementwise(lambda b, x, y: _product(b, x, y, b.log(y)), promotion=FLOAT, samples=binary(other_low=0.3, other_high=3.0))
def xlogy(x: Any, y: Any) -> Any:
    """Elementwise x * log(y), 0 where x is 0 (NaN where y is)."""
    x, y = _arrays(x, y)
    return np.where((x == 0) & ~np.isnan(y), x * 0, x * np.log(y))


@xlogy.vjp(saves=("0 1", "0 1"))
def _(c: Any, g: Any) -> Any:
    x, y = tensors_in_place_of_numbers(c, g)
    gx = sum_to(where.of(logical_and.of(x == 0, y <= 0), 0.0, g * log.of(y)), c.avals[0].shape) if c.needs[0] else None
    return gx, sum_to(g * x / y, c.avals[1].shape) if c.needs[1] else None


@elementwise(lambda b, x, y: _product(b, x, y, b.log1p(y)), promotion=FLOAT, samples=binary(other_low=-0.5, other_high=3.0))
def xlog1py(x: Any, y: Any) -> Any:
    """Elementwise x * log1p(y), 0 where x is 0 (NaN where y is)."""
    x, y = _arrays(x, y)
    return np.where((x == 0) & ~np.isnan(y), x * 0, x * np.log1p(y))


@xlog1py.vjp(saves=("0 1", "0 1"))
def _(c: Any, g: Any) -> Any:
    x, y = tensors_in_place_of_numbers(c, g)
    gx = sum_to(where.of(logical_and.of(x == 0, y <= -1), 0.0, g * log1p.of(y)), c.avals[0].shape) if c.needs[0] else None
    return gx, sum_to(g * x / (y + 1.0), c.avals[1].shape) if c.needs[1] else None


@elementwise(
    lambda b, x: b.select(x == 0, x * 0.0, b.select(x < 0, x * math.inf, -x * b.log(x))), promotion=FLOAT, samples=unary(0.3, 3.0)
)
def entr(x: Any) -> Any:
    """Elementwise -x * log(x): 0 at 0, minus infinity below."""
    return np.where(x == 0, x * 0, np.where(x < 0, -np.inf, -x * np.log(x)))


@entr.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    return g * (-1.0 - log.of(c.inputs[0]))
