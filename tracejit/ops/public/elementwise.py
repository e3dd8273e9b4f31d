"""Public elementwise functions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tracejit.core import dtypes
from tracejit.core.library_warnings import warn
from tracejit.core.numbers import NUMBERS, settled
from tracejit.core.op import Promotion
from tracejit.core.precision import rounds_once
from tracejit.core.promotion import common_dtype
from tracejit.core.recorded_number import RecordedNumber
from tracejit.core.shapes import product
from tracejit.core.symbolic import concretise_sizes
from tracejit.ops.composites import pointwise
from tracejit.ops.creation import full
from tracejit.ops.elementwise import arithmetic, bitwise, comparison, logarithmic, mathematics, rounding, special, trigonometry
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.ops.indexing import nonzero_tuple
from tracejit.ops.movement.copies import clone
from tracejit.ops.movement.views import detach
from tracejit.ops.public.derive import derive_binary, derive_unary, public
from tracejit.ops.public.keywords import require_tensors
from tracejit.ops.reduce import any_

for _op in (
    mathematics.exp, mathematics.exp2, mathematics.expm1, mathematics.log, mathematics.log2, mathematics.log10, mathematics.log1p,
    mathematics.sqrt, mathematics.rsqrt, mathematics.reciprocal, mathematics.sigmoid, mathematics.relu, trigonometry.sin, trigonometry.cos,
    trigonometry.tan, trigonometry.sinh, trigonometry.cosh, trigonometry.tanh, special.erf, special.erfc, special.erfinv, special.lgamma,
    special.digamma,
    comparison.logical_not, bitwise.bitwise_not,
):  # fmt: skip
    derive_unary(_op)
for _op, *_names in (
    (mathematics.abs_, "abs", "absolute"), (arithmetic.neg, "neg", "negative"), (rounding.floor, "floor"), (rounding.ceil, "ceil"),
    (rounding.trunc, "trunc", "fix"), (trigonometry.asin, "asin", "arcsin"), (trigonometry.acos, "acos", "arccos"),
    (trigonometry.atan, "atan", "arctan"), (trigonometry.asinh, "asinh", "arcsinh"), (trigonometry.acosh, "acosh", "arccosh"),
    (trigonometry.atanh, "atanh", "arctanh"), (mathematics.sign, "sign", "sgn"),
):  # fmt: skip
    derive_unary(_op, *_names)
for _op in (rounding.isnan, rounding.isinf, rounding.isfinite, rounding.signbit):
    derive_unary(_op, in_place=False)
derive_binary(arithmetic.mul, "mul", "multiply")
public("pow", in_place=True)(mathematics.power)
for _op in (
    comparison.logical_and, comparison.logical_or, comparison.logical_xor, bitwise.bitwise_and, bitwise.bitwise_or, bitwise.bitwise_xor,
    bitwise.bitwise_left_shift, bitwise.bitwise_right_shift, rounding.copysign, trigonometry.hypot,
):  # fmt: skip
    derive_binary(_op)
derive_binary(trigonometry.atan2, "atan2", "arctan2")
for _op in (comparison.maximum, comparison.minimum, mathematics.logaddexp):
    derive_binary(_op, in_place=False)
for _op, _alias in (
    (comparison.eq, ()), (comparison.ne, ("not_equal",)), (comparison.lt, ("less",)), (comparison.le, ("less_equal",)),
    (comparison.gt, ("greater",)), (comparison.ge, ("greater_equal",)),
):  # fmt: skip
    derive_binary(_op, _op.name, *_alias)


def is_tensor(x: Any) -> bool:
    """Whether `x` is a tensor (real or abstract), not a number."""
    return type(x) not in NUMBERS and hasattr(x, "dtype") and hasattr(x, "ndim") and not isinstance(x, np.generic)


def as_floating(input: Any) -> Any:
    """The tensor itself, or, if it holds integers or bools, converted to the default floating-point dtype."""
    return input if input.dtype.is_floating_point else cast(input, dtype=dtypes.default_dtype())


def scaled(name: str, input: Any, other: Any, alpha: Any) -> Any:
    """other * alpha, to be combined with `input`; `other` itself for alpha == 1.  Raises RuntimeError for an alpha of a higher kind than
    the result, as PyTorch does."""
    if type(alpha) is int and alpha == 1:
        return other
    alpha = settled(alpha)
    result = common_dtype((input, other))
    if (isinstance(alpha, float) and not result.is_floating_point) or (isinstance(alpha, bool) and result is not dtypes.bool_):
        raise RuntimeError(
            f"{name}(): for tensors that give {result.name}, alpha must be an integer or of that kind, got {alpha}"
        )
    if alpha == 1:
        return other
    if is_tensor(other):
        return arithmetic.mul(other, alpha)
    return alpha * other if type(other) is float else other * alpha  # a float in front would not notice that alpha is of sizes


def _factor_last(name: str, operands: tuple[Any, ...], factor: str) -> tuple[Any, ...]:
    """The operands of PyTorch's older form, which has the factor before the last operands, with the factor last.  It warns."""
    first, *others = operands
    if is_tensor(first) or (len(others) > 1 and not all(map(is_tensor, others))):
        raise TypeError(f"{name}(): got {len(operands)} operands, of which the first must be a number, {factor}")
    warn(f"{name}({factor}, ...) with {factor} in front is deprecated; use {name}(..., {factor}={factor})")
    return (*others, first)


