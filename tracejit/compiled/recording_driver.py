"""The driver of recordings: records a call that no path serves, and puts a path into the table, or notes the reason why there is
none.

::

    record_call --(the policy, an obstacle, another recording)--> UNSERVED: the call runs eagerly
         |
         | the call runs and is recorded (capture)            an instance of a recording with symbolic sizes
         v                                                     |
    _compile  <------------------------------------------------+
         |   \\-- the recording has a reason --> rejected (or the function runs in pieces)
         |
         | within CompileWait           longer: PendingPath, and the next calls run eagerly
         v                               | the first call after its end, or explain()     | lost by a fork
    _install <---------------------------+                                                +--> recorded again
         |   \\-- no program, or a defect --> rejected;  a path that the table has --> tried first, or its exit stays eager
         v
    a path of the table (recorded_path.PathState)

A recorded call has its result before its program is compiled: no later failure changes the result.  While a program is pending,
calls that no path serves run eagerly and are not recorded, since without guards nothing tells whether they are like the recorded
one.

Interrupts: a signal handler may raise an exception after any call.  Programs and paths are built in a thread of their own
(core/uninterrupted.py), and `PathTable` installs them by assignments in a row, so there is never half of one.

Threads: one recording runs at a time in the process (`recording_turn`); a thread that cannot take the turn runs eagerly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tracejit.capture.defects import InternalError
from tracejit.capture.reasons import make
from tracejit.capture.recording.entry import Recording
from tracejit.capture.recording.facts import earlier_values
from tracejit.capture.session import integers_among, record, recording_obstacle
from tracejit.capture.tensors import NodeObserver
from tracejit.compiled.diagnostics import Diagnostics
from tracejit.compiled.executable import Executable, UnsupportedProgram
from tracejit.compiled.options import CompileWait, Options
from tracejit.compiled.path_table import PathTable
from tracejit.compiled.promotion import Promoter
from tracejit.compiled.recorded_path import FIRST_WAIT, RecordedPath
from tracejit.compiled.symbolic_paths import SymbolicPath
from tracejit.compiled.tier_policy import TierPolicy, recording_turn
from tracejit.config import config
from tracejit.core.locks import Ticket
from tracejit.core.uninterrupted import Work, begin_next, is_crowded, start_work
from tracejit.cpython.dispatcher import UNSERVED
from tracejit.cpython.size_table import Reach, Shapes
from tracejit.llvm.family import Family
from tracejit.report.debug import DebugLog, report_defect, unserved
from tracejit.report.guards import Failure, exit_failure, miss_failure
from tracejit.report.misses import note

__all__ = ["Miss", "PendingPath", "RecordingDriver"]


_UNSERVED: Final = 4
_LOOKUP: Final = 16
"""What a call that no path serves costs besides trying them, in the units of accounts.py: 3 us, or 11 where paths are looked up by sizes.
A call of a small function, left by an exit, took 4 to 6 us more than eagerly with paths for one size, 12 with those for 2, 17 or 57."""


class Miss(NamedTuple):
    """A call that no path serves.  tried: all paths at that time.  exited: the path that it has left by exit `number`; None
    if all missed.  cost: of trying paths, in the units of accounts.py."""

    tried: tuple[RecordedPath, ...]
    exited: RecordedPath | None
    number: int
    cost: int


@dataclass(frozen=True, slots=True)
class PendingPath:
    """A path whose program is being compiled.

    is_instance: whether it was made without a recorded call.  sizes: of the arguments of its call.  is_sized: whether it serves
    only calls of these sizes."""

    work: Work[tuple[RecordedPath, bool]]
    recording: Recording
    is_instance: bool
    miss: Miss
    sizes: Shapes
    is_sized: bool


class RecordingDriver:
    """Records calls of one compiled function.  pending: the path that is being compiled in the background, or None."""

    __slots__ = (
        "_diagnostics", "_family", "_follows_rows", "_function", "_options", "_policy", "_promoter", "_table", "_wait",
        "pending",
    )  # fmt: skip

    def __init__(
        self,
        function: Any,
        options: Options,
        wait: CompileWait,
        table: PathTable,
        policy: TierPolicy,
        promoter: Promoter,
        diagnostics: Diagnostics,
    ) -> None:
        self._function, self._options, self._wait = function, options, wait
        self._table, self._policy, self._promoter, self._diagnostics = table, policy, promoter, diagnostics
        self._follows_rows = True  # see `RaggedHandlers`; False once a recording has failed because of it
        self.clear()

    def clear(self) -> None:
        """Reset to the state before the first call."""
        self.pending: PendingPath | None = None
        self._family = Family()

    def record_call(self, args: tuple[Any, ...], kwargs: dict[str, Any], miss: Miss) -> Any:
        """The result of a call, which runs eagerly and is recorded; or UNSERVED if there is a reason not to."""
        table, policy, diagnostics, options = self._table, self._policy, self._diagnostics, self._options
        stats, exited = diagnostics.stats, miss.exited
        stats.unserved += 1
        failure = None
        if miss.tried and config.debug:
            failure = self._failure(args, kwargs, miss)
            unserved(diagnostics.name, failure.text())
        if miss.tried and exited is None:
            stats.guard_misses += 1
        if self.pending is not None or (is_crowded() and self._wait() < math.inf):
            stats.early_calls += 1
            return UNSERVED
        sizes = table.symbolic.shapes(args, kwargs)
        is_deferred = policy.defers(sizes)
        if is_deferred and policy.defers_for_free:
            return UNSERVED
        if is_deferred or not policy.may_record(exited, miss.number, sizes):
            if policy.accounts.charge(miss.cost + (_LOOKUP if len(table.by_sizes) > 1 else _UNSERVED)) and miss.tried:
                policy.close_window()
            return UNSERVED
        if table.symbolic.lists_vary(args, kwargs):
            if not self._forget_sizes_of_lists():
                return UNSERVED
            miss, sizes = Miss((), None, 0, miss.cost), table.symbolic.shapes(args, kwargs)
        if self._make_instance(args, kwargs, miss, sizes):
            stats.unserved -= 1
            return table.serve(args, kwargs)
        ticket = Ticket()
        try:
            if not recording_turn.take(ticket) or self.pending is not None:
                return UNSERVED
            reason = recording_obstacle(self._function)
            if reason is not None and reason.code == "recursion_limit":  # an obstacle to this call, not to the next one
                diagnostics.note(reason)
                return UNSERVED
            stats.traces += 1
            if reason is not None:
                policy.reject(reason, lasting=reason.code != "profiler_active")
                return UNSERVED
            if miss.tried:
                note(diagnostics.name, failure or self._failure(args, kwargs, miss))
            symbolic = table.symbolic
            dynamic = symbolic.dimensions(args, kwargs)
            integers = integers_among(args, kwargs, symbolic.reach)  # before the call, which may change its arguments
            recordings = [(path.recording.facts, path.recording.varied) for path in table.paths]
            try:
                recording, result = record(
                    self._function,
                    args,
                    kwargs,
                    dynamic=dynamic,
                    earlier=earlier_values(recordings),
                    follows_rows=self._follows_rows and not options.fullgraph,
                    may_give_up=not options.fullgraph,
                    gives_up_soon=policy.gives_up_soon,
                    may_outline=policy.may_outline,
                    reach=symbolic.reach,
                    branching_lines=policy.branching_lines,
                )
            except Exception as error:
                policy.note_error(error)
                raise
            # From now on the sizes of calls include the integers that this recording guards.
            sizes = table.symbolic.note_shapes(recording, sizes, integers)
            recording, symbolic_path = table.symbolic.note_recording(recording, sizes, dynamic)
            self._compile(recording, miss, sizes, symbolic_path)
        finally:
            ticket.over = True
        return result

    def _forget_sizes_of_lists(self) -> bool:
        """Drop all paths, and look into lists in objects no more.  Returns whether that is done."""
        ticket = Ticket()
        try:
            is_taken = recording_turn.take(ticket) and self.pending is None
            if is_taken:
                self._policy.drop_all(Reach.WITHOUT_LISTS)
            return is_taken
        finally:
            ticket.over = True

    def recorded(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], observer: NodeObserver, known: Recording | None
    ) -> tuple[Recording, Any] | None:
        """See `CompiledFunction.recorded`."""
        ticket = Ticket()
        earlier, follows_rows = (None, False) if known is None else (known.varied, known.follows_rows)
        try:
            if not recording_turn.take(ticket):
                return None
            return record(
                self._function,
                args,
                kwargs,
                observer,
                earlier=earlier,
                follows_rows=follows_rows,
                branching_lines=self._policy.branching_lines,
            )
        finally:
            ticket.over = True

    def _failure(self, args: tuple[Any, ...], kwargs: dict[str, Any], miss: Miss) -> Failure:
        """Why no path serves the call: the failed guard at the exit, or of the first path."""
        if miss.exited is not None:
            return exit_failure(miss.exited.executable.graph, miss.number)
        first = self._table.first if self._table.first in miss.tried else None
        return miss_failure((first or miss.tried[-1]).recording, self._function, args, kwargs)

    def _make_instance(self, args: tuple[Any, ...], kwargs: dict[str, Any], miss: Miss, sizes: Shapes) -> bool:
        """Install a path for a call of these sizes without recording it, if a recording with symbolic sizes describes it.
        Returns whether there is one now."""
        ticket, table = Ticket(), self._table
        try:
            if not recording_turn.take(ticket) or self.pending is not None:
                return False
            instance = table.symbolic.instance(
                sizes, args, kwargs, lambda recording: any(path.stands_for(recording) for path in miss.tried)
            )
            if instance is None:
                return False
            self._diagnostics.stats.instances += 1
            self._compile(instance[0], miss, sizes, instance[1], is_instance=True)
            return any(path not in miss.tried for path in table.by_sizes.get(sizes, ()))
        finally:
            ticket.over = True

    def _compile(
        self, recording: Recording, miss: Miss, sizes: Shapes, symbolic: SymbolicPath | None, is_instance: bool = False
    ) -> None:
        """Compile a recording, and install the path, unless compiling takes too long.  symbolic: the recording with symbolic
        sizes of which this is one size, if any.  is_instance: whether the recording was made from that, without recording a
        call."""
        policy = self._policy
        if recording.reason is not None:
            self._follows_rows &= recording.reason.code != "selected_rows_written"
            if recording.reason.code == "branching_loop":
                policy.split_or_reject(recording, recording.reason)
            elif recording.reason.code == "outlined_loop":
                policy.give_up_outlining(recording.reason)
            elif recording.reason.code == "divided_step":  # which does not recur in the next recording
                self._diagnostics.note(recording.reason)
            else:
                policy.reject(recording.reason)
            if recording.reason.code == "recording_defect":
                report_defect(self._diagnostics.name, "record", InternalError(recording.reason.message))
            return
        if not is_instance and self._policy.outlines_instead(recording):
            return
        if self._options.fullgraph and recording.opaque_calls:
            policy.reject(recording.opaque_calls[0])
        paths, backend = self._table.paths, self._options.backend or config.backend
        work = start_work(lambda: self._build(recording, paths, backend, sizes, symbolic), self._wait())
        pending = PendingPath(
            work, recording, is_instance, miss, sizes, symbolic is not None and symbolic.recording.env.is_guarded
        )
        if work.behind:
            self.pending = pending
            self._diagnostics.note(make("compiling", self._diagnostics.name))
        else:
            self._install(pending)

    def _build(
        self, recording: Recording, paths: tuple[RecordedPath, ...], backend: str, sizes: Shapes, symbolic: SymbolicPath | None
    ) -> tuple[RecordedPath, bool]:
        """(the path of a recording, whether it is new): one of `paths` that stands for it, or a new one.  Raises
        UnsupportedProgram."""
        for path in paths:
            if path.stands_for(recording):
                return path, False
        name, wait = self._diagnostics.name, self._wait
        log = DebugLog(name) if config.debug else None
        executable = None
        if symbolic is not None and log is None and backend == "llvm":
            executable = symbolic.executable(
                recording, sizes, lambda general: Executable(name, general, backend, wait, None, self._family)
            )
        if executable is None:
            executable = Executable(name, recording, backend, wait, log, self._family)
        return RecordedPath(recording, executable, log, self._promoter.promote, len(paths)), True

    def install_finished(self) -> bool:
        """Install the path that was compiled in the background.  Returns False if it is still being compiled or there is none;
        True if it has been installed or rejected, or a fork has lost it."""
        pending = self.pending
        if pending is None:
            return False
        work = pending.work
        if not (work.finished or work.is_lost):
            begin_next()
            return False
        ticket = Ticket()
        try:
            if not recording_turn.take(ticket) or self.pending is not pending:
                return False
            self.pending = None
            if work.finished:
                self._install(pending)
        finally:
            ticket.over = True
        return True

    def _install(self, pending: PendingPath) -> None:
        """Put a compiled path into the table, or note the reason why there is none."""
        table, policy, recording, sizes = self._table, self._policy, pending.recording, pending.sizes
        tried, exited, number, _ = pending.miss
        outcome = pending.work.outcome()
        error = outcome.error
        if error is not None:
            if isinstance(error, UnsupportedProgram):
                policy.reject(error.reason)
                return
            # A defect.  It must not reach the caller: the call has its result and its effects.
            policy.reject(make("internal_error", f"{type(error).__name__}: {error}"))
            report_defect(self._diagnostics.name, "compile", error)
            return
        path, is_new = outcome.value
        if not is_new:
            if path not in tried:  # another thread has recorded it meanwhile, or it was recorded for other sizes
                table.set_first_for(sizes, path)
            elif exited is not None:
                exited.eager_exits.setdefault(number, [0, FIRST_WAIT])
            elif path.is_unstable():
                policy.reject(make("unstable_guards", self._diagnostics.name))
            return
        divergence = policy.note_path(path, recording, pending.is_instance)
        stats = self._diagnostics.stats
        stats.executables = [*stats.executables, path.executable]
        path.sizes, path.is_sized = sizes, pending.is_sized
        table.add(path, sizes, exited, number)
        policy.review(path, divergence)
