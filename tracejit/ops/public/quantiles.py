"""Quantiles and the most frequent element."""

from __future__ import annotations

from typing import Any, Final

from tracejit.core.dtypes import int64
from tracejit.core.shapes import normalise_dim
from tracejit.ops import scan
from tracejit.ops.creation import arange, full
from tracejit.ops.elementwise import rounding
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.ops.movement.views import detach
from tracejit.ops.public.derive import FUNCTIONS, public
from tracejit.ops.public.return_types import result_type

F = FUNCTIONS
Mode = result_type("mode", "values", "indices")
_INTERPOLATIONS: Final = ("linear", "lower", "higher", "midpoint", "nearest")


@public()
def quantile(input: Any, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear") -> Any:
    """The q-th quantiles along `dim`, or of all elements; NaN where there is a NaN.  Those of a vector `q` are put along a new first
    dimension.  interpolation: between two elements, "linear", "lower", "higher", "midpoint" or "nearest"."""
    return _quantile("quantile", input, q, dim, keepdim, interpolation, False)


@public()
def nanquantile(input: Any, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear") -> Any:
    """As quantile(), of the elements that are not NaN."""
    return _quantile("nanquantile", input, q, dim, keepdim, interpolation, True)


def _quantile(name: str, input: Any, q: Any, dim: int | None, keepdim: bool, interpolation: str, without_nan: bool) -> Any:
    if not input.dtype.is_floating_point or input.dtype.is_reduced:
        raise RuntimeError(f"{name}(): input tensor must be either float or double dtype, got {input.dtype.name}")
    if not input.numel():
        raise RuntimeError(f"{name}(): input tensor must be non-empty")
    if interpolation not in _INTERPOLATIONS:
        raise RuntimeError(f"{name}(): interpolation must be one of {', '.join(_INTERPOLATIONS)}, got {interpolation!r}")
    if not hasattr(q, "ndim"):
        q = full(float(q), shape=(), dtype=input.dtype)
    if q.ndim > 1:
        raise RuntimeError(f"{name}(): q must be a scalar or 1D tensor, got shape {list(q.shape)}")
    if q.dtype is not input.dtype:
        raise RuntimeError(
            f"{name}(): q tensor must be same dtype as the input tensor, got {q.dtype.name} and {input.dtype.name}"
        )
    if not bool(F["all"](F["logical_and"](F["ge"](q, 0), F["le"](q, 1)))):
        raise RuntimeError(f"{name}(): q values must be in the range [0, 1]")
    at = 0 if dim is None else normalise_dim(name, dim, input.ndim)
    rows = F["reshape"](input, (-1,)) if dim is None or not input.ndim else F["movedim"](input, at, -1)
    ordered = F["sort"](rows, -1).values
    n = ordered.shape[-1]
    wanted = F["reshape"](q, (-1,))
    missing = F["sum"](rounding.isnan(detach(rows)), -1, True)
    if without_nan:
        ranks = wanted * F["clamp_min"](cast(n - 1 - missing, dtype=input.dtype), 0)
    else:
        ranks = F["where"](F["gt"](missing, 0), n - 1, wanted * (n - 1))
    found = F["movedim"](_between(ordered, ranks, interpolation), -1, 0)
    if keepdim:
        shape = (1,) * input.ndim if dim is None else tuple(1 if d == at else s for d, s in enumerate(input._sizes))
        found = F["reshape"](found, (wanted.shape[0], *shape))
    return found if q.ndim else found[0]


def _between(ordered: Any, ranks: Any, interpolation: str) -> Any:
    """The elements at `ranks`, which lie between positions, of the last dimension."""
    if interpolation == "lower":
        ranks = rounding.floor(ranks)
    elif interpolation == "higher":
        ranks = rounding.ceil(ranks)
    elif interpolation == "nearest":
        ranks = rounding.rint(ranks)
    below = cast(detach(ranks), dtype=int64)
    low = F["gather"](ordered, ordered.ndim - 1, below)
    if interpolation in ("lower", "higher", "nearest"):
        return low
    weight = F["full_like"](ranks, 0.5) if interpolation == "midpoint" else ranks - cast(below, dtype=ranks.dtype)
    high = F["gather"](ordered, ordered.ndim - 1, cast(rounding.ceil(detach(ranks)), dtype=int64))
    return F["lerp"](low, high, weight)


@public()
def mode(input: Any, dim: int = -1, keepdim: bool = False) -> Any:
    """(value, index): the most frequent element along `dim`, of equally frequent ones the smallest, and the position of its last
    occurrence."""
    at = normalise_dim("mode", dim, input.ndim)
    rows = F["movedim"](input, at, -1) if input.ndim else F["reshape"](input, (1,))
    n = rows.shape[-1]
    if not n:
        raise IndexError(f"mode(): Expected reduction dim {at} to have non-zero size")
    order = F["argsort"](rows, -1)
    ordered = F["gather"](detach(rows), -1, order)
    position = arange(0, 1, length=n, dtype=int64)
    begins = F["ne"](ordered, F["roll"](ordered, 1, -1))
    start = F["gather"](
        F["where"](begins, position, 0), -1, scan.running_argmax(F["where"](begins, position, 0), dim=rows.ndim - 1)
    )
    last = F["argmax"](position - start, -1, keepdim=True)
    index = F["gather"](order, -1, last)
    value = F["gather"](rows, -1, index)
    if not input.ndim:
        return Mode(F["reshape"](value, ()), F["reshape"](index, ()))
    if keepdim:
        return Mode(F["movedim"](value, -1, at), F["movedim"](index, -1, at))
    return Mode(value[..., 0], index[..., 0])
