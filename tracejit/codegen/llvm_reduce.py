"""Reductions in LLVM IR: `loops.Reduce` with its fixed tree, whatever the width of the machine.

LANES logical accumulators are one vector value, which the backend cuts into registers.  Sums of floats are kept in blocks: lanes
in the value's dtype within a block, float64 totals across blocks, for float64 values with the error of each addition carried along (the
TwoSum of Knuth, "The Art of Computer Programming" 2, 4.2.2).  Extremes of floats pass NaN over and remember that there was one, so that
an element waits for one instruction.  `reference.py` spells out the same order in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from tracejit.codegen import llvm_operations
from tracejit.codegen.llvm import NestEmitter, effects
from tracejit.codegen.llvm_loops import Condition, Run, Value
from tracejit.codegen.llvm_operations import constant, lane_type, splat_constant, value_type, vector
from tracejit.codegen.loops import BLOCK, LANES, Reduce
from tracejit.core import dtypes
from tracejit.core.dtypes import DType

__all__ = ["Emitter", "accumulation_dtype", "identity"]

_OPERATIONS: Final = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "any": "bit_or", "all": "bit_and"}


def accumulation_dtype(combine: str, dtype: DType) -> DType:
    """The dtype of the lanes' totals: float64 for sums and products of floats, else the value's own."""
    return dtypes.float64 if dtype.is_floating_point and combine in ("sum", "prod") else dtype


def identity(combine: str, dtype: DType) -> Any:
    """What a lane starts with: what leaves every value unchanged."""
    if combine in ("sum", "any"):
        return 0
    if combine in ("prod", "all"):
        return 1
    greatest = combine in ("max", "argmax")
    if dtype is dtypes.bool_:
        return not greatest
    if dtype.is_floating_point:
        return -np.inf if greatest else np.inf
    limits = np.iinfo(dtype.numpy)
    return limits.min if greatest else limits.max


@dataclass(frozen=True, slots=True)
class _Item:
    """One value being combined: the types and first values of what it carries round the loop, and in a block."""

    combine: str
    dtype: DType
    kinds: tuple[str, ...]
    initial: tuple[str, ...]
    block_kinds: tuple[str, ...] = ()
    block_initial: tuple[str, ...] = ()

    @property
    def blocked(self) -> bool:
        return bool(self.block_kinds)

    @property
    def extreme(self) -> bool:
        """Whether it carries lanes' extremes and where there was a NaN."""
        return self.combine in ("max", "min") and self.dtype.is_floating_point


def _item(combine: str, dtype: DType, flag: str) -> _Item:
    """flag: the type that holds a truth value for as long as the loop runs."""
    total = accumulation_dtype(combine, dtype)
    kind = value_type(total, LANES)
    start = splat_constant(constant(identity(combine, total), total), lane_type(total), LANES)
    if combine == "sum" and dtype.is_floating_point:
        compensated = 2 if dtype is dtypes.float64 else 1
        block = value_type(dtype, LANES)
        return _Item(combine, dtype, (kind,) * compensated, (start,) * compensated, (block,), ("zeroinitializer",))
    if combine in ("argmax", "argmin"):
        return _Item(combine, dtype, (kind, vector("i64", LANES)), (start, "zeroinitializer"))
    item = _Item(combine, dtype, (kind,), (start,))
    return replace(item, kinds=(kind, vector(flag, LANES)), initial=(start, "zeroinitializer")) if item.extreme else item


