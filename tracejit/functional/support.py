"""What several modules of functional share: in-place results, reductions of losses, checks of shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracejit.core.numbers import settled
from tracejit.core.shapes import product
from tracejit.ops import reduce as primitives

__all__ = ["mean_of_all", "placed", "reduced", "sum_of_all", "trailing_dims"]


def placed(input: Any, out: Any, inplace: bool) -> Any:
    """`out`, or `input` overwritten with it."""
    return input.copy_(out) if inplace else out


def sum_of_all(x: Any) -> Any:
    """The sum of all elements."""
    return primitives.sum_(x, dims=tuple(range(x.ndim)), keepdim=False)


def mean_of_all(x: Any) -> Any:
    """The mean of all elements; NaN for none."""
    count = product(x.shape)
    return sum_of_all(x) / float(count) if count else sum_of_all(x) * float("nan")


def reduced(name: str, loss: Any, reduction: str) -> Any:
    """A loss reduced by "mean", "sum" or not at all ("none").  Raises ValueError for any other reduction."""
    if reduction == "mean":
        return mean_of_all(loss)
    if reduction == "sum":
        return sum_of_all(loss)
    if reduction == "none":
        return loss
    raise ValueError(f"{name}(): {reduction} is not a valid value for reduction; expected 'mean', 'sum' or 'none'")


def trailing_dims(name: str, input: Any, normalized_shape: int | Sequence[int], weight: Any, bias: Any) -> tuple[int, ...]:
    """The dimensions of `normalized_shape` in `input`.  Raises RuntimeError where the sizes differ."""
    normalized_shape = settled(normalized_shape)
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if not shape:
        raise RuntimeError(f"{name}(): expected normalized_shape to have at least one dimension, got []")
    if tuple(input.shape[-len(shape) :]) != shape:
        raise RuntimeError(
            f"{name}(): expected input with trailing sizes {list(shape)} (normalized_shape), got shape {list(input.shape)}"
        )
    for argument, value in (("weight", weight), ("bias", bias)):
        if value is not None and tuple(value.shape) != shape:
            raise RuntimeError(
                f"{name}(): expected {argument} of shape {list(shape)} (normalized_shape), got {list(value.shape)}"
            )
    return tuple(range(input.ndim - len(shape), input.ndim))
