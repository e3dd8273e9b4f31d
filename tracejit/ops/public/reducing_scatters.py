"""Scatters that combine what meets at a position by a sum, a product, a mean or an extreme, and writing to flat positions."""

from __future__ import annotations

from typing import Any, Final

from tracejit.core.dtypes import int64
from tracejit.core.number_info import iinfo
from tracejit.core.shapes import normalise_dim
from tracejit.ops import indexing, scattering
from tracejit.ops.creation import full
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.ops.elementwise.comparison import where
from tracejit.ops.movement.views import expand, reshape
from tracejit.ops.public.derive import FUNCTIONS, public

F = FUNCTIONS
_WAYS: Final = ("sum", "prod", "mean", "amax", "amin")


def _neutral(way: str, dtype: Any) -> Any:
    """What changes nothing when it is combined with a number."""
    if way in ("sum", "mean"):
        return 0
    if way == "prod":
        return 1
    if dtype.is_floating_point:
        return float("-inf") if way == "amax" else float("inf")
    if dtype.category == 0:
        return way == "amin"
    return iinfo(dtype).min if way == "amax" else iinfo(dtype).max


@public(in_place=True)
def scatter_reduce(input: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True) -> Any:
    """A copy of `input` whose element at [i][index[i][j]] (for dim=1) is combined with src[i][j] by "sum", "prod", "mean", "amax" or
    "amin"; without `include_self`, only what is scattered is combined.  Raises IndexError for positions outside [0, size)."""
    if reduce not in _WAYS:
        raise RuntimeError(f"scatter_reduce(): reduce argument must be one of {', '.join(_WAYS)}, got {reduce!r}")
    if src.dtype is not input.dtype:
        raise RuntimeError(f"scatter_reduce(): expected src of dtype {input.dtype.name}, got {src.dtype.name}")
    at = normalise_dim("scatter_reduce", dim, input.ndim)
    if not input.ndim:
        one = (1,)
        flat = scatter_reduce(
            reshape(input, shape=one), 0, F["reshape"](index, (-1,)), F["reshape"](src, (-1,)), reduce, include_self=include_self
        )
        return reshape(flat, shape=())
    if index.dtype is not int64:
        raise RuntimeError(f"scatter_reduce(): expected index of dtype int64, got {index.dtype.name}; convert it with .long()")
    if index.ndim != input.ndim and 0 in index.shape:
        return F["clone"](input)
    base = input
    if not include_self:
        base = F["scatter"](input, at, index, _neutral(reduce, input.dtype))
    if reduce == "sum":
        return F["scatter_add"](base, at, index, src)
    if reduce != "mean":
        return scattering.scatter_reduce(base, index, src, dim=at, reduce=reduce)
    total = F["scatter_add"](base, at, index, src)
    ones = full(1, shape=input._sizes, dtype=input.dtype)
    counted = ones if include_self else F["scatter"](ones, at, index, 0)
    count = F["scatter_add"](counted, at, index, full(1, shape=src._sizes, dtype=input.dtype))
    count = where(F["lt"](count, 1), 1, count)
    return total / count if input.dtype.is_floating_point else F["floor_divide"](total, count)


@public(in_place=True)
def index_reduce(input: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True) -> Any:
    """A copy of `input` whose slice index[i] along `dim` is combined with the slice i of `source` by "prod", "mean", "amax" or "amin"."""
    if reduce not in _WAYS[1:]:
        raise RuntimeError(f"index_reduce(): reduce argument must be one of {', '.join(_WAYS[1:])}, got {reduce!r}")
    at = normalise_dim("index_reduce", dim, input.ndim)
    positions = F["reshape"](cast(index, dtype=int64), (-1,))
    if not input.ndim:
        return scatter_reduce(input, 0, positions, F["reshape"](source, (-1,)), reduce, include_self=include_self)
    if positions.shape[0] != source.shape[at]:
        raise IndexError(
            f"index_reduce(): index has {positions.shape[0]} elements, source {source.shape[at]} slices along dimension {at}"
        )
    wide = _along(positions, at, source)
    return scatter_reduce(input, at, wide, source, reduce, include_self=include_self)


def _along(positions: Any, at: int, source: Any) -> Any:
    """A vector of positions, one for each slice of `source`, spread over it."""
    single = reshape(positions, shape=tuple(positions.shape[0] if d == at else 1 for d in range(source.ndim)))
    return expand(single, shape=source._sizes)


@public(in_place=True)
def put(input: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    """A copy of `input` with the elements at positions of the flattened tensor replaced by those of `source`, or with these added."""
    if source.dtype is not input.dtype:
        raise RuntimeError(f"put(): expected source of dtype {input.dtype.name}, got {source.dtype.name}")
    if index.numel() != source.numel():
        raise RuntimeError(f"put(): source has {source.numel()} elements, index {index.numel()}")
    positions = F["reshape"](index, (-1,))
    flat = indexing.index_put(
        F["reshape"](input, (-1,)), F["reshape"](source, (-1,)), positions, dims=(0,), accumulate=bool(accumulate)
    )
    return F["reshape"](flat, input._sizes)
