"""Convolutions of groups of one row and one channel, and the gradients of their weights: loops over images, without products.

A vector of columns is the sum over taps of a number of the weight times a vector of the source, loaded under a mask, or gathered where
its elements do not follow one by one.  In the weight's gradient each tap has a vector of sums, one for each lane, which are added up in
the end.
"""

from __future__ import annotations

from collections.abc import Callable

from tracejit.core.convolutions import TAP, WORDS
from tracejit.llvm.operations import constant
from tracejit.llvm.window_text import VECTOR, WindowText, memory_of

__all__ = ["depthwise_task"]


def depthwise_task(f: WindowText, name: str, *, names: dict[str, str], turned: bool) -> str:
    """Groups of one row and one channel, %count of them from %first on.  turned: the weight's gradient.

    Where columns are, and which of them have an element for a tap, is found out once for all images and groups."""
    _, masks, sums, columns = memory_of(f)
    w = f.words("taps", "images", "positions", *(f"{what}.{d}" for what in ("size", "source") for d in "zyx"),
                *(f"{what}.{which}" for what in ("source", "target") for which in ("group", "image")), "left.group")  # fmt: skip
    tap_words = f.at("%words", 8 * len(WORDS))
    shifts = f.at(sums, f.mul(w["taps"], VECTOR))  # of each tap, in bytes
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
                f.lines.append(f"store {f.vector} zeroinitializer, ptr {f.at(sums, f.mul(t, VECTOR))}, align {f.size}")

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
                    begin, gathers = f.first_and_gaps(offsets, inside)
                    to, scatters = f.first_and_gaps(there, inside)
                    _depthwise_vector(
                        f, turned, w["taps"], weight, tap_words, sums, shifts, slot, lambda t: mask_of(v, t),
                        (own_source, offsets, begin, gathers), (own_target, there, to, scatters), inside,
                    )  # fmt: skip

                f.loop("0", vectors, 1, vector)

            f.loop("0", w["images"], 1, image)

            def total(t: str) -> None:
                own = f.op(f"load {f.vector}, ptr {f.at(sums, f.mul(t, VECTOR))}, align {f.size}")
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
    f: WindowText, turned: bool, taps: str, weight: str, tap_words: str, sums: str, shifts: str, slot: str,
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
                own = f.at(sums, f.mul(t, VECTOR))
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
