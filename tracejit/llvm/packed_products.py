"""Products of matrices by kernels of our own, for processors whose vectors are wider than those that the BLAS computes with.

A kernel keeps a tile of the result in registers (6 rows of 4 vectors, where there are 32 registers) and adds up to
`_STRETCH` terms to it; the order of additions follows from the number of terms alone, wherever an element lies.  The
right operand is read from panels: a stretch of its rows, four vectors of each, copied side by side.  The left one is
read a block of rows at a time, which the second cache holds; where several panels meet the block, its rows are copied
side by side, too.  Where there are several blocks, the panels of all columns, of `_SLAB` at most, are copied first, and
each block meets them all.  (Goto and van de Geijn: Anatomy of High-Performance Matrix Multiplication, 2008.)
While it adds, a kernel has the rows of the result that it is going to add to brought to the first cache, a few at a
time: read at the end, all at once, they take a seventh of the time of large products.

`helper` is LLVM text of a function with the arguments of gemm.  No pass runs over it: it is written as it is to be compiled.

Thin products, of few rows by a matrix that is stored transposed or of a matrix by few columns, are inner products of
rows: a kernel keeps a vector of sums for each of 4 x 4 elements, and packs nothing but the few columns.

Measured in one process, in turn, by CPU time of one thread of an Intel Xeon with 512-bit vectors beside other work, in
GFLOP/s, beside OpenBLAS 0.3.31 with its kernels for 512 bits (SkylakeX), and MKL, by torch 2.13; the last two rows by
`python -m benchmarks.products`:

| rows, columns, terms | float32 | OpenBLAS | MKL | float64 | OpenBLAS | MKL |
| --- | --- | --- | --- | --- | --- | --- |
| 256, 256, 256 | 192 | 167 | 182 | 88 | 67 | 76 |
| 384, 384, 384 | 198 | 160 | 189 | 75 | 64 | 79 |
| 512, 512, 512 | 171 | 168 | 181 | 82 | 74 | 86 |
| 1024, 1024, 1024 | 172 | 163 | 182 | 85 | 79 | 90 |
| 2048, 2048, 2048 | 182 | 182 | 201 | 89 | 91 | 99 |
| 2048, 384, 384 | 186 | 173 | 180 | 90 | 72 | 95 |
| 64, 512, 784 | 154 | 133 | 171 | 71 | 60 | 60 |
| 3, 512, 512, by a transposed matrix | 97 | 11 | 54 | 18 | 8 | 18 |
| 512, 3, 512 | 94 | 49 | 21 | 21 | 14 | 12 |

Above 1,000 rows and columns what costs is memory: packing reads and writes a line in some 25 cycles, and each stretch of
terms reads and writes the result.  Other tiles (14 x 2, 12 x 2, 8 x 3 vectors) load more for each addition and are slower.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from tracejit.core.dtypes import DType, float32
from tracejit.llvm import blas
from tracejit.llvm.operations import constant, lane_type
from tracejit.native.text import FunctionText

__all__ = [
    "BLOCK", "KINDS", "OF_16", "OF_32", "ROWS", "VECTOR", "VECTORS", "Tile", "VectorText", "helper", "is_thin", "kinds",
    "panel_functions", "parameters", "scratch", "thin", "transposed",
]  # fmt: skip

_STRETCH: Final = 384
"""Terms that are added up in registers at most, and rows of a panel: it has 96 KB of four vectors of 64 bytes."""
_BLOCK: Final = 384
"""Rows of the left operand that meet the panels at most, which the second cache holds: 0.6 or 1.2 MB.  A multiple of _ROWS."""
_SLAB: Final = 3072
"""Columns in the panels that are kept for several blocks of rows, which the third cache holds: 5 or 9 MB.  A multiple of any panel's."""
_PANELS: Final = 16
"""Panels from which on the rows of a block are put side by side: rows that lie far apart displace each other from the cache."""
_PANELS_TURNED: Final = 3
"""The same where they are stored as columns: a kernel reads each term of its rows from another line."""
_EACH: Final = 16
"""Pairs of terms after which a row of the result is brought to the first cache, of that tile or of one below."""
_ROWS: Final = 12
"""Rows that blocks are multiples of: whole tiles, of 6 rows or 12."""
_VECTOR: Final = 64
"""Bytes of the widest vectors, at whose multiples panels begin."""
_BESIDE: Final = 4
"""Rows of the many that a kernel of thin products multiplies the few by."""
_LONG: Final = 4096
"""Terms that these kernels add up at most, a vector of sums for each element."""
_FEW: Final = 24
"""Rows for which a panel is read where it lies: to put it side by side costs as much as to read it some times."""


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


