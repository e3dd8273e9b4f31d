"""Counters of a compiled function."""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["Stats"]


@dataclass(slots=True)
class Stats:
    """calls: all calls.  compiled_calls: served by a program.  eager_calls: ran as Python (recordings included).  traces: recordings
    made.  programs_compiled: forward programs.  machine_calls: calls into machine code, forward and backward.  guard_misses: calls that
    no entry's guards fitted.  exits: programs left at a guard inside.  bridges: exits that another entry took over."""

    calls: int = 0
    compiled_calls: int = 0
    eager_calls: int = 0
    traces: int = 0
    programs_compiled: int = 0
    machine_calls: int = 0
    guard_misses: int = 0
    exits: int = 0
    bridges: int = 0

    def count_machine_calls(self, number: int) -> None:
        """Add calls into machine code."""
        self.machine_calls += number

    def reset(self) -> None:
        """Everything to zero."""
        for field in fields(self):
            setattr(self, field.name, 0)
