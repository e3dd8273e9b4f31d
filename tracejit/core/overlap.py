"""Arrays whose elements share memory with each other, as those of expanded tensors and of windows do: nothing may be written to them."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["overlaps_itself", "refuse_overlap"]


def overlaps_itself(array: np.ndarray[Any, Any]) -> bool:
    """Whether two elements may share memory: some stride is within the reach of the smaller ones."""
    reach = 0
    for stride, size in sorted((abs(st), s) for s, st in zip(array.shape, array.strides, strict=True) if s > 1):
        if stride <= reach or stride == 0:
            return True
        reach += stride * (size - 1)
    return False


def refuse_overlap(array: np.ndarray[Any, Any]) -> None:
    """Raises RuntimeError for an array that cannot be written to element by element."""
    if not array.flags.c_contiguous and array.size and overlaps_itself(array):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location; clone() it first"
        )
