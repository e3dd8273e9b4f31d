"""Public reductions."""

from __future__ import annotations

from typing import Any

from tracejit.core import dtypes
from tracejit.core.interpreter import state
from tracejit.core.precision import in_float32, rounds_once
from tracejit.core.shapes import equal, normalise_dim, normalise_dims, product
from tracejit.ops import reduce as primitives
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.ops.elementwise.comparison import where
from tracejit.ops.elementwise.mathematics import deviation, exp, log
from tracejit.ops.elementwise.rounding import isnan
from tracejit.ops.movement.copies import clone
from tracejit.ops.movement.views import detach, reshape
from tracejit.ops.public.derive import public
from tracejit.ops.public.movement import shape_of
from tracejit.ops.scan import cumprod as scan_product
from tracejit.ops.scan import cumsum as scan_sum

Dim = int | tuple[int, ...] | list[int] | None


def _widened(input: Any, dtype: dtypes.DType | None) -> Any:
    """Integers and bools are summed in int64."""
    given = input.dtype
    if dtype is None and given.is_floating_point:
        return input
    target = dtype or dtypes.int64
    return input if given is target else cast(input, dtype=target)


@public("sum")
def sum_(input: Any, dim: Dim = None, keepdim: bool = False, *, dtype: dtypes.DType | None = None) -> Any:
    """Sum over `dim` (all dimensions for None); integers and bools are summed in int64 unless `dtype` is given."""
    dims = normalise_dims("sum", dim, input.ndim)
    return state.top.bind(primitives.sum_, (_widened(input, dtype),), {"dims": dims, "keepdim": keepdim})


@public(function=False)
def sum_to_size(input: Any, *size: Any) -> Any:
    """Summed to a shape that broadcasts to the tensor's: the adjoint of expand().  Raises RuntimeError for other shapes."""
    shape = shape_of("sum_to_size", size)
    lead = input.ndim - len(shape)
    if lead < 0 or not all(s == 1 or equal(s, n) for s, n in zip(shape, input._sizes[lead:], strict=True)):
        raise RuntimeError(f"sum_to_size(): size {list(shape)} is not expandable to size {list(input._sizes)}")
    dims = [d for d, n in enumerate(input._sizes) if d < lead or (shape[d - lead] == 1 and n != 1)]
    total = primitives.sum_(input, dims=tuple(dims), keepdim=True) if dims else input
    return reshape(total, shape=shape)


@public()
@rounds_once
def mean(input: Any, dim: Dim = None, keepdim: bool = False, *, dtype: dtypes.DType | None = None) -> Any:
    """Mean over `dim` (all dimensions for None).  Raises RuntimeError for integer input without a floating-point `dtype`."""
    if dtype is not None and input.dtype is not dtype:
        input = cast(input, dtype=dtype)
    if not input.dtype.is_floating_point:
        raise RuntimeError(
            f"mean(): expected a floating-point input dtype, got {input.dtype.name}; convert it, e.g. input.float().mean()"
        )
    dims = normalise_dims("mean", dim, input.ndim)
    return state.top.bind(primitives.mean, (input,), {"dims": dims, "keepdim": keepdim})


