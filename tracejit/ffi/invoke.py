"""The machine code that calls an exported program, and the layout of the memory that it reads.

`i64 invoke(ptr descriptor, ptr values)` is one function for all programs.  `values` has a word for each argument and
each result: addresses of arrays and of results, the bits of numbers.  Behind these is a word to which the function
writes which path it took.  It returns 0 when the results are written, else the number of the exit by which the path
that went furthest was left; then no result is valid.

A call works in a frame: the arena of the program's temporary memory, then its table, which is copied from the path's
template.  A small frame is on the stack.  A larger one belongs to the descriptor, which has a few: a call takes a
free one, a bit of the word `FREE`, by compare-and-swap.  So any number of threads may call at once; if there are more
than frames, some wait.  Since a program calls nothing of its caller, a thread never waits for itself.  Nothing is
allocated.

The paths are tried in order.  Each checks by its exits that it is the one for these values, and writes only memory of
the frame and of the results.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from tracejit.cpython.linking import link

__all__ = [
    "ARENA_SLOT",
    "CODE",
    "FAILURE",
    "FAILURES",
    "FRAMES",
    "FRAME_BYTES",
    "FREE",
    "INVOKE",
    "LAYOUT",
    "PATHS",
    "PATH_TABLE",
    "PROGRAM_ID",
    "RANGES",
    "RANGE_COUNT",
    "SLOTS",
    "STACK",
    "TABLE_OFFSET",
    "TEMPLATE",
    "TEMPLATE_BYTES",
    "VALUES",
    "WORDS",
    "invoke_function",
]  # fmt: skip

LAYOUT: Final = 1
"""The version of the descriptor's words that callers read: Numba keeps callers in files, which outlive this library's
versions."""

INVOKE: Final = 0
"""Word of a descriptor: the address of the function below."""
PROGRAM_ID: Final = 1
"""Word: which program it is (errors.py)."""
FREE: Final = 2
"""Word: a bit for each frame that nobody uses."""
FRAMES: Final = 3
"""Word: the address of the first frame; 0 if frames are on the stack."""
FRAME_BYTES: Final = 4
"""Word: from one frame to the next; a multiple of 64."""
PATHS: Final = 5
"""Word: how many paths there are."""
VALUES: Final = 6
"""Word: how many words `values` has, without the last."""
PATH_TABLE: Final = 7
"""Word: the address of the rows of paths."""
RANGE_COUNT: Final = 8
"""Word: how many ranges of memory the program reads besides its arguments."""
RANGES: Final = 9
"""Word: the address of their begins and ends."""
FAILURE: Final = 10
"""Word: the address of the failure record (errors.py)."""
TABLE_OFFSET: Final = 11
"""Word: where the table begins in a frame, behind the arena, in bytes."""
FAILURES: Final = 12
"""Word: how many calls of Numba's code have failed."""
WORDS: Final = 13

CODE: Final = 0
"""Word of a path's row: the address of its machine code."""
TEMPLATE: Final = 1
"""Word: the address of what its table begins as."""
TEMPLATE_BYTES: Final = 2
"""Word: how long that is."""
ARENA_SLOT: Final = 3
"""Word: the slot in the table for the address of the arena."""
SLOTS: Final = 4
"""From this word on: the slot for each of the values, -1 where the path does not use it."""

STACK: Final = 4096
"""Bytes that a frame on the stack has at most."""

_SYMBOL: Final = "tracejit_invoke"


@cache
def invoke_function() -> tuple[int, Any]:
    """The address of the function, and what owns its code."""
    return link(_text(), _SYMBOL, computes=True)


