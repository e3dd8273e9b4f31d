"""What a reduction starts from, what its totals are, and how two of its values become one where a nest accumulates in memory itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.core import dtypes
from tracejit.core.dtypes import DType
from tracejit.loops.expressions import Expr, builder

__all__ = ["accumulation_dtype", "combine", "identity"]


def accumulation_dtype(reducer: str, dtype: DType) -> DType:
    """The dtype of the lanes' totals: float64 for sums and products of floats, else the value's own."""
    return dtypes.float64 if dtype.is_floating_point and reducer in ("sum", "prod") else dtype


def identity(reducer: str, dtype: DType) -> Any:
    """The value that changes nothing in a combination."""
    if reducer in ("sum", "any"):
        return False if dtype is dtypes.bool_ else 0
    if reducer in ("prod", "all"):
        return True if dtype is dtypes.bool_ else 1
    greatest = reducer in ("max", "argmax")
    if dtype is dtypes.bool_:
        return not greatest
    if dtype.is_floating_point:
        return -np.inf if greatest else np.inf
    limits = np.iinfo(dtype.numpy)
    return limits.min if greatest else limits.max


def combine(reducer: str, x: Expr, y: Expr) -> Expr:
    if reducer in ("sum", "any"):
        return builder.add(x, y)
    if reducer in ("prod", "all"):
        return builder.mul(x, y)
    return builder.maximum(x, y) if reducer == "max" else builder.minimum(x, y)
