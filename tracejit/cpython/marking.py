"""Machine code that marks storages as written: autograd.tape.mark_written for a tuple, in nanoseconds for each."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

from tracejit.cpython.builtin_functions import ONE, builtin_function
from tracejit.cpython.c_api import ITEMS, SIZE, declaration, slot_offsets
from tracejit.cpython.linking import link
from tracejit.cpython.reference_counts import counting

__all__ = ["marking"]

_SYMBOL: Final = "tracejit_mark_written"


def _text(version: int, written: int) -> str:
    return f"""
{declaration("PyNumber_Add")}
{declaration("PyObject_Vectorcall")}
{declaration("_Py_Dealloc")}
{counting()}
define ptr @{_SYMBOL}(ptr %self, ptr %storages) nounwind {{
entry:
  %size.at = getelementptr i8, ptr %storages, i64 {SIZE}
  %size = load i64, ptr %size.at
  %counter.at = getelementptr i8, ptr %self, i64 {ITEMS}
  %one.at = getelementptr i8, ptr %self, i64 {ITEMS + 8}
  %none.at = getelementptr i8, ptr %self, i64 {ITEMS + 16}
  %counter = load ptr, ptr %counter.at
  %one = load ptr, ptr %one.at
  %none = load ptr, ptr %none.at
  %now = call ptr @PyObject_Vectorcall(ptr %counter, ptr null, i64 0, ptr null)
  %failed = icmp eq ptr %now, null
  br i1 %failed, label %error, label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %mark ]
  %more = icmp slt i64 %i, %size
  br i1 %more, label %item, label %end
item:
  %offset = mul i64 %i, 8
  %item.offset = add i64 %offset, {ITEMS}
  %from = getelementptr i8, ptr %storages, i64 %item.offset
  %storage = load ptr, ptr %from
  %version.at = getelementptr i8, ptr %storage, i64 {version}
  %version = load ptr, ptr %version.at
  %next = call ptr @PyNumber_Add(ptr %version, ptr %one)
  %stuck = icmp eq ptr %next, null
  br i1 %stuck, label %stop, label %mark
mark:
  store ptr %next, ptr %version.at
  call void @decref(ptr %version)
  %written.at = getelementptr i8, ptr %storage, i64 {written}
  %written = load ptr, ptr %written.at
  call void @incref(ptr %now)
  store ptr %now, ptr %written.at
  call void @decref(ptr %written)
  %i1 = add i64 %i, 1
  br label %loop
stop:
  call void @decref(ptr %now)
  br label %error
error:
  ret ptr null
end:
  call void @decref(ptr %now)
  call void @incref(ptr %none)
  ret ptr %none
}}
"""


@cache
def marking(next_number: Callable[[], int], cls: type, version: str, written: str) -> Callable[[tuple[Any, ...]], None]:
    """A builtin function of a tuple of instances of `cls`: adds one to the slot `version` of each, and puts one call's `next_number()` in
    the slot `written`.  For interpreters that c_api.supported() knows."""
    offsets = slot_offsets(cls)
    address, owner = link(_text(offsets[version], offsets[written]), _SYMBOL)
    function: Callable[[tuple[Any, ...]], None] = builtin_function("mark_written", address, ONE, (next_number, 1, None, *owner))
    return function
