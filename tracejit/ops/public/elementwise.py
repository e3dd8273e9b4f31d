"""Public elementwise functions."""

from __future__ import annotations

from typing import Any

from tracejit.core import dtypes
from tracejit.ops.elementwise import arithmetic, comparison, mathematics
from tracejit.ops.movement.copies import clone
from tracejit.ops.public.derive import derive_binary, derive_unary, public

for _op in (
    mathematics.exp, mathematics.expm1, mathematics.log, mathematics.log1p, mathematics.sqrt, mathematics.rsqrt, mathematics.reciprocal,
    mathematics.tanh, mathematics.sigmoid, mathematics.sin, mathematics.cos, mathematics.erf, mathematics.sign, mathematics.relu,
):  # fmt: skip
    derive_unary(_op)
derive_unary(mathematics.abs_, "abs", "absolute")
derive_unary(arithmetic.neg, "neg", "negative")
derive_unary(comparison.logical_not)
derive_binary(arithmetic.mul, "mul", "multiply")
derive_binary(mathematics.pow_, "pow")
for _op in (comparison.logical_and, comparison.logical_or, comparison.logical_xor):
    derive_binary(_op)
derive_binary(comparison.maximum, "maximum", in_place=False)
derive_binary(comparison.minimum, "minimum", in_place=False)
for _op, _alias in (
    (comparison.eq, ()), (comparison.ne, ("not_equal",)), (comparison.lt, ("less",)), (comparison.le, ("less_equal",)),
    (comparison.gt, ("greater",)), (comparison.ge, ("greater_equal",)),
):  # fmt: skip
    derive_binary(_op, _op.name, *_alias)


def scaled(other: Any, alpha: Any) -> Any:
    """other * alpha; `other` itself for alpha == 1."""
    return other if alpha == 1 else arithmetic.mul(other, alpha)


@public(in_place=True)
def add(input: Any, other: Any, *, alpha: float = 1) -> Any:
    """input + alpha * other, with broadcasting and type promotion."""
    return arithmetic.add(input, scaled(other, alpha))


@public(in_place=True, aliases=("subtract",))
def sub(input: Any, other: Any, *, alpha: float = 1) -> Any:
    """input - alpha * other, with broadcasting and type promotion.  Raises RuntimeError for two bools, as PyTorch does."""
    if getattr(input, "dtype", None) is dtypes.bool_ and (isinstance(other, bool) or getattr(other, "dtype", None) is dtypes.bool_):
        raise RuntimeError("sub(): subtraction of two bool tensors is not supported; use logical_xor() or ^ instead")
    return arithmetic.sub(input, scaled(other, alpha))


@public(in_place=True)
def where(condition: Any, input: Any, other: Any) -> Any:
    """Elements of `input` where `condition` (bool) holds, of `other` elsewhere."""
    return comparison.where(condition, input, other)


@public(in_place=True)
def clamp(input: Any, min: Any = None, max: Any = None) -> Any:
    """Limit elements to [min, max]; each a number, a tensor or None.  Raises RuntimeError if both are None."""
    if min is None and max is None:
        raise RuntimeError("clamp(): at least one of min and max must be given, got None for both")
    out = input
    if min is not None:
        out = _clamp_low(out, min)
    if max is not None:
        out = _clamp_high(out, max)
    return out


def _clamp_low(x: Any, low: Any) -> Any:
    if hasattr(low, "shape"):
        return comparison.maximum(x, low)
    return comparison.where(comparison.lt(x, low), low, x)


def _clamp_high(x: Any, high: Any) -> Any:
    if hasattr(high, "shape"):
        return comparison.minimum(x, high)
    return comparison.where(comparison.gt(x, high), high, x)


@public("clone")
def clone_(input: Any) -> Any:
    """A row-major copy; gradients flow through it."""
    return clone(input)


@public(in_place=True)
def masked_fill(input: Any, mask: Any, value: Any) -> Any:
    """A copy of `input` with `value` where the bool tensor `mask` holds."""
    return comparison.where(mask, value, input)
