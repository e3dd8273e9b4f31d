"""The first thing a program does: compare the arrays' metadata with what it was made for, and take their data pointers.

Machine code reads the tuple of arrays and NumPy's public array struct (PyArrayObject_fields: data, nd, dimensions, strides, base,
descr, flags) under the GIL.  Expected values are data, words behind the frame's slots, so one function serves all programs and no
address is part of the code.  The words belong to one frame, so machine code may write to them.  Where structs keep what is known to
cpython/arrays.py, which verifies it on live objects.

Resident arrays (`ProgramSpec.resident`) are looked at only when the call's key is not the one under which this frame has last found
them as they must be.  The frame holds nothing: their pointers are used only in a call whose tuple has the arrays, under their key.

Words behind the slots: [held key, offset in bytes of what follows the resident ones, resident metadata] where there are resident arrays,
then the metadata of the others, then the entries of overlaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final

from tracejit.cpython.arrays import ALIGNED, BYTES, DATA, DESCR, DIMENSIONS, FLAGS, ND, STRIDES, TUPLE_ITEMS, WRITEABLE
from tracejit.lowering.steps import ArraySpec, ProgramSpec

__all__ = [
    "CHECK",
    "NO_KEY",
    "check_text",
    "declaration",
    "disjoint_words",
    "expected_lines",
    "expected_words",
    "metadata_words",
]

CHECK: Final = "tracejit_check"
NO_KEY: Final = bytes(8)
"""The key that says nothing about the resident arrays."""


def metadata_words(arrays: Sequence[ArraySpec], numbers: Sequence[int]) -> list[int]:
    """Per array in `numbers`: its number, address of its dtype object, flags that must be set, rank; then (size, byte stride, mask of the
    stride) per dimension."""
    words: list[int] = []
    for number in numbers:
        a = arrays[number]
        words += [number, id(a.dtype.numpy), ALIGNED | (WRITEABLE if a.written else 0), len(a.shape)]
        empty = 0 in a.shape
        for size, stride in zip(a.shape, a.strides, strict=True):
            words += [size, stride, 0 if (empty or size == 1) and not a.exact else -1]
    return words


def _others(spec: ProgramSpec) -> list[int]:
    """Numbers of the arrays that are not resident."""
    resident = frozenset(spec.resident)
    return [i for i in range(len(spec.arrays)) if i not in resident]


def expected_words(spec: ProgramSpec) -> list[int]:
    """The data table of a program, behind the slots."""
    resident = metadata_words(spec.arrays, spec.resident)
    head = [0, 8 * (2 + len(resident)), *resident] if spec.resident else []
    return [*head, *metadata_words(spec.arrays, _others(spec)), *disjoint_words(spec.arrays, spec.disjoint)]


def expected_lines(spec: ProgramSpec) -> list[str]:
    """LLVM statements, from the start of a function with `%frame` and `%arrays` on: they go on at label `begin` when all arrays are as
    expected and the pointers are in their slots, else at label `mismatch`."""
    if not spec.arrays:
        return ["br label %begin"]
    others, pairs = _others(spec), len(disjoint_words(spec.arrays, spec.disjoint)) // 6
    lines = [
        "%tuple = inttoptr i64 %arrays to ptr",
        f"%items = getelementptr i8, ptr %tuple, i64 {TUPLE_ITEMS}",
        f"%table = getelementptr i64, ptr %frame, i64 {spec.slots}",
    ]
    entries, settled = str(pairs), "begin"
    if spec.resident:
        moving = set(spec.disjoint) - set(spec.resident)
        settled = "keep"
        lines += [
            "%key.object = load ptr, ptr %items",
            f"%key.at = getelementptr i8, ptr %key.object, i64 {BYTES}",
            "%key = load i64, ptr %key.at",
            "%held = load i64, ptr %table",
            "%key.same = icmp eq i64 %key, %held",
            "%key.some = icmp ne i64 %key, 0",
            "%known = and i1 %key.same, %key.some",
            "br i1 %known, label %others, label %resident",
            "resident:",
            "store i64 0, ptr %table",
            "%resident.at = getelementptr i8, ptr %items, i64 8",
            "%resident.tuple = load ptr, ptr %resident.at",
            f"%resident.items = getelementptr i8, ptr %resident.tuple, i64 {TUPLE_ITEMS}",
            "%resident.words = getelementptr i8, ptr %table, i64 16",
            f"%resident.end = call ptr @{CHECK}(ptr %frame, ptr %resident.items, i64 {len(spec.resident)}, ptr %resident.words, i64 0)",
            "%resident.fit = icmp ne ptr %resident.end, null",
            "br i1 %resident.fit, label %others, label %mismatch",
            "others:",
            "%skipped.at = getelementptr i8, ptr %table, i64 8",
            "%skipped = load i64, ptr %skipped.at",
            "%words = getelementptr i8, ptr %table, i64 %skipped",
            "%others.items = getelementptr i8, ptr %items, i64 16",
        ]
        if pairs and not moving:  # overlaps among resident arrays alone are known with the key
            lines.append(f"%entries = select i1 %known, i64 0, i64 {pairs}")
            entries = "%entries"
    words, items = ("%words", "%others.items") if spec.resident else ("%table", "%items")
    lines += [
        f"%end = call ptr @{CHECK}(ptr %frame, ptr {items}, i64 {len(others)}, ptr {words}, i64 {entries})",
        "%fit = icmp ne ptr %end, null",
        f"br i1 %fit, label %{settled}, label %mismatch",
    ]
    if spec.resident:
        lines += ["keep:", "store i64 %key, ptr %table", "br label %begin"]
    return lines


def _extent(a: ArraySpec) -> tuple[int, int]:
    """Byte offsets from the data pointer of the first byte of the array and the one after its last; equal if it is empty."""
    if 0 in a.shape:
        return 0, 0
    low = sum(min(0, (n - 1) * s) for n, s in zip(a.shape, a.strides, strict=True))
    high = sum(max(0, (n - 1) * s) for n, s in zip(a.shape, a.strides, strict=True))
    return low, high + a.dtype.itemsize


def disjoint_words(arrays: Sequence[ArraySpec], disjoint: Sequence[int]) -> list[int]:
    """Six words per array number in `disjoint` that has memory: the number, low and high offset, whether it is written (-1; 0: not), which
    entry comes here in order of address (machine code keeps the order of the last call), unused."""
    extents = [(i, *_extent(arrays[i])) for i in disjoint]
    entries = [(i, low, high, -arrays[i].written) for i, low, high in extents if low < high]
    return [word for k, entry in enumerate(entries) for word in (*entry, k, 0)]


def declaration() -> str:
    """What a program says of the function of check_text."""
    return f"declare ptr @{CHECK}(ptr, ptr, i64, ptr, i64)"


@cache
def check_text() -> str:
    """A module with the function `ptr check(ptr frame, ptr items, i64 arrays, ptr words, i64 entries)`, the same for all programs.  It puts
    the data pointers of the arrays of a tuple, from `items` on, in their slots, and returns where their metadata_words end, null if
    one is not as expected, or if memory overlaps that must not according to that many entries of disjoint_words that follow there.

    Overlaps are found by one sweep over the arrays in order of address.  The insertion sort starts from the order of the last call, so
    that a call with the same arrays is linear in their number."""
    return f"""define ptr @{CHECK}(ptr %frame, ptr %items, i64 %arrays, ptr %metadata, i64 %pairs) noinline nounwind {{
entry:
  %slots = getelementptr i64, ptr %frame, i64 1
  %some = icmp sgt i64 %arrays, 0
  br i1 %some, label %array, label %all
array:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %words = phi ptr [ %metadata, %entry ], [ %words.end, %next ]
  %item = getelementptr ptr, ptr %items, i64 %i
  %object = load ptr, ptr %item
  %data.at = getelementptr i8, ptr %object, i64 {DATA}
  %nd.at = getelementptr i8, ptr %object, i64 {ND}
  %dims.at = getelementptr i8, ptr %object, i64 {DIMENSIONS}
  %strides.at = getelementptr i8, ptr %object, i64 {STRIDES}
  %descr.at = getelementptr i8, ptr %object, i64 {DESCR}
  %flags.at = getelementptr i8, ptr %object, i64 {FLAGS}
  %data = load i64, ptr %data.at
  %nd = load i32, ptr %nd.at
  %descr = load i64, ptr %descr.at
  %flags = load i32, ptr %flags.at
  %number = load i64, ptr %words
  %want.descr.at = getelementptr i64, ptr %words, i64 1
  %want.flags.at = getelementptr i64, ptr %words, i64 2
  %want.nd.at = getelementptr i64, ptr %words, i64 3
  %want.descr = load i64, ptr %want.descr.at
  %want.flags = load i32, ptr %want.flags.at
  %want.nd = load i32, ptr %want.nd.at
  %slot = getelementptr i64, ptr %slots, i64 %number
  store i64 %data, ptr %slot
  %same.descr = icmp eq i64 %descr, %want.descr
  %same.nd = icmp eq i32 %nd, %want.nd
  %present = and i32 %flags, %want.flags
  %same.flags = icmp eq i32 %present, %want.flags
  %same.a = and i1 %same.descr, %same.nd
  %same = and i1 %same.a, %same.flags
  br i1 %same, label %shape, label %different
shape:
  %dims = load ptr, ptr %dims.at
  %strides = load ptr, ptr %strides.at
  %first = getelementptr i64, ptr %words, i64 4
  %rank = zext i32 %nd to i64
  %scalar = icmp eq i64 %rank, 0
  br i1 %scalar, label %next, label %dimension
dimension:
  %d = phi i64 [ 0, %shape ], [ %d1, %stepped ]
  %w = phi ptr [ %first, %shape ], [ %w1, %stepped ]
  %size.at = getelementptr i64, ptr %dims, i64 %d
  %stride.at = getelementptr i64, ptr %strides, i64 %d
  %want.stride.at = getelementptr i64, ptr %w, i64 1
  %mask.at = getelementptr i64, ptr %w, i64 2
  %size = load i64, ptr %size.at
  %stride = load i64, ptr %stride.at
  %want.size = load i64, ptr %w
  %want.stride = load i64, ptr %want.stride.at
  %mask = load i64, ptr %mask.at
  %size.off = xor i64 %size, %want.size
  %stride.xor = xor i64 %stride, %want.stride
  %stride.off = and i64 %stride.xor, %mask
  %off = or i64 %size.off, %stride.off
  %fits = icmp eq i64 %off, 0
  br i1 %fits, label %stepped, label %different
stepped:
  %d1 = add i64 %d, 1
  %w1 = getelementptr i64, ptr %w, i64 3
  %more = icmp slt i64 %d1, %rank
  br i1 %more, label %dimension, label %next
next:
  %words.end = phi ptr [ %first, %shape ], [ %w1, %stepped ]
  %i1 = add i64 %i, 1
  %again = icmp slt i64 %i1, %arrays
  br i1 %again, label %array, label %all
all:
  %end = phi ptr [ %metadata, %entry ], [ %words.end, %next ]
  %alone = icmp eq i64 %pairs, 0
  br i1 %alone, label %fine, label %apart
apart:
  %clear = call i1 @{CHECK}_apart(ptr %frame, ptr %end, i64 %pairs)
  br i1 %clear, label %fine, label %different
fine:
  ret ptr %end
different:
  ret ptr null
}}
define internal i1 @{CHECK}_apart(ptr %frame, ptr %entries, i64 %pairs) nounwind {{
entry:
  %slots = getelementptr i64, ptr %frame, i64 1
  br label %sort
sort:
  %k = phi i64 [ 0, %entry ], [ %k1, %inserted ]
  %order.k = call ptr @{CHECK}_order(ptr %entries, i64 %k)
  %e = load i64, ptr %order.k
  %begin = call i64 @{CHECK}_bound(ptr %slots, ptr %entries, i64 %e, i64 1)
  br label %sink
sink:
  %j = phi i64 [ %k, %sort ], [ %j1, %move ]
  %j1 = sub i64 %j, 1
  %order.j = call ptr @{CHECK}_order(ptr %entries, i64 %j)
  %bottom = icmp eq i64 %j, 0
  br i1 %bottom, label %inserted, label %compare
compare:
  %order.below = call ptr @{CHECK}_order(ptr %entries, i64 %j1)
  %below = load i64, ptr %order.below
  %begin.below = call i64 @{CHECK}_bound(ptr %slots, ptr %entries, i64 %below, i64 1)
  %sunk = icmp ule i64 %begin.below, %begin
  br i1 %sunk, label %inserted, label %move
move:
  store i64 %below, ptr %order.j
  br label %sink
inserted:
  store i64 %e, ptr %order.j
  %k1 = add i64 %k, 1
  %unsorted = icmp slt i64 %k1, %pairs
  br i1 %unsorted, label %sort, label %sweep
sweep:
  %m = phi i64 [ 0, %inserted ], [ %m1, %apart ]
  %all = phi i64 [ 0, %inserted ], [ %all.next, %apart ]
  %stores = phi i64 [ 0, %inserted ], [ %stores.next, %apart ]
  %order.m = call ptr @{CHECK}_order(ptr %entries, i64 %m)
  %f = load i64, ptr %order.m
  %from = call i64 @{CHECK}_bound(ptr %slots, ptr %entries, i64 %f, i64 1)
  %to = call i64 @{CHECK}_bound(ptr %slots, ptr %entries, i64 %f, i64 2)
  %written.word = mul i64 %f, 6
  %written.offset = add i64 %written.word, 3
  %written.at = getelementptr i64, ptr %entries, i64 %written.offset
  %written.flag = load i64, ptr %written.at
  %written = icmp ne i64 %written.flag, 0
  %limit = select i1 %written, i64 %all, i64 %stores
  %clear = icmp uge i64 %from, %limit
  br i1 %clear, label %apart, label %different
apart:
  %all.more = icmp ugt i64 %to, %all
  %all.next = select i1 %all.more, i64 %to, i64 %all
  %stores.more = icmp ugt i64 %to, %stores
  %stores.grow = and i1 %stores.more, %written
  %stores.next = select i1 %stores.grow, i64 %to, i64 %stores
  %m1 = add i64 %m, 1
  %further = icmp slt i64 %m1, %pairs
  br i1 %further, label %sweep, label %expected
different:
  ret i1 false
expected:
  ret i1 true
}}
define internal ptr @{CHECK}_order(ptr %entries, i64 %k) alwaysinline nounwind {{
  %word = mul i64 %k, 6
  %position = add i64 %word, 4
  %at = getelementptr i64, ptr %entries, i64 %position
  ret ptr %at
}}
define internal i64 @{CHECK}_bound(ptr %slots, ptr %entries, i64 %entry, i64 %which) alwaysinline nounwind {{
  %word = mul i64 %entry, 6
  %at = getelementptr i64, ptr %entries, i64 %word
  %number = load i64, ptr %at
  %slot = getelementptr i64, ptr %slots, i64 %number
  %base = load i64, ptr %slot
  %offset.at = getelementptr i64, ptr %at, i64 %which
  %offset = load i64, ptr %offset.at
  %bound = add i64 %base, %offset
  ret i64 %bound
}}"""
