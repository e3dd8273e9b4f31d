"""Public functions that make tensors.  All of them pass the door, so a recording knows them."""

from __future__ import annotations

from typing import Any

from tracejit.core import dtypes
from tracejit.core.devices import require_cpu
from tracejit.core.interpreter import state
from tracejit.core.library_warnings import warn
from tracejit.core.numbers import settled
from tracejit.core.shapes import integer, rounded_down, rounded_up
from tracejit.ops import creation
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.ops.elementwise.comparison import where
from tracejit.ops.elementwise.mathematics import pow_
from tracejit.ops.movement.versions import overwrite
from tracejit.ops.movement.views import expand
from tracejit.ops.public.derive import public
from tracejit.ops.public.movement import shape_of


def _finish(out: Any, requires_grad: bool) -> Any:
    return out.requires_grad_() if requires_grad else out


def _filled(name: str, sizes: tuple[Any, ...], value: Any, dtype: dtypes.DType | None, device: Any, requires_grad: bool) -> Any:
    require_cpu(name, device)
    shape = shape_of(name, sizes)
    for s in shape:
        if s < 0:
            raise RuntimeError(f"{name}(): sizes must not be negative, got {list(shape)}")
    out = state.top.bind(creation.full, (value,), {"shape": shape, "dtype": dtype or dtypes.default_dtype()})
    return _finish(out, requires_grad)


@public(method=False)
def zeros(*size: Any, dtype: dtypes.DType | None = None, device: Any = None, requires_grad: bool = False) -> Any:
    """A tensor of zeros, zeros(2, 3) or zeros((2, 3)); `dtype` defaults to the default floating-point dtype.

    requires_grad: it is a leaf that gets gradients.  Raises RuntimeError for negative sizes, TypeError for other numbers."""
    return _filled("zeros", size, 0, dtype, device, requires_grad)


@public(method=False)
def ones(*size: Any, dtype: dtypes.DType | None = None, device: Any = None, requires_grad: bool = False) -> Any:
    """A tensor of ones, ones(2, 3) or ones((2, 3)); `dtype` defaults to the default floating-point dtype.

    requires_grad: it is a leaf that gets gradients.  Raises RuntimeError for negative sizes, TypeError for other numbers."""
    return _filled("ones", size, 1, dtype, device, requires_grad)


@public(method=False)
def empty(*size: Any, dtype: dtypes.DType | None = None, device: Any = None, requires_grad: bool = False) -> Any:
    """A tensor to be filled later; its contents are zeros, so that eager and compiled runs agree.  Arguments: those of zeros()."""
    return _filled("empty", size, 0, dtype, device, requires_grad)


@public(method=False)
def full(
    size: Any, fill_value: Any, *, dtype: dtypes.DType | None = None, device: Any = None, requires_grad: bool = False
) -> Any:
    """A tensor of shape `size` with the number fill_value everywhere, in its dtype (of floats, the default one) unless given.

    Raises RuntimeError for negative sizes, TypeError for what is no number."""
    value = _number("full", fill_value)
    return _filled("full", (size,), value, dtype or dtypes.of_scalar(value), device, requires_grad)


def _like(name: str, value: int) -> None:
    def like(input: Any, *, dtype: dtypes.DType | None = None, device: Any = None, requires_grad: bool = False) -> Any:
        require_cpu(f"{name}_like", device)
        return _finish(creation.full(value, shape=input._sizes, dtype=dtype or input.dtype), requires_grad)

    def new(input: Any, *size: Any, dtype: dtypes.DType | None = None, device: Any = None, requires_grad: bool = False) -> Any:
        return _filled(f"new_{name}", size, value, dtype or input.dtype, device, requires_grad)

    like.__name__, new.__name__ = f"{name}_like", f"new_{name}"
    like.__doc__ = f"A tensor of {name} (empty: zeros) of the shape and dtype of `input`."
    new.__doc__ = f"A tensor of {name} (empty: zeros) of the given size and the dtype of `input`."
    public(f"{name}_like", method=False)(like)
    public(f"new_{name}", function=False)(new)


for _name, _value in (("zeros", 0), ("ones", 1), ("empty", 0)):
    _like(_name, _value)


@public(method=False)
def full_like(
    input: Any, fill_value: Any, *, dtype: dtypes.DType | None = None, device: Any = None, requires_grad: bool = False
) -> Any:
    """A tensor of one number of the shape and dtype of `input`."""
    require_cpu("full_like", device)
    return _finish(creation.full(_number("full", fill_value), shape=input._sizes, dtype=dtype or input.dtype), requires_grad)


@public(method=False)
def fill(input: Any, value: Any) -> Any:
    """A tensor of the shape and dtype of `input` with every element `value`, a number or a tensor without dimensions.

    The gradient reaches such a tensor; that of `input` is zero.  Raises RuntimeError for a tensor with dimensions."""
    if hasattr(value, "ndim") and value.ndim:
        raise RuntimeError(f"fill(): fill only supports 0-dimension value tensor but got tensor with {value.ndim} dimensions.")
    contents = cast(value, dtype=input.dtype) if hasattr(value, "ndim") else creation.full(value, shape=(), dtype=input.dtype)
    return overwrite(input, expand(contents, shape=input._sizes))


@public(method=False)
def scalar_tensor(s: Any, *, dtype: dtypes.DType | None = None, device: Any = None, requires_grad: bool = False) -> Any:
    """A number as a tensor without dimensions, of the default dtype unless `dtype` is given."""
    return _filled("scalar_tensor", ((),), _number("scalar_tensor", s), dtype, device, requires_grad)


