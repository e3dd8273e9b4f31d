"""Where exceptions are caught in a function: read, and changed in its code; and exceptions raised in other threads.

A code object has a table of the instructions that each `try` and `with` covers, and where their handlers begin
(Objects/exception_handling_notes.txt of CPython).  `is_covered` reads it.  The first `try` begins after the function's entry, where signal
handlers run, too; `cover_entry` makes it begin with the first instruction.

The format is that of CPython 3.11 to 3.14.  `unsupported` tries it on living functions before any other is read or changed: lines in a
`try` and in a `with` must be told from others; and where an exception is raised at the entry of a changed function, the way an interrupt
comes, its `finally` must run.  Where that is not so, functions stay as they are written, and every line may be covered.
"""

from __future__ import annotations

import contextlib
import ctypes
import dis
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache, partial
from operator import call
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, Final, cast

from tracejit.core import interrupts
from tracejit.cpython import layouts

__all__ = ["cover_entry", "install", "is_covered", "raise_in_thread", "unsupported"]

_FIRST: Final = 0x80  # of the six-bit parts of the first number of an entry
_MORE: Final = 0x40
_UNIT: Final = 2  # bytes of an instruction, which tables count in
_BEGINS: Final = dis.opmap.get("PUSH_EXC_INFO")  # the first instruction of a handler of the program's
_OF_WITH: Final = dis.opmap.get("WITH_EXCEPT_START")


class _Raised(Exception):
    """What the self-test raises at the entry of a function."""


def install() -> None:
    """Have the functions that core/interrupts.py was told of cover their entries, where this interpreter is known to allow it."""
    is_cpython = layouts.build().implementation == "cpython"
    interrupts.install(None if unsupported() else cover_entry, raise_in_thread if is_cpython else None)


def raise_in_thread(thread: int, error: type[BaseException]) -> None:
    """Raise an exception in the thread with an identifier, when it executes Python code next."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))


def cover_entry(function: FunctionType) -> bool:
    """Have the first `try` of a function, whose body is one `try ... finally`, begin with its first instruction.

    False, and the function is as it was, where that `try` covers no instruction that may raise: then the table's first entry is that of
    something else."""
    table = function.__code__.co_exceptiontable
    if not table:
        return False
    start, at = _number(table, 0)
    size, at = _number(table, at)
    _, after = _number(table, at)
    state, _ = _number(table, after)  # values on the stack, doubled, and whether the position of the exception is kept
    if state:
        return False
    numbers = bytes([*_parts(0, _FIRST), *_parts(start + size, 0)])
    function.__code__ = function.__code__.replace(co_exceptiontable=numbers + table[at:])
    return True


@cache
def unsupported() -> str:
    """What speaks against changing where exceptions are caught; empty if nothing does."""
    found = layouts.build()
    if found.implementation != "cpython" or found.version not in layouts.LAYOUTS:
        return f"tables of exceptions of {found.text} are not known"
    try:
        works = _tells_lines_apart() and _runs_at_entry()
    except (IndexError, ValueError, SystemError) as error:  # a table of another format
        if interrupts.is_foreign(error):
            raise
        works = False
    return "" if works else f"tables of exceptions of this build of {found.text} have another format"


def is_covered(frame: FrameType, blocks: bool) -> bool:
    """Whether a `try`, or a `with` if `blocks`, is around the line that a frame runs.  True where tables are not known."""
    return bool(unsupported()) or _is_covered(frame, blocks)


def _is_covered(frame: FrameType, blocks: bool) -> bool:
    """An instruction has the innermost handler only; what is around that covers in turn the instructions of the handler."""
    code, at = frame.f_code, frame.f_lasti // _UNIT
    handlers, met = list(_handlers(code)), set()
    while at not in met:
        met.add(at)
        target = next((target for start, end, target in handlers if start <= at < end), None)
        if target is None:
            return False
        begins, then = code.co_code[_UNIT * target : _UNIT * (target + 2) : _UNIT]
        if begins == _BEGINS and (blocks or then != _OF_WITH):  # of the program's, and not one of Python's own
            return True
        at = target
    return False


def _handlers(code: CodeType) -> Iterator[tuple[int, int, int]]:
    """(first instruction, first one behind, the handler's first one) of each stretch of code that has a handler."""
    table, at = code.co_exceptiontable, 0
    while at < len(table):
        start, at = _number(table, at)
        length, at = _number(table, at)
        target, at = _number(table, at)
        _, at = _number(table, at)  # the depth of the stack
        yield start, start + length, target


def _tells_lines_apart() -> bool:
    """Whether `_is_covered` says what is so of lines in nothing, in a `try`, in a `with`, in a `with` in a `try`, and in handlers."""

    def covered() -> tuple[bool, bool]:
        frame = sys._getframe(1)
        return _is_covered(frame, False), _is_covered(frame, True)

    def lines() -> Iterator[tuple[bool, bool]]:
        yield covered()
        try:
            yield covered()
            with contextlib.nullcontext():
                yield covered()
        finally:
            yield covered()
        with contextlib.nullcontext():
            yield covered()
        try:
            raise _Raised
        except _Raised:
            yield covered()
        yield covered()

    no, with_blocks, yes = (False, False), (False, True), (True, True)
    return list(lines()) == [no, yes, yes, no, with_blocks, no, no]


def _runs_at_entry() -> bool:
    """Whether the `finally` of a changed function runs where an exception comes at its entry, in its body, and where none comes."""
    ran: list[str] = []

    def probe(x: Any = None) -> Any:
        try:
            ran.append("body")
            return x + 1
        finally:
            ran.append("finally")

    if not cover_entry(cast(FunctionType, probe)):
        return False
    thread = ctypes.c_ulong(threading.get_ident())
    # A function of C: after a call that Python code makes, the exception would come there.
    arm = partial(ctypes.pythonapi.PyThreadState_SetAsyncExc, thread, ctypes.py_object(_Raised))
    tools: list[tuple[Any, Any]] = [(sys.setprofile, sys.getprofile()), (sys.settrace, sys.gettrace())]
    # Those written in Python are told of calls and lines: the exception would come in them.
    in_python = [(switch, tool) for switch, tool in tools if isinstance(tool, FunctionType | MethodType)]
    outcomes: list[Any] = []
    steps: list[list[Callable[[], Any]]] = [[partial(probe, 1)], [probe], [arm, partial(probe, 1)]]
    for switch, _ in in_python:
        switch(None)
    try:
        for step in steps:
            try:
                outcomes += list(map(call, step))  # the exception comes here at the latest
            except (_Raised, TypeError) as error:
                outcomes.append(type(error))
    finally:
        for switch, tool in reversed(in_python):
            switch(tool)
    return outcomes == [2, TypeError, _Raised] and ran == ["body", "finally", "body", "finally", "finally"]


def _number(table: bytes, at: int) -> tuple[int, int]:
    """The number at a position of the table, and the position after it."""
    value = table[at] & 0x3F
    while table[at] & _MORE:
        at += 1
        value = value << 6 | table[at] & 0x3F
    return value, at + 1


def _parts(value: int, mark: int) -> list[int]:
    """A number as the table holds it."""
    parts = [value & 0x3F]
    while value := value >> 6:
        parts.append(value & 0x3F | _MORE)
    parts.reverse()
    parts[0] |= mark
    return parts
