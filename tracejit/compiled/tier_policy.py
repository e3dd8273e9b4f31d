"""The policy of tiers: decides when calls are recorded, run eagerly, rest or run in pieces, and when the user is warned.

The tiers of a call are the function itself, a recorded path (whose path is Python at first, machine code after
`config.hot_calls` calls), and the function in pieces.

* No function is slower than eager mode for long.  accounts.py compares what paths gain with what they cost.  If that is a loss,
  or nothing can be recorded, the function rests: calls go to the function itself for a while, longer each time.
* A recorded path is never recorded again.  Eager mode may take a path that a path already has, after a call has left this path
  by an exit (a comparison so close to its threshold that two fusions round it differently).  Then calls that leave by this exit
  are recorded again only after more and more calls (RecordedPath.stays_eager).
* If there is no room for another path, unused ones are dropped after `FIRST_WAIT * max_entries` eager calls; the next time after
  twice as many.
* Paths for different sizes do not slow each other down, since a call looks up the paths for its own sizes.  A function with more
  than `MANY_PATHS` paths records a new size only after `_CALLS_OF_NEW_SIZE` calls with it: sizes that occur once, like those of a
  growing sequence, would never earn a recording.  If such paths are dropped before they have served `_CALLS_TO_EARN` calls each,
  twice as many calls are needed from then on.
* A function with a loop whose steps branch differently has too many paths.  It is recorded again with the loop outlined, as one
  node (capture/branching_loops.py).  If that is not possible it runs in pieces: the function is Python again, and the bodies of
  its loops are compiled functions (pieces.py).  That is decided as soon as a recording has stopped for this reason
  (capture/branches.py), or when two recordings differ at a branch that runs in many steps.  A loop that can be outlined is so after
  few steps, too: when two recordings differ at a branch in it, and before its first recording is compiled if values have ended it.
  Where such a loop cannot be a node, and the steps are few, all paths may be worth recording; they are recorded until too few of
  them have earned what they cost.
* A function that calls itself has a path for each shape of the recursion.  It runs in pieces between recursive calls as soon as
  recordings of `_SHAPES_TO_SPLIT` different shapes owe much, or one has stopped and has branches in the recursion.  A few small
  shapes have a path each.

It must not know how a call is recorded or compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any, Final

from tracejit.capture.branches import Branch, Recursion
from tracejit.capture.reasons import Reason, make
from tracejit.capture.recording.entry import MISS, Recording
from tracejit.capture.syntax.outlined_loops import function_of_step, is_step, may_be_outlined
from tracejit.capture.syntax.pieces import Position
from tracejit.compiled.accounts import WINDOW, Accounts
from tracejit.compiled.diagnostics import Diagnostics
from tracejit.compiled.dispatch import OWNER, SERVE
from tracejit.compiled.path_table import MANY_PATHS, PathTable
from tracejit.compiled.pieces import Pieces, compile_between_calls, compile_in_pieces
from tracejit.compiled.recorded_path import FIRST_WAIT, RecordedPath
from tracejit.core.locks import Ticket, Turn
from tracejit.cpython.dispatcher import UNSERVED
from tracejit.cpython.size_table import Reach, Shapes
from tracejit.report.debug import log_resting, report_defect
from tracejit.report.divergences import Divergence
from tracejit.report.performance import COMPILED_ANEW, Warned, again_and_again, not_worth_it, raising, too_many
from tracejit.report.phrases import sentence

__all__ = ["FullGraphError", "TierPolicy", "recording_turn"]

recording_turn = Turn()
"""Held by the thread that records or changes recorded paths, one in the process; others run eagerly meanwhile."""

_DIVERGENCES_TO_SPLIT: Final = 6  # divergences at branches before a function is split into pieces
_STEPS_TO_SPLIT: Final = 16  # with so many runs of a branch in a loop, one divergence there is enough
_STEPS_TO_OUTLINE: Final = 4  # the same for a loop that can be outlined
_SHAPES_TO_SPLIT: Final = 3  # of a recursion
_CALLS_OF_NEW_SIZE: Final = 4
_CALLS_BEFORE_WARNING: Final = 12  # eager calls
_CALLS_TO_EARN: Final = 64  # calls that a path should serve if there are many paths
_CALLS_TO_REVIEW: Final = 8  # calls in pieces
_MOST_SIZES: Final = 4096  # sizes whose calls are counted
_PASSING: Final = ("raised",)  # reasons that do not recur in the next recording of such a call


class FullGraphError(RuntimeError):
    """A function compiled with fullgraph=True made a call that cannot be replayed; the message says why."""


class TierPolicy:
    """The decisions for the calls of one compiled function."""

    __slots__ = (
        "_calls_of_new_size", "_compile_piece", "_deferred_calls", "_diagnostics", "_function", "_has_stopped", "_is_fullgraph",
        "_is_in_vain", "_may_split", "_new_sizes", "_outlined_for", "_rest_after_warning", "_table",
        "accounts", "branching_lines", "may_outline",
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
        """is_fullgraph: whether a call that is not one program is an error.  compile_piece: compiles the body of a loop, a
        function."""
        self.accounts = accounts
        self._function, self._is_fullgraph, self._compile_piece = function, is_fullgraph, compile_piece
        self._table, self._diagnostics = table, diagnostics
        self._new_sizes: dict[Shapes, int] = {}
        self._reset()

    def _reset(self) -> None:
        self._rest_after_warning = 0  # calls for which the function rests once it has warned
        self._new_sizes.clear()  # sizes without a path, of a function with many paths -> number of calls with them
        self._calls_of_new_size = _CALLS_OF_NEW_SIZE  # calls with a new size before it is recorded
        self._deferred_calls = 0  # calls with such sizes since the last path; the first _MOST_SIZES of them are not charged
        self.branching_lines: dict[CodeType, frozenset[int]] = {}
        """The lines, by code of functions, around which loops are outlined in recordings."""
        self.may_outline = True
        """Whether recordings from now on may outline loops that branch."""
        self._has_stopped = False  # whether a recording has stopped because steps of a loop branch differently
        self._is_in_vain = False  # whether loops were outlined early, and cannot be nodes
        self._outlined_for: tuple[Divergence, Sequence[Branch]] | None = None  # what `_split` is given if that fails
        self._may_split = True  # whether the function may be split into pieces

    def clear(self) -> None:
        """Reset to the state before the first call."""
        self._reset()
        self.accounts.clear()

    # -- calls that rest
    def rest(self, calls: int) -> None:
        """Let so many calls go to the function itself.  If a warning is due, it is given after the first
        `_CALLS_BEFORE_WARNING` of them."""
        if self._diagnostics.advice.is_due:
            first = min(calls, _CALLS_BEFORE_WARNING)
            self._rest_after_warning, calls = calls - first, first
        log_resting(self._diagnostics.name, calls)
        self.accounts.rest(calls)
        self._table.rest()

    def serve_resting(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Serve a call in the state RESTING that machine code has not counted down."""
        if self.accounts.take_resting_call():
            return UNSERVED
        table = self._table
        table.set_first(table.first)
        return table.slots[SERVE](args, kwargs)

    def _rest_for_failure(self, calls: int) -> None:
        """Rest for so many calls, which are not to be recorded, if there are no paths that could serve them."""
        if calls and not self._table.paths:
            self.rest(calls)
            self.accounts.end_wait()

    # -- the warning
    def advise(self, text: str, where: str = "") -> None:
        """Have the next call give this warning before it does anything, if the function has not warned before.  where: the user's
        line."""
        advice = self._diagnostics.advice
        advice.note(text, where)
        if advice.is_due:
            self._table.set_first(self._table.first)

    def serve_warned(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Serve a call in the state WARNING."""
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
        """End a window of calls that the first path did not serve (accounts.py): drop paths, or rest, if they do not pay."""
        ticket = Ticket()
        try:
            if not recording_turn.take(ticket):
                return
            accounts, table = self.accounts, self._table
            lost = accounts.close_window(table.paths)
            if lost and table.is_full() and accounts.may_drop() and self.drop_unused():
                accounts.note_drop()
            for path in table.paths:
                path.uses_seen = path.uses
            if lost and not self._is_fullgraph and (calls := accounts.rest_after_loss()):
                self.advise(not_worth_it(len(table.paths), self._diagnostics.divergences.most_frequent()))
                self.rest(calls)
        finally:
            ticket.over = True

    def drop_unused(self, pays: bool = False) -> bool:
        """Drop the paths that have served no call since the last time; returns whether there were any.  pays: whether the room
        is needed for a path that pays with one call."""
        table, before = self._table, len(self._table.paths)
        dropped = table.drop_unused()
        self._retire(dropped)
        if not pays and before > MANY_PATHS and sum([path.uses for path in dropped]) < _CALLS_TO_EARN * len(dropped):
            self._calls_of_new_size *= 2
        self.accounts.window = max(WINDOW, len(table.paths))
        return bool(dropped)

    def drop_all(self, reach: Reach) -> None:
        """Drop all paths.  reach: what is looked at in the arguments of calls from now on."""
        dropped = self._table.paths
        self._table.clear(reach)
        self._retire(dropped)

    def _retire(self, dropped: Sequence[RecordedPath]) -> None:
        for path in dropped:
            self.accounts.retire(path)
            self._diagnostics.stats.retire(path.executable)

    # -- whether to record
    def defers(self, sizes: Shapes) -> bool:
        """Whether a call of these sizes is not recorded yet, since there are many paths and few calls had these sizes.  Counts
        the call."""
        table = self._table
        if self._is_fullgraph or len(table.paths) < MANY_PATHS or sizes in table.by_sizes:
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
        """Whether deferred calls are not charged to the accounts, since there were not too many."""
        return self._deferred_calls <= _MOST_SIZES

    def may_record(self, exited: RecordedPath | None, number: int, sizes: Shapes) -> bool:
        """Whether to record a call of these sizes that no path has served.  exited, number: the path that the call has left, if
        any, and the exit."""
        table, name = self._table, self._diagnostics.name
        if self.accounts.must_wait():
            if self.accounts.waited_calls == _CALLS_BEFORE_WARNING and self.accounts.is_discouraged:
                divergence = self.divergence
                self.advise(again_and_again(self._diagnostics.stats, divergence), "" if divergence is None else divergence.where)
            return False
        if exited is not None and exited.stays_eager(number):
            return False
        if not self._is_fullgraph and (calls := self.accounts.wait_for_code()):
            self.rest(calls)
            if self.accounts.is_first_wait_for_code():
                # Warn now, since the function may never be called again.  Nothing of the call has been done yet.
                Warned(self._function, COMPILED_ANEW).give(name)
            return False
        if self._has_room(sizes):
            return True
        if self._is_fullgraph:
            self.reject(make("too_many_paths", f"{name} has {len(table.paths)} recorded paths"))
        if not self._diagnostics.advice.is_noted and self.accounts.unrecorded_calls >= _CALLS_BEFORE_WARNING:
            self.advise(too_many(len(table.paths), self._diagnostics.divergences.most_frequent()))
        if exited is not None:
            exited.note_vain_search()
        return False

    @property
    def divergence(self) -> Divergence | None:
        """The guard to name to the user: at which most recordings differ, or, if the next one has to wait, at least the last."""
        divergences = self._diagnostics.divergences
        return divergences.most_frequent() or (divergences.latest if self.accounts.is_discouraged else None)

    def _has_room(self, sizes: Shapes) -> bool:
        """Whether there is room for a path for these sizes.  Drops unused paths if enough calls have waited for room."""
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
        """Whether a path for these sizes pays with one call: its programs are compiled already, and the eager call takes long."""
        first = self._table.first
        return first is not None and first.pays_for_variant and self._table.symbolic.has_programs(sizes)

    # -- outcomes of recordings
    def reject(self, reason: Reason, lasting: bool = True) -> None:
        """Note that a call cannot have a path, for this reason.  lasting: whether the function is the cause, and not its
        environment.  Raises FullGraphError if the function was compiled with fullgraph=True."""
        self._diagnostics.note(reason)
        if not self._is_fullgraph:
            calls = self.accounts.note_failure(lasting)
            is_reported = reason.code in ("internal_error", "recording_defect")  # by report_defect
            is_by_cutting = self.accounts.is_piece and reason.code == "outside_graph"  # the user has not parted the passes
            if calls and not is_reported and not is_by_cutting:
                which = " in calls that none of its recorded paths serves" if self._table.paths else ""
                self.advise(f"runs eagerly{which}: {sentence(reason)}", reason.where)
            self._rest_for_failure(calls)
        elif reason.code not in _PASSING:
            raise FullGraphError(
                f"{self._diagnostics.name}: compiled with fullgraph=True, and this call is not one program: {reason}"
            )

    def note_error(self, error: Exception) -> None:
        """Note that a recorded call has raised an error."""
        self._diagnostics.note(make("raised", type(error).__name__))
        if not self._is_fullgraph:
            calls = self.accounts.note_error()
            if calls:
                self.advise(raising(error))
            self._rest_for_failure(calls)

    def note_path(self, path: RecordedPath, recording: Recording, is_instance: bool) -> Divergence | None:
        """Note a new path, which is not in the table yet.  is_instance: whether it was made without a recorded call.  Returns the
        branch at which it diverges from the other paths, if there is one."""
        paths, diagnostics = self._table.paths, self._diagnostics
        divergence = None
        if not is_instance:
            divergence = diagnostics.divergences.note(
                diagnostics.name, recording.facts, [other.recording.facts for other in paths]
            )
        self.accounts.note_recording(path, sum([other.executable.counter[0] for other in paths]), is_instance)
        return divergence

    def review(self, path: RecordedPath, divergence: Divergence | None) -> None:
        """Decide what follows from a new path in the table: to run in pieces, to warn, or to note that the table is full.
        divergence: the result of `note_path`."""
        table, diagnostics = self._table, self._diagnostics
        paths = len(table.paths)
        self.accounts.window = max(WINDOW, paths)
        self._new_sizes.pop(path.sizes, None)
        self._deferred_calls = 0
        if paths == MANY_PATHS and len(table.by_sizes) > 1:
            text = f"{diagnostics.name} has recorded paths for {len(table.by_sizes)} sizes of its arguments"
            diagnostics.note(make("many_sizes", text))
        if self._outline_in_steps(path.recording.branches) or self._split_at(divergence):
            return
        if table.is_full():
            diagnostics.note(make("too_many_paths", f"{diagnostics.name} has {paths} recorded paths"))

    # -- pieces
    def _split_at(self, divergence: Divergence | None) -> bool:
        """Run in pieces if the steps of a loop, or recursive calls, take too many different paths.  Returns whether the function
        does so from now on."""
        if not self._may_split or self._is_fullgraph:
            return False
        if self._split_at_recursion(divergence):
            return True
        branches = [branch for path in self._table.paths for branch in path.recording.branches]
        blamed = [x for x in branches if divergence is not None and x.where == divergence.where and x.runs >= _STEPS_TO_SPLIT]
        if divergence is not None and blamed:
            others = [x for x in branches if x.alternates and x.runs >= _STEPS_TO_SPLIT]
            if self._split(divergence, [*blamed, *others]):
                return True
            if (worst := next((x for x in blamed if x.alternates), None)) is not None:
                self.accounts.discourage()
                self._diagnostics.note(make("branching_loop", worst.text(), worst.where))
            return False
        few = [x for x in branches if divergence is not None and x.where == divergence.where and x.runs >= _STEPS_TO_OUTLINE]
        if divergence is not None and few and self._outline(divergence, few, is_early=True):
            return True
        divergences = self._diagnostics.divergences.of_branches()
        enough = min(_DIVERGENCES_TO_SPLIT, max(3, len(self._table.paths) - 2))
        if sum(x.count for x in divergences) < enough or not self.accounts.is_wasteful():
            return False
        return self._split_at_divergences(divergences)

    def _split_at_divergences(self, divergences: Sequence[Divergence]) -> bool:
        by_line = {branch.where: branch for path in self._table.paths for branch in path.recording.branches}
        return self._split(divergences[0], [by_line.get(x.where, Branch.at(x.where)) for x in divergences])

    def outlines_instead(self, recording: Recording) -> bool:
        """Whether the next recording has loops as nodes that this one, which is not compiled yet, has as so many steps as values have
        decided: another call has another number of them."""
        if self._is_fullgraph or not self.may_outline:
            return False
        branches = [
            x
            for x in recording.branches
            if x.runs >= _STEPS_TO_OUTLINE and not x.is_fixed and (x.ends_while or x.alternations == 1) and x.is_in_loop()
            if not any(site.code is not None and is_step(site.code) for site in x.sites)
        ]
        if not branches:
            return False
        others = [x for x in recording.branches if x.alternates and x.runs >= _STEPS_TO_SPLIT and x not in branches]
        divergence = Divergence("exit", "a value", branches[0].where, branches[0].values)
        return self._outline(divergence, [*branches, *others], is_early=True)

    def split_or_reject(self, recording: Recording, reason: Reason) -> None:
        """A recording has stopped because steps of a loop branch differently: run in pieces, or record less often."""
        blamed = [x for x in recording.branches if x.where == reason.where or (x.alternates and x.runs >= _STEPS_TO_SPLIT)]
        trains = bool(blamed) and blamed[0].trains
        what = "each step of a loop takes gradients" if trains else "a value"
        divergence = Divergence("exit", what, reason.where, blamed[0].values if blamed else [])
        self._has_stopped = True
        recursion = recording.recursion
        if self._may_split and recursion.has_branches and self._split_between_calls(divergence, [recursion]):
            return
        if not blamed or not self._may_split or not self._split(divergence, blamed):
            self.accounts.discourage()
            self.reject(reason)

    def _outline(self, divergence: Divergence, branches: Sequence[Branch], is_early: bool = False) -> bool:
        """Outline the loops around `branches` in recordings from now on, so that each is one node of the program
        (capture/branching_loops.py).  is_early: whether a few steps were enough for that; if it fails, the function runs in pieces
        only where a branch was decided in many.  Returns False if nothing would change."""
        if not self.may_outline:
            return False
        before = dict(self.branching_lines)
        for branch in branches:
            for site in branch.sites:
                code = None if site.code is None else function_of_step(site.code)
                if code is not None and may_be_outlined(code, site.line, site.names):
                    self.branching_lines[code] = self.branching_lines.get(code, frozenset()) | {site.line}
        if self.branching_lines == before:
            return False
        self._outlined_for = divergence, [x for x in branches if not is_early or x.runs >= _STEPS_TO_SPLIT]
        self._retire(self._table.drop_all())
        self.accounts.forgive()
        return True

    def _outline_in_steps(self, branches: Sequence[Branch]) -> bool:
        """Outline `while` loops in steps of outlined loops, too, if values have decided how many steps they have: else each number of
        steps is a path.  Returns whether that is new."""
        whiles = [
            x for x in branches if x.ends_while and not x.is_fixed and any(site.code and is_step(site.code) for site in x.sites)
        ]
        if not whiles:
            return False
        return self._outline(Divergence("exit", "a value", whiles[0].where, whiles[0].values), whiles)

    def give_up_outlining(self, reason: Reason) -> None:
        """A recording with outlined loops has stopped because of them: record without them if their branches have come out alike so far;
        else run in pieces, or record less often if a recording without them has stopped, too."""
        self.may_outline = False
        self.branching_lines.clear()
        divergence, branches = self._outlined_for or (None, ())
        if self._may_split and divergence is not None and any(x.alternates or x.ends_while or x.trains for x in branches):
            if self._split(divergence, branches):
                self._diagnostics.note(reason)
                return
            if self._has_stopped:
                self.accounts.discourage()
        self._is_in_vain = True
        self.reject(reason)

    @property
    def gives_up_soon(self) -> bool:
        """Whether recordings are given up after few steps of a loop that branches: the next one may outline it, or it runs in pieces."""
        return self.may_outline or (self._is_in_vain and self._may_split)

    def _split(self, divergence: Divergence, branches: Sequence[Branch]) -> bool:
        """Outline the loops around `branches`, or else compile their bodies, and nothing else, from now on.  Returns False if
        neither is possible.  divergence: the branch to name to the user."""
        if self._outline(divergence, branches):
            return True
        if self.branching_lines:  # loops are nodes already, and their paths are still being found
            return False
        return self._enter(divergence, lambda why: compile_in_pieces(self._function, branches, why, self._compile_piece))

    def _split_at_recursion(self, divergence: Divergence | None) -> bool:
        """Run in pieces between recursive calls if recordings that have not paid differ in the shape of a recursion, or at a branch in
        it.  Returns whether the function does so from now on."""
        recursions = [path.recording.recursion for path in self._table.paths if path.recording.recursion.calls]
        if not recursions or not self.accounts.owes_much:
            return False
        shapes = {recursion.shape for recursion in recursions}
        blamed = [x for path in self._table.paths for x in path.recording.branches if divergence and x.where == divergence.where]
        if len(shapes) < _SHAPES_TO_SPLIT and not any(recursions[-1].is_around(x) for x in blamed):
            return False
        cause = divergence or self._diagnostics.divergences.latest
        return cause is not None and self._split_between_calls(cause, recursions)

    def _split_between_calls(self, divergence: Divergence, recursions: Sequence[Recursion]) -> bool:
        """Compile what is between the calls of recursions, and nothing else, from now on.  Returns False if that is not possible."""
        calls: dict[CodeType, set[tuple[Position, str]]] = {}
        for recursion in recursions:
            for code, sites in recursion.calls.items():
                calls.setdefault(code, set()).update(sites)
        whole = self._table.slots[OWNER]
        return self._enter(divergence, lambda why: compile_between_calls(self._function, calls, why, self._compile_piece, whole))

    def _enter(self, divergence: Divergence, make_pieces: Callable[[str], Pieces | None]) -> bool:
        """Run in pieces from now on.  make_pieces: given why, for the user.  Returns False if there are none."""
        self.may_outline, self._may_split = False, False
        try:
            changes = f" changes ({divergence.values_text()})" if divergence.values else ""
            pieces = make_pieces(f"{divergence.name}{divergence.location()}{changes}")
        except Exception as error:  # a defect, which must not reach the caller: the call itself has its result
            report_defect(self._diagnostics.name, "take to pieces", error)
            return False
        if pieces is None:
            return False
        self._retire(self._table.enter_pieces(pieces))
        self.accounts.forgive()
        return True

    def serve_in_pieces(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Serve a call in the state IN_PIECES."""
        pieces = self._table.pieces
        if pieces is None or not pieces.are_current():
            self._may_split = self.may_outline = True
            self._diagnostics.divergences.clear()
            self._table.leave_pieces()
            return MISS
        self._diagnostics.stats.piecewise_calls += 1
        result = pieces.function(*args, **kwargs)
        self._review_pieces(pieces)
        return result

    def _review_pieces(self, pieces: Pieces) -> None:
        """Leave to Python, for a while, the pieces that cost more than they save; and the function if no others are called."""
        if self._diagnostics.stats.piecewise_calls % _CALLS_TO_REVIEW == 0:
            for part in pieces.parts:
                part._policy.review_as_piece()
        at_work = [part for part in pieces.parts if not part._policy.accounts.is_resting]
        may_rest = not (at_work or pieces.calls_compiled) or len(at_work) < len(pieces.parts)
        if may_rest and not any(part.stats.calls for part in at_work):
            self.rest(FIRST_WAIT)

    def review_as_piece(self) -> None:
        """If this is a piece, and the calls since the last review have not saved what calling it costs, run in pieces, or else rest."""
        if not self.accounts.is_resting and (calls := self.accounts.review_piece(self._table.paths)):
            divergences = self._diagnostics.divergences.of_branches()
            if not (self._may_split and divergences and self._split_at_divergences(divergences)):
                self.rest(calls)
