"""Machine code that handles Python objects: the writer that functions.py speaks to.

Everything a function owns lies in one array of slots, empty at first, which the function's end lets go of; so no path through the
function, an error included, can forget a reference.  A `Value` is a pointer to an object and what is known of it: its exact type, the
object itself if it is a constant, and whether it stays alive to the end of the function whatever other code runs meanwhile (`secure`).

Constants are items of the tuple that a built-in function has as its `self`.  The first of them is a bytes object of int64: addresses and
other words that the text must not show, since it is found again by its content.

Invariant: `failed` is the label to go to with an exception set, `missed` without one.
"""

from __future__ import annotations

import struct
import sys
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from tracejit.cpython import c_api
from tracejit.cpython.arrays import BYTES
from tracejit.cpython.c_api import FUNCTIONS, ITEMS, LIST_ITEMS, REFERENT, SIZE, TYPE
from tracejit.cpython.distinctness import PROBING
from tracejit.cpython.reference_counts import counting
from tracejit.native.text import FunctionText

__all__ = ["UNKNOWN", "ObjectCode", "Value"]

UNKNOWN: Final = object()

_HELPERS: Final = f"""
define internal void @let_go(ptr %slots, i64 %count) nounwind {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %next, label %end
next:
  %at = getelementptr ptr, ptr %slots, i64 %i
  %o = load ptr, ptr %at
  call void @xdecref(ptr %o)
  %i1 = add i64 %i, 1
  br label %loop
end:
  ret void
}}
define internal i64 @copy_items(ptr %to, i64 %start, ptr %tuple) nounwind {{
entry:
  %size.at = getelementptr i8, ptr %tuple, i64 {SIZE}
  %size = load i64, ptr %size.at
  %items = getelementptr i8, ptr %tuple, i64 {ITEMS}
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %more = icmp slt i64 %i, %size
  br i1 %more, label %next, label %end
next:
  %from = getelementptr ptr, ptr %items, i64 %i
  %o = load ptr, ptr %from
  %address = add i64 %start, %i
  %at = getelementptr ptr, ptr %to, i64 %address
  store ptr %o, ptr %at
  call void @incref(ptr %o)
  %i1 = add i64 %i, 1
  br label %loop
end:
  %result = add i64 %start, %size
  ret i64 %result
}}
"""


@dataclass(frozen=True, slots=True)
class Value:
    """A pointer to an object.  known: its exact type.  constant: the object itself, else UNKNOWN.  secure: see the module."""

    text: str
    known: Any = None
    constant: Any = UNKNOWN
    secure: bool = False


