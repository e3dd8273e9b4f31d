"""Writing into a tensor's memory: what every in-place form ends in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracejit.core.dtypes import FROM_NUMPY
from tracejit.core.interpreter import bind
from tracejit.core.numbers import settled
from tracejit.ops.creation import full
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.ops.movement.copies import write
from tracejit.ops.movement.views import expand
from tracejit.ops.public import METHODS
from tracejit.ops.public.indexing import setitem
from tracejit.tensor.base import Tensor
from tracejit.tensor.construction import tensor

__all__ = ["copy_", "fill_", "in_place", "set_item", "write_into", "zero_"]

ndarray = np.ndarray
_NO_ATTRIBUTES: dict[str, Any] = {}


def write_into(target: Tensor, value: Any) -> Tensor:
    """target[...] = value: broadcast to the target's shape and converted to its dtype.  Raises RuntimeError where either is impossible."""
    value = settled(value)
    if isinstance(value, Tensor):
        if value._array.dtype != target._array.dtype:
            value = cast(value, dtype=target.dtype)
        if value._array.shape != target._array.shape:
            try:
                fits = np.broadcast_shapes(value._array.shape, target._array.shape) == target._array.shape
            except ValueError:
                fits = False
            if not fits:
                lead = value.ndim - target.ndim
                if lead > 0 and all(s == 1 for s in value.shape[:lead]):
                    return write_into(target, METHODS["reshape"](value, value.shape[lead:]))
                raise RuntimeError(
                    f"in-place: a tensor of shape {list(value.shape)} cannot be written into shape {list(target.shape)}"
                )
            value = expand(value, shape=target._array.shape)
    elif isinstance(value, int | float):
        value = full_scalar(value, target)
    elif isinstance(value, ndarray | list | tuple):
        return write_into(target, tensor(value))
    else:
        raise TypeError(f"in-place: expected a Tensor or a number, got {type(value).__name__}")
    bind(write, (target, value), _NO_ATTRIBUTES)
    return target


def full_scalar(value: Any, like: Tensor) -> Tensor:
    """A number as a dimensionless tensor of the dtype of `like`."""
    return full(value, shape=(), dtype=like.dtype)  # type: ignore[no-any-return]


def set_item(self: Tensor, key: Any, value: Any) -> None:
    """self[key] = value."""
    setitem(self, key, value, write_into)


def copy_(self: Tensor, source: Any) -> Tensor:
    """Copy the elements of `source`, broadcast and converted, into this tensor."""
    return write_into(self, source)


def fill_(self: Tensor, value: Any) -> Tensor:
    """Set every element to a number."""
    return write_into(self, value)


def zero_(self: Tensor) -> Tensor:
    """Set every element to 0."""
    return write_into(self, 0)


def in_place(function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        value = function(self, *args, **kwargs)
        if value._array.shape != self._array.shape:
            raise RuntimeError(
                f"{function.__name__}_(): a result of shape {list(value.shape)} does not fit the tensor's shape {list(self.shape)}"
            )
        if FROM_NUMPY[value._array.dtype].category > FROM_NUMPY[self._array.dtype].category:
            raise RuntimeError(
                f"{function.__name__}_(): result type {value.dtype.name} can't be cast to the desired output type {self.dtype.name}"
            )
        return write_into(self, value)

    method.__name__ = function.__name__ + "_"
    method.__doc__ = f"In-place form of {function.__name__}(); returns the tensor itself."
    return method
