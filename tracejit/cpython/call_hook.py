"""A profile function in machine code: Python tells it of every call and return, and it asks about calls of code it does not know.

`Watch(check).begin()` installs it for this thread; `check(frame)` is called, unwatched, for each frame that begins to run code which
nobody has passed to `allow`.  Code objects are known by address and kept alive: those of the library for ever, others until `forget`.
A function written in Python would run for every call and return, those of builtins included, and would take a third of the time of a
recording.

Where machine code may not look at objects (c_api.supported) it is a function in Python.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from types import CodeType, FrameType
from typing import Any, Final

import numpy as np

from tracejit.cpython import c_api
from tracejit.llvm.linked import linked

__all__ = ["Watch", "allow", "forget"]

Check = Callable[[FrameType], None]

_SYMBOL: Final = "tracejit_call_hook"
_SIZE: Final = 1 << 13  # words of the table of addresses, a power of two; half of them at most are used
_DATA: Final = object.__basicsize__  # PyArrayObject.data
_lasting: dict[int, CodeType] = {}  # allowed code, by address
_passing: dict[int, CodeType] = {}  # the same, until it is forgotten
_table = np.zeros(_SIZE, np.int64)  # their addresses: from the place that an address says on, none is empty before it
_lasting_table = np.zeros(_SIZE, np.int64)  # those of lasting ones

_TEXT: Final = f"""
{c_api.declaration("PyEval_SetProfile")}
{c_api.declaration("PyFrame_GetCode")}
{c_api.declaration("PyObject_Vectorcall")}
{c_api.declaration("Py_DecRef")}

define i32 @{_SYMBOL}(ptr %self, ptr %frame, i32 %what, ptr %value) nounwind {{
entry:
  %arguments = alloca [2 x ptr]
  %call = icmp eq i32 %what, 0
  br i1 %call, label %look, label %known
look:
  %code = call ptr @PyFrame_GetCode(ptr %frame)
  %address = ptrtoint ptr %code to i64
  call void @Py_DecRef(ptr %code)
  %items = getelementptr i8, ptr %self, i64 {c_api.ITEMS}
  %array = load ptr, ptr %items
  %table.at = getelementptr i8, ptr %array, i64 {_DATA}
  %table = load ptr, ptr %table.at
  %first = lshr i64 %address, 4
  br label %probe
probe:
  %place = phi i64 [ %first, %look ], [ %following, %other ]
  %within = and i64 %place, {_SIZE - 1}
  %entry.at = getelementptr i64, ptr %table, i64 %within
  %found = load i64, ptr %entry.at
  %same = icmp eq i64 %found, %address
  br i1 %same, label %known, label %differs
differs:
  %empty = icmp eq i64 %found, 0
  br i1 %empty, label %ask, label %other
other:
  %following = add i64 %place, 1
  br label %probe
ask:
  %check.at = getelementptr i8, ptr %items, i64 8
  %check = load ptr, ptr %check.at
  %argument = getelementptr ptr, ptr %arguments, i64 1
  store ptr %frame, ptr %argument
  %answer = call ptr @PyObject_Vectorcall(ptr %check, ptr %argument, i64 1, ptr null)
  %failed = icmp eq ptr %answer, null
  br i1 %failed, label %raise, label %answered
answered:
  call void @Py_DecRef(ptr %answer)
  br label %known
known:
  ret i32 0
raise:
  call void @PyEval_SetProfile(ptr null, ptr null)
  ret i32 -1
}}
"""


def allow(code: CodeType, lasting: bool) -> None:
    """Frames of this code need no check; if not `lasting`, until `forget` is called."""
    address = id(code)
    if address in _lasting or address in _passing:
        return
    if lasting:
        _lasting[address] = code
        _enter(_lasting_table, address)
    else:
        _passing[address] = code
    _enter(_table, address)


def _enter(table: np.ndarray[Any, Any], address: int) -> None:
    if 2 * (len(_lasting) + len(_passing)) <= _SIZE:  # later ones are checked at each call
        place = address >> 4
        while table[place % _SIZE]:
            place += 1
        table[place % _SIZE] = address


def forget() -> None:
    """What was allowed for a while is to be checked again."""
    _table[:] = _lasting_table
    _passing.clear()


@cache
def _installer() -> Callable[[tuple[Any, ...]], None] | None:
    """Installs the machine code with a `self`; None where there is none."""
    if not c_api.supported():
        return None
    linked_code = linked(_TEXT, _SYMBOL)  # held by the function below: the address, and what owns the code
    install = ctypes.pythonapi.PyEval_SetProfile
    install.restype, install.argtypes = None, [ctypes.c_void_p, ctypes.py_object]

    def installer(own: tuple[Any, ...]) -> None:
        install(linked_code[0], own)

    return installer


class Watch:
    """A profile function that asks `check`.  profile: what sys.getprofile() returns while it is set.  What `check` raises is raised where
    the call was made, and it is asked no more."""

    __slots__ = ("_set", "profile")

    def __init__(self, check: Check) -> None:
        installer = _installer()
        if installer is not None:
            self.profile: Any = (_table, check)
            self._set: Callable[[Any], None] = installer
            return

        def profile(frame: FrameType, event: str, argument: Any) -> None:
            if event == "call" and id(frame.f_code) not in _lasting and id(frame.f_code) not in _passing:
                check(frame)

        self.profile = profile
        self._set = sys.setprofile

    def begin(self) -> None:
        """From now on it is asked in this thread, until sys.setprofile(None)."""
        self._set(self.profile)
