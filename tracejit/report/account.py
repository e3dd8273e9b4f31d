"""Account: what is known of one compiled function at one moment, for the reports that show all of it (page.py, notebook form).

It holds no decision and computes nothing; `opening` says in words what matters most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracejit.capture.reasons import Reason
from tracejit.config import config
from tracejit.report.divergences import Divergence
from tracejit.report.summary import counted, sentence

__all__ = ["Account", "opening"]


@dataclass(frozen=True, slots=True)
class Account:
    """function: what was compiled.  stats, paths, reasons, divergence, full, compiling, symbolic: see `explain_function`.  pieces: why
    the function runs in pieces, "" if it does not.  parts: the accounts of these pieces."""

    name: str
    function: Any
    stats: Any
    paths: Sequence[Any]
    reasons: Mapping[Reason, int]
    divergence: Divergence | None
    full: bool
    compiling: bool
    symbolic: Sequence[str]
    pieces: str
    parts: Sequence[Account]

    def with_parts(self) -> list[Account]:
        """This account, then those of its pieces, of their pieces, and so on."""
        return [self, *[inner for part in self.parts for inner in part.with_parts()]]


def opening(account: Account) -> tuple[str, str]:
    """(what happened to the calls, in one sentence for somebody who does not know how the library works; what to do)."""
    name, stats, reasons = account.name, account.stats, account.reasons
    calls, served = stats.calls, stats.compiled_calls
    often = max(reasons, key=lambda reason: reasons[reason], default=None)
    nothing = "There is nothing to do."
    if not config.enabled:
        return (
            f"{name} runs as ordinary Python, since compilation is turned off.",
            "Unset TRACEJIT_DISABLE, or set config.enabled to True.",
        )
    if not calls:
        return f"{name} has not been called yet.", "Call it a few times, then make the report again."
    ran = f"{served:,} of {counted(calls, 'call')}"
    if account.pieces:
        return f"{name} is ordinary Python around compiled pieces, since {account.pieces}.", nothing
    if account.compiling and not account.paths:
        return (
            f"{name} is being compiled in the background; its calls run as ordinary Python meanwhile.",
            "Wait, or call warm_up() first: it returns when everything is compiled.",
        )
    if not account.paths and often is not None:
        return f"{name} is not compiled: all its calls ran as ordinary Python.", f"The reason: {sentence(often)}"
    divergence = account.divergence
    if divergence is not None and (account.full or 2 * served < calls):
        varies = f"{divergence.name}{divergence.location()} took {len(divergence.values)} values ({divergence.values_text()})"
        return f"{name} ran compiled in {ran} only, because {varies}.", f"{divergence.remedy()}."
    if 2 * stats.direct_calls > calls:
        why = (
            f"{name} ran compiled in {ran} only: it is left to Python, since trying its recorded paths cost more than they saved."
        )
        return why, "Pass what varies as tensors, or remove the decorator: the function may be too small, or too varied, to gain."
    if not served:
        return (
            f"{name} was recorded and compiled; no call has used a program yet.",
            "Call it again: calls like the recorded ones run compiled.",
        )
    if 2 * served < calls:
        why = f"The most frequent reason: {sentence(often)}" if often is not None else "Calls that repeat will run compiled."
        return f"{name} ran compiled in {ran} only.", why
    if served == calls:
        return f"{name} is compiled: all {counted(calls, 'call')} ran as machine code.", nothing
    others, recorded = calls - served, stats.traces
    if others == recorded:
        rest = f"The other {'call' if others == 1 else counted(others, 'call')} ran as Python to be recorded."
    else:
        rest = f"The other {counted(others, 'call')} ran as Python, {recorded:,} of them to be recorded."
    return f"{name} is compiled: {ran} ran as machine code. {rest}", nothing
