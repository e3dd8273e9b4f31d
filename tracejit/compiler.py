"""tracejit.compiler: what programs ask of the compiler beside `compile`.

`TRACEJIT_DISABLE=1`, or `config.override(enabled=False)`, turns compilation off for the process; `disable` for a function.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, overload

from tracejit.capture.frame import current
from tracejit.compiled.compile import compile, compiled_functions
from tracejit.compiled.settling import forget_code
from tracejit.core.compiler import calling_with, disabled
from tracejit.core.missing import missing_names
from tracejit.report.performance import PerformanceWarning

__all__ = [
    "PerformanceWarning", "allow_in_graph", "assume_constant_result", "compile", "cudagraph_mark_step_begin", "disable", "is_compiling",
    "is_dynamo_compiling", "is_exporting", "list_backends", "reset",
]  # fmt: skip

F = TypeVar("F", bound=Callable[..., Any])


@overload
def disable(fn: F, recursive: bool = ..., *, reason: str | None = ...) -> F: ...
@overload
def disable(fn: None = None, recursive: bool = ..., *, reason: str | None = ...) -> Callable[[F], F]: ...
def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """A function like `fn` that is never recorded; a decorator, with parentheses or without.

    A compiled function that calls it runs eagerly, with the reason `disabled`: here a call is one program or none, where PyTorch would
    compile what is before it and what is after it.  recursive: compiled functions that it calls run eagerly, too; if not, they are
    compiled as ever.  reason: what explain() says of it.

    A Module is given back, with a `forward` that is never recorded; a class, with such a `__call__`.  Raises TypeError for what cannot be
    called."""
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    if not callable(fn):
        raise TypeError(f"disable(): expected a function or a callable object, got {type(fn).__name__}")
    if isinstance(fn, type):
        fn.__call__ = disabled(fn.__call__, recursive, reason)  # type: ignore[method-assign]
        return fn
    if type(fn).__call__ in calling_with:
        fn.forward = disabled(fn.forward, recursive, reason)
        return fn
    return disabled(fn, recursive, reason)


def is_compiling() -> bool:
    """Whether a compiled function is being recorded, in this thread: what is recorded is what later calls do.  False in calls that run
    eagerly."""
    return current.recorder is not None


def allow_in_graph(fn: Any) -> Any:
    """`fn` itself: what a function does is recorded as it is."""
    return fn


assume_constant_result = allow_in_graph
is_dynamo_compiling = is_compiling


def is_exporting() -> bool:
    """False: there is no export."""
    return False


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """The names that `compile(backend=...)` takes for the one compiler that there is."""
    return ["inductor"]


def cudagraph_mark_step_begin() -> None:
    """Changes nothing: there are no CUDA graphs."""


def reset() -> None:
    """Forget what all compiled functions have recorded, as `clear()` of each does: their next calls are first calls."""
    forget_code()
    for function in compiled_functions():
        function.clear()


__getattr__ = missing_names(__name__)