class ObjectCode:
    """One function `ptr name(ptr self, ptr arguments, i64 count, ptr keywords)`: the convention METH_FASTCALL | METH_KEYWORDS.

    slotted: classes whose slots are read and written at their offsets."""

    def __init__(self, slotted: Iterable[type]) -> None:
        self.code = FunctionText()
        self._slot_offsets = {cls: c_api.slot_offsets(cls) for cls in slotted}
        self.objects: list[Any] = []
        self.failed = self.missed = "raised"
        self._index: dict[int, int] = {}
        self._words: list[int] = []
        self._slots = 0
        self._scratch = 1  # pointers in the largest argument array
        self._globals: list[str] = []

    # -- text
    def text(self, name: str) -> str:
        """The module that defines the function."""
        head = [
            f"define ptr @{name}(ptr %self, ptr %arguments, i64 %count, ptr %keywords) nounwind {{",
            "entry:",
            f"%owned = alloca [{max(1, self._slots)} x ptr]",
            f"%scratch = alloca [{self._scratch} x ptr]",
            "%result = alloca ptr",
            f"call void @llvm.memset.p0.i64(ptr %owned, i8 0, i64 {8 * self._slots}, i1 false)",
        ]
        end = [
            "raised:", "store ptr null, ptr %result", "br label %end", "end:",
            f"call void @let_go(ptr %owned, i64 {self._slots})", "%returned = load ptr, ptr %result", "ret ptr %returned", "}",
        ]  # fmt: skip
        declarations = {**self.code.declarations, "_Py_Dealloc": c_api.declaration("_Py_Dealloc")}
        return "\n".join(
            [*sorted(declarations.values()), counting(), PROBING, _HELPERS, *self._globals, *head, *self.code.lines, *end, ""]
        )

    def constants(self) -> tuple[Any, ...]:
        """What the function's `self` begins with."""
        return (struct.pack(f"={len(self._words)}q", *self._words), *self.objects)

    # -- control
    def branch(self, condition: str, yes: str, no: str) -> None:
        self.code.lines.append(f"br i1 {condition}, label %{yes}, label %{no}")

    def jump(self, label: str) -> None:
        self.code.lines.append(f"br label %{label}")

    def jump_if(self, condition: str, label: str) -> None:
        """Go to `label` if the condition holds, else on."""
        on = self.code.label("on")
        self.branch(condition, label, on)
        self.code.begin(on)

    def leave(self, value: Value) -> None:
        """Return a value."""
        self.code.lines += [f"call void @incref(ptr {value.text})", f"store ptr {value.text}, ptr %result"]
        self.jump("end")

    # -- constants, slots
    def word(self, value: int) -> str:
        """An int64 that is no part of the text."""
        self._words.append(value)
        return self.code.op(f"load i64, ptr {self.at(self._constant(0), BYTES + 8 * (len(self._words) - 1))}")

    def _constant(self, item: int) -> str:
        return self.code.op(f"load ptr, ptr {self.at('%self', ITEMS + 8 * item)}")

    def constant(self, value: Any) -> Value:
        if type(value) is str:
            value = sys.intern(value)
        found = self._index.get(id(value))
        if found is None:
            self.objects.append(value)
            found = self._index[id(value)] = len(self.objects)
        return Value(self._constant(found), type(value), value, True)

    def at(self, pointer: str, offset: int) -> str:
        return self.code.op(f"getelementptr i8, ptr {pointer}, i64 {offset}")

    def load(self, pointer: str, offset: int) -> str:
        return self.code.op(f"load ptr, ptr {self.at(pointer, offset)}")

    def new_slot(self) -> int:
        self._slots += 1
        return self._slots - 1

    def slot(self, number: int) -> str:
        return self.code.op(f"getelementptr ptr, ptr %owned, i64 {number}")

    def own(self, pointer: str, known: Any = None) -> Value:
        """A new reference becomes the function's."""
        self.code.lines.append(f"store ptr {pointer}, ptr {self.slot(self.new_slot())}")
        return Value(pointer, known, UNKNOWN, True)

    def secured(self, value: Value) -> Value:
        """The same object, alive to the end."""
        if value.secure:
            return value
        self.incref(value.text)
        return self.own(value.text, value.known)

    def incref(self, pointer: str) -> None:
        self.code.lines.append(f"call void @incref(ptr {pointer})")

    def xdecref(self, pointer: str) -> None:
        self.code.lines.append(f"call void @xdecref(ptr {pointer})")

    # -- the C interface
    def call(self, symbol: str, *arguments: str) -> str:
        """A call of c_api.FUNCTIONS; its result is not looked at."""
        result, types = FUNCTIONS[symbol]
        return self.code.call(symbol, result, *zip(types, arguments, strict=True))

    def call_for_object(self, symbol: str, *arguments: str, known: Any = None) -> Value:
        """A call that returns a new reference, or null with an exception."""
        pointer = self.call(symbol, *arguments)
        self.jump_if(self.code.op(f"icmp eq ptr {pointer}, null"), self.failed)
        return self.own(pointer, known)

    def call_for_number(self, symbol: str, *arguments: str) -> str:
        """A call that returns a number, negative with an exception."""
        number = self.call(symbol, *arguments)
        self.jump_if(self.code.op(f"icmp slt i32 {number}, 0"), self.failed)
        return number

    def clear_unless_traced(self, label: str) -> None:
        """Forget the exception that is set; but if it has a traceback, because it came through a Python function, go to `label` with it."""
        parts = self.array(["null"] * 3)
        offsets = [self.at(parts, 8 * k) for k in range(3)]
        self.call("PyErr_Fetch", *offsets)
        kind, value, traceback = (self.code.op(f"load ptr, ptr {address}") for address in offsets)
        traced, plain = self.code.label("traced"), self.code.label("plain")
        self.branch(self.code.op(f"icmp eq ptr {traceback}, null"), plain, traced)
        self.code.begin(traced)
        self.call("PyErr_Restore", kind, value, traceback)
        self.jump(label)
        self.code.begin(plain)
        self.xdecref(value)
        self.xdecref(kind)

    def array(self, values: list[str]) -> str:
        """The values in a row, until the next array."""
        self._scratch = max(self._scratch, len(values))
        for k, value in enumerate(values):
            self.code.lines.append(f"store ptr {value}, ptr {self.code.op(f'getelementptr ptr, ptr %scratch, i64 {k}')}")
        return "%scratch"

    def space(self, pointers: int) -> str:
        """Room for so many pointers, which nothing else uses."""
        name = f"@space{len(self._globals)}"
        self._globals.append(f"{name} = internal global [{pointers} x ptr] zeroinitializer, align 64")
        return name

    def sizes(self, sizes: tuple[int, ...]) -> str:
        """A row of int64."""
        if not sizes:
            return "null"
        name = f"@sizes{len(self._globals)}"
        self._globals.append(f"{name} = private constant [{len(sizes)} x i64] [{', '.join(f'i64 {n}' for n in sizes)}]")
        return name

    # -- objects
    def type_of(self, value: Value) -> str:
        return self.load(value.text, TYPE)

    def size_of(self, value: Value) -> str:
        """The length of a list or a tuple."""
        return self.code.op(f"load i64, ptr {self.at(value.text, SIZE)}")

    def item(self, value: Value, index: int) -> str:
        """An item of a list or tuple that has it."""
        if value.known is tuple:
            return self.load(value.text, ITEMS + 8 * index)
        return self.load(self.load(value.text, LIST_ITEMS), 8 * index)

    def joined(self, *pairs: tuple[str, str]) -> str:
        """The value that came from the block where control came from: (value, block) pairs."""
        return self.code.op(f"phi ptr {', '.join(f'[ {value}, %{block} ]' for value, block in pairs)}")

    def _fast(self, value: Value, name: str, slow: str) -> int | None:
        """The offset of a slot; goes to `slow` if the object has none.  None where no class has such a slot."""
        offsets = {cls: found[name] for cls, found in self._slot_offsets.items() if name in found}
        if value.known is not None:
            return offsets.get(value.known)
        if not offsets or len(set(offsets.values())) != 1:
            return None
        kind = self.type_of(value)
        hit = self.code.label("hit")
        for cls in offsets:
            following = self.code.label("other")
            self.branch(self.code.op(f"icmp eq ptr {kind}, {self.constant(cls).text}"), hit, following)
            self.code.begin(following)
        self.jump(slow)
        self.code.begin(hit)
        return next(iter(offsets.values()))

    def attribute(self, value: Value, name: str) -> Value:
        """value.name"""
        slow, join = self.code.label("slow"), self.code.label("join")
        key = self.constant(name).text
        offset = self._fast(value, name, slow)
        if offset is None:
            return self.call_for_object("PyObject_GetAttr", self.secured(value).text, key)
        fast = self.load(value.text, offset)
        at = self.code.block
        self.branch(self.code.op(f"icmp eq ptr {fast}, null"), slow, join)
        self.code.begin(slow)
        got = self.call_for_object("PyObject_GetAttr", self.secured(value).text, key)
        came = self.code.block
        self.jump(join)
        self.code.begin(join)
        return Value(self.joined((fast, at), (got.text, came)))

    def set_attribute(self, owner: Value, name: str, value: Value) -> None:
        """owner.name = value"""
        slow, join = self.code.label("slow"), self.code.label("join")
        key = self.constant(name).text
        offset = self._fast(owner, name, slow)
        if offset is not None:
            address = self.at(owner.text, offset)
            old = self.code.op(f"load ptr, ptr {address}")
            self.incref(value.text)
            self.code.lines.append(f"store ptr {value.text}, ptr {address}")
            self.xdecref(old)
            if owner.known is not None:
                return
            self.jump(join)
            self.code.begin(slow)
        self.call_for_number("PyObject_SetAttr", self.secured(owner).text, key, value.text)
        if offset is not None:
            self.jump(join)
            self.code.begin(join)

    def call_object(self, function: Value, arguments: list[Value], names: tuple[str, ...] = ()) -> Value:
        """function(*arguments), the last of them under these names"""
        row = self.array([a.text for a in arguments])
        keywords = self.constant(names).text if names else "null"
        return self.call_for_object("PyObject_Vectorcall", function.text, row, str(len(arguments) - len(names)), keywords)

    def referent(self, value: Value) -> Value:
        """value(), where value most likely is a weak reference: what it refers to, or None."""
        weak, live, gone, other, join = map(self.code.label, ("weak", "live", "gone", "other", "join"))
        none = self.constant(None)
        self.branch(self.code.op(f"icmp eq ptr {self.type_of(value)}, {self.constant(weakref.ref).text}"), weak, other)
        self.code.begin(weak)
        found = self.load(value.text, REFERENT)
        count = self.code.op(f"load i{c_api.LAYOUT.count_bits}, ptr {found}")  # 0: it is about to go
        self.branch(self.code.op(f"icmp ne i{c_api.LAYOUT.count_bits} {count}, 0"), live, gone)
        self.code.begin(gone)
        self.jump(live)
        self.code.begin(live)
        kept = self.joined((found, weak), (none.text, gone))
        self.incref(kept)
        self.jump(join)
        self.code.begin(other)
        self.incref(value.text)
        got = self.call("PyObject_Vectorcall", value.text, "null", "0", "null")
        self.call("Py_DecRef", value.text)
        on = self.code.label("on")
        failed = self.code.op(f"icmp eq ptr {got}, null")
        self.branch(failed, self.failed, on)
        self.code.begin(on)
        self.jump(join)
        self.code.begin(join)
        return self.own(self.joined((kept, live), (got, on)))

    def tuple_of(self, parts: list[tuple[Value, bool]]) -> Value:
        """A tuple of values; those with True are tuples, whose items stand for them."""
        size = str(sum(not starred for _, starred in parts))
        for value, starred in parts:
            if starred:
                size = self.code.op(f"add i64 {size}, {self.size_of(value)}")
        made = self.call_for_object("PyTuple_New", size, known=tuple)
        self.fill(self.at(made.text, ITEMS), parts)
        return made

    def fill(self, items: str, parts: list[tuple[Value, bool]]) -> None:
        """Store values from `items` on, with a reference each."""
        address = "0"
        for value, starred in parts:
            if starred:
                address = self.code.op(f"call i64 @copy_items(ptr {items}, i64 {address}, ptr {value.text})")
                continue
            self.incref(value.text)
            self.code.lines.append(
                f"store ptr {value.text}, ptr {self.code.op(f'getelementptr ptr, ptr {items}, i64 {address}')}"
            )
            address = str(int(address) + 1) if address.isdigit() else self.code.op(f"add i64 {address}, 1")
