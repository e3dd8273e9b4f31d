"""What a reduction starts from, and how two of its values become one, where a nest accumulates in memory itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.codegen.expr import Expr, builder
from tracejit.core import dtypes
from tracejit.core.dtypes import DType

__all__ = ["combine", "identity"]


def identity(reducer: str, dtype: DType) -> Any:
    """The value that changes nothing in a combination."""
    if reducer in ("sum", "any"):
        return False if dtype is dtypes.bool_ else 0
    if reducer in ("prod", "all"):
        return True if dtype is dtypes.bool_ else 1
    if dtype is dtypes.bool_:
        return reducer == "min"
    if dtype.is_floating_point:
        return -np.inf if reducer == "max" else np.inf
    limits = np.iinfo(dtype.numpy)
    return limits.min if reducer == "max" else limits.max


def combine(reducer: str, x: Expr, y: Expr) -> Expr:
    if reducer in ("sum", "any"):
        return builder.add(x, y)
    if reducer in ("prod", "all"):
        return builder.mul(x, y)
    return builder.maximum(x, y) if reducer == "max" else builder.minimum(x, y)