@public(in_place=True)
def add(input: Any, other: Any, behind: Any = None, *, alpha: float = 1) -> Any:
    """input + alpha * other, with broadcasting and type promotion.  add(input, alpha, other) is PyTorch's older form."""
    if behind is not None:
        other, alpha = _factor_last("add", (other, behind), "alpha")
    return arithmetic.add(input, scaled("add", input, other, alpha))


@public(in_place=True, aliases=("subtract",))
def sub(input: Any, other: Any, behind: Any = None, *, alpha: float = 1) -> Any:
    """input - alpha * other, with broadcasting and type promotion.  Raises RuntimeError for two bools, as PyTorch does.

    sub(input, alpha, other) is PyTorch's older form."""
    if behind is not None:
        other, alpha = _factor_last("sub", (other, behind), "alpha")
    return arithmetic.sub(input, scaled("sub", input, other, alpha))


@public()
def rsub(input: Any, other: Any, alpha: float = 1) -> Any:
    """other - alpha * input."""
    return sub(other, input, alpha=alpha)


def _refuse_zero(name: str, input: Any, other: Any) -> None:
    """Raises RuntimeError where integers are divided by 0, as PyTorch does; quotients of floating-point numbers are defined."""
    if is_tensor(other):
        if other.dtype.is_floating_point or (is_tensor(input) and input.dtype.is_floating_point) or isinstance(input, float):
            return
        zero = bool(any_(comparison.eq(other, 0), dims=tuple(range(other.ndim)), keepdim=False))
    else:
        zero = not isinstance(other, float) and not input.dtype.is_floating_point and other == 0 and product(input._sizes) > 0
    if zero:
        raise RuntimeError(f"{name}(): ZeroDivisionError: integers were divided by 0; convert an operand, e.g. with .float()")


@public(in_place=True)
def floor_divide(input: Any, other: Any) -> Any:
    """Elementwise quotient rounded down.  The gradient is zero.  Integers divided by 0 raise RuntimeError."""
    _refuse_zero("floor_divide", input, other)
    return arithmetic.floor_divide(input, other)


@public(in_place=True)
def remainder(input: Any, other: Any) -> Any:
    """Elementwise input - other * floor(input / other): the sign is that of the divisor.  Integers divided by 0 raise RuntimeError."""
    _refuse_zero("remainder", input, other)
    return arithmetic.remainder(input, other)


@public(in_place=True)
def fmod(input: Any, other: Any) -> Any:
    """Elementwise input - other * trunc(input / other): the sign is that of the dividend.  Integers divided by 0 raise RuntimeError."""
    _refuse_zero("fmod", input, other)
    return arithmetic.fmod(input, other)


