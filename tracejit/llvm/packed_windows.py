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
from typing import Final

from tracejit.core.convolutions import TAP, WORDS
from tracejit.llvm import packed_products as packed
from tracejit.llvm.operations import constant
from tracejit.llvm.vector_text import OF_32, transposed
from tracejit.llvm.window_text import LINE, OUTSIDE, STRETCH, WindowText, memory_of

__all__ = ["pack_left", "pack_windows", "product_task", "store_columns", "store_transposed", "weight_task"]

_STRETCH: Final = 144
"""Terms that `product` adds up in registers: then a panel is in the first cache when it is read.  16 channels of 3 x 3."""


def pack_windows(f: WindowText, name: str) -> str:
    """Rows of windows, side by side: for each of %channels, for each of %taps, %vectors vectors of columns.

    source: the first channel of the first image; channel: bytes from channel to channel; line: bytes from row to row.  Where each
    vector has columns that follow one by one, rows are filled in the order of memory, by masks that are found out before; the columns
    that follow are asked for then.  Else it goes tap by tap, and gathers where it must."""
    w = f.words(*(f"{what}.{d}" for what in ("size", "source") for d in "zyx"))
    sizes = {d: f.integers(w[f"size.{d}"]) for d in "zyx"}
    of_channel = f.mul("%taps", "%line")
    bits, width = f"i{f.lanes}", f.lanes // 8
    most_vectors = STRETCH // f.lanes
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
        nowhere = f.integers(str(OUTSIDE))
        begin, gathers = f.first_and_gaps(arrays[0], f.op(f"icmp ne {f.indices} {arrays[3]}, {nowhere}"))
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
                begin, gathers = f.first_and_gaps(arrays[0], inside)
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


def pack_left(f: WindowText, name: str, straight: str, turned: str) -> str:
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


def store_columns(f: WindowText, name: str) -> str:
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
        begin, scatters = f.first_and_gaps(offsets, inside)
        own = f.at("%part", f.mul(v, f.lanes * f.size))

        def store(r: str) -> None:
            place = f.at(f.element("%target", begin), f.mul(r, row))
            f.masked_store(f.load(f.at(own, f.mul(r, LINE))), place, inside)

        def scatter(r: str) -> None:
            places = f.pointers(f.at("%target", f.mul(r, row)), offsets)
            value = f.load(f.at(own, f.mul(r, LINE)))
            kinds = ((f.vector, value), (f"<{f.lanes} x ptr>", places), ("i32", str(f.size)), (f.bits, inside))
            f.call(f"llvm.masked.scatter.{f.suffix}.v{f.lanes}p0", "void", *kinds)

        f.when(scatters, f.each("%rows", scatter), f.each("%rows", store))

    f.loop("0", f.up("%count", f.lanes), 1, vector)
    f.lines.append("ret void")
    return f.define(f"void @{name}(ptr %words, ptr %part, i64 %rows, i64 %count, ptr %columns, ptr %target)")


def store_transposed(f: WindowText, name: str) -> str:
    """A part of dW, of which %part has the transpose, to where it belongs: %rows elements of each of %outputs."""
    line = f.mul(f.word("left.row"), f.size)

    def outputs(o: str) -> None:
        def square(r: str) -> None:
            here = f.at("%part", f.op(f"add i64 {f.mul(r, LINE)}, {f.mul(o, f.size)}"))
            vectors = transposed(f, [f.load(f.at(here, i * LINE)) for i in range(f.lanes)])
            there = f.at("%target", f.op(f"add i64 {f.mul(o, line)}, {f.mul(r, f.size)}"))
            for i, vector in enumerate(vectors):
                f.store(vector, there if i == 0 else f.at(there, f.mul(line, i)))

        rest(f.loop("0", "%rows", f.lanes, square, f.lanes), o, str(f.lanes))

    def rest(first: str, o: str, count: str) -> None:
        def row(r: str) -> None:
            def single(i: str) -> None:
                own = f.add(o, i)
                here = f.at("%part", f.op(f"add i64 {f.mul(r, LINE)}, {f.mul(own, f.size)}"))
                number = f.op(f"load {f.number}, ptr {here}, align {f.size}")
                there = f.at("%target", f.op(f"add i64 {f.mul(own, line)}, {f.mul(r, f.size)}"))
                f.lines.append(f"store {f.number} {number}, ptr {there}, align {f.size}")

            f.loop("0", count, 1, single)

        f.loop(first, "%rows", 1, row)

    done = f.loop("0", "%outputs", f.lanes, outputs, f.lanes)
    rest("0", done, f.sub("%outputs", done))
    f.lines.append("ret void")
    return f.define(f"void @{name}(ptr %words, ptr %part, i64 %rows, i64 %outputs, ptr %target)")


