"""Positions that nests find in memory, and the proof that no nest reaches outside its buffers.

`bounded(index, size)` gives the condition under which a number read at run time is no position among `size`, on which the nest leaves, and
the position to use: the number itself, or the last position where it is none.  So an access is in range by what is computed from the very
number that it uses, whatever another thread writes to the index meanwhile and wherever a load or a check is moved.

`check_reach(nest, sizes, extents)` follows the intervals of all indices of a nest, for sizes that are known, and raises where one may lie
outside the buffer.  What is read from memory may be anything; so an index passes only if it is bounded.  It runs where the library
verifies itself.  `reaching_back` tells of which buffers a nest asks for negative indices.  Knows loops and
expressions; not where buffers lie.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from tracejit.core import dtypes
from tracejit.loops.combinations import COMBINATIONS
from tracejit.loops.expressions import Apply, AxisValue, Const, Expr, Load, SizeValue, Var, builder, topological
from tracejit.loops.language import Buffer, Exit, Extent, For, Index, Interleaved, Let, Nest, Reduce, Size, Statement, Store

__all__ = ["ReachError", "bounded", "check_reach", "reaching_back"]

Interval = tuple[float, float]
ANY: Final[Interval] = (-math.inf, math.inf)


class ReachError(AssertionError):
    """A nest may read or write outside a buffer; the message names the access."""


def bounded(index: Expr, size: Expr) -> tuple[Expr, Expr]:
    """(whether an int64 is outside [0, size), the position to use instead of it).

    A negative number, read without its sign, is beyond any size."""
    if isinstance(size, Const) and size.value == 0:
        return builder.const(True, dtypes.bool_), builder.const(0, dtypes.int64)
    position = builder.unsigned_minimum(index, size - 1)
    return builder.ne(position, index), position


def check_reach(nest: Nest, sizes: Mapping[Size, int], extents: Mapping[Buffer, tuple[int, int]]) -> None:
    """Raises ReachError where an access may be outside the elements [low, high) of its buffer in `extents`."""
    for kind, buffer, (first, last) in _accesses(nest, sizes):
        low, high = extents[buffer]
        if first < low or last >= high:
            raise ReachError(
                f"nest {nest.name}: {kind} {buffer.name!r} is at elements {first} to {last}; it has {low} to {high - 1}"
            )


def reaching_back(nest: Nest, sizes: Mapping[Size, int]) -> frozenset[Buffer]:
    """The buffers of which an access may be before the first element."""
    return frozenset([buffer for _, buffer, (first, _) in _accesses(nest, sizes) if first < 0])


def _accesses(nest: Nest, sizes: Mapping[Size, int]) -> list[tuple[str, Buffer, Interval]]:
    reach = _Reach(sizes)
    reach.statements(nest.body)
    return reach.accesses


class _Reach:
    """The intervals of what is named, in the open loops."""

    def __init__(self, sizes: Mapping[Size, int]) -> None:
        self.sizes = sizes
        self.accesses: list[tuple[str, Buffer, Interval]] = []
        self.axes: dict[int, Interval] = {}
        self.named: dict[int, Interval] = {}  # by id of a Var

    def number(self, n: Extent) -> int:
        return self.sizes[n] if isinstance(n, Size) else n

    def statements(self, statements: Sequence[Statement]) -> bool:
        """Follow statements; whether the nest leaves for sure, so that nothing behind them is ever run."""
        for s in statements:
            if isinstance(s, Let):
                self.named[id(s.var)] = self.value(s.value)
            elif isinstance(s, Store):
                self.value(s.value)
                self.access("a store to", s.buffer, s.index)
            elif isinstance(s, Interleaved):
                self.statements(s.stores)
            elif isinstance(s, Exit):
                if isinstance(s.condition, Const) and s.condition.value:
                    return True
                self.value(s.condition)
            elif self.loop(s):
                return True
        return False

    def loop(self, s: For | Reduce) -> bool:
        last = self.number(s.extent) - 1
        if last >= 0:
            self.axes[id(s.axis)] = 0, last
            if self.statements(s.body):
                return True
        for var, combine, value in s.items if isinstance(s, Reduce) else ():
            if last >= 0:
                self.value(value)
            self.named[id(var)] = (0, max(last, 0)) if COMBINATIONS[combine].position else ANY
        return False

    def access(self, kind: str, buffer: Buffer, index: Index) -> None:
        reach = self.exactly(index.offset)
        for axis, stride in index.terms:
            reach = _plus(reach, _times(self.axes[id(axis)], self.exactly(stride)))
        if index.dynamic is not None:
            reach = _plus(reach, _times(self.value(index.dynamic), self.exactly(index.dynamic_stride)))
        self.accesses.append((kind, buffer, reach))

    def exactly(self, n: Extent) -> Interval:
        return (self.number(n),) * 2

    def value(self, root: Expr) -> Interval:
        """The interval of an expression, whose loads are checked."""
        known: dict[int, Interval] = {}
        for e in topological([root]):
            known[id(e)] = self.interval(e, known)
        return known[id(root)]

    def interval(self, e: Expr, known: Mapping[int, Interval]) -> Interval:
        if isinstance(e, Apply):
            return _applied(e, [known[id(o)] for o in e.operands])
        if isinstance(e, Var):
            return self.named[id(e)]
        if isinstance(e, AxisValue):
            return self.axes[id(e.axis)]
        if isinstance(e, SizeValue):
            return self.exactly(e.size)
        if isinstance(e, Load):
            self.access("a load from", e.buffer, e.index)
        elif isinstance(e, Const) and not e.dtype.is_floating_point:
            return (int(e.value),) * 2
        return ANY


def _applied(e: Apply, operands: Sequence[Interval]) -> Interval:
    """The interval of an operation on integers, where it is known; the sizes of arrays are far from where it would wrap."""
    if any(o.dtype.is_floating_point for o in (e, *e.operands)):
        return ANY
    if e.operation == "add":
        return _plus(*operands)
    if e.operation == "sub":
        return _plus(operands[0], _times(operands[1], (-1, -1)))
    if e.operation == "mul":
        return _times(*operands)
    if e.operation == "select":
        return min(operands[1][0], operands[2][0]), max(operands[1][1], operands[2][1])
    if e.operation == "unsigned_minimum" and operands[1][0] >= 0:
        return 0, operands[1][1]
    return operands[0] if e.operation == "cast" and e.dtype is dtypes.int64 else ANY


def _plus(x: Interval, y: Interval) -> Interval:
    return x[0] + y[0], x[1] + y[1]


def _times(x: Interval, y: Interval) -> Interval:
    products = [0.0 if 0 in (a, b) else a * b for a in x for b in y]
    return min(products), max(products)