class _Function(FunctionText):
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
    starts = [f.at("%a", 0 if r == 0 else f.i64("mul", "%a.row", r)) for r in range(rows)]

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
    i, offset, panel, ahead = f.name(), f.name(), f.name(), f.name()
    now = f.op(f"icmp eq i64 {f.i64('and', i, _EACH - 1)}, 0")
    f.branch(now, "fetch", "compute")
    f.begin("fetch")
    for v in range(vectors):
        f.prefetch(f.at(ahead, v * width))
    below = f.at(ahead, "%c.row")
    f.go("compute")
    f.begin("compute")
    ahead_then = f.op(f"phi ptr [ {ahead}, %pair ], [ {below}, %fetch ]")
    carried = [f.name() for _ in cells]
    second = f.i64("add", offset, "%a.term")
    middle = term(offset, panel, carried)
    next_panel = f.at(panel, "%b.term")
    two = term(second, next_panel, middle)
    after_offset, after_panel = f.i64("add", second, "%a.term"), f.at(next_panel, "%b.term")
    after = f.i64("sub", i, 1)
    f.lines[at:at] = [
        f"{i} = phi i64 [ {pairs}, %entry ], [ {after}, %compute ]",
        f"{offset} = phi i64 [ 0, %entry ], [ {after_offset}, %compute ]",
        f"{panel} = phi ptr [ %b, %entry ], [ {after_panel}, %compute ]",
        f"{ahead} = phi ptr [ %c, %entry ], [ {ahead_then}, %compute ]",
        *[f"{x} = phi {f.vector} [ zeroinitializer, %entry ], [ {y}, %compute ]" for x, y in zip(carried, two, strict=True)],
    ]
    f.branch(f.op(f"icmp ne i64 {after}, 0"), "pair", "rest")
    f.begin("rest")
    last_offset = f.op(f"phi i64 [ 0, %entry ], [ {after_offset}, %compute ]")
    last_panel = f.op(f"phi ptr [ %b, %entry ], [ {after_panel}, %compute ]")
    even = phis((zeros, "entry"), (two, "compute"))
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
    lines = [f.at("%c", 0 if r == 0 else f.i64("mul", "%c.row", r)) for r in range(rows)]
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
            a = f.at("%a", f.i64("mul", i, "%a.row"))
            c = f.at("%c", f.i64("mul", i, "%c.row"))
            f.lines.append(f"call void @{kernels[rows]}({_parameters(f.number, a=a, c=c)})")

        return call

    most = max(kernels)
    if len(kernels) == most:  # there is one for each number of rows: the last ones are halved, few rows leave registers unused
        done = f.loop("0", "%rows", most, part(most), 2 * most)
        left = f.i64("sub", "%rows", done)
        first = _half(f, left, most)
        f.choose(first, {rows: lambda rows=rows: part(rows)(done) for rows in kernels})  # type: ignore[misc]
        f.choose(f.i64("sub", left, first), {rows: lambda rows=rows: part(rows)(f.i64("add", done, first)) for rows in kernels})  # type: ignore[misc]
    else:
        done = "0"
        for rows in kernels:
            done = f.loop(done, "%rows", rows, part(rows), rows)
    f.lines.append("ret void")
    return f.define(f"void @{name}(i64 %rows, {_parameters(f.number)})")


