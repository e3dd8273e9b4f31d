"""`tracejit.profile()`: times calls of compiled functions, and backward passes through them.

While a profile is on, calls take the way through `dispatch` (dispatch.py), which hands them to a function of the profile; and the
functions of autograd that call backward programs are replaced by ones that read the clock before and after.  While none is on,
nothing of this is there: calls go through machine code as always.

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
_MOST_RAW: Final = 2_000_000
_turn = threading.Lock()


class profile:  # noqa: N801  (named like no_grad)
    """`with tracejit.profile() as p:` measures what compiled functions take inside the block: calls, time and bytes, for each
    function and recorded path, forward and backward; and, estimated, for each step of their programs and each line of the
    user's.  All threads are measured.

    `p.table()` is a text, `p.export_chrome_trace(path)` writes a file for https://ui.perfetto.dev.  `p.calls`, `p.steps` and
    `p.lines` are the rows, longest first; `p.eager_calls` counts calls that ran as Python, which have no time.

    Raises RuntimeError when entered while another profile is on."""

    def __init__(self) -> None:
        self.eager_calls = 0
        self.seconds = 0.0
        # (begin, end, thread, what ran), as it was noted: a Run, or of a backward pass (plan, output or mask, number of outputs).
        self._raw: list[tuple[int, int, int, Any]] = []
        self._events: list[Event] = []
        self._runs: dict[Any, Run] = {}
        # By the id of `Executable.counter`: the calls served when it was looked at last; the number of the path.
        self._counts: dict[int, int] = {}
        self._numbers: dict[int, int] = {}
        self._last: dict[
            int, list[Any]
        ] = {}  # id of a function's slots -> [counter of the path that served last, its run, its count]
        self._alive: list[list[int]] = []  # these counters, so that no other list has the id of one
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
        timed[0] = self._timed_call()
        ask_always(1)
        return self

    def __exit__(self, *exception: object) -> None:
        ask_always(-1)
        timed[0] = None
        self.seconds += (perf_counter_ns() - self._start) / 1e9
        for owner, name, function in self._put_back:
            setattr(owner, name, function)
        self._put_back.clear()
        self._last.clear()
        _turn.release()

    # -- what was measured
    @property
    def events(self) -> list[Event]:
        """Each timed call: when it began and ended, in which thread, and what ran.  Of more than a million the first million."""
        self._collect()
        return self._events

    @property
    def calls(self) -> list[CallRow]:
        """A row for each function, path and direction."""
        return call_rows(self._collect())

    @property
    def steps(self) -> list[StepRow]:
        """A row for each step of a program; their times are estimates."""
        return step_rows(self._collect())

    @property
    def lines(self) -> list[LineRow]:
        """A row for each line of the user's; their times are estimates."""
        return line_rows(self.steps)

    def table(self, rows: int = 20) -> str:
        """A text of three parts: functions, lines and steps, each with calls, milliseconds, mean microseconds of a call, share of the
        time in compiled functions, and megabytes moved.  rows: at most so many in each part."""
        return table(self.seconds, self._collect(), rows)

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write all calls as a file of Chrome's trace format, which https://ui.perfetto.dev and chrome://tracing open.  Of more
        than a million calls the first million are in it.  Raises OSError if the file cannot be written."""
        events = self.events
        write_trace(path, events, min((event.begin for event in events), default=0))

    def __repr__(self) -> str:
        return f"<profile of {self.seconds:.3f} s: {sum(run.calls for run in self._collect())} timed calls>"

    # -- measuring
    def _replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        function = getattr(owner, name)
        self._put_back.append((owner, name, function))
        setattr(owner, name, make(function))

    def _timed_call(self) -> Callable[[list[Any], tuple[Any, ...], dict[str, Any]], Any]:
        """What serves calls while this profile is on: `call(slots, args, kwargs)` gives the result, or UNSERVED.  Between large products
        nothing is in the processor's caches, so it does little, and `_collect` the rest."""
        raw, last, clock, thread = self._raw, self._last, perf_counter_ns, threading.get_ident

        def call(slots: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            front = slots[FRONT]
            begin = clock()
            result = slots[SERVE](args, kwargs) if front is None or kwargs else front[1](*args)
            if result.__class__ is Exit:
                result = slots[FALLBACK](args, kwargs, result.number, None, result.counter)
            end = clock()
            known = last.get(id(slots))
            if known is not None and known[0][0] != known[2]:
                known[2] = known[0][0]
                raw.append((begin, end, thread(), known[1]))
                if len(raw) > _MOST_RAW:
                    self._collect()
            else:
                self._note_other(slots, result, begin, end)
            return result

        return call

    def _note_other(self, slots: list[Any], result: Any, begin: int, end: int) -> None:
        """Note a call that was not served by the path that served the one before."""
        if result is UNSERVED:
            self.eager_calls += 1
            return
        self._raw.append((begin, end, threading.get_ident(), self._run_of(slots)))

    def _run_of(self, slots: list[Any]) -> Run:
        """What has just served a call: a path, whose count has grown, or a recording."""
        counts = self._counts
        previous = self._last.get(id(slots))
        if previous is not None:
            counts[id(previous[0])] = previous[2]
        function = slots[OWNER]
        for k, path in enumerate(function._table.paths):
            executable = path.executable
            counter = executable.counter
            self._numbers.setdefault(id(counter), k)
            if counts.get(id(counter), 0) != counter[0]:
                counts[id(counter)] = counter[0]
                run = self._run((id(counter), "forward"), executable, "forward", partial(getattr, executable, "program"))
                self._last[id(slots)] = [counter, run, counter[0]]
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

    def _collect(self) -> list[Run]:
        """What ran, with all that was noted so far.  Calls inside of others are subtracted from these."""
        with self._lock:
            noted = sorted(self._raw, key=lambda fields: (fields[2], fields[0], -fields[1]))
            del self._raw[: len(noted)]
            around: list[Event] = []  # the calls under way, the innermost last
            for begin, end, thread, what in noted:
                event = Event(begin, end, thread, what if isinstance(what, Run) else self._backward_run(*what))
                while around and (around[-1].thread != thread or around[-1].end <= begin):
                    around.pop()
                if around:
                    around[-1].run.seconds -= (end - begin) * 1e-9
                around.append(event)
                event.run.add((end - begin) * 1e-9)
                if len(self._events) < _MOST_EVENTS:
                    self._events.append(event)
        return list(self._runs.values())

    def _backward_run(self, plan: Any, outputs: int | tuple[bool, ...], count: int) -> Run:
        """outputs: from which the pass came: the number of one of `count`, or a mask."""
        present = tuple([i == outputs for i in range(count)]) if isinstance(outputs, int) else outputs
        key = id(plan.counter), "backward", present
        return self._run(key, plan, "backward", lambda: _backward_program(plan, present))

    def _timed_pass(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`api._to_leaves` or `api._gradients`, timed where they do the pass."""
        raw, clock, thread = self._raw, perf_counter_ns, threading.get_ident

        def timed_pass(root: Any, node: CompiledNode, *others: Any) -> Any:
            begin = clock()
            result = function(root, node, *others)
            if result is not False and result is not None:
                raw.append((begin, clock(), thread(), (node.plan, root._index, node.count)))
            return result

        return timed_pass

    def _timed_node(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`CompiledNode._gradients`, timed."""
        raw, clock, thread = self._raw, perf_counter_ns, threading.get_ident

        def timed_node(node: CompiledNode, present: tuple[bool, ...], *others: Any) -> Any:
            begin = clock()
            result = function(node, present, *others)
            raw.append((begin, clock(), thread(), (node.plan, present, node.count)))
            return result

        return timed_node


def _backward_program(plan: Any, present: tuple[bool, ...]) -> Any:
    """The backward program of an executable for these cotangents; None if there is none any more."""
    programs = plan.backward_programs()
    return next((program for mask, (program, _) in programs if mask == present), None)
