"""Warnings of the library's own functions, which a compiled call gives as often as an eager one.

What the program writes itself is seen by a recording; functions of the library run natively, so they say it at the door."""

from __future__ import annotations

import warnings

from tracejit.core.interpreter import state
from tracejit.core.package_files import level_of_program

__all__ = ["warn", "warn_once"]

_said: set[str] = set()


def warn(message: str) -> None:
    """Give a UserWarning at the line of the program."""
    state.top.warn(message)


def warn_once(message: str) -> None:
    """Give a UserWarning at the line of the program, once in a process, so that a compiled call has nothing to give again."""
    if message not in _said:
        _said.add(message)
        warnings.warn(message, UserWarning, level_of_program())
