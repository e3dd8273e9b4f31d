"""NumPy's floating-point warnings, handled in one place.

PyTorch computes 1/0 and log(-1) silently, and compiled kernels cannot warn; so eager evaluation is silent too, whatever numpy.seterr the
user has set.  NumPy keeps its error state in a context variable, and there are two ways to change it for a while.

Around Python code this one variable is set, and set back (0.25 us, where numpy.errstate takes 1.5 us):

    errors = read_errors()
    try:
        write_errors(QUIET)
        ...
    finally:
        write_errors(errors)

So what runs in the middle (signal handlers, finalizers, callbacks of the garbage collector) finds the context variables of its program, may
evaluate tensors itself, and leaves an error state that is whole.  An exception may come after any call; a call that is the first thing in
a `finally` is made all the same.

A function of C's, in which no such code runs (but, before Python 3.12, what a garbage collection calls), can be called in a context
of its own in which the variable is set once and for all: `run_quietly` of a thread, 0.1 us.  A context cannot be entered twice: where
that is tried, RuntimeError says so before anything has happened, and the first way is left."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any, Final

import numpy as np

__all__ = ["QUIET", "quiet_runner", "quietly", "read_errors", "write_errors"]

ErrorState = tuple[Callable[[], Any], Callable[[Any], Any], Any]


def _by_variable() -> ErrorState | None:
    """How to read and write the variable, and its value for "ignore everything"; None if this NumPy has no such variable."""
    context = contextvars.copy_context()
    before = dict(context)
    context.run(np.seterr, all="ignore")
    for variable, value in context.items():
        if before.get(variable) is not value:
            return variable.get, variable.set, value
    return None


def _by_functions() -> ErrorState:
    """The same by NumPy's functions, which any NumPy has."""
    return np.geterr, lambda errors: np.seterr(**errors), dict.fromkeys(np.geterr(), "ignore")


_found: Final = _by_variable() or _by_functions()
read_errors: Final[Callable[[], Any]] = _found[0]
write_errors: Final[Callable[[Any], Any]] = _found[1]
QUIET: Final[Any] = _found[2]


def quiet_runner() -> Callable[..., Any]:
    """`run(function, *operands)`, for functions of C's and the use of one thread.  Raises RuntimeError inside such a call."""
    context = contextvars.copy_context()
    context.run(write_errors, QUIET)
    return context.run


def quietly(function: Callable[..., Any], *operands: Any, **attributes: Any) -> Any:
    """`function(*operands, **attributes)` without floating-point warnings, where a call more does not matter."""
    errors = read_errors()
    try:
        write_errors(QUIET)
        return function(*operands, **attributes)
    finally:
        write_errors(errors)
