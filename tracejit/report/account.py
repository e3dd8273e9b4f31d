"""Account: what is known of one compiled function at one moment, for the reports about it.

It holds no decision and computes nothing; opening.py says in words what matters most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracejit.capture.reasons import Reason
from tracejit.report.divergences import Divergence

__all__ = ["Account"]


@dataclass(frozen=True, slots=True)
class Account:
    """function: what was compiled.  stats: its Stats.  paths: the recorded paths (recorded_path.RecordedPath).  reasons: why calls ran
    eagerly, with the number of recordings that ended so.  divergence: the guard at which most recordings differ, if there is one.
    full: whether there is no room for another path.  compiling: whether a path is being compiled in the background.
    resting: whether the next calls go to the function itself.

    symbolic: lines about recordings with symbolic sizes.  fixed_sizes: lines about sizes that are not symbolic, and why.

    pieces: why the function runs in pieces, "" if it does not.  parts: the accounts of these pieces.  calls_compiled: whether there are
    none because the function calls other compiled functions."""

    name: str
    function: Any
    stats: Any
    paths: Sequence[Any]
    reasons: Mapping[Reason, int]
    divergence: Divergence | None
    full: bool
    compiling: bool
    resting: bool
    symbolic: Sequence[str]
    fixed_sizes: Sequence[str]
    pieces: str
    parts: Sequence[Account]
    calls_compiled: bool

    def with_parts(self) -> list[Account]:
        """This account, then those of its pieces, of their pieces, and so on."""
        return [self, *[inner for part in self.parts for inner in part.with_parts()]]
