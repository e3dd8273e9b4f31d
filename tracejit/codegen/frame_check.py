"""The first thing a program does: compare the arrays' metadata with what it was made for, and take their data pointers.

Machine code reads the tuple of arrays and NumPy's public array struct (PyArrayObject_fields: data, nd, dimensions, strides, base,
descr, flags) under the GIL.  Expected values are data, words behind the frame's slots, so one text serves all programs and no
address is part of the code.  The layout of both structs is verified on live objects before it is first used.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Final

import numpy as np

from tracejit.codegen.steps import ArraySpec

__all__ = ["CHECK", "check_text", "disjoint_words", "metadata_words", "verify_layout"]

CHECK: Final = "tracejit_check"
HEADER: Final = object.__basicsize__  # PyObject_HEAD: 16 bytes, more in some builds
TUPLE_ITEMS: Final = tuple.__basicsize__
DATA, ND, DIMENSIONS, STRIDES, DESCR, FLAGS = (HEADER + 8 * i for i in (0, 1, 2, 3, 5, 6))
_ALIGNED, _WRITEABLE = 0x0100, 0x0400


def metadata_words(arrays: Sequence[ArraySpec]) -> list[int]:
    """Per array: address of its dtype object, flags that must be set, rank; then (size, byte stride, mask of the stride) per dimension."""
    words: list[int] = []
    for a in arrays:
        words += [id(a.dtype.numpy), _ALIGNED | (_WRITEABLE if a.written else 0), len(a.shape)]
        empty = 0 in a.shape
        for size, stride in zip(a.shape, a.strides, strict=True):
            words += [size, stride, 0 if empty or size == 1 else -1]
    return words


def _extent(a: ArraySpec) -> tuple[int, int]:
    """Byte offsets from the data pointer of the first byte of the array and the one after its last; equal if it is empty."""
    if 0 in a.shape:
        return 0, 0
    low = sum(min(0, (n - 1) * s) for n, s in zip(a.shape, a.strides, strict=True))
    high = sum(max(0, (n - 1) * s) for n, s in zip(a.shape, a.strides, strict=True))
    return low, high + a.dtype.itemsize


def disjoint_words(arrays: Sequence[ArraySpec], pairs: Sequence[tuple[int, int]]) -> list[int]:
    """Per pair of arrays: number, low and high offset of each."""
    words: list[int] = []
    for i, j in pairs:
        (low_i, high_i), (low_j, high_j) = _extent(arrays[i]), _extent(arrays[j])
        if low_i < high_i and low_j < high_j:
            words += [i, low_i, high_i, j, low_j, high_j]
    return words


@cache
def check_text() -> str:
    """`i1 check(ptr frame, i64 arrays, ptr metadata, i64 pairs)`: true if all is as expected; data pointers are then in slots 1..arrays.

    `metadata` points to metadata_words followed by disjoint_words; a pair is six words."""
    return f"""define internal i1 @{CHECK}(ptr %frame, i64 %arrays, ptr %metadata, i64 %pairs) noinline nounwind {{
entry:
  %tuple = load ptr, ptr %frame
  %items = getelementptr i8, ptr %tuple, i64 {TUPLE_ITEMS}
  %slots = getelementptr i64, ptr %frame, i64 1
  %some = icmp sgt i64 %arrays, 0
  br i1 %some, label %array, label %overlaps
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
  %want.flags.at = getelementptr i64, ptr %words, i64 1
  %want.nd.at = getelementptr i64, ptr %words, i64 2
  %want.descr = load i64, ptr %words
  %want.flags = load i32, ptr %want.flags.at
  %want.nd = load i32, ptr %want.nd.at
  %slot = getelementptr i64, ptr %slots, i64 %i
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
  %first = getelementptr i64, ptr %words, i64 3
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
  br i1 %again, label %array, label %overlaps
overlaps:
  %pair.first = phi ptr [ %metadata, %entry ], [ %words.end, %next ]
  %any = icmp sgt i64 %pairs, 0
  br i1 %any, label %pair, label %expected
pair:
  %p = phi i64 [ 0, %overlaps ], [ %p1, %apart ]
  %q = phi ptr [ %pair.first, %overlaps ], [ %q1, %apart ]
  %low.a.at = getelementptr i64, ptr %q, i64 1
  %high.a.at = getelementptr i64, ptr %q, i64 2
  %b.at = getelementptr i64, ptr %q, i64 3
  %low.b.at = getelementptr i64, ptr %q, i64 4
  %high.b.at = getelementptr i64, ptr %q, i64 5
  %a = load i64, ptr %q
  %b = load i64, ptr %b.at
  %slot.a = getelementptr i64, ptr %slots, i64 %a
  %slot.b = getelementptr i64, ptr %slots, i64 %b
  %base.a = load i64, ptr %slot.a
  %base.b = load i64, ptr %slot.b
  %low.a = load i64, ptr %low.a.at
  %high.a = load i64, ptr %high.a.at
  %low.b = load i64, ptr %low.b.at
  %high.b = load i64, ptr %high.b.at
  %begin.a = add i64 %base.a, %low.a
  %end.a = add i64 %base.a, %high.a
  %begin.b = add i64 %base.b, %low.b
  %end.b = add i64 %base.b, %high.b
  %before = icmp ule i64 %end.a, %begin.b
  %after = icmp ule i64 %end.b, %begin.a
  %disjoint = or i1 %before, %after
  br i1 %disjoint, label %apart, label %different
apart:
  %p1 = add i64 %p, 1
  %q1 = getelementptr i64, ptr %q, i64 6
  %further = icmp slt i64 %p1, %pairs
  br i1 %further, label %pair, label %expected
different:
  ret i1 false
expected:
  ret i1 true
}}"""


@cache
def verify_layout() -> None:
    """Compare what machine code will read with what NumPy says, on a live tuple.  Raises RuntimeError where they differ."""
    array = np.zeros((3, 5), dtype=np.float32)[:, 1:4]
    holder = (None, array)

    def word(address: int, kind: type[ctypes.c_int64] | type[ctypes.c_int32] = ctypes.c_int64) -> int:
        return int(kind.from_address(address).value)

    def words(address: int) -> tuple[int, int]:
        return word(address), word(address + 8)

    base = id(array)
    seen = {
        "tuple item": (word(id(holder) + TUPLE_ITEMS + 8), base),
        "data": (word(base + DATA), array.__array_interface__["data"][0]),
        "nd": (word(base + ND, ctypes.c_int32), array.ndim),
        "dimensions": (words(word(base + DIMENSIONS)), array.shape),
        "strides": (words(word(base + STRIDES)), array.strides),
        "descr": (word(base + DESCR), id(np.dtype(np.float32))),
        "flags": (word(base + FLAGS, ctypes.c_int32) & (_ALIGNED | _WRITEABLE), _ALIGNED | _WRITEABLE),
    }
    wrong = [f"{name}: read {read}, expected {expected}" for name, (read, expected) in seen.items() if read != expected]
    if wrong:
        raise RuntimeError(
            f"compiled programs cannot run here: the memory layout of tuples or NumPy {np.__version__} arrays is not the known one "
            f"({'; '.join(wrong)}). Run programs with TRACEJIT_BACKEND=interpret, and please report it"
        )
