"""Thin products: few rows by a matrix that is stored transposed, or a matrix that is not by few columns, as inner products of rows.

A kernel multiplies up to four rows by four others, a vector of sums for each pair, whose lanes are added up in the end; what is not stored
in rows is turned first (packed_products.py).  `thin` and `is_thin` name the functions that `write` writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tracejit.llvm import blas
from tracejit.llvm.vector_text import VECTOR, Tile, VectorText, half, least

__all__ = ["is_thin", "thin", "write"]

_BESIDE: Final = 4
"""Rows of the many that a kernel multiplies the few by."""
_LONG: Final = 4096
"""Terms that a kernel adds up at most, a vector of sums for each element."""

_DOTS: Final = (
    ("i64", "terms"), ("ptr", "x"), ("i64", "x.row"), ("ptr", "w"), ("i64", "w.row"), ("ptr", "c"), ("i64", "c.x"), ("i64", "c.w"),
    ("N", "alpha"), ("N", "beta"),
)  # fmt: skip
"""Parameters of a kernel of thin products.  c.x, c.w: bytes in the result from a row of x, or of w, to the next."""


def _dots_parameters(number: str, **instead: str) -> str:
    return ", ".join(f"{number if kind == 'N' else kind} {instead.get(name, f'%{name}')}" for kind, name in _DOTS)


def _dots(f: VectorText, name: str, few: int, many: int) -> str:
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


def _added_up(f: VectorText, vectors: list[str]) -> str:
    """The sums over the lanes of as many vectors as each has lanes, as one vector: what `transposed` does, added up at each step."""
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


def _thin(f: VectorText, name: str, one: str, kernels: dict[tuple[int, int], str], turn: str) -> str:
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
    address = f.i64("and", f.i64("add", f.op("ptrtoint ptr %scratch to i64"), VECTOR - 1), -VECTOR)
    own = f.op(f"inttoptr i64 {address} to ptr")
    vectors = f.i64("udiv", f.i64("add", "%k", f.lanes - 1), f.lanes)
    f.lines.append(f"call void @{turn}(ptr {x}, i64 {x_apart}, i64 {few}, i64 %k, i64 {vectors}, ptr {own})")
    own_row = f.i64("mul", vectors, f.lanes * f.size)
    f.go("go")
    f.begin("go")
    x = f.op(f"phi ptr [ {x}, %{before} ], [ {own}, %pack ]")
    x_row = f.op(f"phi i64 [ {x_apart}, %{before} ], [ {own_row}, %pack ]")
    first = half(f, few, f.tile.few)
    second = f.i64("sub", few, first)

    def stretch(p: str) -> None:
        terms, begins, offset = least(f, f.i64("sub", "%k", p), _LONG), f.op(f"icmp eq i64 {p}, 0"), f.i64("mul", p, f.size)
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


def _is_thin(f: VectorText, name: str) -> str:
    """Whether a product is thin: few rows by what is stored transposed, or few columns beside what is not."""
    rows, columns = (f.op(f"icmp sle i64 %{size}, {f.tile.thin}") for size in "mn")
    lies = [f.op(f"icmp {test} i32 %turned.{of}, {blas.NO_TRANSPOSE}") for test, of in (("ne", "b"), ("eq", "a"))]
    both = [f.op(f"and i1 {few}, {there}") for few, there in zip((rows, columns), lies, strict=True)]
    f.lines.append(f"ret i1 {f.op(f'or i1 {both[0]}, {both[1]}')}")
    return f.define(f"i1 @{name}(i32 %turned.a, i32 %turned.b, i64 %m, i64 %n)")


def thin(name: str) -> str:
    """The function with the arguments of the product of this name that computes thin ones, by inner products of rows."""
    return f"{name}_thin"


def is_thin(name: str) -> str:
    """The function of (turned.a, turned.b, m, n) that tells whether `thin` computes such a product; then only it may: part of a thin
    product has the same bits in all of its parts, but other ones than `name` gives."""
    return f"{name}_is_thin"


def write(written: Callable[..., str], prefix: str, tile: Tile, one: str, turn: str) -> None:
    """Write the functions of the product of a name.  written(write, name, *given): writes one.  one: the number 1, as text.  turn: the
    function that puts columns side by side as rows."""
    kernels = {
        (few, many): written(_dots, f"{prefix}_dots_{few}_{many}", few, many)
        for many in (_BESIDE, 1)
        for few in range(1, tile.few + 1)
    }
    written(_thin, thin(prefix), one, kernels, turn)
    written(_is_thin, is_thin(prefix))
