"""Abstract values: what the compiler knows of a value without its contents.

`Aval` describes a tensor (shape and dtype), `ScalarAval` a Python number that is an operand of the program rather than a
constant of it.  Both are hashable and compare by value.  Strides are no part of an aval: they belong to buffers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tracejit.core.dtypes import DType

__all__ = ["UNKNOWN", "Aval", "ScalarAval", "aval_of"]

UNKNOWN: Final = -1
"""A size that depends on data.  Only shape rules say it (trait "dynamic shape"); values of graphs have the sizes that were recorded."""


@dataclass(frozen=True, slots=True)
class Aval:
    """Shape and dtype of a tensor."""

    shape: tuple[int, ...]
    dtype: DType

    def __eq__(self, other: object) -> bool:
        """Of other ranks are others, whatever the sizes: symbolic ones are not asked."""
        if self is other:
            return True
        return (
            type(other) is Aval
            and self.dtype is other.dtype
            and len(self.shape) == len(other.shape)
            and self.shape == other.shape
        )

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        n = 1
        for s in self.shape:
            n *= s
        return n

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def allows(self, other: Aval) -> bool:
        """Whether `other` is what this one, whose sizes may be UNKNOWN, says."""
        return (
            self.dtype is other.dtype
            and len(self.shape) == len(other.shape)
            and all(s in (UNKNOWN, t) for s, t in zip(self.shape, other.shape, strict=True))
        )

    def __str__(self) -> str:
        return f"{self.dtype.name}[{', '.join('?' if s == UNKNOWN else str(s) for s in self.shape)}]"


aval_of = lru_cache(4096)(Aval)
"""The Aval of a shape and a dtype: most tensors have that of another one."""


@dataclass(frozen=True, slots=True)
class ScalarAval:
    """A Python number supplied at each call; `python_type` is bool, int or float."""

    python_type: type

    def __str__(self) -> str:
        return self.python_type.__name__