@public(in_place=True, aliases=("divide",))
def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Any:
    """input / other: the true quotient, or rounded down ("floor") or towards zero ("trunc").  Raises RuntimeError for another mode."""
    if rounding_mode is None:
        return arithmetic.div(input, other)
    if rounding_mode == "floor":
        return floor_divide(input, other)
    if rounding_mode != "trunc":
        raise RuntimeError(f"div(): rounding_mode must be None, 'trunc' or 'floor', got {rounding_mode!r}")
    if common_dtype((input, other)).is_floating_point:
        return rounding.trunc(arithmetic.div(input, other))
    _refuse_zero("div", input, other)
    return arithmetic.floor_divide(input - arithmetic.fmod(input, other), other)


@public(in_place=True)
def true_divide(input: Any, other: Any) -> Any:
    """input / other."""
    return arithmetic.div(input, other)


@public("__rdiv__", function=False)
def reflected_div(input: Any, other: Any) -> Any:
    """other / input."""
    return arithmetic.div(other, input)


@public("round", in_place=True)
def round_(input: Any, *, decimals: int = 0) -> Any:
    """The nearest integers, or multiples of 10**-decimals; halves go to the even one."""
    if decimals == 0:
        return rounding.rint(input)
    if not input.dtype.is_floating_point:
        raise RuntimeError(f"round(): decimals is only supported for floating-point tensors, got {input.dtype.name}")
    scale = 10.0 ** abs(concretise_sizes(decimals))
    return rounding.rint(input * scale) / scale if decimals > 0 else rounding.rint(input / scale) * scale


@public(in_place=True)
def frac(input: Any) -> Any:
    """The fractional part, with the sign of the element."""
    return pointwise.frac(input)


@public(in_place=True)
def square(input: Any) -> Any:
    """input * input; of bools, in int64."""
    return input * input if input.dtype is not dtypes.bool_ else cast(input, dtype=dtypes.int64)


@public(in_place=True)
@rounds_once
def sinc(input: Any) -> Any:
    """sin(pi x) / (pi x), 1 at 0."""
    angle = as_floating(input) * math.pi
    zero = angle == 0
    return comparison.where(zero, 1.0, trigonometry.sin(angle) / comparison.where(zero, 1.0, angle))


@public(in_place=True)
def deg2rad(input: Any) -> Any:
    """Degrees as radians."""
    return as_floating(input) * (math.pi / 180.0)


@public(in_place=True)
def rad2deg(input: Any) -> Any:
    """Radians as degrees."""
    return as_floating(input) * (180.0 / math.pi)


@public(in_place=True)
@rounds_once
def logit(input: Any, eps: float | None = None) -> Any:
    """log(x / (1 - x)); `eps` clamps x to [eps, 1 - eps] first."""
    x = as_floating(input)
    if eps is not None:
        x = clamp(x, eps, 1.0 - eps)
    return logarithmic.logit(x)


@public(in_place=True)
def xlogy(input: Any, other: Any) -> Any:
    """input * log(other), 0 where input is 0 (NaN where other is)."""
    if not is_tensor(other):
        other = full(other, shape=(), dtype=common_dtype((input, other), Promotion.FLOAT))
    return logarithmic.xlogy(input, other)


def _isnan(x: Any) -> Any:
    return rounding.isnan(x) if is_tensor(x) else full(x != x, shape=(), dtype=dtypes.bool_)


@public(in_place=True)
@rounds_once
def addcmul(input: Any, tensor1: Any, tensor2: Any, behind: Any = None, *, value: float = 1) -> Any:
    """input + value * tensor1 * tensor2, or in PyTorch's older form addcmul(input, value, tensor1, tensor2)."""
    if behind is not None:
        tensor1, tensor2, value = _factor_last("addcmul", (tensor1, tensor2, behind), "value")
    return pointwise.multiply_add(input, tensor1, tensor2) if value == 1 else input + tensor1 * tensor2 * value


