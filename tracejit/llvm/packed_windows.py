"""Convolutions as products of matrices whose windows are copied panel by panel, and never lie in memory as a whole.

`product` is C[row, column] = the sum over channels and taps of left[row, channel, tap] * source[channel, column + tap].
A column is a position of an image, counted over all images; a tap is an element of the kernel.  Where the tap leads out
of the image there is a zero.  This is a convolution (source: its input), and the gradient of its input (source: that of
its results; for steps other than 1 one product for each remainder of a position by the step).  `weight` is the gradient
of the weight: dW[row, channel, tap] = the sum over columns of gradient[row, column] * source[channel, column + tap].

The kernels are those of packed_products.py.  Only how panels are filled is said here: for each tap, a vector of
columns is one load where its elements lie side by side, with a mask for those outside of the image, and a gather where
they do not.  (Compare Chetlur et al.: cuDNN: Efficient Primitives for Deep Learning, 2014, section 3.)

All sizes are data: a block of words (`WORDS`, then `TAP` words for each tap).  So a process has one such function for
each dtype, whatever convolutions there are.  Tasks follow from the sizes, and have all terms of their elements in the
same order: results do not depend on them, nor on the number of threads.  No pass of LLVM runs over the text.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from tracejit.core.convolutions import TAP, WORDS
from tracejit.core.dtypes import DType, float32
from tracejit.llvm import packed_products as packed
from tracejit.llvm.operations import constant
from tracejit.llvm.packed_products import VectorText
from tracejit.llvm.thread_pool_code import FIELDS, PARALLEL, POOL

__all__ = ["FORGET", "MEMORY", "VECTOR", "helpers", "scratch", "symbol"]

VECTOR: Final = packed.VECTOR
_GROUP: Final = 2048
"""Bytes of a row of the columns that a task has: so much of the result is in the second cache while it is added to."""
_STRETCH: Final = 144
"""Terms that `product` adds up in registers: then a panel is in the first cache when it is read.  16 channels of 3 x 3."""
_LINE: Final = _GROUP + 64
"""Bytes from row to row of that part of the result."""
_ARRAYS: Final = 5  # of 32-bit integers, one for each column: offset, z, y, x in the source; offset in the target
_DEAR: Final = 8
"""Multiplications that take as long as one of a depthwise convolution."""
_SHARES: Final = 32
"""Tasks of the groups of a depthwise convolution."""
_OUTSIDE: Final = -(1 << 30)
"""A coordinate that no tap brings into an image."""


def scratch(dtype: DType) -> int:
    """Bytes of memory that a task needs: a panel, a block of rows, a part of the result, and where its columns are."""
    panel = packed.STRETCH * packed.VECTORS * packed.VECTOR
    block = packed.BLOCK * packed.STRETCH * dtype.itemsize
    return packed.VECTOR + panel + block + packed.BLOCK * _LINE + _ARRAYS * 4 * (_GROUP // dtype.itemsize)


class _Text(VectorText):
    """What both functions are made of."""

    def __init__(self, dtype: DType, lanes: int) -> None:
        super().__init__(dtype, lanes)
        self.dtype = dtype
        self.wide = packed.VECTORS * lanes
        self.group = _GROUP // self.size  # columns
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

    def apart(self, offsets: str, inside: str) -> tuple[str, str]:
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


def _columns(f: _Text, name: str) -> str:
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
        for array, value in enumerate((0, _OUTSIDE, _OUTSIDE, _OUTSIDE, 0)):
            put(array, i, str(value))

    f.loop("0", "%count", 1, one)
    f.loop("%count", "%all", 1, none)
    f.lines.append(f"ret i64 {start}")
    return f.define(f"i64 @{name}(ptr %words, i64 %first, i64 %count, i64 %all, ptr %columns)")


def _windows(f: _Text, name: str) -> str:
    """Rows of windows, side by side: for each of %channels, for each of %taps, %vectors vectors of columns.

    source: the first channel of the first image; channel: bytes from channel to channel; line: bytes from row to row.  Where each
    vector has columns that follow one by one, rows are filled in the order of memory, by masks that are found out before; the columns
    that follow are asked for then.  Else it goes tap by tap, and gathers where it must."""
    w = f.words(*(f"{what}.{d}" for what in ("size", "source") for d in "zyx"))
    sizes = {d: f.integers(w[f"size.{d}"]) for d in "zyx"}
    of_channel = f.mul("%taps", "%line")
    bits, width = f"i{f.lanes}", f.lanes // 8
    most_vectors = packed.STRETCH // f.lanes
    begins, shifts, apart = (f.op(f"alloca [{n} x i64]") for n in (most_vectors, packed.BLOCK, 1))
    masks = f.op(f"alloca [{most_vectors * packed.BLOCK} x {bits}]")

    def arrays_of(v: str) -> list[str]:
        first = f.mul(v, f.lanes)
        return [f.op(f"load {f.indices}, ptr {f.column(array, '%columns', first)}, align 4") for array in range(4)]

    def moves_of(t: str) -> tuple[dict[str, str], str]:
        entry = f.at("%tap", f.mul(t, 8 * len(TAP)))
        moves = {d: f.op(f"load i64, ptr {f.at(entry, 8 * TAP.index(d))}") for d in "zyx"}
        return {d: f.integers(moves[d]) for d in "zyx"}, f.dot(*((moves[d], w[f"source.{d}"]) for d in "zyx"))

    def inside_of(arrays: list[str], vectors: dict[str, str]) -> str:
        inside = ""
        for d, own in zip("zyx", arrays[1:], strict=True):
            there = f.op(f"add {f.indices} {own}, {vectors[d]}")
            fits = f.op(f"icmp ult {f.indices} {there}, {sizes[d]}")
            inside = f.op(f"and {f.bits} {inside}, {fits}") if inside else fits
        return inside

    def begin_of(v: str) -> None:
        arrays = arrays_of(v)
        nowhere = f.integers(str(_OUTSIDE))
        begin, gathers = f.apart(arrays[0], f.op(f"icmp ne {f.indices} {arrays[3]}, {nowhere}"))
        f.lines.append(f"store i64 {f.mul(begin, f.size)}, ptr {f.at(begins, f.mul(v, 8))}")
        before = f.op(f"load i64, ptr {apart}")
        f.lines.append(f"store i64 {f.op(f'or i64 {before}, ' + f.op(f'zext i1 {gathers} to i64'))}, ptr {apart}")

    def in_order() -> None:
        def tap_of_all(t: str) -> None:
            vectors, shift = moves_of(t)
            f.lines.append(f"store i64 {f.mul(shift, f.size)}, ptr {f.at(shifts, f.mul(t, 8))}")
            row = f.at(masks, f.mul(t, most_vectors * width))

            def mask(v: str) -> None:
                found = f.op(f"bitcast {f.bits} {inside_of(arrays_of(v), vectors)} to {bits}")
                f.lines.append(f"store {bits} {found}, ptr {f.at(row, f.mul(v, width))}, align {width}")

            f.loop("0", "%vectors", 1, mask)

        def channel(c: str) -> None:
            own, to = f.at("%source", f.mul(c, "%channel")), f.at("%to", f.mul(c, of_channel))
            further = f.at(own, f.mul("%vectors", f.lanes * f.size))

            def ask(v: str) -> None:
                place = f.at(further, f.op(f"load i64, ptr {f.at(begins, f.mul(v, 8))}"))
                f.call("llvm.prefetch.p0", "void", ("ptr", place), ("i32", "0"), ("i32", "2"), ("i32", "1"))

            f.loop("0", "%vectors", 1, ask)

            def tap(t: str) -> None:
                shifted = f.at(own, f.op(f"load i64, ptr {f.at(shifts, f.mul(t, 8))}"))
                row, known = f.at(to, f.mul(t, "%line")), f.at(masks, f.mul(t, most_vectors * width))

                def vectors(count: int) -> Callable[[str], None]:
                    def copy(v: str) -> None:
                        first, place = f.at(begins, f.mul(v, 8)), f.at(row, f.mul(v, f.lanes * f.size))
                        mask = f.at(known, f.mul(v, width))
                        for i in range(count):
                            begin = f.op(f"load i64, ptr {f.at(first, 8 * i)}")
                            inside = f.op(f"load {bits}, ptr {f.at(mask, width * i)}, align {width}")
                            value = f.masked_load(f.at(shifted, begin), f.op(f"bitcast {bits} {inside} to {f.bits}"))
                            f.store(value, f.at(place, i * f.lanes * f.size))

                    return copy

                f.loop(f.loop("0", "%vectors", 4, vectors(4), 4), "%vectors", 1, vectors(1))

            f.loop("0", "%taps", 1, tap)

        f.loop("0", "%taps", 1, tap_of_all)
        f.loop("0", "%channels", 1, channel)

    def tap_by_tap() -> None:
        def tap(t: str) -> None:
            vectors, shift = moves_of(t)
            shifted, row = f.element("%source", shift), f.at("%to", f.mul(t, "%line"))

            def vector(v: str) -> None:
                arrays = arrays_of(v)
                inside = inside_of(arrays, vectors)
                begin, gathers = f.apart(arrays[0], inside)
                to = f.at(row, f.mul(v, f.lanes * f.size))

                def load(c: str) -> None:
                    here = f.at(f.element(shifted, begin), f.mul(c, "%channel"))
                    f.store(f.masked_load(here, inside), f.at(to, f.mul(c, of_channel)))

                def gather(c: str) -> None:
                    places = f.pointers(f.at(shifted, f.mul(c, "%channel")), arrays[0])
                    kinds = (
                        (f"<{f.lanes} x ptr>", places),
                        ("i32", str(f.size)),
                        (f.bits, inside),
                        (f.vector, "zeroinitializer"),
                    )
                    value = f.call(f"llvm.masked.gather.{f.suffix}.v{f.lanes}p0", f.vector, *kinds)
                    f.store(value, f.at(to, f.mul(c, of_channel)))

                f.when(gathers, f.each("%channels", gather), f.each("%channels", load))

            f.loop("0", "%vectors", 1, vector)

        f.loop("0", "%taps", 1, tap)

    f.lines.append(f"store i64 0, ptr {apart}")
    f.loop("0", "%vectors", 1, begin_of)
    some = f.op(f"icmp ne i64 {f.op(f'load i64, ptr {apart}')}, 0")
    f.when(some, tap_by_tap, in_order)
    f.lines.append("ret void")
    given = "ptr %words, ptr %source, i64 %channel, i64 %channels, ptr %tap, i64 %taps, ptr %columns, i64 %vectors"
    return f.define(f"void @{name}({given}, ptr %to, i64 %line)")


def _left(f: _Text, name: str, straight: str, turned: str) -> str:
    """A block of the left operand, side by side: for each row, for each channel, %taps taps.  The first is at %left."""
    w = f.words("taps", "left.row", "left.channel")
    terms = f.mul("%channels", "%taps")
    vectors = f.up(terms, f.lanes)
    line = f.mul(vectors, f.lanes * f.size)
    row, channel = (f.mul(w[f"left.{x}"], f.size) for x in ("row", "channel"))
    begin = f.op("load i64, ptr %tap")
    last = f.at("%tap", f.mul(f.sub("%taps", 1), 8 * len(TAP)))
    span = f.sub(f.op(f"load i64, ptr {last}"), begin)
    follows = f.op(f"icmp eq i64 {span}, {f.sub('%taps', 1)}")  # taps are in order: then they follow one by one
    left = f.element("%left", begin)
    beside = f.op(f"icmp eq i64 {w['left.channel']}, %taps")
    whole = f.op(f"and i1 {follows}, {beside}")
    single = f.op("icmp eq i64 %taps, 1")
    in_turn = f.op(f"icmp eq i64 {w['left.row']}, 1")
    below = f.op(f"and i1 {single}, {in_turn}")

    def by_tap() -> None:
        def channels(c: str) -> None:
            def rows(r: str) -> None:
                source = f.at(left, f.op(f"add i64 {f.mul(c, channel)}, {f.mul(r, row)}"))
                to = f.at("%to", f.op(f"add i64 {f.mul(r, line)}, {f.mul(f.mul(c, '%taps'), f.size)}"))

                def run() -> None:
                    def vector(t: str) -> None:
                        offset, mask = f.mul(t, f.size), f.mask(0, f.sub("%taps", t))
                        f.masked_store(f.masked_load(f.at(source, offset), mask), f.at(to, offset), mask)

                    f.loop("0", "%taps", f.lanes, vector)

                def one_by_one() -> None:
                    def tap(t: str) -> None:
                        offset = f.op(f"load i64, ptr {f.at('%tap', f.mul(t, 8 * len(TAP)))}")
                        number = f.op(f"load {f.number}, ptr {f.element(source, f.sub(offset, begin))}, align {f.size}")
                        f.lines.append(f"store {f.number} {number}, ptr {f.element(to, t)}, align {f.size}")

                    f.loop("0", "%taps", 1, tap)

                f.when(follows, run, one_by_one)

            f.loop("0", "%rows", 1, rows)

        f.loop("0", "%channels", 1, channels)

    def copied(symbol: str, apart: str) -> Callable[[], None]:
        sizes = (("i64", apart), ("i64", "%rows"), ("i64", terms), ("i64", vectors), ("ptr", "%to"))
        return lambda: f.void(symbol, ("ptr", left), *sizes)

    f.when(whole, copied(straight, row), lambda: f.when(below, copied(turned, channel), by_tap))
    f.lines.append(f"ret i64 {line}")
    return f.define(f"i64 @{name}(ptr %words, ptr %left, i64 %rows, i64 %channels, ptr %tap, i64 %taps, ptr %to)")


def _give(f: _Text, name: str) -> str:
    """A part of the result to where it belongs.  target: the first row of the first image."""
    row = f.mul(f.word("target.row"), f.size)

    def vector(v: str) -> None:
        first = f.mul(v, f.lanes)
        offsets = f.op(f"load {f.indices}, ptr {f.column(4, '%columns', first)}, align 4")
        narrow = f.op(f"trunc i64 {f.sub('%count', first)} to i32")
        one = f.op(f"insertelement {f.indices} poison, i32 {narrow}, i32 0")
        limit = f.op(f"shufflevector {f.indices} {one}, {f.indices} poison, {f.indices} zeroinitializer")
        numbers = ", ".join(f"i32 {i}" for i in range(f.lanes))
        inside = f.op(f"icmp slt {f.indices} <{numbers}>, {limit}")
        begin, scatters = f.apart(offsets, inside)
        own = f.at("%part", f.mul(v, f.lanes * f.size))

        def store(r: str) -> None:
            place = f.at(f.element("%target", begin), f.mul(r, row))
            f.masked_store(f.load(f.at(own, f.mul(r, _LINE))), place, inside)

        def scatter(r: str) -> None:
            places = f.pointers(f.at("%target", f.mul(r, row)), offsets)
            value = f.load(f.at(own, f.mul(r, _LINE)))
            kinds = ((f.vector, value), (f"<{f.lanes} x ptr>", places), ("i32", str(f.size)), (f.bits, inside))
            f.call(f"llvm.masked.scatter.{f.suffix}.v{f.lanes}p0", "void", *kinds)

        f.when(scatters, f.each("%rows", scatter), f.each("%rows", store))

    f.loop("0", f.up("%count", f.lanes), 1, vector)
    f.lines.append("ret void")
    return f.define(f"void @{name}(ptr %words, ptr %part, i64 %rows, i64 %count, ptr %columns, ptr %target)")


def _turned_out(f: _Text, name: str) -> str:
    """A part of dW, of which %part has the transpose, to where it belongs: %rows elements of each of %outputs."""
    line = f.mul(f.word("left.row"), f.size)

    def outputs(o: str) -> None:
        def square(r: str) -> None:
            here = f.at("%part", f.op(f"add i64 {f.mul(r, _LINE)}, {f.mul(o, f.size)}"))
            vectors = packed.transposed(f, [f.load(f.at(here, i * _LINE)) for i in range(f.lanes)])
            there = f.at("%target", f.op(f"add i64 {f.mul(o, line)}, {f.mul(r, f.size)}"))
            for i, vector in enumerate(vectors):
                f.store(vector, there if i == 0 else f.at(there, f.mul(line, i)))

        rest(f.loop("0", "%rows", f.lanes, square, f.lanes), o, str(f.lanes))

    def rest(first: str, o: str, count: str) -> None:
        def row(r: str) -> None:
            def single(i: str) -> None:
                own = f.add(o, i)
                here = f.at("%part", f.op(f"add i64 {f.mul(r, _LINE)}, {f.mul(own, f.size)}"))
                number = f.op(f"load {f.number}, ptr {here}, align {f.size}")
                there = f.at("%target", f.op(f"add i64 {f.mul(own, line)}, {f.mul(r, f.size)}"))
                f.lines.append(f"store {f.number} {number}, ptr {there}, align {f.size}")

            f.loop("0", count, 1, single)

        f.loop(first, "%rows", 1, row)

    done = f.loop("0", "%outputs", f.lanes, outputs, f.lanes)
    rest("0", done, f.sub("%outputs", done))
    f.lines.append("ret void")
    return f.define(f"void @{name}(ptr %words, ptr %part, i64 %rows, i64 %outputs, ptr %target)")


def _multiply(f: _Text, names: dict[str, str], count: str, **given: str) -> None:
    """Rows of a block times a panel of %count columns, by the kernel of their number."""
    labels = {kind: f.label(kind) for kind in (*packed.KINDS, "done")}
    is_whole = f.op(f"icmp eq i64 {count}, {f.wide}")
    kind = f.either(is_whole, "i64", "0", _vectors(f, count))
    cases = " ".join(
        f"i64 {0 if not ends else v}, label %{labels[name]}" for name, (v, ends) in packed.KINDS.items() if name != "part"
    )
    f.lines.append(f"switch i64 {kind}, label %{labels['part']} [ {cases} ]")
    for name in packed.KINDS:
        f.begin(labels[name])
        f.lines.append(f"call void @{names[name]}(i64 {given['rows']}, {packed.parameters(f.number, **given, columns=count)})")
        f.go(labels["done"])
    f.begin(labels["done"])


def _vectors(f: _Text, count: str) -> str:
    """Of a panel of so many columns."""
    two, four = f.op(f"icmp sgt i64 {count}, {f.lanes}"), f.op(f"icmp sgt i64 {count}, {2 * f.lanes}")
    return f.either(four, "i64", str(packed.VECTORS), f.either(two, "i64", "2", "1"))


def _memory(f: _Text) -> tuple[str, str, str, str]:
    """(panel, block, part, columns) in %scratch."""
    address = f.op("ptrtoint ptr %scratch to i64")
    even = f.op(f"and i64 {f.add(address, packed.VECTOR - 1)}, {-packed.VECTOR}")
    panel = f.op(f"inttoptr i64 {even} to ptr")
    block = f.at(panel, packed.STRETCH * packed.VECTORS * packed.VECTOR)
    part = f.at(block, packed.BLOCK * packed.STRETCH * f.size)
    return panel, block, part, f.at(part, packed.BLOCK * _LINE)


def _stretches(f: _Text, longest: int, body: Callable[[str, str, str, str], None]) -> None:
    """body(first channel, channels, first tap, taps) for parts of the terms: whole channels where their taps are few enough."""
    channels, taps = f.word("channels"), f.word("taps")
    few = f.least(taps, longest)
    many = f.most(f.op(f"udiv i64 {longest}, {taps}"), 1)

    def by_channel(c: str) -> None:
        own = f.least(f.sub(channels, c), many)
        f.loop("0", taps, few, lambda t: body(c, own, t, f.least(f.sub(taps, t), few)))

    f.loop("0", channels, many, by_channel)


def _product_task(f: _Text, name: str, *, one: str, names: dict[str, str]) -> str:
    """Rows from %row on, of columns from %column on, of a group.  a, b, c: left operand, source and target of the group."""
    panel, block, part, columns = _memory(f)
    w = f.words("positions", "taps", "source.image", "source.channel", "left.row", "left.channel", "target.image", "target.row")
    taps = f.at("%words", 8 * len(WORDS))
    image = f.call_own("i64", names["columns"], ("ptr", "%words"), ("i64", "%column"), ("i64", "%count"),
                       ("i64", f.mul(f.up("%count", f.wide), f.wide)), ("ptr", columns))  # fmt: skip
    source = f.element("%b", f.mul(image, w["source.image"]))
    target = f.element("%c", f.op(f"add i64 {f.mul(image, w['target.image'])}, {f.mul('%row', w['target.row'])}"))
    at = f.op(f"urem i64 %column, {w['positions']}")
    direct = f.op("icmp ne i64 %direct, 0")
    # a target whose columns lie side by side, and whose panels are each within an image, is added to where it is
    line = f.either(direct, "i64", f.mul(w["target.row"], f.size), str(_LINE))
    left = f.element("%a", f.mul("%row", w["left.row"]))
    channel = f.mul(w["source.channel"], f.size)

    def stretch(c: str, channels: str, t: str, few: str) -> None:
        tap = f.at(taps, f.mul(t, 8 * len(TAP)))
        here = f.element(left, f.mul(c, w["left.channel"]))
        row = f.call_own("i64", names["left"], ("ptr", "%words"), ("ptr", here), ("i64", "%rows"), ("i64", channels), ("ptr", tap),
                         ("i64", few), ("ptr", block))  # fmt: skip
        begins = f.op(f"icmp eq i64 {f.add(c, t)}, 0")
        beta = f.either(begins, f.number, constant(0.0, f.dtype), one)
        own = f.at(source, f.mul(c, channel))

        def one_panel(j: str) -> None:
            count = f.least(f.sub("%count", j), f.wide)
            vectors = _vectors(f, count)
            step = f.mul(vectors, f.lanes * f.size)
            f.void(names["windows"], ("ptr", "%words"), ("ptr", own), ("i64", channel), ("i64", channels), ("ptr", tap), ("i64", few),
                   ("ptr", f.column(0, columns, j)), ("i64", vectors), ("ptr", panel), ("i64", step))  # fmt: skip
            last = f.add(at, j)
            beyond = f.op(f"udiv i64 {last}, {w['positions']}")
            inside = f.op(f"urem i64 {last}, {w['positions']}")
            placed = f.element(target, f.add(f.mul(beyond, w["target.image"]), inside))
            result = f.either(direct, "ptr", placed, f.element(part, j))
            _multiply(
                f, names, count, rows="%rows", terms=f.mul(channels, few), a=block, **{"a.row": row, "a.term": str(f.size)},
                b=panel, **{"b.term": step}, c=result, **{"c.row": line}, alpha=one, beta=beta,
            )  # fmt: skip

        f.loop("0", "%count", f.wide, one_panel)

    _stretches(f, _STRETCH, stretch)

    def give() -> None:
        f.void(
            names["give"],
            ("ptr", "%words"),
            ("ptr", part),
            ("i64", "%rows"),
            ("i64", "%count"),
            ("ptr", columns),
            ("ptr", target),
        )

    f.when(direct, lambda: None, give)
    f.lines.append("ret void")
    given = "ptr %words, ptr %a, ptr %b, ptr %c, i64 %row, i64 %rows, i64 %column, i64 %count, i64 %direct"
    return f.define(f"void @{name}({given}, ptr %scratch)")


def _weight_task(f: _Text, name: str, *, one: str, names: dict[str, str]) -> str:
    """Of dW, %taps taps of %channels channels for %outputs rows of the gradient.  a, b, c: gradient, source and dW of the group."""
    panel, block, part, columns = _memory(f)
    w = f.words("images", "positions", "source.image", "source.channel", "left.row", "left.channel", "target.image", "target.row")
    total = f.mul(w["images"], w["positions"])
    tap = f.at("%words", f.add(f.mul("%tap", 8 * len(TAP)), 8 * len(WORDS)))
    channel, row = f.mul(w["source.channel"], f.size), f.mul(w["target.row"], f.size)
    own = f.at("%b", f.mul("%channel", channel))
    gradient = f.at("%a", f.mul("%output", row))
    line = packed.STRETCH * f.size
    rows = f.mul("%channels", "%taps")

    def stretch(s: str) -> None:
        terms = f.least(f.sub(total, s), packed.STRETCH)
        vectors = f.up(terms, f.lanes)
        image = f.call_own("i64", names["columns"], ("ptr", "%words"), ("i64", s), ("i64", terms), ("i64", f.mul(vectors, f.lanes)),
                           ("ptr", columns))  # fmt: skip
        source = f.element(own, f.mul(image, w["source.image"]))
        f.void(names["windows"], ("ptr", "%words"), ("ptr", source), ("i64", channel), ("i64", "%channels"), ("ptr", tap),
               ("i64", "%taps"), ("ptr", columns), ("i64", vectors), ("ptr", block), ("i64", str(line)))  # fmt: skip
        at = f.op(f"urem i64 {s}, {w['positions']}")
        images = f.up(f.add(at, terms), w["positions"])
        beta = f.either(f.op(f"icmp eq i64 {s}, 0"), f.number, constant(0.0, f.dtype), one)

        def one_panel(j: str) -> None:
            count = f.least(f.sub("%outputs", j), f.wide)
            width = _vectors(f, count)
            step = f.mul(width, f.lanes * f.size)
            outputs = f.at(gradient, f.mul(j, row))

            def of_image(k: str) -> None:
                begin = f.sub(f.mul(k, w["positions"]), at)
                first, end = f.most(begin, 0), f.least(f.add(begin, w["positions"]), terms)
                there = f.op(f"add i64 {f.mul(f.add(image, k), w['target.image'])}, {f.sub(first, begin)}")
                f.void(names["turned"], ("ptr", f.element(outputs, there)), ("i64", row), ("i64", f.sub(end, first)), ("i64", count),
                       ("i64", width), ("ptr", f.at(panel, f.mul(first, step))))  # fmt: skip

            f.loop("0", images, 1, of_image)
            _multiply(
                f, names, count, rows=rows, terms=terms, a=block, **{"a.row": str(line), "a.term": str(f.size)},
                b=panel, **{"b.term": step}, c=f.element(part, j), **{"c.row": str(_LINE)}, alpha=one, beta=beta,
            )  # fmt: skip

        f.loop("0", "%outputs", f.wide, one_panel)

    f.loop("0", total, packed.STRETCH, stretch)
    there = f.dot(("%output", w["left.row"]), ("%channel", w["left.channel"]), (f.op(f"load i64, ptr {tap}"), "1"))
    f.void(names["out"], ("ptr", "%words"), ("ptr", part), ("i64", rows), ("i64", "%outputs"), ("ptr", f.element("%c", there)))
    f.lines.append("ret void")
    given = "ptr %words, ptr %a, ptr %b, ptr %c, i64 %channel, i64 %channels, i64 %tap, i64 %taps, i64 %output, i64 %outputs"
    return f.define(f"void @{name}({given}, ptr %scratch)")


def _depthwise_task(f: _Text, name: str, *, names: dict[str, str], turned: bool) -> str:
    """Groups of one row and one channel, %count of them from %first on.  turned: the weight's gradient.

    Where columns are, and which of them have an element for a tap, is found out once for all images and groups."""
    _, masks, sums, columns = _memory(f)
    w = f.words("taps", "images", "positions", *(f"{what}.{d}" for what in ("size", "source") for d in "zyx"),
                *(f"{what}.{which}" for what in ("source", "target") for which in ("group", "image")), "left.group")  # fmt: skip
    tap_words = f.at("%words", 8 * len(WORDS))
    shifts = f.at(sums, f.mul(w["taps"], packed.VECTOR))  # of each tap, in bytes
    sizes = {d: f.integers(w[f"size.{d}"]) for d in "zyx"}
    mask, width, slot = f"i{f.lanes}", f.lanes // 8, f.op(f"alloca {f.vector}")

    def tap_moves(t: str) -> dict[str, str]:
        entry = f.at(tap_words, f.mul(t, 8 * len(TAP)))
        return {key: f.op(f"load i64, ptr {f.at(entry, 8 * TAP.index(key))}") for key in TAP}

    def shift(t: str) -> None:
        moves = tap_moves(t)
        own = f.mul(f.dot(*((moves[d], w[f"source.{d}"]) for d in "zyx")), f.size)
        f.lines.append(f"store i64 {own}, ptr {f.at(shifts, f.mul(t, 8))}")

    f.loop("0", w["taps"], 1, shift)

    def chunk(p: str) -> None:
        count = f.least(f.sub(w["positions"], p), f.group)
        vectors = f.up(count, f.lanes)
        f.call_own("i64", names["columns"], ("ptr", "%words"), ("i64", p), ("i64", count), ("i64", f.mul(vectors, f.lanes)),
                   ("ptr", columns))  # fmt: skip

        def mask_of(v: str, t: str) -> str:
            return f.at(masks, f.mul(f.add(f.mul(v, w["taps"]), t), width))

        def find(v: str) -> None:
            first = f.mul(v, f.lanes)
            own = {d: f.op(f"load {f.indices}, ptr {f.column(1 + k, columns, first)}, align 4") for k, d in enumerate("zyx")}

            def tap(t: str) -> None:
                moves, inside = tap_moves(t), ""
                for d in "zyx":
                    there = f.op(f"add {f.indices} {own[d]}, {f.integers(moves[d])}")
                    fits = f.op(f"icmp ult {f.indices} {there}, {sizes[d]}")
                    inside = f.op(f"and {f.bits} {inside}, {fits}") if inside else fits
                bits = f.op(f"bitcast {f.bits} {inside} to {mask}")
                f.lines.append(f"store {mask} {bits}, ptr {mask_of(v, t)}")

            f.loop("0", w["taps"], 1, tap)

        f.loop("0", vectors, 1, find)

        def group(k: str) -> None:
            g = f.add("%first", k)
            source = f.element("%b", f.mul(g, w["source.group"]))
            target = f.element("%a" if turned else "%c", f.mul(g, w["target.group"]))
            weight = f.element("%c" if turned else "%a", f.mul(g, w["left.group"]))

            def clear(t: str) -> None:
                f.lines.append(f"store {f.vector} zeroinitializer, ptr {f.at(sums, f.mul(t, packed.VECTOR))}, align {f.size}")

            if turned:
                f.loop("0", w["taps"], 1, clear)

            def image(n: str) -> None:
                own_source = f.element(source, f.mul(n, w["source.image"]))
                own_target = f.element(target, f.mul(n, w["target.image"]))

                def vector(v: str) -> None:
                    first = f.mul(v, f.lanes)
                    offsets = f.op(f"load {f.indices}, ptr {f.column(0, columns, first)}, align 4")
                    there = f.op(f"load {f.indices}, ptr {f.column(4, columns, first)}, align 4")
                    narrow = f.integers(f.sub(count, first))
                    numbers = ", ".join(f"i32 {i}" for i in range(f.lanes))
                    inside = f.op(f"icmp slt {f.indices} <{numbers}>, {narrow}")
                    begin, gathers = f.apart(offsets, inside)
                    to, scatters = f.apart(there, inside)
                    _depthwise_vector(
                        f, turned, w["taps"], weight, tap_words, sums, shifts, slot, lambda t: mask_of(v, t),
                        (own_source, offsets, begin, gathers), (own_target, there, to, scatters), inside,
                    )  # fmt: skip

                f.loop("0", vectors, 1, vector)

            f.loop("0", w["images"], 1, image)

            def total(t: str) -> None:
                own = f.op(f"load {f.vector}, ptr {f.at(sums, f.mul(t, packed.VECTOR))}, align {f.size}")
                symbol = f"llvm.vector.reduce.fadd.{f.suffix}"
                f.declare(symbol, f.number, f.number, f.vector)
                value = f.op(f"call reassoc {f.number} @{symbol}({f.number} {constant(0.0, f.dtype)}, {f.vector} {own})")
                place = f.element(weight, tap_moves(t)["left"])
                before = f.op(f"load {f.number}, ptr {place}, align {f.size}")
                is_first = f.op(f"icmp eq i64 {p}, 0")
                added = f.op(f"fadd {f.number} {before}, {value}")
                f.lines.append(f"store {f.number} {f.either(is_first, f.number, value, added)}, ptr {place}, align {f.size}")

            if turned:
                f.loop("0", w["taps"], 1, total)

        f.loop("0", "%count", 1, group)

    f.loop("0", w["positions"], f.group, chunk)
    f.lines.append("ret void")
    return f.define(f"void @{name}(ptr %words, ptr %a, ptr %b, ptr %c, i64 %first, i64 %count, ptr %scratch)")


_Places = tuple[str, str, str, str]
"""An array's memory, the offsets of a vector's lanes in it, the first one as i64, whether the others do not follow one by one."""


def _depthwise_vector(
    f: _Text, turned: bool, taps: str, weight: str, tap_words: str, sums: str, shifts: str, slot: str,
    mask_of: Callable[[str], str],
    source: _Places, target: _Places, inside: str,
) -> None:  # fmt: skip
    """A vector of columns of one image: the sum over taps, or what it adds to the sums of the taps.  slot: memory of a vector."""
    memory, offsets, begin, gathers = source
    place, there, to, scatters = target
    many = f"<{f.lanes} x ptr>"

    def read(base: str, where: str, mask: str, apart: bool) -> str:
        if not apart:
            return f.masked_load(base, mask)
        kinds = ((many, f.pointers(base, where)), ("i32", str(f.size)), (f.bits, mask), (f.vector, "zeroinitializer"))
        return f.call(f"llvm.masked.gather.{f.suffix}.v{f.lanes}p0", f.vector, *kinds)

    def write(value: str, apart: bool) -> None:
        if not apart:
            f.masked_store(value, f.element(place, to), inside)
            return
        kinds = ((f.vector, value), (many, f.pointers(place, there)), ("i32", str(f.size)), (f.bits, inside))
        f.call(f"llvm.masked.scatter.{f.suffix}.v{f.lanes}p0", "void", *kinds)

    def gradient(apart: bool) -> Callable[[], None]:
        base = place if apart else f.element(place, to)
        return lambda: f.store(read(base, there, inside, apart), slot)

    if turned:
        f.when(scatters, gradient(True), gradient(False))
    factor = f.load(slot) if turned else ""

    def all_taps(apart: bool) -> Callable[[], None]:
        def tap(t: str, total: str) -> str:
            bits = f.op(f"load i{f.lanes}, ptr {mask_of(t)}, align {f.lanes // 8}")
            mask = f.op(f"bitcast i{f.lanes} {bits} to {f.bits}")
            shift = f.op(f"load i64, ptr {f.at(shifts, f.mul(t, 8))}")
            base = memory if apart else f.element(memory, begin)
            value = read(f.at(base, shift), offsets, mask, apart)
            if turned:
                own = f.at(sums, f.mul(t, packed.VECTOR))
                f.store(f.fma(factor, value, f.load(own)), own)
                return total
            entry = f.op(f"load i64, ptr {f.at(tap_words, f.mul(t, 8 * len(TAP)))}")
            number = f.op(f"load {f.number}, ptr {f.element(weight, entry)}, align {f.size}")
            return f.fma(f.splat(number), value, total)

        def run() -> None:
            total = f.sum_over(taps, tap)
            if not turned:
                f.when(scatters, lambda: write(total, True), lambda: write(total, False))

        return run

    f.when(gathers, all_taps(True), all_taps(False))


_Own = Callable[[_Text, dict[str, str], str], None]
_Call = Callable[[str], _Own]
_Sizes = Callable[[_Text], dict[str, str]]
_BLOCK_OF_TASKS: Final = ("a", "b", "c", "words", "scratch", "down", "across", "row", "column", "direct")
"""Words of what tasks have in common: operands, memory of the only thread or null, how many tasks there are along rows and columns of
a group, how many rows and columns one has."""


def _task(f: _Text, name: str, own: _Own, first: str) -> str:
    """One task by its number, with memory of its own unless it is given some.  first: the strides of a group that operand a has; none if
    a task has several groups."""
    given = {key: f.op(f"load i64, ptr {f.at('%block', 8 * k)}") for k, key in enumerate(_BLOCK_OF_TASKS)}
    for key in ("a", "b", "c", "words", "scratch"):
        given[key] = f.op(f"inttoptr i64 {given[key]} to ptr")
    tasks = f.mul(given["down"], given["across"])
    group, within = f.op(f"udiv i64 %task, {tasks}"), f.op(f"urem i64 %task, {tasks}")
    given["i"], given["j"] = (f.op(f"{what} i64 {within}, {given['across']}") for what in ("udiv", "urem"))
    strides = {"a": first, "b": "source", "c": "left" if first == "target" else "target"} if first else {}
    for key, of in strides.items():
        given[key] = f.element(given[key], f.mul(group, f.word(f"{of}.group", given["words"])))
    alone = f.op(f"icmp ne ptr {given['scratch']}, null")

    def with_memory() -> None:
        memory = f.call_own("ptr", MEMORY, ("i64", str(scratch(f.dtype))))
        own(f, given, memory)
        f.void(FORGET, ("ptr", memory))

    f.when(alone, lambda: own(f, given, given["scratch"]), with_memory)
    f.lines.append("ret i64 0")
    return f.define(f"i64 @{name}(ptr %block, i64 %task)")


def _rows_and_columns(task: str) -> _Own:
    def call(f: _Text, given: dict[str, str], memory: str) -> None:
        w = f.words("rows", "images", "positions", where=given["words"])
        row, column = f.mul(given["i"], given["row"]), f.mul(given["j"], given["column"])
        rows = f.least(f.sub(w["rows"], row), given["row"])
        columns = f.least(f.sub(f.mul(w["images"], w["positions"]), column), given["column"])
        numbers = [("i64", x) for x in (row, rows, column, columns, given["direct"])]
        f.void(task, ("ptr", given["words"]), *[("ptr", given[x]) for x in "abc"], *numbers, ("ptr", memory))

    return call


def _channels_and_outputs(task: str) -> _Own:
    def call(f: _Text, given: dict[str, str], memory: str) -> None:
        """Rows of tasks are parts of the terms; where a channel has more taps than a task, they are counted within it."""
        w = f.words("rows", "channels", "taps", where=given["words"])
        few = f.least(w["taps"], packed.BLOCK)
        parts = f.up(w["taps"], few)
        channel = f.mul(f.op(f"udiv i64 {given['i']}, {parts}"), given["row"])
        tap = f.mul(f.op(f"urem i64 {given['i']}, {parts}"), few)
        channels = f.least(f.sub(w["channels"], channel), given["row"])
        taps = f.least(f.sub(w["taps"], tap), few)
        output = f.mul(given["j"], given["column"])
        outputs = f.least(f.sub(w["rows"], output), given["column"])
        numbers = [("i64", x) for x in (channel, channels, tap, taps, output, outputs)]
        f.void(task, ("ptr", given["words"]), *[("ptr", given[x]) for x in "abc"], *numbers, ("ptr", memory))

    return call


def _groups(task: str) -> _Own:
    def call(f: _Text, given: dict[str, str], memory: str) -> None:
        first = f.mul(given["i"], given["row"])
        count = f.least(f.sub(f.word("groups", given["words"]), first), given["row"])
        pointers = [("ptr", given[x]) for x in ("words", "a", "b", "c")]
        f.void(task, *pointers, ("i64", first), ("i64", count), ("ptr", memory))

    return call


MEMORY, FORGET = "tracejit_windows_memory", "tracejit_windows_forget"
"""Functions that give a task its memory, and take it back."""


def _entry(f: _Text, name: str, task: str, sizes: _Sizes, large: int) -> str:
    """All tasks: on the pool's threads where there is much to do, one after the other otherwise."""
    own = sizes(f)
    w = f.words("groups", "rows", "channels", "taps", "images", "positions")
    total = "1"
    for value in w.values():
        total = f.mul(total, value)
    tasks = f.mul(own["times"], f.mul(own["down"], own["across"]))
    block = f.op(f"alloca [{len(_BLOCK_OF_TASKS)} x i64]")
    for k, key in enumerate(_BLOCK_OF_TASKS):
        kind = "ptr" if key in ("a", "b", "c", "words", "scratch") else "i64"
        value = "null" if key == "scratch" else f"%{key}" if kind == "ptr" else own[key]
        f.lines.append(f"store {kind} {value}, ptr {f.at(block, 8 * k)}")
    threads = f.op(f"load atomic i64, ptr getelementptr (i8, ptr @{POOL}, i64 {FIELDS['threads']}) monotonic, align 8")
    several, much = f.op(f"icmp ugt i64 {threads}, 1"), f.op(f"icmp uge i64 {total}, {large}")
    more = f.op(f"icmp ugt i64 {tasks}, 1")
    shared = f.op(f"and i1 {several}, {f.op(f'and i1 {much}, {more}')}")

    def one(i: str) -> None:
        f.call_own("i64", task, ("ptr", block), ("i64", i))

    def share() -> None:
        f.call_own("i64", PARALLEL, ("ptr", f"@{task}"), ("ptr", block), ("i64", tasks))

    def alone() -> None:
        memory = f.call_own("ptr", MEMORY, ("i64", str(scratch(f.dtype))))
        f.lines.append(f"store ptr {memory}, ptr {f.at(block, 8 * _BLOCK_OF_TASKS.index('scratch'))}")
        f.loop("0", tasks, 1, one)
        f.void(FORGET, ("ptr", memory))

    f.when(shared, share, alone)
    f.lines.append("ret void")
    return f.define(f"void @{name}(ptr %a, ptr %b, ptr %c, ptr %words)").replace("define internal", "define", 1)