def _half(f: _Function, count: str, most: int) -> str:
    """The count, or half of it, rounded up, where it is more than `most`."""
    both = f.op(f"icmp sgt i64 {count}, {most}")
    return f.op(f"select i1 {both}, i64 {f.i64('lshr', f.i64('add', count, 1), 1)}, i64 {count}")


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
    stride = f.i64("mul", "%vectors", width)

    def straight(p: str) -> None:
        row, to = f.at("%b", f.i64("mul", p, "%b.row")), f.at("%panel", f.i64("mul", p, stride))

        def whole(v: str) -> None:
            offset = f.i64("mul", v, width)
            f.store(f.load(f.at(row, offset)), f.at(to, offset))

        def last(v: str) -> None:
            offset, left = f.i64("mul", v, width), f.i64("sub", "%columns", f.i64("mul", v, f.lanes))
            f.store(f.masked_load(f.at(row, offset), f.mask(0, left)), f.at(to, offset))

        f.loop(f.loop("0", f.i64("udiv", "%columns", f.lanes), 1, whole), "%vectors", 1, last)

    def by_vector(v: str) -> None:
        first, last = f.i64("mul", v, f.lanes), f.i64("sub", "%columns", 1)
        columns = []
        for i in range(f.lanes):  # beyond the last column that one again: nobody looks at what comes of it
            column = f.call("llvm.smin.i64", "i64", ("i64", f.i64("add", first, i)), ("i64", last))
            columns.append(f.at("%b", f.i64("mul", column, "%b.row")))
        to = f.at("%panel", f.i64("mul", v, width))

        def square(p: str) -> None:
            offset = f.i64("mul", p, f.size)
            vectors = _transposed(f, [f.load(f.at(column, offset)) for column in columns])
            row = f.at(to, f.i64("mul", p, stride))
            for i, vector in enumerate(vectors):
                f.store(vector, row if i == 0 else f.at(row, f.i64("mul", stride, i)))

        def single(p: str) -> None:
            offset, vector = f.i64("mul", p, f.size), "poison"
            for i, column in enumerate(columns):
                number = f.op(f"load {f.number}, ptr {f.at(column, offset)}, align {f.size}")
                vector = f.op(f"insertelement {f.vector} {vector}, {f.number} {number}, i32 {i}")
            f.store(vector, f.at(to, f.i64("mul", p, stride)))

        f.loop(f.loop("0", "%terms", f.lanes, square, f.lanes), "%terms", 1, single)

    if turned:
        f.loop("0", "%vectors", 1, by_vector)
    else:
        f.loop("0", "%terms", 1, straight)
    f.lines.append("ret void")
    return f.define(f"void @{name}(ptr %b, i64 %b.row, i64 %terms, i64 %columns, i64 %vectors, ptr %panel)")


def _least(f: _Function, a: str, b: str | int) -> str:
    return f.call("llvm.smin.i64", "i64", ("i64", a), ("i64", str(b)))


class _Plan(NamedTuple):
    """How a product is cut, as texts.  stretch: terms; rows: of a block; several: whether there are several blocks; columns: of which
    panels are kept, where there are; slab: bytes of these, or of the only panel."""

    stretch: str
    rows: str
    several: str
    columns: str
    slab: str


def _plan(f: _Function) -> _Plan:
    """The parts of %m, %n and %k, of about one length each.  Where a sum is cut follows from %k alone."""

    def parts(size: str, most: int, multiple: int) -> str:
        count = f.i64("udiv", f.i64("add", size, most - 1), most)
        return _rounded_up(f, f.i64("udiv", f.i64("add", size, f.i64("sub", count, 1)), count), multiple)

    stretch = parts("%k", _STRETCH, f.lanes)
    several = f.op(f"icmp sgt i64 %m, {_BLOCK}")
    kept = _least(f, _rounded_up(f, "%n", f.wide), _SLAB)
    in_panels = f.op(f"select i1 {several}, i64 {kept}, i64 {f.wide}")
    return _Plan(
        stretch=stretch,
        rows=parts("%m", _BLOCK, _ROWS),
        several=several,
        columns=f.op(f"select i1 {several}, i64 {kept}, i64 %n"),
        slab=f.i64("mul", f.i64("mul", stretch, f.size), in_panels),
    )


def _rounded_up(f: _Function, value: str, multiple: int) -> str:
    return f.i64("mul", f.i64("udiv", f.i64("add", value, multiple - 1), multiple), multiple)