@public(in_place=True)
@rounds_once
def addcdiv(input: Any, tensor1: Any, tensor2: Any, behind: Any = None, *, value: float = 1) -> Any:
    """input + value * tensor1 / tensor2, or in PyTorch's older form addcdiv(input, value, tensor1, tensor2).

    Raises RuntimeError for integers, as PyTorch does."""
    if behind is not None:
        tensor1, tensor2, value = _factor_last("addcdiv", (tensor1, tensor2, behind), "value")
    if not common_dtype((tensor1, tensor2)).is_floating_point:
        raise RuntimeError(
            "addcdiv(): integer division is not supported; convert an operand with .float(), or use div(rounding_mode=...)"
        )
    return pointwise.divide_add(input, tensor1, tensor2) if value == 1 else input + tensor1 * value / tensor2


@public(in_place=True)
@rounds_once
def lerp(input: Any, end: Any, weight: Any) -> Any:
    """input + weight * (end - input), exact at both ends."""
    for name, x in (("end", end), ("weight", weight)):
        if is_tensor(x) and x.dtype is not input.dtype:
            raise RuntimeError(f"lerp(): expected dtype {input.dtype.name} for {name}, got {x.dtype.name}")
    if is_tensor(weight):
        difference = end - input
        return comparison.where(abs(weight) < 0.5, input + weight * difference, end - difference * (1.0 - weight))
    return (pointwise.lerp_near if abs(weight) < 0.5 else pointwise.lerp_far)(input, end, weight)


