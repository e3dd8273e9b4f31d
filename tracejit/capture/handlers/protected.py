"""Whether what the program calls may raise without its noticing: blocks of `try` and `with` around the line that runs.

A call that is made after the program raises where nobody handles it.  So where the program would, the call is not put off.  Tables of
handlers are read as CPython's notes on zero-cost exception handling describe them (Objects/exception_handling_notes.txt).
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import CodeType

from tracejit.capture.places import instrumented_frames

__all__ = ["is_protected"]

_ENTERS, _OF_WITH = dis.opmap["PUSH_EXC_INFO"], dis.opmap["WITH_EXCEPT_START"]
_UNIT = 2


def is_protected(blocks: bool) -> bool:
    """Whether a `try` of the program, or a `with` if `blocks`, is around the line that runs, in whatever function."""
    for frame in instrumented_frames():
        at = frame.f_lasti // _UNIT
        if any(start <= at < end and _handles(frame.f_code, target, blocks) for start, end, target in _handlers(frame.f_code)):
            return True
    return False


def _handles(code: CodeType, target: int, blocks: bool) -> bool:
    """Whether what begins at `target` is a handler of the program's, and not one of Python's own."""
    operations = code.co_code[_UNIT * target : _UNIT * (target + 2) : _UNIT]
    return operations[0] == _ENTERS and (blocks or operations[1] != _OF_WITH)


def _handlers(code: CodeType) -> Iterator[tuple[int, int, int]]:
    """(first instruction, first one behind, the handler's first one) of each stretch of code that has a handler."""
    numbers = iter(code.co_exceptiontable)

    def number(first: int) -> int:
        value = first & 63
        while first & 64:
            first = next(numbers)
            value = value << 6 | first & 63
        return value

    for first in numbers:
        start, length, target = number(first), number(next(numbers)), number(next(numbers))
        number(next(numbers))  # the depth of the stack
        yield start, start + length, target
