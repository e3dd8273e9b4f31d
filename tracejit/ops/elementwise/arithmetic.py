"""Arithmetic of two numbers, casts, and the accumulation of gradients."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tracejit.core import dtypes
from tracejit.core.aval import Aval
from tracejit.core.dtypes import DType, converted
from tracejit.core.interrupts import is_foreign
from tracejit.core.shapes import require_broadcast
from tracejit.ops.creation import zero_gradient
from tracejit.ops.declare import FLOAT, NONE, elementwise, involution, refuse_bool, require_one_dtype
from tracejit.ops.elementwise.comparison import is_positive_zero
from tracejit.ops.elementwise.rounding import trunc
from tracejit.ops.samples import binary, cases, floats, integers, unary

__all__ = ["acc", "add", "cast", "div", "floor_divide", "fmod", "mul", "neg", "remainder", "sub"]


def _cast_rule(x: Any, dtype: DType) -> Aval:
    return Aval(getattr(x, "shape", ()), dtype)


@elementwise(
    lambda b, x, dtype: b.cast(x, dtype),
    promotion=NONE,
    rule=_cast_rule,
    traits=("moves", "exact"),
    samples=cases(
        (floats(2, 3).T, {"dtype": dtypes.float32}), (floats(4), {"dtype": dtypes.int64}), (integers(3), {"dtype": dtypes.float64}),
        (integers(0, 2), {"dtype": dtypes.bool_}), (floats(), {"dtype": dtypes.float64}),
    ),
)  # fmt: skip
def cast(x: Any, dtype: DType) -> Any:
    """Convert the elements to `dtype`, as numpy.ndarray.astype does; float16 and bfloat16 by way of float32.  Gradients are cast back."""
    return converted(x if isinstance(x, np.ndarray) else np.asarray(x), dtype)


cast.named("ToCopyBackward0")


@cast.vjp()
def _(c: Any, g: Any) -> Any:
    return cast.of(g, dtype=c.avals[0].dtype) if c.avals[0].dtype.is_floating_point else None


@elementwise(
    lambda b, x, dtype: b.cast(x, dtype),
    promotion=NONE,
    rule=_cast_rule,
    traits=("moves", "exact", "number", "not differentiable"),
    samples=cases((floats(), {"dtype": dtypes.float32}), (integers(), {"dtype": dtypes.float64})),
)
def extracted_number(x: Any, dtype: DType) -> Any:
    """A number that Python has from `x`, a tensor of no dimensions, where it meets tensors of `dtype`.  It is what `cast` gives; but eager
    mode has a number of Python in its place, which its tape does not save: no backward pass frees it, or asks whether it was changed."""
    return converted(x if isinstance(x, np.ndarray) else np.asarray(x), dtype)


@extracted_number.simplified
def _(s: Any, x: Any, dtype: DType) -> Any:
    return s(cast, x, dtype=dtype)


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether every element of `narrow` is exact in `wide`."""
    return bool(np.can_cast(narrow.numpy, wide.numpy, "safe")) and not (
        wide.is_floating_point and narrow.itemsize == 8 and not narrow.is_floating_point
    )


@cast.simplified
def _(s: Any, x: Any, dtype: DType) -> Any:
    """Casts to the same dtype, and casts of a cast that lost nothing."""
    if s.same(x) or x.op is not cast:
        return x
    (inner,), middle = x.operands, x.aval.dtype
    source = getattr(getattr(inner, "aval", None), "dtype", None)
    if source is None or not _holds(middle, source):
        return None
    if dtype is source:
        return inner
    if dtype.is_floating_point or dtype is dtypes.bool_ or not middle.is_floating_point:
        return s(cast, inner, dtype=dtype)
    return None  # float to integer: out of range, the result depends on the width


@elementwise(lambda b, x, y: x + y, traits=("exact", "adds"), samples=binary(), ufunc=np.add)
def add(x: Any, y: Any) -> Any:
    """Elementwise sum, with broadcasting and type promotion."""


@add.vjp()
def _(c: Any, g: Any) -> Any:
    return g, g


@elementwise(
    lambda b, x, y: x - y,
    simpler=lambda s, x, y: x if is_positive_zero(y) else None,  # x - 0 is x for every x; x - (-0.0) is not
    traits=("exact",),
    samples=binary(),
    ufunc=np.subtract,
    evaluates=True,
)
def sub(x: Any, y: Any) -> Any:
    """Elementwise difference, with broadcasting and type promotion.  Raises RuntimeError for two bools, as PyTorch does."""
    try:
        return np.subtract(x, y)
    except TypeError as error:  # NumPy has no difference of bools either
        if is_foreign(error):
            raise
        raise RuntimeError("sub(): subtraction of two bool tensors is not supported; use logical_xor() or ^ instead") from None