def _sizes_of_product(f: _Text) -> dict[str, str]:
    w = f.words("rows", "images", "positions", "count.y", "count.x", "target.z", "target.y", "target.x")
    down = f.up(w["rows"], packed.BLOCK)
    tallest = max(packed.ROWS[packed.VECTORS])
    row = f.mul(f.up(f.up(w["rows"], down), tallest), tallest)
    rest = f.op(f"urem i64 {w['positions']}, {f.wide}")
    even = f.op(f"icmp eq i64 {rest}, 0")
    direct = f.op(f"zext i1 {even} to i64")
    for d, expected in (("x", "1"), ("y", w["count.x"]), ("z", f.mul(w["count.y"], w["count.x"]))):
        apart = w[f"target.{d}"]
        same = f.op(f"icmp eq i64 {apart}, {expected}")
        direct = f.either(same, "i64", direct, "0")
    across = f.up(f.mul(w["images"], w["positions"]), f.group)
    own = {"down": f.up(w["rows"], row), "across": across, "row": row, "column": str(f.group), "direct": direct}
    return {**own, "times": f.word("groups")}


def _sizes_of_weight(f: _Text) -> dict[str, str]:
    w = f.words("rows", "channels", "taps")
    row = f.most(f.op(f"udiv i64 {packed.BLOCK}, {w['taps']}"), 1)
    down = f.mul(f.up(w["channels"], row), f.up(w["taps"], packed.BLOCK))
    own = {"down": down, "across": f.up(w["rows"], f.group), "row": row, "column": str(f.group), "direct": "0"}
    return {**own, "times": f.word("groups")}


