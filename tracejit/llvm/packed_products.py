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

Thin products, of few rows or columns, have kernels of their own (thin_products.py).

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
from tracejit.llvm import blas, thin_products
from tracejit.llvm.operations import constant
from tracejit.llvm.vector_text import OF_32, VECTOR, Tile, VectorText, half, least, transposed

__all__ = ["BLOCK", "helper", "kinds", "panel_functions", "parameters", "scratch"]

_STRETCH: Final = 384
"""Terms that are added up in registers at most, and rows of a panel: it has 96 KB of four vectors of 64 bytes."""
BLOCK: Final = 384
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
_FEW: Final = 24
"""Rows for which a panel is read where it lies: to put it side by side costs as much as to read it some times."""


_KERNEL: Final = (
    ("i64", "terms"), ("ptr", "a"), ("i64", "a.row"), ("i64", "a.term"), ("ptr", "b"), ("i64", "b.term"), ("ptr", "c"), ("i64", "c.row"),
    ("N", "alpha"), ("N", "beta"), ("i64", "columns"),
)  # fmt: skip
"""Parameters of a kernel: distances in bytes, "N" stands for the type of an element."""


def parameters(number: str, **instead: str) -> str:
    """The parameters of a kernel, or what it is given: each by its own name unless there is something `instead`."""
    return ", ".join(f"{number if kind == 'N' else kind} {instead.get(name, f'%{name}')}" for kind, name in _KERNEL)


def _kernel(f: VectorText, name: str, rows: int, vectors: int, ends: bool) -> str:
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
    return f.define(f"void @{name}({parameters(f.number)})")


def _put(f: VectorText, value: str, place: str, mask: str) -> None:
    if mask:
        f.masked_store(value, place, mask)
    else:
        f.store(value, place)


def _rows_of_panel(f: VectorText, name: str, kernels: dict[int, str]) -> str:
    """All rows of a block of the left operand times a panel."""

    def part(rows: int) -> Callable[[str], None]:
        def call(i: str) -> None:
            a = f.at("%a", f.i64("mul", i, "%a.row"))
            c = f.at("%c", f.i64("mul", i, "%c.row"))
            f.lines.append(f"call void @{kernels[rows]}({parameters(f.number, a=a, c=c)})")

        return call

    most = max(kernels)
    if len(kernels) == most:  # there is one for each number of rows: the last ones are halved, few rows leave registers unused
        done = f.loop("0", "%rows", most, part(most), 2 * most)
        left = f.i64("sub", "%rows", done)
        first = half(f, left, most)
        f.choose(first, {rows: lambda rows=rows: part(rows)(done) for rows in kernels})  # type: ignore[misc]
        f.choose(f.i64("sub", left, first), {rows: lambda rows=rows: part(rows)(f.i64("add", done, first)) for rows in kernels})  # type: ignore[misc]
    else:
        done = "0"
        for rows in kernels:
            done = f.loop(done, "%rows", rows, part(rows), rows)
    f.lines.append("ret void")
    return f.define(f"void @{name}(i64 %rows, {parameters(f.number)})")


def _pack(f: VectorText, name: str, turned: bool) -> str:
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
            vectors = transposed(f, [f.load(f.at(column, offset)) for column in columns])
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


class _Plan(NamedTuple):
    """How a product is cut, as texts.  stretch: terms; rows: of a block; several: whether there are several blocks; columns: of which
    panels are kept, where there are; slab: bytes of these, or of the only panel."""

    stretch: str
    rows: str
    several: str
    columns: str
    slab: str


def _plan(f: VectorText) -> _Plan:
    """The parts of %m, %n and %k, of about one length each.  Where a sum is cut follows from %k alone."""

    def parts(size: str, most: int, multiple: int) -> str:
        count = f.i64("udiv", f.i64("add", size, most - 1), most)
        return _rounded_up(f, f.i64("udiv", f.i64("add", size, f.i64("sub", count, 1)), count), multiple)

    stretch = parts("%k", _STRETCH, f.lanes)
    several = f.op(f"icmp sgt i64 %m, {BLOCK}")
    kept = least(f, _rounded_up(f, "%n", f.wide), _SLAB)
    in_panels = f.op(f"select i1 {several}, i64 {kept}, i64 {f.wide}")
    return _Plan(
        stretch=stretch,
        rows=parts("%m", BLOCK, _ROWS),
        several=several,
        columns=f.op(f"select i1 {several}, i64 {kept}, i64 %n"),
        slab=f.i64("mul", f.i64("mul", stretch, f.size), in_panels),
    )


