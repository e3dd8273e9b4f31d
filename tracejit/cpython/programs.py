"""Programs as built-in functions: what stands between Python and the machine code of a program.

The callable is a C function in CPython's fast calling convention (METH_FASTCALL), written in LLVM beside the program: it costs about as
much as any built-in function, and it holds the GIL, which the program needs to read Python objects.  It calls functions of the stable C
interface and looks at no object's memory.  This module knows a program's signature, not what it computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tracejit.cpython import c_api
from tracejit.cpython.builtin_functions import FASTCALL, builtin_function
from tracejit.native import machine_code

__all__ = ["PROGRAM", "compile_text", "load"]

PROGRAM: Final = "tracejit_program"  # the text defines `i64 @tracejit_program(i64 frame, i64 arrays)`

_ENTRY: Final = "tracejit_entry"
_CALLED: Final = ("PyErr_BadArgument", "PyErr_Occurred", "PyLong_AsLongLong", "PyLong_FromLongLong")

_ENTRY_TEXT: Final = f"""
declare i32 @PyErr_BadArgument()
declare ptr @PyErr_Occurred()
declare i64 @PyLong_AsLongLong(ptr)
declare ptr @PyLong_FromLongLong(i64)

define ptr @{_ENTRY}(ptr %self, ptr %arguments, i64 %count) nounwind {{
entry:
  %two = icmp eq i64 %count, 2
  br i1 %two, label %convert, label %refuse
convert:
  %second = getelementptr ptr, ptr %arguments, i64 1
  %frame.object = load ptr, ptr %arguments
  %arrays.object = load ptr, ptr %second
  %frame = call i64 @PyLong_AsLongLong(ptr %frame.object)
  %frame.doubt = icmp eq i64 %frame, -1
  br i1 %frame.doubt, label %frame.failed, label %next
frame.failed:
  %frame.error = call ptr @PyErr_Occurred()
  %frame.fine = icmp eq ptr %frame.error, null
  br i1 %frame.fine, label %next, label %raise
next:
  %arrays = call i64 @PyLong_AsLongLong(ptr %arrays.object)
  %arrays.doubt = icmp eq i64 %arrays, -1
  br i1 %arrays.doubt, label %arrays.failed, label %run
arrays.failed:
  %arrays.error = call ptr @PyErr_Occurred()
  %arrays.fine = icmp eq ptr %arrays.error, null
  br i1 %arrays.fine, label %run, label %raise
run:
  %status = call i64 @{PROGRAM}(i64 %frame, i64 %arrays)
  %result = call ptr @PyLong_FromLongLong(i64 %status)
  ret ptr %result
refuse:
  %asked = icmp eq i64 %count, 0
  br i1 %asked, label %where, label %bad
where:
  %number = ptrtoint ptr @{PROGRAM} to i64
  %address = call ptr @PyLong_FromLongLong(i64 %number)
  ret ptr %address
bad:
  %ignored = call i32 @PyErr_BadArgument()
  br label %raise
raise:
  ret ptr null
}}
"""


def compile_text(text: str) -> bytes:
    """Object code of a module that defines PROGRAM, as `machine_code.compile_text` makes it."""
    return machine_code.compile_text(text + _ENTRY_TEXT)


def load(object_code: bytes, imports: Mapping[str, int]) -> Callable[..., int]:
    """The program of `compile_text`'s object code as a Python function; without arguments it returns the program's address.
    imports: C symbol -> address; C's own are known.

    The function keeps its code alive.  Raises RuntimeError if it is no object code for this machine or a symbol is unknown."""
    address, owner = machine_code.link_compiled(object_code, {**c_api.symbols(_CALLED), **imports}, _ENTRY)
    function: Callable[..., int] = builtin_function("program", address, FASTCALL, owner)
    return function