def _scratch(f: _Function, name: str) -> str:
    """The bytes of memory of its own that a product needs."""
    plan = _plan(f)
    block = f.i64("mul", f.i64("mul", plan.rows, plan.stretch), f.size)
    beside = f.op(f"icmp sge i64 %n, {_PANELS_TURNED * f.wide}")
    left = f.op(f"select i1 {beside}, i64 {block}, i64 0")
    few = f.i64("mul", _rounded_up(f, "%k", f.lanes), f.tile.thin * f.size)  # of a thin one
    most = f.call("llvm.smax.i64", "i64", ("i64", f.i64("add", plan.slab, left)), ("i64", few))
    f.lines.append(f"ret i64 {f.i64('add', most, _VECTOR)}")
    return f.define(f"i64 @{name}(i64 %m, i64 %n, i64 %k)")


def _product(f: _Function, name: str, one: str, names: dict[str, str]) -> str:
    """The whole: slabs of columns, stretches of terms, blocks of rows, panels."""
    wide, kinds = f.wide, f.tile.kinds
    plan = _plan(f)
    address = f.op("ptrtoint ptr %scratch to i64")
    up = f.i64("add", address, _VECTOR - 1)
    panels = f.op(f"inttoptr i64 {f.op(f'and i64 {up}, {-_VECTOR}')} to ptr")
    left = f.at(panels, plan.slab)
    down, across, line = (f.op(f"mul i64 %{x}, {f.size}") for x in ("lda", "ldb", "ldc"))
    a_straight, b_straight = (f.op(f"icmp eq i32 %turned.{x}, {blas.NO_TRANSPOSE}") for x in "ab")
    a_row = f.op(f"select i1 {a_straight}, i64 {down}, i64 {f.size}")
    a_term = f.op(f"select i1 {a_straight}, i64 {f.size}, i64 {down}")
    b_term = f.op(f"select i1 {b_straight}, i64 {across}, i64 {f.size}")
    b_column = f.op(f"select i1 {b_straight}, i64 {f.size}, i64 {across}")
    far = f.op(f"select i1 {a_straight}, i64 {_PANELS * wide}, i64 {_PANELS_TURNED * wide}")
    beside = f.op(f"icmp sge i64 %n, {far}")
    few = f.op(f"icmp sle i64 %m, {_FEW}")
    near = f.op(f"and i1 {few}, {b_straight}")

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
        return f.i64("mul", vectors, f.lanes * f.size), labels["packed"]

    def packed_left(a: str, rows: str, terms: str) -> tuple[str, str, str]:
        """(where a block is read, bytes from row to row, bytes from term to term)."""
        before, (pack, read) = f.block, (f.label("pack"), f.label("read"))
        f.branch(beside, pack, read)
        f.begin(pack)
        vectors = f.op(f"udiv i64 {f.op(f'add i64 {terms}, {f.lanes - 1}')}, {f.lanes}")
        stride, packed = packed_rows(a_straight, a, down, rows, terms, vectors, left)
        f.go(read)
        f.begin(read)
        pairs = (("ptr", a, left), ("i64", a_row, stride), ("i64", a_term, str(f.size)))
        where, row, term = (f.op(f"phi {kind} [ {there}, %{before} ], [ {here}, %{packed} ]") for kind, there, here in pairs)
        return where, row, term

    def panel(first: str, beyond: str) -> tuple[str, str, str]:
        """(columns, whether these are all of a whole panel, vectors) of the panel that begins with a column."""
        count = _least(f, f.i64("sub", beyond, first), wide)
        vectors = "1"
        for some in sorted(f.tile.rows)[:-1]:
            more = f.op(f"icmp sgt i64 {count}, {some * f.lanes}")
            following = min(v for v in f.tile.rows if v > some)
            vectors = f.op(f"select i1 {more}, i64 {following}, i64 {vectors}")
        return count, f.op(f"icmp eq i64 {count}, {wide}"), vectors

    def slab(first: str) -> None:
        width = _least(f, f.i64("sub", "%n", first), plan.columns)
        b_slab, c_slab = f.at("%b", f.i64("mul", first, b_column)), f.at("%c", f.i64("mul", first, f.size))

        def stretch(p: str) -> None:
            terms = _least(f, f.i64("sub", "%k", p), plan.stretch)
            b_stretch = f.at(b_slab, f.i64("mul", p, b_term))
            begins = f.op(f"icmp eq i64 {p}, 0")
            beta = f.op(f"select i1 {begins}, {f.number} %beta, {f.number} {one}")
            size = f.i64("mul", plan.stretch, f.size)  # bytes that a column has in a panel
            pack, blocks = f.label("all"), f.label("blocks")
            f.branch(plan.several, pack, blocks)
            f.begin(pack)

            def kept(j: str) -> None:
                count, _, vectors = panel(j, width)
                b, to = f.at(b_stretch, f.i64("mul", j, b_column)), f.at(panels, f.i64("mul", j, size))
                packed_rows(b_straight, b, across, terms, count, vectors, to)

            f.loop("0", width, wide, kept)
            f.go(blocks)
            f.begin(blocks)

            def block(i: str) -> None:
                rows = _least(f, f.i64("sub", "%m", i), plan.rows)
                a_here = f.at(f.at("%a", f.i64("mul", i, a_row)), f.i64("mul", p, a_term))
                c_block = f.at(c_slab, f.i64("mul", i, line))
                a, row, term = packed_left(a_here, rows, terms)

                def columns(j: str) -> None:
                    count, is_whole, vectors = panel(j, width)
                    b, c = f.at(b_stretch, f.i64("mul", j, b_column)), f.at(c_block, f.i64("mul", j, f.size))
                    labels = {kind: f.label(kind) for kind in (*kinds, "look", "pack", "switch", "done")}
                    own = f.at(panels, f.i64("mul", j, size))
                    stride = f.i64("mul", vectors, f.lanes * f.size)
                    direct = f.op(f"and i1 {near}, {is_whole}")
                    before = f.block
                    f.branch(plan.several, labels["switch"], labels["look"])
                    f.begin(labels["look"])
                    f.branch(direct, labels["switch"], labels["pack"])
                    f.begin(labels["pack"])
                    packed_term, packed = packed_rows(b_straight, b, across, terms, count, vectors, panels)
                    f.go(labels["switch"])
                    f.begin(labels["switch"])
                    places = ((own, stride, before), (b, b_term, labels["look"]), (panels, packed_term, packed))
                    source = f.op("phi ptr " + ", ".join(f"[ {where}, %{block} ]" for where, _, block in places))
                    step = f.op("phi i64 " + ", ".join(f"[ {bytes_}, %{block} ]" for _, bytes_, block in places))
                    kind = f.op(f"select i1 {is_whole}, i64 0, i64 {vectors}")
                    cases = " ".join(
                        f"i64 {v if ends else 0}, label %{labels[name]}" for name, (v, ends) in kinds.items() if v > 1
                    )
                    f.lines.append(f"switch i64 {kind}, label %{labels[[*kinds][-1]]} [ {cases} ]")
                    given = _parameters(f.number, **{
                        "terms": terms, "a": a, "a.row": row, "a.term": term, "b": source, "b.term": step, "c": c, "c.row": line,
                        "beta": beta, "columns": count,
                    })  # fmt: skip
                    for name in kinds:
                        f.begin(labels[name])
                        f.lines.append(f"call void @{names[name]}(i64 {rows}, {given})")
                        f.go(labels["done"])
                    f.begin(labels["done"])

                f.loop("0", width, wide, columns)

            f.loop("0", "%m", plan.rows, block)

        f.loop("0", "%k", plan.stretch, stretch)

    f.loop("0", "%n", plan.columns, slab)
    f.lines.append("ret void")
    sizes = "i32 %order, i32 %turned.a, i32 %turned.b, i64 %m, i64 %n, i64 %k"
    operands = f"{f.number} %alpha, ptr %a, i64 %lda, ptr %b, i64 %ldb, {f.number} %beta, ptr %c, i64 %ldc"
    return f.define(f"void @{name}({sizes}, {operands}, ptr %scratch)")


