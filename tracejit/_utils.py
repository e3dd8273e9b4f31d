"""tracejit._utils: helpers that programs take from PyTorch by this name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracejit.core.missing import missing_names
from tracejit.functions import cat

__all__ = ["_flatten_dense_tensors", "_unflatten_dense_tensors"]


def _flatten_dense_tensors(tensors: Sequence[Any]) -> Any:
    """All elements of the tensors, one after the other, as one vector."""
    return cat([x.reshape(-1) for x in tensors])


def _unflatten_dense_tensors(flat: Any, tensors: Sequence[Any]) -> tuple[Any, ...]:
    """Views of a vector in the shapes of the tensors: the inverse of _flatten_dense_tensors()."""
    parts = flat.split([x.numel() for x in tensors])
    return tuple([part.reshape(x.shape) for part, x in zip(parts, tensors, strict=True)])


__getattr__ = missing_names(__name__)
