"""Results with eager's strides: programs make row-major arrays, in the order of dimensions that eager's memory has.

The strides of dimensions of one element, and of empty arrays, are eager's too, although no element sees them: Python may."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracejit.core.dtypes import DType
from tracejit.core.shapes import memory_order

__all__ = ["laid_out"]


def laid_out(shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType) -> Callable[[Any], Any] | None:
    """What gives a result of a program these strides, in elements; None where it has them."""
    order = memory_order(shape, strides)
    steps = tuple([s * dtype.itemsize for s in strides])
    if order is None:  # gaps, or elements that are one
        first = sum(-(n - 1) * s for n, s in zip(shape, strides, strict=True) if s < 0)
        count = 1 + sum((n - 1) * abs(s) for n, s in zip(shape, strides, strict=True))

        def spread(array: Any) -> Any:
            out = np.lib.stride_tricks.as_strided(np.empty(count, array.dtype)[first:], shape, steps)
            out[...] = array
            return out

        return spread
    made = np.empty([shape[d] for d in order], dtype.numpy)
    back = tuple([order.index(d) for d in range(len(order))])
    if made.transpose(back).strides != steps:  # where no element sees it
        return lambda array: np.ndarray(shape, array.dtype, array, 0, steps)
    return None if back == tuple(range(len(back))) else lambda array: array.transpose(back)
