"""The standard's elementwise functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracejit import functions as F
from tracejit.array_api.promotion import promoted
from tracejit.tensor.shell import broadcast_shapes


def _unary(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def apply(x: Any, /) -> Any:
        return function(x)

    return _named(apply, name, function)


def _binary(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def apply(x1: Any, x2: Any, /) -> Any:
        return function(*promoted(name, x1, x2))

    return _named(apply, name, function)


def _named(apply: Callable[..., Any], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = function.__doc__
    return apply


abs = _unary("abs", F.abs)
acos = _unary("acos", F.acos)
acosh = _unary("acosh", F.acosh)
asin = _unary("asin", F.asin)
asinh = _unary("asinh", F.asinh)
atan = _unary("atan", F.atan)
atanh = _unary("atanh", F.atanh)
bitwise_invert = _unary("bitwise_invert", F.bitwise_not)
ceil = _unary("ceil", F.ceil)
conj = _unary("conj", F.conj)
cos = _unary("cos", F.cos)
cosh = _unary("cosh", F.cosh)
exp = _unary("exp", F.exp)
expm1 = _unary("expm1", F.expm1)
floor = _unary("floor", F.floor)
isfinite = _unary("isfinite", F.isfinite)
isinf = _unary("isinf", F.isinf)
isnan = _unary("isnan", F.isnan)
log = _unary("log", F.log)
log10 = _unary("log10", F.log10)
log1p = _unary("log1p", F.log1p)
log2 = _unary("log2", F.log2)
logical_not = _unary("logical_not", F.logical_not)
negative = _unary("negative", F.neg)
positive = _unary("positive", F.positive)
real = _unary("real", F.real)
reciprocal = _unary("reciprocal", F.reciprocal)
round = _unary("round", F.round)
signbit = _unary("signbit", F.signbit)
sin = _unary("sin", F.sin)
sinh = _unary("sinh", F.sinh)
sqrt = _unary("sqrt", F.sqrt)
square = _unary("square", F.square)
tan = _unary("tan", F.tan)
tanh = _unary("tanh", F.tanh)
trunc = _unary("trunc", F.trunc)

add = _binary("add", F.add)
atan2 = _binary("atan2", F.atan2)
bitwise_and = _binary("bitwise_and", F.bitwise_and)
bitwise_left_shift = _binary("bitwise_left_shift", F.bitwise_left_shift)
bitwise_or = _binary("bitwise_or", F.bitwise_or)
bitwise_right_shift = _binary("bitwise_right_shift", F.bitwise_right_shift)
bitwise_xor = _binary("bitwise_xor", F.bitwise_xor)
copysign = _binary("copysign", F.copysign)
divide = _binary("divide", F.div)
equal = _binary("equal", F.eq)
floor_divide = _binary("floor_divide", F.floor_divide)
greater = _binary("greater", F.gt)
greater_equal = _binary("greater_equal", F.ge)
hypot = _binary("hypot", F.hypot)
less = _binary("less", F.lt)
less_equal = _binary("less_equal", F.le)
logaddexp = _binary("logaddexp", F.logaddexp)
logical_and = _binary("logical_and", F.logical_and)
logical_or = _binary("logical_or", F.logical_or)
logical_xor = _binary("logical_xor", F.logical_xor)
maximum = _binary("maximum", F.maximum)
minimum = _binary("minimum", F.minimum)
multiply = _binary("multiply", F.mul)
nextafter = _binary("nextafter", F.nextafter)
not_equal = _binary("not_equal", F.ne)
pow = _binary("pow", F.pow)
remainder = _binary("remainder", F.remainder)
subtract = _binary("subtract", F.sub)


def sign(x: Any, /) -> Any:
    """-1, 0 or 1 by the sign of each element; NaN for NaN."""
    return F.where(F.isnan(x), x, F.sign(x)) if x.dtype.is_floating_point else F.sign(x)


def clip(x: Any, /, min: Any = None, max: Any = None) -> Any:
    """Elements limited to [min, max], each a number, an array or None; in the dtype of `x`."""
    shape = broadcast_shapes(*(tuple(v.shape) for v in (x, min, max) if hasattr(v, "shape")))
    out = F.clone(x) if tuple(x.shape) == tuple(shape) else F.broadcast_to(x, shape)
    for limit, compare in ((min, F.lt), (max, F.gt)):
        if limit is not None:
            bound = F.full(tuple(shape), limit, dtype=x.dtype) if not hasattr(limit, "shape") else limit.to(x.dtype)
            beyond = compare(out, bound)
            out = F.where(beyond | F.isnan(bound) if bound.dtype.is_floating_point else beyond, bound, out)
    return out