def _text() -> str:
    def word(name: str, base: str, index: int, kind: str = "i64") -> str:
        return f"  %{name}.at = getelementptr i64, ptr {base}, i64 {index}\n  %{name} = load {kind}, ptr %{name}.at\n"

    return f"""declare i64 @llvm.cttz.i64(i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
define i64 @{_SYMBOL}(ptr %descriptor, ptr %values) nounwind {{
entry:
{word("frames", "%descriptor", FRAMES, "ptr")}{word("bytes", "%descriptor", FRAME_BYTES)}{word("paths", "%descriptor", PATHS)}\
{word("count", "%descriptor", VALUES)}{word("first", "%descriptor", PATH_TABLE, "ptr")}{word("offset", "%descriptor", TABLE_OFFSET)}\
  %free.at = getelementptr i64, ptr %descriptor, i64 {FREE}
  %path.at = getelementptr i64, ptr %values, i64 %count
  %small = icmp eq ptr %frames, null
  br i1 %small, label %stack, label %look
stack:
  %own = alloca i8, i64 %bytes, align 64
  br label %taken
look:
  %free = load atomic i64, ptr %free.at monotonic, align 8
  %none = icmp eq i64 %free, 0
  br i1 %none, label %look, label %take
take:
  %less = sub i64 %free, 1
  %rest = and i64 %free, %less
  %swap = cmpxchg ptr %free.at, i64 %free, i64 %rest acquire monotonic
  %won = extractvalue {{ i64, i1 }} %swap, 1
  br i1 %won, label %found, label %look
found:
  %found.bit = xor i64 %free, %rest
  %number = call i64 @llvm.cttz.i64(i64 %found.bit, i1 true)
  %frame.offset = mul i64 %number, %bytes
  %shared = getelementptr i8, ptr %frames, i64 %frame.offset
  br label %taken
taken:
  %frame = phi ptr [ %own, %stack ], [ %shared, %found ]
  %bit = phi i64 [ 0, %stack ], [ %found.bit, %found ]
  %table = getelementptr i8, ptr %frame, i64 %offset
  %arena = ptrtoint ptr %frame to i64
  %address = ptrtoint ptr %table to i64
  br label %path
path:
  %p = phi i64 [ 0, %taken ], [ %p.next, %left ]
  %row = phi ptr [ %first, %taken ], [ %row.next, %left ]
  %furthest = phi i64 [ 0, %taken ], [ %furthest.next, %left ]
  %furthest.path = phi i64 [ 0, %taken ], [ %furthest.path.next, %left ]
{word("code", "%row", CODE, "ptr")}{word("template", "%row", TEMPLATE, "ptr")}{word("length", "%row", TEMPLATE_BYTES)}\
{word("arena.slot", "%row", ARENA_SLOT)}\
  call void @llvm.memcpy.p0.p0.i64(ptr %table, ptr %template, i64 %length, i1 false)
  %arena.at = getelementptr i64, ptr %table, i64 %arena.slot
  store i64 %arena, ptr %arena.at
  %slots = getelementptr i64, ptr %row, i64 {SLOTS}
  br label %fill
fill:
  %j = phi i64 [ 0, %path ], [ %j.next, %filled ]
  %slot.at = getelementptr i64, ptr %slots, i64 %j
  %slot = load i64, ptr %slot.at
  %unused = icmp slt i64 %slot, 0
  br i1 %unused, label %filled, label %store
store:
  %value.at = getelementptr i64, ptr %values, i64 %j
  %value = load i64, ptr %value.at
  %to = getelementptr i64, ptr %table, i64 %slot
  store i64 %value, ptr %to
  br label %filled
filled:
  %j.next = add i64 %j, 1
  %more = icmp slt i64 %j.next, %count
  br i1 %more, label %fill, label %run
run:
  %status = call i64 %code(i64 %address, i64 0)
  %done = icmp eq i64 %status, 0
  br i1 %done, label %served, label %left
left:
  %further = icmp sgt i64 %status, %furthest
  %furthest.next = select i1 %further, i64 %status, i64 %furthest
  %furthest.path.next = select i1 %further, i64 %p, i64 %furthest.path
  %p.next = add i64 %p, 1
  %row.next = getelementptr i64, ptr %slots, i64 %count
  %others = icmp slt i64 %p.next, %paths
  br i1 %others, label %path, label %unserved
served:
  store i64 %p, ptr %path.at
  br label %release
unserved:
  store i64 %furthest.path.next, ptr %path.at
  br label %release
release:
  %result = phi i64 [ 0, %served ], [ %furthest.next, %unserved ]
  br i1 %small, label %return, label %give.back
give.back:
  %ignored = atomicrmw or ptr %free.at, i64 %bit release
  br label %return
return:
  ret i64 %result
}}
"""
