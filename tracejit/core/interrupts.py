"""Exceptions that come from outside: leaving a `with` block whatever comes in between, and telling such an exception from one's own.

CPython runs signal handlers when a function is entered, too, before its first line.  So an interrupt (Ctrl-C, an exception of the program's
own handler) can come at the entry of `__exit__`: the block is left, and nothing was put back.  `covers_its_entry` marks functions whose
first `try` is to begin at their entry: what its `finally` puts back is put back then as well.

A handler may raise an exception of any class, also where the library catches that class because something of its own raises it.
`is_foreign` tells them apart, so the program gets its own.

How an interpreter is made to do so is told by `install` (cpython/exception_tables.py does); until then, and where nobody knows how, marked
functions are as they are written.  The same for exceptions that are raised in another thread.

It must not know what is put back, nor what is caught.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final, TypeVar

__all__ = ["covers_its_entry", "install", "is_foreign", "raise_in_thread"]

F = TypeVar("F", bound=Callable[..., Any])
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


_marked: list[FunctionType] = []  # until somebody knows how to change them
_cover: list[Callable[[FunctionType], object]] = []
_raise: list[Callable[[int, type[BaseException]], None]] = []


def covers_its_entry(function: F) -> F:
    """Have the first `try` of `function`, whose body is one `try ... finally`, begin with its first instruction, where that can be done.

    Its body must have something that may raise, as `del` of a name has: CPython notes nothing of a `try` without."""
    if isinstance(function, FunctionType):
        _marked.append(function)
        _cover_marked()
    return function


def raise_in_thread(thread: int, error: type[BaseException]) -> None:
    """Raise an exception in the thread with an identifier, when it executes Python code next, where that can be done."""
    for function in _raise:
        function(thread, error)


def install(cover: Callable[[FunctionType], object] | None, raise_in: Callable[[int, type[BaseException]], None] | None) -> None:
    """Tell how a function's first `try` is made to begin at its entry, and how an exception is raised in a thread; None: nobody knows."""
    _cover[:] = [] if cover is None else [cover]
    _raise[:] = [] if raise_in is None else [raise_in]
    _cover_marked()


def _cover_marked() -> None:
    for cover in _cover:
        while _marked:
            cover(_marked.pop())