def _sizes_of_depthwise(f: _Text) -> dict[str, str]:
    row = f.up(f.word("groups"), _SHARES)
    return {"down": f.up(f.word("groups"), row), "across": "1", "row": row, "column": "1", "direct": "0", "times": "1"}


def symbol(dtype: DType, what: str) -> str:
    """The name of the function for one of the KERNELS."""
    return f"tracejit_windows_{'s' if dtype is float32 else 'd'}_{what}"


def helpers(dtype: DType, lanes: int, large: int) -> tuple[str, dict[str, str]]:
    """(definitions, declarations by symbol) of `symbol(dtype, kernel)` for each of the KERNELS, functions of the addresses a, b,
    c and of the words, beside those of packed_products.helper.  large: multiplications from which tasks are shared among threads."""
    prefix = f"windows_{'s' if dtype is float32 else 'd'}"
    parts, declarations = list[str](), dict[str, str]()
    names = dict(zip((*packed.KINDS, "straight", "turned"), packed.panel_functions(dtype), strict=True))
    number = _Text(dtype, lanes).number
    packing = "ptr, i64, i64, i64, i64, ptr"
    for kind, symbol_of in names.items():
        given = f"i64, {packed.kinds(number)}" if kind in packed.KINDS else packing
        declarations[symbol_of] = f"declare void @{symbol_of}({given})"
    one = constant(1.0, dtype)

    def written(write: Callable[..., str], what: str, *given: object) -> str:
        f = _Text(dtype, lanes)
        parts.append(write(f, f"{prefix}_{what}", *given))
        declarations.update(f.declarations)
        return f"{prefix}_{what}"

    names["columns"] = written(_columns, "columns")
    names["windows"] = written(_windows, "rows")
    names["left"] = written(_left, "left", names["straight"], names["turned"])
    names["give"] = written(_give, "give")
    names["out"] = written(_turned_out, "out")
    tasks: tuple[tuple[str, Callable[..., str], _Call, _Sizes, str, int], ...] = (
        ("product", partial(_product_task, one=one, names=names), _rows_and_columns, _sizes_of_product, "left", 1),
        ("weight", partial(_weight_task, one=one, names=names), _channels_and_outputs, _sizes_of_weight, "target", 1),
        ("depthwise", partial(_depthwise_task, names=names, turned=False), _groups, _sizes_of_depthwise, "", _DEAR),
        ("depthwise_weight", partial(_depthwise_task, names=names, turned=True), _groups, _sizes_of_depthwise, "", _DEAR),
    )
    for what, write, call, sizes, first, cost in tasks:
        tile = written(_task, f"{what}_tile", call(written(write, f"{what}_task")), first)
        f = _Text(dtype, lanes)
        parts.append(_entry(f, symbol(dtype, what), tile, sizes, large // cost))
        declarations.update(f.declarations)
    return "\n".join(parts), declarations
