"""tracejit.compiler: what programs ask of the compiler beside `compile`.

`TRACEJIT_DISABLE=1`, or `config.override(enabled=False)`, turns compilation off for the process; `disable` for a function.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any, TypeVar, overload

from tracejit.capture.frame import current
from tracejit.compiled.accounts import forget_code
from tracejit.compiled.compile import compile, compiled_functions
from tracejit.config import config
from tracejit.core.compiler import calling_with, disabled
from tracejit.core.missing import missing_names
from tracejit.report.performance import PerformanceWarning

__all__ = [
    "PerformanceWarning", "allow_in_graph", "assume_constant_result", "compile", "cudagraph_mark_step_begin", "disable", "is_compiling",
    "is_dynamo_compiling", "is_exporting", "list_backends", "reset", "set_stance",
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


class set_stance(contextlib.ContextDecorator):  # noqa: N801  (PyTorch's name)
    """How compiled functions behave from now on; as a context or a decorator, inside of it: "default", or "force_eager", where they run
    eagerly and nothing is recorded.  It holds for all threads, as config.enabled does.

    Raises NotImplementedError for PyTorch's other stances, ValueError for unknown ones."""

    def __init__(self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: Any = None) -> None:
        if stance in ("aot_eager_then_compile", "eager_on_recompile", "eager_then_compile", "fail_on_recompile"):
            raise NotImplementedError(
                f"set_stance({stance!r}): a call is served by a recorded path, recorded, or run eagerly, as its guards say; "
                "the stances are 'default' and 'force_eager'; compile(fullgraph=True) raises an error where nothing can be recorded"
            )
        if stance not in ("default", "force_eager"):
            raise ValueError(f"set_stance(): expected 'default' or 'force_eager', got {stance!r}")
        if skip_guard_eval_unsafe or force_backend is not None:
            raise NotImplementedError("set_stance(): guards are always checked, and there is one backend; give the stance alone")
        self.stance = stance
        self._before = [config.enabled]
        config.enabled = stance == "default"
        self._is_set = True

    def __enter__(self) -> set_stance:
        if not self._is_set:  # as a decorator it is entered by each call
            self._before.append(config.enabled)
            config.enabled = self.stance == "default"
        self._is_set = False
        return self

    def __exit__(self, *exception: object) -> None:
        config.enabled = self._before.pop()

    def __call__(self, func: F) -> F:
        if self._is_set:
            config.enabled, self._is_set = self._before.pop(), False
        return super().__call__(func)


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
