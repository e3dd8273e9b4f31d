"""Counters of a compiled function.

The hot path of a call counts in one place only, the executable's own counter; everything else is derived here.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Stats"]


class Stats:
    """calls: all calls.  compiled_calls: served by a program.  eager_calls: ran as Python (recordings included).  traces: recordings
    made.  programs_compiled: forward programs.  machine_calls: calls into machine code, forward and backward, early leaves included.
    guard_misses: calls that no entry's guards fitted.  exits: programs left at a guard inside.  bridges: exits that another entry
    took over."""

    FIELDS = (
        "calls", "compiled_calls", "eager_calls", "traces", "programs_compiled", "machine_calls", "guard_misses", "exits", "bridges",
    )  # fmt: skip

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Everything to zero."""
        self.executables: list[Any] = []
        self.eager_calls = 0
        self.traces = 0
        self.guard_misses = 0
        self.bridges = 0

    @property
    def compiled_calls(self) -> int:
        """Calls served by a program."""
        return sum(e.counter[0] for e in self.executables)

    @property
    def calls(self) -> int:
        """All calls."""
        return self.compiled_calls + self.eager_calls

    @property
    def programs_compiled(self) -> int:
        """Forward programs."""
        return len(self.executables)

    @property
    def machine_calls(self) -> int:
        """Calls into machine code."""
        return sum(e.machine_calls for e in self.executables)

    @property
    def exits(self) -> int:
        """Programs left at a guard inside."""
        return sum(e.counter[1] for e in self.executables)

    def __repr__(self) -> str:
        return f"Stats({', '.join(f'{name}={getattr(self, name)}' for name in self.FIELDS)})"
