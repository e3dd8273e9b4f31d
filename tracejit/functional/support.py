"""What several modules of functional share: in-place results, what dropout keeps, reductions of losses, checks of shapes."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

from tracejit.core.dtypes import float32
from tracejit.core.interrupts import is_foreign
from tracejit.core.numbers import settled
from tracejit.core.shapes import float_product, integer
from tracejit.ops import reduce as primitives
from tracejit.ops.public.keywords import require_tensors
from tracejit.ops.public.random import rand

__all__ = [
    "in_place_or_new", "in_positions", "kept_by_dropout", "mean_of_all", "reduced", "reduction_of", "renamed", "same_dtype", "sum_of_all",
    "trailing_dims",
]  # fmt: skip


def in_place_or_new(input: Any, out: Any, inplace: bool) -> Any:
    """`out`, or `input` overwritten with it."""
    return input.copy_(out) if inplace else out


def sum_of_all(x: Any) -> Any:
    """The sum of all elements."""
    return primitives.sum_(x, dims=tuple(range(x.ndim)), keepdim=False)


def mean_of_all(x: Any) -> Any:
    """The mean of all elements; NaN for none."""
    count = float_product(x.shape)
    return sum_of_all(x) / count if count else sum_of_all(x) * float("nan")


def reduced(name: str, loss: Any, reduction: str) -> Any:
    """A loss reduced by "mean", "sum" or not at all ("none").  Raises ValueError for any other reduction."""
    if reduction == "mean":
        return mean_of_all(loss)
    if reduction == "sum":
        return sum_of_all(loss)
    if reduction == "none":
        return loss
    raise ValueError(f"{name}(): {reduction} is not a valid value for reduction; expected 'mean', 'sum' or 'none'")


def reduction_of(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """The reduction that the two old arguments of losses stand for, where one of them is given."""
    if size_average is None and reduce is None:
        return reduction
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"


def renamed(error: IndexError, name: str, what: str) -> IndexError:
    """What is raised for an index that is out of range by the function that was called, for what a primitive raised."""
    return IndexError(re.sub(r"^\w+\(\): index", f"{name}(): {what}", str(error)).replace("<= index <", f"<= {what} <"))


def in_positions(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A loss that takes its arguments in these positions, as PyTorch's losses do, among them size_average and reduce."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        positional = function.__code__.co_argcount

        @functools.wraps(function)
        def loss(*args: Any, **kwargs: Any) -> Any:
            if len(args) > len(names):
                raise TypeError(f"{function.__name__}(): expected at most {len(names)} arguments, got {len(args)}")
            try:
                if len(args) > positional or "size_average" in kwargs or "reduce" in kwargs:
                    given = dict(zip(names, args, strict=False)) | kwargs
                    old = given.pop("size_average", None), given.pop("reduce", None)
                    return function(**given | {"reduction": reduction_of(*old, given.get("reduction", "mean"))})
                return function(*args, **kwargs)
            except Exception as error:
                if is_foreign(error):
                    raise
                tensors = (dict(zip(names, args, strict=False)) | kwargs).items()
                require_tensors(function.__name__, **{key: x for key, x in tensors if key in names[:2]})
                if isinstance(error, IndexError):
                    raise renamed(error, function.__name__, "target") from None
                raise

        return loss

    return decorate


def same_dtype(name: str, input: Any, **parameters: Any) -> None:
    """Raises RuntimeError unless `input` is of floating point and what is not None of `parameters` has its dtype, as PyTorch's norms do."""
    dtype = input.dtype
    if not dtype.is_floating_point:
        raise RuntimeError(f"{name}(): expected a floating-point input, got {dtype.name}; convert it, e.g. input.float()")
    for argument, value in parameters.items():
        if value is not None and value.dtype is not dtype:
            raise RuntimeError(
                f"{name}(): expected {argument} to have the dtype of input, {dtype.name}, got {value.dtype.name}; convert it with .to()"
            )


def trailing_dims(name: str, input: Any, normalized_shape: int | Sequence[int], weight: Any, bias: Any) -> tuple[int, ...]:
    """The dimensions of `normalized_shape` in `input`.  Raises RuntimeError where the sizes differ."""
    normalized_shape = settled(normalized_shape)
    given = tuple(normalized_shape) if isinstance(normalized_shape, tuple | list) else (normalized_shape,)
    shape = tuple([integer(name, "normalized_shape", size) for size in given])
    if not shape:
        raise RuntimeError(f"{name}(): expected normalized_shape to have at least one dimension, got []")
    if tuple(input._sizes[-len(shape) :]) != shape:
        raise RuntimeError(
            f"{name}(): expected input with trailing sizes {list(shape)} (normalized_shape), got shape {list(input._sizes)}"
        )
    for argument, value in (("weight", weight), ("bias", bias)):
        if value is not None and value._sizes != shape:
            raise RuntimeError(
                f"{name}(): expected {argument} of shape {list(shape)} (normalized_shape), got {list(value.shape)}"
            )
    return tuple(range(input.ndim - len(shape), input.ndim))


def kept_by_dropout(input: Any, shape: tuple[int, ...], p: float) -> Any:
    """A bool tensor, each element True with probability 1 - p."""
    return rand(shape, dtype=float32 if input.dtype.is_reduced else input.dtype) >= p  # reduced numbers are too coarse for p
