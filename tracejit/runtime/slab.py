"""The residual slab: what a forward program saves for its backward programs, one byte array owned by the autograd node.

Both sides lay out the same values in the same order, so the offsets need not travel.  A slab is never arena: two forward calls
may precede one backward call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracejit.core.aval import Aval
from tracejit.lowering.memory import slab_offsets

__all__ = ["offsets", "pack", "unpack"]


def offsets(avals: Sequence[Aval]) -> tuple[tuple[int, ...], int]:
    """(byte offset of every value, size of the slab)."""
    return slab_offsets(avals)


def pack(avals: Sequence[Aval], arrays: Sequence[Any]) -> np.ndarray[Any, Any]:
    """A slab with these contents (the interpreted backend and tests; programs write theirs in machine code)."""
    where, total = slab_offsets(avals)
    slab = np.empty(total, np.uint8)
    for aval, at, array in zip(avals, where, arrays, strict=True):
        slab[at : at + aval.nbytes] = np.ascontiguousarray(array, aval.dtype.numpy).reshape(-1).view(np.uint8)
    return slab


def unpack(avals: Sequence[Aval], slab: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """Views of the values in a slab."""
    where, _ = slab_offsets(avals)
    return [slab[at : at + a.nbytes].view(a.dtype.numpy).reshape(a.shape) for a, at in zip(avals, where, strict=True)]
