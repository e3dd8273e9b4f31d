"""Errors of calls without Python.

Machine code that Numba keeps in files must hold no text of one program, and Numba's exceptions with values computed
at run time need the environment of the function that raises, which code from files does not have.  So before it
raises an error, machine code writes to the process's failure record which program failed and how (integers), and the
error's text is made from the record when Python creates the error.  If two threads fail at the same time, both texts
may tell of the later failure.
"""

from __future__ import annotations

import itertools
import weakref
from typing import Any, Final, Protocol

import numpy as np

__all__ = [
    "ArgumentShapeError", "CannotExportError", "NoCompiledPathError", "OverlappingMemoryError", "describe_with", "failure_record",
    "new_program_id",
]  # fmt: skip

_ids = itertools.count(1)
_RECORD: Final = np.zeros(128, np.int64)
"""Which program it is, how many integers follow, and these."""


class _Describer(Protocol):
    """A program, which makes texts of integers."""

    def describe_exit(self, path: int, number: int) -> str: ...
    def describe_shape(self, position: int, *found: int) -> str: ...
    def describe_overlap(self, result: int) -> str: ...


_describers: weakref.WeakValueDictionary[int, _Describer] = weakref.WeakValueDictionary()


def new_program_id() -> int:
    """What tells a program from all others of this process."""
    return next(_ids)


def describe_with(program_id: int, program: _Describer) -> None:
    """Have the texts of errors of that program made by `program`."""
    _describers[program_id] = program


def failure_record() -> np.ndarray[Any, Any]:
    """The memory to which machine code writes before it raises."""
    return _RECORD


class CannotExportError(RuntimeError):
    """A compiled function cannot be called without Python; the text says why and what to do."""


class _CallError(Exception):
    """An error of a call.  Without arguments its text is made from the failure record."""

    _describe: str

    def __init__(self, *text: str) -> None:
        super().__init__(*(text or (self._described(),)))

    def _described(self) -> str:
        program_id, count = map(int, _RECORD[:2])
        program, found = _describers.get(program_id), list(map(int, _RECORD[2 : 2 + count]))
        if program is None:
            return f"program {program_id}, which is gone, cannot serve the call: {self._describe}{found}"
        text: str = getattr(program, self._describe)(*found)
        return text


class NoCompiledPathError(_CallError, RuntimeError):
    """No compiled path serves a call: a branch takes a way that was not recorded, or eager mode would raise an error."""

    _describe = "describe_exit"


class ArgumentShapeError(_CallError, ValueError):
    """An array has other sizes or strides than the example that the function was exported with."""

    _describe = "describe_shape"


class OverlappingMemoryError(_CallError, ValueError):
    """The memory for a result is also that of an argument, of a parameter of the function, or of another result."""

    _describe = "describe_overlap"
