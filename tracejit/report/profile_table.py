"""What a profile tells: calls, steps of programs and the user's lines, as a table, and as a Chrome trace.

Times of calls are measured.  Times of steps are not, since a program is one piece of machine code: each step is run alone, on made-up
arrays of the same sizes (step_times.py), and where that is not possible the time of the call is shared out by bytes.  `measured` of a
row says which.  A step of several lines is shared out among these in equal parts.

Must not know how calls are timed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from tracejit.core.whole_file import written
from tracejit.report.lines import Step, steps_of
from tracejit.report.step_times import measured

__all__ = ["CallRow", "Event", "LineRow", "Run", "StepRow", "call_rows", "line_rows", "step_rows", "table", "write_trace"]

_NAME: Final = 44  # characters of a name in a table
_MOST_SLICES: Final = 200_000  # steps in a trace


@dataclass(eq=False, slots=True)
class Run:
    """What runs again and again: a program of a recorded path, forward or backward, or calls that were recorded.

    function: its name.  kind: "forward", "backward", "recorded" or "in pieces".  path: the number of the path when it was
    seen first.  program: gives the program, or None.  calls, seconds: of all runs."""

    function: str
    kind: str
    path: int
    program: Any
    calls: int = 0
    seconds: float = 0.0
    _steps: list[tuple[Step, float, bool]] | None = field(default=None)

    @property
    def name(self) -> str:
        """For tables and traces."""
        return f"{self.function}, {self.kind}" + (f", path {self.path}" if self.kind in ("forward", "backward") else "")

    def add(self, seconds: float) -> None:
        """Count a run."""
        self.calls += 1
        self.seconds += seconds
        self._steps = None

    def steps(self) -> list[tuple[Step, float, bool]]:
        """(step, seconds of all runs, whether it was measured alone and not estimated by bytes)."""
        if self._steps is None:
            self._steps = self._with_times()
        return self._steps

    def _with_times(self) -> list[tuple[Step, float, bool]]:
        program = self.program()
        steps = steps_of(program)
        times = measured(program)
        if times is not None:
            weights = [1e-6 * time * self.calls for time in times]
        else:
            weights = [float(step.origin.read + step.origin.written) for step in steps]
        total = sum(weights)
        scale = 1.0
        if total and (times is None or total > self.seconds):
            scale = self.seconds / total
        return [(step, weight * scale, times is not None) for step, weight in zip(steps, weights, strict=True)]


class Event(NamedTuple):
    """A call: begin and end in nanoseconds of time.perf_counter_ns, the thread, what ran."""

    begin: int
    end: int
    thread: int
    run: Run


class CallRow(NamedTuple):
    """Calls of one program.  seconds: without calls of other compiled functions in them."""

    name: str
    calls: int
    seconds: float


class StepRow(NamedTuple):
    """A step of a program.  nbytes: moved by all calls.  measured: whether the step was timed alone, and not estimated by bytes."""

    name: str
    step: str
    lines: tuple[str, ...]
    calls: int
    seconds: float
    nbytes: int
    measured: bool


class LineRow(NamedTuple):
    """A line of the user ("file:line"), with what its steps took."""

    line: str
    calls: int
    seconds: float
    nbytes: float


def call_rows(runs: Iterable[Run]) -> list[CallRow]:
    """A row for each of the runs, the longest first."""
    return sorted([CallRow(run.name, run.calls, run.seconds) for run in runs if run.calls], key=lambda row: -row.seconds)


def step_rows(runs: Iterable[Run]) -> list[StepRow]:
    """A row for each step of the programs, the longest first."""
    rows = []
    for run in runs:
        for step, seconds, alone in run.steps() if run.calls else ():
            origin = step.origin
            text = f"{step.kind} {step.number}: {', '.join(origin.operations) or step.text}"
            moved = (origin.read + origin.written) * run.calls
            rows.append(StepRow(run.name, text, origin.lines, run.calls, seconds, moved, alone))
    return sorted(rows, key=lambda row: -row.seconds)


def line_rows(steps: Iterable[StepRow]) -> list[LineRow]:
    """A row for each line, the longest first."""
    rows: dict[str, LineRow] = {}
    for step in steps:
        for line in step.lines:
            before, share = rows.get(line, LineRow(line, 0, 0.0, 0.0)), 1 / len(step.lines)
            rows[line] = LineRow(
                line,
                max(before.calls, step.calls),
                before.seconds + step.seconds * share,
                before.nbytes + step.nbytes * share,
            )
    return sorted(rows.values(), key=lambda row: -row.seconds)


def table(seconds: float, runs: Sequence[Run], rows: int) -> str:
    """The table.  seconds: of the whole block.  rows: at most so many of each part."""
    calls, steps = call_rows(runs), step_rows(runs)
    compiled = sum(row.seconds for row in calls)
    lines = [
        f"{seconds * 1e3:.2f} ms in all, {compiled * 1e3:.2f} ms of it in calls of compiled functions and their backward passes"
    ]
    head = ("calls", "time ms", "mean us", "share", "MB")

    def part(title: str, entries: Sequence[tuple[str, int, float, float | None, str]]) -> None:
        lines.extend(["", f"{title:<{_NAME}}" + "".join(f"{name:>11}" for name in head)])
        for name, count, took, nbytes, mark in entries[:rows]:
            moved = "" if nbytes is None else f"{nbytes / 1e6:.2f}"
            short = name if len(name) <= _NAME - 1 else f"{name[: _NAME - 4]}..."
            share = f"{100 * took / compiled:.1f} %" if compiled else ""
            numbers = f"{count:>11,}{took * 1e3:>11.3f}{took * 1e6 / max(count, 1):>11.1f}{share:>11}{moved:>11}"
            lines.append(f"{short:<{_NAME}}{numbers}{mark}")
        if len(entries) > rows:
            lines.append(f"... and {len(entries) - rows} more")

    part("function, direction, path", [(row.name, row.calls, row.seconds, None, "") for row in calls])
    by_line = [(_short_line(row.line), row.calls, row.seconds, row.nbytes, " ~") for row in line_rows(steps)]
    part("line", by_line)
    part(
        "step",
        [(f"{row.step} [{row.name}]", row.calls, row.seconds, row.nbytes, " ~" if row.measured else " B") for row in steps],
    )
    lines += [
        "",
        "Times of functions are measured.  ~: each step was run alone on made-up arrays; B: shared out by bytes.",
        "Lines share the steps that were fused from several lines in equal parts.",
        "What is around the steps (checks, effects, new tensors) is in the first part alone.",
    ]
    return "\n".join(lines)


def _short_line(where: str) -> str:
    return os.path.basename(where)


def write_trace(path: str | os.PathLike[str], events: Sequence[Event], start: int) -> None:
    """Write the events in Chrome's trace format, JSON that https://ui.perfetto.dev opens: complete events ("ph": "X") with `ts` and
    `dur` in microseconds.  Steps of a call are drawn within it, one after the other, with estimated lengths (category "step
    (estimated)").  start: in nanoseconds, what is 0 in the trace."""
    process = os.getpid()
    found: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "ts": 0, "args": {"name": "tracejit"}}
    ]
    slices = 0
    for event in events:
        begin, length = (event.begin - start) / 1e3, (event.end - event.begin) / 1e3
        found.append(_complete(event.run.name, event.run.kind, begin, length, process, event.thread, {"path": event.run.path}))
        steps = event.run.steps() if slices < _MOST_SLICES else []
        slices += len(steps)
        total = sum(seconds for _, seconds, _ in steps) * 1e6 / max(event.run.calls, 1)
        scale = min(1.0, length / total) if total else 0.0
        at = begin
        for step, seconds, _ in steps:
            took = seconds * 1e6 / event.run.calls * scale
            details = {"operations": ", ".join(step.origin.operations), "lines": ", ".join(step.origin.lines)}
            moved = {"bytes read": int(step.origin.read), "bytes written": int(step.origin.written)}
            found.append(
                _complete(f"{step.kind} {step.number}", "step (estimated)", at, took, process, event.thread, {**details, **moved})
            )
            at += took
    content = json.dumps({"traceEvents": found, "displayTimeUnit": "ms"}, separators=(",", ":"))
    written(path, content.encode("utf-8", "replace"))


def _complete(
    name: str, category: str, begin: float, length: float, process: int, thread: int, details: dict[str, Any]
) -> dict[str, Any]:
    return {
        "ph": "X", "name": name, "cat": category, "ts": round(begin, 3), "dur": round(length, 3), "pid": process, "tid": thread,
        "args": details,
    }  # fmt: skip
