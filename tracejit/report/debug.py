"""TRACEJIT_DEBUG: what is written to stderr while functions are compiled and run.

Levels, each of which includes those before it:

1. What was compiled, why calls run eagerly, and which guard failed if no recorded path serves a call.
2. The times of the steps of each program, measured when it runs first.
3. The graph after each pass.
4. The generated code of each program.
5. The generated entry (guards and effects) and the memory plan.

Defects of the library give a warning at any level (`report_defect`).

A DebugLog is the ProgramObserver of one Executable.  It does not change what a program computes: steps are timed on copies of the arrays
that they write.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any

from tracejit.config import config
from tracejit.ir.graph import Graph
from tracejit.ir.printer import to_text
from tracejit.runtime.debug import plan, step_times
from tracejit.runtime.host import HostProgram
from tracejit.runtime.program import Program
from tracejit.runtime.source import LoweredProgram

__all__ = ["DebugLog", "eager_reason", "log_divergence", "log_resting", "report_defect", "unserved"]


def _write(name: str, text: str) -> None:
    lines = text.rstrip("\n").split("\n")
    print("\n".join([f"tracejit: {name}: {lines[0]}", *(f"    {line}" for line in lines[1:])]), file=sys.stderr)


def eager_reason(name: str, reason: Any) -> None:
    """Log that a recording of function `name` ended with a reason."""
    if config.debug >= 1:
        _write(name, f"runs eagerly: {reason}")


def unserved(name: str, text: str) -> None:
    """Log that no recorded path of function `name` serves a call, which is recorded or runs eagerly.  text: the guard that
    failed."""
    _write(name, f"no recorded path serves the call, since a guard failed: {text}")


def log_resting(name: str, calls: int) -> None:
    """Log that the next calls of function `name` go to the function itself."""
    if config.debug >= 1:
        _write(name, f"the next {calls} calls are left to Python, since trying to serve them does not pay")


def log_divergence(name: str, text: str) -> None:
    """Log that recordings of function `name` have differed at the same guard for the third time."""
    if config.debug >= 1:
        _write(name, f"records path after path: {text}")


def report_defect(name: str, what: str, error: BaseException) -> None:
    """Warn of a defect: something failed that would have made later calls faster; this call goes on.  Raises the error if
    `config.verify` is on.  what: a verb, for the message."""
    if config.verify:
        raise error
    warnings.warn(
        f"tracejit could not {what} {name} and does without it; please report this: {error!r}", RuntimeWarning, stacklevel=5
    )


class DebugLog:
    """The log of one recorded path of the function `name`; see executable.ProgramObserver.  The level is read at each event."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._timed: set[int] = set()  # ids of programs whose steps were timed; these live as long as this log

    def after_pass(self, role: str, name: str, graph: Graph) -> None:
        """See ProgramObserver."""
        if config.debug >= 3:
            _write(self.name, f"{role} after {name}:\n{to_text(graph)}")

    def built(self, role: str, program: Any) -> None:
        """See ProgramObserver."""
        if config.debug >= 1:
            _write(self.name, f"compiled {role} in {program.seconds:.3f} s:\n{program.describe()}")
        if config.debug >= 4:
            _write(self.name, f"{role}, as Python:\n{program.source()}")
        for k, part in enumerate(_lowered_parts(program)):
            if config.debug >= 4 and isinstance(part, Program):
                _write(self.name, f"{role}, LLVM of segment {k}:\n{part.llvm()}")
            if config.debug >= 5:
                _write(self.name, f"{role}, memory plan of segment {k}:\n{plan(part.lowered)}")

    def entry(self, text: str) -> None:
        """Log the generated entry.  text: its source."""
        if config.debug >= 5:
            _write(self.name, f"entry:\n{text}")

    def running(self, role: str, program: Any, arrays: Sequence[Any], scalars: Sequence[Any]) -> None:
        """See ProgramObserver.  Times the steps of a program when it runs first."""
        if config.debug < 2 or id(program) in self._timed:
            return
        self._timed.add(id(program))
        if not isinstance(program, Program):
            _write(self.name, f"{role}, times: only programs that are one piece of machine code are timed step by step")
            return
        try:
            times = step_times(program.lowered, _without_effects(program, arrays), scalars)
        except RuntimeError as error:  # it has left by an exit, or arrays do not fit: the next run is timed instead
            self._timed.discard(id(program))
            _write(self.name, f"{role}, times: {error}")
            return
        total = sum(microseconds for _, microseconds in times)
        rows = [f"{microseconds:10.1f} us  {text}" for text, microseconds in times]
        _write(self.name, "\n".join([f"{role}, times of the steps: {total:.1f} us", *rows]))


def _lowered_parts(program: Any) -> list[LoweredProgram]:
    """The lowered programs that a program consists of, without host steps."""
    if isinstance(program, HostProgram):
        return [segment.program for segment in program.segments if segment.program is not None]
    return [program] if isinstance(program, LoweredProgram) else []


def _without_effects(program: Program, arrays: Sequence[Any]) -> list[Any]:
    """The arrays, with copies of those that the program writes."""
    specs = program.lowered.spec.arrays
    return [array.copy(order="K") if specs[k].written else array for k, array in enumerate(arrays)]
