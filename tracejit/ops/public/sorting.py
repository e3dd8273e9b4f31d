"""Public functions that order elements, and positions of extremes together with their values."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.core.dtypes import int32, int64
from tracejit.core.interpreter import state
from tracejit.core.numbers import settled
from tracejit.core.shapes import normalise_dim, product
from tracejit.ops import reduce as primitives
from tracejit.ops import sorting
from tracejit.ops.composites.leading import leading
from tracejit.ops.creation import full
from tracejit.ops.elementwise import comparison, rounding
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.ops.indexing import gather
from tracejit.ops.movement.copies import clone
from tracejit.ops.movement.views import detach, reshape, select, slice_
from tracejit.ops.public.derive import public
from tracejit.ops.public.reduce import require_elements
from tracejit.ops.public.return_types import result_type

Max = result_type("max", "values", "indices")
Min = result_type("min", "values", "indices")
Sort = result_type("sort", "values", "indices")
Topk = result_type("topk", "values", "indices")
Kthvalue = result_type("kthvalue", "values", "indices")
Median = result_type("median", "values", "indices")
Nanmedian = result_type("nanmedian", "values", "indices")
Aminmax = result_type("aminmax", "min", "max")


def _at_positions(kind: Any, input: Any, dim: int, indices: Any, keepdim: bool) -> Any:
    """The elements of `input` at `indices`, whose size along `dim` is 1."""
    values = gather(input, indices, dim=dim)
    if keepdim or not input.ndim:
        return kind(values, indices)
    return kind(select(values, 0, dim=dim), select(indices if indices.is_contiguous() else clone(indices), 0, dim=dim))


def _extreme(kind: Any, op: Any, position: Any, pairwise: Any, input: Any, dim: Any, keepdim: bool) -> Any:
    if dim is None:
        require_elements(op.name, input)
        return op(input, dims=tuple(range(input.ndim)), keepdim=False)
    if hasattr(dim, "dtype"):
        return pairwise(input, dim)
    at = normalise_dim(op.name, dim, input.ndim)
    return _at_positions(kind, input, at, position(detach(input), dim=at, keepdim=True), keepdim)


@public("max")
def max_(input: Any, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    """The largest element; with `dim`, (values, indices) along it; with a second tensor, the elementwise maximum."""
    return _extreme(
        Max, primitives.amax, primitives.argmax, comparison.maximum, input, settled(dim) if other is None else other, keepdim
    )


@public("min")
def min_(input: Any, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    """The smallest element; with `dim`, (values, indices) along it; with a second tensor, the elementwise minimum."""
    return _extreme(
        Min, primitives.amin, primitives.argmin, comparison.minimum, input, settled(dim) if other is None else other, keepdim
    )


@public()
def aminmax(input: Any, *, dim: int | None = None, keepdim: bool = False) -> Any:
    """(smallest, largest) element, over all or along `dim`."""
    if dim is None:
        require_elements("aminmax", input)
    dims = tuple(range(input.ndim)) if dim is None else ((normalise_dim("aminmax", dim, input.ndim),) if input.ndim else ())
    return Aminmax(primitives.amin(input, dims=dims, keepdim=keepdim), primitives.amax(input, dims=dims, keepdim=keepdim))


@public()
def argsort(input: Any, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:
    """Positions that sort `input` along `dim`.  Always stable; NaN counts as the largest."""
    at = normalise_dim("argsort", dim, input.ndim)
    if not input.ndim:
        return reshape(sorting.argsort(reshape(detach(input), shape=(1,)), dim=0, descending=False), shape=())
    return sorting.argsort(detach(input), dim=at, descending=bool(descending))


@public()
def sort(input: Any, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:
    """(values, indices) of `input` in order along `dim`.  Always stable; NaN counts as the largest."""
    at = normalise_dim("sort", dim, input.ndim)
    if not input.ndim:
        indices = argsort(input)
        return Sort(gather(input, indices, dim=at), indices)
    return Sort(*leading(input, dim=at, count=input._sizes[at], descending=bool(descending)))


@public()
def msort(input: Any) -> Any:
    """The elements in ascending order along the first dimension."""
    return sort(input, 0).values


@public()
def topk(input: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """(values, indices) of the k largest (or smallest) elements along `dim`, in order.  Raises RuntimeError if there are fewer."""
    shape = input._sizes
    at = normalise_dim("topk", dim, len(shape))
    size = shape[at] if shape else 1
    if not 0 <= k <= size:
        raise RuntimeError(f"topk(): selected index k out of range: k is {k}, dimension {at} has size {size}")
    if not shape:
        return Topk(input + 0 if k else input, argsort(input))
    return Topk(*state.top.bind(leading, (input,), {"dim": at, "count": k, "descending": bool(largest)}))


@public()
def kthvalue(input: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """(value, index) of the k-th smallest element along `dim`, counted from 1."""
    at = normalise_dim("kthvalue", dim, input.ndim)
    size = input._sizes[at] if input.ndim else 1
    if not 1 <= k <= size:
        raise RuntimeError(f"kthvalue(): selected number k out of range: k is {k}, dimension {at} has size {size}")
    if not input.ndim:
        return _at_positions(Kthvalue, input, at, argsort(input), keepdim)
    return _at_positions(Kthvalue, input, at, slice_(argsort(input, at), dim=at, start=k - 1, stop=k, step=1), keepdim)


def _shared_among_equals(flat: Any, value: Any) -> Any:
    """`value`, an element of a vector; its gradient is divided evenly among all elements that equal it, as PyTorch does."""
    missing = rounding.isnan(value)
    broken, equal = rounding.isnan(flat) & missing, comparison.eq(flat, value)
    count = primitives.sum_(cast(broken, dtype=flat.dtype), dims=(0,), keepdim=False)
    mean = primitives.sum_(comparison.where(broken, flat, 0.0), dims=(0,), keepdim=False) / comparison.where(missing, count, 1.0)
    largest = primitives.amax(comparison.where(equal, flat, float("-inf")), dims=(0,), keepdim=False)  # all of them are equal
    return comparison.where(missing, mean, largest)


@public()
def median(input: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """The median (the lower one of two), NaN where there is a NaN; with `dim`, (values, indices) along it."""
    if dim is None:
        flat = reshape(input if input.is_contiguous() else input.clone(), shape=(product(input._sizes),))
        if not input.dtype.is_floating_point:
            return median(flat, 0).values
        if not flat.shape[0]:
            return full(float("nan"), shape=(), dtype=input.dtype)
        return _shared_among_equals(flat, median(detach(flat), 0).values)
    at = normalise_dim("median", dim, input.ndim)
    if not input.ndim:
        return _at_positions(Median, input, at, argsort(input), keepdim)
    size = input._sizes[at]
    if not size:
        raise IndexError(f"median(): expected dimension {at} to have elements, got a tensor of shape {list(input._sizes)}")
    middle = (size - 1) // 2
    indices = slice_(argsort(input, at), dim=at, start=middle, stop=middle + 1, step=1)
    if input.dtype.is_floating_point:
        broken = primitives.any_(rounding.isnan(input), dims=(at,), keepdim=True)
        indices = comparison.where(broken, primitives.argmax(detach(input), dim=at, keepdim=True), indices)
    return _at_positions(Median, input, at, indices, keepdim)


@public()
def nanmedian(input: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """The median (the lower one of two) of the elements that are not NaN; with `dim`, (values, indices) along it."""
    if not input.dtype.is_floating_point:
        return median(input, dim, keepdim)
    if dim is None:
        flat = reshape(input if input.is_contiguous() else input.clone(), shape=(product(input._sizes),))
        return _shared_among_equals(flat, nanmedian(detach(flat), 0).values) if flat.shape[0] else median(input)
    at = normalise_dim("nanmedian", dim, input.ndim)
    if not input.ndim:
        return _at_positions(Nanmedian, input, at, argsort(input), keepdim)
    present = cast(rounding.isnan(input) == False, dtype=int64)  # noqa: E712  (elementwise)
    count = primitives.sum_(present, dims=(at,), keepdim=True)
    middle = comparison.maximum(count - 1, 0) // 2  # NaN comes last
    return _at_positions(Nanmedian, input, at, gather(argsort(input, at), middle, dim=at), keepdim)


@public(method=False)
def searchsorted(
    sorted_sequence: Any, input: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None, sorter: Any = None
) -> Any:
    """Where each element of `input` would be inserted into the sorted last dimension of `sorted_sequence`.

    sorter: the positions that sort it, if it is not sorted.  The result is int64, or int32 on request."""
    if not hasattr(input, "ndim") or isinstance(input, np.generic):
        input = full(input, shape=(), dtype=sorted_sequence.dtype)
    if sorter is not None:
        sorted_sequence = gather(sorted_sequence, sorter, dim=sorted_sequence.ndim - 1)
    if sorted_sequence.ndim > 1 and sorted_sequence.shape[:-1] != input._sizes[:-1]:
        raise RuntimeError(
            f"searchsorted(): boundaries of shape {list(sorted_sequence.shape)} need values with the same leading sizes, "
            f"got {list(input._sizes)}"
        )
    return _narrowed(sorting.searchsorted(detach(sorted_sequence), detach(input), right=right or side == "right"), out_int32)


def _narrowed(positions: Any, narrow: bool) -> Any:
    return cast(positions, dtype=int32) if narrow else positions


@public(method=False)
def bucketize(input: Any, boundaries: Any, *, out_int32: bool = False, right: bool = False) -> Any:
    """Which bucket between the sorted 1-D `boundaries` each element falls into; int64, or int32 on request."""
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)
