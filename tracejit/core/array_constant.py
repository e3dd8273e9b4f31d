"""A NumPy array as an attribute of an operation."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["ArrayConstant"]


class ArrayConstant:
    """A NumPy array as a hashable attribute: compared by dtype, shape and bytes.  The array must not be written to."""

    __slots__ = ("_key", "array")

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array
        self._key = (array.dtype.str, array.shape, array.tobytes())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ArrayConstant) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"ArrayConstant(array({self.array.tolist()!r}, dtype={self.array.dtype.name!r}))"
