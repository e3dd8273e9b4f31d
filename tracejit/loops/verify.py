"""Checks that a nest is well formed.

Invariants checked: parameters are distinct, and all that the nest uses is among them; every Var is named once, before its use, in a
statement list that is still open; axes are used inside their loops only, and no loop runs over the axis of one around it; the dtypes of
expressions agree, of what is stored with the buffer's, of positions with int64; exits are on truth values; reductions combine what they
can.  A loop that runs in lanes has independent iterations (`independent`), one that runs in tiles such as may change places
(`interchangeable`), interleaved stores leave no position between their elements (`fill_a_table`).

Rewrites (loops/rewrites/) ask the same questions before they decide, and every nest that they make is verified where the library
verifies itself.  That indices stay within their buffers, for sizes that are known, is proven by bounds.py.  Knows the language alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tracejit.core import dtypes
from tracejit.loops.combinations import COMBINATIONS
from tracejit.loops.expressions import Apply, AxisValue, Expr, Load, ScalarParam, SizeValue, Var, topological
from tracejit.loops.language import (
    Axis,
    Buffer,
    Exit,
    Extent,
    For,
    Index,
    Interleaved,
    Let,
    Nest,
    Reduce,
    Scalar,
    Size,
    Statement,
    Store,
    chain,
    flatten,
)

__all__ = ["NestError", "fill_a_table", "independent", "interchangeable", "verify"]

_PREDICATES: Final = ("eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "signbit")
_CONDITIONAL: Final = ("select", "div_where", "libm_where", "elementary_where")  # their first operand is a truth value
_FREE: Final = ("cast", "bitcast", "ldexp")  # their operands have dtypes of their own


class NestError(ValueError):
    """A nest breaks an invariant; the message names the nest and the statement's part."""


def verify(nest: Nest) -> Nest:
    """`nest` itself.  Raises NestError naming the first statement that breaks an invariant."""
    _Verifier(nest).statements(nest.body)
    return nest


def independent(loop: For) -> bool:
    """Whether groups of iterations may run a statement at a time: nothing is stored to one position by several of them."""
    for s in flatten(loop.body):
        if isinstance(s, For | Reduce):
            return False
        if isinstance(s, Store):
            stride = dict(s.index.terms).get(loop.axis, 0)
            if stride == 0 or (s.accumulate and s.index.dynamic is not None):
                return False
    return True


def interchangeable(outer: For) -> bool:
    """Whether the loops of a chain may change places: whatever is stored to is touched by one iteration alone, at one position."""
    loops, lets = chain(outer)
    if not loops or not all(isinstance(s, Let | Store | Interleaved) for s in loops[-1].body):
        return False
    statements = [s for s in (*lets, *flatten(loops[-1].body)) if isinstance(s, Let | Store)]
    stores = [s for s in statements if isinstance(s, Store)]
    accesses = [(s.buffer, s.index) for s in stores]
    accesses += [(e.buffer, e.index) for e in topological(s.value for s in statements) if isinstance(e, Load)]
    for s in stores:
        strides = dict(s.index.terms)
        if (
            s.accumulate
            or s.index.dynamic is not None
            or any(b is s.buffer and (index.dynamic is not None or index != s.index) for b, index in accesses)
            or any(strides.get(loop.axis, 0) == 0 and loop.extent != 1 for loop in loops)
        ):
            return False
    return True


def fill_a_table(stores: Sequence[Store], axis: Axis) -> bool:
    """Whether stores are to all columns of a table with a row for each iteration, in order, and none is of what another one stored."""
    buffer, first = stores[0].buffer, stores[0].index
    if dict(first.terms).get(axis) != len(stores) or not isinstance(first.offset, int):
        return False
    if any(s.accumulate or s.index.dynamic is not None for s in stores):
        return False
    columns = [(buffer, Index(first.terms, first.offset + k)) for k in range(len(stores))]
    read = any(isinstance(e, Load) and e.buffer is buffer for e in topological(s.value for s in stores))
    return not read and [(s.buffer, s.index) for s in stores] == columns


