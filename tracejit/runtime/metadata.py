"""What the arrays of a call must be, asked in Python: the meaning of cpython/frame_check.py where no machine code runs.

Every program asks before it computes anything, and of every tensor that was recorded, whether the program reads it or not: that a call
is the recorded one is concluded from this.  Machine code asks for itself; this is for the other backends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from tracejit.lowering.steps import ArraySpec

__all__ = ["fits"]


def fits(arrays: Sequence[Any], specs: Sequence[ArraySpec], disjoint: Sequence[int]) -> bool:
    """Whether arrays have the metadata in `specs`, and those in `disjoint` are not where a written one of them is (`ProgramSpec`)."""
    if len(arrays) != len(specs) or not all(map(_matches, arrays, specs)):
        return False
    written = [i for i in disjoint if specs[i].written]
    return not any(i != j and _overlap(arrays[i], arrays[j]) for i in written for j in disjoint)


def _matches(array: np.ndarray[Any, Any], spec: ArraySpec) -> bool:
    if array.dtype is not spec.dtype.numpy or array.shape != spec.shape:
        return False
    if not array.flags.aligned or (spec.written and not array.flags.writeable):
        return False
    if spec.exact:
        return array.strides == spec.strides
    return array.size == 0 or all(n == 1 or s == t for n, s, t in zip(array.shape, array.strides, spec.strides, strict=True))


def _overlap(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    if not a.size or not b.size:
        return False
    (low_a, high_a), (low_b, high_b) = byte_bounds(a), byte_bounds(b)
    return bool(low_a < high_b and low_b < high_a)
