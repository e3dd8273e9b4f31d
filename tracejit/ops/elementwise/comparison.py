"""Comparisons, selection, and logic."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tracejit.core import kernels
from tracejit.core.dtypes import bool_
from tracejit.ops.declare import BOOL, elementwise, involution
from tracejit.ops.samples import binary, bools, cases, floats, integers, truth_binary

__all__ = [
    "at_least",
    "at_most",
    "between",
    "eq",
    "ge",
    "gt",
    "le",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "lt",
    "maximum",
    "minimum",
    "ne",
    "phi",
    "where",
]


@elementwise(lambda b, x, y: b.eq(x, y), result=bool_, traits=("rounds numbers", "exact"), samples=binary(), ufunc=np.equal)
def eq(x: Any, y: Any) -> Any:
    """Elementwise x == y."""


@elementwise(lambda b, x, y: b.ne(x, y), result=bool_, traits=("rounds numbers", "exact"), samples=binary(), ufunc=np.not_equal)
def ne(x: Any, y: Any) -> Any:
    """Elementwise x != y."""


@elementwise(lambda b, x, y: x < y, result=bool_, traits=("rounds numbers", "exact"), samples=binary(), ufunc=np.less)
def lt(x: Any, y: Any) -> Any:
    """Elementwise x < y."""


@elementwise(lambda b, x, y: x <= y, result=bool_, traits=("rounds numbers", "exact"), samples=binary(), ufunc=np.less_equal)
def le(x: Any, y: Any) -> Any:
    """Elementwise x <= y."""


@elementwise(lambda b, x, y: x > y, result=bool_, traits=("rounds numbers", "exact"), samples=binary(), ufunc=np.greater)
def gt(x: Any, y: Any) -> Any:
    """Elementwise x > y."""


@elementwise(lambda b, x, y: x >= y, result=bool_, traits=("rounds numbers", "exact"), samples=binary(), ufunc=np.greater_equal)
def ge(x: Any, y: Any) -> Any:
    """Elementwise x >= y."""


def _choices() -> Any:
    return cases(
        (bools(4), floats(4), floats(4, seed=1)),
        (bools(2, 3).T, floats(3, 1), 0.5),
        (bools(3), 0.0, floats(2, 3)),
        (bools(0, 2), floats(2), 1.0),
    )


@elementwise(lambda b, c, x, y: b.select(c, x, y), traits=("condition first",), samples=_choices(), loops=kernels.CHOICE)
def where(condition: Any, x: Any, y: Any) -> Any:
    """Elements of x where condition (bool) holds, of y elsewhere; all three broadcast."""
    if getattr(condition, "dtype", None) is not _BOOL:
        raise RuntimeError(
            f"where(): expected condition to be a bool tensor, got {getattr(condition, 'dtype', type(condition).__name__)}; "
            "compare it first, e.g. condition != 0"
        )
    if condition.size >= _MANY and isinstance(condition, np.ndarray) and _lie_alike(condition, x, y):
        chosen = _chosen_bits(condition, x, y)
        if chosen is not None:
            return chosen
    out = np.where(condition, x, y)
    for operand in (x, y):  # np.where makes a float64 of Python floats where both operands are weak scalars
        if isinstance(operand, np.ndarray | np.generic):
            return out if out.dtype == operand.dtype else out.astype(operand.dtype)
    return out


_BOOL = np.dtype(np.bool_)
_MANY = 2048
_BITS: dict[Any, type[np.signedinteger[Any]]] = {np.dtype(np.float32): np.int32, np.dtype(np.float64): np.int64}


def _lie_alike(*operands: Any) -> bool:
    """Whether all arrays among the operands lie in memory in the same way, so that NumPy lays out in that way whatever it computes of them:
    the layout of a result must not depend on how many elements there are."""
    first, *others = [x for x in operands if isinstance(x, np.ndarray)]
    if all(x.flags.c_contiguous for x in (first, *others)):
        return True
    order = [s // first.itemsize for s in first.strides]
    return 1 not in first.shape and all(x.shape == first.shape and [s // x.itemsize for s in x.strides] == order for x in others)


def _chosen_bits(condition: Any, x: Any, y: Any) -> Any:
    """The same by arithmetic on bits: np.where takes a branch for each element, which costs ten times as much where they follow no pattern.
    None where an operand is no float32, float64 (the same for both) or finite number of such."""
    if isinstance(x, np.ndarray):
        dtype = x.dtype
        if isinstance(y, np.ndarray) and y.dtype != dtype:
            return None
    elif isinstance(y, np.ndarray):
        dtype = y.dtype
    else:
        return None
    integer = _BITS.get(dtype)
    if integer is None:
        return None
    first, second = (np.asarray(v, dtype).view(integer) for v in (x, y))
    if is_positive_zero(x):
        return (second & ~_all_bits(condition, integer)).view(dtype)
    everywhere = _all_bits(condition, integer)
    if is_positive_zero(y):
        return (first & everywhere).view(dtype)
    out = (first ^ second) & everywhere
    out ^= second
    return out.view(dtype)


def _all_bits(condition: Any, integer: Any) -> Any:
    """-1, which has all bits, where condition holds, and 0."""
    bits = condition.astype(integer)
    return np.negative(bits, out=bits)


def replace(x: Any, condition: Any, value: float) -> None:
    """x = where(condition, x, value) in the memory of an array; condition broadcasts to it."""
    integer = _BITS.get(x.dtype)
    if integer is None:
        np.copyto(x, value, where=~condition)
        return
    kept, bits = _all_bits(condition, integer), x.view(integer)
    bits &= kept
    bits |= ~kept & np.asarray(value, x.dtype).view(integer)


def is_positive_zero(x: Any) -> bool:
    """Whether x is a number, and 0, not -0.0."""
    return not isinstance(x, np.ndarray) and x == 0 and math.copysign(1, x) > 0


@where.vjp(saves=("", "0", "0"))
def _(c: Any, g: Any) -> Any:
    condition = c.inputs[0]
    return None, where.of(condition, g, 0.0) if c.needs[1] else None, where.of(condition, 0.0, g) if c.needs[2] else None


def _merges() -> Any:
    return cases((bools(), floats(4), floats(4, seed=1)), (bools(), floats(2, 3).T, floats(3, 2)))


@elementwise(lambda b, c, x, y: b.select(c, x, y), traits=("condition first", "merges paths"), samples=_merges())
def phi(condition: Any, x: Any, y: Any) -> Any:
    """The value of a variable where two paths join: x after the path on which condition, one bool, holds, y after the other."""
    return where.evaluate(condition, x, y)


@phi.simplified
def _(s: Any, condition: Any, x: Any, y: Any) -> Any:
    """One value on both paths."""
    return x if getattr(x, "id", x) == getattr(y, "id", None) else None


@phi.vjp(saves=("", "0", "0"))
def _(c: Any, g: Any) -> Any:
    condition = c.inputs[0]  # -0.0: what is not added to a cotangent
    return None, where.of(condition, g, -0.0) if c.needs[1] else None, where.of(condition, -0.0, g) if c.needs[2] else None


def _limits(*numbers: float) -> Any:
    zeros = (-0.0, *numbers[1:])
    return cases((floats(4), *numbers), (floats(2, 3).T, *zeros), (floats(0, 2), *numbers), (integers(3), *map(int, numbers)))


def _limited(x: Any, low: Any, high: Any) -> Any:
    """x, low where it is less, and then high where that is greater; each a number, or None; NaN everywhere if one is NaN."""
    if not isinstance(x, np.ndarray) or ((low == 0 or high == 0) and not _ZEROS_STAY):
        out = x if low is None else where.evaluate(np.less(x, low) | (low != low), low, x)
        return out if high is None else where.evaluate(np.greater(out, high) | (high != high), high, out)
    if low is None:
        return np.minimum(_limit(high, x), x)
    return np.maximum(_limit(low, x), x) if high is None else x.clip(_limit(low, x), _limit(high, x))


def _limit(number: float, x: Any) -> Any:
    """A limit as NumPy takes it fastest."""
    return np.asarray(number, x.dtype) if x.dtype.kind == "f" and -1e30 < number < 1e30 else number


def _zeros_stay() -> bool:
    """Whether NumPy's functions for limits give x where it is a zero and the limit is the other one, which is up to the machine."""
    for zero in (0.0, -0.0):
        for dtype in (np.float32, np.float64):
            x = np.full(67, zero, dtype)
            for out in (np.minimum(-zero, x), np.maximum(-zero, x), x.clip(-zero, 1.0), x.clip(-1.0, -zero)):
                if (np.signbit(out) != np.signbit(x)).any():
                    return False
    return True


