"""Convolutions and pooling under PyTorch's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracejit.core.precision import in_float32, rounds_once
from tracejit.ops.public import FUNCTIONS, pooling
from tracejit.ops.public.convolution import Sizes
from tracejit.ops.public.keywords import of_tensors

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d",
    "adaptive_max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "conv1d", "conv2d", "conv3d", "conv_transpose1d",
    "conv_transpose2d", "conv_transpose3d", "lp_pool1d", "lp_pool2d", "lp_pool3d", "max_pool1d", "max_pool2d", "max_pool3d",
]  # fmt: skip

conv1d, conv2d, conv3d = (FUNCTIONS[f"conv{n}d"] for n in (1, 2, 3))
conv_transpose1d, conv_transpose2d, conv_transpose3d = (FUNCTIONS[f"conv_transpose{n}d"] for n in (1, 2, 3))


def _max_pool(rank: int) -> Callable[..., Any]:
    name = f"max_pool{rank}d"

    @(in_float32 if rank == 3 else rounds_once)
    def max_pool(
        input: Any,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        return pooling.max_pool(name, rank, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)

    return _named(
        max_pool,
        name,
        "The largest element of each window; with return_indices, also its position in the flattened spatial dimensions.",
    )


def _avg_pool(rank: int) -> Callable[..., Any]:
    name = f"avg_pool{rank}d"

    @(in_float32 if rank == 3 else rounds_once)
    def avg_pool(
        input: Any,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        return pooling.avg_pool(name, rank, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)

    return _named(avg_pool, name, "The mean of each window.")


def _adaptive_avg_pool(rank: int) -> Callable[..., Any]:
    name = f"adaptive_avg_pool{rank}d"

    @(in_float32 if rank == 3 else rounds_once)
    def adaptive_avg_pool(input: Any, output_size: Any) -> Any:
        return pooling.adaptive_avg_pool(name, rank, input, output_size)

    return _named(adaptive_avg_pool, name, "Means over output_size nearly equal bins per dimension.")


def _adaptive_max_pool(rank: int) -> Callable[..., Any]:
    name = f"adaptive_max_pool{rank}d"

    def adaptive_max_pool(input: Any, output_size: Any, return_indices: bool = False) -> Any:
        return pooling.adaptive_max_pool(name, rank, input, output_size, return_indices)

    return _named(adaptive_max_pool, name, "The largest element of each of output_size nearly equal bins per dimension.")


def _lp_pool(rank: int) -> Callable[..., Any]:
    name = f"lp_pool{rank}d"

    @rounds_once
    def lp_pool(input: Any, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False) -> Any:
        return pooling.lp_pool(name, rank, input, norm_type, kernel_size, stride, ceil_mode)

    return _named(lp_pool, name, "(sum of x ** norm_type) ** (1 / norm_type) over each window.")


def _named(function: Callable[..., Any], name: str, doc: str) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return of_tensors(function)


max_pool1d, max_pool2d, max_pool3d = map(_max_pool, (1, 2, 3))
avg_pool1d, avg_pool2d, avg_pool3d = map(_avg_pool, (1, 2, 3))
adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = map(_adaptive_avg_pool, (1, 2, 3))
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = map(_adaptive_max_pool, (1, 2, 3))
lp_pool1d, lp_pool2d, lp_pool3d = map(_lp_pool, (1, 2, 3))
