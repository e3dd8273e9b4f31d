"""Dispatch of calls that machine code does not serve, through the slots of a compiled function.

The *slots* of a compiled function are a list: the callable that serves a call first (SERVE); the callable that serves it if that
returns an Exit (FALLBACK); the two that machine code reads (cpython/dispatcher.py: FRONT, SIZED); and the function (OWNER).  The
table of paths fills them (path_table.py).

This module must not know more about entries than how they are called and that they may return an Exit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tracejit.capture.recording.entry import MISS, Exit
from tracejit.config import config, watch
from tracejit.core.interpreter import ask_always, pushed_anywhere, state
from tracejit.cpython.dispatcher import UNSERVED

__all__ = ["FALLBACK", "OWNER", "SERVE", "compared", "dispatch_function", "fallback_call", "nothing_recorded", "timed"]

SERVE: Final = 0
FALLBACK: Final = 1
OWNER: Final = 4

_EAGER = state.base
compared: list[Callable[[Any, tuple[Any, ...], dict[str, Any]], Any] | None] = [None]
"""The callable that serves calls while compiled calls are compared with eager ones (shadow.py); None otherwise."""
timed: list[Callable[[list[Any], tuple[Any, ...], dict[str, Any]], Any] | None] = [None]
"""The callable that serves calls of a function with given slots while calls are timed (profile.py); None otherwise."""


def nothing_recorded(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The SERVE slot while there is no entry to try."""
    return MISS


def dispatch_function(slots: list[Any]) -> Callable[..., Any]:
    """The function that the dispatcher calls for calls that machine code does not serve."""

    def dispatch(*args: Any, **kwargs: Any) -> Any:
        if pushed_anywhere[0]:
            if state.top is not _EAGER:  # another recording is active and follows the function itself
                return UNSERVED
            if state.compilation_off or not config.enabled:
                return UNSERVED
            if compared[0] is not None:
                return compared[0](slots[OWNER], args, kwargs)
            if timed[0] is not None:
                return timed[0](slots, args, kwargs)
        result = slots[SERVE](args, kwargs)
        return result if result.__class__ is not Exit else slots[FALLBACK](args, kwargs, result.number)

    return dispatch


def fallback_call(slots: list[Any], entry: Any) -> Callable[..., Any]:
    """The function that machine code calls if neither an entry, nor those along its bridges and those tried after it served the call."""

    def leave(exit_: Exit, *args: Any) -> Any:
        return slots[FALLBACK](args, {}, exit_.number, entry, exit_.counter)

    return leave


_asks = [0]  # 1 while `config.enabled` is off: then each call has to pass `dispatch`, which checks it


def _note_enabled(enabled: bool) -> None:
    change = int(not enabled) - _asks[0]
    _asks[0] += change
    ask_always(change)


watch("enabled", _note_enabled)
