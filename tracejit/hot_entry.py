"""Entries as machine code: what an entry that serves many calls becomes.

The first calls of a recorded path go through Python (`Recording.build_entry`); an entry that has served `config.hot_calls` of them is
translated (codegen/straight_line.py).  From then on a call of the CompiledFunction goes from C to machine code: functools.partial calls the
dispatcher below, that the entry in front, that its program, all by pointer.  What the translated entry does not serve (a guard that
fails, an exit, keyword arguments, another recording under way) goes to the Python function that served it before.

Translating and compiling a line takes 0.1 ms and saves about 20 ns a call, so it pays after some thousand calls.  The code is found
again by its content, in the disk cache, too: no address is part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from tracejit.autograd.compiled import CompiledNode, ConsumedNode
from tracejit.autograd.tape import Storage
from tracejit.capture.cell import Held
from tracejit.capture.entry import Body, Exit, Recording
from tracejit.codegen import machine_code, python_api
from tracejit.codegen.linked import linked
from tracejit.codegen.machine_code import FASTCALL, KEYWORDS
from tracejit.codegen.python_api import ITEMS, LIST_ITEMS, TYPE
from tracejit.codegen.reference_counts import counting
from tracejit.codegen.straight_line import Run, Untranslatable, translate
from tracejit.core.interpreter import pushed_anywhere
from tracejit.tensor import Tensor

__all__ = ["FRONT", "dispatcher", "machine_entry", "machine_function"]

FRONT: Final = 2
"""The item of a CompiledFunction's paths that is the machine code of the entry tried first, or None."""
_ATTRIBUTE_ACCESS: Final = ("__getattribute__", "__setattr__")
_LONGEST: Final = (
    2000  # a line takes 0.1 ms to translate and compile; in a long function they take a small part of the call's time
)
_SYMBOL: Final = "tracejit_hot"
_DISPATCH: Final = f"""
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare void @_Py_Dealloc(ptr)
{counting()}
define ptr @{_SYMBOL}(ptr %self, ptr %arguments, i64 %count, ptr %keywords) nounwind {{
entry:
  %paths.at = getelementptr i8, ptr %self, i64 {ITEMS}
  %pushed.at = getelementptr i8, ptr %self, i64 {ITEMS + 8}
  %zero.at = getelementptr i8, ptr %self, i64 {ITEMS + 16}
  %none.at = getelementptr i8, ptr %self, i64 {ITEMS + 24}
  %plain = icmp eq ptr %keywords, null
  br i1 %plain, label %eager, label %slow
eager:
  %pushed = load ptr, ptr %pushed.at
  %pushed.items.at = getelementptr i8, ptr %pushed, i64 {LIST_ITEMS}
  %pushed.items = load ptr, ptr %pushed.items.at
  %interpreters = load ptr, ptr %pushed.items
  %zero = load ptr, ptr %zero.at
  %alone = icmp eq ptr %interpreters, %zero
  br i1 %alone, label %look, label %slow
look:
  %paths = load ptr, ptr %paths.at
  %items.at = getelementptr i8, ptr %paths, i64 {LIST_ITEMS}
  %items = load ptr, ptr %items.at
  %front.at = getelementptr ptr, ptr %items, i64 {FRONT}
  %front = load ptr, ptr %front.at
  %none = load ptr, ptr %none.at
  %absent = icmp eq ptr %front, %none
  br i1 %absent, label %slow, label %try
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
  br i1 %raised, label %return, label %served
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
  %answer = call ptr @PyObject_Vectorcall(ptr %after, ptr %row, i64 %more, ptr null)
  call void @decref(ptr %result)
  ret ptr %answer
slow:
  %python.at = getelementptr i8, ptr %self, i64 {ITEMS + 48}
  %python = load ptr, ptr %python.at
  %slow.result = call ptr @PyObject_Vectorcall(ptr %python, ptr %arguments, i64 %count, ptr %keywords)
  ret ptr %slow.result
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


def dispatcher(paths: list[Any], leave: Callable[..., Any], python: Callable[..., Any]) -> Any:
    """What a CompiledFunction calls once it has machine entries.  paths: its item FRONT is the entry to try.  leave(exit, *arguments) is
    called with an Exit that the entry returned; python(*arguments, **keywords) where no machine entry can be tried."""
    address, owner = _dispatching()
    own = (paths, pushed_anywhere, 0, None, Exit, leave, python, *owner)
    return machine_code.builtin_function("dispatch", address, FASTCALL | KEYWORDS, own)
