"""Calls that an entry makes before the program and that may raise.  If one raises, the entry misses, and the eager call raises
the error.

An entry takes an error from an inner frame for an error of a signal handler (entry.py), so these calls have to be wrapped.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.capture.policies import module_of

__all__ = ["FAILED", "attempt", "attempt_reading", "attempt_without_warnings"]

FAILED = object()
"""The result of a call that raised.  No entry expects its type, so the guard on the type misses."""
_ERRORS = (OSError, ValueError, TypeError, LookupError, ArithmeticError, MemoryError)


def attempt(function: Any, *arguments: Any, **keywords: Any) -> Any:
    """The result of function(...), which reads the environment or draws a random number; FAILED if it raises."""
    try:
        return function(*arguments, **keywords)
    except _ERRORS:
        return FAILED


def attempt_without_warnings(function: Any, *arguments: Any, **keywords: Any) -> Any:
    """The result of a function of NumPy; FAILED if it raises or would warn.  The eager call that follows then gives the warning,
    once."""
    states = {kind: "raise" for kind, what in np.geterr().items() if what == "warn"}
    with np.errstate(**states):  # type: ignore[arg-type]
        return attempt(function, *arguments, **keywords)


def attempt_reading(function: Any, *arguments: Any, **keywords: Any) -> Any:
    """The result of a function that reads array-like objects; FAILED if it raises, also an error of their packages, or NumPy would warn."""
    try:
        return attempt_without_warnings(function, *arguments, **keywords)
    except Exception as error:
        if isinstance(error, AttributeError) or _package_of(error) in map(_package_of, arguments):
            return FAILED
        raise


def _package_of(value: Any) -> str:
    return module_of(type(value)).partition(".")[0]