_DOTS: Final = (
    ("i64", "terms"), ("ptr", "x"), ("i64", "x.row"), ("ptr", "w"), ("i64", "w.row"), ("ptr", "c"), ("i64", "c.x"), ("i64", "c.w"),
    ("N", "alpha"), ("N", "beta"),
)  # fmt: skip
"""Parameters of a kernel of thin products.  c.x, c.w: bytes in the result from a row of x, or of w, to the next."""


def _dots_parameters(number: str, **instead: str) -> str:
    return ", ".join(f"{number if kind == 'N' else kind} {instead.get(name, f'%{name}')}" for kind, name in _DOTS)


def _dots(f: _Function, name: str, few: int, many: int) -> str:
    """Inner products of rows of x by rows of w: a vector of sums for each, whose lanes are added up in the end."""
    width = f.lanes * f.size
    xs = [f.at("%x", 0 if r == 0 else f.i64("mul", "%x.row", r)) for r in range(few)]
    ws = [f.at("%w", 0 if r == 0 else f.i64("mul", "%w.row", r)) for r in range(many)]
    count = few * many

    def step(left: list[str], right: list[str], sums: Sequence[str]) -> list[str]:
        return [f.fma(left[i], right[j], sums[i * many + j]) for i in range(few) for j in range(many)]

    whole = f.i64("udiv", "%terms", f.lanes)
    f.branch(f.op(f"icmp ne i64 {whole}, 0"), "vector", "rest")
    f.begin("vector")
    at = len(f.lines)
    i, offset = f.name(), f.name()
    carried = [f.name() for _ in range(count)]
    found = step([f.load(f.at(x, offset)) for x in xs], [f.load(f.at(w, offset)) for w in ws], carried)
    after, following = f.i64("sub", i, 1), f.i64("add", offset, width)
    f.lines[at:at] = [
        f"{i} = phi i64 [ {whole}, %entry ], [ {after}, %vector ]",
        f"{offset} = phi i64 [ 0, %entry ], [ {following}, %vector ]",
        *[f"{x} = phi {f.vector} [ zeroinitializer, %entry ], [ {y}, %vector ]" for x, y in zip(carried, found, strict=True)],
    ]
    f.branch(f.op(f"icmp ne i64 {after}, 0"), "vector", "rest")
    f.begin("rest")
    end = f.op(f"phi i64 [ 0, %entry ], [ {following}, %vector ]")
    so_far = [f.op(f"phi {f.vector} [ zeroinitializer, %entry ], [ {x}, %vector ]") for x in found]
    left = f.i64("sub", "%terms", f.i64("mul", whole, f.lanes))
    f.branch(f.op(f"icmp ne i64 {left}, 0"), "part", "finish")
    f.begin("part")
    mask = f.mask(0, left)
    last = step([f.masked_load(f.at(x, end), mask) for x in xs], [f.masked_load(f.at(w, end), mask) for w in ws], so_far)
    f.go("finish")
    f.begin("finish")
    sums = [f.op(f"phi {f.vector} [ {x}, %rest ], [ {y}, %part ]") for x, y in zip(so_far, last, strict=True)]
    alpha = f.splat("%alpha")
    numbers: list[str] = []
    for first in range(0, count, f.lanes):
        group = sums[first : first + f.lanes]
        totals = f.op(f"fmul {f.vector} {alpha}, {_added_up(f, group + ['zeroinitializer'] * (f.lanes - len(group)))}")
        numbers += [f.op(f"extractelement {f.vector} {totals}, i32 {lane}") for lane in range(len(group))]
    lines = [f.at("%c", 0 if r == 0 else f.i64("mul", "%c.x", r)) for r in range(few)]
    places = [f.at(lines[r], 0 if j == 0 else f.i64("mul", "%c.w", j)) for r in range(few) for j in range(many)]
    f.branch(f.op(f"fcmp une {f.number} %beta, 0.0"), "add", "fresh")
    f.begin("add")
    for number, place in zip(numbers, places, strict=True):
        old = f.op(f"load {f.number}, ptr {place}, align {f.size}")
        total = f.op(f"fadd {f.number} {f.op(f'fmul {f.number} %beta, {old}')}, {number}")
        f.lines.append(f"store {f.number} {total}, ptr {place}, align {f.size}")
    f.lines.append("ret void")
    f.begin("fresh")
    f.lines += [f"store {f.number} {x}, ptr {place}, align {f.size}" for x, place in zip(numbers, places, strict=True)]
    f.lines.append("ret void")
    return f.define(f"void @{name}({_dots_parameters(f.number)})")


