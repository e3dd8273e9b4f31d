"""Steps of Python's own `for` loops that need not run, since those before show what they do.

Steps run instrumented, as any other code, until two in a row have done the same: from one beginning of a step to the next, snapshots are
alike (snapshots.py), the same nodes have been appended, of operands from the same places, and nothing else of the recording has changed.
Then the step that follows can do nothing else: it begins as they did, with other tensors of the same kind, and by induction so do all of
them.  So what they would have done to tensors is done by the interpreter, without the Python around it, and what is left in variables and
lists is put there.  The last step runs as Python again, and with it whatever comes after the loop.

Where steps leave nothing but tensors that they carry on, one node stands for all of them but the one before the last (loop_nodes.py).
Then there may be any number of them, too: of a loop over the rows of a tensor, or over the numbers up to a size or down from one, the
first elements are those that count from the front, the last two those that count from the end (iteration_space.py), and what has been shown
of one step holds for each that lies between them in another call.

Else operations are evaluated one by one, as ever (evaluated_steps.py): tensors, their places on the tape and the graph are those of a loop
that ran, and each number of steps is a recording.  So nothing of what a recording means depends on this, and it can be left out anywhere.

A counter that steps compute with (`t * dt`) is, where there may be any number of them, an element of a tensor that the program has, and
what is computed with it are operations of the program, as of other numbers that are taken from tensors (handlers/post_program.py).  Floats
that steps hand on in variables (`time += dt`), and numbers that they change inside of objects and containers, are tensors that they carry
on (carried_numbers.py).  What else was computed of numbers in a step is nobody's after it, or the snapshots are not alike.

Stores in places outside (`self.h = cell(self.h, x)`, `self.steps += 1`) are like assignments to variables, where each step stores in the
same places: only the last one counts, for the entry as for who looks at the place after the loop.

All steps run where one does more than compute, store and write to tensors of the call (calls, prints, hooks, locks; guards and draws, too,
where the steps do not become one node, loop_nodes.py), where it changes anything but variables of the function, such places, what is in
containers and objects of the call, and lists that it appends to and does nothing else with, and where it may ask which step it is: a
number that decides, chooses or names something, or has more than 62 bits.  Loops of a fixed number are looked at from 11 steps on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, starmap
from types import CellType
from typing import TYPE_CHECKING, Any, Final

from tracejit.autograd.grad_mode import set_grad_enabled
from tracejit.capture.call_sites import user_line
from tracejit.capture.carried_numbers import CarriedNumbers
from tracejit.capture.defects import CONSUMED
from tracejit.capture.evaluated_steps import EvaluatedStep, Replacement, may_be_evaluated, without_guards
from tracejit.capture.handlers.effects import AttributeStore, ItemStore
from tracejit.capture.handlers.post_program import is_post_program
from tracejit.capture.handlers.stand_ins import plain
from tracejit.capture.handlers.symbols import concrete, is_symbolic
from tracejit.capture.iteration_space import (
    FIRST,
    LAST,
    MORE_THAN,
    MOST_FIRST,
    MOST_LAST,
    InductionValues,
    IterationSpace,
    SymbolicTripCount,
    TensorSlices,
    creation_order,
)
from tracejit.capture.list_reads import ListReads, SliceRequest, slices_of
from tracejit.capture.loop_entry import AppendedList, LoopEntryState
from tracejit.capture.loop_headers import LoopHeader
from tracejit.capture.loop_nodes import SlicedInput, StepsAsLoop
from tracejit.capture.loop_steps import CounterComparison, ListRead, LoopStep, StepNode, StepValue
from tracejit.capture.nested_places import children_of, is_tuple
from tracejit.capture.policies import BINARY
from tracejit.capture.recording.journal import Mark, Topic
from tracejit.capture.snapshots import kind_of, only_computes, outside_effects, snapshot
from tracejit.capture.stacked_items import has_stacked, length_of
from tracejit.capture.syntax.expressions import CAPTURE
from tracejit.capture.syntax.loops import LoopNames
from tracejit.capture.unrolled_items import LoopedSteps, UnrolledItems, with_tape_positions
from tracejit.core.dtypes import float32, float64, int32, int64
from tracejit.core.interpreter import state
from tracejit.core.interrupts import is_foreign
from tracejit.core.op import Effect, Kind
from tracejit.core.symbolic import SymInt, python_type, without_symbols
from tracejit.ir.graph import Literal, Node
from tracejit.ops.movement.views import detach, select, slice_
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.tensors import RecordingInterpreter

__all__ = ["UNBOUND", "LoopRecogniser"]

UNBOUND: Final = object()
"""Stands for the value of a variable that has none: it is only assigned to in a branch that no step has taken, or has been deleted."""

_RUN: Final = 3
"""Steps that run at least: the first, which may be another one, and two that are compared."""
_FEWEST: Final = 8
"""Steps that are left, of loops whose steps are looked at."""
_FEWEST_LOOPED: Final = 6
"""Steps that become a loop."""
_FEWEST_LEFT: Final = 3
"""Steps that are left of loops of which later calls may have more: one, the one before the last, and the last."""
_WORTH: Final = 64
"""Nodes that are left to be appended, where it pays to compare what is recorded."""
_TRIES: Final = 4
"""Steps that are compared with the one before: if they differ, others will."""
_HOLDING_COUNTERS: Final = frozenset({int32, int64, float32, float64})
"""Dtypes of tensors that compare with a counter as with a tensor of its kind: it has 31 bits at most."""
_COUNTED: Final = "numbers of"
"""What stands, before the name of a counter, in the place of a variable for the tensor of its numbers, which has none."""
_NO_NODE: Final = "what its steps do is none of a loop of the graph (docs/loops.md)"
_GOES_ASTRAY: Final = (
    "a position leaves the tensor, or a comparison with the number of the step comes out otherwise in a later one"
)
_HANDED_ON: Final = "steps hand lists or objects that were there before from one place to another"
_NOT_ALONE: Final = "a step reads, stores or asks something outside that the one before it did not"
"""What stands in the way where two steps in a row have done the same."""
_TEMPORARY: Final = "__temporary_"
"""Variables of the instrumented code, which hold nothing from one step to the next."""


class LoopRecogniser:
    """One run of a `for` statement, and the iterator of its elements where steps may be left out."""

    def __init__(self, interpreter: RecordingInterpreter, cells: Mapping[str, Any], names: LoopNames) -> None:
        """cells: of the variables around the function."""
        self._interpreter = interpreter
        self._cells = cells
        self._names = names
        self.headers = LoopHeader(interpreter)
        self._counters = names.counters
        self._carried = CarriedNumbers(
            interpreter, [name for name in names.stored if name not in names.renewed and name not in cells]
        )
        self._elements: Sequence[Any] | SymbolicTripCount = ()
        self._at = -1
        self._kept: dict[str, InductionValues] = {}  # variables to which each step adds a number
        self._counting: dict[str, InductionValues] = {}  # counters among the targets
        self._numbers: dict[str, InductionValues] = {}  # counters that are in tensors, too
        self._ends_itself = False  # how many elements there are is told in the first step
        self._units: set[int] = set()  # by how much counters move from step to step, whatever the direction
        self._asked: list[tuple[str, Any, Any, bool]] = []  # what the step that runs has asked of counters
        self._reads: list[tuple[str, Any, Tensor]] = []  # what the step that runs has read of private lists, and where
        self._tries = 0
        self._line = ""  # of the header, where there may be any number of steps
        self._hindrance = ""  # why no step could be left out, as far as that is not said by how two of them differ
        self._told = ""  # how the last two steps that were compared differ
        self._before: LoopEntryState | None = None
        self._step: LoopStep | None = None
        self._compared: Mark | None = None  # when the last step was over, if it was compared
        self.exit_values: tuple[Any, ...] = ()
        """What steps that did not run have left: the element of the next one, and the values of the variables."""

    def __iter__(self) -> LoopRecogniser:
        return self

    def __next__(self) -> Any:
        self._at += 1
        if self._at >= len(self._elements):
            self._close()
            if self._ends_itself:
                return None
            self._elements = ()
            raise StopIteration
        element = self._elements[self._at]
        if not self._tries and self._takes_out_items():
            element = self._elements[self._at]
        return element

    def iterate(self, elements: Any) -> Any:
        """`elements`, or the loop itself if they are many, and nothing but their contents and counters can tell which is which."""
        if len(elements) < _RUN + _FEWEST or self._interpreter.recorder.sizes.are_noted:  # steps may then differ at other sizes
            return elements
        if isinstance(elements, range):
            can_tell = self._names.unpacked or self._names.counters != self._names.targets
            self._units = {abs(elements.step)}
        else:
            can_tell = not (self._are_alike(elements) and self._count_evenly(elements))
        if can_tell:
            return elements
        self._elements, self._tries = elements, _TRIES
        return self

    def is_over(self, value: Any) -> bool:
        """Whether this is the iterator of what the header has given, of which there may be another number in later calls."""
        found = self.headers.iteration_space_of(value)
        return found is not None and self._begin(found)

    def concrete_integer(self, number: Any) -> Any:
        """An integer from outside by its value, which is guarded, where it is part of a place that moves in a loop of any length; anything
        else as it is."""
        if not (self._tries and isinstance(self._elements, SymbolicTripCount) and _is_integer_from_outside(number)):
            return number
        return concrete(number) if self.headers.size(number) is None else number

    def offset(self, symbol: str, left: Any, right: Any) -> Any:
        """The sum or difference of a counter and another number, where one of them is a size; None where it is none of sizes alone."""
        a, b = self.headers.size(left), self.headers.size(right)
        if a is None or b is None or not self._tries or not isinstance(self._elements, SymbolicTripCount):
            return None
        return self._place_along(a + b if symbol == "+" else a - b, self._elements, self._units)

    def scaled_counter(self, counter: Any, factor: Any) -> Any:
        """The product of a counter and an integer, where the counter is a size; None where it is a plain one, or all steps run."""
        size = self.headers.size(counter)
        if not self._tries or size is None or type(factor) is not int or not factor:
            self.run_remaining_steps()
            return None
        counters = (*self._counting.values(), *self._kept.values())
        steps = [abs(factor) * unit for unit in {1, *[abs(part.step) for part in counters]}]
        steps += [abs(factor * self._elements.step)] if isinstance(self._elements, range) else []
        self._units.update(steps)
        if type(size) is int or not isinstance(self._elements, SymbolicTripCount):
            return None
        return self._place_along(size * factor, self._elements, steps)

    def _place_along(self, found: Any, elements: SymbolicTripCount, units: Collection[int]) -> Any:
        """A place as the program gets it, where other steps may find those that are so far from it: no step that follows has one more."""
        sizes = self._interpreter.recorder.sizes
        if not sizes.has_name(found):
            most = max(MOST_FIRST, elements.first)
            for distance in range(-most, most + 1):
                for unit in units:
                    sizes.from_library(found + distance * unit)
        return sizes.from_library(found)

    def note_comparison(self, symbol: str, counter: Any, other: Any, answer: bool) -> bool:
        """Take note of how a comparison of a counter came out; False where it is none of sizes alone."""
        if self._tries:
            a, b = self.headers.size(counter), self.headers.size(other)
            if a is None or b is None:
                return False
            self._asked.append((symbol, a, b, answer))
        return True

    def note_list_read(self, name: str, place: Any, item: Any) -> None:
        """A step has read an item of a private list."""
        if self._tries:
            self._reads.append((name, place, item))

    def counter_in_program(self, name: str, ahead: int, counter: Any) -> Any:
        """A counter, to be computed with, as a number in a tensor that the program has.  ahead: how many steps it is further."""
        if self._tries and name in self._numbers and isinstance(self._elements, SymbolicTripCount):
            return self._numbers[name].late(self._at, self._elements.place(self._at), ahead)
        return counter

    def place_in_program(self, key: Any) -> Any:
        """A place that moves with a counter, as a number in a tensor that the program has; None where it does not."""
        at, elements = self.headers.size(key), self._elements
        if at is None or not isinstance(elements, SymbolicTripCount) or elements.is_complete:
            return None
        place = elements.place(self._at)
        for name, part in (*self._counting.items(), *self._kept.items()):
            apart = at - part.at(place)
            if type(apart) is int and (name in self._numbers or part.become_tensor(elements.count + 1)):
                self._numbers[name] = part
                number = part.late(self._at, place)
                return number + apart if apart else number
        return None

    def counter_as_tensor(self, counter: Any, other: Any) -> Tensor | None:
        """A counter as a tensor of the program, to be compared with another tensor as a number would be; None where it is none, or dtypes
        would make a difference."""
        number = self.place_in_program(counter) if type(other) is Tensor and other.dtype in _HOLDING_COUNTERS else None
        return number._late.program_tensor() if is_post_program(number) else None  # type: ignore[union-attr]

    def while_steps(self) -> LoopRecogniser:
        """The iterator of steps of a `while` loop."""
        self._ends_itself = True
        return self

    def note_while_condition(self, name: str, symbol: str, counter: Any, other: Any) -> None:
        """A `while` loop is asked whether it goes on: in the first step that tells how many there will be, if it goes on as this says."""
        numbers, first, end = self._kept.get(name), self.headers.size(counter), self.headers.size(other)
        if self._at or numbers is None or first is None:
            return
        if end is None and _is_integer_from_outside(other):
            end = concrete(other)  # as the comparisons of all steps say, too; the next one is followed as a size is
        if end is None:
            return
        step = numbers.step
        if symbol not in (("<", "<=", "!=") if step > 0 else (">", ">=", "!=")) or (symbol == "!=" and abs(step) > 1):
            return
        last = end if symbol in ("<", ">", "!=") else end + (1 if step > 0 else -1)
        through = self.headers.count_range(first, last, step)
        if not self._begin(through) and type(through.count) is int and through.count > 0:
            self.iterate(range(through.count))
        self._begin_kept()

    def _begin(self, through: IterationSpace) -> bool:
        """Go through so many elements, if these are enough in each call."""
        interpreter, names, parts = self._interpreter, self._names, through.parts
        if state.top is not interpreter or type(through.count) is not SymInt or through.shape != names.shape:
            return False
        numbers = {name: part for name, part in zip(names.targets, parts, strict=True) if type(part) is InductionValues}
        ahead = max([numbers[name].steps_to(bound) for name, bound in names.bounds if name in numbers], default=0)
        if not through.count > MORE_THAN + ahead:
            return False
        self._line = user_line()
        if others := numbers.keys() - {*names.counters, *names.numbers}:
            said = ", ".join(map(repr, sorted(others)))
            self._remark(
                f"{said} is used for more than positions, comparisons by size and arithmetic (a remainder in a condition, a key, a text)"
            )
            return False
        for part in parts:
            if type(part) is TensorSlices:
                interpreter.recorder.inspect(part.base)
        self._counting = numbers
        self._numbers = {name: part for name, part in numbers.items() if name in names.numbers}
        if not all(part.become_tensor(through.count) for part in self._numbers.values()):
            return False
        self._counters = tuple({*names.counters, *numbers})
        self._units = {1, *[abs(part.step) for part in numbers.values()]}
        first, last = (MOST_FIRST, MOST_LAST) if names.read else (FIRST, LAST)
        self._elements = SymbolicTripCount(interpreter.recorder, through, first + ahead, last)
        self._tries = self._elements.first - _RUN + 1  # as many as have elements that count from the front
        return True

    def run_remaining_steps(self) -> None:
        """From here on all steps run, if they are still looked at."""
        if self._tries and isinstance(self._elements, SymbolicTripCount):
            self._elements.complete()
        self._close()

    def _close(self) -> None:
        """Steps are looked at no more."""
        self._tries = 0
        self._before = self._step = self._compared = None

    def is_watched(self) -> bool:
        return self._tries > 0 or (self._ends_itself and not self._at) or self._carried.is_pending

    def skip_steps(self, variables: dict[str, Any]) -> bool:
        """Whether there are other values for the variables of the function: steps have been left out, so that the one that follows is the
        last, or numbers have become those of the program, or plain ones again.  Asked at the beginning of each step."""
        recorder = self._interpreter.recorder
        recorder.native_depth += 1  # what is compared is no business of the program
        try:
            if not self._at:  # the first step may be another one
                if isinstance(self._elements, SymbolicTripCount):
                    self._carried.begin(*self._variable_contents(variables))
                self._count_in_variables(variables)
                return False
            carries = self._at == 1 and self._tries and isinstance(self._elements, SymbolicTripCount)
            has_changed = bool(carries and self._carried.carry(*self._variable_contents(variables)))
            if self._tries and self._try_to_skip_steps(variables):
                return True
            has_changed |= self._takes_out_items()
            if not self._tries and self._carried.is_pending:
                self._carried.give_up(*self._variable_contents(variables))
                has_changed = True
            if has_changed:
                self.exit_values = (self._elements[self._at], *[variables.get(name, UNBOUND) for name in self._names.stored])
            return has_changed
        finally:
            recorder.native_depth -= 1

    def _variable_contents(self, variables: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], list[Any]]:
        """The variables of the function, those that tell steps apart, and what is in the others and in those around it."""
        looked_at = self._live_variables(variables)
        others = [x for name, x in variables.items() if name not in looked_at]
        others += [c.cell_contents for c in self._cells.values() if c != CellType()]
        return variables, looked_at, others

    def _takes_out_items(self) -> bool:
        """Have lists hold their items one by one, where the element of this step is one that the program is not to get as it is.  Whether
        there is another element now."""
        elements = self._elements
        if not isinstance(elements, SymbolicTripCount) or not elements.is_stand_in(self._at):
            return False
        elements.complete()
        self._close()
        return True

    def _count_in_variables(self, variables: Mapping[str, Any]) -> None:
        """Variables to which each step adds a number count steps, if they are integers."""
        for name, step in self._names.kept:
            start = self.headers.size(variables.get(name))
            if start is not None:
                self._kept[name] = InductionValues(self._interpreter.recorder, start, step)
        if self._tries:
            self._begin_kept()

    def _begin_kept(self) -> None:
        """Such variables will be numbers of the recording, as far as steps run that count from the end."""
        self._counters = (*self._counters, *self._kept)
        self._units |= {abs(part.step) for part in self._kept.values()}
        elements = self._elements
        if not isinstance(elements, SymbolicTripCount):
            return
        count = elements.count
        for name, part in self._kept.items():
            for distance in range(elements.first):
                self._interpreter.recorder.sizes.from_library(part.at(count - distance))
                self._interpreter.recorder.sizes.from_library(part.at(distance))
            if name in self._names.numbers and part.become_tensor(count + 1):
                self._numbers[name] = part

    def _place(self, at: int) -> Any:
        """Which step the one at `at` is, in each call."""
        return self._elements.place(at) if isinstance(self._elements, SymbolicTripCount) else at

    def _try_to_skip_steps(self, variables: Mapping[str, Any]) -> bool:
        self._hindrance = ""
        before, now = self._before, self._entry_state(variables)
        asked = list(starmap(CounterComparison, self._asked))
        reads = self._reads[:]
        previous = self._step
        self._asked.clear()
        self._reads.clear()
        if now is None:
            self._remark(self._hindrance)
            self.run_remaining_steps()
            return False
        step = None if before is None else self._step_between(before, now, asked, reads)
        follows = before is not None and now.seen.follows(before.seen)
        remaining = len(self._elements) - 1 - self._at
        compared = None
        any_number = isinstance(self._elements, SymbolicTripCount)
        least = 1 if any_number else _WORTH
        if step is not None and remaining * (len(step.nodes) or any(step.appended)) >= least:
            compared = self._interpreter.journal.mark()
            if previous is not None and previous.is_like(step) and self._only_computes(before, now):  # type: ignore[arg-type]
                moves = self._moves(previous, step)
                read = self._read_along(previous, step, variables)
                can_go_on = moves is not None and read is not None and self._comparisons_agree(previous, step)
                if can_go_on and follows and self._evaluate_skipped_steps(step, moves, read, now, variables):  # type: ignore[arg-type]
                    return True
                self._hindrance = _GOES_ASTRAY if not can_go_on else _NO_NODE if follows else _HANDED_ON
        tries = self._tries - (before is not None)
        if not tries or remaining < (_FEWEST_LEFT if any_number else _FEWEST):
            self._remark(self._difference(before, now, step, compared is not None))
            self.run_remaining_steps()
            return False
        self._tries, self._told = tries, self._difference(before, now, step, compared is not None)
        self._before, self._step, self._compared = now, step, compared
        return False

    def _only_computes(self, before: LoopEntryState, now: LoopEntryState) -> bool:
        """Whether the last step has done nothing but operations on tensors and numbers of the program, or taken gradients, and stored
        tensors where the one before has."""
        stores = before.stores.keys() & now.stores.keys()
        return self._compared is not None and only_computes(self._interpreter.recorder, self._compared, Topic.NUMBERS, stores)

    def _remark(self, why: str) -> None:
        """Tell who asks why each number of steps is a recording."""
        if self._line and why:
            self._interpreter.remarks.append(f"the loop at {self._line} has a recording for each number of steps: {why}")

    def _difference(self, before: LoopEntryState | None, now: LoopEntryState, step: LoopStep | None, is_compared: bool) -> str:
        """Why the last step and the one before were not all that there is to know, or else those before them; empty where no two were
        compared."""
        if step is None and before is not None:
            return now.seen.difference_from(before.seen) or "a step computes with what one before the last has made, or leaves it"
        if step is None or self._step is None:
            return self._told
        return step.difference_from(self._step) or (self._hindrance or _NOT_ALONE if is_compared else "")

    @property
    def _count(self) -> Any:
        """How many steps there are."""
        return self._elements.count if isinstance(self._elements, SymbolicTripCount) else len(self._elements)

    # -- what a step begins with
    def _are_alike(self, elements: Sequence[Any]) -> bool:
        """Whether elements are different tensors of one kind that the call has made, or tuples of these and of numbers for counters."""
        rows = [self._tensors_of(element) for element in elements]
        if any(row is None for row in rows):
            return False
        tensors = [x for row in rows for x in row or ()]
        kinds = [list(map(kind_of, row or ())) for row in rows]
        recorder, values = self._interpreter.recorder, self._interpreter.values
        return (
            all(kind == kinds[0] for kind in kinds)
            and len(set(map(id, tensors))) == len(tensors)
            and all(id(x) in values and not recorder.is_outside(x) for x in tensors)
        )

    def _count_evenly(self, elements: Sequence[Any]) -> bool:
        """Whether the counters among the parts of elements move by as much in each step."""
        for parts in zip(*elements, strict=True) if self._names.unpacked else ():
            numbers = [x for x in parts if type(x) is int]
            moves = {b - a for a, b in pairwise(numbers)}
            if len(numbers) not in (0, len(parts)) or len(moves) > 1:
                return False
            self._units.update(map(abs, moves))
        return True

    def _tensors_of(self, element: Any) -> list[Tensor] | None:
        """The tensors of an element; None where something else may tell which element it is."""
        names = self._names
        if not names.unpacked:
            return [element] if isinstance(element, Tensor) else None
        if type(element) is not tuple or len(element) != len(names.targets):
            return None
        for x, name in zip(element, names.targets, strict=True):
            if not (isinstance(x, Tensor) or (type(x) is int and name in names.counters)):
                return None
        return [x for x in element if isinstance(x, Tensor)]

    def _given(self, at: int) -> list[Tensor]:
        """The tensors of the element of a step."""
        if type(self._elements) is range:
            return []
        if isinstance(self._elements, SymbolicTripCount):
            return self._elements.tensors(at)
        return self._tensors_of(self._elements[at]) or []

    @property
    def _items(self) -> Sequence[int]:
        """Which of the tensors of an element are items of lists."""
        return self._elements.items if isinstance(self._elements, SymbolicTripCount) else ()

    def _entry_state(self, variables: Mapping[str, Any]) -> LoopEntryState | None:
        """What the step that follows begins with; None where that cannot be told."""
        interpreter, names = self._interpreter, self._names
        recorder = interpreter.recorder
        if state.top is not interpreter:
            return None
        appended = [name for name in names.appended if type(variables.get(name)) is list]
        lists = [
            AppendedList(variables[name], *[name in known for known in (names.private, names.in_front, names.read)])
            for name in appended
        ]
        if any(recorder.is_outside(x.items) for x in lists) or not self._are_as_kept(variables):
            return None
        looked_at = self._live_variables(variables)
        if isinstance(self._elements, SymbolicTripCount):
            looked_at.update(self._carried.tensors(variables))
            looked_at.update((f"{_COUNTED} {name}", part.tensor) for name, part in self._numbers.items())
        looked_at.update(
            (f"{name}[-1]", x.items[-1]) for name, x in zip(appended, lists, strict=True) if x.items and name in names.last
        )
        touched = [c for name, c in self._cells.items() if name != "__class__" and not recorder.effects.is_untouched(c)]
        try:
            around = [cell.cell_contents for cell in touched]
        except ValueError:  # one has no value yet
            self._hindrance = "a variable around the function has no value"
            return None
        stores = self._carried_stores()
        for effect in stores.values():
            name = self._called(effect)
            while name in looked_at:
                name += " (another)"
            looked_at[name] = (effect.value,)
        given = self._given(self._at)
        states = interpreter.generators_drawn_from()
        seen = snapshot(
            recorder,
            given,
            looked_at,
            [*around, *outside_effects(recorder, stores)],
            [x.items for x in lists],
            states,
            self._items,
            takes_numbers=isinstance(self._elements, SymbolicTripCount),
        )
        if isinstance(seen, str):
            self._hindrance = seen
            return None
        return LoopEntryState(interpreter, seen, len(given), lists, stores)

    def _carried_stores(self) -> dict[int, AttributeStore | ItemStore]:
        """Stores outside that steps may carry on: of tensors, containers and objects that the call has made, and of numbers that the
        program has."""
        recorder, has_numbers = self._interpreter.recorder, isinstance(self._elements, SymbolicTripCount)

        def is_carried(value: Any) -> bool:
            if is_symbolic(value):
                return has_numbers and is_post_program(value)
            leads_on = isinstance(value, Tensor) or is_tuple(value) or children_of(recorder, value) is not None
            return leads_on and not recorder.is_outside(value)

        return {k: effect for k, effect in recorder.effects.stores().items() if is_carried(effect.value)}

    def _called(self, store: AttributeStore | ItemStore) -> str:
        """What the program calls the place of a store."""
        facts = self._interpreter.recorder.facts
        if isinstance(store, AttributeStore):
            return facts.attribute(store.owner, store.name)
        return facts.item(store.container, store.key)

    def _live_variables(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        """The variables that tell steps apart."""
        names = self._names
        apart = {*self._cells, *self._counters, *names.ignored, *names.listed, *(() if names.unpacked else names.targets)}
        taken = self._interpreter.gradients > 0  # what these were of may be there still, where nobody looks at it any more
        apart.update(
            name
            for name in names.renewed
            if is_symbolic(x := variables.get(name)) or (taken and isinstance(x, Tensor) and x.requires_grad)
        )
        return {name: value for name, value in variables.items() if not (name in apart or name.startswith((_TEMPORARY, CAPTURE)))}

    def _are_as_kept(self, variables: Mapping[str, Any]) -> bool:
        """Whether variables to which each step adds a number are what they are to be."""
        place = without_symbols(self._place(self._at))
        return all(
            type(x := plain(variables[name])) is int and x == without_symbols(part.at(place)) for name, part in self._kept.items()
        )

    # -- what a step does
    def _step_between(
        self,
        before: LoopEntryState,
        now: LoopEntryState,
        asked: Sequence[CounterComparison],
        reads: Sequence[tuple[str, Any, Tensor]],
    ) -> LoopStep | None:
        """What the step between two beginnings has done; None where it is not one that could go on like that."""
        if before.seen.tokens != now.seen.tokens:
            return None
        interpreter = self._interpreter
        places: dict[Any, StepValue] = {value: ("given", k) for k, value in enumerate(before.values) if value is not None}
        found: dict[tuple[str, Any], ListRead] = {}
        for name, at, item in reads:
            value = interpreter.values.get(id(item))
            if value is None or (value in places and (name, at) not in found) or not item._array.flags.c_contiguous:
                return None
            places.setdefault(value, ("read", len(found)))
            found[name, at] = ListRead(name, at, (interpreter.avals[value], value in interpreter.requires_grad))
        nodes: list[StepNode] = []
        count = 0
        leaves = interpreter.leaves[before.leaves : now.leaves]
        for node in interpreter.nodes[before.nodes : now.nodes]:
            if not interpreter.taken_out.isdisjoint(node.outputs):
                continue
            applied = self._step_node(node, places, leaves)
            if applied is None:
                return None
            nodes.append(applied)
            for v in node.outputs:
                places[v] = "made", count
                count += 1

        def place(x: Any) -> StepValue | None:
            value = interpreter.values.get(id(x)) if isinstance(x, Tensor) else None
            return None if value is None else places.get(value)

        left = [place(x) for x in now.seen.tensors[now.elements :]]
        appended = [
            [place(x) for x in grown.appended_since(length)] for grown, length in zip(now.lists, before.lengths, strict=True)
        ]
        held = [k - now.elements for k in now.seen.held if k >= now.elements]
        if None in left or any(None in items for items in appended):
            return None
        if any(left[k] != ("given", k + now.elements) for k in held):
            return None
        step = LoopStep(nodes, left, appended, asked, list(found.values()))  # type: ignore[arg-type]
        has_taken = (now.gradients, now.leaves) != (before.gradients, before.leaves)
        return self._without_tape(step, before, now, places) if has_taken else step

    def _without_tape(
        self, step: LoopStep, before: LoopEntryState, now: LoopEntryState, places: Mapping[int, StepValue]
    ) -> LoopStep | None:
        """A step that has taken gradients, as one that has computed them without a tape; None where it leaves something on the tape but
        leaves, or has made leaves of what it has not made, or given such gradients."""
        tensors = now.seen.tensors[now.elements :]
        appended = [x for grown, length in zip(now.lists, before.lengths, strict=True) for x in grown.appended_since(length)]
        leaves = tuple([k for k, x in enumerate(tensors) if x.requires_grad])
        begun = self._interpreter.leaves[before.leaves : now.leaves]
        if any(x.requires_grad for x in appended) or any(places.get(v, ("shared", v))[0] != "made" for v in begun):
            return None
        if not all(tensors[k].is_leaf and tensors[k]._base is None and step.left[k][0] in ("made", "given") for k in leaves):
            return None
        nodes = [replace(a, with_grad=False, kind=tuple([(aval, False) for aval, _ in a.kind])) for a in step.nodes]
        return replace(step, nodes=nodes, takes_gradients=True, leaves=leaves)

    def _step_node(self, node: Node, places: Mapping[int, StepValue], leaves: Sequence[int] = ()) -> StepNode | None:
        """leaves: the values of tensors that became leaves in the step: a node begins another value of each."""
        op, interpreter = node.op, self._interpreter
        with_grad = interpreter.evaluated.get(node.outputs[0]) if node.outputs else op.kind is Kind.GUARD
        if with_grad is None and op is detach and node.operands[0] in leaves:
            with_grad = False
        if with_grad is None or "dynamic shape" in op.traits:
            return None
        if op.effect is Effect.RANDOM and op.kind is not Kind.RANDOM:
            return None
        operands: list[Any] = []
        for x in node.operands:
            if type(x) is int:
                if x not in places and not (x in interpreter.numbers or x in interpreter.inputs):
                    return None  # something of an earlier step
                operands.append(places.get(x, ("shared", x)))
            else:
                operands.append(x)
        attributes, position, width = node.attributes, None, None
        if op is select and isinstance(operands[1], Literal) and python_type(operands[1].value) is int:
            position, operands[1] = operands[1].value, None
        elif op is slice_ and (width := _width(bounds := node.attrs)) is not None:
            attributes, position = (("dim", bounds["dim"]),), bounds["start"]
        kind = tuple([(interpreter.avals[v], v in interpreter.requires_grad) for v in node.outputs])
        return StepNode(node, tuple(operands), attributes, with_grad, kind, position, width)  # type: ignore[arg-type]

    def _moves(self, step: LoopStep, following: LoopStep) -> list[int] | None:
        """How far the position of each node moves from step to step; None where that is not the same for all that are left."""
        distances = []
        for one, other in zip(step.nodes, following.nodes, strict=True):
            distance = 0
            if one.position is not None and other.position is not None:
                distance = other.position - one.position
                x, dim = self._interpreter.avals[other.node.operands[0]], other.node.attrs["dim"]  # type: ignore[index]
                end = other.position + distance * (self._count - 1 - self._at)
                # Else positions have changed their sign on the way.
                is_inside = 0 <= end <= x.shape[dim] - (other.width or 1)  # type: ignore[union-attr]
                if (distance and abs(distance) not in self._units) or not is_inside:
                    return None
            distances.append(distance)
        return distances

    def _read_along(self, step: LoopStep, following: LoopStep, variables: Mapping[str, Any]) -> ListReads | None:
        """What steps read of lists; None where that does not move as far in all that are left."""
        distances = []
        for one, other in zip(step.read, following.read, strict=True):
            distance = other.place - one.place
            end = other.place + distance * (self._count - 1 - self._at)
            if type(distance) is not int or abs(distance) not in self._units or not (other.place >= 0 and end >= 0):
                return None
            if not (has_stacked(items := variables[other.name]) and end < length_of(items)):
                return None
            distances.append(distance)
        return ListReads(self._interpreter, following.read, distances, variables)

    def _comparisons_agree(self, step: LoopStep, following: LoopStep) -> bool:
        """Whether all comparisons of counters come out in the steps that are left as they did in these two."""
        for one, other in zip(step.asked, following.asked, strict=True):
            distance = other.counter - one.counter
            if type(distance) is not int or abs(distance) not in self._units:
                return False
            ends = other.counter + distance, other.counter + distance * (self._count - 1 - self._at)
            low, high = ends if distance > 0 else ends[::-1]
            if other.symbol in ("==", "!="):
                if not (other.other < low or other.other > high):
                    return False
            elif not all(BINARY[other.symbol](end, other.other) is other.answer for end in (low, high)):
                return False
        return True

    # -- steps that do not run
    def _evaluate_skipped_steps(
        self, step: LoopStep, moves: list[int], reads: ListReads, now: LoopEntryState, variables: Mapping[str, Any]
    ) -> bool:
        """Do to tensors what all steps up to the last would do.  If one of them raises, it runs.  Returns whether that could be done."""
        self._interpreter.recorder.performed.append((CONSUMED, None))  # there is no way back from here
        begin, interpreter = self._at, self._interpreter
        before = now.seen.tensors[now.elements :]
        step = step.with_given(now.elements)
        with set_grad_enabled(state.grad_enabled and not step.takes_gradients):
            entered = self._emit_loop(step, moves, reads, now)
        evaluates = may_be_evaluated(step)
        if entered is None:
            if isinstance(self._elements, SymbolicTripCount) or not evaluates:
                return False
            entered = before
        after = entered
        if evaluates:
            repeating = EvaluatedStep(interpreter, step, moves, now.elements + len(reads))
            steps = range(self._at, len(self._elements) - 1)
            # What is in one piece is taken apart here, where that is recorded.
            given = [[*self._given(at), *reads.tensors(self._place(at) - begin + 1)] for at in steps]
            after = interpreter.evaluating(lambda: self._advanced(repeating, given, begin, entered, now.lists))
        for k in step.leaves:
            if after[k] is not before[k]:
                after[k].requires_grad_()
        interpreter.left_out += self._at - begin
        replaced = Replacement(interpreter, before, after)
        replaced.replace_contents(now.seen.containers)
        for position, effect in now.stores.items():
            if (new := replaced(effect.value)) is not effect.value:
                interpreter.recorder.effects.store_again(position, new)
        left = {name: replaced(variables.get(name, UNBOUND)) for name in self._names.stored}
        admitted = interpreter.recorder.sizes.from_library
        left.update((name, admitted(part.at(self._place(self._at)))) for name, part in self._kept.items())
        if isinstance(self._elements, SymbolicTripCount):
            numbers = self._carried.tensors(variables)
            left.update((name, interpreter.take_number(replaced(x))) for name, x in numbers.items())
        self.exit_values = (self._elements[self._at], *left.values())
        self._close()
        return True

    def _emit_loop(self, step: LoopStep, moves: list[int], reads: ListReads, now: LoopEntryState) -> list[Tensor] | None:
        """Have one node do all steps but the last two, if a loop can.  Returns what the first step that it has left begins with."""
        given, last = now.elements + len(reads), self._count_of_last_steps
        count = self._count - (last + self._at)
        tensors = [*now.seen.tensors[: now.elements], *reads.tensors(0), *now.seen.tensors[now.elements :]]
        growing = [grown for grown, made in zip(now.lists, step.appended, strict=True) if made]
        has_places = any(grown.has_places for grown in growing)
        if not all(grown.is_private for grown in growing) or (has_places and not self._may_be_unrolled(step)):
            return None
        row_major = [
            not made or grown.newest()._array.flags.c_contiguous for grown, made in zip(now.lists, step.appended, strict=True)
        ]
        items = [*self._items, *range(now.elements, given)]
        listed = [*reads.listed, *(self._elements.list_tensors if isinstance(self._elements, SymbolicTripCount) else ())]
        loop = StepsAsLoop(self._interpreter, step, moves, tensors, given, row_major, items, listed)
        if not loop.is_possible or (any(grown.is_read for grown in now.lists) and loop.appends_twice):
            return None
        if has_places and (loop.appends_slices or loop.appends_what_enters):
            return None
        elements: Sequence[SlicedInput | SliceRequest] | None
        if not isinstance(self._elements, SymbolicTripCount):
            elements = self._slices(now.elements, count) if count >= _FEWEST_LOOPED else None
        elif count < 1:
            elements = None
        else:
            elements = self._elements.slices(self._at)
        slices = None if elements is None else slices_of([*elements, *reads.wanted(count)])
        left = None if slices is None else loop.run(slices, count)
        if slices is None or left is None:
            return None
        ends, added = left
        if has_places:
            once = EvaluatedStep(self._interpreter, *without_guards(step, moves), given).evaluate
            begins = tensors[given:]
            carried = [k - given for k in loop.carried]
            of_loop = LoopedSteps(once, slices, begins, carried, loop.left, loop.collected, count, loop.is_reverse)
            added = with_tape_positions(added, UnrolledItems(self._interpreter, of_loop))
        for grown, more in zip(now.lists, added, strict=True):
            grown.extend(more)
        self._at = len(self._elements) - last
        return [ends.get(k, x) for k, x in enumerate(tensors)][given:]

    @property
    def _count_of_last_steps(self) -> int:
        """How many steps no node stands for at the end."""
        return self._elements.last if isinstance(self._elements, SymbolicTripCount) else LAST

    def _may_be_unrolled(self, step: LoopStep) -> bool:
        """Whether the steps that a node stands for can be made anew, should an item that they append be looked at; and whether those that
        the next loop begins with will not be among them."""
        return (
            isinstance(self._elements, SymbolicTripCount)
            and self._at == self._elements.first - 1
            and not any(a.node.op.kind is Kind.RANDOM or a.node.op.effect is Effect.IN_PLACE for a in step.nodes)
            and not self._interpreter.recorder.keeps_items
        )

    def _slices(self, elements: int, count: int) -> list[SlicedInput] | None:
        """The tensors among the elements of so many steps from this one on, as slices; None where they are none that lie evenly."""
        if not elements:
            return []
        interpreter = self._interpreter
        views: dict[int, tuple[int, Any, int]] = {}  # a view -> what it is a view of, how, and at which place
        for node in interpreter.nodes:
            if node.op is select and isinstance(node.operands[1], Literal) and type(node.operands[1].value) is int:
                views[node.outputs[0]] = node.operands[0], node.attrs["dim"], node.operands[1].value  # type: ignore[assignment]
        found = []
        for column in zip(*map(self._given, range(self._at, self._at + count)), strict=True):
            seen = [views.get(interpreter.values[id(x)]) for x in column]
            known = [x for x in seen if x is not None]
            moves = {b[2] - a[2] for a, b in pairwise(known)}
            if len(known) < len(seen) or len({x[:2] for x in known}) > 1 or len(moves) > 1 or 0 in moves:
                return None
            base, dim, at = known[0]
            (distance,) = moves
            found.append(SlicedInput(interpreter.defined[base], dim, at, distance, creation_order(column[0])))
        return found

    def _advanced(
        self, repeating: EvaluatedStep, given: list[list[Tensor]], begin: int, found: list[Tensor], lists: list[AppendedList]
    ) -> list[Tensor]:
        """What is found in the place of `found` at the beginning of the first step that has to run.  given: the elements of each step, and
        what it reads of lists."""
        end = len(self._elements) - 1
        for at, elements in zip(range(self._at, end), given, strict=True):
            try:
                found, added = repeating.evaluate(self._place(at) - begin + 1, [*elements, *found])
            except Exception as error:
                if is_foreign(error):
                    raise
                self._at = at
                return found
            for grown, more in zip(lists, added, strict=True):
                grown.extend(more)
        self._at = end
        return found


def _is_integer_from_outside(x: Any) -> bool:
    """Whether this is an integer that the program of each call is given."""
    return is_symbolic(x) and not is_post_program(x) and type(plain(x)) is int


def _width(bounds: Mapping[str, Any]) -> int | None:
    """How many elements a slice has, `x[:, t : t + 3]`; None where that is not the same in all calls, there are none, or they are not side
    by side."""
    start: Any = bounds["start"]
    if python_type(start) is not int or bounds["step"] != 1:
        return None
    width = bounds["stop"] - start
    return width if type(width) is int and width > 0 else None