sub.named(lambda node: "RsubBackward1" if node.numbers[:1] == (True,) else "SubBackward0")


@sub.vjp()
def _(c: Any, g: Any) -> Any:
    return g, -g if c.needs[1] else None


@elementwise(
    lambda b, x, y: x * y,
    simpler=lambda s, x, y: x if y == 1 else y if x == 1 else None,
    traits=("exact",),
    samples=binary(),
    ufunc=np.multiply,
)
def mul(x: Any, y: Any) -> Any:
    """Elementwise product, with broadcasting and type promotion."""


@mul.vjp(saves=("1", "0"))
def _(c: Any, g: Any) -> Any:
    x, y = c.inputs
    return g * y if c.needs[0] else None, g * x if c.needs[1] else None


@elementwise(
    lambda b, x, y: x / y,
    simpler=lambda s, x, y: x if y == 1 else None,
    promotion=FLOAT,
    traits=("exact",),
    samples=binary(other_low=0.5),
    ufunc=np.true_divide,
)
def div(x: Any, y: Any) -> Any:
    """Elementwise true quotient; integers become the default floating-point dtype."""


@div.vjp(saves=("1", "0 1"))
def _(c: Any, g: Any) -> Any:
    x, y = c.inputs
    gx = g / y
    return gx if c.needs[0] else None, -gx * (x / y) if c.needs[1] else None


_rounding_division = partial(elementwise, traits=("rounds numbers",), evaluates=True)


@_rounding_division(lambda b, x, y: b.floor_divide(x, y), samples=binary(other_low=0.5), ufunc=np.floor_divide)
def floor_divide(x: Any, y: Any) -> Any:
    """Elementwise quotient rounded down.  Integers divided by 0 give 0.  The gradient is zero."""
    refuse_bool("floor_divide", x, y)
    return np.floor_divide(x, y)


@floor_divide.vjp()
def _(c: Any, g: Any) -> Any:
    return zero_gradient(c, g, 0), zero_gradient(c, g, 1)


@_rounding_division(lambda b, x, y: b.remainder(x, y), samples=binary(other_low=0.7), ufunc=np.remainder)
def remainder(x: Any, y: Any) -> Any:
    """Elementwise x - y * floor(x / y): the sign is that of the divisor.  Integers divided by 0 give 0."""
    refuse_bool("remainder", x, y)
    return np.remainder(x, y)


@remainder.vjp(saves=("", "0 1"))
def _(c: Any, g: Any) -> Any:
    x, y = c.inputs
    return g, -g * floor_divide.of(x, y) if c.needs[1] else None


@_rounding_division(lambda b, x, y: b.fmod(x, y), samples=binary(other_low=0.7), ufunc=np.fmod)
def fmod(x: Any, y: Any) -> Any:
    """Elementwise x - y * trunc(x / y): the sign is that of the dividend.  Integers divided by 0 give 0."""
    refuse_bool("fmod", x, y)
    return np.fmod(x, y)


@fmod.vjp(saves=("", "0 1"))
def _(c: Any, g: Any) -> Any:
    x, y = c.inputs
    return g, -g * trunc.of(x / y) if c.needs[1] else None


@elementwise(
    lambda b, x: -x,
    simpler=involution,
    traits=("exact",),
    samples=unary(),
    ufunc=np.negative,
    evaluates=True,
)
def neg(x: Any) -> Any:
    """Elementwise negation.  Raises RuntimeError for bool, as PyTorch does."""
    if getattr(x, "dtype", None) == np.bool_:
        raise RuntimeError("neg(): negation of a bool tensor is not supported; use logical_not() or ~ instead")
    return np.negative(x)


@neg.vjp()
def _(c: Any, g: Any) -> Any:
    return -g


def _acc_rule(previous: Any, d: Aval) -> Aval:
    if previous is not None:
        require_one_dtype("acc", previous, d)
        require_broadcast("acc", previous.shape, d.shape)
    return d


@elementwise(
    lambda b, previous, d: d if previous is None else previous + d,
    promotion=NONE,
    rule=_acc_rule,
    simpler=lambda s, previous, d: d if previous is None else s(add, previous, d),
    traits=("adds",),
    samples=cases((None, floats(3)), (floats(2, 3).T, floats(3, 2, seed=1))),
)
def acc(previous: Any, d: Any) -> Any:
    """Accumulate a cotangent: `d` where there is no previous one (None), their sum otherwise."""
    return d if previous is None else np.add(previous, d)


@acc.vjp()
def _(c: Any, g: Any) -> Any:
    return g if c.needs[0] else None, g
