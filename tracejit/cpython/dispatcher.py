"""The function that a compiled function's calls go to, as machine code.

It tries the machine entries for the sizes of the call's arguments (size_table.py), or else those in front, one after the other while they
miss, goes on along the bridges of the exits that are taken, and leaves no trace of itself.

What no machine entry serves (one that is not hot, a guard that fails, an exit, keyword arguments, another recording under way) goes to a
function of Python.  A call that runs eagerly in the end has the frames of an eager call, and what a call raises has its traceback.
While a function is left alone its calls go from C to the function itself.

It knows lists, words and functions that it is given, not what they are for.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from tracejit.cpython import c_api
from tracejit.cpython.arrays import BYTES
from tracejit.cpython.builtin_functions import FASTCALL, KEYWORDS, builtin_function
from tracejit.cpython.c_api import ITEMS, LIST_ITEMS, SIZE, TYPE
from tracejit.cpython.linking import link
from tracejit.cpython.reference_counts import counting
from tracejit.cpython.size_table import LOOK, look_text

__all__ = ["FRONT", "SIZED", "UNSERVED", "dispatcher"]

FRONT: Final = 2
"""The item of a compiled function's paths that says what is tried, or None: a tuple of what to call with the exit that was taken and the
arguments, then the machine code of one entry or several, in the order in which they are tried."""
SIZED: Final = 3
"""The item that is None, or `SizeTable.items`, which has such tuples."""
UNSERVED: Final = object()
"""The answer where nothing serves a call, nor records it."""
_SYMBOL: Final = "tracejit_dispatch"
_FARTHEST: Final = 8  # bridges of one call
_MOST_ARGUMENTS: Final = 255  # which are copied on the stack where an entry is left
_ARRAY: Final = "_array"  # the slot of the class of sized arguments that has the array


def _text(slot: int, exit_slots: Mapping[str, int]) -> str:
    """The module.  slot: offset of the array in a sized argument; exit_slots: those of the slots of an exit."""
    return f"""
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @PyErr_Occurred()
declare void @PyErr_Fetch(ptr, ptr, ptr)
declare void @PyErr_NormalizeException(ptr, ptr, ptr)
declare void @PyErr_Restore(ptr, ptr, ptr)
declare i32 @PyException_SetTraceback(ptr, ptr)
declare ptr @PyException_GetTraceback(ptr)
declare void @PyException_SetContext(ptr, ptr)
declare void @_Py_Dealloc(ptr)
{counting()}
{look_text(slot)}
define internal ptr @taken() nounwind {{
  %row = alloca [3 x ptr]
  %value.at = getelementptr ptr, ptr %row, i64 1
  %traceback.at = getelementptr ptr, ptr %row, i64 2
  call void @PyErr_Fetch(ptr %row, ptr %value.at, ptr %traceback.at)
  call void @PyErr_NormalizeException(ptr %row, ptr %value.at, ptr %traceback.at)
  %type = load ptr, ptr %row
  %value = load ptr, ptr %value.at
  %traceback = load ptr, ptr %traceback.at
  call void @decref(ptr %type)
  %none = icmp eq ptr %traceback, null
  br i1 %none, label %end, label %trace
trace:
  %set = call i32 @PyException_SetTraceback(ptr %value, ptr %traceback)
  call void @decref(ptr %traceback)
  br label %end
end:
  ret ptr %value
}}
define internal void @raise(ptr %value) nounwind {{
  %type.at = getelementptr i8, ptr %value, i64 {TYPE}
  %type = load ptr, ptr %type.at
  call void @incref(ptr %type)
  %traceback = call ptr @PyException_GetTraceback(ptr %value)
  call void @PyErr_Restore(ptr %type, ptr %value, ptr %traceback)
  ret void
}}
define ptr @{_SYMBOL}(ptr %self, ptr %arguments, i64 %count, ptr %keywords) nounwind {{
entry:
  %error.at = alloca ptr
  %paths.at = getelementptr i8, ptr %self, i64 {ITEMS}
  %pushed.at = getelementptr i8, ptr %self, i64 {ITEMS + 8}
  %zero.at = getelementptr i8, ptr %self, i64 {ITEMS + 16}
  %none.at = getelementptr i8, ptr %self, i64 {ITEMS + 24}
  %pushed = load ptr, ptr %pushed.at
  %pushed.items.at = getelementptr i8, ptr %pushed, i64 {LIST_ITEMS}
  %pushed.items = load ptr, ptr %pushed.items.at
  %interpreters = load ptr, ptr %pushed.items
  %zero = load ptr, ptr %zero.at
  %alone = icmp eq ptr %interpreters, %zero
  br i1 %alone, label %kind, label %slow
kind:
  %positional = icmp eq ptr %keywords, null
  %few = icmp sle i64 %count, {_MOST_ARGUMENTS}
  %plain = and i1 %positional, %few
  br i1 %plain, label %look, label %idle
look:
  %paths = load ptr, ptr %paths.at
  %items.at = getelementptr i8, ptr %paths, i64 {LIST_ITEMS}
  %items = load ptr, ptr %items.at
  %none = load ptr, ptr %none.at
  %sized.at = getelementptr ptr, ptr %items, i64 {SIZED}
  %sized = load ptr, ptr %sized.at
  %alike = icmp eq ptr %sized, %none
  br i1 %alike, label %first, label %measure
first:
  %front.at = getelementptr ptr, ptr %items, i64 {FRONT}
  %front = load ptr, ptr %front.at
  %absent = icmp eq ptr %front, %none
  br i1 %absent, label %idle, label %try
measure:
  %class.at = getelementptr i8, ptr %self, i64 {ITEMS + 96}
  %class = load ptr, ptr %class.at
  %chosen = call ptr @{LOOK}(ptr %sized, ptr %class, ptr %arguments, i64 %count)
  %unknown = icmp eq ptr %chosen, null
  br i1 %unknown, label %first, label %try
idle:
  %left.alone.at = getelementptr i8, ptr %self, i64 {ITEMS + 80}
  %left.alone.bytes = load ptr, ptr %left.alone.at
  %left.alone.word.at = getelementptr i8, ptr %left.alone.bytes, i64 {BYTES}
  %left.alone.word = load ptr, ptr %left.alone.word.at
  %left.alone = load i64, ptr %left.alone.word
  %settled = icmp sgt i64 %left.alone, 0
  br i1 %settled, label %alone.now, label %slow
alone.now:
  %left.alone.less = sub i64 %left.alone, 1
  store i64 %left.alone.less, ptr %left.alone.word
  br label %itself
try:
  %tried = phi ptr [ %front, %first ], [ %chosen, %measure ]
  call void @incref(ptr %tried)
  %length.at = getelementptr i8, ptr %tried, i64 {SIZE}
  %length = load i64, ptr %length.at
  %miss.at = getelementptr i8, ptr %self, i64 {ITEMS + 40}
  %miss = load ptr, ptr %miss.at
  br label %one
one:
  %place = phi i64 [ 1, %try ], [ %place1, %another ]
  %place1 = add i64 %place, 1
  %tried.at = getelementptr i8, ptr %tried, i64 {ITEMS}
  %machine.at = getelementptr ptr, ptr %tried.at, i64 %place
  %machine = load ptr, ptr %machine.at
  call void @incref(ptr %machine)
  br label %enter
enter:
  %entry.tried = phi ptr [ %machine, %one ], [ %bridge, %hop ]
  %hops = phi i64 [ 0, %one ], [ %hops1, %hop ]
  %exit.first = phi ptr [ null, %one ], [ %exit.kept, %hop ]
  %definition.at = getelementptr i8, ptr %entry.tried, i64 {c_api.METHOD}
  %definition = load ptr, ptr %definition.at
  %function.at = getelementptr i8, ptr %definition, i64 8
  %function = load ptr, ptr %function.at
  %own.at = getelementptr i8, ptr %entry.tried, i64 {c_api.METHOD_SELF}
  %own = load ptr, ptr %own.at
  %result = call ptr %function(ptr %own, ptr %arguments, i64 %count, ptr null)
  call void @decref(ptr %entry.tried)
  %raised = icmp eq ptr %result, null
  br i1 %raised, label %unfinished, label %served
unfinished:
  call void @decref(ptr %tried)
  call void @xdecref(ptr %exit.first)
  br label %failed
served:
  %type.at = getelementptr i8, ptr %result, i64 {TYPE}
  %type = load ptr, ptr %type.at
  %exit.at = getelementptr i8, ptr %self, i64 {ITEMS + 32}
  %exit = load ptr, ptr %exit.at
  %left = icmp eq ptr %type, %exit
  br i1 %left, label %away, label %return
return:
  call void @decref(ptr %tried)
  call void @xdecref(ptr %exit.first)
  ret ptr %result
away:
  %is.miss = icmp eq ptr %result, %miss
  %came.at.once = icmp eq i64 %hops, 0
  %are.others = icmp slt i64 %place1, %length
  %missed.at.once = and i1 %is.miss, %came.at.once
  %tries.another = and i1 %missed.at.once, %are.others
  br i1 %tries.another, label %another, label %onward
another:
  call void @decref(ptr %result)
  br label %one
onward:
  %bridge.at = getelementptr i8, ptr %result, i64 {exit_slots["bridge"]}
  %bridge = load ptr, ptr %bridge.at
  %no.bridge = icmp eq ptr %bridge, %none
  %far = icmp eq i64 %hops, {_FARTHEST}
  %stop = or i1 %no.bridge, %far
  br i1 %stop, label %leave, label %turn.left
turn.left:
  %word.at = getelementptr i8, ptr %result, i64 {exit_slots["word"]}
  %word.bytes = load ptr, ptr %word.at
  %word.address.at = getelementptr i8, ptr %word.bytes, i64 {BYTES}
  %word = load ptr, ptr %word.address.at
  %turns = load i64, ptr %word
  %turn = icmp sgt i64 %turns, 0
  br i1 %turn, label %hop, label %leave
hop:
  %turns1 = sub i64 %turns, 1
  store i64 %turns1, ptr %word
  call void @incref(ptr %bridge)
  %hops1 = add i64 %hops, 1
  %is.first = icmp eq i64 %hops, 0
  %exit.kept = select i1 %is.first, ptr %result, ptr %exit.first
  %exit.over = select i1 %is.first, ptr null, ptr %result
  call void @xdecref(ptr %exit.over)
  br label %enter
leave:
  %counter.at = getelementptr i8, ptr %result, i64 {exit_slots["counter"]}
  %counter = load ptr, ptr %counter.at
  %missed = icmp eq ptr %counter, %none
  %went.on = icmp ne ptr %exit.first, null
  %back = and i1 %missed, %went.on
  %exit.told = select i1 %back, ptr %exit.first, ptr %result
  %exit.else = select i1 %back, ptr %result, ptr %exit.first
  call void @xdecref(ptr %exit.else)
  %more = add i64 %count, 1
  %row = alloca ptr, i64 %more
  store ptr %exit.told, ptr %row
  br label %copy
copy:
  %i = phi i64 [ 0, %leave ], [ %i1, %next ]
  %rest = icmp slt i64 %i, %count
  br i1 %rest, label %next, label %go.on
next:
  %from = getelementptr ptr, ptr %arguments, i64 %i
  %argument = load ptr, ptr %from
  %i1 = add i64 %i, 1
  %to = getelementptr ptr, ptr %row, i64 %i1
  store ptr %argument, ptr %to
  br label %copy
go.on:
  %after.at = getelementptr i8, ptr %tried, i64 {ITEMS}
  %after = load ptr, ptr %after.at
  %after.result = call ptr @PyObject_Vectorcall(ptr %after, ptr %row, i64 %more, ptr null)
  call void @decref(ptr %exit.told)
  call void @decref(ptr %tried)
  br label %answered
slow:
  %python.at = getelementptr i8, ptr %self, i64 {ITEMS + 48}
  %python = load ptr, ptr %python.at
  %slow.result = call ptr @PyObject_Vectorcall(ptr %python, ptr %arguments, i64 %count, ptr %keywords)
  br label %answered
answered:
  %answer = phi ptr [ %after.result, %go.on ], [ %slow.result, %slow ]
  %refused.at = getelementptr i8, ptr %self, i64 {ITEMS + 56}
  %refused = load ptr, ptr %refused.at
  %is.null = icmp eq ptr %answer, null
  br i1 %is.null, label %failed, label %found
found:
  %unserved = icmp eq ptr %answer, %refused
  br i1 %unserved, label %refuse, label %over
over:
  ret ptr %answer
refuse:
  call void @decref(ptr %answer)
  br label %itself
itself:
  %wrapped.at = getelementptr i8, ptr %self, i64 {ITEMS + 64}
  %wrapped = load ptr, ptr %wrapped.at
  %eager.result = call ptr @PyObject_Vectorcall(ptr %wrapped, ptr %arguments, i64 %count, ptr %keywords)
  ret ptr %eager.result
failed:
  %occurred = call ptr @PyErr_Occurred()
  %unsaid = icmp eq ptr %occurred, null
  br i1 %unsaid, label %nothing, label %take
nothing:
  ret ptr null
take:
  %error = call ptr @taken()
  store ptr %error, ptr %error.at
  %clean.at = getelementptr i8, ptr %self, i64 {ITEMS + 72}
  %clean = load ptr, ptr %clean.at
  %cleaned = call ptr @PyObject_Vectorcall(ptr %clean, ptr %error.at, i64 1, ptr null)
  %interrupted = icmp eq ptr %cleaned, null
  br i1 %interrupted, label %again, label %done
done:
  call void @decref(ptr %cleaned)
  call void @raise(ptr %error)
  ret ptr null
again:
  %interrupt = call ptr @taken()
  call void @PyException_SetContext(ptr %interrupt, ptr %error)
  call void @raise(ptr %interrupt)
  ret ptr null
}}
"""


@cache
def _dispatching(sized: type, exit_type: type) -> tuple[int, Any]:
    return link(_text(c_api.slot_offsets(sized)[_ARRAY], c_api.slot_offsets(exit_type)), _SYMBOL)


def dispatcher(
    function: Callable[..., Any],
    paths: list[Any],
    pushed: list[int],
    exit_type: type,
    miss: Any,
    python: Callable[..., Any],
    clean: Callable[[BaseException], Any],
    rest: ctypes.c_int64,
    sized: type,
) -> Callable[..., Any]:
    """What a call of `function` goes to.  paths: its item FRONT says which machine entries to try, if any, where its item SIZED is no table
    that tells which; none is tried while pushed[0] is not 0.  What answers `miss` is followed by the next one; what answers with another
    instance of `exit_type` that has a bridge, and turns left, is followed by that.  What is tried begins with leave(exit, *arguments),
    called with the exit of the last one that took one; python(*arguments, **keywords) is called where no machine entry can be tried.
    Where these answer UNSERVED, the function itself is called, as if nothing stood between it and its caller.
    clean(error): takes the frames of the library out of the traceback of an error.

    rest: how many calls that no machine entry is tried for go to the function at once; each takes one from it.
    sized: the class of the arguments whose sizes are looked up."""
    if not c_api.supported():

        def call(*args: Any, **kwargs: Any) -> Any:
            result = python(*args, **kwargs)
            return function(*args, **kwargs) if result is UNSERVED else result

        return call
    address, owner = _dispatching(sized, exit_type)
    word = struct.pack("=q", ctypes.addressof(rest))
    own = (paths, pushed, 0, None, exit_type, miss, python, UNSERVED, function, clean, word, rest, sized, *owner)
    made: Callable[..., Any] = builtin_function("dispatch", address, FASTCALL | KEYWORDS, own)
    return made
