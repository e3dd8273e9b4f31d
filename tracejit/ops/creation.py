"""Tensors made from nothing: fills, ranges, constants."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.core.array_constant import ArrayConstant
from tracejit.core.aval import Aval
from tracejit.core.dtypes import DType, from_numpy_dtype
from tracejit.core.op import Kind
from tracejit.ops.declare import custom

__all__ = ["ArrayConstant", "arange", "constant", "eye", "full"]


@custom(Kind.CREATION, lambda value, shape, dtype: Aval(shape, dtype))
def full(value: Any, shape: tuple[int, ...], dtype: DType) -> Any:
    """A tensor of one number."""
    return np.full(shape, value, dtype.numpy)


@full.vjp()
def _(c: Any, g: Any) -> Any:
    return None


@custom(Kind.CREATION, lambda start, step, length, dtype: Aval((length,), dtype))
def arange(start: Any, step: Any, length: int, dtype: DType) -> Any:
    """start + i * step for i in range(length), computed in float64 (int64 for integers) and rounded once to `dtype`."""
    return (start + np.arange(length) * step).astype(dtype.numpy)


@custom(Kind.CREATION, lambda rows, columns, dtype: Aval((rows, columns), dtype))
def eye(rows: int, columns: int, dtype: DType) -> Any:
    """Ones on the diagonal, zeros elsewhere."""
    return np.eye(rows, columns, dtype=dtype.numpy)


@custom(Kind.CREATION, lambda array: Aval(array.array.shape, from_numpy_dtype(array.array.dtype)))
def constant(array: ArrayConstant) -> Any:
    """A copy of data known when the program was written: tensor([1, 2, 3]), masks made by NumPy ..."""
    return array.array.copy()
