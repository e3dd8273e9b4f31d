"""From a call of a compiled function that no machine code serves to what serves it: the first slot, and the fallback behind it.

The *slots* of a compiled function are a list: what serves a call first (SERVE), what to do when that answers with an Exit (FALLBACK), the
two that machine code reads (cpython/dispatcher.py: FRONT, SIZED), and the function (OWNER).  The table of paths fills them (path_table.py).

It must not know of entries but how they are called and that they may answer with an Exit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tracejit.capture.recording.entry import MISS, Exit
from tracejit.config import config, watch
from tracejit.core.interpreter import ask_always, pushed_anywhere, state
from tracejit.cpython.dispatcher import UNSERVED

__all__ = ["FALLBACK", "OWNER", "SERVE", "compared", "dispatch_function", "exit_handler", "nothing_recorded"]

SERVE: Final = 0
FALLBACK: Final = 1
OWNER: Final = 4

_EAGER = state.base
compared: list[Callable[[Any, tuple[Any, ...], dict[str, Any]], Any] | None] = [None]
"""What makes the calls in the place of `CompiledFunction.serve` while compiled calls are compared with eager ones (shadow.py)."""


def nothing_recorded(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Serves a call while there is no entry to try."""
    return MISS


def dispatch_function(slots: list[Any]) -> Callable[..., Any]:
    """The function that serves calls which no machine code does."""

    def dispatch(*args: Any, **kwargs: Any) -> Any:
        if pushed_anywhere[0]:
            if state.top is not _EAGER:  # inside another recording, which follows the function itself
                return UNSERVED
            if state.compilation_off or not config.enabled:
                return UNSERVED
            if compared[0] is not None:
                return compared[0](slots[OWNER], args, kwargs)
        result = slots[SERVE](args, kwargs)
        return result if result.__class__ is not Exit else slots[FALLBACK](args, kwargs, result.number)

    return dispatch


def exit_handler(slots: list[Any], entry: Any = None) -> Callable[..., Any]:
    """What machine code calls where an entry, the first one if none is given, did not serve the call, nor those along its bridges."""

    def leave(exit_taken: Exit, *args: Any) -> Any:
        return slots[FALLBACK](args, {}, exit_taken.number, entry, exit_taken.counter)

    return leave


_asks = [0]  # of this module: 1 while compilation is turned off by the configuration


def _turn(enabled: bool) -> None:
    more = int(not enabled) - _asks[0]
    _asks[0] += more
    ask_always(more)


watch("enabled", _turn)
