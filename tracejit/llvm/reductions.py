"""Reductions in LLVM IR: `loops.Reduce` with its fixed tree, whatever the width of the machine.

LANES logical accumulators are one vector value, which the backend cuts into registers.  Sums of floats are kept in blocks: lanes
in the value's dtype within a block, float64 totals across blocks, for float64 values with the error of each addition carried along (the
TwoSum of Knuth, "The Art of Computer Programming" 2, 4.2.2).  Extremes of floats pass NaN over and remember that there was one (positions
of extremes: where the first one was), so that an element waits for one instruction.  What is combined by which rule is asked of
loops/combinations.py; loops/python.py spells out the same order in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracejit.core import dtypes
from tracejit.core.dtypes import DType
from tracejit.llvm import operations
from tracejit.llvm.loops import Condition, LoopPart, Value
from tracejit.llvm.nests import effects
from tracejit.llvm.operations import constant, lane_type, splat_constant, value_type, vector
from tracejit.llvm.tiles import TileEmitter
from tracejit.loops.combinations import COMBINATIONS, Combination, Rule, definition
from tracejit.loops.language import BLOCK, LANES, Reduce

__all__ = ["Emitter"]


def _none(positions: DType) -> int:
    """What stands for no position."""
    return int(np.iinfo(positions.numpy).max)


@dataclass(frozen=True, slots=True)
class _Item:
    """One value being combined: the types and first values of what it carries round the loop, and in a block."""

    combination: Combination
    dtype: DType
    kinds: tuple[str, ...]
    initial: tuple[str, ...]
    block_kinds: tuple[str, ...] = ()
    block_initial: tuple[str, ...] = ()
    position: DType = dtypes.int64  # of positions

    @property
    def blocked(self) -> bool:
        return bool(self.block_kinds)

    @property
    def extreme(self) -> bool:
        """Whether it carries lanes' extremes and where there was a NaN."""
        how = self.combination
        return how.beyond is not None and not how.position and self.dtype.is_floating_point


def _item(name: str, dtype: DType, result: DType, flag: str) -> _Item:
    """flag: the type that holds a truth value for as long as the loop runs."""
    combination = COMBINATIONS[name]
    total = combination.total(dtype)
    kind = value_type(total, LANES)
    start = splat_constant(constant(combination.empty(total), total), lane_type(total), LANES)
    if combination.in_blocks(dtype):
        compensated = 2 if dtype is dtypes.float64 else 1
        block = value_type(dtype, LANES)
        return _Item(combination, dtype, (kind,) * compensated, (start,) * compensated, (block,), ("zeroinitializer",))
    if combination.position:
        positions, none = value_type(result, LANES), splat_constant(str(_none(result)), lane_type(result), LANES)
        if dtype.is_floating_point:  # and the first NaN
            return _Item(combination, dtype, (kind, positions, positions), (start, "zeroinitializer", none), position=result)
        return _Item(combination, dtype, (kind, positions), (start, "zeroinitializer"), position=result)
    item = _Item(combination, dtype, (kind,), (start,))
    return replace(item, kinds=(kind, vector(flag, LANES)), initial=(start, "zeroinitializer")) if item.extreme else item


