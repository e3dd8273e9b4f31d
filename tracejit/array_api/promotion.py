"""Operands of the standard's functions: all arrays promote alike, whether they have dimensions or not; numbers take the arrays' dtype."""

from __future__ import annotations

from typing import Any

from tracejit.core import dtypes
from tracejit.core.numbers import plain_number
from tracejit.tensor import Tensor, tensor

__all__ = ["promoted", "require_floating"]


def promoted(name: str, *operands: Any) -> tuple[Any, ...]:
    """The operands as tensors of one dtype.  Raises TypeError for numbers alone, and for a number of a higher kind than the arrays."""
    arrays = [x for x in operands if isinstance(x, Tensor)]
    if not arrays:
        raise TypeError(f"{name}(): expected at least one array, got {', '.join(type(x).__name__ for x in operands)}")
    target = arrays[0].dtype
    for x in arrays[1:]:
        target = dtypes.promote_types(target, x.dtype)
    return tuple([x.to(target) if isinstance(x, Tensor) else _array_of(name, x, target) for x in operands])


def _array_of(name: str, x: Any, target: Any) -> Any:
    number = plain_number(x)
    if number is None:
        raise TypeError(f"{name}(): expected an array or a Python number, got {type(x).__name__}")
    if dtypes.of_scalar(number).category > target.category:
        raise TypeError(f"{name}(): the number {number!r} is of a higher kind than the arrays, which are {target.name}")
    return tensor(number, dtype=target)


def require_floating(name: str, x: Any) -> None:
    """Raises TypeError unless the array is of floating point."""
    if not x.dtype.is_floating_point:
        raise TypeError(f"{name}(): expected an array of floating point, got {x.dtype.name}")
