"""Nest -> LLVM IR: one function as text, with explicit vectors in loops with lanes.

An index that has stride 1 in the vector axis is a vector access, stride -1 one whose lanes are reversed, stride 0 a scalar one
(splatted where it meets vectors), anything else a gather or scatter of pointers.  Loops and hoisting are loops.py, reductions
reductions.py, operations operations.py.  Knows nothing of programs, frames or Numba.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tracejit.core import dtypes
from tracejit.core.dtypes import DType
from tracejit.llvm import operations
from tracejit.llvm.loops import Effects, LoopEmitter, OpenLoop, Value
from tracejit.llvm.operations import Code, constant, lane_type, splat_constant, suffix, value_type, vector
from tracejit.loops.expressions import Apply, AxisValue, Const, Expr, Load, ScalarParam, SizeValue, Var, builder, children
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
    Statement,
    Store,
    flatten,
)
from tracejit.loops.target import Target
from tracejit.math.functions import expand

__all__ = ["NestEmitter", "effects", "memory_type", "truth"]

_MEMORY: Final = {dtypes.bool_: "i8"}


def memory_type(dtype: DType) -> str:
    return _MEMORY.get(dtype) or lane_type(dtype)


def truth(code: Code, text: str, lanes: int) -> str:
    """Truth values from memory."""
    return code.op(f"icmp ne {vector('i8', lanes)} {text}, {splat_constant('0', 'i8', lanes)}")


def effects(statements: Sequence[Statement]) -> Effects:
    """What the statements of a loop do beside computing."""
    every = flatten(statements)
    return Effects(frozenset(s.buffer for s in every if isinstance(s, Store)), any(isinstance(s, Exit) for s in every))


class NestEmitter(LoopEmitter):
    """Emits one nest, once.  `text()` is the function; `code.declarations` and `code.libm` are what it needs."""

    def __init__(self, nest: Nest, symbol: str, target: Target) -> None:
        super().__init__(target, nest.sizes)
        self.nest = nest
        self.symbol = symbol
        self.expansions: dict[int, Expr] = {}  # definitions of elementary functions
        self.alive: list[Expr] = []  # Exprs made here, whose ids are keys
        self.exits: dict[str, str] = {}  # code -> label
        self.pointers: dict[Buffer, str] = {p: f"%p{i}" for i, p in enumerate(nest.buffers + nest.temporaries)}
        self.scalars: dict[Scalar, str] = {s: f"%s{i}" for i, s in enumerate(nest.scalars)}
        self.reserved: list[str] = []  # memory on the stack
        self.stored_anywhere = effects(nest.body).stores

    # --- the function

    def parameter_types(self) -> list[str]:
        return ["ptr"] * len(self.pointers) + ["i64"] * len(self.sizes) + [lane_type(s.dtype) for s in self.scalars]

    def text(self) -> str:
        """The whole function.  It returns 0, or the code of the exit that was taken."""
        self.statements(self.nest.body)
        names = [*self.pointers.values(), *self.sizes.values(), *self.scalars.values()]
        parameters = ", ".join(f"{t} {n}" for t, n in zip(self.parameter_types(), names, strict=True))
        lines = [
            f"define internal i64 @{self.symbol}({parameters}) noinline nounwind {{",
            "entry:",
            *self.reserved,
            *self.code.lines,
            "ret i64 0",
        ]
        for text, label in self.exits.items():
            lines += [f"{label}:", f"ret i64 {text}"]
        lines.append("}")
        return "\n".join(lines)

    def statements(self, statements: Sequence[Statement]) -> None:
        for s in statements:
            if isinstance(s, Let):
                self._let(s)
            elif isinstance(s, Store):
                self._store(s)
            elif isinstance(s, Exit):
                self._exit(s)
            elif isinstance(s, Interleaved):
                self.interleaved(s)
            elif isinstance(s, For):
                self._for(s)
            else:
                self.reduce(s)

    def interleaved(self, s: Interleaved) -> None:
        self.statements(s.stores)

    def reduce(self, s: Reduce) -> None:
        raise NotImplementedError("NestEmitter alone has no reductions; use reductions.Emitter")

    # --- expressions

    def value(self, root: Expr) -> Value:
        """Emit an expression; operands first, without recursion over the DAG's depth."""
        ids = self.ids
        stack = [root]
        while stack:
            e = stack[-1]
            if id(e) in ids:
                stack.pop()
                continue
            waiting = [c for c in children(e) if id(c) not in ids]
            if waiting:
                stack.extend(waiting)
                continue
            stack.pop()
            sources: frozenset[Buffer] = frozenset().union(*(ids[id(c)][1] for c in children(e)))
            if isinstance(e, Load) and e.buffer in self.stored_anywhere:
                sources |= {e.buffer}
            ids[id(e)] = (self._leaf_or_apply(e), sources)
            ids = self.ids
        return ids[id(root)][0]

    def _leaf_or_apply(self, e: Expr) -> Value:
        if isinstance(e, Apply):
            return self._apply(e)
        if isinstance(e, Const):
            return Value(constant(e.value, e.dtype), e.dtype, 1, 0)
        if isinstance(e, Load):
            return self._load(e)
        if isinstance(e, ScalarParam):
            return Value(self.scalars[e.scalar], e.dtype, 1, 0)
        if isinstance(e, SizeValue):
            return Value(self.sizes[e.size], e.dtype, 1, 0)
        if isinstance(e, AxisValue):
            return self._axis_value(e.axis)
        assert isinstance(e, Var), e
        raise ValueError(f"nest {self.nest.name}: the variable {e.name!r} is used before a Let or Reduce names it")

    def _axis_value(self, axis: Axis) -> Value:
        depth, frame = self._frame(axis)
        if frame.lanes == 1:
            return Value(frame.index, dtypes.int64, 1, depth)
        kind = f"<{frame.lanes} x i64>"
        iota = f"<{', '.join(f'i64 {i}' for i in range(frame.lanes))}>"
        base = self.splat(Value(frame.index, dtypes.int64, 1, depth), frame.lanes).text
        return self.number(depth, dtypes.int64, frame.lanes, ("axis", axis), lambda: self.code.op(f"add {kind} {base}, {iota}"))

    def _frame(self, axis: Axis) -> tuple[int, OpenLoop]:
        for i, frame in enumerate(self.open_loops):
            if frame.axis is axis:
                return i + 1, frame
        raise ValueError(f"nest {self.nest.name}: axis {axis.name!r} is used outside its loop")

    def _apply(self, e: Apply) -> Value:
        definition = self.expansions.get(id(e))
        if definition is None:
            definition = expand(e)
            if definition is not None:
                self.expansions[id(e)] = definition
                self.alive.append(e)
        if definition is not None:
            return self.value(definition)
        operands = [self.ids[id(o)][0] for o in e.operands]
        lanes, depth = 1, 0
        for o in operands:
            lanes, depth = max(lanes, o.lanes), max(depth, o.depth)
        texts = [(o if o.lanes == lanes else self.splat(o, lanes)).text for o in operands]
        operation, attribute, source = e.operation, e.attribute, e.operands[-1].dtype
        key = (operation, attribute, source, e.dtype, lanes, *texts)
        return self.number(
            depth,
            e.dtype,
            lanes,
            key,
            lambda: operations.apply(self.code, operation, attribute, source, e.dtype, lanes, *texts),
        )

    # --- memory

    def _scaled(self, value: Value, stride: Extent) -> Value:
        """value * stride, in elements."""
        if stride == 1:
            return value
        if value.lanes == 1 and isinstance(stride, int) and not value.text.startswith("%"):
            return value._replace(text=str(int(value.text) * stride))
        kind = value_type(dtypes.int64, value.lanes)
        factor = self.splat(Value(self.extent(stride), dtypes.int64, 1, 0), value.lanes).text
        text = f"mul {kind} {value.text}, {factor}"
        return self.number(value.depth, dtypes.int64, value.lanes, (text,), lambda: self.code.op(text))

    def _advance(self, pointer: Value, offset: Value, element: str) -> Value:
        """pointer + offset elements; a vector of pointers if the offset has lanes."""
        if offset.text == "0":
            return pointer
        depth = max(pointer.depth, offset.depth)
        index = "i64" if offset.lanes == 1 else f"<{offset.lanes} x i64>"
        text = f"getelementptr {element}, {vector('ptr', pointer.lanes)} {pointer.text}, {index} {offset.text}"
        return self.number(depth, dtypes.int64, max(pointer.lanes, offset.lanes), (text,), lambda: self.code.op(text))

    def address(self, buffer: Buffer, index: Index) -> tuple[Value, int | None]:
        """(pointer, stride): a scalar pointer to the least address of all lanes and the stride in the vector axis (0, 1 or -1), or a vector
        of pointers and None."""
        element = memory_type(buffer.dtype)
        pointer = Value(self.pointers[buffer], dtypes.int64, 1, 0)
        pointer = self._advance(pointer, Value(self.extent(index.offset), dtypes.int64, 1, 0), element)
        inner: Extent = 0
        offsets: list[Value] = []
        for axis, stride in index.terms:
            depth, frame = self._frame(axis)
            if stride == 0:
                continue
            if frame.lanes > 1:
                inner = stride
                continue
            offsets.append(self._scaled(Value(frame.index, dtypes.int64, 1, depth), stride))
        if index.dynamic is not None:
            offsets.append(self._scaled(self.ids[id(index.dynamic)][0], index.dynamic_stride))
        offsets.sort(key=lambda v: (v.lanes, v.depth))  # outer ones first, so that their sum is hoisted
        for offset in offsets:
            pointer = self._advance(pointer, offset, element)
        if inner == 0:
            return pointer, 0 if pointer.lanes == 1 else None
        frame = self.open_loops[-1]
        if inner == 1 and pointer.lanes == 1:
            return self._advance(pointer, Value(frame.index, dtypes.int64, 1, self.depth), element), 1
        if inner == -1 and pointer.lanes == 1:
            return self._advance(pointer, self.integer(self.depth, f"sub i64 {1 - frame.lanes}, {frame.index}"), element), -1
        return self._advance(pointer, self._scaled(self._axis_value(frame.axis), inner), element), None

    def _all(self, lanes: int) -> str:
        return "splat (i1 true)" if not self.open_loops or self.open_loops[-1].mask is None else str(self.open_loops[-1].mask)

    def _load(self, e: Load) -> Value:
        buffer = e.buffer
        pointer, stride = self.address(buffer, e.index)
        key = (pointer.text, stride, buffer.dtype)
        found = self.loads.get(key)
        if found is not None:
            return found[0]
        depth = pointer.depth if stride == 0 else self.depth
        for level in range(depth, self.depth):
            done = self.open_loops[level].effects
            if buffer in done.stores or (done.exits and e.index.dynamic is not None):  # the index may not have been checked yet
                depth = level + 1
            elif self.open_loops[level].may_be_empty and level > depth:
                depth = level  # not above a loop that may be empty: the element may not exist
        lanes = self.open_loops[-1].lanes if stride else pointer.lanes
        value = Value(
            self.hoisted(depth, lambda: self._load_text(buffer.dtype, pointer, stride, lanes)), buffer.dtype, lanes, depth
        )
        self.loads[key] = (value, buffer)
        return value

    def _reversed(self, text: str, element: str, lanes: int) -> str:
        kind = vector(element, lanes)
        order = ", ".join(f"i32 {i}" for i in reversed(range(lanes)))
        return self.code.op(f"shufflevector {kind} {text}, {kind} poison, <{lanes} x i32> <{order}>")

    def _addresses(self, pointers: Value) -> list[str]:
        """The elements of a vector of pointers."""
        kind = vector("ptr", pointers.lanes)
        return [self.code.op(f"extractelement {kind} {pointers.text}, i64 {k}") for k in range(pointers.lanes)]

    def _mask(self, stride: int | None, lanes: int) -> str | None:
        """The mask of the current group, for the elements in the order of their addresses."""
        mask = self.open_loops[-1].mask if lanes > 1 else None
        return self._reversed(mask, "i1", lanes) if mask is not None and stride == -1 else mask

    def _load_text(self, dtype: DType, pointer: Value, stride: int | None, lanes: int) -> str:
        code, element = self.code, memory_type(dtype)
        kind = vector(element, lanes)
        masked = self._mask(stride, lanes)
        if stride is None and not self.target.gathers and self.open_loops[-1].mask is None:
            result = "poison"
            for k, offset in enumerate(self._addresses(pointer)):
                one = code.op(f"load {element}, ptr {offset}, align {dtype.itemsize}")
                result = code.op(f"insertelement {kind} {result}, {element} {one}, i64 {k}")
        elif stride is None:
            pointers, flags = f"<{lanes} x ptr>", f"<{lanes} x i1>"
            name = f"llvm.masked.gather.{suffix(element, lanes)}.v{lanes}p0"
            arguments = (
                (pointers, pointer.text),
                ("i32", str(dtype.itemsize)),
                (flags, self._all(lanes)),
                (kind, "zeroinitializer"),
            )
            result = code.call(name, kind, *arguments)
        elif masked is not None:
            name = f"llvm.masked.load.{suffix(element, lanes)}.p0"
            result = code.call(
                name,
                kind,
                ("ptr", pointer.text),
                ("i32", str(dtype.itemsize)),
                (f"<{lanes} x i1>", masked),
                (kind, "zeroinitializer"),
            )
        else:
            result = code.op(f"load {kind}, ptr {pointer.text}, align {dtype.itemsize}")
        if stride == -1:
            result = self._reversed(result, element, lanes)
        return truth(code, result, lanes) if dtype is dtypes.bool_ else result

    def _store(self, s: Store) -> None:
        expression = s.value
        if s.accumulate:
            expression = builder.add(Load(s.buffer, s.index), s.value)
            self.alive.append(expression)
        value = self.value(expression)
        if s.index.dynamic is not None:
            self.value(s.index.dynamic)
        dtype, code = s.buffer.dtype, self.code
        if value.dtype is not dtype:
            raise TypeError(
                f"nest {self.nest.name}: a {value.dtype.name} is stored to the {dtype.name} buffer {s.buffer.name!r}; cast it"
            )
        pointer, stride = self.address(s.buffer, s.index)
        lanes = self.open_loops[-1].lanes if stride else pointer.lanes
        element = memory_type(dtype)
        kind = vector(element, lanes)
        text = self.splat(value, lanes).text
        if dtype is dtypes.bool_:
            text = code.op(f"zext {value_type(dtype, lanes)} {text} to {kind}")
        if stride == -1:
            text = self._reversed(text, element, lanes)
        flags, align, masked = f"<{lanes} x i1>", str(dtype.itemsize), self._mask(stride, lanes)
        if stride is None and not self.target.gathers and self.open_loops[-1].mask is None:
            for k, offset in enumerate(self._addresses(pointer)):
                one = code.op(f"extractelement {kind} {text}, i64 {k}")
                code.lines.append(f"store {element} {one}, ptr {offset}, align {align}")
        elif stride is None:
            name = f"llvm.masked.scatter.{suffix(element, lanes)}.v{lanes}p0"
            code.call(name, "void", (kind, text), (f"<{lanes} x ptr>", pointer.text), ("i32", align), (flags, self._all(lanes)))
        elif masked is not None:
            name = f"llvm.masked.store.{suffix(element, lanes)}.p0"
            code.call(name, "void", (kind, text), ("ptr", pointer.text), ("i32", align), (flags, masked))
        else:
            code.lines.append(f"store {kind} {text}, ptr {pointer.text}, align {align}")
        self.invalidate(frozenset((s.buffer,)))

    def _let(self, s: Let) -> None:
        value = self.value(s.value)
        assert value.dtype is s.var.dtype, (
            f"nest {self.nest.name}: {s.var.name} is {s.var.dtype.name}, its value {value.dtype.name}"
        )
        self.ids[id(s.var)] = (value, frozenset())

    def _exit(self, s: Exit) -> None:
        value, code = self.value(s.condition), self.code
        text = value.text
        if value.lanes > 1:
            mask = self.open_loops[-1].mask
            if mask is not None:
                text = code.op(f"and <{value.lanes} x i1> {text}, {mask}")
            text = code.call(f"llvm.vector.reduce.or.v{value.lanes}i1", "i1", (f"<{value.lanes} x i1>", text))
        number = self.scalars[s.code] if isinstance(s.code, Scalar) else str(s.code)
        label = self.exits.setdefault(number, f"return{len(self.exits)}")
        following = code.label("go")
        code.lines.append(f"br i1 {text}, label %{label}, label %{following}")
        code.begin(following)

    # --- loops

    def _for(self, s: For) -> None:
        self.loop(s.axis, s.extent, s.lanes, effects(s.body), lambda: self.statements(s.body))
