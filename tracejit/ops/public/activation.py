"""Activation functions that are methods of tensors too; the others are in tracejit.functional."""

from __future__ import annotations

from typing import Any

from tracejit.core.numbers import settled
from tracejit.core.precision import lowered
from tracejit.ops.composites import pointwise
from tracejit.ops.elementwise.comparison import where
from tracejit.ops.movement.views import reshape
from tracejit.ops.public.derive import public
from tracejit.ops.public.keywords import of_tensors

__all__ = ["hardshrink", "prelu"]


@public(function=False)
@of_tensors
@lowered
def prelu(input: Any, weight: Any) -> Any:
    """leaky_relu with a learned slope: `weight` has one element, or one for each channel (dimension 1 of `input`)."""
    if weight.ndim > 1:
        raise RuntimeError(f"prelu(): expected weight to be a scalar or a vector, got shape {list(weight.shape)}")
    count = weight.numel()
    if count != 1:
        channels = input._sizes[1] if input.ndim > 1 else 1
        if count != channels:
            raise RuntimeError(f"prelu(): expected weight to have 1 or {channels} elements (the channels of input), got {count}")
    shape = (1, count) + (1,) * (input.ndim - 2) if input.ndim > 1 else (1,) * input.ndim
    return where(input > 0, input, input * reshape(weight, shape=shape))


@public(function=False)
@of_tensors
def hardshrink(input: Any, lambd: float = 0.5) -> Any:
    """0 where |input| <= lambd, input elsewhere."""
    return pointwise.hardshrink(input, settled(lambd))
