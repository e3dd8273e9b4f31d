"""Pooling in one to three dimensions, as compositions of windows and reductions.  nn.functional exports them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracejit.core.dtypes import DType, float64, int64
from tracejit.core.numbers import settled
from tracejit.core.shapes import largest, product, size_range
from tracejit.core.symbolic import concretise_sizes
from tracejit.ops import linalg
from tracejit.ops import reduce as primitives
from tracejit.ops.composites.windows import max_of_windows, sum_of_windows
from tracejit.ops.creation import ArrayConstant, arange, constant
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.ops.elementwise.comparison import where
from tracejit.ops.indexing import gather, index_select
from tracejit.ops.movement import copies, views
from tracejit.ops.public.convolution import Sizes, padded, per_dimension, windows
from tracejit.ops.public.elementwise import div

__all__ = ["adaptive_avg_pool", "adaptive_max_pool", "avg_pool", "lp_pool", "max_pool"]


def _check(name: str, rank: int, x: Any) -> None:
    if x.ndim not in (rank + 1, rank + 2):
        raise RuntimeError(
            f"{name}(): expected {rank + 1}D (unbatched) or {rank + 2}D (batched) input, got shape {list(x.shape)}"
        )


def _extents(
    name: str,
    x: Any,
    size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(outputs, elements to add at the high end) per dimension."""
    outputs, high = [], []
    for n, k, s, p, d in zip(x.shape[-len(size) :], size, stride, padding, dilation, strict=True):
        if not (k > 0 and s > 0 and d > 0):
            raise RuntimeError(f"{name}(): kernel_size, stride and dilation must be positive, got {k}, {s} and {d}")
        if not 0 <= 2 * p <= k:
            raise RuntimeError(
                f"{name}(): pad should be at most half of effective kernel size, but got pad={p} for kernel_size={k}"
            )
        span = n + 2 * p - d * (k - 1) - 1
        count = (-(-span // s) if ceil_mode else span // s) + 1
        if ceil_mode and (count - 1) * s >= n + p:
            count -= 1  # a window may not begin in the padding at the high end
        if count < 1:
            raise RuntimeError(f"{name}(): the input of size {n} is too small for a window of {k} (dilation {d}, padding {p})")
        outputs.append(count)
        high.append(largest((0, (count - 1) * s + d * (k - 1) + 1 - n - p)))
    return tuple(outputs), tuple(high)


def _flat_windows(
    x: Any, rank: int, size: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...], outputs: tuple[int, ...]
) -> Any:
    """(leading, outputs, elements of a window), copied."""
    for i, (n, k, s, d) in enumerate(zip(outputs, size, stride, dilation, strict=True)):
        dim = x.ndim - rank + i
        needed = (n - 1) * s + d * (k - 1) + 1
        if s > 1:  # there may be a rest, for some sizes
            x = views.slice_(x, dim=dim, start=0, stop=needed, step=1)
    spread = windows(x, rank, size, stride, dilation)
    return views.reshape(copies.clone(spread), shape=(*spread.shape[:-rank], product(size)))


def max_pool(
    name: str,
    rank: int,
    input: Any,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of each window (NaN where there is one); with `return_indices`, also its position in the flattened spatial
    dimensions.  The gradient goes to the first of equals."""
    _check(name, rank, input)
    size = per_dimension(name, "kernel_size", kernel_size, rank)
    step = size if stride in (None, [], ()) else per_dimension(name, "stride", stride, rank)
    low = per_dimension(name, "padding", padding, rank)
    gap = per_dimension(name, "dilation", dilation, rank)
    outputs, high = _extents(name, input, size, step, low, gap, ceil_mode)
    lowest = -math.inf if input.dtype.is_floating_point else int(np.iinfo(input.dtype.numpy).min)
    x = padded(input, low, high, lowest)
    if not return_indices:
        return max_of_windows(x, size, step, gap, outputs)
    elements = _flat_windows(x, rank, size, step, gap, outputs)
    last = elements.ndim - 1
    best = primitives.argmax(views.detach(elements), dim=last, keepdim=True)
    values = views.select(gather(elements, best, dim=last), 0, dim=last)
    table = _positions(*map(concretise_sizes, (tuple(input._sizes[-rank:]), outputs, size, step, low, gap)))
    positions = views.expand(constant(array=ArrayConstant(table)), shape=(*values.shape, table.shape[-1]))
    return values, views.select(gather(copies.clone(positions), best, dim=last), 0, dim=last)


def _positions(sizes: tuple[int, ...], outputs: Any, size: Any, step: Any, low: Any, gap: Any) -> Any:
    """Flat input position of each element of each window."""
    rank = len(sizes)
    total = np.zeros((1,) * (2 * rank), np.int64)
    for i in range(rank):
        at = np.arange(outputs[i])[:, None] * step[i] + np.arange(size[i]) * gap[i] - low[i]
        shape = [1] * (2 * rank)
        shape[i], shape[rank + i] = at.shape
        total = total + at.reshape(shape) * int(np.prod(sizes[i + 1 :]))
    return np.ascontiguousarray(total.reshape(*outputs, -1))


def _counts(sizes: tuple[int, ...], outputs: Any, size: Any, step: Any, low: Any, include: bool, dtype: DType) -> Any:
    """How many elements each window counts: those of the input, and of the symmetric padding if `include`."""
    total: Any = 1
    for i, n in enumerate(sizes):
        start = arange(-low[i], step[i], length=outputs[i], dtype=int64)
        stop = (start + size[i]).clamp(max=n + low[i])
        count = stop - start if include else stop.clamp(max=n) - start.clamp(0)
        total = total * views.reshape(count, shape=(outputs[i], *(1,) * (len(sizes) - 1 - i)))
    return cast(total, dtype=dtype)


def avg_pool(
    name: str,
    rank: int,
    input: Any,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """The mean of each window."""
    _check(name, rank, input)
    if divisor_override == 0:
        raise RuntimeError(f"{name}(): divisor must be not zero")
    size = per_dimension(name, "kernel_size", kernel_size, rank)
    step = size if stride in (None, [], ()) else per_dimension(name, "stride", stride, rank)
    low = per_dimension(name, "padding", padding, rank)
    ones = (1,) * rank
    outputs, high = _extents(name, input, size, step, low, ones, ceil_mode)
    x = padded(input, low, high, 0.0)
    total = sum_of_windows(x, size, step, outputs)
    if divisor_override is not None:
        return _divided(total, divisor_override)
    if not ceil_mode and (count_include_pad or not any(low)):  # all windows are whole
        return _divided(total, product(size))
    return _divided(total, _counts(tuple(input._sizes[-rank:]), outputs, size, step, low, count_include_pad, input.dtype))


def _divided(total: Any, count: Any) -> Any:
    """The quotient; of integers without its fraction."""
    return total / count if total.dtype.is_floating_point else div(total, count, rounding_mode="trunc")


def lp_pool(
    name: str, rank: int, input: Any, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False
) -> Any:
    """(sum of x ** norm_type) ** (1 / norm_type) over each window.  A window that reaches over the end (ceil_mode) stands for a full one
    of the same mean, as in PyTorch."""
    _check(name, rank, input)
    size = per_dimension(name, "kernel_size", kernel_size, rank)
    step = size if stride is None else per_dimension(name, "stride", stride, rank)
    outputs, high = _extents(name, input, size, step, (0,) * rank, (1,) * rank, ceil_mode)
    total = sum_of_windows(padded(input**norm_type, (0,) * rank, high, 0.0), size, step, outputs)
    if any(high):
        counts = _counts(tuple(input._sizes[-rank:]), outputs, size, step, (0,) * rank, False, float64)
        total = total * cast(product(size) / counts, dtype=input.dtype)
    nothing = total == 0  # where the gradient is 0, as in PyTorch
    return where(nothing, 0.0, where(nothing, 1.0, total) ** (1 / norm_type))


def _targets(name: str, rank: int, input: Any, output_size: Any) -> tuple[int, ...]:
    _check(name, rank, input)
    output_size = settled(output_size)
    wanted = (output_size,) * rank if isinstance(output_size, int) or output_size is None else tuple(output_size)
    if len(wanted) != rank:
        raise RuntimeError(f"{name}(): output_size must be a number or {rank} numbers, got {list(wanted)}")
    out = tuple(n if w is None else int(w) for w, n in zip(wanted, input._sizes[-rank:], strict=True))
    if min(out) < 0:
        raise RuntimeError(f"{name}(): elements of output_size must not be negative, got {list(out)}")
    return out


def _bins(size: int, outputs: int) -> list[tuple[int, int]]:
    return [((i * size) // outputs, -((-(i + 1) * size) // outputs)) for i in size_range(0, outputs)]


def adaptive_avg_pool(name: str, rank: int, input: Any, output_size: Any) -> Any:
    """Means over as many nearly equal bins per dimension as `output_size` says: a product with an averaging matrix per dimension."""
    x = input
    for i, outputs in enumerate(_targets(name, rank, input, output_size)):
        dim = x.ndim - rank + i
        size = x.shape[dim]
        if outputs == size:
            continue
        if outputs and size % outputs == 0:
            split = views.reshape(
                x if x.is_contiguous() else copies.clone(x), shape=(*x.shape[:dim], outputs, size // outputs, *x.shape[dim + 1 :])
            )
            x = primitives.sum_(split, dims=(dim + 1,), keepdim=False) / (size // outputs)
            continue
        order = (*(d for d in range(x.ndim) if d != dim), dim)
        back = tuple(order.index(d) for d in range(x.ndim))
        x = views.permute(linalg.matmul(views.permute(x, dims=order), _averages(size, outputs, x.dtype)), dims=back)
    return copies.clone(x) if x is input or not x.is_contiguous() else x


def _averages(size: int, outputs: int, dtype: DType) -> Any:
    """A matrix whose columns are the bins, with equal weights whose sum is 1 in each."""
    number = arange(0, size, length=outputs, dtype=int64)
    first, end = number // outputs, (number + (size + outputs - 1)) // outputs
    position = views.reshape(arange(0, 1, length=size, dtype=int64), shape=(size, 1))
    weights = where((position >= first) & (position < end), 1.0 / cast(end - first, dtype=float64), 0.0)
    return cast(weights, dtype=dtype)


def adaptive_max_pool(name: str, rank: int, input: Any, output_size: Any, return_indices: bool = False) -> Any:
    """The largest element of as many nearly equal bins per dimension as `output_size` says."""
    targets = _targets(name, rank, input, output_size)
    sizes = tuple(input._sizes[-rank:])
    first = input.ndim - rank
    x = input
    if return_indices:
        sizes = concretise_sizes(sizes)
    table = np.arange(product(sizes), dtype=np.int64).reshape(sizes) if return_indices else None
    for i, outputs in enumerate(
        targets
    ):  # each dimension becomes (bin, element of the bin), short bins repeating their last element
        dim = first + 2 * i
        if table is None and outputs and sizes[i] % outputs == 0:
            x = views.reshape(
                x if x.is_contiguous() else copies.clone(x),
                shape=(*x.shape[:dim], outputs, sizes[i] // outputs, *x.shape[dim + 1 :]),
            )
            continue
        bins = concretise_sizes(_bins(sizes[i], outputs))
        longest = max((b - a for a, b in bins), default=1)
        positions = np.array([[min(a + j, b - 1) for j in range(longest)] for a, b in bins], np.int64).reshape(outputs, longest)
        x = index_select(x, constant(array=ArrayConstant(positions)), dim=dim)
        table = None if table is None else np.take(table, positions, axis=2 * i)
    outer, elements = tuple(range(0, 2 * rank, 2)), tuple(range(1, 2 * rank, 2))
    x = views.permute(x, dims=(*range(first), *(first + d for d in outer), *(first + d for d in elements)))
    count = product(x.shape[first + rank :])
    flat = views.reshape(copies.clone(x), shape=(*x.shape[: first + rank], count))
    last = flat.ndim - 1
    best = primitives.argmax(views.detach(flat), dim=last, keepdim=True)
    values = views.select(gather(flat, best, dim=last), 0, dim=last)
    if table is None:
        return values
    spread = np.ascontiguousarray(table.transpose(*outer, *elements).reshape(*targets, count))
    everywhere = views.expand(constant(array=ArrayConstant(spread)), shape=flat._sizes)
    return values, cast(views.select(gather(copies.clone(everywhere), best, dim=last), 0, dim=last), dtype=int64)