@public(in_place=True)
def nan_to_num(input: Any, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> Any:
    """Replace NaN by `nan` (0) and infinities by `posinf`, `neginf` (the largest and smallest finite numbers)."""
    if not input.dtype.is_floating_point:
        return clone(input)
    largest = dtypes.LARGEST[input.dtype]
    high, low = largest if posinf is None else posinf, -largest if neginf is None else neginf
    return pointwise.nan_to_num(input, 0.0 if nan is None else nan, high, low)


@public()
def fmax(input: Any, other: Any) -> Any:
    """Elementwise maximum that prefers a number to NaN."""
    return pointwise.fmax(input, other) if is_tensor(other) else comparison.where((input >= other) | _isnan(other), input, other)


@public()
def fmin(input: Any, other: Any) -> Any:
    """Elementwise minimum that prefers a number to NaN."""
    return pointwise.fmin(input, other) if is_tensor(other) else comparison.where((input <= other) | _isnan(other), input, other)


@public()
def isposinf(input: Any) -> Any:
    """Whether each element is +infinity."""
    require_tensors("isposinf", input=input)
    return input == math.inf


@public()
def isneginf(input: Any) -> Any:
    """Whether each element is -infinity."""
    require_tensors("isneginf", input=input)
    return input == -math.inf


@public(in_place=True)
def heaviside(input: Any, values: Any) -> Any:
    """0 below zero, 1 above it, `values` at it."""
    return comparison.where(input == 0, values, cast(input > 0, dtype=input.dtype))


@public()
def where(condition: Any, input: Any = None, other: Any = None) -> Any:
    """Elements of `input` where `condition` (bool) holds, of `other` elsewhere; of a condition alone, the positions of true ones.

    The three broadcast; `input` and `other`, tensors or numbers, get a common dtype.  Raises RuntimeError for a condition of
    another dtype and for shapes that do not broadcast."""
    if input is None and other is None:
        return nonzero_tuple(condition)
    if input is None or other is None:
        raise TypeError("where(): expected both input and other, or neither, got one of them")
    if not is_tensor(input) and not is_tensor(other):
        other = full(other, shape=(), dtype=common_dtype((input, other)))
    return comparison.where(condition, input, other)


def _tensor_where(input: Any, condition: Any, other: Any) -> Any:
    """Elements of the tensor where `condition` holds, of `other` elsewhere."""
    return comparison.where(condition, input, other)


public("where", function=False, in_place=False)(_tensor_where)


@public(in_place=True, aliases=("clip",))
def clamp(input: Any, min: Any = None, max: Any = None) -> Any:
    """Limit elements to [min, max]; each a number, a tensor or None.  NaN where one of the three is NaN.  The gradient of an element that
    is outside, or NaN, is 0.  Raises RuntimeError if both are None."""
    if min is None and max is None:
        raise RuntimeError("clamp(): at least one of min and max must be given, got None for both")
    if _are_exact_limits(input, min, max):
        if max is None:
            return comparison.at_least(input, min)
        return comparison.at_most(input, max) if min is None else comparison.between(input, min, max)
    out = input if min is None else _limited(input, min, comparison.ge, comparison.lt)
    return out if max is None else _limited(out, max, comparison.le, comparison.gt)


_LIMITS = NUMBERS - {bool} | {type(None)}


def _are_exact_limits(input: Any, *limits: Any) -> bool:
    """Whether `limits` are numbers, or None, that no narrow dtype of integers would change."""
    if not _LIMITS.issuperset([_kind_of_limit(n) for n in limits]):
        return False
    return input.dtype.is_floating_point or input.dtype is dtypes.int64 or all(n is None or isinstance(n, float) for n in limits)


def _kind_of_limit(limit: Any) -> type:
    """Its type, or that of the number that it stands for, unless that is computed like a tensor."""
    return limit.__class__ if isinstance(limit, RecordedNumber) and not limit.is_computed() else type(limit)


def _limited(x: Any, limit: Any, is_inside: Any, is_beyond: Any) -> Any:
    """x where it is inside the limit, a tensor or a number; NaN, without a gradient, where one of them is NaN."""
    if not any(is_tensor(operand) and operand.dtype.is_floating_point for operand in (x, limit)):
        return comparison.where(is_beyond(x, limit), limit, x)
    beyond = comparison.where(is_beyond(x, limit), limit, detach(x) + (detach(limit) if is_tensor(limit) else limit))
    return comparison.where(is_inside(x, limit), x, beyond)


@public(in_place=True)
def clamp_min(input: Any, min: Any) -> Any:
    """Limit elements from below."""
    return clamp(input, min)


@public(in_place=True)
def clamp_max(input: Any, max: Any) -> Any:
    """Limit elements from above."""
    return clamp(input, None, max)


@public("clone")
def clone_(input: Any, *, memory_format: Any = None) -> Any:
    """A row-major copy; gradients flow through it.  `memory_format` is accepted for PyTorch's sake: copies are always row-major."""
    require_tensors("clone", input=input)
    return clone(input)


@public()
def positive(input: Any) -> Any:
    """The tensor itself.  Raises RuntimeError for bool."""
    if input.dtype is dtypes.bool_:
        raise RuntimeError("positive(): not defined for bool tensors")
    return input


@public(in_place=True)
def masked_fill(input: Any, mask: Any, value: Any) -> Any:
    """A copy of `input`, broadcast with `mask`, with `value` (a number or a tensor without dimensions) where the bool `mask` holds."""
    if is_tensor(value):
        if value.ndim:
            raise RuntimeError(
                f"masked_fill(): value must be a number or a tensor without dimensions, got shape {list(value.shape)}"
            )
        if value.dtype is not input.dtype:
            value = cast(value, dtype=input.dtype)
    elif isinstance(value := settled(value), float) and not input.dtype.is_floating_point:
        raise RuntimeError(f"masked_fill(): value {value} cannot be converted to {input.dtype.name} without loss; use an integer")
    elif isinstance(value, int) and input.dtype is dtypes.bool_:
        value = bool(value)
    return comparison.where(mask, value, input)


@public()
def isclose(input: Any, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Any:
    """Whether |input - other| <= atol + rtol * |other|, element by element; equal infinities are close."""
    close = input == other
    if equal_nan and input.dtype.is_floating_point:
        close = close | (rounding.isnan(input) & rounding.isnan(other))
    if input.dtype is dtypes.bool_:  # bools cannot be subtracted
        input, other = (cast(x, dtype=dtypes.default_dtype()) for x in (input, other))
    difference = abs(input - other)
    return close | ((difference <= abs(other) * rtol + atol) & (difference != math.inf))
