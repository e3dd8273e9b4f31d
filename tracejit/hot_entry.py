"""Entries as machine code: what an entry that serves many calls becomes.

The first calls of a recorded path go through Python (`Recording.build_entry`); an entry that has served `config.hot_calls` of them is
translated (codegen/straight_line.py).  A call of a CompiledFunction goes from C to machine code: functools.partial calls the
dispatcher below, that the entry in front, that its program, all by pointer.  What no translated entry serves (one that is not hot, a guard
that fails, an exit, keyword arguments, another recording under way) goes to a Python function.  While a function is left alone
(settling.py) its calls go from C to the function itself.

The dispatcher leaves no trace of itself and of what it calls: a call that runs eagerly has the frames of an eager call, and what a call
raises has its traceback.

Translating and compiling a line takes 0.1 ms and saves about 20 ns a call, so it pays after some thousand calls.  The code is found
again by its content, in the disk cache, too: no address is part of it.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from tracejit.autograd.compiled import CompiledNode, ConsumedNode
from tracejit.autograd.tape import Storage
from tracejit.capture.cell import Held
from tracejit.capture.entry import Body, Exit, Recording
from tracejit.capture.tracebacks import without_dispatch
from tracejit.codegen import machine_code, python_api
from tracejit.codegen.linked import linked
from tracejit.codegen.machine_code import FASTCALL, KEYWORDS
from tracejit.codegen.python_api import ITEMS, LIST_ITEMS, TYPE
from tracejit.codegen.reference_counts import counting
from tracejit.codegen.straight_line import Run, Untranslatable, translate
from tracejit.core.interpreter import pushed_anywhere
from tracejit.tensor import Tensor

__all__ = ["FRONT", "UNSERVED", "dispatcher", "machine_entry", "machine_function"]

FRONT: Final = 2
"""The item of a CompiledFunction's paths that is the machine code of the entry tried first, or None."""
UNSERVED: Final = object()
"""The answer where nothing serves a call, nor records it."""
_ATTRIBUTE_ACCESS: Final = ("__getattribute__", "__setattr__")
_LONGEST: Final = (
    2000  # a line takes 0.1 ms to translate and compile; in a long function they take a small part of the call's time
)
_SYMBOL: Final = "tracejit_hot"
_BYTES: Final = bytes.__basicsize__ - 1  # PyBytesObject.ob_sval
_DISPATCH: Final = f"""
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
  %plain = icmp eq ptr %keywords, null
  br i1 %plain, label %look, label %idle
look:
  %paths = load ptr, ptr %paths.at
  %items.at = getelementptr i8, ptr %paths, i64 {LIST_ITEMS}
  %items = load ptr, ptr %items.at
  %front.at = getelementptr ptr, ptr %items, i64 {FRONT}
  %front = load ptr, ptr %front.at
  %none = load ptr, ptr %none.at
  %absent = icmp eq ptr %front, %none
  br i1 %absent, label %idle, label %try
idle:
  %left.alone.at = getelementptr i8, ptr %self, i64 {ITEMS + 80}
  %left.alone.bytes = load ptr, ptr %left.alone.at
  %left.alone.word.at = getelementptr i8, ptr %left.alone.bytes, i64 {_BYTES}
  %left.alone.word = load ptr, ptr %left.alone.word.at
  %left.alone = load i64, ptr %left.alone.word
  %settled = icmp sgt i64 %left.alone, 0
  br i1 %settled, label %alone.now, label %slow
alone.now:
  %left.alone.less = sub i64 %left.alone, 1
  store i64 %left.alone.less, ptr %left.alone.word
  br label %itself
try:
  call void @incref(ptr %front)
  %definition.at = getelementptr i8, ptr %front, i64 {python_api.METHOD}
  %definition = load ptr, ptr %definition.at
  %function.at = getelementptr i8, ptr %definition, i64 8
  %function = load ptr, ptr %function.at
  %own.at = getelementptr i8, ptr %front, i64 {python_api.METHOD_SELF}
  %own = load ptr, ptr %own.at
  %result = call ptr %function(ptr %own, ptr %arguments, i64 %count, ptr null)
  call void @decref(ptr %front)
  %raised = icmp eq ptr %result, null
  br i1 %raised, label %failed, label %served
served:
  %type.at = getelementptr i8, ptr %result, i64 {TYPE}
  %type = load ptr, ptr %type.at
  %exit.at = getelementptr i8, ptr %self, i64 {ITEMS + 32}
  %exit = load ptr, ptr %exit.at
  %left = icmp eq ptr %type, %exit
  br i1 %left, label %leave, label %return
return:
  ret ptr %result
leave:
  %more = add i64 %count, 1
  %row = alloca ptr, i64 %more
  store ptr %result, ptr %row
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
  %after.at = getelementptr i8, ptr %self, i64 {ITEMS + 40}
  %after = load ptr, ptr %after.at
  %after.result = call ptr @PyObject_Vectorcall(ptr %after, ptr %row, i64 %more, ptr null)
  call void @decref(ptr %result)
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


def _layouts(namespace: Mapping[str, Any]) -> dict[Any, dict[str, int]]:
    """Slots of the classes whose instances an entry with these globals reads and makes, where attributes are what they usually are."""
    kinds = [value for value in namespace.values() if isinstance(value, type) and issubclass(value, Tensor)]
    plain = [cls for cls in kinds if all(getattr(cls, name) is getattr(object, name) for name in _ATTRIBUTE_ACCESS)]
    return {cls: python_api.slot_offsets(cls) for cls in (*plain, Tensor, Storage, CompiledNode, ConsumedNode, Held)}


def machine_entry(recording: Recording, body: Body, entry: Callable[..., Any]) -> Any:
    """`entry`, made by `recording.build_entry(body)`, as a built-in function of the positional arguments alone.

    Raises Untranslatable where it cannot be, with what stands in the way."""
    if body.run is None:
        raise Untranslatable("a program that is not one call of machine code")
    return machine_function(recording.text(body, interpreted=False), entry.__globals__, body.run())


def machine_function(source: str, namespace: Mapping[str, Any], run: Run) -> Any:
    """The function `entry(args, kwargs)` in `source`, whose globals are `namespace`, as a built-in function of the positional arguments
    alone.  run: what the line RUN stands for.  Raises Untranslatable."""
    if not python_api.supported():
        raise Untranslatable(python_api.unsupported())
    if (length := source.count("\n")) > _LONGEST:
        raise Untranslatable(f"a function of {length} lines ({_LONGEST} at most)")
    text, constants = translate(source, "entry", _SYMBOL, namespace, _layouts(namespace), run)
    address, owner = linked(text, _SYMBOL)
    return machine_code.builtin_function("entry", address, FASTCALL | KEYWORDS, (*constants, *owner))


@cache
def _dispatching() -> tuple[int, Any]:
    return linked(_DISPATCH, _SYMBOL)


def dispatcher(
    function: Callable[..., Any],
    paths: list[Any],
    leave: Callable[..., Any],
    python: Callable[..., Any],
    rest: ctypes.c_int64,
) -> Any:
    """What a CompiledFunction that stands for `function` calls.  paths: its item FRONT is the machine entry to try, or None.
    leave(exit, *arguments) is called with an Exit that it returned; python(*arguments, **keywords) where no machine entry can be tried.
    Where these answer UNSERVED, the function itself is called, as if nothing stood between it and its caller.

    rest: how many calls that no machine entry is tried for go to the function at once; each takes one from it."""
    if not python_api.supported():

        def call(*args: Any, **kwargs: Any) -> Any:
            result = python(*args, **kwargs)
            return function(*args, **kwargs) if result is UNSERVED else result

        return call
    address, owner = _dispatching()
    word = struct.pack("=q", ctypes.addressof(rest))
    own = (paths, pushed_anywhere, 0, None, Exit, leave, python, UNSERVED, function, without_dispatch, word, rest, *owner)
    return machine_code.builtin_function("dispatch", address, FASTCALL | KEYWORDS, own)
