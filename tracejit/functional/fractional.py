"""Pooling over windows that begin at random positions."""

from __future__ import annotations

from typing import Any

from tracejit.ops.public.convolution import Sizes
from tracejit.ops.public.fractional_pooling import fractional_max_pool
from tracejit.ops.public.keywords import of_tensors

__all__ = ["fractional_max_pool2d", "fractional_max_pool3d"]


@of_tensors
def fractional_max_pool2d(
    input: Any,
    kernel_size: Sizes,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Any = None,
) -> Any:
    """The largest element of each of output_size windows of (N, C, H, W) inputs, that begin at random positions; with return_indices also
    where it was.  output_ratio: the outputs as a part of the input, in the place of their number.  _random_samples: (N, C, 2) in [0, 1)."""
    name = "fractional_max_pool2d"
    return fractional_max_pool(name, 2, input, kernel_size, output_size, output_ratio, return_indices, _random_samples)


@of_tensors
def fractional_max_pool3d(
    input: Any,
    kernel_size: Sizes,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Any = None,
) -> Any:
    """As fractional_max_pool2d(), of (N, C, D, H, W) inputs; _random_samples: (N, C, 3)."""
    name = "fractional_max_pool3d"
    return fractional_max_pool(name, 3, input, kernel_size, output_size, output_ratio, return_indices, _random_samples)
