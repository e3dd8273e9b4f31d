"""What the layers know of compilation, without importing anything of the compiler: `compile` itself, and functions that are never compiled.

It must not know what a compiled function is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final, TypeVar

from tracejit.core.interpreter import ask_always, state
from tracejit.core.interrupts import covers_its_entry

__all__ = ["calling_with", "disabled", "disabled_name", "installed", "is_disabled"]

F = TypeVar("F", bound=Callable[..., Any])

installed: list[Callable[..., Any]] = []
"""`compile`, once the package has been imported."""

calling_with: dict[Any, Callable[..., Any]] = {}
"""`__call__` of modules -> what makes such a call with something in the place of the `forward`: (module, forward, args, kwargs)."""


class _CompilationOff:
    """Compiled functions that this thread calls within the block run eagerly."""

    __slots__ = ()

    def __enter__(self) -> None:
        state.compilation_off += 1
        ask_always(1)

    @covers_its_entry
    def __exit__(self, *exception: object) -> None:
        try:
            del exception
        finally:
            state.compilation_off -= 1
            ask_always(-1)


def disabled(function: F, recursive: bool, reason: str | None) -> F:
    """A function that calls `function` and is never recorded.  recursive: nor are compiled functions that it calls, directly or not: they
    run eagerly.  reason: why, for whoever reads that a compiled function stays eager because of it."""

    def call_disabled(*args: Any, **kwargs: Any) -> Any:
        if not recursive:
            return function(*args, **kwargs)
        with _CompilationOff():
            return function(*args, **kwargs)

    updated = ("__dict__",) if isinstance(function, FunctionType) else ()
    functools.update_wrapper(call_disabled, function, updated=updated)
    call_disabled._disabled_reason = reason  # type: ignore[attr-defined]
    return call_disabled  # type: ignore[return-value]


_CODE: Final = disabled(lambda: None, True, None).__code__


def is_disabled(function: FunctionType) -> bool:
    """Whether `disabled` has made a function."""
    return function.__code__ is _CODE


def disabled_name(function: FunctionType) -> str:
    """What a reader calls such a function, and why it is one."""
    reason = function.__dict__.get("_disabled_reason")
    name: str = function.__qualname__
    return f"{name}() ({reason})" if reason else f"{name}()"
