"""The policy of tiers: when calls are recorded, run eagerly, rest, or run in pieces, and when the user is warned.

The tiers of a call are the function itself, a recorded path (machine code whose guards are Python at first; recorded_path.py counts its
calls and has it promoted), and the function in pieces.

* No function is slower than eager for long: accounts.py holds what paths gain against what they cost, and where that is a loss, or
  nothing can be recorded, the function rests: calls go to the function itself for a while, longer each time.
* A path that has been recorded is never recorded again.  Where eager takes a path that an entry already stands for (a predicate so close
  to its threshold that two fusions round it differently), that exit is recorded after more and more calls only (Entry.stays_eager).
* Where there is no room for another path, unused ones are dropped when as many eager calls have passed as `FIRST_WAIT` for each of
  `max_entries`; then twice as many have to pass.
* Paths for other sizes do not stand in a call's way: its own is looked up.  A function with more than `MANY_PATHS` paths records a new
  size when it was called with it `_CALLS_OF_NEW_SIZE` times: sizes that occur once, as those of a sequence that grows, would never earn a
  recording.  Where such paths are dropped before they have served `_CALLS_TO_EARN` calls each, twice as many calls are needed from then on.
* A function whose loops take different ways in each step has too many paths.  It runs in pieces: it is Python again, and the steps of its
  loops are compiled functions (pieces.py).  That is decided as soon as a recording has stopped since it showed this itself
  (capture/branches.py), or two recordings have parted at a branch that runs in many steps.  Of few steps all paths may be worth having,
  so these are recorded until too few of them have earned what they cost.

It must not know how a call is recorded or compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from tracejit.capture.branches import Branch
from tracejit.capture.reasons import Reason, make
from tracejit.capture.recording.entry import MISS, Recording
from tracejit.compiled.accounts import WINDOW, Accounts
from tracejit.compiled.diagnostics import Diagnostics
from tracejit.compiled.dispatch import SERVE
from tracejit.compiled.path_table import MANY_PATHS, PathTable
from tracejit.compiled.pieces import compile_in_pieces
from tracejit.compiled.recorded_path import FIRST_WAIT, Entry
from tracejit.core.locks import Ticket, Turn
from tracejit.cpython.dispatcher import UNSERVED
from tracejit.cpython.size_table import Shapes
from tracejit.report.debug import left_alone, report_defect
from tracejit.report.divergences import Divergence
from tracejit.report.performance import COMPILED_ANEW, Warned, again_and_again, not_worth_it, raising, too_many
from tracejit.report.summary import sentence

__all__ = ["FullGraphError", "TierPolicy", "recording_turn"]

recording_turn = Turn()
"""Of the thread that records, or changes what is recorded, in the whole process: others run eagerly meanwhile."""

_PARTINGS_TO_SPLIT: Final = 6  # recordings that part at branches before a loop is blamed
_STEPS_TO_SPLIT: Final = 16  # runs of the branch at which recordings part, of a loop that is blamed at once
_CALLS_OF_NEW_SIZE: Final = 4
_CALLS_BEFORE_WARNING: Final = 12  # that run eagerly
_CALLS_TO_EARN: Final = 64  # that a path should serve where there are many
_MOST_SIZES: Final = 4096  # that are counted
_PASSING: Final = ("raised", "items_used")  # reasons that say nothing of the next recording of a call like this


class FullGraphError(RuntimeError):
    """A function compiled with fullgraph=True made a call that cannot be replayed; the message says why."""


class TierPolicy:
    """What one compiled function does with its calls, by its accounts."""

    __slots__ = (
        "_calls_of_new_size", "_compile_piece", "_deferred_calls", "_diagnostics", "_function", "_is_fullgraph", "_may_split",
        "_new_sizes", "_rest_after_warning", "_table", "accounts",
    )  # fmt: skip

    def __init__(
        self,
        function: Any,
        is_fullgraph: bool,
        accounts: Accounts,
        table: PathTable,
        diagnostics: Diagnostics,
        compile_piece: Callable[[Any], Any],
    ) -> None:
        """is_fullgraph: whether a call that is not one program is an error.  compile_piece: makes a step of a loop a compiled function."""
        self.accounts = accounts
        self._function, self._is_fullgraph, self._compile_piece = function, is_fullgraph, compile_piece
        self._table, self._diagnostics = table, diagnostics
        self._new_sizes: dict[Shapes, int] = {}
        self._reset()

    def _reset(self) -> None:
        self._rest_after_warning = 0  # calls
        self._new_sizes.clear()  # sizes without a path of a function with many -> calls with them
        self._calls_of_new_size = _CALLS_OF_NEW_SIZE  # before such a size is recorded
        self._deferred_calls = 0  # with such sizes since the last path: so many are an investment, beyond them they cost
        self._may_split = True  # into pieces

    def clear(self) -> None:
        """As if the function had not been called yet."""
        self._reset()
        self.accounts.clear()

    # -- calls that rest
    def rest(self, calls: int) -> None:
        """So many calls go to the function itself; where there is something to warn of, after some of them."""
        if self._diagnostics.advice.is_due:
            first = min(calls, _CALLS_BEFORE_WARNING)
            self._rest_after_warning, calls = calls - first, first
        left_alone(self._diagnostics.name, calls)
        self.accounts.rest(calls)
        self._table.rest()

    def serve_resting(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Serves a call in the state RESTING, where no machine code has counted it down."""
        if self.accounts.take_resting_call():
            return UNSERVED
        table = self._table
        table.set_first(table.first)
        return table.slots[SERVE](args, kwargs)

    def _rest_for_failure(self, calls: int) -> None:
        """So many calls are not recorded: without entries nothing else could be done with them."""
        if calls and not self._table.entries:
            self.rest(calls)
            self.accounts.end_wait()

    # -- the warning
    def advise(self, text: str, where: str = "") -> None:
        """The next call warns of this before anything of it is done, if nothing was warned of before."""
        advice = self._diagnostics.advice
        advice.note(text, where)
        if advice.is_due:
            self._table.set_first(self._table.first)

    def serve_warned(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Serves a call in the state WARNING."""
        advice, table = self._diagnostics.advice, self._table
        calls, self._rest_after_warning = self._rest_after_warning, 0
        warning = advice.take_due()
        table.set_first(table.first)
        if calls:
            self.rest(calls)
        if warning is not None and not advice.postpones(warning):
            warning.give(self._diagnostics.name)
        return table.slots[SERVE](args, kwargs)

    # -- windows
    def close_window(self) -> None:
        """The first entry did not serve as many calls as a window has: drop paths, or rest, if they do not pay."""
        ticket = Ticket()
        try:
            if not recording_turn.take(ticket):
                return
            accounts, table = self.accounts, self._table
            lost = accounts.close_window(table.entries)
            if lost and table.is_full() and accounts.may_drop() and self.drop_unused():
                accounts.note_drop()
            for entry in table.entries:
                entry.uses_seen = entry.uses
            if lost and not self._is_fullgraph and (calls := accounts.rest_after_loss()):
                self.advise(not_worth_it(len(table.entries), self._diagnostics.divergences.foremost()))
                self.rest(calls)
        finally:
            ticket.over = True

    def drop_unused(self, pays: bool = False) -> bool:
        """Drop the entries that served no call since this was last done.  Whether there were any.  pays: whether a path that makes up for
        itself with one call wants their room."""
        table, before = self._table, len(self._table.entries)
        dropped = table.drop_unused()
        self._retire(dropped)
        if not pays and before > MANY_PATHS and sum([entry.uses for entry in dropped]) < _CALLS_TO_EARN * len(dropped):
            self._calls_of_new_size *= 2
        self.accounts.window = max(WINDOW, len(table.entries))
        return bool(dropped)

    def _retire(self, dropped: Sequence[Entry]) -> None:
        for entry in dropped:
            self.accounts.retire(entry)
            self._diagnostics.stats.retire(entry.executable)

    # -- whether to record
    def defers(self, sizes: Shapes) -> bool:
        """Whether a call of these sizes is not to be recorded, since there are many paths and too few calls had these sizes.  Counts it."""
        table = self._table
        if self._is_fullgraph or len(table.entries) < MANY_PATHS or sizes in table.by_sizes:
            return False
        if table.is_full(sizes) or self._pays_at_once(sizes):
            return False
        if len(self._new_sizes) >= _MOST_SIZES:
            self._new_sizes.clear()
        self._deferred_calls += 1
        self._new_sizes[sizes] = self._new_sizes.get(sizes, 0) + 1
        return self._new_sizes[sizes] < self._calls_of_new_size

    @property
    def defers_for_free(self) -> bool:
        """Whether deferred calls are not charged: so many are an investment."""
        return self._deferred_calls <= _MOST_SIZES

    def may_record(self, exited: Entry | None, number: int, sizes: Shapes) -> bool:
        """Whether the call of these sizes that no entry has served, and that `exited` has left at exit `number`, is to be recorded."""
        table, name = self._table, self._diagnostics.name
        if self.accounts.must_wait() or (exited is not None and exited.stays_eager(number)):
            return False
        if not self._is_fullgraph and (calls := self.accounts.wait_for_code()):
            self.rest(calls)
            if self.accounts.is_first_wait_for_code():
                # Warned of now, since it may never be called again: nothing has been done yet.
                Warned(self._function, COMPILED_ANEW).give(name)
            return False
        if self._has_room(sizes):
            return True
        if self._is_fullgraph:
            self.reject(make("too_many_paths", f"{name} has {len(table.entries)} recorded paths"))
        if not self._diagnostics.advice.is_noted and self.accounts.unrecorded_calls >= _CALLS_BEFORE_WARNING:
            self.advise(too_many(len(table.entries), self._diagnostics.divergences.foremost()))
        if exited is not None:
            exited.note_vain_search()
        return False

    def _has_room(self, sizes: Shapes) -> bool:
        """Whether there is room for a path for these sizes.  Drops unused entries when it is time to."""
        table = self._table
        if not table.is_full(sizes):
            return True
        pays = self._pays_at_once(sizes)
        if self.accounts.is_search_early(pays):
            return False
        ticket = Ticket()
        try:
            if not recording_turn.take(ticket):
                return False
            self.accounts.note_search(self.drop_unused(pays), pays)
        finally:
            ticket.over = True
        return not table.is_full(sizes)

    def _pays_at_once(self, sizes: Shapes) -> bool:
        """Whether one call may make up for a path for these sizes: its programs are compiled already, and eager mode has much to do."""
        first = self._table.first
        return first is not None and first.pays_for_variant and self._table.symbolic.has_programs(sizes)

    # -- what a recording has led to
    def reject(self, reason: Reason, lasting: bool = True) -> None:
        """There is no path for a call, for this reason; lasting: because of the program, not of what is around it.  Raises FullGraphError
        where that is an error."""
        self._diagnostics.note(reason)
        if not self._is_fullgraph:
            calls = self.accounts.note_failure(lasting)
            if calls and reason.code not in ("internal_error", "recording_defect"):  # which are warned of elsewhere
                which = " in calls that none of its recorded paths serves" if self._table.entries else ""
                self.advise(f"runs eagerly{which}: {sentence(reason)}", reason.where)
            self._rest_for_failure(calls)
        elif reason.code not in _PASSING:
            raise FullGraphError(
                f"{self._diagnostics.name}: compiled with fullgraph=True, and this call is not one program: {reason}"
            )

    def note_error(self, error: Exception) -> None:
        """A call that was recorded has raised an error."""
        self._diagnostics.note(make("raised", type(error).__name__))
        if not self._is_fullgraph:
            calls = self.accounts.note_error()
            if calls:
                self.advise(raising(error))
            self._rest_for_failure(calls)

    def note_path(self, entry: Entry, recording: Recording, is_instance: bool) -> Divergence | None:
        """A path was recorded, or is an instance of another one, and is not in the table yet.  The branch at which it parts from others,
        if it does at one."""
        entries, diagnostics = self._table.entries, self._diagnostics
        parting = None
        if not is_instance:
            parting = diagnostics.divergences.note(
                diagnostics.name, recording.facts, [other.recording.facts for other in entries]
            )
        self.accounts.note_recording(entry, sum([other.executable.counter[0] for other in entries]), is_instance)
        return parting

    def review(self, entry: Entry, parting: Divergence | None) -> None:
        """An entry is in the table that parts from others at this branch: run in pieces, warn, or note that the table is full."""
        table, diagnostics = self._table, self._diagnostics
        entries = len(table.entries)
        self.accounts.window = max(WINDOW, entries)
        self._new_sizes.pop(entry.sizes, None)
        self._deferred_calls = 0
        if entries == MANY_PATHS and len(table.by_sizes) > 1:
            text = f"{diagnostics.name} has recorded paths for {len(table.by_sizes)} sizes of its arguments"
            diagnostics.note(make("many_sizes", text))
        if self._split_at(parting):
            return
        if self.accounts.is_discouraged:
            parting = diagnostics.divergences.foremost() or diagnostics.divergences.latest
            self.advise(again_and_again(diagnostics.stats, parting), "" if parting is None else parting.where)
        if table.is_full():
            diagnostics.note(make("too_many_paths", f"{diagnostics.name} has {entries} recorded paths"))

    # -- pieces
    def _split_at(self, parting: Divergence | None) -> bool:
        """Run in pieces where the steps of a loop take too many ways.  Whether that is so from now on."""
        if not self._may_split or self._is_fullgraph:
            return False
        branches = [branch for entry in self._table.entries for branch in entry.recording.branches]
        blamed = [x for x in branches if parting is not None and x.where == parting.where and x.runs >= _STEPS_TO_SPLIT]
        if parting is not None and blamed:
            others = [x for x in branches if x.alternates and x.runs >= _STEPS_TO_SPLIT]
            if self._split(parting, [*blamed, *others]):
                return True
            if (worst := next((x for x in blamed if x.alternates), None)) is not None:
                self.accounts.discourage()
                self._diagnostics.note(make("branching_loop", worst.text(), worst.where))
            return False
        partings = self._diagnostics.divergences.of_branches()
        if sum(x.count for x in partings) < _PARTINGS_TO_SPLIT or not self.accounts.is_wasteful():
            return False
        known = {branch.where: branch for branch in branches}
        return self._split(partings[0], [known.get(x.where, Branch.at(x.where)) for x in partings])

    def split_or_reject(self, recording: Recording, reason: Reason) -> None:
        """A recording has stopped in a loop whose steps take different ways: run in pieces, or record less."""
        blamed = [x for x in recording.branches if x.where == reason.where or (x.alternates and x.runs >= _STEPS_TO_SPLIT)]
        parting = Divergence("exit", "a value", reason.where, blamed[0].values if blamed else [])
        if not blamed or not self._may_split or not self._split(parting, blamed):
            self.accounts.discourage()
            self.reject(reason)

    def _split(self, parting: Divergence, branches: Sequence[Branch]) -> bool:
        """Have the steps of the loops around branches compiled, and nothing else.  Whether they are from now on.  parting: the branch at
        fault."""
        self._may_split = False
        why = f"{parting.name}{parting.place()} changes ({parting.some()})"
        try:
            pieces = compile_in_pieces(self._function, branches, why, self._compile_piece)
        except Exception as error:  # the call itself went well
            report_defect(self._diagnostics.name, "take to pieces", error)
            return False
        if pieces is None:
            return False
        self._retire(self._table.enter_pieces(pieces))
        return True

    def serve_in_pieces(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Serves a call in the state IN_PIECES."""
        pieces = self._table.pieces
        if pieces is None or not pieces.are_current():
            self._may_split = True
            self._diagnostics.divergences.clear()
            self._table.leave_pieces()
            return MISS
        self._diagnostics.stats.piecewise_calls += 1
        result = pieces.function(*args, **kwargs)
        called = [part for part in pieces.parts if part.stats.calls]
        if called and all(part._policy.accounts.is_resting for part in called):  # to call them costs more than they save
            self.rest(FIRST_WAIT)
        return result
