"""From a call of a compiled function that no machine code serves to what serves it: the entry in front, or whoever goes on from there.

It must not know of entries but how they are called and that they may answer with an Exit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracejit.capture.recording.entry import MISS, Exit
from tracejit.config import config, watch
from tracejit.core.interpreter import ask_always, pushed_anywhere, state
from tracejit.cpython.dispatcher import UNSERVED

__all__ = ["compared", "dispatching", "leaving", "nothing_recorded"]

_EAGER = state.base
compared: list[Callable[[Any, tuple[Any, ...], dict[str, Any]], Any] | None] = [None]
"""What makes the calls in the place of `CompiledFunction.serve` while compiled calls are compared with eager ones (shadow.py)."""


def nothing_recorded(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Stands for the entry in front while there is none."""
    return MISS


def dispatching(paths: list[Any]) -> Callable[..., Any]:
    """The function that serves calls which no machine code does.  paths: [the entry tried first, what to do when it does not serve one]."""

    def dispatch(*args: Any, **kwargs: Any) -> Any:
        if pushed_anywhere[0]:
            if state.top is not _EAGER:  # inside another recording, which follows the function itself
                return UNSERVED
            if state.compilation_off or not config.enabled:
                return UNSERVED
            if compared[0] is not None:
                return compared[0](paths[1].__self__, args, kwargs)
        result = paths[0](args, kwargs)
        return result if result.__class__ is not Exit else paths[1](args, kwargs, result.number)

    return dispatch


def leaving(paths: list[Any], entry: Any = None) -> Callable[..., Any]:
    """What machine code calls where an entry, the one in front if it is not said which, did not serve the call, nor those that machine code
    went on to from there."""

    def leave(exit_taken: Exit, *args: Any) -> Any:
        return paths[1](args, {}, exit_taken.number, entry, exit_taken.counter)

    return leave


_asks = [0]  # of this module: 1 while compilation is turned off by the configuration


def _turn(enabled: bool) -> None:
    more = int(not enabled) - _asks[0]
    _asks[0] += more
    ask_always(more)


watch("enabled", _turn)