_ZEROS_STAY = _zeros_stay()


def _raised(b: Any, x: Any, limit: Any) -> Any:
    return b.select((x < limit) | b.isnan(limit), limit, x)


def _lowered(b: Any, x: Any, limit: Any) -> Any:
    return b.select((x > limit) | b.isnan(limit), limit, x)


@elementwise(_raised, samples=_limits(0.25))
def at_least(x: Any, limit: Any) -> Any:
    """Elementwise `limit`, a number, where x is less, and x elsewhere; NaN if it is NaN."""
    return _limited(x, limit, None)


@elementwise(_lowered, samples=_limits(0.25))
def at_most(x: Any, limit: Any) -> Any:
    """Elementwise `limit`, a number, where x is greater, and x elsewhere; NaN if it is NaN."""
    return _limited(x, None, limit)


@elementwise(lambda b, x, low, high: _lowered(b, _raised(b, x, low), high), samples=_limits(-0.25, 0.5))
def between(x: Any, low: Any, high: Any) -> Any:
    """Elementwise `low` where x is less, and then `high` where that is greater; both are numbers.  NaN if one of them is NaN."""
    return _limited(x, low, high)


@at_least.vjp(saves=("0", ""))
def _(c: Any, g: Any) -> Any:
    x, limit = c.inputs
    return where.of(x >= limit, g, 0.0), None


