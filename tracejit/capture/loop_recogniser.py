"""Loops of the program at recording: the steps that a node of the graph stands for are recognised, and do not run.

Steps run, and are recorded, as any other code, until two in a row have done the same (`LoopStep.is_like`): what they were given
is alike (snapshots.py), and nothing else of the recording has changed.  Then the step that follows can do nothing else: it is
given what they were given, with other tensors of the same kind, and by induction so are all others.  One `loop` node stands for
them (loop_nodes.py), and what they would have left in variables, lists and objects is put there (skipped_steps.py).  The last two
steps run again, and with them whatever comes after the loop.

A loop over the slices of a tensor, or over the numbers up to a size or down from one, may have any length: its first elements
count from the front, the last two from the end (iteration_space.py), and what was shown of one step holds for each that lies
between them in another call.  Other loops have a fixed length, and at least 11 steps.  Counters are no part of what steps are
given (loop_counters.py).  Numbers that steps change are carried in tensors (carried_numbers.py), such as `time += dt` in a loop
of any length.  A store outside, `self.h = cell(self.h, x)`, is like an assignment to a variable where each step stores in the
same places: only the last one counts, for the entry as for who looks there after the loop.  Lists that other code can reach,
`self.states.append(h)`, get rows if nothing but such calls has used them since the first step (reached_lists.py).

All steps run where one does more than compute, store, append and write to tensors of the call (calls, prints, hooks, locks), or
may tell which step it is by a number that decides, chooses or names something, and where no node can stand for steps.  Nothing of
what a recording means depends on steps that are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import CellType
from typing import TYPE_CHECKING, Any, Final

from tracejit.autograd.grad_mode import set_grad_enabled
from tracejit.capture.call_sites import user_line
from tracejit.capture.carried_numbers import CarriedNumbers
from tracejit.capture.defects import CONSUMED
from tracejit.capture.handlers.post_program import is_post_program
from tracejit.capture.handlers.stand_ins import plain
from tracejit.capture.handlers.symbols import is_symbolic
from tracejit.capture.iteration_space import (
    FIRST,
    MORE_THAN,
    FixedTripCount,
    InductionValues,
    IterationSpace,
    SymbolicTripCount,
    TensorSlices,
)
from tracejit.capture.loop_counters import LoopCounters
from tracejit.capture.loop_entry import LoopEntryState, entry_state, tensor_of
from tracejit.capture.loop_headers import LoopHeader
from tracejit.capture.loop_nodes import StepsAsLoop
from tracejit.capture.loop_steps import LoopStep
from tracejit.capture.reached_lists import note_appended
from tracejit.capture.recording.journal import Mark, Topic
from tracejit.capture.skipped_steps import Replacement
from tracejit.capture.snapshots import only_computes
from tracejit.capture.stacked_items import StackedItems
from tracejit.capture.syntax.expressions import CAPTURE
from tracejit.capture.syntax.loops import LoopNames
from tracejit.core.interpreter import state
from tracejit.core.symbolic import SymInt
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.tensors import RecordingInterpreter

__all__ = ["UNBOUND", "LoopRecogniser"]

UNBOUND: Final = object()
"""The value of a variable that has none: it is only assigned to in a branch that no step has taken, or was deleted."""

_RUN: Final = 3
"""Steps that run at least: the first, which may be another one, and two that are compared."""
_FEWEST: Final = 8
"""Steps that are left, of loops of a fixed length whose steps are watched."""
_FEWEST_LEFT: Final = 3
"""Steps that are left, of loops of any length: one, the one before the last, and the last."""
_WORTH: Final = 64
"""Nodes that are left to be appended, of loops of a fixed length."""
_TRIES: Final = 4
"""Steps that are compared with the one before: if they differ, others will."""
_TEMPORARY: Final = "__temporary_"
"""Variables of the instrumented code, which hold nothing from one step to the next."""
_NO_NODE: Final = "what its steps do is none of a loop of the graph (docs/loops.md)"
_GOES_ASTRAY: Final = (
    "a position leaves the tensor, or a comparison with the number of the step comes out otherwise in a later one"
)
_HANDED_ON: Final = "steps hand lists or objects that were there before from one place to another"
_LEAVES_OLDER: Final = "a step computes with what one before the last has made, or leaves it"
_APPENDS_OTHERS: Final = "a step appends to a list what is no tensor, and no number of the program"
_NOT_ALONE: Final = "a step reads, stores or asks something outside that the one before it did not"


class LoopRecogniser:
    """One run of a `for` or `while` statement, or of a comprehension, and the iterator of its elements where steps may be left
    out.

    headers: describe what the loop goes through.  counters: the variables that count its steps.  exit_values: what steps that did
    not run have left: the element of the step that runs next, and the values of the variables."""

    def __init__(self, interpreter: RecordingInterpreter, cells: Mapping[str, Any], names: LoopNames) -> None:
        """cells: of the variables around the function."""
        self._interpreter = interpreter
        self._cells = cells
        self._names = names
        self.headers = LoopHeader(interpreter)
        self.counters = LoopCounters(interpreter, self.headers, names)
        self._numbers = CarriedNumbers(interpreter, [x for x in names.stored if x not in names.renewed and x not in cells])
        self._elements: SymbolicTripCount | FixedTripCount | None = None
        self._ends_itself = False  # a `while` loop: the first step tells how many elements there are
        self._tries = 0  # how many steps may still be compared with the one before
        self._line = ""  # of the header of a loop of any length
        self._obstacle = ""  # why steps that do the same are not left out
        self._difference = ""  # how the last two steps that were compared differ
        self._before: LoopEntryState | None = None  # what the last step was given
        self._step: LoopStep | None = None  # the step before it
        self._compared: Mark | None = None  # when that was compared
        self._appended = self._effects = -1  # where the lists begin that the first step appends to, and its effects
        self.exit_values: tuple[Any, ...] = ()

    # -- the iterator
    def __iter__(self) -> LoopRecogniser:
        return self

    def __next__(self) -> Any:
        counters, elements = self.counters, self._elements
        counters.at += 1
        if elements is not None and counters.at < len(elements):
            return elements[counters.at]
        self._close()
        if self._ends_itself:
            return None
        self._elements = counters.elements = None
        raise StopIteration

    def iterate(self, elements: Any) -> Any:
        """`elements`, or the loop itself if they are many, and nothing but their contents and counters can tell which is
        which."""
        if len(elements) < _RUN + _FEWEST or self._interpreter.recorder.sizes.are_noted:  # steps may then differ at other sizes
            return elements
        fixed = FixedTripCount(self._interpreter, elements, self._names)
        units = fixed.units()
        if units is None:
            return elements
        self.counters.units = units
        self._watch(fixed, _TRIES)
        return self

    def is_over(self, value: Any) -> bool:
        """Whether this is the iterator of what the header has given: a loop of any length."""
        space = self.headers.iteration_space_of(value)
        return space is not None and self._begin(space)

    def while_steps(self) -> LoopRecogniser:
        """The iterator of the steps of a `while` loop."""
        self._ends_itself = True
        return self

    def note_while_condition(self, name: str, symbol: str, counter: Any, other: Any) -> None:
        """A `while` loop compares a variable: the first step tells how many there will be."""
        space = self.counters.while_space(name, symbol, counter, other)
        if space is None:
            return
        if not self._begin(space) and type(space.count) is int and space.count > 0:
            self.iterate(range(space.count))
        self.counters.begin_variables()

    def _begin(self, space: IterationSpace) -> bool:
        """Go through these elements, if their number differs from call to call, and there are enough in each."""
        interpreter, names = self._interpreter, self._names
        if state.top is not interpreter or type(space.count) is not SymInt or space.shape != names.shape:
            return False
        targets = {name: part for name, part in zip(names.targets, space.parts, strict=True) if isinstance(part, InductionValues)}
        ahead = max([targets[name].steps_to(bound) for name, bound in names.bounds if name in targets], default=0)
        if not space.count > MORE_THAN + ahead:
            return False
        self._line = user_line()
        if others := targets.keys() - {*names.counters, *names.numbers}:
            named = ", ".join(map(repr, sorted(others)))
            self._remark(
                f"{named} is used for more than positions, comparisons by size and arithmetic (a remainder in a condition, a key, a text)"
            )
            return False
        for part in space.parts:
            if isinstance(part, TensorSlices):
                interpreter.recorder.inspect(part.base)
        if not self.counters.begin(targets, space.count):
            return False
        # Steps are compared as long as their elements count from the front.
        self._watch(SymbolicTripCount(interpreter.recorder, space, FIRST + ahead), FIRST + ahead - _RUN + 1)
        return True

    def _watch(self, elements: SymbolicTripCount | FixedTripCount, tries: int) -> None:
        self._elements = self.counters.elements = elements
        self._tries, self.counters.is_watched = tries, True

    def run_remaining_steps(self) -> None:
        """All steps run from here on, if they are still watched."""
        if self._tries and self._elements is not None:
            self._elements.complete()
            self.counters.elements = None
        self._close()

    def _close(self) -> None:
        """Steps are watched no more."""
        self._tries, self.counters.is_watched = 0, False
        self._before = self._step = self._compared = None

    @property
    def _any_length(self) -> bool:
        return isinstance(self._elements, SymbolicTripCount)

    # -- a step begins
    def is_watched(self) -> bool:
        """Whether the loop has to know of each step that begins."""
        return self._tries > 0 or (self._ends_itself and not self.counters.at) or self._numbers.is_pending

    def skip_steps(self, variables: dict[str, Any]) -> bool:
        """A step begins.  Whether variables of the function get other values (`exit_values`): steps have been left out, so that
        the one that follows is the one before the last, or numbers have become those of the program, or plain ones again."""
        recorder = self._interpreter.recorder
        recorder.native_depth += 1  # what is compared is no business of the program
        try:
            if not self.counters.at:  # the first step may be another one
                if self._any_length:
                    self._numbers.begin(*self._variable_contents(variables))
                self.counters.note_variables(variables)
                if self._tries:
                    self.counters.begin_variables()
                    self._appended, self._effects = len(recorder.appended), len(recorder.effects.in_order)
                return False
            if self.counters.at == 1 and self._appended >= 0:
                self._note_appended(variables)
            carries = self.counters.at == 1 and self._tries and self._any_length
            has_changed = bool(carries and self._numbers.carry(*self._variable_contents(variables)))
            if self._tries and self._try_to_skip_steps(variables):
                return True
            if not self._tries and self._numbers.is_pending:
                self._numbers.give_up(*self._variable_contents(variables))
                has_changed = True
            if has_changed:
                assert self._elements is not None
                left = [variables.get(name, UNBOUND) for name in self._names.stored]
                self.exit_values = (self._elements[self.counters.at], *left)
            return has_changed
        finally:
            recorder.native_depth -= 1

    def _note_appended(self, variables: Mapping[str, Any]) -> None:
        """The first step is over: other steps may append to the same lists."""
        recorder, names = self._interpreter.recorder, self._names
        found = {id(items): items for items in recorder.appended[self._appended :]}
        by_name = {id(variables.get(name)) for name in (*names.private, *names.last, *names.in_front, *names.ignored)}
        others = {*by_name, *recorder.reached}
        for number, items in found.items():
            if number not in others:
                note_appended(recorder, items, self._effects)

    def _variable_contents(self, variables: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], list[Any]]:
        """The variables of the function, those that tell steps apart, and what is in the others and in those around it."""
        compared = self._compared_variables(variables)
        others = [x for name, x in variables.items() if name not in compared]
        others += [c.cell_contents for c in self._cells.values() if c != CellType()]
        return variables, compared, others

    def _compared_variables(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        """The variables that tell steps apart."""
        names = self._names
        others = {*self._cells, *self.counters.names, *names.ignored, *(() if names.unpacked else names.targets)}
        # What these were of may be there still, where nobody looks at it any more.
        took_gradients = self._interpreter.gradients > 0
        others.update(
            name
            for name in names.renewed
            if is_symbolic(x := variables.get(name)) or (took_gradients and isinstance(x, Tensor) and x.requires_grad)
        )
        return {name: x for name, x in variables.items() if not (name in others or name.startswith((_TEMPORARY, CAPTURE)))}

    def _entry_state(self, variables: Mapping[str, Any]) -> LoopEntryState | None:
        """What the step that begins is given; None where that cannot be compared."""
        interpreter, counters = self._interpreter, self.counters
        if state.top is not interpreter or self._elements is None or not counters.are_as_counted(variables):
            return None
        compared = self._compared_variables(variables)
        if self._any_length:
            compared.update(self._numbers.tensors(variables))
            compared.update(counters.tensors())
        element = self._elements.tensors(counters.at)
        entered = entry_state(interpreter, self._names, self._cells, variables, compared, element, self._any_length)
        if isinstance(entered, str):
            self._obstacle = entered
            return None
        return entered

    def _try_to_skip_steps(self, variables: Mapping[str, Any]) -> bool:
        assert self._elements is not None
        self._obstacle = ""
        before, now, previous = self._before, self._entry_state(variables), self._step
        comparisons = self.counters.take_comparisons()
        if now is None:
            self._remark(self._obstacle)
            self.run_remaining_steps()
            return False
        step = None if before is None else before.step_to(self._interpreter, now, comparisons)
        follows = before is not None and now.snapshot.follows(before.snapshot)
        remaining = len(self._elements) - 1 - self.counters.at
        compared = None
        least = 1 if self._any_length else _WORTH
        if step is not None and remaining * (len(step.nodes) or any(step.collected)) >= least:
            compared = self._interpreter.journal.mark()
            if previous is not None and previous.is_like(step) and self._only_computes(before, now):  # type: ignore[arg-type]
                moves = self._moves(previous, step)
                can_continue = moves is not None and self.counters.agree(previous, step)
                if can_continue and follows and self._skip(step, moves, now, variables):  # type: ignore[arg-type]
                    return True
                self._obstacle = _GOES_ASTRAY if not can_continue else _NO_NODE if follows else _HANDED_ON
        tries = self._tries - (before is not None)
        difference = self._how_they_differ(before, now, step, compared is not None)
        if not tries or remaining < (_FEWEST_LEFT if self._any_length else _FEWEST):
            self._remark(difference)
            self.run_remaining_steps()
            return False
        self._tries, self._difference = tries, difference
        self._before, self._step, self._compared = now, step, compared
        return False

    def _only_computes(self, before: LoopEntryState, now: LoopEntryState) -> bool:
        """Whether the last step has done nothing but compute tensors and numbers of the program, take gradients, and store where
        the one before has."""
        stores = before.stores.keys() & now.stores.keys()
        ignored = Topic.NUMBERS | Topic.APPENDED
        return self._compared is not None and only_computes(self._interpreter.recorder, self._compared, ignored, stores)

    def _moves(self, step: LoopStep, following: LoopStep) -> list[int] | None:
        """How far the position of each node moves from step to step; None where that is not the same for all that are left."""
        assert self._elements is not None
        steps_left, distances = self._elements.count - 1 - self.counters.at, []
        for one, other in zip(step.nodes, following.nodes, strict=True):
            distance = 0
            if one.position is not None and other.position is not None:
                distance = other.position - one.position
                x, dim = self._interpreter.avals[other.node.operands[0]], other.node.attrs["dim"]  # type: ignore[index]
                end = other.position + distance * steps_left
                is_inside = 0 <= end <= x.shape[dim] - (other.width or 1)  # type: ignore[union-attr]
                if (distance and abs(distance) not in self.counters.units) or not is_inside:  # else its sign changes on the way
                    return None
            distances.append(distance)
        return distances

    # -- what users are told
    def _remark(self, why: str) -> None:
        """Note why each number of steps is a recording."""
        if self._line and why:
            self._interpreter.remarks.append(f"the loop at {self._line} has a recording for each number of steps: {why}")

    def _how_they_differ(
        self, before: LoopEntryState | None, now: LoopEntryState, step: LoopStep | None, is_compared: bool
    ) -> str:
        """Why the last step and the one before do not stand for all others, or else those before them; empty where no two were
        compared."""
        if step is None and before is not None:
            appended = [tensor_of(x.newest()) for x in now.lists if x.items]
            is_known = all(isinstance(x, Tensor) for x in appended)
            return now.snapshot.difference_from(before.snapshot) or (_LEAVES_OLDER if is_known else _APPENDS_OTHERS)
        if step is None or self._step is None:
            return self._difference
        return step.difference_from(self._step) or (self._obstacle or _NOT_ALONE if is_compared else "")

    def _may_be_kept(self, live_ins: Sequence[Tensor], variables: Mapping[str, Any]) -> set[int]:
        """The live-ins in whose places the last steps, which run, may leave what they find there."""
        assigned = {id(x) for name, x in variables.items() if name in self._names.sure}
        assigned -= {id(x) for name, x in variables.items() if name not in self._names.sure}
        return {k for k, x in enumerate(live_ins) if id(x) not in assigned}

    def _as_number(self, item: Any, like: Any) -> Any:
        """What steps have appended of which this is the tensor, or the rows: numbers of the type of another one."""
        return replace(item, holds=type(plain(like))) if type(item) is StackedItems else self._interpreter.take_number(item)

    # -- steps that do not run
    def _skip(self, step: LoopStep, moves: Sequence[int], now: LoopEntryState, variables: Mapping[str, Any]) -> bool:
        """Have a node do all steps but the last two, and put what they leave in its places.  False where no node can: then
        nothing has changed."""
        interpreter, elements, counters = self._interpreter, self._elements, self.counters
        assert elements is not None
        interpreter.recorder.performed.append((CONSUMED, None))  # there is no way back from here
        with set_grad_enabled(state.grad_enabled and not step.takes_gradients):
            ends = self._emit(step, moves, now, variables)
        if ends is None:
            return False
        for k in step.leaves:
            if ends[k] is not now.carried[k]:
                ends[k].requires_grad_()
        interpreter.left_out += len(elements) - elements.last - counters.at
        counters.at = len(elements) - elements.last
        replaced = Replacement(interpreter, now.carried, ends)
        replaced.in_containers(now.snapshot.containers)
        replaced.in_stores(now.stores)
        left = {name: replaced(variables.get(name, UNBOUND)) for name in self._names.stored}
        left.update(counters.variables_now())
        if self._any_length:
            numbers = self._numbers.tensors(variables)
            left.update((name, interpreter.take_number(replaced(x))) for name, x in numbers.items())
        self.exit_values = (elements[counters.at], *left.values())
        self._close()
        return True

    def _emit(
        self, step: LoopStep, moves: Sequence[int], now: LoopEntryState, variables: Mapping[str, Any]
    ) -> list[Tensor] | None:
        """Append the node, and items to lists.  Returns what is carried in the end; None where no node can stand for the
        steps."""
        assert self._elements is not None
        at = self.counters.at
        lists = [*zip(now.lists, step.collected, strict=True)]
        growing = [x for x, items in lists if items]
        if not all(x.is_private or x.reached is not None for x in growing):
            return None
        if any(getattr(x.newest(), "requires_grad", False) for x in growing if not x.is_private):
            return None  # code that sees an item may ask for its gradient: what goes through later steps would be missing
        row_major = [not items or tensor_of(x.newest())._array.flags.c_contiguous for x, items in lists]
        visible = [place for x, items in lists for place in items if x.reached is not None and isinstance(x.newest(), Tensor)]
        kept = self._may_be_kept(now.snapshot.tensors, variables) if self._names.branches else set()
        loop = StepsAsLoop(self._interpreter, step, moves, now.snapshot.tensors, now.elements, row_major, visible, kept)
        count = self._elements.count - (self._elements.last + at)
        slices = self._elements.slices(at, count) if loop.is_possible else None
        results = None if slices is None else loop.emit(slices, count)
        if results is None:
            return None
        ends, items = results
        for x, more in zip(now.lists, items, strict=True):
            if more:
                is_number = is_post_program(x.newest())
                x.extend([self._as_number(y, x.newest()) for y in more] if is_number else more)
        return [ends.get(k, x) for k, x in enumerate(now.snapshot.tensors)][now.elements :]