def _rounded_up(f: VectorText, value: str, multiple: int) -> str:
    return f.i64("mul", f.i64("udiv", f.i64("add", value, multiple - 1), multiple), multiple)


def _scratch(f: VectorText, name: str) -> str:
    """The bytes of memory of its own that a product needs."""
    plan = _plan(f)
    block = f.i64("mul", f.i64("mul", plan.rows, plan.stretch), f.size)
    beside = f.op(f"icmp sge i64 %n, {_PANELS_TURNED * f.wide}")
    left = f.op(f"select i1 {beside}, i64 {block}, i64 0")
    few = f.i64("mul", _rounded_up(f, "%k", f.lanes), f.tile.thin * f.size)  # of a thin one
    most = f.call("llvm.smax.i64", "i64", ("i64", f.i64("add", plan.slab, left)), ("i64", few))
    f.lines.append(f"ret i64 {f.i64('add', most, VECTOR)}")
    return f.define(f"i64 @{name}(i64 %m, i64 %n, i64 %k)")


def _product(f: VectorText, name: str, one: str, names: dict[str, str]) -> str:
    """The whole: slabs of columns, stretches of terms, blocks of rows, panels."""
    wide, kinds = f.wide, f.tile.kinds
    plan = _plan(f)
    address = f.op("ptrtoint ptr %scratch to i64")
    up = f.i64("add", address, VECTOR - 1)
    panels = f.op(f"inttoptr i64 {f.op(f'and i64 {up}, {-VECTOR}')} to ptr")
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
        count = least(f, f.i64("sub", beyond, first), wide)
        vectors = "1"
        for some in sorted(f.tile.rows)[:-1]:
            more = f.op(f"icmp sgt i64 {count}, {some * f.lanes}")
            following = min(v for v in f.tile.rows if v > some)
            vectors = f.op(f"select i1 {more}, i64 {following}, i64 {vectors}")
        return count, f.op(f"icmp eq i64 {count}, {wide}"), vectors

    def slab(first: str) -> None:
        width = least(f, f.i64("sub", "%n", first), plan.columns)
        b_slab, c_slab = f.at("%b", f.i64("mul", first, b_column)), f.at("%c", f.i64("mul", first, f.size))

        def stretch(p: str) -> None:
            terms = least(f, f.i64("sub", "%k", p), plan.stretch)
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
                rows = least(f, f.i64("sub", "%m", i), plan.rows)
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
                    given = parameters(f.number, **{
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


def scratch(name: str) -> str:
    """The function of (m, n, k) that gives the bytes of memory of its own which the product of this name needs."""
    return f"{name}_scratch"


def helper(dtype: DType, lanes: int, tile: Tile = OF_32, thin_only: bool = False) -> tuple[str, str, dict[str, str]]:
    """(name, definitions, declarations by symbol) of a function that computes what the CBLAS routine gemm does, for
    row-major matrices and at least one row, column and term; its last parameter is the address of memory of its own (`scratch`).

    lanes: elements of a vector, a power of 2.  thin_only: do not define the function, only what computes thin products
    (thin_products.py) and `scratch`."""
    prefix = _prefix(dtype)
    parts, declarations, names = list[str](), dict[str, str](), dict[str, str]()

    def written(write: Callable[..., str], name: str, *given: object) -> str:
        f = VectorText(dtype, lanes, tile)
        parts.append(write(f, name, *given))
        declarations.update(f.declarations)
        return name

    for kind in ("straight", "turned"):
        names[kind] = written(_pack, f"{prefix}_{kind}", kind == "turned")
    thin_products.write(written, prefix, tile, constant(1.0, dtype), names["turned"])
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
    return tuple(f"{_prefix(dtype)}_{kind}" for kind in (*OF_32.kinds, "straight", "turned"))


def kinds(number: str) -> str:
    """The types of a kernel's parameters."""
    return ", ".join(number if kind == "N" else kind for kind, _ in _KERNEL)