def _added_up(f: _Function, vectors: list[str]) -> str:
    """The sums over the lanes of as many vectors as each has lanes, as one vector: what _transposed does, added up at each step."""
    n, half = f.lanes, f.lanes // 2
    low, high = (", ".join(f"i32 {i + at}, i32 {i + at + n}" for i in range(half)) for at in (0, half))
    while len(vectors) > 1:
        middle = len(vectors) // 2
        pairs = zip(vectors[:middle], vectors[middle:], strict=True)
        vectors = [
            f.op(
                f"fadd {f.vector} "
                + ", ".join(f.op(f"shufflevector {f.vector} {a}, {f.vector} {b}, <{n} x i32> <{order}>") for order in (low, high))
            )
            for a, b in pairs
        ]
    return vectors[0]


def _thin(f: _Function, name: str, one: str, kernels: dict[tuple[int, int], str], turn: str) -> str:
    """A product of few rows by a matrix that is stored transposed, or of a matrix that is not by few columns: inner products."""
    by_rows = f.op(f"icmp ne i32 %turned.b, {blas.NO_TRANSPOSE}")
    by_rows = f.op(f"and i1 {by_rows}, {f.op(f'icmp sle i64 %m, {f.tile.thin}')}")

    def either(kind: str, yes: str, no: str) -> str:
        return f.op(f"select i1 {by_rows}, {kind} {yes}, {kind} {no}")

    few, many = either("i64", "%m", "%n"), either("i64", "%n", "%m")
    x, w, c = either("ptr", "%a", "%b"), either("ptr", "%b", "%a"), "%c"
    x_apart, w_row = (f.i64("mul", either("i64", *pair), f.size) for pair in (("%lda", "%ldb"), ("%ldb", "%lda")))
    line = f.i64("mul", "%ldc", f.size)
    c_x, c_w = either("i64", line, str(f.size)), either("i64", str(f.size), line)
    lies = [f.op(f"icmp {test} i32 %turned.{of}, {blas.NO_TRANSPOSE}") for test, of in (("eq", "a"), ("ne", "b"))]
    before = f.block
    f.branch(either("i1", *lies), "go", "pack")
    f.begin("pack")
    address = f.i64("and", f.i64("add", f.op("ptrtoint ptr %scratch to i64"), _VECTOR - 1), -_VECTOR)
    own = f.op(f"inttoptr i64 {address} to ptr")
    vectors = f.i64("udiv", f.i64("add", "%k", f.lanes - 1), f.lanes)
    f.lines.append(f"call void @{turn}(ptr {x}, i64 {x_apart}, i64 {few}, i64 %k, i64 {vectors}, ptr {own})")
    own_row = f.i64("mul", vectors, f.lanes * f.size)
    f.go("go")
    f.begin("go")
    x = f.op(f"phi ptr [ {x}, %{before} ], [ {own}, %pack ]")
    x_row = f.op(f"phi i64 [ {x_apart}, %{before} ], [ {own_row}, %pack ]")
    first = _half(f, few, f.tile.few)
    second = f.i64("sub", few, first)

    def stretch(p: str) -> None:
        terms, begins, offset = _least(f, f.i64("sub", "%k", p), _LONG), f.op(f"icmp eq i64 {p}, 0"), f.i64("mul", p, f.size)
        beta = f.op(f"select i1 {begins}, {f.number} %beta, {f.number} {one}")
        x_part, w_part = f.at(x, offset), f.at(w, offset)

        def part(beside: int) -> Callable[[str], None]:
            def call(j: str) -> None:
                w_here, c_here = f.at(w_part, f.i64("mul", j, w_row)), f.at(c, f.i64("mul", j, c_w))
                given = {"terms": terms, "x.row": x_row, "w": w_here, "w.row": w_row, "c.x": c_x, "c.w": c_w, "beta": beta}

                def rows(count: int, x_here: str, c_part: str) -> Callable[[], None]:
                    text = _dots_parameters(f.number, **given, x=x_here, c=c_part)
                    return lambda: f.lines.append(f"call void @{kernels[count, beside]}({text})")

                counts = sorted({count for count, _ in kernels})
                f.choose(first, {count: rows(count, x_part, c_here) for count in counts})
                x_there, c_there = f.at(x_part, f.i64("mul", first, x_row)), f.at(c_here, f.i64("mul", first, c_x))
                f.choose(second, {count: rows(count, x_there, c_there) for count in counts})

            return call

        f.loop(f.loop("0", many, _BESIDE, part(_BESIDE), _BESIDE), many, 1, part(1))

    f.loop("0", "%k", _LONG, stretch)
    f.lines.append("ret void")
    sizes = "i32 %order, i32 %turned.a, i32 %turned.b, i64 %m, i64 %n, i64 %k"
    operands = f"{f.number} %alpha, ptr %a, i64 %lda, ptr %b, i64 %ldb, {f.number} %beta, ptr %c, i64 %ldc"
    return f.define(f"void @{name}({sizes}, {operands}, ptr %scratch)")


