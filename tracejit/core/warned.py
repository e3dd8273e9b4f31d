"""Warnings of the library's own functions, which a compiled call gives as often as an eager one.

What the program writes itself is seen by a recording; functions of the library run natively, so they say it at the door."""

from __future__ import annotations

from tracejit.core.interpreter import state

__all__ = ["warn"]


def warn(message: str, stacklevel: int = 1) -> None:
    """Give a UserWarning; stacklevel as for warnings.warn: 1 is the caller, 2 who called it."""
    state.top.warn(message, stacklevel + 2)