def _multiply(f: WindowText, names: dict[str, str], count: str, **given: str) -> None:
    """Rows of a block times a panel of %count columns, by the kernel of their number."""
    labels, (*_, one) = {kind: f.label(kind) for kind in (*OF_32.kinds, "done")}, OF_32.kinds
    is_whole = f.op(f"icmp eq i64 {count}, {f.wide}")
    kind = f.either(is_whole, "i64", "0", _vectors(f, count))
    cases = " ".join(
        f"i64 {0 if not ends else v}, label %{labels[name]}" for name, (v, ends) in OF_32.kinds.items() if name != one
    )
    f.lines.append(f"switch i64 {kind}, label %{labels[one]} [ {cases} ]")
    for name in OF_32.kinds:
        f.begin(labels[name])
        f.lines.append(f"call void @{names[name]}(i64 {given['rows']}, {packed.parameters(f.number, **given, columns=count)})")
        f.go(labels["done"])
    f.begin(labels["done"])


def _vectors(f: WindowText, count: str) -> str:
    """Of a panel of so many columns."""
    two, four = f.op(f"icmp sgt i64 {count}, {f.lanes}"), f.op(f"icmp sgt i64 {count}, {2 * f.lanes}")
    return f.either(four, "i64", str(OF_32.vectors), f.either(two, "i64", "2", "1"))


def _stretches(f: WindowText, longest: int, body: Callable[[str, str, str, str], None]) -> None:
    """body(first channel, channels, first tap, taps) for parts of the terms: whole channels where their taps are few enough."""
    channels, taps = f.word("channels"), f.word("taps")
    few = f.least(taps, longest)
    many = f.most(f.op(f"udiv i64 {longest}, {taps}"), 1)

    def by_channel(c: str) -> None:
        own = f.least(f.sub(channels, c), many)
        f.loop("0", taps, few, lambda t: body(c, own, t, f.least(f.sub(taps, t), few)))

    f.loop("0", channels, many, by_channel)