class Emitter(NestEmitter):
    """A NestEmitter that knows reductions."""

    def reduce(self, s: Reduce) -> None:
        items = [_item(combine, value.dtype, self._flag(value.dtype)) for _, combine, value in s.items]
        kinds = [k for item in items for k in item.kinds]
        initial = [v for item in items for v in item.initial]
        if s.extent == 0:
            self._name(s, items, initial)
            return
        frame = self.enter(s.axis, s.extent, effects(s.body))
        full = self.full_groups(s.extent, LANES)

        def straight(carried: Sequence[str]) -> Sequence[str]:
            return self._combine(s, items, carried, False, full)

        def in_blocks(full: str, condition: Condition, initial: Sequence[str]) -> Run:
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
            code, frame = self.code, self.frames[-1]
            start, stop = frame.index, full
            if not once:
                limit = code.op(f"add nuw nsw i64 {start}, {BLOCK}")
                stop = code.call("llvm.smin.i64", "i64", ("i64", limit), ("i64", full))
            initial: list[str] = []
            position = 0
            for item in items:
                initial.extend(item.block_initial or totals[position : position + len(item.kinds)])
                position += len(item.kinds)
            part: Run = self.run(frame, LANES, start, stop, None, once and full == str(LANES), None, kinds, initial, inner)
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
        frame, code = self.frames[-1], self.code
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
            new = self._step(item, before, value, in_block)
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

    def _step(self, item: _Item, old: Sequence[str], value: Value, in_block: bool) -> list[str]:
        lanes, dtype = value.lanes, item.dtype
        if item.blocked:
            if in_block:
                return [self.code.op(f"fadd {value_type(dtype, lanes)} {old[0]}, {value.text}")]
            return self._fold(dtype, old, value.text, lanes)
        if item.combine in ("argmax", "argmin"):
            index = self._axis_value(self.frames[-1].axis)
            return self._better(item, lanes, (old[0], old[1]), (value.text, index.text), False)
        if item.extreme:
            return [self._more_extreme(item, lanes, old[0], value.text), self._saw_nan(item, lanes, old[1], value.text)]
        total = accumulation_dtype(item.combine, dtype)
        text = value.text
        if total is not dtype:
            text = llvm_operations.apply(self.code, "cast", None, dtype, total, lanes, text)
        return [llvm_operations.apply(self.code, _OPERATIONS[item.combine], None, total, total, lanes, old[0], text)]

    def _more_extreme(self, item: _Item, lanes: int, x: str, y: str) -> str:
        """The greater or less one, y where they are equal or one is NaN: a single instruction of most machines."""
        kind, predicate = value_type(item.dtype, lanes), "ogt" if item.combine == "max" else "olt"
        first = self.code.op(f"fcmp {predicate} {kind} {x}, {y}")
        return self.code.op(f"select {vector('i1', lanes)} {first}, {kind} {x}, {kind} {y}")

    def _saw_nan(self, item: _Item, lanes: int, seen: str, value: str) -> str:
        code, flag = self.code, self._flag(item.dtype)
        now = code.op(f"fcmp uno {value_type(item.dtype, lanes)} {value}, {value}")
        if flag != "i1":
            now = code.op(f"sext {vector('i1', lanes)} {now} to {vector(flag, lanes)}")
        return code.op(f"or {vector(flag, lanes)} {seen}, {now}")

    def _better(self, item: _Item, lanes: int, old: tuple[str, str], new: tuple[str, str], ties: bool) -> list[str]:
        """(value, position) of the more extreme; NaN is the most extreme; of equals the old one, or with `ties` the first position."""
        code, dtype = self.code, item.dtype
        kind, flags = value_type(dtype, lanes), vector("i1", lanes)

        def compare(operation: str, x: str, y: str) -> str:
            return llvm_operations.apply(code, operation, None, dtype, dtypes.bool_, lanes, x, y)

        takes = compare("gt" if item.combine == "argmax" else "lt", new[0], old[0])
        equal = compare("eq", new[0], old[0]) if ties else ""
        if dtype.is_floating_point:
            new_nan, old_nan = (code.op(f"fcmp uno {kind} {v}, {v}") for v in (new[0], old[0]))
            true = splat_constant("true", "i1", lanes)
            first_nan = code.op(f"and {flags} {new_nan}, {code.op(f'xor {flags} {old_nan}, {true}')}")
            takes = code.op(f"or {flags} {takes}, {first_nan}")
            if ties:
                equal = code.op(f"or {flags} {equal}, {code.op(f'and {flags} {new_nan}, {old_nan}')}")
        if ties:
            earlier = code.op(f"icmp slt {vector('i64', lanes)} {new[1]}, {old[1]}")
            takes = code.op(f"or {flags} {takes}, {code.op(f'and {flags} {equal}, {earlier}')}")
        kinds = (kind, vector("i64", lanes))
        return [code.op(f"select {flags} {takes}, {k} {n}, {k} {o}") for k, n, o in zip(kinds, new, old, strict=True)]

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
                text = llvm_operations.apply(self.code, "cast", None, dtype, var.dtype, 1, text)
            self.ids[id(var)] = (Value(text, var.dtype, 1, self.depth), frozenset())

    def _across(self, item: _Item, carried: Sequence[str]) -> tuple[str, DType]:
        code, lanes = self.code, LANES
        total = accumulation_dtype(item.combine, item.dtype)
        if item.combine in ("argmax", "argmin"):
            value, index = carried
            while lanes > 1:
                values = self._halves(lambda n: value_type(item.dtype, n), value, lanes)
                indices = self._halves(lambda n: vector("i64", n), index, lanes)
                lanes //= 2
                value, index = self._better(item, lanes, (values[0], indices[0]), (values[1], indices[1]), True)
            return index, dtypes.int64
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
            value = llvm_operations.apply(code, _OPERATIONS[item.combine], None, total, total, lanes, low, high)
        return value, total
