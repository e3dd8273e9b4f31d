"""NumPy's floating-point warnings, handled in one place.

PyTorch computes 1/0 and log(-1) silently, and compiled kernels cannot warn; so eager evaluation is silent too, whatever numpy.seterr the
user has set.  NumPy keeps its error state in a context variable.  What is to be silent runs in a context of its own in which this one
variable is another one; the program's is left alone.  There are two ways.

`quietly(function, ...)` runs Python code in a copy of the program's context.  So what comes in the middle (signal handlers, finalizers,
callbacks of the garbage collector) finds the context variables of its program, may evaluate tensors itself, and what it sets is handed
over at the end.  Where a call counts, in eager dispatch, `quietly` is written out.  To set the variable and set it back instead would
not be safe before Python 3.12: a collection may begin while CPython changes a context, and whoever changes the same context in a
finalizer then takes from under it what it reads.

A function of C's, in which no such code runs (but, before Python 3.12, what a garbage collection calls), can be called in a context
that is kept, and so has the variables that it was made with: `run_quietly` of a thread, 0.1 us.  A context cannot be entered twice: where
that is tried, RuntimeError says so before anything has happened (`is_refusal`), and the first way is left (`called_quietly`)."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import Any, Final

import numpy as np

__all__ = [
    "QUIET", "called_quietly", "hand_over", "is_refusal", "quiet_runner", "quietly", "read_errors", "with_errors", "write_errors",
]  # fmt: skip


def _error_state() -> tuple[ContextVar[Any], Any]:
    """The variable, and its value for "ignore everything"."""
    context = copy_context()
    before = dict(context)
    context.run(np.seterr, all="ignore")
    ((variable, value),) = [(name, new) for name, new in context.items() if before.get(name) is not new]
    return variable, value


_variable, QUIET = _error_state()
write_errors: Final = _variable.set
"""Sets the error state of this context: only ever of a copy that nobody else knows."""
read_errors: Final = _variable.get
"""NumPy's error state in this context, for `with_errors`."""


def quietly(function: Callable[..., Any], /, *operands: Any, **attributes: Any) -> Any:
    """`function(*operands, **attributes)` without floating-point warnings."""
    inside = copy_context()
    inside.run(write_errors, QUIET)
    before = inside.copy()
    try:
        return inside.run(function, *operands, **attributes)
    finally:
        if inside != before:
            hand_over(before, inside)


def with_errors(errors: Any, function: Callable[..., Any], /, *operands: Any) -> Any:
    """`function(*operands)` with this error state: a function of the program's, in the middle of what runs quietly."""
    inside = copy_context()
    inside.run(write_errors, errors)
    before = inside.copy()
    try:
        return inside.run(function, *operands)
    finally:
        if inside != before:
            hand_over(before, inside)


def hand_over(before: Context, inside: Context) -> None:
    """Set what was set inside, NumPy's error state apart."""
    for variable, value in inside.items():
        if variable is not _variable and (variable not in before or before[variable] is not value):
            variable.set(value)


def quiet_runner() -> Callable[..., Any]:
    """`run(function, *operands)`, for functions of C's and the use of one thread.  Raises RuntimeError inside such a call."""
    context = copy_context()
    context.run(write_errors, QUIET)
    return context.run


def called_quietly(run_quietly: Callable[..., Any], function: Any, /, *operands: Any) -> Any:
    """A function of C's without floating-point warnings, by the `run_quietly` of the thread, or as code of Python's in the middle of
    another call."""
    try:
        return run_quietly(function, *operands)
    except RuntimeError as error:
        if not is_refusal(error):
            raise
        return quietly(function, *operands)


def is_refusal(error: RuntimeError) -> bool:
    """Whether it says that `run_quietly` was called inside such a call; else the function, or a signal handler after it, has raised it."""
    return bool(error.args) and str(error.args[0]).startswith("cannot enter context")
