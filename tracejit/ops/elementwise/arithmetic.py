"""Arithmetic of two numbers, casts, and the accumulation of gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.core.aval import Aval
from tracejit.core.dtypes import DType
from tracejit.ops.declare import FLOAT, NONE, elementwise

__all__ = ["acc", "add", "cast", "div", "mul", "neg", "sub"]


def _cast_rule(x: Any, dtype: DType) -> Aval:
    return Aval(getattr(x, "shape", ()), dtype)


@elementwise(lambda b, x, dtype: b.cast(x, dtype), promotion=NONE, rule=_cast_rule)
def cast(x: Any, dtype: DType) -> Any:
    """Convert the elements to `dtype`, as numpy.ndarray.astype does.  Gradients are cast back."""
    return np.asarray(x).astype(dtype.numpy)


@cast.vjp()
def _(c: Any, g: Any) -> Any:
    return cast(g, dtype=c.avals[0].dtype) if c.avals[0].dtype.is_floating_point else None


@elementwise(lambda b, x, y: x + y)
def add(x: Any, y: Any) -> Any:
    """Elementwise sum, with broadcasting and type promotion."""
    return np.add(x, y)


@add.vjp()
def _(c: Any, g: Any) -> Any:
    return g, g


@elementwise(lambda b, x, y: x - y)
def sub(x: Any, y: Any) -> Any:
    """Elementwise difference, with broadcasting and type promotion."""
    return np.subtract(x, y)


@sub.vjp()
def _(c: Any, g: Any) -> Any:
    return g, -g if c.needs[1] else None


@elementwise(lambda b, x, y: x * y)
def mul(x: Any, y: Any) -> Any:
    """Elementwise product, with broadcasting and type promotion."""
    return np.multiply(x, y)


@mul.vjp(saves=("1", "0"))
def _(c: Any, g: Any) -> Any:
    x, y = c.inputs
    return g * y if c.needs[0] else None, g * x if c.needs[1] else None


@elementwise(lambda b, x, y: x / y, promotion=FLOAT)
def div(x: Any, y: Any) -> Any:
    """Elementwise true quotient; integers become the default floating-point dtype."""
    return np.true_divide(x, y)


@div.vjp(saves=("1", "0 1"))
def _(c: Any, g: Any) -> Any:
    x, y = c.inputs
    gx = g / y
    return gx if c.needs[0] else None, -gx * (x / y) if c.needs[1] else None


@elementwise(lambda b, x: -x)
def neg(x: Any) -> Any:
    """Elementwise negation.  Raises RuntimeError for bool, as PyTorch does."""
    if getattr(x, "dtype", None) == np.bool_:
        raise RuntimeError("neg(): negation of a bool tensor is not supported; use logical_not() or ~ instead")
    return np.negative(x)


@neg.vjp()
def _(c: Any, g: Any) -> Any:
    return -g


def _acc_rule(previous: Any, d: Aval) -> Aval:
    return d


@elementwise(lambda b, previous, d: d if previous is None else previous + d, promotion=NONE, rule=_acc_rule)
def acc(previous: Any, d: Any) -> Any:
    """Accumulate a cotangent: `d` where there is no previous one (None), their sum otherwise."""
    return d if previous is None else np.add(previous, d)


@acc.vjp()
def _(c: Any, g: Any) -> Any:
    return g if c.needs[0] else None, g
