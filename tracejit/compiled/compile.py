"""`compile`: from a Python function to recorded, guarded programs.

A CompiledFunction holds entries.  A call tries them in order; an entry either misses (a guard failed), exits (a guard inside the
program failed, nothing was changed), or returns the result.  When none fits the call runs eagerly and is recorded.  A call that
cannot be recorded runs eagerly with a reason.

Of a function that has met arguments of several sizes the entry that stands for those of the call is tried first, else the one that fitted
last.

Bridges: the entry that misses, or takes exit k, remembers which entry went on from there last time, and hands over to it, which may
exit and hand over in turn; between machine code without Python, but for every 32nd time, when it is accounted for.  Where there is no
bridge all entries are asked; once none of them went on from an exit and there is no room for another one, only now and then.  A path that
has been recorded is never recorded again: where eager takes a path that an entry already stands for (a predicate so close to its threshold
that two fusions round it differently), that exit is recorded only now and then.

A function keeps at most one path for each of `config.max_sizes` sizes of its arguments, and less than `config.max_entries` beside them.
What fits none runs eagerly, as a user of torch.compile would expect: recording in turn what comes in turn would cost more than it
gains.  But paths that have gone out of use make room: when as many eager calls have passed as `FIRST_WAIT` for each of `max_entries`,
those that served no call meanwhile are dropped; then twice as many have to pass.

Paths for other sizes do not stand in a call's way: its own is looked up.  A function with more than `_MANY` paths is asked for those of the
call's sizes alone, and a size that comes then is recorded when it has come `_OFTEN` times: sizes that come once, as those of a sequence
that grows, would never earn a recording.  Where such paths go out of use before they have served `_EARNED` calls each, sizes that follow
must come twice as often.

A function whose loops go different ways in each step has too many paths.  It is taken to pieces: it is Python again, and the steps of its
loops are compiled functions (pieces.py).  That is done as soon as a recording was given up since it showed this itself
(capture/branches.py), or two recordings have parted at a branch that runs in many steps; of few steps all paths may be worth having, so
these are recorded until that has come to nothing.

No function settles slower than eager: settling.py keeps account of what its entries gain and what it costs to try them and to record,
and where that is a loss, or nothing can be recorded, calls go to the function itself for a while, longer each time.

Interrupts: an exception that a signal handler raises may come after any call.  Programs and entries are made aside (core/aside.py), and
put in place by assignments in a row, so there is never half of one.

A recorded call has its result already.  If its program takes longer than `config.compile_wait`, it is compiled in the background, and
put in place by the first call after its end that the entry in front does not serve.  Until then what no entry serves runs eagerly and is
not recorded: whether a call is like the recorded one cannot be told before there are guards.  A forked child has not got the thread, and
records again.

Threads: entries are replaced as a whole; programs take a frame of their own per call.  One recording runs at a time; a thread that
finds another one recording runs eagerly.  What threads may lose of each other's work is an increment of a counter and the
choice of the entry to try first, never a result: every entry checks its own guards.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, TypeVar, overload

from tracejit.capture.branches import Branch
from tracejit.capture.function_sources import modules_by_value, sources_reached, use_source
from tracejit.capture.reasons import Reason, make
from tracejit.capture.recording.entry import INTERRUPTED, MISS, Exit, Recording
from tracejit.capture.recording.facts import earlier_values
from tracejit.capture.session import declare_inlined, hindrance, integers_among, record
from tracejit.capture.syntax.sources import give_source
from tracejit.capture.tensors import Watch
from tracejit.capture.tracebacks import without_dispatch
from tracejit.compiled.dispatch import dispatching, leaving, nothing_recorded
from tracejit.compiled.executable import Executable, UnsupportedProgram
from tracejit.compiled.pieces import Pieces, in_pieces
from tracejit.compiled.recorded_path import FIRST_WAIT, Entry
from tracejit.compiled.settling import WINDOW, Settling
from tracejit.compiled.side_trace import Trace
from tracejit.compiled.symbolic_paths import SymbolicPath, SymbolicPaths, of_tensors
from tracejit.config import backend_named, config
from tracejit.core.aside import Work, begin_next, begun, is_crowded
from tracejit.core.compiler import installed
from tracejit.core.interpreter import pushed_anywhere
from tracejit.core.locks import Ticket, Turn
from tracejit.core.weak_table import WeakTable
from tracejit.cpython.dispatcher import FRONT, SIZED, UNSERVED, dispatcher
from tracejit.cpython.functions import Untranslatable
from tracejit.cpython.size_table import Shapes, SizeTable
from tracejit.llvm.family import Family
from tracejit.report.debug import DebugLog, eager_reason, left_alone, report_defect, unserved
from tracejit.report.explain import explain_function, graph_text, source_text
from tracejit.report.guards import exit_text, miss_text
from tracejit.report.partings import Parting, Partings
from tracejit.report.performance import COMPILED_ANEW, Advice, Warned, again_and_again, not_worth_it, raising, too_many
from tracejit.report.stats import Stats
from tracejit.report.summary import sentence, summary
from tracejit.tensor import Tensor

__all__ = ["CompiledFunction", "Entry", "FullGraphError", "compile", "compiled_functions"]

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")

if TYPE_CHECKING:

    class _Partial(functools.partial[R], Generic[P, R]):
        """A partial without arguments has the signature of its function."""

        def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R: ...

else:
    _Partial = functools.partial

_recording = Turn()
_compiled: WeakTable[None] = WeakTable()
_PARTED: Final = 6  # recordings that part at branches before a loop is blamed
_STEPS: Final = 16  # of a loop that is blamed at once: runs of the branch at which recordings part
_FEW: Final = 8  # paths, all of which may be asked
_MANY: Final = 64  # paths of one function
_OFTEN: Final = 4  # calls of one size
_PATIENT: Final = 12  # calls that run eagerly before that is warned of
_EARNED: Final = 64
_COUNTED: Final = 4096  # sizes
_PASSING: Final = ("raised", "items_used")  # reasons that say nothing of the next recording of a call like this
_FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType, functools.partial, type)


@dataclass(frozen=True, slots=True)
class _Arriving:
    """A path that was recorded, and whose program is being made.

    is_instance: no call was recorded for it.  tried: the entries that did not serve its call, which left `exited` at exit `number`; sizes:
    of its arguments; is_sized: whether it serves no others."""

    work: Work[tuple[Entry, bool]]
    recording: Recording
    is_instance: bool
    tried: tuple[Entry, ...]
    exited: Entry | None
    number: int
    sizes: Shapes
    is_sized: bool


class _Patience:
    """How many seconds calls of a function, and backward passes through them, wait for a program: however long it takes, while there are
    `reasons` to.

    It does not lead to the function: tapes lead to it."""

    __slots__ = ("reasons",)

    def __init__(self) -> None:
        self.reasons: list[object] = []

    def __call__(self) -> float:
        return math.inf if self.reasons else config.compile_wait


class CompiledFunction(_Partial[P, R]):
    """What `compile` returns.  Call it like the function; `stats`, `explain()`, `graph()`, `source()` tell what happened.

    It is a functools.partial without arguments for the sake of its call: C calls the dispatcher (cpython/dispatcher.py) at once, where a
    `__call__` written in Python costs 0.1 us more and stands in the traceback of what the function raises."""

    def __new__(cls, function: Callable[P, R]) -> CompiledFunction[P, R]:
        paths: list[Any] = [nothing_recorded, None, None, None]
        settling = Settling(function)
        self = super().__new__(
            cls,
            dispatcher(
                function,
                paths,
                pushed_anywhere,
                Exit,
                leaving(paths),
                dispatching(paths),
                without_dispatch,
                settling.rest,
                Tensor,
            ),
        )
        paths[1] = self._go_on
        self._paths, self._settling = paths, settling
        return self

    def __init__(self, function: Callable[P, R]) -> None:
        functools.update_wrapper(self, function, updated=())
        self.__wrapped__ = function
        self._paths: list[Any]
        self._settling: Settling
        self._entries: tuple[Entry, ...] = ()
        self._front: Entry | None = None  # the entry that was tried first last
        self._by_sizes: dict[Shapes, tuple[Entry, ...]] = {}  # of the arguments -> their paths, the one tried first in front
        self._sized = SizeTable()  # what machine code knows of that
        self._came: dict[Shapes, int] = {}  # sizes that come while there are many -> how often
        self._often = _OFTEN
        self._follows_rows = True  # whether recordings do (`RaggedHandlers`), unless one has failed by it
        self._keeps_items = False  # whether recordings keep items of lists one by one, since one that did not has failed by it
        self._rare_calls = 0  # of such sizes since the last path: so many are an investment, beyond them they cost (settling.py)
        self._reasons: dict[Reason, int] = {}
        self._partings = Partings()
        self._family = Family()
        self._symbolic = SymbolicPaths()
        self._fullgraph = False  # whether a recording that came to nothing is an error
        self._backend: str | None = None  # of its programs; None: the configuration's
        self._patience = _Patience()
        self._arriving: _Arriving | None = None  # what is compiled in the background
        self._untranslated: list[Entry] = []  # hot entries whose translation a fork has given up
        self._pieces: Pieces | None = None  # that it runs in, since paths for all of it are too many
        self._may_be_cut = True
        self._is_outdated = False  # whether the paths do not know yet of an entry that has become machine code, or is to
        self._advice = Advice(function)
        self._resting = 0  # calls that are to be left alone once the warning is given
        self.stats = Stats(self._settling)
        _compiled[self] = None

    def _put_in_front(self, entry: Entry | None) -> None:
        paths = self._paths
        if self._pieces is not None:
            self._front, paths[0], paths[FRONT], paths[SIZED] = None, self._run_in_pieces, None, None
        elif entry is None:
            self._front, paths[0], paths[FRONT], paths[SIZED] = None, nothing_recorded, None, None
        elif len(self._by_sizes) > 1:
            sized = None if self._symbolic.is_shallow else self._sized.items  # machine code looks into containers
            self._front, paths[0], paths[FRONT], paths[SIZED] = entry, self._serve_sized, None, sized
        else:
            self._front, paths[0], paths[FRONT], paths[SIZED] = entry, entry.run, entry.machine, None
        if self._is_outdated and self._front is not None:
            paths[0] = self._renewed
        if self._advice.is_due:
            paths[0], paths[FRONT], paths[SIZED] = self._warn_first, None, None

    def _put_in_front_of(self, sizes: Shapes, entry: Entry) -> None:
        """From now on the entry is tried first for arguments of these sizes."""
        self._by_sizes[sizes] = (entry, *[other for other in self._by_sizes.get(sizes, ()) if other is not entry])
        if entry.machine is not None:
            # Machine code looks for the shapes of tensors alone.
            self._sized.put(of_tensors(sizes), (entry.machine, leaving(self._paths, entry)))

    def _serve_sized(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Stands for the entry in front where several sizes are known."""
        known = self._by_sizes.get(self._symbolic.shapes(args, kwargs))
        entry = self._front = self._front if known is None else known[0]
        return MISS if entry is None else entry.serve(args, kwargs)

    def _run_in_pieces(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Stands for the entry in front of a function in pieces."""
        pieces = self._pieces
        if pieces is None or not pieces.are_current():
            self._make_whole()
            return MISS
        self.stats.piecewise_calls += 1
        result = pieces.function(*args, **kwargs)
        called = [part for part in pieces.parts if part.stats.calls]
        if called and all(part._settling.rest.value > 0 for part in called):  # to call them costs more than they save
            self._leave_alone(FIRST_WAIT)
        return result

    def _make_whole(self) -> None:
        """Forget the pieces, and what led to them."""
        self._pieces, self._may_be_cut = None, True
        self._partings.clear()
        self._put_in_front(None)

    def _leave_alone(self, calls: int) -> None:
        """So many calls go to the function itself; where there is something to warn of, after some of them."""
        if self._advice.is_due:
            first = min(calls, _PATIENT)
            self._resting, calls = calls - first, first
        paths = self._paths
        left_alone(self._name(), calls)
        self._settling.leave_alone(calls)
        paths[0], paths[FRONT], paths[SIZED] = self._left_alone, None, None

    def _left_alone(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Stands for the entry in front meanwhile, where no machine code does."""
        if self._settling.takes_call():
            return UNSERVED
        self._put_in_front(self._front)
        return self._paths[0](args, kwargs)

    def _promote(self, entry: Entry) -> None:
        """An entry has served many calls.  The next one is about to run, and may be interrupted here: nothing has been done yet."""
        if entry.machine is not None or entry.interpreted_for:
            return
        entry.interpreted_for = "it is being translated in the background"
        work = begun(lambda: self._translate(entry), self._patience(), lambda: self._given_up(entry))
        if not work.finished:
            return
        self._renew()
        if (error := work.outcome().error) is not None:
            report_defect(self._name(), "translate the Python around", error)

    def _translate(self, entry: Entry) -> None:
        """Make an entry machine code, or say why it is none.  Raises what is a defect.  The thread that does this changes nothing but the
        entry, and the first of the paths."""
        try:
            made = entry.translate()
        except Untranslatable as error:
            entry.interpreted_for = f"what cannot be translated is {error}"
        except Exception as error:
            entry.interpreted_for = f"the translation failed: {type(error).__name__}: {error}"
            raise
        else:
            entry.become(*made)
            entry.interpreted_for = ""
            self._outdate()

    def _given_up(self, entry: Entry) -> None:
        entry.interpreted_for = ""
        self._untranslated.append(entry)
        self._outdate()

    def _extend(self, trace: Trace, number: int, bridge: Entry) -> None:
        """Many calls go from an exit of a trace along a bridge: what that needs not compute again a side trace finds in memory."""
        if sum(len(entry.traces) - 1 for entry in self._entries) >= config.max_entries:
            return
        key = number, bridge
        trace.sides[key] = None
        work = begun(lambda: self._made_side(trace, number, bridge), self._patience(), lambda: trace.forget(key))
        if work.finished and (error := work.outcome().error) is not None:
            report_defect(self._name(), "compile a side trace", error)

    def _made_side(self, trace: Trace, number: int, bridge: Entry) -> None:
        """The thread that does this changes nothing but what leads on from the trace."""
        try:
            side = bridge.side_trace(trace, number)
        except Exception as error:
            trace.sides[number, bridge] = f"compiling it failed: {type(error).__name__}: {error}"
            raise
        trace.sides[number, bridge] = side
        if isinstance(side, Trace):
            bridge.joined_by(side)

    def _outdate(self) -> None:
        """The next call that comes to Python renews the paths, whatever is put in front before."""
        self._is_outdated = True
        self._paths[0] = self._renewed

    def _renewed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Stands for the entry in front when some entry has become machine code, of which the paths do not know yet, or is to become it."""
        while self._untranslated:
            self._promote(self._untranslated.pop())
        self._renew()
        return self._paths[0](args, kwargs)

    def _renew(self) -> None:
        self._is_outdated = False
        for sizes, entries in list(self._by_sizes.items()):
            self._put_in_front_of(sizes, entries[0])
        self._put_in_front(self._front)

    def _go_on(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        number: int,
        front: Entry | None = None,
        counter: list[int] | None = None,
    ) -> Any:
        """An entry, the one in front if it is not said which, did not serve the call: it missed (number 0) or took an exit.  Try its
        bridge, then the other entries.  counter: of the entry that took the exit, if machine code went on to another one."""
        if number == INTERRUPTED.number:
            return self.serve(args, kwargs)
        if self._arriving is not None and self._arrived(self._arriving):
            return self.serve(args, kwargs)
        front, entries = front or self._front, self._entries
        if counter is not None and (front is None or front.executable.counter is not counter):
            front = next((entry for entry in entries if entry.executable.counter is counter), None)
            number = 0 if front is None else number
        tried = [front]
        exited = front if number else None
        cost = 0 if front is None else front.effort if number else 1
        last = front
        while last is not None and (bridge := last.bridges.get(number)) is not None and bridge not in tried:
            result = bridge.serve(args, kwargs)
            if result.__class__ is not Exit:
                self._hand_over(last, number, bridge)
                return self._went_on(bridge, exited, 0, cost, result, args, kwargs)
            tried.append(bridge)
            if not result.number:
                cost += 1
                break
            self._hand_over(last, number, bridge)
            cost += bridge.effort
            exited = last = bridge
            number = result.number
        if exited is not None and exited.is_lost():
            return self._call_eagerly(args, kwargs, entries, exited, number, cost)
        for entry in self._others(args, kwargs):
            if entry in tried:
                continue
            result = entry.serve(args, kwargs)
            if result.__class__ is not Exit:
                return self._went_on(entry, exited, number, cost, result, args, kwargs)
            cost += entry.effort if result.number else 1 if entry.machine is not None else 2
            if exited is None and result.number:
                exited, number = entry, result.number
        return self._call_eagerly(args, kwargs, entries, exited, number, cost)

    def _others(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Entry, ...]:
        """The entries to ask for a call that the one in front and its bridges do not serve."""
        entries = self._entries
        if len(entries) <= _FEW:
            return entries
        sizes = self._symbolic.shapes(args, kwargs)
        of_sizes = self._by_sizes.get(sizes, ())
        if len(entries) > _MANY:
            return of_sizes
        return (*of_sizes, *[entry for entry in entries if not entry.is_sized and entry not in of_sizes])

    def _went_on(
        self,
        entry: Entry,
        exited: Entry | None,
        number: int,
        cost: int,
        result: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """`entry` has served a call that the entry in front did not; number: of the exit of `exited` whose bridge it is from now on."""
        if exited is not None:
            if number:
                self._hand_over(exited, number, entry)
                exited.lost[1] = 0
            self.stats.bridges += 1
        else:
            if self._front is not None:
                self._front.bridges[0] = entry
            if len(self._by_sizes) > 1 and (sizes := self._symbolic.shapes(args, kwargs)) in self._by_sizes:
                self._put_in_front_of(sizes, entry)
            self._put_in_front(entry)
        if self._settling.charge(cost):
            self._close_account()
        return result

    def _hand_over(self, entry: Entry, number: int, bridge: Entry) -> None:
        """`bridge` has gone on from an exit of an entry, and will again; how often it did without Python is accounted for.  What most calls
        lead to is tried first."""
        calls = entry.hand_over(number, bridge)
        if not calls:
            return
        for trace in entry.without_side(number, bridge):
            self._extend(trace, number, bridge)
        self.stats.bridges += calls
        self._settling.charge(entry.effort, calls)
        if entry.is_left_by_most(calls):
            if self._by_sizes.get(entry.sizes, (None,))[0] is entry:
                self._put_in_front_of(entry.sizes, bridge)
            if self._front is entry:
                self._put_in_front(bridge)

    def _close_account(self) -> None:
        """So many calls were not served by the entry in front: whether its entries pay."""
        ticket = Ticket()
        try:
            if not _recording.take(ticket):
                return
            settling = self._settling
            lost = settling.close(self._entries)
            if lost and self._is_full() and settling.may_drop() and self._drop_unused():
                settling.dropped()
            for entry in self._entries:
                entry.uses_seen = entry.uses
            if lost and not self._fullgraph and (calls := settling.period()):
                self._advise(not_worth_it(len(self._entries), self._partings.foremost()))
                self._leave_alone(calls)
        finally:
            ticket.over = True

    # -- for those who compare calls
    def entries(self) -> list[Entry]:
        """The recorded paths, in the order in which they are tried."""
        front = self._front
        return sorted(self._entries, key=lambda entry: entry is not front)

    def serve(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call, whoever asks, or UNSERVED."""
        result = self._paths[0](args, kwargs)
        return result if result.__class__ is not Exit else self._go_on(args, kwargs, result.number)

    def recorded(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], watch: Watch, known: Recording | None = None
    ) -> tuple[Recording, Any] | None:
        """An eager call, recorded and not kept, and its result; None where another thread is recording.  known: a recording as which it is
        recorded."""
        ticket = Ticket()
        earlier, follows_rows = (None, False) if known is None else (known.moved, known.follows_rows)
        try:
            if not _recording.take(ticket):
                return None
            return record(self.__wrapped__, args, kwargs, watch, earlier=earlier, follows_rows=follows_rows)
        finally:
            ticket.over = True

    # -- recording
    def _call_eagerly(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        tried: tuple[Entry, ...],
        exited: Entry | None,
        number: int,
        cost: int,
    ) -> Any:
        """None of the entries `tried` served the call.  Records it, or answers UNSERVED if there is a reason not to."""
        stats = self.stats
        stats.unserved += 1
        if tried and config.debug:
            self._write_guard(args, kwargs, tried, exited, number)
        if tried and exited is None:
            stats.guard_misses += 1
        if self._arriving is not None or (is_crowded() and self._patience() < math.inf):
            stats.early_calls += 1
            return UNSERVED
        sizes = self._symbolic.shapes(args, kwargs)
        rare = not self._fullgraph and self._is_rare(sizes)
        if rare and self._rare_calls <= _COUNTED:
            return UNSERVED
        if rare or not self._may_record(exited, number, sizes):
            if self._settling.charge(cost) and tried:
                self._close_account()
            return UNSERVED
        if exited is None and self._make_instance(args, kwargs, tried, sizes):
            stats.unserved -= 1
            return self.serve(args, kwargs)
        ticket = Ticket()
        try:
            if not _recording.take(ticket) or self._arriving is not None:
                return UNSERVED
            reason = hindrance(self.__wrapped__)
            if reason is not None and reason.code == "recursion_limit":  # of this call, and not of the next one
                self._note(reason)
                return UNSERVED
            stats.traces += 1
            if reason is not None:
                self._refuse(reason, lasting=reason.code != "profiler_active")
                return UNSERVED
            dynamic = self._symbolic.dimensions(args, kwargs)
            integers = integers_among(args, kwargs, self._symbolic.is_shallow)  # before the call changes what there is
            met = [(entry.recording.facts, entry.recording.moved) for entry in self._entries]
            try:
                recording, result = record(
                    self.__wrapped__,
                    args,
                    kwargs,
                    dynamic=dynamic,
                    earlier=earlier_values(met),
                    keeps_items=self._keeps_items,
                    follows_rows=self._follows_rows and not self._fullgraph,
                    may_give_up=not self._fullgraph,
                    is_shallow=self._symbolic.is_shallow,
                )
            except Exception as error:
                self._note(make("raised", type(error).__name__))
                if not self._fullgraph:
                    calls = self._settling.raised()
                    if calls:
                        self._advise(raising(error))
                    self._pause(calls)
                raise
            sizes = self._symbolic.met(recording, sizes, integers)  # from now on calls are told apart by more of their integers
            recording, symbolic = self._symbolic.noted(recording, sizes, dynamic, self._entries)
            self._install(recording, tried, exited, number, sizes, symbolic)
        finally:
            ticket.over = True
        return result

    def _write_guard(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], tried: tuple[Entry, ...], exited: Entry | None, number: int
    ) -> None:
        """Why none of the entries serves the call: the guard of the one that was left, or of the one in front."""
        if exited is not None:
            text = exit_text(exited.executable.graph, number)
        else:
            front = self._front if self._front in tried else None
            text = miss_text((front or tried[-1]).recording, self.__wrapped__, args, kwargs)
        unserved(self._name(), text)

    def _make_instance(self, args: tuple[Any, ...], kwargs: dict[str, Any], tried: tuple[Entry, ...], sizes: Shapes) -> bool:
        """Put a path for a call of these sizes in place, if a recording of others says what it does.  Whether there is one now."""
        ticket = Ticket()
        try:
            if not _recording.take(ticket) or self._arriving is not None:
                return False
            known = self._symbolic.instance(sizes, args, kwargs)
            if known is None or any(entry.stands_for(known[0]) for entry in tried):
                return False
            self.stats.instances += 1
            self._install(known[0], tried, None, 0, sizes, known[1], is_instance=True)
            return any(entry not in tried for entry in self._by_sizes.get(sizes, ()))
        finally:
            ticket.over = True

    def _may_record(self, exited: Entry | None, number: int, sizes: Shapes) -> bool:
        """Whether the call of these sizes that no entry has served, and that `exited` has left at exit `number`, is to be recorded."""
        if self._settling.waits() or (exited is not None and exited.stays_eager(number)):
            return False
        if not self._fullgraph and (calls := self._settling.waits_for_kin()):
            self._leave_alone(calls)
            if self._settling.is_first_to_wait():  # warned of now, since it may never be called again: nothing has been done yet
                Warned(self.__wrapped__, COMPILED_ANEW).give(self._name())
            return False
        if self._has_room(sizes):
            return True
        if self._fullgraph:
            self._refuse(make("too_many_paths", f"{self._name()} has {len(self._entries)} recorded paths"))
        if not self._advice.is_noted and self._settling.unrecorded_calls >= _PATIENT:
            self._advise(too_many(len(self._entries), self._partings.foremost()))
        if exited is not None and not exited.lost[0]:  # all entries were asked
            exited.lost[1] = max(FIRST_WAIT, min(2 * exited.lost[1], FIRST_WAIT << 10))
        return False

    def _pause(self, calls: int) -> None:
        """So many calls are not recorded: where there are no entries nothing else could be done with them."""
        if calls and not self._entries:
            self._leave_alone(calls)
            self._settling.waited()

    def _is_rare(self, sizes: Shapes) -> bool:
        """Whether there are many paths, and it is too early for one for these sizes."""
        if len(self._entries) < _MANY or sizes in self._by_sizes or self._is_full(sizes) or self._pays_at_once(sizes):
            return False
        if len(self._came) >= _COUNTED:
            self._came.clear()
        self._rare_calls += 1
        self._came[sizes] = self._came.get(sizes, 0) + 1
        return self._came[sizes] < self._often

    def _pays_at_once(self, sizes: Shapes) -> bool:
        """Whether one call may make up for a path for these sizes: all but numbers is there, and much work."""
        front = self._front
        return front is not None and front.outweighs_another and self._symbolic.has_programs(sizes)

    def _is_full(self, sizes: Shapes | None = None) -> bool:
        """Whether there are as many paths as there may be for calls of these sizes, or of any."""
        entries, sized = len(self._entries), len(self._by_sizes)
        if sizes is None or sizes in self._by_sizes:
            return entries - sized >= config.max_entries - 1 or (sizes is None and sized >= config.max_sizes)
        return sized >= config.max_sizes or entries >= config.max_sizes + config.max_entries

    def _has_room(self, sizes: Shapes) -> bool:
        """Whether one more path may be recorded; entries that are not used make room now and then."""
        if not self._is_full(sizes):
            return True
        pays = self._pays_at_once(sizes)
        if self._settling.is_crowded(pays):
            return False
        ticket = Ticket()
        try:
            if not _recording.take(ticket):
                return False
            self._settling.looked(self._drop_unused(pays), pays)
        finally:
            ticket.over = True
        return not self._is_full(sizes)

    def _drop_unused(self, pays: bool = False) -> bool:
        """Let go of the entries that served no call since the last look.  Whether there were any.  pays: whether a path that makes up for
        itself with one call wants their room."""
        before = self._entries
        kept = tuple([entry for entry in before if entry.uses != entry.uses_seen])
        for entry in kept:
            entry.uses_seen = entry.uses
            entry.part([other for other in before if other not in kept])
            entry.lost = [0, 0]
        for entry in before:
            if entry not in kept:
                self._settling.retired(entry)
                self.stats.retire(entry.executable)
        dropped = [entry.uses for entry in before if entry not in kept]
        if not pays and len(before) > _MANY and sum(dropped) < _EARNED * len(dropped):
            self._often *= 2
        self._entries = kept
        self._settling.window = max(WINDOW, len(kept))
        sized, self._by_sizes, self._sized = self._by_sizes, {}, SizeTable()
        for sizes, entries in sized.items():
            for entry in reversed(entries):
                if entry in kept:
                    self._put_in_front_of(sizes, entry)
        self._put_in_front(self._front if self._front in kept else None)
        return len(kept) < len(before)

    def _install(
        self,
        recording: Recording,
        tried: tuple[Entry, ...],
        exited: Entry | None,
        number: int,
        sizes: Shapes,
        symbolic: SymbolicPath | None,
        is_instance: bool = False,
    ) -> None:
        """symbolic: what the recording is of with symbolic sizes.  is_instance: it was made of that, and no call recorded."""
        if recording.reason is not None:
            self._follows_rows &= recording.reason.code != "selected_rows_written"
            self._keeps_items |= recording.reason.code == "items_used"
            if recording.reason.code == "branching_loop":
                self._give_up(recording, recording.reason)
            else:
                self._refuse(recording.reason)
            return
        if self._fullgraph and recording.outside:
            self._refuse(recording.outside[0])
        entries, backend = self._entries, self._backend or config.backend
        work = begun(lambda: self._made(recording, entries, backend, sizes, symbolic), self._patience())
        is_sized = symbolic is not None and symbolic.recording.env.is_guarded
        arriving = _Arriving(work, recording, is_instance, tried, exited, number, sizes, is_sized)
        if work.behind:
            self._arriving = arriving
            self._note(make("compiling", self._name()))
        else:
            self._put_in_place(arriving)

    def _arrived(self, arriving: _Arriving) -> bool:
        """Whether what is compiled in the background is no longer: it is in place, or a reason, or lost in a fork."""
        work = arriving.work
        if not (work.finished or work.is_lost):
            begin_next()
            return False
        ticket = Ticket()
        try:
            if not _recording.take(ticket) or self._arriving is not arriving:
                return False
            self._arriving = None
            if work.finished:
                self._put_in_place(arriving)
        finally:
            ticket.over = True
        return True

    def _put_in_place(self, arriving: _Arriving) -> None:
        """The program is made, or it is known why there is none."""
        recording, exited, number = arriving.recording, arriving.exited, arriving.number
        answer = arriving.work.outcome()
        error = answer.error
        if error is not None:
            if isinstance(error, UnsupportedProgram):
                self._refuse(error.reason)
                return
            # The call itself went well, and its effects are made: the result is not given up.
            self._refuse(make("internal_error", f"{type(error).__name__}: {error}"))
            report_defect(self._name(), "compile", error)
            return
        entry, is_new = answer.value
        if not is_new:
            if entry not in arriving.tried:  # another thread recorded it meanwhile, or it was recorded for other sizes
                self._put_in_front_of(arriving.sizes, entry)
                return
            if exited is not None:
                exited.eager_exits.setdefault(number, [0, FIRST_WAIT])
            elif entry.is_unstable():
                self._refuse(make("unstable_guards", self._name()))
            return
        branch = None
        if not arriving.is_instance:
            branch = self._partings.note(self._name(), recording.facts, [entry.recording.facts for entry in self._entries])
        stats = self.stats
        served = sum(other.executable.counter[0] for other in self._entries)
        self._settling.recorded(entry, served, arriving.is_instance)
        stats.executables = [*stats.executables, entry.executable]
        self._entries = (*self._entries, entry)
        self._settling.window = max(WINDOW, len(self._entries))
        if exited is not None:
            exited.bridges[number] = entry
            self._by_sizes[arriving.sizes] = (*self._by_sizes.get(arriving.sizes, ()), entry)
        else:
            if self._front is not None:
                self._front.bridges[0] = entry
            self._put_in_front_of(arriving.sizes, entry)
            self._put_in_front(entry)
        entry.sizes, entry.is_sized = arriving.sizes, arriving.is_sized
        self._came.pop(entry.sizes, None)
        self._rare_calls = 0
        if len(self._entries) == _MANY and len(self._by_sizes) > 1:
            self._note(make("many_sizes", f"{self._name()} has recorded paths for {len(self._by_sizes)} sizes of its arguments"))
        if self._has_barren_loop(branch):
            return
        if self._settling.gives_up:
            parting = self._partings.foremost() or self._partings.latest
            self._advise(again_and_again(stats, parting), "" if parting is None else parting.where)
        if self._is_full():
            self._note(make("too_many_paths", f"{self._name()} has {len(self._entries)} recorded paths"))

    def _has_barren_loop(self, parting: Parting | None) -> bool:
        """A path was recorded, which parts from others at this branch, if at one: whether the steps of a loop go so many ways that it has
        been left to Python, and the function is in pieces from now on."""
        if not self._may_be_cut or self._fullgraph:
            return False
        branches = [branch for entry in self._entries for branch in entry.recording.branches]
        blamed = [x for x in branches if parting is not None and x.where == parting.where and x.runs >= _STEPS]
        if parting is not None and blamed:
            others = [x for x in branches if x.alternates and x.runs >= _STEPS]
            if self._take_to_pieces(parting, [*blamed, *others]):
                return True
            if (worst := next((x for x in blamed if x.alternates), None)) is not None:
                self._settling.discourage()
                self._note(make("branching_loop", worst.text(), worst.where))
            return False
        partings = self._partings.of_branches()
        if sum(x.count for x in partings) < _PARTED or not self._settling.is_wasteful():
            return False
        known = {branch.where: branch for branch in branches}
        return self._take_to_pieces(partings[0], [known.get(x.where, Branch.at(x.where)) for x in partings])

    def _give_up(self, recording: Recording, reason: Reason) -> None:
        """A recording has ended in a loop whose steps go different ways: the function is taken to pieces, or left alone."""
        blamed = [x for x in recording.branches if x.where == reason.where or (x.alternates and x.runs >= _STEPS)]
        parting = Parting("exit", "a value", reason.where, blamed[0].values if blamed else [])
        if not blamed or not self._may_be_cut or not self._take_to_pieces(parting, blamed):
            self._settling.discourage()
            self._refuse(reason)

    def _take_to_pieces(self, parting: Parting, branches: Sequence[Branch]) -> bool:
        """Have the steps of the loops around branches compiled, and nothing else.  Whether they are from now on.  parting: the branch at
        fault."""
        self._may_be_cut = False
        why = f"{parting.name}{parting.place()} changes ({parting.some()})"
        try:
            pieces = in_pieces(self.__wrapped__, branches, why, self._piece)
        except Exception as error:  # the call itself went well
            report_defect(self._name(), "take to pieces", error)
            return False
        if pieces is None:
            return False
        for entry in self._entries:
            self._settling.retired(entry)
            self.stats.retire(entry.executable)
        self._pieces, self._entries, self._by_sizes, self._sized = pieces, (), {}, SizeTable()
        self._put_in_front(None)
        return True

    def _piece(self, function: Any) -> CompiledFunction[..., Any]:
        made = CompiledFunction(function)
        made._backend, made._patience, made._symbolic = self._backend, self._patience, SymbolicPaths(self._symbolic.dynamic, True)
        return made

    def _made(
        self, recording: Recording, entries: tuple[Entry, ...], backend: str, sizes: Shapes, symbolic: SymbolicPath | None
    ) -> tuple[Entry, bool]:
        """The entry among `entries` that stands for a recording, or a new one; and whether it is new.  Raises UnsupportedProgram."""
        for entry in entries:
            if entry.stands_for(recording):
                return entry, False
        log = DebugLog(self._name()) if config.debug else None
        executable = None
        if symbolic is not None and log is None and backend == "llvm":
            executable = symbolic.executable(
                recording, sizes, lambda general: Executable(self._name(), general, backend, self._patience, None, self._family)
            )
        if executable is None:
            executable = Executable(self._name(), recording, backend, self._patience, log, self._family)
        return Entry(recording, executable, log, self._promote), True

    def _refuse(self, reason: Reason, lasting: bool = True) -> None:
        self._note(reason)
        if not self._fullgraph:
            calls = self._settling.failed(lasting)
            if calls and reason.code != "internal_error":  # which is warned of elsewhere
                which = " in calls that none of its recorded paths serves" if self._entries else ""
                self._advise(f"runs eagerly{which}: {sentence(reason)}", reason.where)
            self._pause(calls)
        if self._fullgraph and reason.code not in _PASSING:
            raise FullGraphError(f"{self._name()}: compiled with fullgraph=True, and this call is not one program: {reason}")

    def _advise(self, text: str, where: str = "") -> None:
        """The next call warns of this before anything of it is done, if nothing was warned of before."""
        self._advice.note(text, where)
        if self._advice.is_due:
            self._put_in_front(self._front)

    def _warn_first(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Stands for the entry in front when there is something to warn of."""
        calls, self._resting = self._resting, 0
        warning = self._advice.take_due()
        self._put_in_front(self._front)
        if calls:
            self._leave_alone(calls)
        if warning is not None and not self._advice.postpones(warning):
            warning.give(self._name())
        return self._paths[0](args, kwargs)

    def _note(self, reason: Reason) -> None:
        if len(self._reasons) < 64:
            self._reasons[reason] = self._reasons.get(reason, 0) + 1
        eager_reason(self._name(), reason)

    def _name(self) -> str:
        return getattr(self.__wrapped__, "__qualname__", type(self.__wrapped__).__name__)

    # -- what a user may ask
    @property
    def reasons(self) -> dict[Reason, int]:
        """Why calls ran eagerly, and how often a recording ended so."""
        self._look()
        return dict(self._reasons)

    def explain(self, verbose: bool = False) -> str:
        """What happened to the calls of this function, in text: a sentence, then a screen of counts, reasons and paths.  verbose: all of
        them, with guards, exits, programs and passes."""
        self._look()
        parting, compiling = self._partings.foremost(), self._arriving is not None
        symbolic = self._symbolic.describe()
        told = explain_function if verbose else summary
        return told(
            self._name(), self.stats, self._entries, self._reasons, parting, self._is_full(), compiling, symbolic, self._pieces
        )

    def _look(self) -> None:
        """What was compiled in the background is put in place, for who asks about it."""
        if self._arriving is not None:
            with suppress(FullGraphError):  # it is among the reasons
                self._arrived(self._arriving)

    def graph(self, index: int = -1) -> str:
        """The optimised graph of a recorded path (the latest by default) as Python that runs.  Raises RuntimeError if there is none."""
        return graph_text(self._entry(index).executable)

    def source(self, index: int = -1) -> str:
        """The programs of a recorded path as a Python module that runs with NumPy and Numba alone: `run`, and `backward0`, `backward1`
        ... made so far.  Operations that NumPy alone does not compute raise in it.  Raises RuntimeError if there is no path."""
        return source_text(self._entry(index).executable)

    def warm_up(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """A call like any other, with its effects and its result, which waits for all programs: that of its path, if it had to be recorded
        or is compiled in the background already, and for each recorded path with results that require grad the backward program for all of
        them, and for each alone.  Nothing is done by these.

        Raises what the call raises, and what compiling a backward program raises.  What cannot be compiled runs eagerly, as in any call."""
        patience, reason = self._patience.reasons, object()
        try:
            patience.append(reason)
            arriving = self._arriving
            if arriving is not None:
                arriving.work.wait_until(math.inf)
                self._arrived(arriving)
            result = self(*args, **kwargs)
            parts = [] if self._pieces is None else self._pieces.parts
            for entry in (*self._entries, *[entry for part in parts for entry in part._entries]):
                entry.executable.warm_up()
        finally:
            if reason in patience:
                patience.remove(reason)
        return result

    def clear(self) -> None:
        """Forget all recorded paths and reasons; statistics start again."""
        self._arriving, self._is_outdated, self._resting = None, False, 0
        self._advice.clear()
        self._untranslated.clear()
        self._entries = ()
        self._by_sizes, self._sized = {}, SizeTable()
        self._came.clear()
        self._often, self._rare_calls = _OFTEN, 0
        self._make_whole()
        self._reasons = {}
        self._family = Family()
        self._symbolic = SymbolicPaths(self._symbolic.dynamic, self._symbolic.is_shallow)
        self._settling.clear()
        self.stats.reset()

    def _entry(self, index: int) -> Entry:
        self._look()
        entries = self._entries
        if not entries:
            own = "it was not called yet" if self._pieces is None else "it runs in pieces, which explain() shows"
            why = "; ".join(map(str, self._reasons)) or own
            raise RuntimeError(f"{self._name()}: nothing was compiled: {why}")
        return entries[index]

    # -- standing in for the function
    @overload
    def __get__(self, instance: None, owner: type | None = None) -> CompiledFunction[P, R]: ...
    @overload
    def __get__(  # a bound method, which hands on what is asked of its function
        self: CompiledFunction[Concatenate[Any, Q], R], instance: object, owner: type | None = None
    ) -> CompiledFunction[Q, R]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """For `isinstance`: a compiled Module, or other object, stands where one is asked for."""
        function = self.__dict__.get("__wrapped__")
        return type(self) if function is None or isinstance(function, _FUNCTIONS) else function.__class__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "__wrapped__" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)

    def __reduce__(self) -> Any:
        """Copies and pickles are of the function; what was recorded is of this process.  A decorated function is found by its name, unless
        the pickler takes functions of its module by value: then their source goes along."""
        function = self.__wrapped__
        module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
        found: Any = sys.modules.get(module) if isinstance(module, str) else None
        for part in name.split(".") if isinstance(name, str) else ():
            found = getattr(found, part, None)
        modules = modules_by_value()
        if found is self and module not in modules:
            return name
        wait = compile in self._patience.reasons
        options = {"fullgraph": self._fullgraph, "dynamic": self._symbolic.dynamic, "backend": self._backend, "wait": wait}
        return _restored, (function, options, sources_reached(function, modules))

    def __repr__(self) -> str:
        return f"<compiled {self._name()}: {self.stats}>"


class FullGraphError(RuntimeError):
    """A function compiled with fullgraph=True made a call that cannot be replayed; the message says why."""


_MODES: Final = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


@overload
def compile(
    function: Callable[P, R], /, *, fullgraph: bool = ..., dynamic: bool | None = ..., backend: str | None = ..., mode: str | None = ...,
    options: dict[str, Any] | None = ..., disable: bool = ..., wait: bool = ..., source: str | None = ...,
) -> CompiledFunction[P, R]: ...  # fmt: skip
@overload
def compile(
    function: None = None, /, *, fullgraph: bool = ..., dynamic: bool | None = ..., backend: str | None = ..., mode: str | None = ...,
    options: dict[str, Any] | None = ..., disable: bool = ..., wait: bool = ..., source: str | None = ...,
) -> Callable[[Callable[P, R]], CompiledFunction[P, R]]: ...  # fmt: skip
def compile(
    function: Any = None, /, *, fullgraph: bool = False, dynamic: bool | None = None, backend: str | None = None,
    mode: str | None = None, options: dict[str, Any] | None = None, disable: bool = False, wait: bool = False,
    source: str | None = None,
) -> Any:  # fmt: skip
    """Compile a function, a method (in its class body), or a Module (any callable object).

    The first call of each kind runs eagerly and is recorded; later calls for which its guards hold run as machine code, with the same
    results (docs/equality.md).  Whatever cannot be recorded runs eagerly, and `explain()` says why.

    A call waits for its program for a second at most (`config.compile_wait`); then this is compiled in the background while calls run
    eagerly.

    fullgraph: a call that is not one program raises FullGraphError, with the reason and the line: one that cannot be replayed, or in which
    something is done beside the program (print), after it was made; one for which there is no room among the recorded paths, before.
    Operations are in the program wherever they are computed, and so are numbers that leave it (`.item()`), and stores.
    dynamic: whether sizes of tensors among the arguments are symbolic: all from the first call on (True), none (False), or those of which
    there was a second one (None).  It decides what is recorded again, never what a call gives.
    mode, options: accepted, as in PyTorch; they change nothing.
    backend: "llvm", "numba", "reference" or "interpret"; PyTorch's "eager" means the last, its "inductor" what is configured.
    disable: the function itself is returned.
    wait: calls wait for their programs, forward and backward, however long it takes.
    source: the text in which the definition stands, for functions that exec() or a pipe has defined: Python does not keep it.  Other
    functions of that text are found there, too.

    Raises TypeError for what cannot be called, ValueError for an unknown backend or a source without the definition that runs, RuntimeError
    for an unknown mode."""
    if mode is not None and mode not in _MODES:
        raise RuntimeError(f"compile(): mode must be one of {', '.join(_MODES)}, got {mode!r}")
    chosen = backend_named(backend)
    if function is None:
        return functools.partial(
            compile, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, disable=disable, wait=wait,
            source=source,
        )  # fmt: skip
    if not callable(function):
        raise TypeError(f"compile(): expected a function or a callable object, got {type(function).__name__}")
    if source is not None:
        use_source(function, source)
    if disable or isinstance(function, CompiledFunction):
        return function
    compiled = CompiledFunction(function)
    compiled._fullgraph, compiled._backend, compiled._symbolic = bool(fullgraph), chosen, SymbolicPaths(dynamic)
    if wait:
        compiled._patience.reasons.append(compile)
    return compiled


def _restored(function: Any, options: dict[str, Any], sources: tuple[str, ...]) -> Any:
    """A compiled function, from what was pickled of it."""
    for text in sources:
        give_source(text)
    return compile(function, **options)


def compiled_functions() -> list[CompiledFunction[..., Any]]:
    """Those that there are in the process, those of pieces included."""
    return _compiled.keys()


declare_inlined(CompiledFunction)
installed.append(compile)
