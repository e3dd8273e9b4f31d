"""Products of matrices by kernels of our own, for processors whose vectors are wider than those that the BLAS computes with.

A kernel keeps 6 x 4 vectors of the result in registers and adds up to `_STRETCH` terms to them; the order of additions
is the same for each element, whatever the sizes and wherever it lies.  The right operand is read from a panel: up to
`_STRETCH` of its rows, four vectors of each, copied side by side.  The left one is read a block of rows at a time, which
the second cache holds; where several panels meet the block, its rows are copied side by side, too.
(Goto and van de Geijn: Anatomy of High-Performance Matrix Multiplication, 2008.)

`helper` is LLVM text of a function with the arguments of gemm.  No pass runs over it: it is written as it is to be compiled.

Measured on one thread of an Intel Xeon with 512-bit vectors, in GFLOP/s of float32, beside OpenBLAS 0.3.31, which has
512-bit kernels there, and MKL, by torch 2.13:

| rows, columns, terms | these | OpenBLAS | MKL |
| --- | --- | --- | --- |
| 128, 128, 128 | 175 | 127 | 166 |
| 256, 256, 256 | 183 | 161 | 188 |
| 1024, 1024, 1024 | 165 | 169 | 188 |
| 2048, 2048, 2048 | 173 | 182 | 208 |
| 64, 512, 784, by a transposed matrix | 167 | 113 | 160 |
| 8, 512, 512 | 119 | 61 | 158 |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tracejit.core.dtypes import DType, float32
from tracejit.llvm import blas
from tracejit.llvm.operations import constant, lane_type
from tracejit.native.text import FunctionText

__all__ = [
    "BLOCK", "KINDS", "ROWS", "STRETCH", "VECTOR", "VECTORS", "VectorText", "helper", "kinds", "panel_functions", "parameters",
    "scratch", "transposed",
]  # fmt: skip

_ROWS: Final = {4: (6, 4, 2, 1), 2: (12, 6, 4, 2, 1), 1: (12, 6, 4, 2, 1)}
"""Rows of a kernel, by its vectors: as many as there are registers for, and what is left in the end."""
_VECTORS: Final = 4
"""Of a row of a panel; the last panel of a product may have 2 or 1."""
_STRETCH: Final = 256
"""Terms that are added up in registers, and rows of a panel: it has 64 KB of vectors of 64 bytes."""
_BLOCK: Final = 384
"""Rows of the left operand that meet a panel."""
_PANELS: Final = 3
"""Panels from which on the rows of a block are put side by side: rows that lie far apart displace each other from the cache."""
_VECTOR: Final = 64
"""Bytes of the widest vectors, at whose multiples panels begin."""
_FEW: Final = 24
"""Rows for which a panel is read where it lies: to put it side by side costs as much as to read it some times."""
_KINDS: Final = {"whole": (_VECTORS, False), "most": (_VECTORS, True), "half": (2, True), "part": (1, True)}
"""Panels by their names: how many vectors, and whether the columns end before them."""
_ATTRIBUTES: Final = 'noinline nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512"'


class _Function(FunctionText):
    """The text of a function on elements of one dtype; `lanes` of them are a vector."""

    def __init__(self, dtype: DType, lanes: int) -> None:
        super().__init__()
        self.number, self.lanes, self.size = lane_type(dtype), lanes, dtype.itemsize
        self.vector = f"<{lanes} x {self.number}>"
        self.suffix = f"v{lanes}f{8 * dtype.itemsize}"

    def at(self, pointer: str, offset: str | int) -> str:
        """A pointer so many bytes further on."""
        return pointer if offset == 0 else self.op(f"getelementptr i8, ptr {pointer}, i64 {offset}")

    def splat(self, number: str) -> str:
        first = self.op(f"insertelement {self.vector} poison, {self.number} {number}, i32 0")
        return self.op(f"shufflevector {self.vector} {first}, {self.vector} poison, <{self.lanes} x i32> zeroinitializer")

    def load(self, pointer: str) -> str:
        return self.op(f"load {self.vector}, ptr {pointer}, align {self.size}")

    def store(self, value: str, pointer: str) -> None:
        self.lines.append(f"store {self.vector} {value}, ptr {pointer}, align {self.size}")

    def fma(self, a: str, b: str, c: str) -> str:
        return self.call(f"llvm.fma.{self.suffix}", self.vector, (self.vector, a), (self.vector, b), (self.vector, c))

    def mask(self, first: int, columns: str) -> str:
        """Which lanes of a vector that begins with column `first` are among the columns."""
        integers = f"<{self.lanes} x i64>"
        one = self.op(f"insertelement {integers} poison, i64 {columns}, i32 0")
        limit = self.op(f"shufflevector {integers} {one}, {integers} poison, <{self.lanes} x i32> zeroinitializer")
        numbers = ", ".join(f"i64 {first + i}" for i in range(self.lanes))
        return self.op(f"icmp slt {integers} <{numbers}>, {limit}")

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
        last = self.op(f"add i64 {i}, {room}")
        more = self.op(f"icmp sle i64 {last}, {stop}")
        self.branch(more, inside, end)
        self.begin(inside)
        body(i)
        self.lines.append(f"{following} = add i64 {i}, {step}")
        self.lines.insert(at, f"{i} = phi i64 [ {start}, %{before} ], [ {following}, %{self.block} ]")
        self.go(head)
        self.begin(end)
        return i

    def define(self, head: str) -> str:
        return "\n".join([f"define internal {head} {_ATTRIBUTES} {{", "entry:", *self.lines, "}"])


_TILE: Final = (
    ("i64", "terms"), ("ptr", "a"), ("i64", "a.row"), ("i64", "a.term"), ("ptr", "b"), ("i64", "b.term"), ("ptr", "c"), ("i64", "c.row"),
    ("N", "alpha"), ("N", "beta"), ("i64", "columns"),
)  # fmt: skip
"""Parameters of a kernel: distances in bytes, "N" stands for the type of an element."""


def _parameters(number: str, **instead: str) -> str:
    return ", ".join(f"{number if kind == 'N' else kind} {instead.get(name, f'%{name}')}" for kind, name in _TILE)


def _kernel(f: _Function, name: str, rows: int, vectors: int, ends: bool) -> str:
    """A tile of the result: alpha * a @ b + beta * c, of at least one term; c is not read where beta is 0."""
    width = f.lanes * f.size
    cells = [(r, v) for r in range(rows) for v in range(vectors)]
    starts = [f.at("%a", 0 if r == 0 else f.op(f"mul i64 %a.row, {r}")) for r in range(rows)]

    def term(offset: str, panel: str, sums: Sequence[str]) -> list[str]:
        right = [f.load(f.at(panel, v * width)) for v in range(vectors)]
        found: list[str] = []
        for r in range(rows):
            left = f.splat(f.op(f"load {f.number}, ptr {f.at(starts[r], offset)}, align {f.size}"))
            found += [f.fma(left, right[v], sums[r * vectors + v]) for v in range(vectors)]
        return found

    def phis(*from_blocks: tuple[Sequence[str], str]) -> list[str]:
        return [
            f.op(f"phi {f.vector} " + ", ".join(f"[ {values[i]}, %{block} ]" for values, block in from_blocks))
            for i in range(len(cells))
        ]

    zeros = ["zeroinitializer"] * len(cells)
    pairs = f.op("lshr i64 %terms, 1")
    some = f.op(f"icmp ne i64 {pairs}, 0")
    f.branch(some, "pair", "rest")
    f.begin("pair")
    at = len(f.lines)
    i, offset, panel = f.name(), f.name(), f.name()
    carried = [f.name() for _ in cells]
    second = f.op(f"add i64 {offset}, %a.term")
    middle = term(offset, panel, carried)
    next_panel = f.at(panel, "%b.term")
    two = term(second, next_panel, middle)
    after_offset, after_panel = f.op(f"add i64 {second}, %a.term"), f.at(next_panel, "%b.term")
    after = f.op(f"sub i64 {i}, 1")
    f.lines[at:at] = [
        f"{i} = phi i64 [ {pairs}, %entry ], [ {after}, %pair ]",
        f"{offset} = phi i64 [ 0, %entry ], [ {after_offset}, %pair ]",
        f"{panel} = phi ptr [ %b, %entry ], [ {after_panel}, %pair ]",
        *[f"{x} = phi {f.vector} [ zeroinitializer, %entry ], [ {y}, %pair ]" for x, y in zip(carried, two, strict=True)],
    ]
    f.branch(f.op(f"icmp ne i64 {after}, 0"), "pair", "rest")
    f.begin("rest")
    last_offset = f.op(f"phi i64 [ 0, %entry ], [ {after_offset}, %pair ]")
    last_panel = f.op(f"phi ptr [ %b, %entry ], [ {after_panel}, %pair ]")
    even = phis((zeros, "entry"), (two, "pair"))
    odd = f.op("trunc i64 %terms to i1")
    f.branch(odd, "single", "finish")
    f.begin("single")
    three = term(last_offset, last_panel, even)
    f.go("finish")
    f.begin("finish")
    sums = phis((even, "rest"), (three, "single"))
    alpha = f.splat("%alpha")
    scaled = [f.op(f"fmul {f.vector} {alpha}, {x}") for x in sums]
    masks = [f.mask(v * f.lanes, "%columns") if ends else "" for v in range(vectors)]
    lines = [f.at("%c", 0 if r == 0 else f.op(f"mul i64 %c.row, {r}")) for r in range(rows)]
    places = [f.at(lines[r], v * width) for r, v in cells]
    f.branch(f.op(f"fcmp une {f.number} %beta, 0.0"), "add", "fresh")
    f.begin("add")
    beta = f.splat("%beta")
    for (_, v), place, x in zip(cells, places, scaled, strict=True):
        old = f.masked_load(place, masks[v]) if ends else f.load(place)
        _put(f, f.fma(beta, old, x), place, masks[v])
    f.lines.append("ret void")
    f.begin("fresh")
    for (_, v), place, x in zip(cells, places, scaled, strict=True):
        _put(f, x, place, masks[v])
    f.lines.append("ret void")
    return f.define(f"void @{name}({_parameters(f.number)})")


def _put(f: _Function, value: str, place: str, mask: str) -> None:
    if mask:
        f.masked_store(value, place, mask)
    else:
        f.store(value, place)


def _rows_of_panel(f: _Function, name: str, kernels: dict[int, str]) -> str:
    """All rows of a block of the left operand times a panel."""

    def part(rows: int) -> Callable[[str], None]:
        def call(i: str) -> None:
            a = f.at("%a", f.op(f"mul i64 {i}, %a.row"))
            c = f.at("%c", f.op(f"mul i64 {i}, %c.row"))
            f.lines.append(f"call void @{kernels[rows]}({_parameters(f.number, a=a, c=c)})")

        return call

    done = "0"
    for rows in kernels:
        done = f.loop(done, "%rows", rows, part(rows), rows)
    f.lines.append("ret void")
    return f.define(f"void @{name}(i64 %rows, {_parameters(f.number)})")


def _transposed(f: _Function, rows: list[str]) -> list[str]:
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


def _pack(f: _Function, name: str, turned: bool) -> str:
    """Rows of a panel, side by side.  b: where its first element lies, b.row: bytes between rows as they are stored."""
    width = f.lanes * f.size
    stride = f.op(f"mul i64 %vectors, {width}")

    def straight(p: str) -> None:
        row, to = f.at("%b", f.op(f"mul i64 {p}, %b.row")), f.at("%panel", f.op(f"mul i64 {p}, {stride}"))

        def vector(v: str) -> None:
            first = f.op(f"mul i64 {v}, {f.lanes}")
            left, offset = f.op(f"sub i64 %columns, {first}"), f.op(f"mul i64 {v}, {width}")
            f.store(f.masked_load(f.at(row, offset), f.mask(0, left)), f.at(to, offset))

        f.loop("0", "%vectors", 1, vector)

    def by_vector(v: str) -> None:
        first, last = f.op(f"mul i64 {v}, {f.lanes}"), f.op("sub i64 %columns, 1")
        columns = []
        for i in range(f.lanes):  # beyond the last column that one again: nobody looks at what comes of it
            column = f.call("llvm.smin.i64", "i64", ("i64", f.op(f"add i64 {first}, {i}")), ("i64", last))
            columns.append(f.at("%b", f.op(f"mul i64 {column}, %b.row")))
        to = f.at("%panel", f.op(f"mul i64 {v}, {width}"))

        def square(p: str) -> None:
            offset = f.op(f"mul i64 {p}, {f.size}")
            vectors = _transposed(f, [f.load(f.at(column, offset)) for column in columns])
            row = f.at(to, f.op(f"mul i64 {p}, {stride}"))
            for i, vector in enumerate(vectors):
                f.store(vector, row if i == 0 else f.at(row, f.op(f"mul i64 {stride}, {i}")))

        def single(p: str) -> None:
            offset, vector = f.op(f"mul i64 {p}, {f.size}"), "poison"
            for i, column in enumerate(columns):
                number = f.op(f"load {f.number}, ptr {f.at(column, offset)}, align {f.size}")
                vector = f.op(f"insertelement {f.vector} {vector}, {f.number} {number}, i32 {i}")
            f.store(vector, f.at(to, f.op(f"mul i64 {p}, {stride}")))

        f.loop(f.loop("0", "%terms", f.lanes, square, f.lanes), "%terms", 1, single)

    if turned:
        f.loop("0", "%vectors", 1, by_vector)
    else:
        f.loop("0", "%terms", 1, straight)
    f.lines.append("ret void")
    return f.define(f"void @{name}(ptr %b, i64 %b.row, i64 %terms, i64 %columns, i64 %vectors, ptr %panel)")


def _least(f: _Function, a: str, b: str | int) -> str:
    return f.call("llvm.smin.i64", "i64", ("i64", a), ("i64", str(b)))


def _product(f: _Function, name: str, one: str, names: dict[str, str]) -> str:
    """The whole: blocks of rows, stretches of terms, panels."""
    wide = _VECTORS * f.lanes
    address = f.op("ptrtoint ptr %scratch to i64")
    up = f.op(f"add i64 {address}, {_VECTOR - 1}")
    panel = f.op(f"inttoptr i64 {f.op(f'and i64 {up}, {-_VECTOR}')} to ptr")
    left = f.at(panel, _STRETCH * wide * f.size)
    several = f.op(f"icmp sge i64 %n, {_PANELS * wide}")
    down, across, line = (f.op(f"mul i64 %{x}, {f.size}") for x in ("lda", "ldb", "ldc"))
    a_straight, b_straight = (f.op(f"icmp eq i32 %turned.{x}, {blas.NO_TRANSPOSE}") for x in "ab")
    a_row = f.op(f"select i1 {a_straight}, i64 {down}, i64 {f.size}")
    a_term = f.op(f"select i1 {a_straight}, i64 {f.size}, i64 {down}")
    b_term = f.op(f"select i1 {b_straight}, i64 {across}, i64 {f.size}")
    b_column = f.op(f"select i1 {b_straight}, i64 {f.size}, i64 {across}")

    def packed_rows(straight: str, matrix: str, apart: str, rows: str, columns: str, vectors: str, to: str) -> tuple[str, str]:
        """Copy rows side by side.  apart: bytes between rows as they are stored.  (bytes from row to row then, the block that goes on)."""
        labels = {kind: f.label(kind) for kind in ("straight", "turned", "packed")}
        f.branch(straight, labels["straight"], labels["turned"])
        for kind in ("straight", "turned"):
            f.begin(labels[kind])
            given = f"ptr {matrix}, i64 {apart}, i64 {rows}, i64 {columns}, i64 {vectors}, ptr {to}"
            f.lines.append(f"call void @{names[kind]}({given})")
            f.go(labels["packed"])
        f.begin(labels["packed"])
        return f.op(f"mul i64 {vectors}, {f.lanes * f.size}"), labels["packed"]

    def packed_left(a: str, rows: str, terms: str) -> tuple[str, str, str]:
        """(where a block is read, bytes from row to row, bytes from term to term)."""
        before, (pack, read) = f.block, (f.label("pack"), f.label("read"))
        f.branch(several, pack, read)
        f.begin(pack)
        vectors = f.op(f"udiv i64 {f.op(f'add i64 {terms}, {f.lanes - 1}')}, {f.lanes}")
        stride, packed = packed_rows(a_straight, a, down, rows, terms, vectors, left)
        f.go(read)
        f.begin(read)
        pairs = (("ptr", a, left), ("i64", a_row, stride), ("i64", a_term, str(f.size)))
        where, row, term = (f.op(f"phi {kind} [ {there}, %{before} ], [ {here}, %{packed} ]") for kind, there, here in pairs)
        return where, row, term

    def block(i: str) -> None:
        rows = _least(f, f.op(f"sub i64 %m, {i}"), _BLOCK)
        a_block, c_block = f.at("%a", f.op(f"mul i64 {i}, {a_row}")), f.at("%c", f.op(f"mul i64 {i}, {line}"))
        few = f.op(f"icmp sle i64 {rows}, {_FEW}")
        near = f.op(f"and i1 {few}, {b_straight}")

        def stretch(p: str) -> None:
            terms = _least(f, f.op(f"sub i64 %k, {p}"), _STRETCH)
            a_here, b_stretch = f.at(a_block, f.op(f"mul i64 {p}, {a_term}")), f.at("%b", f.op(f"mul i64 {p}, {b_term}"))
            a, row, term = packed_left(a_here, rows, terms)
            begins = f.op(f"icmp eq i64 {p}, 0")
            beta = f.op(f"select i1 {begins}, {f.number} %beta, {f.number} {one}")

            def columns(j: str) -> None:
                count = _least(f, f.op(f"sub i64 %n, {j}"), wide)
                b, c = f.at(b_stretch, f.op(f"mul i64 {j}, {b_column}")), f.at(c_block, f.op(f"mul i64 {j}, {f.size}"))
                labels = {kind: f.label(kind) for kind in (*_KINDS, "pack", "switch", "done")}
                is_whole = f.op(f"icmp eq i64 {count}, {wide}")
                two = f.op(f"icmp sgt i64 {count}, {f.lanes}")
                four = f.op(f"icmp sgt i64 {count}, {2 * f.lanes}")
                vectors = f.op(f"select i1 {four}, i64 {_VECTORS}, i64 {f.op(f'select i1 {two}, i64 2, i64 1')}")
                direct = f.op(f"and i1 {near}, {is_whole}")
                before = f.block
                f.branch(direct, labels["switch"], labels["pack"])
                f.begin(labels["pack"])
                packed_term, packed = packed_rows(b_straight, b, across, terms, count, vectors, panel)
                f.go(labels["switch"])
                f.begin(labels["switch"])
                source = f.op(f"phi ptr [ {b}, %{before} ], [ {panel}, %{packed} ]")
                step = f.op(f"phi i64 [ {b_term}, %{before} ], [ {packed_term}, %{packed} ]")
                kind = f.op(f"select i1 {is_whole}, i64 0, i64 {vectors}")
                cases = " ".join(
                    f"i64 {0 if not ends else v}, label %{labels[name]}" for name, (v, ends) in _KINDS.items() if name != "part"
                )
                f.lines.append(f"switch i64 {kind}, label %{labels['part']} [ {cases} ]")
                given = _parameters(f.number, **{
                    "terms": terms, "a": a, "a.row": row, "a.term": term, "b": source, "b.term": step, "c": c, "c.row": line,
                    "beta": beta, "columns": count,
                })  # fmt: skip
                for name in _KINDS:
                    f.begin(labels[name])
                    f.lines.append(f"call void @{names[name]}(i64 {rows}, {given})")
                    f.go(labels["done"])
                f.begin(labels["done"])

            f.loop("0", "%n", wide, columns)

        f.loop("0", "%k", _STRETCH, stretch)

    f.loop("0", "%m", _BLOCK, block)
    f.lines.append("ret void")
    sizes = "i32 %order, i32 %turned.a, i32 %turned.b, i64 %m, i64 %n, i64 %k"
    operands = f"{f.number} %alpha, ptr %a, i64 %lda, ptr %b, i64 %ldb, {f.number} %beta, ptr %c, i64 %ldc"
    return f.define(f"void @{name}({sizes}, {operands}, ptr %scratch)")


def scratch(dtype: DType, lanes: int) -> tuple[int, int, int]:
    """(columns, bytes, more bytes): how much memory of its own a product of fewer columns needs, and one of as many."""
    panel = _VECTOR + _STRETCH * _VECTORS * lanes * dtype.itemsize
    return _PANELS * _VECTORS * lanes, panel, panel + _STRETCH * _BLOCK * dtype.itemsize


def helper(dtype: DType, lanes: int) -> tuple[str, str, dict[str, str]]:
    """(name, definitions, declarations by symbol) of a function that computes what the CBLAS routine gemm does, for
    row-major matrices and at least one term; its last parameter is the address of memory of its own (`scratch`).

    lanes: elements of a vector, a power of 2; there are 32 registers for vectors."""
    prefix = _prefix(dtype)
    parts, declarations, names = list[str](), dict[str, str](), dict[str, str]()

    def written(write: Callable[..., str], name: str, *given: object) -> str:
        f = _Function(dtype, lanes)
        parts.append(write(f, name, *given))
        declarations.update(f.declarations)
        return name

    for kind, (vectors, ends) in _KINDS.items():
        kernels = {rows: written(_kernel, f"{prefix}_{kind}{rows}", rows, vectors, ends) for rows in _ROWS[vectors]}
        names[kind] = written(_rows_of_panel, f"{prefix}_{kind}", kernels)
    for kind in ("straight", "turned"):
        names[kind] = written(_pack, f"{prefix}_{kind}", kind == "turned")
    return written(_product, prefix, constant(1.0, dtype), names), "\n".join(parts), declarations


def _prefix(dtype: DType) -> str:
    """How the names of the functions for a dtype begin."""
    return f"packed_{'s' if dtype is float32 else 'd'}gemm"


def panel_functions(dtype: DType) -> tuple[str, ...]:
    """The names of the functions that multiply the rows of a block by a panel, and of those that fill panels."""
    return tuple(f"{_prefix(dtype)}_{kind}" for kind in (*_KINDS, "straight", "turned"))


# What packed_windows.py packs for the same kernels.
ROWS, VECTORS, STRETCH, BLOCK, VECTOR, KINDS = _ROWS, _VECTORS, _STRETCH, _BLOCK, _VECTOR, _KINDS
VectorText = _Function
parameters, transposed = _parameters, _transposed


def kinds(number: str) -> str:
    """The types of a kernel's parameters."""
    return ", ".join(number if kind == "N" else kind for kind, _ in _TILE)
