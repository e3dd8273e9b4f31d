"""Running extremes and running sums of exponentials along a dimension."""

from __future__ import annotations

from typing import Any

from tracejit.core.precision import in_float32
from tracejit.core.shapes import normalise_dim
from tracejit.ops import scan
from tracejit.ops.indexing import gather
from tracejit.ops.movement.views import detach, reshape
from tracejit.ops.public.derive import public
from tracejit.ops.public.return_types import result_type

Cummax = result_type("cummax", "values", "indices")
Cummin = result_type("cummin", "values", "indices")


def _running_extreme(kind: Any, op: Any, input: Any, dim: int) -> Any:
    at = normalise_dim(kind.__name__, dim, input.ndim)
    x = input if input.ndim else reshape(input, shape=(1,))
    indices = op(detach(x), dim=at)
    values = gather(x, indices, dim=at)
    return kind(values, indices) if input.ndim else kind(reshape(values, shape=()), reshape(indices, shape=()))


@public()
def cummax(input: Any, dim: int) -> Any:
    """(values, indices): the largest element up to each one along `dim`, and the position of the last of equal ones.  From a NaN on,
    NaN."""
    return _running_extreme(Cummax, scan.running_argmax, input, dim)


@public()
def cummin(input: Any, dim: int) -> Any:
    """(values, indices): the smallest element up to each one along `dim`, and the position of the last of equal ones.  From a NaN on,
    NaN."""
    return _running_extreme(Cummin, scan.running_argmin, input, dim)


@public(in_place=True)
@in_float32
def logcumsumexp(input: Any, dim: int) -> Any:
    """log(sum(exp(x))) of the elements x up to each one along `dim`, without overflow.  Raises RuntimeError for integers."""
    if not input.dtype.is_floating_point:
        raise RuntimeError(f"logcumsumexp(): expected a floating-point input, got {input.dtype.name}; convert it with .float()")
    at = normalise_dim("logcumsumexp", dim, input.ndim)
    if not input.ndim:
        return reshape(scan.logcumsumexp(reshape(input, shape=(1,)), dim=0), shape=())
    return scan.logcumsumexp(input, dim=at)