@public()
@rounds_once
def var(input: Any, dim: Dim = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: float | None = 1) -> Any:
    """Variance over `dim` with divisor max(0, n - correction), by the two-pass formula."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if unbiased is not None:
        correction = int(unbiased)
    elif correction is None:
        correction = 1
    if not input.dtype.is_floating_point:
        raise RuntimeError(
            f"var(): expected a floating-point input dtype, got {input.dtype.name}; convert it, e.g. input.float().var()"
        )
    dims = normalise_dims("var", dim, input.ndim)
    deviation = input - mean(input, dims if dims or input.ndim == 0 else None, keepdim=True)
    n = product(input._sizes[d] for d in dims)
    divisor = max(0, n - correction) * 1.0
    total = primitives.sum_(deviation * deviation, dims=dims, keepdim=keepdim)
    return total / divisor


@public()
@rounds_once
def std(input: Any, dim: Dim = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: float | None = 1) -> Any:
    """Standard deviation over `dim`: the square root of var().  The gradient is 0 where it is 0."""
    return deviation(var(input, dim, unbiased, keepdim, correction=correction))


@public()
@in_float32
def prod(input: Any, dim: int | None = None, keepdim: bool = False, *, dtype: dtypes.DType | None = None) -> Any:
    """Product over `dim` (all dimensions for None); integers and bools are multiplied in int64 unless `dtype` is given."""
    return primitives.prod(_widened(input, dtype), dims=normalise_dims("prod", dim, input.ndim), keepdim=keepdim)


def _scan(op: Any, input: Any, dim: int, dtype: dtypes.DType | None) -> Any:
    at = normalise_dim(op.name, dim, input.ndim)
    x = _widened(input, dtype)
    return op(x, dim=at) if input.ndim else clone(reshape(x, shape=()))


@public(in_place=True)
def cumsum(input: Any, dim: int, *, dtype: dtypes.DType | None = None) -> Any:
    """Sum of the elements up to each one along `dim`; integers and bools are summed in int64 unless `dtype` is given."""
    return _scan(scan_sum, input, dim, dtype)


@public(in_place=True)
def cumprod(input: Any, dim: int, *, dtype: dtypes.DType | None = None) -> Any:
    """Product of the elements up to each one along `dim`; integers and bools are multiplied in int64 unless `dtype` is given."""
    return _scan(scan_product, input, dim, dtype)


@public()
@rounds_once
def nansum(input: Any, dim: Dim = None, keepdim: bool = False, *, dtype: dtypes.DType | None = None) -> Any:
    """Sum that counts NaN as 0."""
    return sum_(where(isnan(input), 0, input), dim, keepdim, dtype=dtype)


@public()
@rounds_once
def nanmean(input: Any, dim: Dim = None, keepdim: bool = False, *, dtype: dtypes.DType | None = None) -> Any:
    """Mean of the elements that are not NaN, computed in `dtype` if given."""
    input = input if dtype is None else cast(input, dtype=dtype)
    missing = isnan(input)
    count = sum_(cast(missing == False, dtype=input.dtype), dim, keepdim)  # noqa: E712  (elementwise)
    return sum_(where(missing, 0.0, input), dim, keepdim) / count


@public()
def count_nonzero(input: Any, dim: Dim = None) -> Any:
    """How many elements are not 0, over all or along `dim` (int64)."""
    return sum_(input != 0, dim)


@public()
@rounds_once
def var_mean(
    input: Any, dim: Dim = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: float | None = 1
) -> Any:
    """(variance, mean) over `dim`."""
    return var(input, dim, unbiased, keepdim, correction=correction), mean(input, None if isinstance(dim, bool) else dim, keepdim)


@public()
@rounds_once
def std_mean(
    input: Any, dim: Dim = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: float | None = 1
) -> Any:
    """(standard deviation, mean) over `dim`."""
    return std(input, dim, unbiased, keepdim, correction=correction), mean(input, None if isinstance(dim, bool) else dim, keepdim)


def require_elements(name: str, input: Any) -> None:
    """Raises RuntimeError for an empty tensor, of which there is no extreme."""
    if 0 in input._sizes:
        raise RuntimeError(
            f"{name}(): expected a tensor with elements, got one of shape {list(input._sizes)}; pass a dim that has some"
        )


@public()
def amax(input: Any, dim: Dim = (), keepdim: bool = False) -> Any:
    """Largest element over `dim`; the gradient is divided evenly among equals.  Raises IndexError over an empty dimension."""
    if isinstance(dim, tuple | list) and not dim:
        require_elements("amax", input)
    return state.top.bind(primitives.amax, (input,), {"dims": normalise_dims("amax", dim, input.ndim), "keepdim": keepdim})


@public()
def amin(input: Any, dim: Dim = (), keepdim: bool = False) -> Any:
    """Smallest element over `dim`; the gradient is divided evenly among equals.  Raises IndexError over an empty dimension."""
    if isinstance(dim, tuple | list) and not dim:
        require_elements("amin", input)
    return state.top.bind(primitives.amin, (input,), {"dims": normalise_dims("amin", dim, input.ndim), "keepdim": keepdim})


@public("any")
def any_(input: Any, dim: Dim = None, keepdim: bool = False) -> Any:
    """Whether any element over `dim` is nonzero."""
    return state.top.bind(primitives.any_, (input,), {"dims": normalise_dims("any", dim, input.ndim), "keepdim": keepdim})


@public("all")
def all_(input: Any, dim: Dim = None, keepdim: bool = False) -> Any:
    """Whether all elements over `dim` are nonzero."""
    return state.top.bind(primitives.all_, (input,), {"dims": normalise_dims("all", dim, input.ndim), "keepdim": keepdim})


def _position(op: Any, input: Any, dim: int | None, keepdim: bool) -> Any:
    if dim is None:
        flat = reshape(detach(input), shape=(product(input._sizes),))
        out = op(flat, dim=0, keepdim=False)
        return reshape(out, shape=(1,) * input.ndim) if keepdim else out
    return op(detach(input), dim=normalise_dim(op.name, dim, input.ndim), keepdim=keepdim)


@public()
def argmax(input: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """Position (int64) of the largest element along `dim`, or in the flattened input for None."""
    return _position(primitives.argmax, input, dim, keepdim)


@public()
def argmin(input: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """Position (int64) of the smallest element along `dim`, or in the flattened input for None."""
    return _position(primitives.argmin, input, dim, keepdim)


@public()
@rounds_once
def logsumexp(input: Any, dim: Dim, keepdim: bool = False) -> Any:
    """log(sum(exp(input))) over `dim`, shifted by the maximum so that it does not overflow."""
    if not input.dtype.is_floating_point:
        input = cast(input, dtype=dtypes.default_dtype())
    dims = normalise_dims("logsumexp", dim, input.ndim)
    if any(input._sizes[d] == 0 for d in dims):  # there is no maximum
        return log(sum_(exp(input), dims, keepdim))
    high = detach(primitives.amax(input, dims=dims, keepdim=True))
    high = where(abs(high) == float("inf"), 0.0, high)
    out = log(primitives.sum_(exp(input - high), dims=dims, keepdim=True)) + high
    return out if keepdim else reshape(out, shape=tuple(s for i, s in enumerate(input._sizes) if i not in dims))
