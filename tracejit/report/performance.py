"""What a compiled function says, once, about calls that stay slow: a warning at the user's line, with the reason and what to do.

When: a function that only now and then runs eagerly says nothing.  It warns where

* as many recordings in a row as `config.max_failures` came to nothing, or several ended in an error, and a dozen calls ran eagerly then;
* so many more paths were recorded than have earned what they cost that recordings have to wait from now on (accounts.py), and it could
  not be taken to pieces;
* trying its paths costs more than they save, so it is left to Python, for a dozen calls so far;
* there was no room for another path a dozen times;
* functions of one piece of code are compiled anew again and again, and none serves a call.

The warning is given at the beginning of the next call, before anything of that is done: where a filter makes it an error, nothing is lost.
A program that catches the warnings of one call at a time, to look at them, is not given it: what it sees is what the call warns of.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from types import CodeType, MethodType
from typing import Any, Final

from tracejit.core.package_files import is_own_frame
from tracejit.report.divergences import Divergence
from tracejit.report.summary import counted

__all__ = [
    "COMPILED_ANEW", "Advice", "PerformanceWarning", "Warned", "again_and_again", "not_worth_it", "raising", "too_many",
]  # fmt: skip


class PerformanceWarning(UserWarning):
    """Calls of a compiled function stay eager, or are recorded again and again; the message says why, where, and what to do.

    Given once for each compiled function, until `clear()`.  `warnings.filterwarnings("ignore", category=...)` turns it off."""


PerformanceWarning.__module__ = "tracejit.compiler"


@dataclass(frozen=True, slots=True)
class Warned:
    """A warning that is to be given.  function: that was compiled; where: the line that is to blame, the function's own if it is empty."""

    function: Any
    text: str
    where: str = ""

    def give(self, name: str) -> None:
        """Warn.  name: of the function."""
        code, names = _code(self.function)
        file, _, line = self.where.rpartition(":")
        if not file and code is not None:
            file, line = code.co_filename, str(code.co_firstlineno)
        if not file:
            file, line, names = _caller()
        own = names if code is None or code.co_filename == file else {}
        warnings.warn_explicit(
            f"tracejit: {name} {self.text.rstrip()} explain() tells more.",
            PerformanceWarning,
            file,
            int(line),
            module=own.get("__name__") or file.removesuffix(".py"),
            registry=own.setdefault("__warningregistry__", {}),
        )


class Advice:
    """The one warning of a compiled function."""

    __slots__ = ("_due", "_filters", "_function", "is_noted")

    def __init__(self, function: Any) -> None:
        self._function = function
        self.clear()

    def clear(self) -> None:
        """As if nothing had been noted yet; is_noted: whether something has."""
        self.is_noted = False
        self._due: Warned | None = None
        self._filters: object = None  # of warnings, when it became due: `warnings.catch_warnings` puts others in their place

    @property
    def is_due(self) -> bool:
        """Whether there is a warning to give."""
        return self._due is not None

    def note(self, text: str, where: str = "") -> None:
        """Calls stay slow, for the reason that `text` says; the first such reason counts."""
        if not self.is_noted:
            self.is_noted = True
            self._due, self._filters = Warned(self._function, text, where), warnings.filters

    def take_due(self) -> Warned | None:
        """The warning to give, which is due no more."""
        due, self._due = self._due, None
        return due

    def postpones(self, warning: Warned) -> bool:
        """Whether a warning that was taken is due later on, since warnings of this call alone are caught, or those of the last one were."""
        if warnings.filters is self._filters:
            return False
        self._due, self._filters = warning, warnings.filters
        return True


def again_and_again(stats: Any, parting: Divergence | None) -> str:
    """That a function is recorded in call after call; parting: the guard at which the last recording parted from another one, if it is
    known."""
    text = f"is recorded again and again: {counted(stats.traces, 'recording')}, {stats.compiled_calls} of {stats.calls} calls ran compiled"
    return f"{text}. {_guard_sentence(parting) or 'They part at different guards.'}"


def too_many(paths: int, parting: Divergence | None) -> str:
    """That there is no room for another path."""
    return (
        f"has as many recorded paths as there may be ({paths}): what fits none of them runs eagerly. {_guard_sentence(parting)}"
    )


def not_worth_it(paths: int, parting: Divergence | None) -> str:
    """That trying the paths costs more than they save."""
    cost = f"to try its {counted(paths, 'recorded path')} costs more than they save"
    return f"is left to Python for a while: {cost}. {_guard_sentence(parting)}"


def raising(error: BaseException) -> str:
    """That call after call which was to be recorded has ended in an error."""
    return (
        f"runs eagerly: it raised {type(error).__name__} in call after call that was to be recorded. "
        "Return a value instead, or leave what raises to the caller."
    )


COMPILED_ANEW: Final = (
    "runs eagerly: functions of this code were compiled again and again, and none served a call. "
    "Compile it once, outside of the loop or function that makes it, and pass what varies as arguments."
)


def _guard_sentence(parting: Divergence | None) -> str:
    """Which guard keeps recordings apart, with both values, and what to do; empty where it is not known."""
    if parting is None:
        return ""
    expected, found = parting.latest
    return f"The guard on {parting.name}{parting.place()} failed: expected {expected}, found {found}. {parting.remedy()}."


def _code(function: Any) -> tuple[CodeType | None, dict[str, Any]]:
    """The code of the function that is called, and its globals; None where it is not Python's."""
    while isinstance(function, MethodType):
        function = function.__func__
    code: Any = getattr(function, "__code__", None)
    if not isinstance(code, CodeType):
        function = getattr(type(function), "forward", None) or type(function).__call__
        code = getattr(function, "__code__", None)
    return (code, function.__globals__) if isinstance(code, CodeType) else (None, {})


def _caller() -> tuple[str, str, dict[str, Any]]:
    """The line of the program that is running."""
    frame = sys._getframe(1)
    while frame.f_back is not None and is_own_frame(frame):
        frame = frame.f_back
    return frame.f_code.co_filename, str(frame.f_lineno), frame.f_globals
