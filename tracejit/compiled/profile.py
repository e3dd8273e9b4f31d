"""`tracejit.profile()`: times calls of compiled functions, and backward passes through them.

While a profile is on, calls take the way through `dispatch` (dispatch.py), which hands them to `profile._call`; and the functions of
autograd that call backward programs are replaced by ones that read the clock before and after.  While none is on, nothing of this is
there: calls go through machine code as always.

What programs do inside is not timed (report/profile_table.py says how it is estimated).  Calls that run eagerly are counted and have no
time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from time import perf_counter_ns
from typing import Any, Final

from tracejit.autograd import api
from tracejit.autograd.compiled import CompiledNode
from tracejit.capture.recording.entry import Exit
from tracejit.compiled.compile import compiled_functions
from tracejit.compiled.dispatch import FALLBACK, OWNER, SERVE, timed
from tracejit.core.interpreter import ask_always, state
from tracejit.cpython.dispatcher import FRONT, UNSERVED
from tracejit.report.profile_table import (
    CallRow,
    Event,
    LineRow,
    Run,
    StepRow,
    call_rows,
    line_rows,
    step_rows,
    table,
    write_trace,
)

__all__ = ["profile"]

_MOST_EVENTS: Final = 1_000_000
_turn = threading.Lock()


class _Inside(threading.local):
    """nanoseconds: what calls inside of the one under way took, in this thread.  thread: its number, for traces."""

    def __init__(self) -> None:
        self.nanoseconds = 0
        self.thread = threading.get_native_id()


class profile:  # noqa: N801  (named like no_grad)
    """`with tracejit.profile() as p:` measures what compiled functions take inside the block: calls, time and bytes, for each
    function and recorded path, forward and backward; and, estimated, for each step of their programs and each line of the
    user's.  All threads are measured.

    `p.table()` is a text, `p.export_chrome_trace(path)` writes a file for https://ui.perfetto.dev.  `p.calls`, `p.steps` and
    `p.lines` are the rows, longest first; `p.eager_calls` counts calls that ran as Python, which have no time.

    Raises RuntimeError when entered while another profile is on."""

    def __init__(self) -> None:
        self._events: list[tuple[int, int, int, Run]] = []  # the fields of Event
        self.eager_calls = 0
        self.seconds = 0.0
        self._runs: dict[Any, Run] = {}
        # By the id of `Executable.counter`: the calls served when it was looked at last; the number of the path.
        self._counts: dict[int, int] = {}
        self._numbers: dict[int, int] = {}
        self._last: dict[
            int, tuple[list[int], Run]
        ] = {}  # id of a function's slots -> counter of the path that served last, its run
        self._alive: list[list[int]] = []  # these counters, so that no other list has the id of one
        self._inside = _Inside()
        self._lock = threading.RLock()
        self._start = 0
        self._put_back: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> profile:
        state.top.note("library state changed", "profile()")
        if not _turn.acquire(blocking=False):
            raise RuntimeError("profile(): another profile is on; end it first")
        self._replace(api, "_to_leaves", self._timed_pass)
        self._replace(api, "_gradients", self._timed_pass)
        self._replace(CompiledNode, "_gradients", self._timed_node)
        for function in compiled_functions():
            for k, path in enumerate(function._table.paths):
                counter = path.executable.counter
                self._counts[id(counter)], self._numbers[id(counter)] = counter[0], k
                self._alive.append(counter)
        self._start = perf_counter_ns()
        timed[0] = self._call
        ask_always(1)
        return self

    def __exit__(self, *exception: object) -> None:
        ask_always(-1)
        timed[0] = None
        self.seconds += (perf_counter_ns() - self._start) / 1e9
        for owner, name, function in self._put_back:
            setattr(owner, name, function)
        self._put_back.clear()
        for known in (self._counts, self._numbers, self._last, self._alive):
            known.clear()  # type: ignore[attr-defined]
        _turn.release()

    # -- what was measured
    @property
    def events(self) -> list[Event]:
        """Each timed call: when it began and ended, in which thread, and what ran."""
        return [Event(*fields) for fields in self._events]

    @property
    def calls(self) -> list[CallRow]:
        """A row for each function, path and direction."""
        return call_rows(self._runs.values())

    @property
    def steps(self) -> list[StepRow]:
        """A row for each step of a program; their times are estimates."""
        return step_rows(self._runs.values())

    @property
    def lines(self) -> list[LineRow]:
        """A row for each line of the user's; their times are estimates."""
        return line_rows(self.steps)

    def table(self, rows: int = 20) -> str:
        """A text of three parts: functions, lines and steps, each with calls, milliseconds, mean microseconds of a call, share of the
        time in compiled functions, and megabytes moved.  rows: at most so many in each part."""
        return table(self.seconds, list(self._runs.values()), rows)

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write all calls as a file of Chrome's trace format, which https://ui.perfetto.dev and chrome://tracing open.  Of more
        than a million calls the first million are in it.  Raises OSError if the file cannot be written."""
        events = self.events
        write_trace(path, events, min((event.begin for event in events), default=0))

    def __repr__(self) -> str:
        return f"<profile of {self.seconds:.3f} s: {sum(run.calls for run in self._runs.values())} timed calls>"

    # -- measuring
    def _replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        function = getattr(owner, name)
        self._put_back.append((owner, name, function))
        setattr(owner, name, make(function))

    def _call(self, slots: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call of the function with these slots, or UNSERVED."""
        inside = self._inside
        outer, inside.nanoseconds = inside.nanoseconds, 0
        front = slots[FRONT]
        begin = perf_counter_ns()
        try:
            result = slots[SERVE](args, kwargs) if front is None or kwargs else front(*args)
            if result.__class__ is Exit:
                result = slots[FALLBACK](args, kwargs, result.number, None, result.counter)
        finally:
            end = perf_counter_ns()
            within, inside.nanoseconds = inside.nanoseconds, outer + end - begin
        if result is UNSERVED:
            inside.nanoseconds = outer + within
            self.eager_calls += 1
        else:
            with self._lock:
                self._note(self._run_of(slots), begin, end, within)
        return result

    def _run_of(self, slots: list[Any]) -> Run:
        """What has just served a call: a path, whose count has grown, or a recording."""
        last, counts = self._last.get(id(slots)), self._counts
        if last is not None:
            counter, run = last
            if counts[id(counter)] != counter[0]:
                counts[id(counter)] = counter[0]
                return run
        function = slots[OWNER]
        for k, path in enumerate(function._table.paths):
            executable = path.executable
            counter = executable.counter
            self._numbers.setdefault(id(counter), k)
            if counts.get(id(counter), 0) != counter[0]:
                counts[id(counter)] = counter[0]
                run = self._run((id(counter), "forward"), executable, "forward", partial(getattr, executable, "program"))
                self._last[id(slots)] = counter, run
                return run
        name = function._diagnostics.name
        kind = "recorded" if function._table.pieces is None else "in pieces"
        return self._runs.setdefault((name, kind), Run(name, kind, 0, lambda: None))

    def _run(self, key: Any, executable: Any, kind: str, program: Callable[[], Any]) -> Run:
        run = self._runs.get(key)
        if run is None:
            number = self._numbers.get(id(executable.counter), 0)
            run = self._runs[key] = Run(executable.name, kind, number, program)
            self._alive.append(executable.counter)
        return run

    def _note(self, run: Run, begin: int, end: int, within: int = 0) -> None:
        run.calls += 1
        run.seconds += (end - begin - within) * 1e-9
        events = self._events
        if len(events) < _MOST_EVENTS:
            events.append((begin, end, self._inside.thread, run))

    def _note_pass(self, plan: Any, present: tuple[bool, ...], begin: int) -> None:
        end = perf_counter_ns()
        self._inside.nanoseconds += end - begin
        key = id(plan.counter), "backward", present
        with self._lock:
            self._note(self._run(key, plan, "backward", lambda: _backward_program(plan, present)), begin, end)

    def _timed_pass(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`api._to_leaves` or `api._gradients`, timed where they do the pass."""

        def timed_pass(root: Any, node: CompiledNode, *others: Any) -> Any:
            begin = perf_counter_ns()
            result = function(root, node, *others)
            if result is not False and result is not None:
                index = root._index
                self._note_pass(node.plan, tuple([i == index for i in range(node.count)]), begin)
            return result

        return timed_pass

    def _timed_node(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`CompiledNode._gradients`, timed."""

        def timed_node(node: CompiledNode, present: tuple[bool, ...], *others: Any) -> Any:
            begin = perf_counter_ns()
            result = function(node, present, *others)
            self._note_pass(node.plan, present, begin)
            return result

        return timed_node


def _backward_program(plan: Any, present: tuple[bool, ...]) -> Any:
    """The backward program of an executable for these cotangents; None if there is none any more."""
    programs = plan.backward_programs()
    return next((program for mask, (program, _) in programs if mask == present), None)