class _Verifier:
    def __init__(self, nest: Nest) -> None:
        self.nest = nest
        parameters: tuple[Buffer | Size | Scalar, ...] = (*nest.buffers, *nest.temporaries, *nest.sizes, *nest.scalars)
        self.parameters = set(parameters)
        if len(self.parameters) != len(parameters):
            raise self.error("two parameters are the same")
        self.axes: list[Axis] = []
        self.visible: dict[int, Var] = {}
        self.named: dict[int, Var] = {}
        self.checked: dict[int, Expr] = {}  # apart from whether what they use is visible

    def error(self, message: str) -> NestError:
        return NestError(f"nest {self.nest.name}: {message}")

    # --- statements

    def statements(self, statements: Sequence[Statement]) -> None:
        for s in statements:
            if isinstance(s, Let):
                self.value(s.value)
                self.name(s.var)
                if s.var.dtype is not s.value.dtype:
                    raise self.error(f"{s.var.name!r} is {s.var.dtype.name}, its value {s.value.dtype.name}")
            elif isinstance(s, Store):
                self.value(s.value)
                self.access(s.buffer, s.index)
                if s.value.dtype is not s.buffer.dtype:
                    raise self.error(
                        f"a {s.value.dtype.name} is stored to the {s.buffer.dtype.name} buffer {s.buffer.name!r}; cast it"
                    )
            elif isinstance(s, Interleaved):
                if not self.axes or not fill_a_table(s.stores, self.axes[-1]):
                    raise self.error(f"interleaved stores to {s.stores[0].buffer.name!r} do not fill a table")
                self.statements(s.stores)
            elif isinstance(s, Exit):
                self.value(s.condition)
                if s.condition.dtype is not dtypes.bool_:
                    raise self.error(f"an exit is on a {s.condition.dtype.name}; it must be on a truth value")
                if isinstance(s.code, Scalar):
                    self.declared(s.code)
                elif s.code <= 0:
                    raise self.error(f"an exit has the code {s.code}; 0 means that there was none")
            else:
                self.loop(s)

    def loop(self, s: For | Reduce) -> None:
        self.extent(s.extent)
        if isinstance(s.extent, int) and s.extent < 0:
            raise self.error(f"the extent of axis {s.axis.name!r} is {s.extent}")
        if s.axis in self.axes:
            raise self.error(f"a loop over axis {s.axis.name!r} stands inside one over the same axis")
        if isinstance(s, For) and s.lanes > 1 and not independent(s):
            raise self.error(f"the loop over {s.axis.name!r} has lanes, but its iterations are not independent")
        if isinstance(s, For) and s.tiles is not None and not interchangeable(s):
            raise self.error(f"the loop over {s.axis.name!r} has tiles, but its iterations may not change places")
        outside = dict(self.visible)
        self.axes.append(s.axis)
        self.statements(s.body)
        items = s.items if isinstance(s, Reduce) else ()
        for _, _, value in items:
            self.value(value)
        self.axes.pop()
        self.visible = outside
        for var, combination, value in items:
            self.combination(var, combination, value)
            self.name(var)

    def combination(self, var: Var, name: str, value: Expr) -> None:
        combination = COMBINATIONS.get(name)
        if combination is None:
            raise self.error(f"{name!r} is no combination; there are {', '.join(COMBINATIONS)}")
        if combination.position:
            legal = var.dtype in (dtypes.int32, dtypes.int64)
        else:  # totals that are wider than the values are rounded to what is asked for
            wide = combination.wide and value.dtype.is_floating_point
            legal = var.dtype.is_floating_point if wide else var.dtype is value.dtype
        if not legal:
            raise self.error(f"{name} of {value.dtype.name} is named {var.name!r}, a {var.dtype.name}")
        if combination.truth and value.dtype is not dtypes.bool_:
            raise self.error(f"{name} of {value.dtype.name}; it combines truth values")

    def name(self, var: Var) -> None:
        if id(var) in self.named:
            raise self.error(f"the variable {var.name!r} is named twice")
        self.named[id(var)] = self.visible[id(var)] = var

    # --- what they use

    def declared(self, parameter: Buffer | Size | Scalar) -> None:
        if parameter not in self.parameters:
            raise self.error(f"{parameter.name!r} is no parameter")

    def extent(self, n: Extent) -> None:
        if isinstance(n, Size):
            self.declared(n)

    def open(self, axis: Axis) -> None:
        if axis not in self.axes:
            raise self.error(f"axis {axis.name!r} is used outside its loop")

    def access(self, buffer: Buffer, index: Index) -> None:
        self.declared(buffer)
        self.extent(index.offset)
        self.extent(index.dynamic_stride)
        for axis, stride in index.terms:
            self.open(axis)
            self.extent(stride)
        if index.dynamic is not None:
            self.value(index.dynamic)
            if index.dynamic.dtype is not dtypes.int64:
                raise self.error(f"a position in {buffer.name!r} is {index.dynamic.dtype.name}; cast it to int64")

    def value(self, root: Expr) -> None:
        for e in topological([root]):
            if isinstance(e, Var):
                if id(e) not in self.visible:
                    raise self.error(f"the variable {e.name!r} is used before a Let or Reduce names it, or outside its loop")
            elif isinstance(e, Load):
                self.access(e.buffer, e.index)
            elif isinstance(e, ScalarParam):
                self.declared(e.scalar)
            elif isinstance(e, SizeValue):
                self.declared(e.size)
            elif isinstance(e, AxisValue):
                self.open(e.axis)
            elif isinstance(e, Apply) and id(e) not in self.checked:
                self.checked[id(e)] = e
                self.agree(e)

    def agree(self, e: Apply) -> None:
        operation, operands = e.operation, e.operands
        if operation in _FREE:
            return
        if operation in _CONDITIONAL:
            condition, *operands_ = operands
            operands = tuple(operands_)
            if condition.dtype is not dtypes.bool_:
                raise self.error(f"the condition of {e!r} is no truth value")
        result = dtypes.bool_ if operation in _PREDICATES else operands[0].dtype
        if e.dtype is not result or any(o.dtype is not operands[0].dtype for o in operands):
            raise self.error(f"the dtypes of {e!r} do not agree")