def product_task(f: WindowText, name: str, *, one: str, names: dict[str, str]) -> str:
    """Rows from %row on, of columns from %column on, of a group.  a, b, c: left operand, source and target of the group;
    direct: whether the columns of an image lie side by side in the target."""
    panel, block, part, columns = memory_of(f)
    w = f.words("positions", "taps", "source.image", "source.channel", "left.row", "left.channel", "target.image", "target.row")
    taps = f.at("%words", 8 * len(WORDS))
    image = f.call_own("i64", names["columns"], ("ptr", "%words"), ("i64", "%column"), ("i64", "%count"),
                       ("i64", f.mul(f.up("%count", f.wide), f.wide)), ("ptr", columns))  # fmt: skip
    source = f.element("%b", f.mul(image, w["source.image"]))
    target = f.element("%c", f.op(f"add i64 {f.mul(image, w['target.image'])}, {f.mul('%row', w['target.row'])}"))
    at = f.op(f"urem i64 %column, {w['positions']}")
    beside = f.op("icmp ne i64 %direct, 0")
    left = f.element("%a", f.mul("%row", w["left.row"]))
    channel = f.mul(w["source.channel"], f.size)

    def place(j: str, count: str) -> tuple[str, str]:
        """(whether the panel of column j is added up in the target, being within an image whose columns lie side by side, where there)."""
        last = f.add(at, j)
        inside = f.op(f"urem i64 {last}, {w['positions']}")
        fits = f.op(f"icmp sle i64 {f.add(inside, count)}, {w['positions']}")
        beyond = f.mul(f.op(f"udiv i64 {last}, {w['positions']}"), w["target.image"])
        return f.op(f"and i1 {beside}, {fits}"), f.element(target, f.add(beyond, inside))

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
            direct, there = place(j, count)
            result = f.either(direct, "ptr", there, f.element(part, j))
            line = f.either(direct, "i64", f.mul(w["target.row"], f.size), str(LINE))
            _multiply(
                f, names, count, rows="%rows", terms=f.mul(channels, few), a=block, **{"a.row": row, "a.term": str(f.size)},
                b=panel, **{"b.term": step}, c=result, **{"c.row": line}, alpha=one, beta=beta,
            )  # fmt: skip

        f.loop("0", "%count", f.wide, one_panel)

    _stretches(f, _STRETCH, stretch)

    def give(j: str) -> None:
        count = f.least(f.sub("%count", j), f.wide)

        def panel_of_part() -> None:
            f.void(names["give"], ("ptr", "%words"), ("ptr", f.element(part, j)), ("i64", "%rows"), ("i64", count),
                   ("ptr", f.column(0, columns, j)), ("ptr", target))  # fmt: skip

        f.when(place(j, count)[0], lambda: None, panel_of_part)

    f.loop("0", "%count", f.wide, give)
    f.lines.append("ret void")
    given = "ptr %words, ptr %a, ptr %b, ptr %c, i64 %row, i64 %rows, i64 %column, i64 %count, i64 %direct"
    return f.define(f"void @{name}({given}, ptr %scratch)")


def weight_task(f: WindowText, name: str, *, one: str, names: dict[str, str]) -> str:
    """Of dW, %taps taps of %channels channels for %outputs rows of the gradient.  a, b, c: gradient, source and dW of the group."""
    panel, block, part, columns = memory_of(f)
    w = f.words("images", "positions", "source.image", "source.channel", "left.row", "left.channel", "target.image", "target.row")
    total = f.mul(w["images"], w["positions"])
    tap = f.at("%words", f.add(f.mul("%tap", 8 * len(TAP)), 8 * len(WORDS)))
    channel, row = f.mul(w["source.channel"], f.size), f.mul(w["target.row"], f.size)
    own = f.at("%b", f.mul("%channel", channel))
    gradient = f.at("%a", f.mul("%output", row))
    line = STRETCH * f.size
    rows = f.mul("%channels", "%taps")

    def stretch(s: str) -> None:
        terms = f.least(f.sub(total, s), STRETCH)
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
                b=panel, **{"b.term": step}, c=f.element(part, j), **{"c.row": str(LINE)}, alpha=one, beta=beta,
            )  # fmt: skip

        f.loop("0", "%outputs", f.wide, one_panel)

    f.loop("0", total, STRETCH, stretch)
    there = f.dot(("%output", w["left.row"]), ("%channel", w["left.channel"]), (f.op(f"load i64, ptr {tap}"), "1"))
    f.void(names["out"], ("ptr", "%words"), ("ptr", part), ("i64", rows), ("i64", "%outputs"), ("ptr", f.element("%c", there)))
    f.lines.append("ret void")
    given = "ptr %words, ptr %a, ptr %b, ptr %c, i64 %channel, i64 %channels, i64 %tap, i64 %taps, i64 %output, i64 %outputs"
    return f.define(f"void @{name}({given}, ptr %scratch)")
