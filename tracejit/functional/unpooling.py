"""The inverse of max pooling, as far as there is one: values put back at the positions that the pooling gave."""

from __future__ import annotations

from typing import Any

from tracejit.core.precision import in_float32
from tracejit.core.shapes import product
from tracejit.ops import indexing
from tracejit.ops.creation import full
from tracejit.ops.public.convolution import Sizes, per_dimension
from tracejit.ops.public.keywords import of_tensors

__all__ = ["max_unpool1d", "max_unpool2d", "max_unpool3d"]


def _unpooled(
    rank: int, input: Any, indices: Any, kernel_size: Sizes, stride: Sizes | None, padding: Sizes, output_size: Any
) -> Any:
    name = f"max_unpool{rank}d"
    if input.ndim not in (rank + 1, rank + 2) or indices._sizes != input._sizes:
        raise RuntimeError(
            f"{name}(): expected {rank + 1}D or {rank + 2}D input and indices of its shape, got {list(input._sizes)} and "
            f"{list(indices.shape)}"
        )
    size = per_dimension(name, "kernel_size", kernel_size, rank)
    step = size if stride in (None, [], ()) else per_dimension(name, "stride", stride, rank)  # type: ignore[arg-type]
    low = per_dimension(name, "padding", padding, rank)
    least = [(n - 1) * s + k - 2 * p for n, s, k, p in zip(input._sizes[-rank:], step, size, low, strict=True)]
    target = least if output_size is None else list(output_size)[-rank:]
    if any(not n - s < t < n + s for n, s, t in zip(least, step, target, strict=True)):
        raise ValueError(f"{name}(): invalid output_size {target}, the default of which is {least} (for stride {list(step)})")
    lead = tuple(input._sizes[:-rank])
    positions = product(input._sizes[-rank:])
    empty = full(0, shape=(*lead, product(target)), dtype=input.dtype)
    flat = indexing.scatter(empty, indices.reshape(*lead, positions), input.reshape(*lead, positions), dim=len(lead))
    return flat.reshape(*lead, *target)


@of_tensors
def max_unpool1d(
    input: Any, indices: Any, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, output_size: Any = None
) -> Any:
    """Values of (N, C, L) inputs at the positions `indices` that max_pool1d gave, zeros elsewhere."""
    return _unpooled(1, input, indices, kernel_size, stride, padding, output_size)


@of_tensors
@in_float32
def max_unpool2d(
    input: Any, indices: Any, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, output_size: Any = None
) -> Any:
    """Values of (N, C, H, W) inputs at the positions `indices` that max_pool2d gave, zeros elsewhere."""
    return _unpooled(2, input, indices, kernel_size, stride, padding, output_size)


@of_tensors
@in_float32
def max_unpool3d(
    input: Any, indices: Any, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, output_size: Any = None
) -> Any:
    """Values of (N, C, D, H, W) inputs at the positions `indices` that max_pool3d gave, zeros elsewhere."""
    return _unpooled(3, input, indices, kernel_size, stride, padding, output_size)
