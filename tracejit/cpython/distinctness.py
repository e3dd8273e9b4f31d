"""Whether objects are different ones, asked in nanoseconds: hash tables of addresses, in machine code.

`all_distinct(known, *objects)` is true if no two of the objects are the same and none of them is in `known`, a table that `table` made.
A table holds addresses, not objects: whoever keeps it knows that they live.  Linear probing; a table is at most half full.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

from tracejit.cpython.arrays import BYTES
from tracejit.cpython.builtin_functions import FASTCALL, builtin_function
from tracejit.cpython.c_api import ITEMS
from tracejit.cpython.linking import link
from tracejit.cpython.reference_counts import counting

__all__ = ["PROBING", "all_distinct", "table"]

_SYMBOL: Final = "tracejit_separate"
_FACTOR: Final = (
    0x9E3779B97F4A7C15  # multiplicative hashing (Knuth, The Art of Computer Programming 3, 6.4): 2**64 over the golden ratio
)

PROBING: Final = f"""
define internal ptr @place_of(ptr %object, ptr %table, i64 %mask) nounwind {{
entry:
  %bits = ptrtoint ptr %object to i64
  %high = lshr i64 %bits, 4
  %spread = mul i64 %high, {_FACTOR - 2**64}
  %hash = lshr i64 %spread, 32
  br label %probe
probe:
  %h = phi i64 [ %hash, %entry ], [ %h1, %other ]
  %index = and i64 %h, %mask
  %at = getelementptr ptr, ptr %table, i64 %index
  %there = load ptr, ptr %at
  %free = icmp eq ptr %there, null
  br i1 %free, label %found, label %taken
taken:
  %same = icmp eq ptr %there, %object
  br i1 %same, label %found, label %other
other:
  %h1 = add i64 %h, 1
  br label %probe
found:
  ret ptr %at
}}
define internal i1 @distinct(ptr %objects, i64 %count, ptr %table, i64 %mask) nounwind {{
entry:
  %less = shl i64 %mask, 3
  %bytes = add i64 %less, 8
  call void @llvm.memset.p0.i64(ptr %table, i8 0, i64 %bytes, i1 false)
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %put ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %yes
look:
  %from = getelementptr ptr, ptr %objects, i64 %i
  %object = load ptr, ptr %from
  %at = call ptr @place_of(ptr %object, ptr %table, i64 %mask)
  %there = load ptr, ptr %at
  %free = icmp eq ptr %there, null
  br i1 %free, label %put, label %no
put:
  store ptr %object, ptr %at
  %i1 = add i64 %i, 1
  br label %loop
yes:
  ret i1 true
no:
  ret i1 false
}}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""
"""`distinct(objects, count, table, mask)`: whether so many pointers in a row differ.  It needs room for a table of mask + 1 pointers, a
power of two and at least twice their number.  `place_of`: where a pointer is in a table, or would be."""

_TEXT: Final = f"""
{PROBING}
declare void @_Py_Dealloc(ptr)
{counting()}
define ptr @{_SYMBOL}(ptr %self, ptr %arguments, i64 %count) nounwind {{
entry:
  %known = load ptr, ptr %arguments
  %head = getelementptr i8, ptr %known, i64 {BYTES}
  %mask = load i64, ptr %head
  %table = getelementptr i8, ptr %head, i64 8
  %objects = getelementptr ptr, ptr %arguments, i64 1
  %rest = sub i64 %count, 1
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %unknown ]
  %more = icmp slt i64 %i, %rest
  br i1 %more, label %look, label %among
look:
  %from = getelementptr ptr, ptr %objects, i64 %i
  %object = load ptr, ptr %from
  %at = call ptr @place_of(ptr %object, ptr %table, i64 %mask)
  %there = load ptr, ptr %at
  %free = icmp eq ptr %there, null
  br i1 %free, label %unknown, label %answer
unknown:
  %i1 = add i64 %i, 1
  br label %loop
among:
  %zeros = call i64 @llvm.ctlz.i64(i64 %rest, i1 false)
  %shift = sub i64 65, %zeros
  %capacity = shl i64 1, %shift
  %own.mask = sub i64 %capacity, 1
  %space = alloca ptr, i64 %capacity
  %different = call i1 @distinct(ptr %objects, i64 %rest, ptr %space, i64 %own.mask)
  br label %answer
answer:
  %result = phi i1 [ false, %look ], [ %different, %among ]
  %offset = select i1 %result, i64 {ITEMS}, i64 {ITEMS + 8}
  %answer.at = getelementptr i8, ptr %self, i64 %offset
  %said = load ptr, ptr %answer.at
  call void @incref(ptr %said)
  ret ptr %said
}}
declare i64 @llvm.ctlz.i64(i64, i1)
"""


def table(objects: Sequence[Any]) -> bytes:
    """A table of objects, which must differ."""
    capacity = 1 << (2 * len(objects)).bit_length()
    row = [0] * capacity
    for address in map(id, objects):
        index = ((address >> 4) * _FACTOR % 2**64 >> 32) % capacity
        while row[index]:
            index = (index + 1) % capacity
        row[index] = address
    return struct.pack(f"={1 + capacity}q", capacity - 1, *row)


@cache
def all_distinct() -> Callable[..., bool]:
    """The function, for interpreters that c_api.supported() knows."""
    address, owner = link(_TEXT, _SYMBOL)
    function: Callable[..., bool] = builtin_function("separate", address, FASTCALL, (True, False, *owner))
    return function
