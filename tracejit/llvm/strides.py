"""Small strides in LLVM IR: every second, third or fourth element as vectors and an exchange of lanes.

A vector of elements a few positions apart is cheaper as the vectors that they lie in than as a gather.  The last of these begins
early enough to end with the last element that is meant, so nothing beyond that is read.  Interleaved stores (loops/rewrites/strides.py) are
one store of their lanes.

Only loads read more than they are asked for, and only between elements that they are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tracejit.core import dtypes
from tracejit.core.dtypes import DType
from tracejit.llvm.loops import Value
from tracejit.llvm.nests import NestEmitter, memory_type, truth
from tracejit.llvm.operations import suffix, value_type, vector
from tracejit.loops.expressions import Load
from tracejit.loops.language import SMALL_STRIDES, Axis, Index, Interleaved, Store

__all__ = ["StrideEmitter"]

_BEYOND: Final = "i32 poison"


def _small_stride(index: Index, axis: Axis) -> int:
    """The stride of an index along an axis if it is a small one, else 0."""
    stride = next((n for a, n in index.terms if a is axis), 0)
    return stride if isinstance(stride, int) and stride in SMALL_STRIDES else 0


class StrideEmitter(NestEmitter):
    """A NestEmitter that knows small strides."""

    # --- loads

    def _load(self, e: Load) -> Value:
        frame = self.open_loops[-1] if self.open_loops else None
        if frame is None or frame.lanes == 1 or frame.mask is not None:
            return super()._load(e)
        step = _small_stride(e.index, frame.axis)
        if not step or (e.index.dynamic is not None and self.ids[id(e.index.dynamic)][0].lanes > 1):
            return super()._load(e)
        element = memory_type(e.buffer.dtype)
        first = self._first(e, step, element)
        key = (first.text, step, e.buffer.dtype)
        found = self.loads.get(key)
        if found is None:
            text = self._every_so_many(first, e.buffer.dtype, step, frame.lanes)
            found = self.loads[key] = Value(text, e.buffer.dtype, frame.lanes, self.depth), e.buffer
        return found[0]

    def _first(self, at: Load | Store, step: int, element: str) -> Value:
        """The address of the first lane's element."""
        frame, index = self.open_loops[-1], at.index
        terms = tuple((a, n) for a, n in index.terms if a is not frame.axis)
        row, _ = self.address(at.buffer, Index(terms, index.offset, index.dynamic, index.dynamic_stride))
        return self._advance(row, self._scaled(Value(frame.index, dtypes.int64, 1, self.depth), step), element)

    def _every_so_many(self, first: Value, dtype: DType, step: int, lanes: int) -> str:
        code, element = self.code, memory_type(dtype)
        kind = vector(element, lanes)
        end = (lanes - 1) * (step - 1)  # where the last vector begins, to end with the last lane's element
        result, order = "", list[int]()  # lanes of `result` that hold the elements found so far
        for start in dict.fromkeys(min(k * lanes, end) for k in range(step)):
            last = min((start + lanes - 1) // step, lanes - 1) + 1
            if last == len(order):
                continue
            access = code.op(f"getelementptr {element}, ptr {first.text}, i64 {start}") if start else first.text
            part = code.op(f"load {kind}, ptr {access}, align {dtype.itemsize}")
            if not result:
                result, order = part, [i * step for i in range(last)]
                continue
            order += [lanes + i * step - start for i in range(len(order), last)]
            text = ", ".join([f"i32 {i}" for i in order] + [_BEYOND] * (lanes - last))
            result = code.op(f"shufflevector {kind} {result}, {kind} {part}, <{lanes} x i32> <{text}>")
            order = list(range(last))
        return truth(code, result, lanes) if dtype is dtypes.bool_ else result

    # --- stores

    def interleaved(self, table: Interleaved) -> None:
        """One store of the lanes of all columns, row by row."""
        columns = table.stores
        if self.open_loops[-1].lanes == 1:
            self.statements(columns)
            return
        code, frame, buffer, count = self.code, self.open_loops[-1], columns[0].buffer, len(columns)
        lanes, element = frame.lanes, memory_type(buffer.dtype)
        texts = []
        for s in columns:
            text = self.splat(self.value(s.value), lanes).text
            if buffer.dtype is dtypes.bool_:
                text = code.op(f"zext {value_type(buffer.dtype, lanes)} {text} to {vector(element, lanes)}")
            texts.append(text)
        first = self._first(columns[0], count, element)
        every, align = lanes * count, buffer.dtype.itemsize
        kind = vector(element, every)
        text = self._interleaved(texts, element, lanes)
        if frame.mask is None:
            code.lines.append(f"store {kind} {text}, ptr {first.text}, align {align}")
        else:
            flags = vector("i1", every)
            order = ", ".join(f"i32 {i // count}" for i in range(every))
            mask = code.op(
                f"shufflevector {vector('i1', lanes)} {frame.mask}, {vector('i1', lanes)} poison, <{every} x i32> <{order}>"
            )
            name = f"llvm.masked.store.{suffix(element, every)}.p0"
            code.call(name, "void", (kind, text), ("ptr", first.text), ("i32", str(align)), (flags, mask))
        self.invalidate(frozenset((buffer,)))

    def _interleaved(self, columns: Sequence[str], element: str, lanes: int) -> str:
        """a0 b0 c0 a1 b1 c1 ... of 2, 3 or 4 vectors."""
        if len(columns) == 2:
            return self._mixed(columns[0], columns[1], element, lanes, [k * lanes + i for i in range(lanes) for k in range(2)])
        if len(columns) == 4:
            outer = self._interleaved((columns[0], columns[2]), element, lanes)
            inner = self._interleaved((columns[1], columns[3]), element, lanes)
            return self._interleaved((outer, inner), element, 2 * lanes)
        two = self._mixed(columns[0], columns[1], element, lanes, list(range(2 * lanes)))
        one = self._mixed(columns[2], "poison", element, lanes, list(range(2 * lanes)))
        return self._mixed(two, one, element, 2 * lanes, [k * lanes + i for i in range(lanes) for k in range(3)])

    def _mixed(self, x: str, y: str, element: str, lanes: int, order: Sequence[int]) -> str:
        kind, numbers = vector(element, lanes), ", ".join(f"i32 {i}" for i in order)
        return self.code.op(f"shufflevector {kind} {x}, {kind} {y}, <{len(order)} x i32> <{numbers}>")
