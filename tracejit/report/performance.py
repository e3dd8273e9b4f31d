"""The warning of a compiled function whose calls stay slow.  Each function gives it once, at the user's line, with the reason and
a remedy.

A function that runs eagerly only now and then does not warn.  It warns if

* `config.max_failures` recordings in a row failed, or several ended in an error, and a dozen calls have run eagerly since;
* so many more paths were recorded than have earned their cost that recordings have to wait (accounts.py), the function cannot run
  in pieces, and a dozen calls have run eagerly since;
* trying its paths costs more than they save, so that it rests, and a dozen calls have gone to Python;
* a dozen calls could not be recorded for lack of room;
* functions with the same code are compiled again and again, and none serves a call.

The warning is given at the beginning of the next call, before anything of the call has been done, so that nothing is lost if a
filter turns it into an error.  It is postponed while user code catches the warnings of a single call: it would be mistaken for a
warning of that call.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from types import CodeType, MethodType
from typing import Any, Final

from tracejit.core.package_files import is_own_frame
from tracejit.report.divergences import Divergence
from tracejit.report.phrases import counted

__all__ = [
    "COMPILED_ANEW", "COMPILE_ONCE", "Advice", "PerformanceWarning", "Warned", "again_and_again", "not_worth_it", "raising", "too_many",
]  # fmt: skip


class PerformanceWarning(UserWarning):
    """Calls of a compiled function stay eager, or are recorded again and again; the message says why, where, and what to do.

    Given once for each compiled function, until `clear()`.  `warnings.filterwarnings("ignore", category=...)` turns it off."""


PerformanceWarning.__module__ = "tracejit.compiler"


@dataclass(frozen=True, slots=True)
class Warned:
    """A warning.  function: the one that was compiled.  where: the user's line that causes it; "": the line of the function."""

    function: Any
    text: str
    where: str = ""

    def give(self, name: str) -> None:
        """Give the warning.  name: of the function."""
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
        """Reset to the state in which nothing has been noted."""
        self.is_noted = False
        self._due: Warned | None = None
        self._filters: object = (
            None  # `warnings.filters` when the warning became due; `warnings.catch_warnings` replaces the list
        )

    @property
    def is_due(self) -> bool:
        """Whether a warning has to be given."""
        return self._due is not None

    def note(self, text: str, where: str = "") -> None:
        """Note that calls stay slow; only the first call of this method counts.  text: the reason.  where: the user's line."""
        if not self.is_noted:
            self.is_noted = True
            self._due, self._filters = Warned(self._function, text, where), warnings.filters

    def take_due(self) -> Warned | None:
        """The warning that is due, which no longer is after this."""
        due, self._due = self._due, None
        return due

    def postpones(self, warning: Warned) -> bool:
        """Whether to give a warning of `take_due` later, which makes it due again: the filters have changed since it became due,
        so user code catches the warnings of this call, or of the one before."""
        if warnings.filters is self._filters:
            return False
        self._due, self._filters = warning, warnings.filters
        return True


def again_and_again(stats: Any, divergence: Divergence | None) -> str:
    """The text for a function that is recorded again and again.  divergence: the guard at which recordings differ, if it is
    known."""
    text = f"is recorded again and again: {counted(stats.traces, 'recording')}, {stats.compiled_calls} of {stats.calls} calls ran compiled"
    return f"{text}. {_guard_sentence(divergence) or 'They part at different guards.'}"


def too_many(paths: int, divergence: Divergence | None) -> str:
    """The text for a function without room for another path."""
    return f"has as many recorded paths as there may be ({paths}): what fits none of them runs eagerly. {_guard_sentence(divergence)}"


def not_worth_it(paths: int, divergence: Divergence | None) -> str:
    """The text for a function whose paths cost more than they save."""
    cost = f"to try its {counted(paths, 'recorded path')} costs more than they save"
    return f"is left to Python for a while: {cost}. {_guard_sentence(divergence)}"


def raising(error: BaseException) -> str:
    """The text for a function whose recorded calls have raised again and again."""
    return (
        f"runs eagerly: it raised {type(error).__name__} in call after call that was to be recorded. "
        "Return a value instead, or leave what raises to the caller."
    )


COMPILE_ONCE: Final = "Compile it once, outside of the loop or function that makes it, and pass what varies as arguments"
"""What to do about functions that are compiled anew for each call."""

COMPILED_ANEW: Final = (
    f"runs eagerly: functions of this code were compiled again and again, and none served a call. {COMPILE_ONCE}."
)


def _guard_sentence(divergence: Divergence | None) -> str:
    """A sentence about the guard at which recordings differ, with both values and the remedy; "" if it is unknown."""
    if divergence is None:
        return ""
    expected, actual = divergence.latest
    return f"The guard on {divergence.name}{divergence.location()} failed: expected {expected}, found {actual}. {divergence.remedy()}."


def _code(function: Any) -> tuple[CodeType | None, dict[str, Any]]:
    """The code object of the Python function that a call of `function` runs, and its globals; (None, {}) if it is not Python
    code."""
    while isinstance(function, MethodType):
        function = function.__func__
    code: Any = getattr(function, "__code__", None)
    if not isinstance(code, CodeType):
        function = getattr(type(function), "forward", None) or type(function).__call__
        code = getattr(function, "__code__", None)
    return (code, function.__globals__) if isinstance(code, CodeType) else (None, {})


def _caller() -> tuple[str, str, dict[str, Any]]:
    """(file, line, globals) of the user code that is running."""
    frame = sys._getframe(1)
    while frame.f_back is not None and is_own_frame(frame):
        frame = frame.f_back
    return frame.f_code.co_filename, str(frame.f_lineno), frame.f_globals
