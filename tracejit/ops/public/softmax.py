"""Public softmax and log_softmax."""

from __future__ import annotations

from typing import Any

from tracejit.core import dtypes
from tracejit.core.interpreter import state
from tracejit.core.shapes import normalise_dim
from tracejit.ops.composites import softmax as primitives
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.ops.movement.copies import clone
from tracejit.ops.movement.views import reshape
from tracejit.ops.public.derive import public


def _along(op: Any, input: Any, dim: int, dtype: dtypes.DType | None) -> Any:
    """The primitive along `dim` of the input in `dtype`; what has no elements there has none at all, and a lone number is its own row."""
    given = input.dtype
    if dtype is not None and given is not dtype:
        input, given = cast(input, dtype=dtype), dtype
    if not given.is_floating_point:
        raise NotImplementedError(
            f"{op.name}(): expected a floating-point input, got {given.name}; pass dtype=, e.g. tracejit.float32"
        )
    shape = input._sizes
    at = normalise_dim(op.name, dim, len(shape))
    if not shape:
        return reshape(op(reshape(input, shape=(1,)), dim=0), shape=())
    return state.top.bind(op, (input,), {"dim": at}) if shape[at] else clone(input)


@public()
def softmax(input: Any, dim: int, dtype: dtypes.DType | None = None) -> Any:
    """exp(input) / sum(exp(input)) along `dim`, computed in `dtype` if given.  Raises RuntimeError for integer input without a dtype."""
    return _along(primitives.softmax, input, dim, dtype)


@public()
def log_softmax(input: Any, dim: int, dtype: dtypes.DType | None = None) -> Any:
    """log(softmax(input)) along `dim` without its rounding error.  Raises RuntimeError for integer input without a dtype."""
    return _along(primitives.log_softmax, input, dim, dtype)
