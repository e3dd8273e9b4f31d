"""The diagnostics of a compiled function: counts of calls, reasons for eager calls, guards that make paths differ, and its one
warning."""

from __future__ import annotations

from typing import Any

from tracejit.capture.reasons import Reason
from tracejit.compiled.accounts import Accounts
from tracejit.report.debug import eager_reason
from tracejit.report.divergences import Divergences
from tracejit.report.performance import Advice
from tracejit.report.stats import Stats

__all__ = ["Diagnostics"]

_MOST_REASONS = 64


class Diagnostics:
    """reasons: why calls ran eagerly, with the number of recordings that ended so.  divergences: the guards that make paths
    differ.  advice: the warning that the function gives once."""

    __slots__ = ("_function", "advice", "divergences", "reasons", "stats")

    def __init__(self, function: Any, accounts: Accounts) -> None:
        self._function = function
        self.stats = Stats(accounts)
        self.reasons: dict[Reason, int] = {}
        self.divergences = Divergences()
        self.advice = Advice(function)

    @property
    def name(self) -> str:
        """The name of the function, for messages."""
        return getattr(self._function, "__qualname__", type(self._function).__name__)

    def note(self, reason: Reason) -> None:
        """Note that calls run eagerly for this reason."""
        if len(self.reasons) < _MOST_REASONS:
            self.reasons[reason] = self.reasons.get(reason, 0) + 1
        eager_reason(self.name, reason)

    def clear(self) -> None:
        """Reset to the state before the first call."""
        self.advice.clear()
        self.divergences.clear()
        self.reasons = {}
        self.stats.reset()
