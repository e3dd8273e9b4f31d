"""From Python data to the NumPy array of a tensor.  Knows tensors only as objects with `_array`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.core import dtypes
from tracejit.core.dtypes import FROM_NUMPY, DType
from tracejit.core.floating import quietly
from tracejit.core.interpreter import state
from tracejit.core.interrupts import is_foreign

__all__ = ["to_array"]

ndarray = np.ndarray


def to_array(data: Any, dtype: DType | None) -> np.ndarray[Any, Any]:
    """A fresh array of tensor contents.  Raises TypeError for what no tensor holds."""
    if hasattr(data, "_array"):
        array = state.top.take_list(data).copy()
    elif isinstance(data, ndarray | np.generic):
        array = np.array(data, order="C", dtype=data.dtype.newbyteorder("=") if not data.dtype.isnative else None)
    else:
        if isinstance(data, list | tuple) and _holds_tensors(data):
            data = _plain(data)
        try:
            array = np.array(data, order="C")
        except ValueError as error:
            if is_foreign(error):
                raise
            raise ValueError(
                f"tensor(): expected nested sequences of equal lengths, got {type(data).__name__}: {error}"
            ) from None
        if array.dtype == np.float64:
            array = quietly(array.astype, dtypes.default_dtype().numpy if dtype is None else dtype.numpy)
        elif array.size == 0 and dtype is None:
            array = array.astype(dtypes.default_dtype().numpy)
    if dtype is not None and array.dtype != dtype.numpy:
        array = quietly(array.astype, dtype.numpy)
    if array.dtype not in FROM_NUMPY:
        if array.dtype == object:
            raise TypeError(
                f"tensor(): expected numbers or nested sequences of numbers, got {data.__class__.__name__} holding other objects"
            )
        dtypes.from_numpy_dtype(array.dtype)
    canonical = FROM_NUMPY[array.dtype].numpy
    return (
        array if array.dtype is canonical else array.view(canonical)
    )  # programs compare dtypes by identity: longlong is not int64


def _holds_tensors(data: Any) -> bool:
    return any(hasattr(x, "_array") or (isinstance(x, list | tuple) and _holds_tensors(x)) for x in data)


def _plain(data: Any) -> Any:
    return [x.tolist() if hasattr(x, "_array") else _plain(x) if isinstance(x, list | tuple) else x for x in data]
