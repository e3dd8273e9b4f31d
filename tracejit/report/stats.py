"""The statistics of a compiled function.

A served call only increments the counter of its executable; everything else is derived here.  The counts of an executable that is
dropped (`retire`) are kept.
"""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["Stats"]


class _DirectCalls(Protocol):
    """Counts the calls that go to the function directly: the accounts (compiled/accounts.py)."""

    @property
    def direct_calls(self) -> int: ...


class Stats:
    """The statistics of a compiled function.

    calls: all calls.  compiled_calls: calls served by a program.  eager_calls: calls that ran as Python, including recorded ones.
    early_calls: eager calls that ran while a program was compiled in the background.  piecewise_calls: calls of the function in
    pieces (compiled/pieces.py).
    traces: recordings.  instances: paths for other sizes that were made from these, without a recording.  programs_compiled:
    forward programs.  machine_calls: calls of machine code, forward and backward, including those that left by an exit.
    guard_misses: calls for which the guards of all paths failed.  exits: programs left by an exit.  bridges: calls that left by
    an exit and were served by another path."""

    FIELDS = (
        "calls", "compiled_calls", "eager_calls", "traces", "programs_compiled", "machine_calls", "guard_misses", "exits", "bridges",
        "early_calls", "instances", "piecewise_calls",
    )  # fmt: skip

    def __init__(self, accounts: _DirectCalls | None = None) -> None:
        """accounts: counts the calls that go to the function directly."""
        self._accounts = accounts
        self.reset()

    def reset(self) -> None:
        """Set all counts to zero."""
        self.executables: list[Any] = []
        self._retired = dict.fromkeys(("compiled_calls", "programs_compiled", "machine_calls", "exits"), 0)
        self.unserved = self.early_calls = 0
        self.traces = self.instances = 0
        self.guard_misses = 0
        self.bridges = 0
        self.piecewise_calls = 0

    def retire(self, executable: Any) -> None:
        """Drop an executable that will not be called again; its counts are kept."""
        self.executables = [other for other in self.executables if other is not executable]
        served, exits, *_ = executable.counter
        counts = {"compiled_calls": served, "programs_compiled": 1, "machine_calls": executable.machine_calls, "exits": exits}
        for name, count in counts.items():
            self._retired[name] += count

    @property
    def compiled_calls(self) -> int:
        """Calls served by a program."""
        return self._retired["compiled_calls"] + sum(e.counter[0] for e in self.executables)

    @property
    def direct_calls(self) -> int:
        """Calls that went to the function directly, while it rested (compiled/accounts.py)."""
        return 0 if self._accounts is None else self._accounts.direct_calls

    @property
    def eager_calls(self) -> int:
        """Calls that ran as Python."""
        return self.unserved + self.direct_calls

    @property
    def calls(self) -> int:
        """All calls."""
        return self.compiled_calls + self.eager_calls + self.piecewise_calls

    @property
    def programs_compiled(self) -> int:
        """Forward programs."""
        return self._retired["programs_compiled"] + len(self.executables)

    @property
    def machine_calls(self) -> int:
        """Calls of machine code."""
        return self._retired["machine_calls"] + sum(e.machine_calls for e in self.executables)

    @property
    def exits(self) -> int:
        """Programs left by an exit."""
        return self._retired["exits"] + sum(e.counter[1] for e in self.executables)

    def __repr__(self) -> str:
        return f"Stats({', '.join(f'{name}={getattr(self, name)}' for name in self.FIELDS)})"