@at_most.vjp(saves=("0", ""))
def _(c: Any, g: Any) -> Any:
    x, limit = c.inputs
    return where.of(x <= limit, g, 0.0), None


@between.vjp(saves=("0", "", ""))
def _(c: Any, g: Any) -> Any:
    x, low, high = c.inputs
    return where.of(x >= low, where.of(x <= high, g, 0.0), 0.0), None, None


for _op in (at_least, at_most, between):
    _op.named("ClampBackward1")


@elementwise(lambda b, x, y: b.maximum(x, y), samples=binary(), ufunc=np.maximum)
def maximum(x: Any, y: Any) -> Any:
    """Elementwise maximum; NaN where either is NaN.  Where both are equal each gets half of the gradient."""


@maximum.vjp(saves="0 1")
def _(c: Any, g: Any) -> Any:
    x, y = c.inputs
    half = g * 0.5
    gx = where.of(x == y, half, where.of(x < y, 0.0, g)) if c.needs[0] else None
    gy = where.of(x == y, half, where.of(x >= y, 0.0, g)) if c.needs[1] else None
    return gx, gy


@elementwise(lambda b, x, y: b.minimum(x, y), samples=binary(), ufunc=np.minimum)
def minimum(x: Any, y: Any) -> Any:
    """Elementwise minimum; NaN where either is NaN.  Where both are equal each gets half of the gradient."""


@minimum.vjp(saves="0 1")
def _(c: Any, g: Any) -> Any:
    x, y = c.inputs
    half = g * 0.5
    gx = where.of(x == y, half, where.of(x > y, 0.0, g)) if c.needs[0] else None
    gy = where.of(x == y, half, where.of(x <= y, 0.0, g)) if c.needs[1] else None
    return gx, gy


@elementwise(lambda b, x, y: b.logical_and(x, y), promotion=BOOL, result=bool_, samples=truth_binary(), ufunc=np.logical_and)
def logical_and(x: Any, y: Any) -> Any:
    """Elementwise logical and of truth values."""


@elementwise(lambda b, x, y: b.logical_or(x, y), promotion=BOOL, result=bool_, samples=truth_binary(), ufunc=np.logical_or)
def logical_or(x: Any, y: Any) -> Any:
    """Elementwise logical or of truth values."""


@elementwise(lambda b, x, y: b.logical_xor(x, y), promotion=BOOL, result=bool_, samples=truth_binary(), ufunc=np.logical_xor)
def logical_xor(x: Any, y: Any) -> Any:
    """Elementwise exclusive or of truth values."""


@elementwise(
    lambda b, x: b.logical_not(x),
    simpler=involution,
    promotion=BOOL,
    result=bool_,
    samples=cases((bools(4),), (bools(2, 3).T,), (bools(0, 2),)),
    ufunc=np.logical_not,
)
def logical_not(x: Any) -> Any:
    """Elementwise logical not of truth values."""
