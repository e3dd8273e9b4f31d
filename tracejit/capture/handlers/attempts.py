"""Calls that an entry makes before the program, and that may raise: then the entry misses, and eager mode raises in its turn.

An entry takes what comes from frames further in for a signal handler's (entry.py), so these calls have to be wrapped.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["FAILED", "attempt", "attempt_without_warnings"]

FAILED = object()
"""What a call comes to that raises: it has no type that an entry expects."""
_ERRORS = (OSError, ValueError, TypeError, LookupError, ArithmeticError, MemoryError)


def attempt(function: Any, *arguments: Any, **keywords: Any) -> Any:
    """What a call comes to: a reading of the world, a draw."""
    try:
        return function(*arguments, **keywords)
    except _ERRORS:
        return FAILED


def attempt_without_warnings(function: Any, *arguments: Any, **keywords: Any) -> Any:
    """What NumPy computes; where it would warn it has failed, so that eager mode warns once, in its turn."""
    states = {kind: "raise" for kind, what in np.geterr().items() if what == "warn"}
    with np.errstate(**states):  # type: ignore[arg-type]
        return attempt(function, *arguments, **keywords)