class Emitter(TileEmitter):
    """A TileEmitter that knows reductions."""

    def reduce(self, s: Reduce) -> None:
        items = [_item(name, value.dtype, var.dtype, self._flag(value.dtype)) for var, name, value in s.items]
        kinds = [k for item in items for k in item.kinds]
        initial = [v for item in items for v in item.initial]
        if s.extent == 0:
            self._name(s, items, initial)
            return
        frame = self.enter(s.axis, s.extent, effects(s.body))
        full = self.full_groups(s.extent, LANES)

        def straight(carried: Sequence[str]) -> Sequence[str]:
            return self._combine(s, items, carried, False, full)

        def in_blocks(full: str, condition: Condition, initial: Sequence[str]) -> LoopPart:
            once = full.isdigit() and int(full) <= BLOCK
            body = self._block(s, items, full, once)
            return self.run(frame, LANES, "0", full, condition, once, None, kinds, initial, body, BLOCK)

        grouped = in_blocks if any(item.blocked for item in items) else None
        runs = self.parts(frame, s.extent, LANES, kinds, initial, straight, grouped)
        self._name(s, items, self.leave(frame, runs, s.extent))

    def _flag(self, dtype: DType) -> str:
        """Comparisons give masks of their own with 512 bits, all bits of the compared elements before."""
        return "i1" if self.target.bits == 512 else f"i{8 * dtype.itemsize}"

    def _block(self, s: Reduce, items: Sequence[_Item], full: str, once: bool) -> Callable[[Sequence[str]], Sequence[str]]:
        """The body of a loop over blocks: lanes within the block, then the block's lanes into the totals."""
        kinds = [k for item in items for k in (item.block_kinds or item.kinds)]

        def inner(carried: Sequence[str]) -> Sequence[str]:
            return self._combine(s, items, carried, True, full)

        def body(totals: Sequence[str]) -> Sequence[str]:
            code, frame = self.code, self.open_loops[-1]
            start, stop = frame.index, full
            if not once:
                limit = code.op(f"add nuw nsw i64 {start}, {BLOCK}")
                stop = code.call("llvm.smin.i64", "i64", ("i64", limit), ("i64", full))
            initial: list[str] = []
            position = 0
            for item in items:
                initial.extend(item.block_initial or totals[position : position + len(item.kinds)])
                position += len(item.kinds)
            part: LoopPart = self.run(frame, LANES, start, stop, None, once and full == str(LANES), None, kinds, initial, inner)
            self.write(part)
            results: list[str] = []
            position = taken = 0
            for item in items:
                width = len(item.kinds)
                if item.blocked:
                    results.extend(self._fold(item.dtype, totals[position : position + width], part.merged[taken], LANES))
                    taken += 1
                else:
                    results.extend(part.merged[taken : taken + width])
                    taken += width
                position += width
            return results

        return body

    def _fold(self, dtype: DType, totals: Sequence[str], value: str, lanes: int) -> list[str]:
        """Add values to float64 totals."""
        code, kind = self.code, value_type(dtypes.float64, lanes)
        if dtype is not dtypes.float64:
            wide = code.op(f"fpext {value_type(dtype, lanes)} {value} to {kind}")
            return [code.op(f"fadd {kind} {totals[0]}, {wide}")]
        high, low = totals
        total = code.op(f"fadd {kind} {high}, {value}")
        seen = code.op(f"fsub {kind} {total}, {high}")
        lost_high = code.op(f"fsub {kind} {high}, {code.op(f'fsub {kind} {total}, {seen}')}")
        lost = code.op(f"fadd {kind} {lost_high}, {code.op(f'fsub {kind} {value}, {seen}')}")
        return [total, code.op(f"fadd {kind} {low}, {lost}")]

    def _combine(self, s: Reduce, items: Sequence[_Item], carried: Sequence[str], in_block: bool, full: str) -> Sequence[str]:
        """One group of lanes, or one element of the remainder where the frame has one lane."""
        self.statements(s.body)
        frame, code = self.open_loops[-1], self.code
        lane = "" if frame.lanes > 1 else code.op(f"sub i64 {frame.index}, {full}")
        results: list[str] = []
        position = 0
        for item, (_, _, expression) in zip(items, s.items, strict=True):
            value = self.splat(self.value(expression), frame.lanes)
            kinds = item.block_kinds if in_block and item.blocked else item.kinds
            old = carried[position : position + len(kinds)]
            position += len(kinds)
            before = (
                old if not lane else [code.op(f"extractelement {k} {o}, i64 {lane}") for k, o in zip(kinds, old, strict=True)]
            )
            new = self._step(item, before, value, in_block, full if lane else frame.index)
            if lane:
                elements = [k.split(" x ")[1][:-1] for k in kinds]
                new = [
                    code.op(f"insertelement {k} {o}, {e} {v}, i64 {lane}")
                    for k, o, e, v in zip(kinds, old, elements, new, strict=True)
                ]
            elif frame.mask is not None:
                flags = f"<{frame.lanes} x i1>"
                new = [code.op(f"select {flags} {frame.mask}, {k} {v}, {k} {o}") for k, o, v in zip(kinds, old, new, strict=True)]
            results.extend(new)
        return results

    def _step(self, item: _Item, old: Sequence[str], value: Value, in_block: bool, first: str) -> list[str]:
        """first: the number of the element in lane 0."""
        lanes, dtype = value.lanes, item.dtype
        if item.blocked:
            if in_block:
                return [self.code.op(f"fadd {value_type(dtype, lanes)} {old[0]}, {value.text}")]
            return self._fold(dtype, old, value.text, lanes)
        if item.combination.position:
            return self._further(item, old, value, first)
        if item.extreme:
            return [self._more_extreme(item, lanes, old[0], value.text), self._saw_nan(item, lanes, old[1], value.text)]
        total = item.combination.total(dtype)
        text = value.text
        if total is not dtype:
            text = operations.apply(self.code, "cast", None, dtype, total, lanes, text)
        return [self._by(item.combination.combine, total, lanes, old[0], text)]

    def _by(self, rule: Rule | None, dtype: DType, lanes: int, x: str, y: str) -> str:
        """Two values by a rule of their combination."""
        assert rule is not None
        first, second, expression = definition(rule, dtype)
        return operations.evaluated(self.code, expression, lanes, {first: x, second: y})

    def _more_extreme(self, item: _Item, lanes: int, x: str, y: str) -> str:
        """The greater or less one, y where they are equal or one is NaN: a single instruction of most machines."""
        kind, first = value_type(item.dtype, lanes), self._by(item.combination.beyond, item.dtype, lanes, x, y)
        return self.code.op(f"select {vector('i1', lanes)} {first}, {kind} {x}, {kind} {y}")

    def _saw_nan(self, item: _Item, lanes: int, seen: str, value: str) -> str:
        code, flag = self.code, self._flag(item.dtype)
        now = code.op(f"fcmp uno {value_type(item.dtype, lanes)} {value}, {value}")
        if flag != "i1":
            now = code.op(f"sext {vector('i1', lanes)} {now} to {vector(flag, lanes)}")
        return code.op(f"or {vector(flag, lanes)} {seen}, {now}")

    def _further(self, item: _Item, old: Sequence[str], value: Value, first: str) -> list[str]:
        """(extreme, the group it is in, the group of the first NaN); of equals the old one.  Groups are known by their first element."""
        code, lanes, kind, flags = self.code, value.lanes, value_type(item.dtype, value.lanes), vector("i1", value.lanes)
        positions = value_type(item.position, lanes)
        group = Value(first, dtypes.int64, 1, self.depth)
        if item.position is not dtypes.int64:
            group = self.number(
                self.depth,
                item.position,
                1,
                ("position", first, item.position),
                lambda: operations.apply(code, "cast", None, dtypes.int64, item.position, 1, first),
            )
        here = self.splat(group, lanes).text
        takes = self._by(item.combination.beyond, item.dtype, lanes, value.text, old[0])
        further = [
            code.op(f"select {flags} {takes}, {kind} {value.text}, {kind} {old[0]}"),
            code.op(f"select {flags} {takes}, {positions} {here}, {positions} {old[1]}"),
        ]
        if item.dtype.is_floating_point:
            nan = code.op(f"fcmp uno {kind} {value.text}, {value.text}")
            earlier = operations.apply(code, "minimum", None, item.position, item.position, lanes, old[2], here)
            further.append(code.op(f"select {flags} {nan}, {positions} {earlier}, {positions} {old[2]}"))
        return further

    def _furthest(self, item: _Item, carried: Sequence[str]) -> str:
        """The first position of the extreme of all lanes, or of NaN."""
        code, lanes = self.code, LANES
        element, dtype = lane_type(item.position), item.position
        numbers = f"<{', '.join(f'{element} {k}' for k in range(LANES))}>"

        def less(n: int, x: str, y: str) -> str:
            return operations.apply(code, "minimum", None, dtype, dtype, n, x, y)

        value, position = carried[0], code.op(f"add {value_type(dtype, lanes)} {carried[1]}, {numbers}")
        while lanes > 1:
            low, high = self._halves(lambda n: value_type(item.dtype, n), value, lanes)
            near, far = self._halves(lambda n: value_type(dtype, n), position, lanes)
            lanes //= 2
            kind, positions, flags = value_type(item.dtype, lanes), value_type(dtype, lanes), vector("i1", lanes)
            takes = self._by(item.combination.beyond, item.dtype, lanes, high, low)
            equal = operations.apply(code, "eq", None, item.dtype, dtypes.bool_, lanes, high, low)
            tied = code.op(f"select {flags} {equal}, {positions} {less(lanes, near, far)}, {positions} {near}")
            position = code.op(f"select {flags} {takes}, {positions} {far}, {positions} {tied}")
            value = code.op(f"select {flags} {takes}, {kind} {high}, {kind} {low}")
        if not item.dtype.is_floating_point:
            return position
        kind, none = value_type(dtype, LANES), splat_constant(str(_none(dtype)), element, LANES)
        seen = code.op(f"icmp ne {kind} {carried[2]}, {none}")
        found = code.op(f"add {kind} {carried[2]}, {numbers}")
        first = code.op(f"select {vector('i1', LANES)} {seen}, {kind} {found}, {kind} {none}")
        nan = code.call(f"llvm.vector.reduce.smin.v{LANES}{element}", element, (kind, first))
        some = code.op(f"icmp ne {element} {nan}, {_none(dtype)}")
        return code.op(f"select i1 {some}, {element} {nan}, {element} {position}")

    # --- after the loop

    def _halves(self, kind_of: Callable[[int], str], value: str, lanes: int) -> tuple[str, str]:
        half = lanes // 2
        kind = kind_of(lanes)
        if half == 1:
            return self.code.op(f"extractelement {kind} {value}, i64 0"), self.code.op(f"extractelement {kind} {value}, i64 1")
        low = ", ".join(f"i32 {i}" for i in range(half))
        high = ", ".join(f"i32 {i}" for i in range(half, lanes))
        return (
            self.code.op(f"shufflevector {kind} {value}, {kind} poison, <{half} x i32> <{low}>"),
            self.code.op(f"shufflevector {kind} {value}, {kind} poison, <{half} x i32> <{high}>"),
        )

    def _name(self, s: Reduce, items: Sequence[_Item], carried: Sequence[str]) -> None:
        """Combine the lanes pairwise, lane k with lane k + half, and name the results."""
        position = 0
        for item, (var, _, _) in zip(items, s.items, strict=True):
            text, dtype = self._across(item, carried[position : position + len(item.kinds)])
            position += len(item.kinds)
            if dtype is not var.dtype:
                text = operations.apply(self.code, "cast", None, dtype, var.dtype, 1, text)
            self.ids[id(var)] = (Value(text, var.dtype, 1, self.depth), frozenset())

    def _across(self, item: _Item, carried: Sequence[str]) -> tuple[str, DType]:
        code, lanes = self.code, LANES
        total = item.combination.total(item.dtype)
        if item.combination.position:
            return self._furthest(item, carried), item.position
        value = carried[0]
        if item.extreme:
            while lanes > 1:
                low, high = self._halves(lambda n: value_type(total, n), value, lanes)
                lanes //= 2
                value = self._more_extreme(item, lanes, low, high)
            flag = self._flag(item.dtype)
            seen = code.call(f"llvm.vector.reduce.or.v{LANES}{flag}", flag, (vector(flag, LANES), carried[1]))
            some = seen if flag == "i1" else code.op(f"icmp ne {flag} {seen}, 0")
            element, nan = lane_type(total), constant(np.nan, total)
            return code.op(f"select i1 {some}, {element} {nan}, {element} {value}"), total
        if len(carried) == 2:  # a compensated sum; an infinite one has no meaningful error
            kind, flags = value_type(total, lanes), vector("i1", lanes)
            corrected = code.op(f"fadd {kind} {value}, {carried[1]}")
            lost = code.op(f"fcmp uno {kind} {carried[1]}, {carried[1]}")
            value = code.op(f"select {flags} {lost}, {kind} {value}, {kind} {corrected}")
        while lanes > 1:
            low, high = self._halves(lambda n: value_type(total, n), value, lanes)
            lanes //= 2
            value = self._by(item.combination.combine, total, lanes, low, high)
        return value, total