def _is_thin(f: _Function, name: str) -> str:
    """Whether a product is thin: few rows by what is stored transposed, or few columns beside what is not."""
    rows, columns = (f.op(f"icmp sle i64 %{size}, {f.tile.thin}") for size in "mn")
    lies = [f.op(f"icmp {test} i32 %turned.{of}, {blas.NO_TRANSPOSE}") for test, of in (("ne", "b"), ("eq", "a"))]
    both = [f.op(f"and i1 {few}, {there}") for few, there in zip((rows, columns), lies, strict=True)]
    f.lines.append(f"ret i1 {f.op(f'or i1 {both[0]}, {both[1]}')}")
    return f.define(f"i1 @{name}(i32 %turned.a, i32 %turned.b, i64 %m, i64 %n)")


def scratch(name: str) -> str:
    """The function of (m, n, k) that gives the bytes of memory of its own which the product of this name needs."""
    return f"{name}_scratch"


def thin(name: str) -> str:
    """The function with the arguments of the product of this name that computes thin ones, by inner products of rows."""
    return f"{name}_thin"


def is_thin(name: str) -> str:
    """The function of (turned.a, turned.b, m, n) that tells whether `thin` computes such a product; then only it may: part of a thin
    product has the same bits in all of its parts, but other ones than `name` gives."""
    return f"{name}_is_thin"


