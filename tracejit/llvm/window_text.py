"""What the kernels of convolutions are written with: instructions on vectors of columns, where these lie, memory of a task.

A column is a position of an image, counted over all images; a tap is an element of a window.  `columns` is the text of the function that
says where columns are: arrays of 32-bit integers, the offset from the first column's image, the position along z, y and x, the offset in
the target.  All sizes come from the words of core/convolutions.py.  No pass of LLVM runs over the text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tracejit.core.convolutions import WORDS
from tracejit.core.dtypes import DType
from tracejit.llvm import packed_products as packed
from tracejit.llvm.vector_text import OF_32, VECTOR, VectorText

__all__ = ["GROUP", "LINE", "OUTSIDE", "STRETCH", "VECTOR", "WindowText", "columns", "memory_of", "scratch"]

GROUP: Final = 2048
"""Bytes of a row of the columns that a task has: so much of the result is in the second cache while it is added to."""
LINE: Final = GROUP + 64
"""Bytes from row to row of that part of the result."""
STRETCH: Final = 256
"""Terms that are added up in registers at most: as many columns as a task has in float64, `GROUP` bytes."""
ARRAYS: Final = 5  # of 32-bit integers, one for each column: offset, z, y, x in the source; offset in the target
OUTSIDE: Final = -(1 << 30)
"""A coordinate that no tap brings into an image."""


def scratch(dtype: DType) -> int:
    """Bytes of memory that a task needs: a panel, a block of rows, a part of the result, and where its columns are."""
    panel = STRETCH * OF_32.vectors * VECTOR
    block = packed.BLOCK * STRETCH * dtype.itemsize
    return VECTOR + panel + block + packed.BLOCK * LINE + ARRAYS * 4 * (GROUP // dtype.itemsize)


class WindowText(VectorText):
    """What both functions are made of."""

    def __init__(self, dtype: DType, lanes: int) -> None:
        super().__init__(dtype, lanes, OF_32)
        self.dtype = dtype
        self.group = GROUP // self.size  # columns
        self.indices, self.bits = f"<{lanes} x i32>", f"<{lanes} x i1>"

    def word(self, name: str, where: str = "%words") -> str:
        return self.op(f"load i64, ptr {self.at(where, 8 * WORDS.index(name))}")

    def words(self, *names: str, where: str = "%words") -> dict[str, str]:
        return {name: self.word(name, where) for name in names}

    def mul(self, a: str, b: str | int) -> str:
        return self.op(f"mul i64 {a}, {b}")

    def add(self, a: str, b: str | int) -> str:
        return self.op(f"add i64 {a}, {b}")

    def sub(self, a: str, b: str | int) -> str:
        return self.op(f"sub i64 {a}, {b}")

    def least(self, a: str, b: str | int) -> str:
        return self.call("llvm.smin.i64", "i64", ("i64", a), ("i64", str(b)))

    def most(self, a: str, b: str | int) -> str:
        return self.call("llvm.smax.i64", "i64", ("i64", a), ("i64", str(b)))

    def up(self, a: str, b: str | int) -> str:
        """a / b, rounded up."""
        return self.op(f"udiv i64 {self.sub(self.add(a, b), 1)}, {b}")

    def element(self, pointer: str, index: str) -> str:
        """A pointer so many elements further on."""
        return self.op(f"getelementptr {self.number}, ptr {pointer}, i64 {index}")

    def dot(self, *pairs: tuple[str, str]) -> str:
        total = "0"
        for a, b in pairs:
            total = self.add(total, self.mul(a, b))
        return total

    def integers(self, value: str) -> str:
        """A vector of 32-bit integers, all of them one i64."""
        narrow = self.op(f"trunc i64 {value} to i32")
        one = self.op(f"insertelement {self.indices} poison, i32 {narrow}, i32 0")
        return self.op(f"shufflevector {self.indices} {one}, {self.indices} poison, {self.indices} zeroinitializer")

    def column(self, array: int, columns: str, first: str = "0") -> str:
        """Where one of the arrays of columns is, from a column on."""
        return self.op(f"getelementptr i32, ptr {columns}, i64 {self.add(first, array * self.group)}")

    def first_and_gaps(self, offsets: str, inside: str) -> tuple[str, str]:
        """(the first offset as i64, whether some of those inside do not follow it one by one)."""
        first = self.op(f"extractelement {self.indices} {offsets}, i32 0")
        numbers = ", ".join(f"i32 {i}" for i in range(self.lanes))
        one = self.op(f"insertelement {self.indices} poison, i32 {first}, i32 0")
        all_of_it = self.op(f"shufflevector {self.indices} {one}, {self.indices} poison, {self.indices} zeroinitializer")
        expected = self.op(f"add {self.indices} {all_of_it}, <{numbers}>")
        other = self.op(f"and {self.bits} {self.op(f'icmp ne {self.indices} {offsets}, {expected}')}, {inside}")
        bits = self.op(f"bitcast {self.bits} {other} to i{self.lanes}")
        return self.op(f"sext i32 {first} to i64"), self.op(f"icmp ne i{self.lanes} {bits}, 0")

    def pointers(self, base: str, offsets: str) -> str:
        return self.op(f"getelementptr {self.number}, ptr {base}, {self.indices} {offsets}")

    def when(self, condition: str, body: Callable[[], None], other: Callable[[], None] | None = None) -> None:
        yes, no, end = self.label("yes"), self.label("no"), self.label("end")
        self.branch(condition, yes, no if other else end)
        self.begin(yes)
        body()
        self.go(end)
        if other:
            self.begin(no)
            other()
            self.go(end)
        self.begin(end)

    def each(self, count: str, body: Callable[[str], None]) -> Callable[[], None]:
        """What does body(i) for i = 0, 1 ... below count."""

        def run() -> None:
            self.loop("0", count, 1, body)

        return run

    def sum_over(self, count: str, body: Callable[[str, str], str]) -> str:
        """body(i, what the one before has answered) for i = 0, 1 ... below count; the last answer, zeros before the first."""
        head, inside, end = (self.label(hint) for hint in ("head", "inside", "end"))
        before = self.block
        self.go(head)
        self.begin(head)
        at = len(self.lines)
        i, total = self.name(), self.name()
        self.branch(self.op(f"icmp slt i64 {i}, {count}"), inside, end)
        self.begin(inside)
        answer = body(i, total)
        following = self.add(i, 1)
        self.lines[at:at] = [
            f"{i} = phi i64 [ 0, %{before} ], [ {following}, %{self.block} ]",
            f"{total} = phi {self.vector} [ zeroinitializer, %{before} ], [ {answer}, %{self.block} ]",
        ]
        self.go(head)
        self.begin(end)
        return total

    def either(self, condition: str, kind: str, a: str, b: str) -> str:
        return self.op(f"select i1 {condition}, {kind} {a}, {kind} {b}")

    def call_own(self, result: str, symbol: str, *arguments: tuple[str, str]) -> str:
        """Call a function that has a result, and is defined beside this one."""
        return self.op(f"call {result} @{symbol}({', '.join(f'{kind} {value}' for kind, value in arguments)})")

    def void(self, symbol: str, *arguments: tuple[str, str]) -> None:
        self.lines.append(f"call void @{symbol}({', '.join(f'{kind} {value}' for kind, value in arguments)})")


def columns(f: WindowText, name: str) -> str:
    """Say for the columns from %first on, %count of them, where they are; for more of them, up to %all, that they are nowhere."""
    w = f.words("images", "positions", "count.y", "count.x", *(f"{what}.{d}" for what in ("step", "source", "target") for d in "zyx"),
                "source.image", "target.image")  # fmt: skip
    start = f.op(f"udiv i64 %first, {w['positions']}")
    at = f.op(f"urem i64 %first, {w['positions']}")
    plane = f.mul(w["count.y"], w["count.x"])
    z = f.op(f"udiv i64 {at}, {plane}")
    rest = f.op(f"urem i64 {at}, {plane}")
    y = f.op(f"udiv i64 {rest}, {w['count.x']}")
    x = f.op(f"urem i64 {rest}, {w['count.x']}")
    depth = f.op(f"udiv i64 {w['positions']}, {plane}")
    slots = {}
    for key, value in (("n", "0"), ("z", z), ("y", y), ("x", x)):
        slots[key] = f.op("alloca i64")
        f.lines.append(f"store i64 {value}, ptr {slots[key]}")
    steps = {d: w[f"step.{d}"] for d in "zyx"}
    source = {d: f.mul(w[f"source.{d}"], steps[d]) for d in "zyx"}

    def put(array: int, i: str, value: str) -> None:
        narrow = f.op(f"trunc i64 {value} to i32")
        f.lines.append(f"store i32 {narrow}, ptr {f.column(array, '%columns', i)}, align 4")

    def one(i: str) -> None:
        own = {key: f.op(f"load i64, ptr {slot}") for key, slot in slots.items()}
        put(0, i, f.dot((own["n"], w["source.image"]), *((own[d], source[d]) for d in "zyx")))
        for k, d in enumerate("zyx"):
            put(1 + k, i, f.mul(own[d], steps[d]))
        put(4, i, f.dot((own["n"], w["target.image"]), *((own[d], w[f"target.{d}"]) for d in "zyx")))
        carry = "1"
        for d, size in (("x", w["count.x"]), ("y", w["count.y"]), ("z", depth)):
            more = f.add(own[d], carry)
            over = f.op(f"icmp eq i64 {more}, {size}")
            f.lines.append(f"store i64 {f.either(over, 'i64', '0', more)}, ptr {slots[d]}")
            carry = f.op(f"zext i1 {over} to i64")
        f.lines.append(f"store i64 {f.add(own['n'], carry)}, ptr {slots['n']}")

    def none(i: str) -> None:
        for array, value in enumerate((0, OUTSIDE, OUTSIDE, OUTSIDE, 0)):
            put(array, i, str(value))

    f.loop("0", "%count", 1, one)
    f.loop("%count", "%all", 1, none)
    f.lines.append(f"ret i64 {start}")
    return f.define(f"i64 @{name}(ptr %words, i64 %first, i64 %count, i64 %all, ptr %columns)")


def memory_of(f: WindowText) -> tuple[str, str, str, str]:
    """(panel, block, part, columns) in %scratch."""
    address = f.op("ptrtoint ptr %scratch to i64")
    even = f.op(f"and i64 {f.add(address, VECTOR - 1)}, {-VECTOR}")
    panel = f.op(f"inttoptr i64 {even} to ptr")
    block = f.at(panel, STRETCH * OF_32.vectors * VECTOR)
    part = f.at(block, packed.BLOCK * STRETCH * f.size)
    return panel, block, part, f.at(part, packed.BLOCK * LINE)
