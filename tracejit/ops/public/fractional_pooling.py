"""Maxima over windows that begin at random positions (Graham, 2014, https://arxiv.org/abs/1412.6071).  nn.functional exports them."""

from __future__ import annotations

from typing import Any

from tracejit.core.dtypes import int64
from tracejit.core.shapes import product
from tracejit.ops import reduce as primitives
from tracejit.ops.creation import arange
from tracejit.ops.elementwise import rounding
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.ops.elementwise.comparison import where
from tracejit.ops.indexing import gather
from tracejit.ops.movement.copies import clone
from tracejit.ops.movement.views import detach, expand, permute, reshape, select
from tracejit.ops.public.convolution import Sizes, per_dimension
from tracejit.ops.public.random import rand

__all__ = ["fractional_max_pool"]


def _begins(sample: Any, size: int, window: int, outputs: int) -> Any:
    """Where the windows begin, (N, C, outputs): about equally far apart, by one random number for each channel; the last one at the end."""
    position = arange(0, 1, length=outputs, dtype=int64)
    if outputs == 1:
        return expand(reshape(position + (size - window), shape=(1, 1, 1)), shape=(*sample.shape, 1))
    apart = (size - window) / (outputs - 1)
    offset = reshape(sample, shape=(*sample.shape, 1))
    begin = rounding.trunc((cast(position, dtype=sample.dtype) + offset) * apart) - rounding.trunc(offset * apart)
    return where(position == outputs - 1, size - window, cast(begin, dtype=int64))


def fractional_max_pool(
    name: str, rank: int, input: Any, kernel_size: Sizes, output_size: Any, output_ratio: Any, return_indices: bool, samples: Any
) -> Any:
    """The largest element of each window; with `return_indices` also its position in the flattened spatial dimensions."""
    if input.ndim not in (rank + 1, rank + 2):
        raise RuntimeError(f"{name}(): Expected {rank + 1}D or {rank + 2}D tensor, but got: {list(input._sizes)}")
    if (output_size is None) == (output_ratio is None):
        raise ValueError(f"{name}(): requires specifying one of output_size and output_ratio")
    window = per_dimension(name, "kernel_size", kernel_size, rank)
    sizes = tuple(input._sizes[-rank:])
    if output_ratio is not None:
        ratios = (output_ratio,) * rank if isinstance(output_ratio, float) else tuple(output_ratio)
        if any(not 0 < r < 1 for r in ratios):
            raise ValueError(f"{name}(): output_ratio must be between 0 and 1, got {output_ratio}")
        outputs = tuple(int(n * r) for n, r in zip(sizes, ratios, strict=True))
    else:
        outputs = per_dimension(name, "output_size", output_size, rank)
    for n, k, o in zip(sizes, window, outputs, strict=True):
        if o < 1 or o + k - 1 > n:
            raise RuntimeError(f"{name}(): pool size {k} and output size {o} are too large relative to the input size {n}")
    x = input if input.ndim == rank + 2 else reshape(input, shape=(1, *input._sizes))
    n, channels = x.shape[:2]
    if samples is None:
        samples = rand(n, channels, rank, dtype=input.dtype)
    elif samples._sizes != (n, channels, rank):
        raise RuntimeError(f"{name}(): expected _random_samples of shape {[n, channels, rank]}, got {list(samples.shape)}")
    flat: Any = 0
    for i in range(rank):
        which = rank - 1 - i if rank == 2 else i  # PyTorch's order in two dimensions: the first number is the last dimension's
        begin = _begins(select(samples, which, dim=2), sizes[i], window[i], outputs[i])
        step = arange(0, 1, length=window[i], dtype=int64)
        at = (reshape(begin, shape=(n, channels, outputs[i], 1)) + step) * product(sizes[i + 1 :])
        spread = [1] * (2 * rank)
        spread[2 * i], spread[2 * i + 1] = outputs[i], window[i]
        flat = flat + reshape(at, shape=(n, channels, *spread))
    order = (0, 1, *(2 + 2 * i for i in range(rank)), *(3 + 2 * i for i in range(rank)))
    count = product(outputs)
    positions = reshape(clone(permute(flat, dims=order)), shape=(n, channels, count * product(window)))
    rows = reshape(x if x.is_contiguous() else clone(x), shape=(n, channels, product(sizes)))
    elements = reshape(gather(rows, positions, dim=2), shape=(n, channels, count, product(window)))
    best = primitives.argmax(detach(elements), dim=3, keepdim=True)
    shape = (*input._sizes[:-rank], *outputs)
    values = reshape(gather(elements, best, dim=3), shape=shape)
    if not return_indices:
        return values
    found = gather(reshape(positions, shape=(n, channels, count, product(window))), best, dim=3)
    return values, reshape(found, shape=shape)
