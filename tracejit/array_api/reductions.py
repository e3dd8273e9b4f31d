"""The standard's statistical functions, and those that reduce or accumulate along axes."""

from __future__ import annotations

from typing import Any

from tracejit import functions as F
from tracejit.array_api.promotion import require_floating
from tracejit.core import dtypes
from tracejit.core.shapes import normalise_dim


def _axes(x: Any, axis: Any) -> Any:
    return tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)


def _over(function: Any, x: Any, axis: Any, keepdims: bool, **options: Any) -> Any:
    """The function over the axes; over none, element by element."""
    dims = _axes(x, axis)
    if dims or not x.ndim:
        return function(x, dims if x.ndim else None, keepdims, **options)
    return F.squeeze(function(F.unsqueeze(x, -1), -1, True, **options), -1)


def _accumulated(x: Any, dtype: Any) -> Any:
    """The dtype in which elements are added up or multiplied: int64 for integers and bools."""
    return dtype if dtype is not None or x.dtype.is_floating_point else dtypes.int64


def all(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Whether all elements over the axes are nonzero."""
    return _over(F.all, x, axis, keepdims)


def any(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Whether any element over the axes is nonzero."""
    return _over(F.any, x, axis, keepdims)


def argmax(x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Any:
    """Position of the largest element."""
    return F.argmax(x, axis, keepdims)


def argmin(x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Any:
    """Position of the smallest element."""
    return F.argmin(x, axis, keepdims)


def count_nonzero(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """How many elements over the axes are not 0."""
    return _over(F.sum, F.ne(x, 0), axis, keepdims)


def _cumulative(function: Any, first: Any, x: Any, axis: int | None, dtype: Any, include_initial: bool) -> Any:
    if axis is None:
        if x.ndim > 1:
            raise ValueError(f"{function.__name__}(): an axis is needed for an array of {x.ndim} axes")
        axis = 0
    if not x.ndim:
        x = F.reshape(x, (1,))
    at = normalise_dim(function.__name__, axis, x.ndim)
    out = function(x, at, dtype=_accumulated(x, dtype))
    if include_initial:
        shape = tuple(1 if d == at else s for d, s in enumerate(out.shape))
        out = F.cat([F.full(shape, first, dtype=out.dtype), out], at)
    return out


def cumulative_sum(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Any:
    """Sum of the elements up to each one along an axis, with 0 in front if asked for."""
    return _cumulative(F.cumsum, 0, x, axis, dtype, include_initial)


def cumulative_prod(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Any:
    """Product of the elements up to each one along an axis, with 1 in front if asked for."""
    return _cumulative(F.cumprod, 1, x, axis, dtype, include_initial)


def diff(x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Any:
    """Differences of neighbours, taken n times."""
    return F.diff(x, n, axis, prepend, append)


def max(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """The largest element over the axes."""
    return _over(F.amax, x, axis, keepdims) if x.ndim else F.clone(x)


def min(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """The smallest element over the axes."""
    return _over(F.amin, x, axis, keepdims) if x.ndim else F.clone(x)


def mean(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """The mean over the axes."""
    require_floating("mean", x)
    return _over(F.mean, x, axis, keepdims)


def prod(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """The product over the axes; of integers in int64."""
    return _over(F.prod, x, axis, keepdims, dtype=_accumulated(x, dtype))


def sum(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """The sum over the axes; of integers in int64."""
    return _over(F.sum, x, axis, keepdims, dtype=_accumulated(x, dtype))


def std(x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Any:
    """The standard deviation over the axes, with divisor n - correction."""
    return F.sqrt(var(x, axis=axis, correction=correction, keepdims=keepdims))


def var(x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Any:
    """The variance over the axes, with divisor n - correction."""
    require_floating("var", x)
    dims = _axes(x, axis)
    if not dims:
        return (x - x) * (1.0 if correction < 1 else float("nan"))  # of one element each
    return F.var(x, dims, None, keepdims, correction=correction)
