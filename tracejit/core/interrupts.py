"""Exceptions that come from outside: leaving a `with` block whatever comes in between, and telling such an exception from one's own.

CPython runs signal handlers when a function is entered, too, before its first line.  So an interrupt (Ctrl-C, an exception of the program's
own handler) can come at the entry of `__exit__`: the block is left, and nothing was put back.  `covers_its_entry` makes the first `try`
of a function begin at its entry: what its `finally` puts back is put back then as well.

A handler may raise an exception of any class, also where the library catches that class because something of its own raises it.
`is_foreign` tells them apart, so the program gets its own.

It must not know what is put back, nor what is caught.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final, TypeVar

__all__ = ["covers_its_entry", "is_foreign"]

F = TypeVar("F", bound=Callable[..., Any])
_FIRST = 0x80  # of the six-bit parts of the first number of an entry
_MORE = 0x40
_OWN: Final = frozenset({"tracejit", "numpy", "scipy", "numba", "llvmlite", *sys.stdlib_module_names})


def is_foreign(error: BaseException) -> bool:
    """Whether the program raised an error that came out of code that is none of the program's: a signal handler did, or another thread
    (PyThreadState_SetAsyncExc, which makes an instance of a class without arguments)."""
    if not error.args or type(error).__module__.partition(".")[0] not in _OWN:
        return True
    step = error.__traceback__
    while step is not None and (step := step.tb_next) is not None:  # the first frame is that of the caller
        if step.tb_frame.f_globals.get("__name__", "").partition(".")[0] not in _OWN:
            return True
    return False


def covers_its_entry(function: F) -> F:
    """`function`, whose body is one `try ... finally`, with the exception table (Objects/exception_handling_notes.txt of CPython)
    of its code changed: the try block begins with the first instruction.  As it is where an interpreter has no such table."""
    code = getattr(function, "__code__", None)
    table = getattr(code, "co_exceptiontable", b"")
    if not isinstance(function, FunctionType) or not table:
        return function
    start, at = _number(table, 0)
    size, at = _number(table, at)
    numbers = bytes([*_parts(0, _FIRST), *_parts(start + size, 0)])
    function.__code__ = function.__code__.replace(co_exceptiontable=numbers + table[at:])
    return function


def _number(table: bytes, at: int) -> tuple[int, int]:
    """The number at a place of the table, and the place after it."""
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