def helper(dtype: DType, lanes: int, tile: Tile = OF_32, thin_only: bool = False) -> tuple[str, str, dict[str, str]]:
    """(name, definitions, declarations by symbol) of a function that computes what the CBLAS routine gemm does, for
    row-major matrices and at least one row, column and term; its last parameter is the address of memory of its own (`scratch`).

    lanes: elements of a vector, a power of 2.  thin_only: do not define the function, only what computes thin products
    (`thin`, `is_thin`, `scratch`)."""
    prefix = _prefix(dtype)
    parts, declarations, names = list[str](), dict[str, str](), dict[str, str]()

    def written(write: Callable[..., str], name: str, *given: object) -> str:
        f = _Function(dtype, lanes, tile)
        parts.append(write(f, name, *given))
        declarations.update(f.declarations)
        return name

    for kind in ("straight", "turned"):
        names[kind] = written(_pack, f"{prefix}_{kind}", kind == "turned")
    dots = {
        (few, many): written(_dots, f"{prefix}_dots_{few}_{many}", few, many)
        for many in (_BESIDE, 1)
        for few in range(1, tile.few + 1)
    }
    written(_thin, thin(prefix), constant(1.0, dtype), dots, names["turned"])
    written(_is_thin, is_thin(prefix))
    written(_scratch, scratch(prefix))
    if not thin_only:
        for kind, (vectors, ends) in tile.kinds.items():
            kernels = {rows: written(_kernel, f"{prefix}_{kind}_{rows}", rows, vectors, ends) for rows in tile.rows[vectors]}
            names[kind] = written(_rows_of_panel, f"{prefix}_{kind}", kernels)
        written(_product, prefix, constant(1.0, dtype), names)
    return prefix, "\n".join(parts), declarations


def _prefix(dtype: DType) -> str:
    """How the names of the functions for a dtype begin."""
    return f"packed_{'s' if dtype is float32 else 'd'}gemm"


def panel_functions(dtype: DType) -> tuple[str, ...]:
    """The names of the functions that multiply the rows of a block by a panel, and of those that fill panels."""
    return tuple(f"{_prefix(dtype)}_{kind}" for kind in (*KINDS, "straight", "turned"))


# What packed_windows.py packs for the same kernels.
ROWS, VECTORS, KINDS = OF_32.rows, OF_32.vectors, OF_32.kinds
BLOCK, VECTOR = _BLOCK, _VECTOR
VectorText = _Function
parameters, transposed = _parameters, _transposed


def kinds(number: str) -> str:
    """The types of a kernel's parameters."""
    return ", ".join(number if kind == "N" else kind for kind, _ in _TILE)
