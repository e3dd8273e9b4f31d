"""`Size`: the shape of a tensor.  Knows nothing of tensors but that one may stand for an integer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tracejit.core.naming import package_name
from tracejit.core.symbolic import SYMBOLIC, concretise_sizes

__all__ = ["Size"]

_new_tuple = tuple.__new__
_item_of = tuple.__getitem__
_PLAIN_BOUNDS = frozenset((int, type(None)))


def _size_of(sizes: tuple[int, ...]) -> Size:
    return _new_tuple(Size, sizes)


def _joined(sizes: tuple[Any, ...]) -> Size:
    """A shape and a tuple, one behind the other."""
    return _size_of(sizes if all(type(size) is int for size in sizes) else tuple(map(_size, enumerate(sizes))))


def _size(item: tuple[int, Any]) -> int:
    """The integer at a position of a size."""
    position, size = item
    if type(size) in SYMBOLIC and isinstance(size, int):
        return size
    if isinstance(size, float | np.bool_ | np.floating) or not hasattr(type(size), "__index__"):
        raise TypeError(
            f"Size(): expected an iterable of integers, but item {position} is {size!r} of type {size.__class__.__name__}"
        )
    return int(size.__index__())


class Size(tuple[int, ...]):
    """The shape of a tensor: a tuple of integers that stays one when it is sliced, added to or repeated.

    Raises TypeError for what are no integers."""

    __module__ = "tracejit"  # where programs find it
    __slots__ = ()

    def __new__(cls, sizes: Iterable[Any] = ()) -> Size:
        sizes = tuple(sizes)
        for size in sizes:
            if type(size) is not int:
                return tuple.__new__(cls, map(_size, enumerate(sizes)))
        return tuple.__new__(cls, sizes)

    def __getitem__(self, key: Any) -> Any:
        if type(key) is int:
            return _item_of(self, key)
        if type(key) is slice and _PLAIN_BOUNDS.issuperset((type(key.start), type(key.stop), type(key.step))):
            return _size_of(_item_of(self, key))
        item = _item_of(self, concretise_sizes(key))
        return _size_of(item) if isinstance(item, tuple) else item

    def __add__(self, other: Any) -> Any:
        return _joined(tuple.__add__(self, other)) if isinstance(other, tuple) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return _joined(other + tuple(self)) if isinstance(other, tuple) else NotImplemented

    def __mul__(self, count: Any) -> Any:
        return _size_of(tuple.__mul__(self, concretise_sizes(count)))

    __rmul__ = __mul__

    def __reduce__(self) -> Any:
        return Size, (tuple(self),)

    def numel(self) -> int:
        """The number of elements."""
        n = 1
        for s in self:
            n *= s
        return n

    def __repr__(self) -> str:
        return f"{package_name()}.Size({list(self)})"