@public(function=False)
def new_full(
    input: Any, size: Any, fill_value: Any, *, dtype: dtypes.DType | None = None, device: Any = None, requires_grad: bool = False
) -> Any:
    """A tensor of one number, of the given size and the dtype of `input`."""
    return _filled("new_full", (size,), _number("full", fill_value), dtype or input.dtype, device, requires_grad)


@public(method=False)
def arange(*bounds: Any, dtype: dtypes.DType | None = None, device: Any = None, requires_grad: bool = False, **named: Any) -> Any:
    """arange(end), arange(start, end), arange(start, end, step): values in [start, end) at distance step, 1 by default.

    int64 if all are integers, else the default dtype, unless `dtype` is given.  Raises RuntimeError for a step of 0 or one that
    leads away from the end."""
    require_cpu("arange", device)
    if named:
        bounds = tuple(named[k] for k in ("start", "end", "step") if k in named) if not bounds else (*bounds, *named.values())
    numbers = [_number("arange", b) for b in bounds]
    if dtype is dtypes.int64:  # which PyTorch computes with as soon as it is asked for it
        numbers = [n if isinstance(n, int) else int(n) for n in numbers]
    start, end, step = (0, numbers[0], 1) if len(numbers) == 1 else (*numbers, 1)[:3]
    distance = end - start
    if step == 0 or distance * step < 0:
        raise RuntimeError(
            f"arange(): upper bound and lower bound inconsistent with step sign: start {start}, end {end}, step {step}"
        )
    if dtype is None:
        dtype = dtypes.default_dtype() if any(isinstance(b, float) for b in (start, end, step)) else dtypes.int64
    whole = all(isinstance(b, int) for b in (start, end, step))
    length = max(0, -((start - end) // step) if whole else rounded_up(distance / step))
    return _finish(creation.arange(start, step, length=length, dtype=dtype), requires_grad)


@public("range", method=False)
def range_(
    start: Any,
    end: Any = None,
    step: Any = 1,
    *,
    dtype: dtypes.DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Any:
    """arange() up to and including `end`, of floats by default: PyTorch's older function, which warns."""
    warn("range() is deprecated: unlike Python's it includes its end; use arange(), which does not")
    require_cpu("range", device)
    first, last, distance = (_number("range", b) for b in ((0, start, step) if end is None else (start, end, step)))
    reach = last - first
    if distance == 0 or reach * distance < 0:
        raise RuntimeError(f"range(): upper bound and lower bound inconsistent with step sign: {first}, {last}, {distance}")
    length = rounded_down(reach / distance) + 1
    return _finish(creation.arange(first, distance, length=length, dtype=dtype or dtypes.default_dtype()), requires_grad)


def _count(name: str, steps: Any) -> int:
    steps = integer(name, "steps", steps)
    if steps < 0:
        raise RuntimeError(f"{name}(): number of steps must be non-negative, got {steps}")
    return steps


@public(method=False)
def linspace(
    start: Any, end: Any, steps: int, *, dtype: dtypes.DType | None = None, device: Any = None, requires_grad: bool = False
) -> Any:
    """`steps` numbers at equal distance from start to end, both included, in the default dtype unless `dtype` is given.

    Raises RuntimeError for negative `steps`."""
    require_cpu("linspace", device)
    steps = _count("linspace", steps)
    first, last = _number("linspace", start), _number("linspace", end)
    dtype = dtype or dtypes.default_dtype()
    if not dtype.is_floating_point:
        first, last = int(first), int(last)
    step = (last - first) / (steps - 1) if steps > 1 else 0.0
    rising = creation.arange(first, step, length=steps, dtype=dtypes.float64)
    if steps > 1:  # counted from the nearer end, so that both are exact
        half = creation.arange(0, 1, length=steps, dtype=dtypes.int64) < steps // 2
        backwards = last - creation.arange((steps - 1) * step, -step, length=steps, dtype=dtypes.float64)
        rising = where(half, rising, backwards)
    return _finish(rising if dtype is dtypes.float64 else cast(rising, dtype=dtype), requires_grad)


@public(method=False)
def logspace(
    start: Any,
    end: Any,
    steps: int,
    base: float = 10.0,
    *,
    dtype: dtypes.DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Any:
    """base ** x for `steps` numbers x at equal distance from start to end, both included, in the default dtype unless `dtype` is given.

    Raises RuntimeError for negative `steps`."""
    require_cpu("logspace", device)
    steps = _count("logspace", steps)
    powers = pow_(float(base), linspace(start, end, steps, dtype=dtypes.float64))
    return _finish(cast(powers, dtype=dtype or dtypes.default_dtype()), requires_grad)


def _number(name: str, value: Any) -> Any:
    """A number given as such or as a tensor without dimensions."""
    value = settled(value)
    if value is None:
        raise TypeError(f"{name}(): expected a number, got NoneType")
    if not hasattr(value, "ndim"):
        return value
    if value.ndim:
        raise RuntimeError(f"{name}(): expected a number or a tensor without dimensions, got shape {list(value.shape)}")
    return value.item()


@public(method=False)
def eye(
    n: int, m: int | None = None, *, dtype: dtypes.DType | None = None, device: Any = None, requires_grad: bool = False
) -> Any:
    """Ones on the diagonal of an (n, m) matrix, (n, n) without m, zeros elsewhere; in the default dtype unless `dtype` is given.

    Raises RuntimeError for negative sizes."""
    require_cpu("eye", device)
    if n < 0 or (m is not None and m < 0):
        raise RuntimeError(f"eye(): n and m must not be negative, got {n} and {m}")
    return _finish(creation.eye(rows=n, columns=n if m is None else m, dtype=dtype or dtypes.default_dtype()), requires_grad)
