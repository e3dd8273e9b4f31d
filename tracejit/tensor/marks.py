"""Which sizes of a tensor a program expects to change: hints for compiled functions, which results do not depend on.

The names and arguments are those of `torch._dynamo.mark_dynamic` and `mark_static`.  A function that has met two sizes of a dimension makes
the machine code of the second one general by itself (llvm/family.py), so a mark saves the first compilation, or the attempt.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tracejit.core.shapes import normalise_dim
from tracejit.tensor.base import Tensor

__all__ = ["mark_dynamic", "mark_static", "marks"]


def mark_dynamic(tensor: Tensor, index: int | Iterable[int]) -> None:
    """Say that the size of one or several dimensions will change: a compiled function that records a call with this tensor compiles
    machine code with these sizes as data at once, and other sizes (of this and other tensors) compile nothing more.

    It is a hint.  Results are the same bits with and without it; where the size decides what has to be computed (sizes of 0 and 1, a
    Python branch on it), other sizes have other programs.  Copies and results computed of the tensor are not marked.

    index: dimensions, from the end where negative.  Raises TypeError for what is no tensor or no integer, IndexError for a dimension that
    the tensor does not have; then nothing is marked."""
    _mark("mark_dynamic", tensor, index, True)


def mark_static(tensor: Tensor, index: int | Iterable[int] | None = None) -> None:
    """Say that each size of one or several dimensions (all, without index) is worth machine code of its own: a compiled function that
    records a call with this tensor compiles it with these sizes as constants, whatever other sizes it has met.

    It is a hint, as `mark_dynamic` is, whose mark it takes away.  Raises as that does."""
    _mark("mark_static", tensor, index, False)


def marks(tensor: Tensor) -> dict[int, bool]:
    """Per marked dimension, whether its size is dynamic."""
    found: dict[int, bool] = getattr(tensor, "_dynamic", {})
    return found


def _mark(operation: str, tensor: Any, index: Any, dynamic: bool) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{operation}(): expected a Tensor, got {type(tensor).__name__}")
    rank = tensor._array.ndim
    dims = range(rank) if index is None and not dynamic else index if isinstance(index, Iterable) else (index,)
    tensor._dynamic = marks(tensor) | {normalise_dim(operation, d, rank): dynamic for d in dims}
