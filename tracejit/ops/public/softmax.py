"""Public softmax and log_softmax: compositions, shifted by the maximum so that they do not overflow."""

from __future__ import annotations

from typing import Any

from tracejit.core import dtypes
from tracejit.core.precision import rounds_once
from tracejit.core.shapes import normalise_dim
from tracejit.ops import reduce as primitives
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.ops.elementwise.mathematics import exp, log
from tracejit.ops.movement.views import detach
from tracejit.ops.public.derive import public


def shifted(name: str, input: Any, dim: int, dtype: dtypes.DType | None) -> tuple[Any, tuple[int, ...]]:
    """(input - its maximum along `dim`, the dimensions reduced).  The maximum is a constant to autograd: the shift cancels."""
    if dtype is not None and input.dtype is not dtype:
        input = cast(input, dtype=dtype)
    if not input.dtype.is_floating_point:
        raise RuntimeError(
            f"{name}(): expected a floating-point input, got {input.dtype.name}; pass dtype=, e.g. tracejit.float32"
        )
    at = normalise_dim(name, dim, input.ndim)
    dims = (at,) if input.ndim else ()
    if input.ndim and input.shape[at] == 0:
        return input, dims
    return input - detach(primitives.amax(input, dims=dims, keepdim=True)), dims


@public()
@rounds_once
def softmax(input: Any, dim: int, *, dtype: dtypes.DType | None = None) -> Any:
    """exp(input) / sum(exp(input)) along `dim`, computed in `dtype` if given.  Raises RuntimeError for integer input without a dtype."""
    x, dims = shifted("softmax", input, dim, dtype)
    e = exp(x)
    return e / primitives.sum_(e, dims=dims, keepdim=True)


@public()
@rounds_once
def log_softmax(input: Any, dim: int, *, dtype: dtypes.DType | None = None) -> Any:
    """log(softmax(input)) along `dim` without its rounding error.  Raises RuntimeError for integer input without a dtype."""
    x, dims = shifted("log_softmax", input, dim, dtype)
    return x - log(primitives.sum_(exp(x), dims=dims, keepdim=True))
