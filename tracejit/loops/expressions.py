"""Scalar expressions: what one element of a nest computes, with one meaning whatever the rendering.

An `Expr` is a node of a frozen DAG with a DType.  Leaves are `Var`, `Load`, `ScalarParam`, `Const`, `AxisValue`, `SizeValue`; inner
nodes are `Apply`.  A `Builder` makes nodes and checks dtypes; it is what the scalar lowering of a primitive receives:
`lowering(b, *operand_exprs, **attributes) -> Expr`.  Operators on Exprs do what they do on NumPy scalars of those dtypes; a Python
number beside an Expr takes the Expr's dtype.

Invariants: operands of an arithmetic node have one dtype (the builder raises TypeError otherwise, it never promotes); nothing is
contracted, reassociated or assumed free of NaN; integers wrap.  Identity is the only equality of Exprs that Python sees: `==`
builds a comparison, and an Expr has no truth value.

`loops/evaluate.py` gives each operation its NumPy meaning, `llvm/operations.py` its emission, `math/exponential.py` the
definition of the elementary functions in terms of the others.  This module knows none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tracejit.core import dtypes
from tracejit.core.dtypes import DType
from tracejit.loops.language import Axis, Buffer, Index, Scalar, Size
from tracejit.math.scipy_functions import OF_FLOAT32, PREFIX

__all__ = [
    "ELEMENTARY", "Apply", "AxisValue", "Builder", "Const", "Expr", "Load", "ScalarParam", "SizeValue", "Var", "builder", "children",
    "topological",
]  # fmt: skip


# Functions that math/ defines in terms of the other operations (vectorised, within 2.5 ulp).
ELEMENTARY: Final = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "atan2",
    "asinh", "acosh", "atanh", "sigmoid", "erf", "erfc", "pow",
)  # fmt: skip


class Expr:
    """A value of one element.  Operators build new Exprs."""

    __slots__ = ()
    dtype: DType

    def __bool__(self) -> bool:
        raise TypeError(
            "an Expr has no truth value: its number is known only when the kernel runs. Use Builder.select for a choice"
        )

    __hash__ = object.__hash__

    def __add__(self, other: Any) -> Expr:
        return builder.add(self, other)

    def __radd__(self, other: Any) -> Expr:
        return builder.add(other, self)

    def __sub__(self, other: Any) -> Expr:
        return builder.sub(self, other)

    def __rsub__(self, other: Any) -> Expr:
        return builder.sub(other, self)

    def __mul__(self, other: Any) -> Expr:
        return builder.mul(self, other)

    def __rmul__(self, other: Any) -> Expr:
        return builder.mul(other, self)

    def __truediv__(self, other: Any) -> Expr:
        return builder.div(self, other)

    def __rtruediv__(self, other: Any) -> Expr:
        return builder.div(other, self)

    def __neg__(self) -> Expr:
        return builder.neg(self)

    def __abs__(self) -> Expr:
        return builder.abs(self)

    def __and__(self, other: Any) -> Expr:
        return builder.bit_and(self, other)

    def __rand__(self, other: Any) -> Expr:
        return builder.bit_and(other, self)

    def __or__(self, other: Any) -> Expr:
        return builder.bit_or(self, other)

    def __ror__(self, other: Any) -> Expr:
        return builder.bit_or(other, self)

    def __xor__(self, other: Any) -> Expr:
        return builder.bit_xor(self, other)

    def __rxor__(self, other: Any) -> Expr:
        return builder.bit_xor(other, self)

    def __lshift__(self, other: Any) -> Expr:
        return builder.shl(self, other)

    def __rshift__(self, other: Any) -> Expr:
        return builder.shr(self, other)

    def __invert__(self) -> Expr:
        return builder.bit_not(self)

    def __lt__(self, other: Any) -> Expr:
        return builder.lt(self, other)

    def __le__(self, other: Any) -> Expr:
        return builder.le(self, other)

    def __gt__(self, other: Any) -> Expr:
        return builder.gt(self, other)

    def __ge__(self, other: Any) -> Expr:
        return builder.ge(self, other)

    def __eq__(self, other: object) -> Any:
        return builder.eq(self, other)

    def __ne__(self, other: object) -> Any:
        return builder.ne(self, other)


@dataclass(frozen=True, slots=True, eq=False)
class Var(Expr):
    """A value named by a Let or a Reduce.  Bound by identity; renderings make equal names distinct."""

    name: str
    dtype: DType


@dataclass(frozen=True, slots=True, eq=False, init=False)
class Load(Expr):
    """The element of `buffer` at `index`."""

    buffer: Buffer
    index: Index
    dtype: DType

    def __init__(self, buffer: Buffer, index: Index) -> None:
        object.__setattr__(self, "buffer", buffer)
        object.__setattr__(self, "index", index)
        object.__setattr__(self, "dtype", buffer.dtype)


@dataclass(frozen=True, slots=True, eq=False, init=False)
class ScalarParam(Expr):
    """The value of a number parameter of the nest."""

    scalar: Scalar
    dtype: DType

    def __init__(self, scalar: Scalar) -> None:
        object.__setattr__(self, "scalar", scalar)
        object.__setattr__(self, "dtype", scalar.dtype)


@dataclass(frozen=True, slots=True, eq=False)
class Const(Expr):
    """A constant; `value` is a NumPy scalar of the dtype.  Make it with `Builder.const`."""

    value: Any
    dtype: DType


@dataclass(frozen=True, slots=True, eq=False)
class AxisValue(Expr):
    """The number of the iteration of an enclosing loop, int64."""

    axis: Axis
    dtype: DType = dtypes.int64


@dataclass(frozen=True, slots=True, eq=False)
class SizeValue(Expr):
    """The value of a size parameter of the nest, int64."""

    size: Size
    dtype: DType = dtypes.int64


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Apply(Expr):
    """One operation of the Builder on operands.  `attribute` is the function's name for "libm", "libm_where" and "elementary_where",
    else None."""

    operation: str
    operands: tuple[Expr, ...]
    dtype: DType
    attribute: str | None = None

    def __repr__(self) -> str:  # shallow: a DAG printed as a tree may be exponentially long
        return f"<{self.attribute or self.operation}({_describe(*self.operands)}) -> {self.dtype.name}>"


def children(e: Expr) -> tuple[Expr, ...]:
    """The Exprs that `e` is computed from, dynamic indices of loads included."""
    if isinstance(e, Apply):
        return e.operands
    if isinstance(e, Load) and e.index.dynamic is not None:
        return (e.index.dynamic,)
    return ()


def topological(roots: Iterable[Expr]) -> list[Expr]:
    """Every Expr below `roots`, operands first, each once.  Iterative: chains may be long."""
    done: set[int] = set()
    order: list[Expr] = []
    for root in roots:
        stack: list[tuple[Expr, bool]] = [(root, False)]
        while stack:
            e, expanded = stack.pop()
            if id(e) in done:
                continue
            if expanded:
                done.add(id(e))
                order.append(e)
            else:
                stack.append((e, True))
                stack.extend((c, False) for c in reversed(children(e)) if id(c) not in done)
    return order


def _describe(*operands: Expr) -> str:
    return ", ".join(e.dtype.name for e in operands)


def _elementary(name: str) -> Callable[[Builder, Expr], Expr]:
    def method(self: Builder, x: Expr) -> Expr:
        return self._apply(name, (x,), "f")

    return method


def _comparison(name: str) -> Callable[[Builder, Any, Any], Expr]:
    def method(self: Builder, x: Any, y: Any) -> Expr:
        return self._apply(name, (x, y), "bif", dtypes.bool_)

    return method


def _rounding(name: str) -> Callable[[Builder, Expr], Expr]:
    def method(self: Builder, x: Expr) -> Expr:
        return self._apply(name, (x,), "f") if x.dtype.is_floating_point else x

    return method


class Builder:
    """Makes Exprs.  Every method has one NumPy-scalar meaning (`loops/evaluate.py`) and one LLVM emission.

    Operands are Exprs, or Python numbers where another operand is an Expr and gives the dtype.  Raises TypeError for operands
    of different dtypes or of a dtype that the operation does not have."""

    __slots__ = ()

    # --- leaves and conversions

    def const(self, value: Any, dtype: DType) -> Const:
        """A constant of `dtype`.  Python integers wrap, as torch converts a scalar operand."""
        if dtype.category == dtypes.INTEGER and isinstance(value, int | np.integer):
            bits = 8 * dtype.itemsize
            number = int(value) & ((1 << bits) - 1)
            if dtype.is_signed and number >> (bits - 1):
                number -= 1 << bits
            return Const(dtype.numpy.type(number), dtype)
        with np.errstate(all="ignore"):
            return Const(dtypes.converted(np.asarray(value), dtype)[()], dtype)

    def cast(self, x: Expr, dtype: DType) -> Expr:
        """NumPy's astype: floats truncate to integers (out of range as on x86: the least integer, narrowed), anything
        to bool is `!= 0`."""
        return x if x.dtype is dtype else Apply("cast", (x,), dtype)

    def bitcast(self, x: Expr, dtype: DType) -> Expr:
        """The same bits read as another dtype of equal size (no bool)."""
        if x.dtype is dtype:
            return x
        if x.dtype.itemsize != dtype.itemsize or dtypes.bool_ in (x.dtype, dtype):
            raise TypeError(f"bitcast: cannot read {x.dtype.name} as {dtype.name}; sizes must be equal and neither bool")
        return Apply("bitcast", (x,), dtype)

    def _unify(self, operation: str, *operands: Any) -> tuple[Expr, ...]:
        """Operands as Exprs of one dtype."""
        dtype: DType | None = None
        for o in operands:
            if isinstance(o, Expr):
                if dtype is None:
                    dtype = o.dtype
                elif o.dtype is not dtype:
                    exprs = [x for x in operands if isinstance(x, Expr)]
                    raise TypeError(f"{operation}: operands have dtypes {_describe(*exprs)}; cast them to one dtype first")
        if dtype is None:
            raise TypeError(f"{operation}: no operand is an Expr, got {operands!r}; make one with Builder.const")
        return tuple(o if isinstance(o, Expr) else self.const(o, dtype) for o in operands)

    def _apply(
        self, operation: str, operands: tuple[Any, ...], allowed: str, result: DType | None = None, attribute: str | None = None
    ) -> Expr:
        """An Apply after checks; `allowed` holds the categories: b(ool), i(nteger), f(loat)."""
        exprs = self._unify(operation, *operands)
        if "bif"[exprs[0].dtype.category] not in allowed:
            raise TypeError(f"{operation}: not defined for {exprs[0].dtype.name}; cast the operand first")
        return Apply(operation, exprs, result or exprs[0].dtype, attribute)

    # --- arithmetic

    def add(self, x: Any, y: Any) -> Expr:
        """x + y; on bools, or."""
        return self._apply("add", (x, y), "bif")

    def sub(self, x: Any, y: Any) -> Expr:
        return self._apply("sub", (x, y), "if")

    def mul(self, x: Any, y: Any) -> Expr:
        """x * y; on bools, and."""
        return self._apply("mul", (x, y), "bif")

    def div(self, x: Any, y: Any) -> Expr:
        """True division of floats."""
        return self._apply("div", (x, y), "f")

    def div_where(self, condition: Expr, x: Any, y: Any, usual: Any) -> Expr:
        """select(condition, x / y, usual), the division being made only where some lane needs it."""
        x, y, usual = self._unify("div_where", x, y, usual)
        return Apply("div_where", (condition, x, y, usual), x.dtype)

    def neg(self, x: Expr) -> Expr:
        return self._apply("neg", (x,), "if")

    def abs(self, x: Expr) -> Expr:
        return x if x.dtype in (dtypes.bool_, dtypes.uint8) else self._apply("abs", (x,), "if")

    def sqrt(self, x: Expr) -> Expr:
        return self._apply("sqrt", (x,), "f")

    def fma(self, x: Any, y: Any, z: Any) -> Expr:
        """x * y + z rounded once."""
        return self._apply("fma", (x, y, z), "f")

    floor = _rounding("floor")
    ceil = _rounding("ceil")
    trunc = _rounding("trunc")
    rint = _rounding("rint")  # to the nearest integer, halves to even

    def floor_divide(self, x: Any, y: Any) -> Expr:
        """np.floor_divide; integers by zero give 0, the least integer by -1 gives itself."""
        return self._apply("floor_divide", (x, y), "if")

    def remainder(self, x: Any, y: Any) -> Expr:
        """np.remainder: the sign of the divisor; integers by zero give 0."""
        return self._apply("remainder", (x, y), "if")

    def fmod(self, x: Any, y: Any) -> Expr:
        """np.fmod: the sign of the dividend; integers by zero give 0."""
        return self._apply("fmod", (x, y), "if")

    def maximum(self, x: Any, y: Any) -> Expr:
        """`x if x > y or isnan(x) else y`: NaN if either is NaN, y where they are equal (zeros of both signs), as NumPy; on bools, or."""
        return self._apply("maximum", (x, y), "bif")

    def minimum(self, x: Any, y: Any) -> Expr:
        """`x if x < y or isnan(x) else y`; on bools, and."""
        return self._apply("minimum", (x, y), "bif")

    def unsigned_minimum(self, x: Any, y: Any) -> Expr:
        """The lesser of two integers, both read as numbers without a sign."""
        return self._apply("unsigned_minimum", (x, y), "i")

    def copysign(self, x: Any, y: Any) -> Expr:
        return self._apply("copysign", (x, y), "f")

    # --- comparison, logic, choice

    eq = _comparison("eq")
    ne = _comparison("ne")
    lt = _comparison("lt")
    le = _comparison("le")
    gt = _comparison("gt")
    ge = _comparison("ge")

    def isnan(self, x: Any) -> Expr:
        return self._predicate("isnan", x) if isinstance(x, Expr) else self.const(x != x, dtypes.bool_)

    def isinf(self, x: Expr) -> Expr:
        return self._predicate("isinf", x)

    def isfinite(self, x: Expr) -> Expr:
        return self.logical_not(self.logical_or(self.isnan(x), self.isinf(x)))

    def _predicate(self, operation: str, x: Expr) -> Expr:
        return self._apply(operation, (x,), "f", dtypes.bool_) if x.dtype.is_floating_point else self.const(False, dtypes.bool_)

    def signbit(self, x: Expr) -> Expr:
        return self._apply("signbit", (x,), "f", dtypes.bool_) if x.dtype.is_floating_point else self.lt(x, 0)

    def logical_and(self, x: Any, y: Any) -> Expr:
        """Of truth values: an operand of another dtype is compared with 0 first."""
        return self._apply("bit_and", tuple(map(self._truth, (x, y))), "b")

    def logical_or(self, x: Any, y: Any) -> Expr:
        return self._apply("bit_or", tuple(map(self._truth, (x, y))), "b")

    def logical_xor(self, x: Any, y: Any) -> Expr:
        return self._apply("bit_xor", tuple(map(self._truth, (x, y))), "b")

    def logical_not(self, x: Any) -> Expr:
        return self._apply("bit_not", (self._truth(x),), "b")

    def _truth(self, x: Any) -> Expr:
        return self.cast(x, dtypes.bool_) if isinstance(x, Expr) else self.const(bool(x), dtypes.bool_)

    def bit_and(self, x: Any, y: Any) -> Expr:
        return self._apply("bit_and", (x, y), "bi")

    def bit_or(self, x: Any, y: Any) -> Expr:
        return self._apply("bit_or", (x, y), "bi")

    def bit_xor(self, x: Any, y: Any) -> Expr:
        return self._apply("bit_xor", (x, y), "bi")

    def bit_not(self, x: Expr) -> Expr:
        return self._apply("bit_not", (x,), "bi")

    def shl(self, x: Any, y: Any) -> Expr:
        """x << y; 0 where y is negative or at least the width, as NumPy."""
        return self._apply("shl", (x, y), "i")

    def shr(self, x: Any, y: Any) -> Expr:
        """x >> y, arithmetic for signed integers; where y is negative or at least the width, 0 or -1 by the sign of x."""
        return self._apply("shr", (x, y), "i")

    def select(self, condition: Any, x: Any, y: Any) -> Expr:
        """x where the condition holds, else y.  Both are computed."""
        a, b = self._unify("select", x, y)
        return Apply("select", (self._truth(condition), a, b), a.dtype)

    # --- functions of floats: those of ELEMENTARY, and the C library's

    exp = _elementary("exp")
    exp2 = _elementary("exp2")
    expm1 = _elementary("expm1")
    log = _elementary("log")
    log2 = _elementary("log2")
    log10 = _elementary("log10")
    log1p = _elementary("log1p")
    sin = _elementary("sin")
    cos = _elementary("cos")
    tan = _elementary("tan")
    sinh = _elementary("sinh")
    cosh = _elementary("cosh")
    tanh = _elementary("tanh")
    asin = _elementary("asin")
    acos = _elementary("acos")
    atan = _elementary("atan")
    asinh = _elementary("asinh")
    acosh = _elementary("acosh")
    atanh = _elementary("atanh")
    sigmoid = _elementary("sigmoid")  # 1 / (1 + exp(-x))
    erf = _elementary("erf")
    erfc = _elementary("erfc")

    def atan2(self, y: Any, x: Any) -> Expr:
        """The angle of the point (x, y)."""
        return self._apply("atan2", (y, x), "f")

    def pow(self, x: Any, y: Any) -> Expr:
        """x ** y.  Integers wrap; a negative integer exponent gives the quotient's integer part (0 for |x| > 1 and x = 0)."""
        return self._apply("pow", (x, y), "if")

    def rsqrt(self, x: Expr) -> Expr:
        """1 / sqrt(x), two roundings."""
        return self.div(1.0, self.sqrt(x))

    def ldexp(self, x: Expr, k: Expr) -> Expr:
        """x * 2**k rounded once; k is an integer as wide as x, and 2**-2 <= abs(x) <= 4 unless x is NaN."""
        return Apply("ldexp", (x, k), x.dtype)

    def libm(self, name: str, *operands: Any) -> Expr:
        """A function of the C library, one lane at a time: for the rare ones."""
        return self._apply("libm", operands, "f", attribute=name)

    def scipy(self, name: str, *operands: Any) -> Expr:
        """A special function of SciPy's, one lane at a time: in float64 whatever the dtype, unless SciPy has it of float32, too."""
        operands = self._unify(name, *operands)
        dtype = operands[0].dtype
        if dtype is dtypes.float64 or (dtype is dtypes.float32 and name in OF_FLOAT32):
            return self.libm(PREFIX + name, *operands)
        return self.cast(self.libm(PREFIX + name, *[self.cast(x, dtypes.float64) for x in operands]), dtype)

    def elementary_where(self, condition: Expr, name: str, operands: tuple[Expr, ...], usual: Expr) -> Expr:
        """select(condition, name(*operands), usual); the function, as `math.functions.complete` has it, is computed only where some lane
        needs it."""
        return Apply("elementary_where", (condition, *self._unify(name, *operands, usual)), usual.dtype, name)

    def libm_where(self, condition: Expr, name: str, x: Expr, usual: Expr) -> Expr:
        """select(condition, libm(name, x), usual), the function being called only where some lane needs it."""
        x, usual = self._unify("libm_where", x, usual)
        return Apply("libm_where", (condition, x, usual), x.dtype, name)


builder: Final = Builder()
