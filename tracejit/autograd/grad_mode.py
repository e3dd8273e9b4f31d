"""Grad modes, each a context manager and a decorator: no_grad, enable_grad, set_grad_enabled.  Per thread."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from tracejit.core.interpreter import state
from tracejit.core.interrupts import covers_its_entry

__all__ = ["enable_grad", "inference_mode", "is_grad_enabled", "no_grad", "set_grad_enabled"]

F = TypeVar("F", bound=Callable[..., Any])


def is_grad_enabled() -> bool:
    """Whether operations of this thread are recorded on the tape."""
    return state.grad_enabled


class _GradMode:
    _mode = True

    def __init__(self) -> None:
        self._previous: Any = ()  # (mode, what it was before): a stack of pairs, which one assignment pops

    def __enter__(self) -> None:
        self._previous = state.grad_enabled, self._previous
        state.grad_enabled = self._mode

    @covers_its_entry
    def __exit__(self, *exception: object) -> None:
        try:
            del exception
        finally:
            state.grad_enabled, self._previous = self._previous

    def __call__(self, function: F) -> F:
        mode = self._mode

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            previous = is_grad_enabled()
            try:
                _switch(mode)
                return function(*args, **kwargs)
            finally:
                _switch(previous)

        return wrapper  # type: ignore[return-value]


@covers_its_entry
def _switch(mode: bool) -> None:
    """A call of the library's own: what it does to the thread is no change of the program's.  Twice, for interrupts at its entry."""
    try:
        state.grad_enabled = mode
    finally:
        state.grad_enabled = mode


class _FixedMode(_GradMode):
    """A mode that decorates with and without parentheses."""

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        instance = super().__new__(cls)
        if function is None:
            return instance
        instance.__init__()  # type: ignore[misc]
        return instance(function)


class no_grad(_FixedMode):  # noqa: N801  (PyTorch's name)
    """Operations inside are not recorded: `with no_grad():`, or `@no_grad()` on a function; `@no_grad` works as well."""

    _mode = False


class enable_grad(_FixedMode):  # noqa: N801
    """Operations inside are recorded, also within no_grad."""

    _mode = True


class inference_mode(_GradMode):  # noqa: N801
    """Operations inside are not recorded, as with no_grad: `with inference_mode():`, or a decorator with or without parentheses.

    Tensors made inside are ordinary ones: they may take part in what is recorded later.  inference_mode(False) changes nothing."""

    def __new__(cls, mode: Any = True) -> Any:
        instance = super().__new__(cls)
        if isinstance(mode, bool):
            return instance
        instance.__init__(True)  # type: ignore[misc]
        return instance(mode)

    def __init__(self, mode: bool = True) -> None:
        super().__init__()
        self._off = mode

    def __enter__(self) -> None:
        self._mode = False if self._off else state.grad_enabled
        super().__enter__()

    def __call__(self, function: F) -> F:
        self._mode = False
        return super().__call__(function) if self._off else function


class set_grad_enabled(_GradMode):  # noqa: N801
    """Switch recording on or off: at once when called, and back at the end when used as a context manager."""

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self._mode = bool(mode)
        self._before = state.grad_enabled
        state.grad_enabled = self._mode

    def __repr__(self) -> str:
        return f"{type(self).__module__}.set_grad_enabled(mode={self._mode})"

    def __enter__(self) -> None:
        self._previous = self._before, self._previous
        state.grad_enabled = self._mode

    def __call__(self, function: F) -> F:
        state.grad_enabled = self._before  # decorating switches nothing: only calls of the function do
        return super().__call__(function)
