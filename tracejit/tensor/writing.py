"""Writing into a tensor's memory: what every in-place form ends in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracejit.autograd.tape import Node, next_sequence
from tracejit.core.dtypes import FROM_NUMPY
from tracejit.core.interpreter import bind, state
from tracejit.core.interrupts import is_foreign
from tracejit.core.numbers import settled
from tracejit.core.shapes import size_range
from tracejit.ops.creation import full
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.ops.movement.copies import clone, write
from tracejit.ops.movement.versions import overwrite
from tracejit.ops.movement.views import expand
from tracejit.ops.public import METHODS
from tracejit.ops.public.indexing import setitem
from tracejit.tensor.base import Tensor
from tracejit.tensor.construction import tensor

__all__ = ["copy_", "fill_", "fill_diagonal_", "in_place", "set_item", "write_into", "zero_"]

ndarray = np.ndarray
_NO_ATTRIBUTES: dict[str, Any] = {}


def write_into(target: Tensor, value: Any) -> Tensor:
    """target[...] = value: broadcast to the target's shape and converted to its dtype.  Raises RuntimeError where either is impossible."""
    bind(write, (target, _contents(value, target)), _NO_ATTRIBUTES)
    return target


def _contents(value: Any, target: Tensor) -> Tensor:
    """What is written to `target`, as a tensor of its dtype that broadcasts to its shape."""
    if isinstance(value, Tensor):
        return _fitted(value, target)
    number = settled(value)
    if isinstance(number, int | float):
        return full_scalar(number, target)
    if isinstance(value, ndarray | list | tuple):
        return _fitted(tensor(value), target)
    raise TypeError(f"in-place: expected a Tensor or a number, got {value.__class__.__name__}")


def _fitted(value: Tensor, target: Tensor) -> Tensor:
    """`value` in the dtype and shape of `target`."""
    if _fits(value, target):
        return value
    if value._array.dtype != target._array.dtype:
        value = cast(value, dtype=target.dtype)
    if value._sizes == target._sizes:
        return value
    try:
        fits = np.broadcast_shapes(value._array.shape, target._array.shape) == target._array.shape
    except ValueError as error:
        if is_foreign(error):
            raise
        fits = False
    if fits:
        return expand(value, shape=target.shape)  # type: ignore[no-any-return]
    lead = value.ndim - target.ndim
    if lead > 0 and all(s == 1 for s in value.shape[:lead]):
        return _fitted(METHODS["reshape"](value, value.shape[lead:]), target)
    raise RuntimeError(f"in-place: a tensor of shape {list(value.shape)} cannot be written into shape {list(target.shape)}")


def _fits(value: Tensor, target: Tensor) -> bool:
    """Whether `value` has the dtype and the shape of `target`."""
    return value._array.dtype is target._array.dtype and value._sizes == target._sizes


def full_scalar(value: Any, like: Tensor) -> Tensor:
    """A number as a dimensionless tensor of the dtype of `like`."""
    return full(value, shape=(), dtype=like.dtype)  # type: ignore[no-any-return]


def replace_contents(target: Tensor, value: Any) -> Tensor:
    """The same where `value` has nothing to do with what was there before: that gets a gradient of zeros, as PyTorch's copy_() gives it.
    (Through a view it gets them anyway.)"""
    if not (state.grad_enabled and target.requires_grad) or target._base is not None or target._node is None:
        return write_into(target, value)
    contents = overwrite(target, _fitted(_contents(value, target), target))
    bind(write, (target, contents), _NO_ATTRIBUTES)
    return target


def set_item(self: Tensor, key: Any, value: Any) -> None:
    """self[key] = value."""
    setitem(self, key, value, write_into, replace_contents)


def copy_(self: Tensor, source: Any, non_blocking: bool = False) -> Tensor:
    """Copy the elements of `source`, broadcast and converted, into this tensor.  non_blocking changes nothing."""
    return replace_contents(self, source)


def fill_(self: Tensor, value: Any) -> Tensor:
    """Set every element to a number."""
    return replace_contents(self, value)


def zero_(self: Tensor) -> Tensor:
    """Set every element to 0."""
    return replace_contents(self, 0)


def fill_diagonal_(self: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """Set the elements whose indices are all the same to a number.  wrap: a matrix with more rows than columns has another diagonal after
    each row that is left out, as in NumPy's fill_diagonal().

    Raises RuntimeError for less than two dimensions, and for more than two of different sizes."""
    shape = self.shape
    if len(shape) < 2:
        raise RuntimeError(f"fill_diagonal_(): dimensions must be larger than 1: expected at least two, got shape {list(shape)}")
    rows, columns = shape[:2]
    if len(shape) > 2 and any(n != rows for n in shape):
        raise RuntimeError(f"fill_diagonal_(): all dimensions of input must be of equal length, got shape {list(shape)}")
    step = columns + 1 if wrap and len(shape) == 2 else max(rows, 1)
    for start in size_range(0, max(rows, 1), step):
        line = self if step >= rows else METHODS["narrow"](self, 0, start, min(step, rows - start))
        while line.ndim > 1:
            line = METHODS["diagonal"](line, 0, 0, line.ndim - 1)
        fill_(line, fill_value)
    return self


def in_place(function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        start = next_sequence() if state.grad_enabled else 0
        value = function(self, *args, **kwargs)
        if value._node is not None and _is_saved(
            self, value._node, start
        ):  # its derivative needs what is about to be overwritten
            value = function(clone(self), *args, **kwargs)
        if _fits(value, self):
            return state.top.bind(write, (self, value), _NO_ATTRIBUTES)  # type: ignore[no-any-return]
        if value._sizes != self._sizes:
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


def _is_saved(tensor: Tensor, node: Any, since: int) -> bool:
    """Whether a node that was made after `since` has saved `tensor`, or a view of it."""
    stack, storage = [node], tensor._storage
    while stack:
        node = stack.pop()
        if isinstance(node, Node) and node.sequence > since:
            if any(t is tensor or (storage is not None and t._storage is storage) for t, _ in getattr(node, "saved", ())):
                return True
            stack.extend([edge[0] for edge in node.edges if edge is not None])
    return False
