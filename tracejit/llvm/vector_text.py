"""LLVM text of functions on vectors: what the kernels of products and of convolutions are written with, and their tiles.

No pass of LLVM runs over such text: it is written as it is to be compiled.

Must not know: what is multiplied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from tracejit.core.dtypes import DType
from tracejit.llvm.operations import lane_type
from tracejit.native.text import FunctionText

__all__ = ["OF_16", "OF_32", "VECTOR", "Tile", "VectorText", "half", "least", "transposed"]

VECTOR: Final = 64
"""Bytes of the widest vectors, at whose multiples panels begin."""


class Tile(NamedTuple):
    """What a kernel computes, and how.

    rows: of a kernel, by its vectors: as many as there are registers for, and what is left in the end.  The first entry is that of
    whole panels; those of the last columns of a product may have fewer vectors.  fused: whether an instruction multiplies and adds."""

    rows: dict[int, tuple[int, ...]]
    fused: bool = True

    @property
    def vectors(self) -> int:
        """Of a row of a whole panel."""
        return next(iter(self.rows))

    @property
    def thin(self) -> int:
        """Rows, or columns, of a product up to which it is thin."""
        return 2 * self.few

    @property
    def few(self) -> int:
        """Rows of a kernel of thin products at most."""
        return 4 if self.vectors == 4 else 3

    @property
    def kinds(self) -> dict[str, tuple[int, bool]]:
        """Panels by their names: how many vectors, and whether the columns end before them.  The last one has one vector."""
        return {"whole": (self.vectors, False)} | {f"ends{vectors}": (vectors, True) for vectors in self.rows}


OF_32: Final = Tile({4: (6, 5, 4, 3, 2, 1), 2: (12, 6, 4, 2, 1), 1: (12, 6, 4, 2, 1)})
"""Where there are 32 registers for vectors: 24 of them hold sums."""
OF_16: Final = Tile({2: (6, 5, 4, 3, 2, 1), 1: (12, 6, 4, 2, 1)})
"""Where there are 16: 12 of them hold sums."""


class VectorText(FunctionText):
    """The text of a function on elements of one dtype; `lanes` of them are a vector."""

    def __init__(self, dtype: DType, lanes: int, tile: Tile) -> None:
        super().__init__()
        self.number, self.lanes, self.size, self.tile = lane_type(dtype), lanes, dtype.itemsize, tile
        self.wide = tile.vectors * lanes  # columns of a whole panel
        self.vector = f"<{lanes} x {self.number}>"
        self.suffix = f"v{lanes}f{8 * dtype.itemsize}"

    def at(self, pointer: str, offset: str | int) -> str:
        """A pointer so many bytes further on."""
        return pointer if offset == 0 else self.op(f"getelementptr i8, ptr {pointer}, i64 {offset}")

    def i64(self, operation: str, a: str | int, b: str | int) -> str:
        """An operation of two integers."""
        return self.op(f"{operation} i64 {a}, {b}")

    def splat(self, number: str) -> str:
        first = self.op(f"insertelement {self.vector} poison, {self.number} {number}, i32 0")
        return self.op(f"shufflevector {self.vector} {first}, {self.vector} poison, <{self.lanes} x i32> zeroinitializer")

    def load(self, pointer: str) -> str:
        return self.op(f"load {self.vector}, ptr {pointer}, align {self.size}")

    def store(self, value: str, pointer: str) -> None:
        self.lines.append(f"store {self.vector} {value}, ptr {pointer}, align {self.size}")

    def fma(self, a: str, b: str, c: str) -> str:
        """a * b + c, rounded once where there is an instruction for it."""
        if not self.tile.fused:
            return self.op(f"fadd {self.vector} {self.op(f'fmul {self.vector} {a}, {b}')}, {c}")
        return self.call(f"llvm.fma.{self.suffix}", self.vector, (self.vector, a), (self.vector, b), (self.vector, c))

    def mask(self, first: int, columns: str) -> str:
        """Which lanes of a vector that begins with column `first` are among the columns."""
        integers = f"<{self.lanes} x i64>"
        one = self.op(f"insertelement {integers} poison, i64 {columns}, i32 0")
        limit = self.op(f"shufflevector {integers} {one}, {integers} poison, <{self.lanes} x i32> zeroinitializer")
        numbers = ", ".join(f"i64 {first + i}" for i in range(self.lanes))
        return self.op(f"icmp slt {integers} <{numbers}>, {limit}")

    def prefetch(self, pointer: str) -> None:
        """Have a line brought to the first cache, wherever it is; nothing happens where there is no memory."""
        self.call("llvm.prefetch.p0", "void", ("ptr", pointer), ("i32", "0"), ("i32", "3"), ("i32", "1"))

    def masked_load(self, pointer: str, mask: str) -> str:
        kinds = (("ptr", pointer), ("i32", str(self.size)), (f"<{self.lanes} x i1>", mask), (self.vector, "zeroinitializer"))
        return self.call(f"llvm.masked.load.{self.suffix}.p0", self.vector, *kinds)

    def masked_store(self, value: str, pointer: str, mask: str) -> None:
        kinds = ((self.vector, value), ("ptr", pointer), ("i32", str(self.size)), (f"<{self.lanes} x i1>", mask))
        self.call(f"llvm.masked.store.{self.suffix}.p0", "void", *kinds)

    def branch(self, condition: str, yes: str, no: str) -> None:
        self.lines.append(f"br i1 {condition}, label %{yes}, label %{no}")

    def go(self, label: str) -> None:
        self.lines.append(f"br label %{label}")

    def loop(self, start: str, stop: str, step: str | int, body: Callable[[str], None], room: int = 1) -> str:
        """body(i) for i = start, start + step ... while `room` are left before `stop`; returns the first i that is none."""
        head, inside, end = (self.label(hint) for hint in ("head", "inside", "end"))
        before = self.block
        self.go(head)
        self.begin(head)
        at = len(self.lines)
        i, following = self.name(), self.name()
        last = self.i64("add", i, room)
        more = self.op(f"icmp sle i64 {last}, {stop}")
        self.branch(more, inside, end)
        self.begin(inside)
        body(i)
        self.lines.append(f"{following} = add i64 {i}, {step}")
        self.lines.insert(at, f"{i} = phi i64 [ {start}, %{before} ], [ {following}, %{self.block} ]")
        self.go(head)
        self.begin(end)
        return i

    def choose(self, number: str, parts: dict[int, Callable[[], None]]) -> None:
        """Do the part of a number, none where there is none."""
        labels, end = {i: self.label("case") for i in parts}, self.label("end")
        self.lines.append(
            f"switch i64 {number}, label %{end} [ {' '.join(f'i64 {i}, label %{at}' for i, at in labels.items())} ]"
        )
        for i, part in parts.items():
            self.begin(labels[i])
            part()
            self.go(end)
        self.begin(end)

    def define(self, head: str) -> str:
        bits = 8 * self.lanes * self.size
        attributes = f'noinline nounwind "prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}"'
        return "\n".join([f"define internal {head} {attributes} {{", "entry:", *self.lines, "}"])


def least(f: VectorText, a: str, b: str | int) -> str:
    return f.call("llvm.smin.i64", "i64", ("i64", a), ("i64", str(b)))


def half(f: VectorText, count: str, most: int) -> str:
    """The count, or half of it, rounded up, where it is more than `most`."""
    both = f.op(f"icmp sgt i64 {count}, {most}")
    return f.op(f"select i1 {both}, i64 {f.i64('lshr', f.i64('add', count, 1), 1)}, i64 {count}")


def transposed(f: VectorText, rows: list[str]) -> list[str]:
    """As many vectors as each has lanes, as the columns of what they are the rows of: each step interleaves the two halves of the list."""
    n, half = f.lanes, f.lanes // 2
    low, high = (", ".join(f"i32 {i + at}, i32 {i + at + n}" for i in range(half)) for at in (0, half))
    for _ in range(n.bit_length() - 1):
        rows = [
            f.op(f"shufflevector {f.vector} {rows[i]}, {f.vector} {rows[i + half]}, <{n} x i32> <{order}>")
            for i in range(half)
            for order in (low, high)
        ]
    return rows
