"""Loops whose steps take different paths, as one node of the graph: records each path once, and runs the steps.

A function whose loop branches differently from step to step is recorded again with the loop outlined (syntax/outlined_loops.py).
Then each step is a call of a function:

1. What the step is given stands in *slots* (path_tree.py): tensors and numbers of the variables that steps assign to, the element,
   states of generators.
2. If one of the paths known so far serves the step, the nodes of that path compute what it leaves (path_walk.py); Python does not run.
3. Else the step runs in Python, on stand-ins of what is in the slots, and is recorded.  Its nodes are taken back and become a path of
   the tree (step_paths.py).
4. After the last step one node is appended, which stands for all steps.  Guards follow it: how the loop has ended, of which kinds
   variables are, and which objects they hold.

A step that branches several times runs part by part (syntax/step_parts.py) once it has taken many paths.  Each part is a step to all of
the above, but that the element stays and that the next part follows.  Where parts cannot be carried on as steps are, the recording stops,
and later ones have the step as a whole.

A step may compute, read, draw, make output (logged_calls.py), store in places that it has in its source (step_places.py), and append items
to lists (appended_items.py), and nothing else.  It leaves tensors, numbers, and tuples of such; a variable may be of several kinds
(varying_kinds.py), hold a view of a row (row_views.py), or a leaf that the step has made (carried_leaves.py).  A first step that leaves
other kinds than the loop was given stays outside of the node.  Where a step does anything else, the recording stops with the reason, and
the rest of the call is as in eager mode (stopped_loop.py).

Nested loops are nodes of the path of a step, with a tree of their own; runs of one loop in different steps share it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracejit.autograd.tape import next_sequence
from tracejit.capture.appended_items import AppendedItems
from tracejit.capture.call_sites import user_line
from tracejit.capture.carried_leaves import CarriedLeaves
from tracejit.capture.carried_structures import CarriedStructures, Structure
from tracejit.capture.defects import stop_for_defect
from tracejit.capture.found_places import GradPlace
from tracejit.capture.freed_graphs import FreedGraphs
from tracejit.capture.gathered_items import GatheredItems
from tracejit.capture.handlers.effects import StepChanges
from tracejit.capture.handlers.stand_ins import plain
from tracejit.capture.handlers.symbols import is_symbolic
from tracejit.capture.item_objects import slots_with_copies, slots_with_items, why_not_rows
from tracejit.capture.logged_calls import LoggedCalls
from tracejit.capture.loop_places import LoopPlaces
from tracejit.capture.loop_result import LoopResult
from tracejit.capture.loop_steps import LIVE_IN, SHARED, RecordingPoint, StepValue, outside_value
from tracejit.capture.path_body import body_of, first_parts
from tracejit.capture.path_tree import (
    GO,
    OBJECTS,
    OF_SHARED,
    Leaf,
    NoBody,
    PathTree,
    Slot,
    TripCount,
    identity,
)
from tracejit.capture.path_walk import PathWalk
from tracejit.capture.python_steps import plain_elements, run_steps
from tracejit.capture.reached_lists import ReachedLists
from tracejit.capture.reasons import make
from tracejit.capture.row_views import RowView
from tracejit.capture.snapshots import Snapshot
from tracejit.capture.step_elements import Elements, GivenElement, Length, header_value, step_elements
from tracejit.capture.step_paths import (
    HOLDS_STATE,
    NUMBERS,
    Carried,
    Refused,
    StepOutcome,
    carried_form,
    check_tensor,
    describe_path,
    list_form,
    number_tensor,
    number_value,
    put_together,
    reachable,
    tensor_aval,
    variable_keys,
)
from tracejit.capture.step_places import StepPlace
from tracejit.capture.steps_on_tape import StepsOnTape
from tracejit.capture.stopped_loop import StoppedLoop
from tracejit.capture.syntax.loops import UNBOUND
from tracejit.capture.syntax.outlined_loops import (
    NO_STEP,
    PROCEEDS,
    RAISES,
    WAYS,
    WHILE,
    OutlinedLoop,
    StepPart,
    function_of_step,
)
from tracejit.capture.syntax.pieces import CONTINUES, RETURNS
from tracejit.capture.varying_kinds import VaryingKinds
from tracejit.core.aval import Aval
from tracejit.core.dtypes import int64
from tracejit.core.floating import quietly
from tracejit.core.op import REGISTRY
from tracejit.core.symbolic import has_symbols
from tracejit.core.weak_table import WeakTable
from tracejit.ir.graph import Graph, Node
from tracejit.ops.movement.views import detach
from tracejit.tensor import Tensor
from tracejit.tensor.base import storage_of, wrap

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder
    from tracejit.capture.tensors import RecordingInterpreter

__all__ = ["LoopRun", "run_outlined_loop"]

_MOST_FIRST: Final = 2
"""Steps that may stay outside of the node, at most."""
_MOST_NODES: Final = 30_000
"""Operations of all bodies that a recording makes, at most: one is made for each path that is found."""
_MOST_RESTARTS: Final = 4
"""How often the paths may be forgotten because one of them does not go with the others, at most."""
_MOST_WHOLE: Final = 2
"""A step that can be divided into parts is divided when it has more paths than this."""

_divided: WeakTable[dict[int, bool]] = WeakTable()
"""Codes of functions -> by lines of their loops: True if the step runs in parts, False if it cannot."""


def run_outlined_loop(
    interpreter: RecordingInterpreter | None,
    loop: OutlinedLoop,
    step: FunctionType,
    parts: Sequence[FunctionType],
    pattern: Any,
    header: tuple[Any, ...],
    values: tuple[Any, ...],
    joined: tuple[bool, ...],
) -> tuple[int, Any]:
    """Run an outlined loop.

    interpreter: None where nothing is recorded.  step: the function of the step.  parts: those of its parts.  pattern, header: of what a
    `for` loop goes over (step_elements.py), or WHILE and ().  values: of the live-in variables.  joined: for each list
    that gets items, whether it is private (syntax/loops.py) and nothing reads an item.  Returns (how the loop has ended, what the live-out
    variables hold, then the items of each list as a list), or (RETURNS, the result)."""
    variables = dict(zip(loop.live_ins, values, strict=True))
    if interpreter is None:
        return run_steps(loop, step, plain_elements(pattern, header), variables)
    recorder = interpreter.recorder
    run = LoopRun(interpreter, loop, step, parts, variables, joined)
    recorder.native_depth += 1  # Python code that runs from here on is not the program's, but for steps
    try:
        why = run.begin(pattern, header)
        if not why and run.is_worth_a_node():
            return run.steps()
        if loop.branches and not run.is_nested:
            return run.stopped.refuse_elements(partial(plain_elements, pattern, header), why)
    finally:
        recorder.native_depth = run.depth
    iterable = header_value(pattern, iter(header), lambda f, given, named: recorder.calls.call(f, tuple(given), named))
    return run_steps(loop, partial(run.step, step), recorder.iteration.iterate(iterable), variables)


class LoopRun:
    """One run of a loop that is recorded.

    tree: the paths that steps have taken.  For each slot of the tree: `arrays`, what it holds; `objects`, for tensors, a number that
    says which object it is; `entered`, the value of the graph that the loop is given for it, None of a slot that only steps fill.
    begun: the tensors that the loop was given, by their numbers."""

    def __init__(
        self,
        interpreter: RecordingInterpreter,
        loop: OutlinedLoop,
        step: FunctionType,
        parts: Sequence[FunctionType],
        variables: dict[str, Any],
        joined: tuple[bool, ...],
    ) -> None:
        self.interpreter, self.recorder = interpreter, interpreter.recorder
        self.loop, self.function, self.joined = loop, step, joined
        self.parts = [StepPart(loop.code, loop.live_ins, loop.live_outs)]  # of the step, which run one after another
        self.functions: Sequence[FunctionType] = [step]  # of these
        self.part = 0  # which of them is next
        self._functions_of_parts = parts
        self.variables = variables
        self.line = user_line()
        self.elements: Elements | None = None
        self.gathered = GatheredItems(interpreter)
        self.uncounted: set[int] = set()  # ids of tensors that steps write to through `.data`
        self.sets_found: frozenset[int] = frozenset()  # the ids of sets that the step finds
        self.containers_found: frozenset[int] = frozenset()  # those of lists, dictionaries and instances
        self.containers_after: frozenset[int] = frozenset()  # what is found after it
        self.element: Any = None  # the number of the next step's
        self.trips: TripCount | None = None
        self.first = self.restarts = self.made = 0
        self.carried: dict[str, Carried] = {}  # by variables; empty until all slots are filled
        self.has_paths = False  # whether any step was recorded
        self.leaves = CarriedLeaves(self)
        # (graph of a step, places of its inputs, what it carries); None until all parts have run.
        self.body: tuple[Graph, list[StepValue], list[StepValue]] | None = None
        self.tree = PathTree(None, [], None)  # without slots, for a loop that is refused before they are known
        self.walk: PathWalk
        self.element_given = GivenElement(None)  # to the part that has run last in Python
        self.depth = self.recorder.native_depth
        self.loops_around = [*interpreter.loops_around]
        self.is_nested = bool(self.loops_around)
        self.items = AppendedItems(self)
        self.calls = LoggedCalls(self)
        self.reached = ReachedLists(self)
        self.places = LoopPlaces(self)
        self.structures = CarriedStructures(self)
        self.freed = FreedGraphs(self)
        self.kinds = VaryingKinds(self)
        self.stopped = StoppedLoop(self)

    def is_held(self, k: int) -> bool:
        """Whether it matters which objects the items of a list are."""
        is_joined = k < len(self.joined) and self.joined[k]
        return k in self.items.numbers and not is_joined and self.tree.item_kinds[k][1] is Tensor

    def step(self, function: FunctionType, *given: Any) -> Any:
        """Run the step, or a part of it, in Python."""
        branches = self.recorder.branches
        may_give_up, branches.may_give_up = branches.may_give_up, False
        self.interpreter.loops_around.append(self)
        try:
            return self.of_program(lambda: self.recorder.calls.call(function, given, {}))
        finally:
            self.interpreter.loops_around.pop()
            branches.may_give_up = may_give_up

    def of_program(self, action: Callable[[], Any]) -> Any:
        """The result of what is the program's own, in the middle of what is not."""
        recorder = self.recorder
        depth, recorder.native_depth = recorder.native_depth, self.depth
        try:
            return action()
        finally:
            recorder.native_depth = depth

    # -- what the loop goes over
    def begin(self, pattern: Any, header: tuple[Any, ...]) -> str:
        """Note what the loop goes over.  Returns why it cannot be what a node goes over; "" if it can."""
        if pattern == WHILE:
            return ""
        length = Length.ANY
        if self.loop.items or not self.loop.branches:
            length = Length.GUARDED if self.is_nested or not self.loop.branches else Length.GUARDED_UNTIL_IT_VARIES
        try:
            self.elements = elements = step_elements(self.recorder, pattern, iter(header), self.gathered, length)
        except Refused as refusal:
            return str(refusal)
        if elements is None:
            return "it goes over neither a range, nor a tensor, nor a list or tuple"
        self.element = elements.start
        self.trips = TripCount(elements.step, 0 if is_symbolic(elements.stop) else elements.stop)
        return ""

    def is_worth_a_node(self) -> bool:
        """Whether the steps branch, or values decide how many there are."""
        return self.loop.branches or self._count() is None

    def _has_step(self) -> bool:
        """Whether there is a step; guarded, where the program decides it."""
        if self.trips is None or self.elements is None:
            return True
        operators = self.recorder.operators
        return operators.truth(operators.binary("<" if self.trips.step > 0 else ">", self.element, self.elements.stop))

    def _count(self) -> Any:
        """How many steps there are, if no value of the program decides it: an integer, or a size."""
        return None if self.elements is None else replace(self.elements, start=self.element).count(self.recorder)

    # -- slots
    def steps(self) -> tuple[int, Any]:
        """Run all steps."""
        if not self._has_step():
            return NO_STEP, None
        try:
            self._fill_slots()
        except Refused as refusal:
            return self.stopped.refuse(str(refusal), None)
        while True:
            try:
                self._divide()
                with self.recorder.sizes.paused():  # these steps have the sizes of this call
                    ended = None if not self.has_paths else self.recorder.unwatched(partial(quietly, self._follow))
            except Exception as error:
                stop_for_defect(self.recorder, error)
                self.kinds.settle()
                return self.stopped.steps_in_python(self.stopped.remaining(done=False))
            self.kinds.settle()
            result = self._after(ended) if ended is not None else self._record_step()
            if result is not None:
                return result

    @property
    def is_divided(self) -> bool:
        """Whether parts of the step run."""
        return len(self.parts) > 1

    @property
    def live_outs(self) -> Sequence[str]:
        """The variables that the current part leaves."""
        return self.parts[self.part].live_outs

    def _divide(self) -> None:
        """Have the parts of the step run instead of it, if it has many paths.  The steps so far are made again from what the loop was
        given.  A nested loop is divided in all its runs or in none: other runs have the same paths."""
        code, line = function_of_step(self.loop.code), self.loop.line
        known = (_divided.get(code) or {}).get(line)
        before = self.interpreter.divided_before.setdefault((code, line), known)
        many = self.tree.paths > _MOST_WHOLE
        if self.is_divided or not self.loop.parts or known is False or self.calls.are_any:
            return
        if self.is_nested and not before:
            if many:
                self._note_divided(True)  # in the next recording
            return
        if not (many or (known and (self.made or self.is_nested))):
            return
        self._note_divided(True)
        if self.made:
            self._begin_again()
        self.parts, self.functions = [*self.loop.parts], self._functions_of_parts
        self.tree.clear(len(self.parts))
        self.unbound |= self.loop.passed
        self.variables.update(dict.fromkeys(self.loop.passed, UNBOUND))
        self.walk.note_path()

    def _note_divided(self, is_divided: bool) -> None:
        """Note whether the step of this loop runs in parts."""
        code = function_of_step(self.loop.code)
        if (known := _divided.get(code)) is None:
            known = _divided[code] = {}
        known[self.loop.line] = is_divided

    def _begin_again(self) -> None:
        """Forget all steps of the node."""
        for tensor in self.states.values():
            tensor._array[...] = self.states_before[id(tensor)]
        self.places.restore()
        self.variables = dict(self.variables_before)
        self.items.steps.clear()
        self._fill_slots()

    def stop(self, why: str) -> None:
        """Stop the recording, since the loop cannot be a node."""
        self.recorder.stop("outlined_loop", f"the loop at {self.line}: {why}")
        self.note_stop()

    def note_stop(self) -> None:
        """The recording has stopped in a step.  If that is divided, whole steps may do better: the next recording has these."""
        divided = [run for run in (*self.loops_around, self) if run.is_divided]
        for run in divided:
            run._note_divided(False)
        if divided and (reason := self.recorder.reason) is not None and reason.code not in ("raised", "divided_step"):
            self.recorder.reason = make("divided_step", reason.message, reason.where)

    def _fill_slots(self) -> None:
        """Put what the next step is given into slots.  Raises Refused."""
        interpreter, loop = self.interpreter, self.loop
        self.variables_before = dict(self.variables)
        slots: list[Slot] = []
        tensors: list[Tensor] = []
        self.count = self._count()
        self.kinds = VaryingKinds(self)
        self.carried = {}
        carried: dict[str, Carried] = {}
        self.leaves.begun = {}
        self.unbound: set[str] = set()  # live-in variables without a value, until a step has given them one
        if self.trips is not None:
            slots.append(Slot(("element",), Aval((), int64), int))
            tensors.append(number_tensor(interpreter, self.element, int))
        self.variables.update(self.places.find())
        for name in [*[name for name in loop.live_ins if name in loop.live_outs], *self.places]:
            value = self.variables[name]
            if name in loop.detached and isinstance(value, Tensor) and value.requires_grad:
                value = detach(value)
            leaves: list[Any] = []
            if (name in loop.only_in_place and isinstance(value, Tensor)) or self.places.is_constant(name, value):
                continue
            if value is UNBOUND:
                self.unbound.add(name)
                continue
            is_list = name in self.places and type(value) is list
            form = list_form(self.recorder, value, leaves) if is_list else carried_form(value, leaves)
            if form is None or self.structures.may_be_told_apart(name, value):
                continue
            carried[name] = Carried(form, [*range(len(slots), len(slots) + len(leaves))])
            for key, x in zip(variable_keys(name, len(leaves)), leaves, strict=True):
                slot, tensor = self._slot_for(key, x)
                slots.append(slot)
                tensors.append(tensor)
                if slot.holds is Leaf:
                    self.leaves.begun[len(slots) - 1] = x
        key = self.function.__code__, loop.line
        self.tree = PathTree(key, slots, self.trips, self.count, self.read_after, self.joined, self.is_nested)
        if self.elements is not None and self.trips is not None and is_symbolic(self.elements.stop):
            value = number_value(interpreter, self.elements.stop)
            self.tree.trips = TripCount(self.trips.step, self.tree.shared_place(value, (interpreter.avals[value], False)))
        given = {*loop.live_ins, *self.places} - carried.keys() - self.unbound
        self.fixed = {name: x for name, x in self.variables.items() if name in given}
        self.entered: list[int | None] = [interpreter.value_of(x) for x in tensors]
        self.arrays = [x._array for x in tensors]
        self.grads = [slot.requires_grad for slot in slots]  # of what they hold now
        self.given = tensors  # what the slots hold at first
        self.outside: dict[Any, Any] = {}  # what steps share, where gradients go through the loop
        self.body, self.has_paths = None, False
        self.walk = PathWalk(self.tree, self._shared)
        self.tape = StepsOnTape(self)
        first: dict[int, int] = {}
        objects = [self.leaves.begun.get(k, x) for k, x in enumerate(tensors)]
        self.objects = [first.setdefault(id(x), k) if self.tree.is_object(k) else -1 for k, x in enumerate(objects)]
        self.begun: dict[int, Tensor] = {k: objects[k] for k in self.objects if k >= 0}
        self.begun_objects = [*self.objects]
        self.made = 0  # steps
        self.template: Any = None
        self.states: dict[int, Tensor] = {}  # by slots
        self.states_before = {id(x): x._array.copy() for x in self._drawn_from()}
        self.contents_before: dict[int, np.ndarray[Any, Any]] = {}  # of what the last step was the first to write to
        self.item_roots: list[Tensor] = []  # those of which items are views
        self.viewed: list[Tensor] = []  # those of whose parts steps have left copies
        for name, x in [*interpreter.written_in_steps.get(self.function.__code__, ())]:  # runs of a loop have the same slots
            x = self.fixed.get(name) if name else x
            if isinstance(x, Tensor) and (value := interpreter.value_of(x)) is not None:
                self.add_written(x, value, id(x) in self.uncounted)
                self.arrays.append(x._array.copy())
                self.objects.append(-1)
                self.grads.append(False)
        self.carried = carried
        if why := self.leaves.why_not_begin():
            raise Refused(why)

    def _slot_for(self, key: tuple[Any, ...], x: Any) -> tuple[Slot, Tensor]:
        """A slot for a tensor or a number of a variable, and the tensor of what it holds at first.  Raises Refused."""
        if isinstance(x, Tensor):
            check_tensor(self.interpreter, x, key[1])
            requires, aval = x.requires_grad, tensor_aval(self.interpreter, x)
            if requires and key[1] in self.leaves.variables:
                return Slot(key, aval, Leaf), detach(x)
            return Slot(key, aval, Tensor, requires, requires, requires and x.is_leaf), x
        holds = type(plain(x))
        return Slot(key, Aval((), NUMBERS[holds]), holds), number_tensor(self.interpreter, x, holds)

    def add_written(self, x: Tensor, value: int, is_uncounted: bool) -> int:
        """Give a tensor from before the loop, which steps write to, a slot; one in a variable is known by the name of that.  value:
        what it holds before the step.  is_uncounted: whether these writes do not count as changes."""
        k = len(self.tree.slots)
        if is_uncounted:
            self.uncounted.add(id(x))
        if id(x) not in self.states_before:
            self.states_before[id(x)] = self.contents_before[id(x)] if id(x) in self.contents_before else x._array.copy()
        self.interpreter.note_contents(x)
        name = next((name for name, y in self.fixed.items() if y is x), "")
        self.tree.slots.append(Slot(("state", name or id(x)), tensor_aval(self.interpreter, x), HOLDS_STATE))
        self.states[k] = x
        if value in self.tree.shared:  # steps before have read what this one writes to
            self.tree.replace_place((SHARED, self.tree.shared.index(value)), (LIVE_IN, k))
        self.entered += [None] * (k - len(self.entered))
        self.entered.append(value)
        known = self.interpreter.written_in_steps.setdefault(self.function.__code__, [])
        if not any(name == other if name else x is y for other, y in known):
            known.append((name, x))
        return k

    def value_of_slot(self, k: int, known: dict[int, Tensor]) -> Any:
        """What a slot holds, as a plain value.  known: tensors that have been made, by the numbers of objects."""
        holds = self.tree.slots[k].holds
        if holds in NUMBERS:
            return holds(self.arrays[k])
        number = self.objects[k]
        if number not in known:
            before = self.real_object(number)
            if before is None and holds is Leaf:
                before = wrap(self.arrays[k].copy()).requires_grad_()
            elif before is None:
                before = self.tape.tensors()[k] if self.grads[k] else self.freed.with_position(k, wrap(self.arrays[k]))
            known[number] = before
        return known[number]

    def object_from_before(self, number: int) -> Tensor | None:
        """The object of this number, if the loop was given it or steps read it; None of one that a step has made."""
        if number <= OF_SHARED:
            return self.interpreter.defined[self.tree.objects[OF_SHARED - number]]
        return self.begun.get(number)

    def real_object(self, number: int) -> Tensor | None:
        """The same for code that is not recorded: in a step of another loop, what a stand-in of that stands for."""
        return self.recorder.stands_for(self.object_from_before(number))  # type: ignore[no-any-return]

    def store_states(self) -> None:
        """Bring generators to the states that the steps have left."""
        for k, tensor in self.states.items():
            tensor._array[...] = self.arrays[k]

    # -- steps by known paths
    def _follow(self) -> int | None:
        """Make steps by the paths that are known.  Returns how the last one has ended; None where they do not serve the next one."""
        while (left := self.walk.step(self.arrays, self.objects, self.grads, self._first_object(), self.part)) is not None:
            self.arrays, self.objects, self.grads = left.arrays, left.objects, left.grads
            self.items.note_step(left.items)
            self.calls.make(left.items)
            if left.way == PROCEEDS:
                self.part += 1
                continue
            self.part = 0
            if left.way != CONTINUES or (self.trips is not None and not self._is_inside()):
                return left.way
            self.made += 1
        return None

    def _first_object(self) -> int:
        """The number of the first object that the step makes, or its part."""
        return OBJECTS * (1 + self.made * len(self.parts) + self.part)

    def _shared(self, k: int) -> Any:
        x = outside_value(self.interpreter, self.tree.shared[k])
        return x._array if isinstance(x, Tensor) else x._value

    # -- a step in Python
    def _record_step(self) -> tuple[int, Any] | None:
        """Make a step in Python, and add its path.  Returns what `_after` does."""
        interpreter, recorder = self.interpreter, self.recorder
        try:
            self.store_states()
            outer = RecordingPoint.of(interpreter)
            guarded = recorder.numbers_guarded()
            states = {id(x): interpreter.values[id(x)] for x in (*self._drawn_from(), *self.states.values())}
            stand_ins = self._stand_ins()
        except Exception as error:
            stop_for_defect(recorder, error)
            return self.stopped.steps_in_python(self.stopped.remaining(done=False))
        recorder.before_end.append(partial(self.stopped.hand_over_stored, stand_ins))
        try:
            return self._recorded(outer, stand_ins, states, guarded)
        finally:
            recorder.before_end.pop()

    def _recorded(
        self, outer: RecordingPoint, stand_ins: list[Tensor], states: dict[int, int], guarded: frozenset[Any]
    ) -> tuple[int, Any] | None:
        """Make a step that is given these stand-ins."""
        interpreter, recorder = self.interpreter, self.recorder
        try:
            self.leaves.begin_step(stand_ins)
            begin = RecordingPoint.of(interpreter)
            live_ins = [interpreter.values[id(x)] for x in stand_ins]
            self.places.enter(stand_ins)
            entered = interpreter.journal.mark()
            self.calls.begin_step()
            before = self.reachable()
            if not isinstance(before, str):
                self.sets_found, self.containers_found = before.sets, frozenset(map(id, before.containers))
            self.reached.begin_step(before)
            self.gathered.stand_ins.clear()
            given = self._arguments(stand_ins)
        except Exception as error:
            stop_for_defect(recorder, error)
            return self.stopped.steps_in_python(self.stopped.remaining(done=False))
        asked_before, interpreter.asked_for_grad = interpreter.asked_for_grad, False
        around, interpreter.contents_before = interpreter.contents_before, self.contents_before
        before_write, interpreter.before_write = interpreter.before_write, self.tape.before_write
        self.contents_before.clear()
        changes_around, recorder.effects.step_changes = recorder.effects.step_changes, StepChanges(begin.values, next_sequence())
        try:
            named, values = self.step(self.functions[self.part], *given)
        except BaseException as error:
            recorder.stop("outlined_loop", f"the loop at {self.line}: a step has raised an error")
            originals = self.stopped.originals(stand_ins)
            self.stopped.hand_over_states(stand_ins, originals)
            error.args = self.stopped.original(error.args, originals, set())
            raise
        finally:
            interpreter.contents_before, interpreter.before_write = around, before_write
            self.places.found.changes, recorder.effects.step_changes = recorder.effects.step_changes, changes_around
            if changes_around is not None:
                changes_around.add(self.places.found.changes)
            self.tree.asks_for_grad = self.tree.asks_for_grad or interpreter.asked_for_grad
            interpreter.asked_for_grad = interpreter.asked_for_grad or asked_before
            if around is not None:
                around.update({**self.contents_before, **around})
        way = WAYS.index(named)
        if way == RAISES:
            recorder.stop("raised", f"{type(values[-1]).__name__} in a step of the loop at {self.line}")
            values[-1].args = self.stopped.original(values[-1].args, self.stopped.originals(stand_ins), set())
        if recorder.stopped:
            self.note_stop()
            return self.stopped.go_on(way, values, stand_ins)
        left = self.places.values_after_step()
        try:
            if isinstance(before, str):
                raise Refused(before)
            outcome = describe_path(self, begin, entered, self.leaves.live_ins(live_ins), way, values, left, before)
            if outcome.new_leaves:
                self._note_leaves(outcome.new_leaves)
            if outcome.stays:
                self.places.found.note(outcome.new_places)
                return self._stay_outside(stand_ins, live_ins, way, values, left, [place for place, _ in outcome.new_places])
            if outcome.new_lists or outcome.new_places:
                self.reached.begin(outcome.new_lists, are_certain=True)
                self.places.found.take(outcome.new_places)
                self._restore_written()
            if outcome.new_leaves or outcome.new_lists or outcome.new_places:
                self._take_back(outer, stand_ins, live_ins, states, guarded)
                return self._once_more()
            may_stay = self.may_stay_outside and way != RETURNS and (way == CONTINUES or not self.items.numbers)
            stays = self._reads_twice(outcome) or self.leaves.are_from_outside or outcome.has_views_of_leaf
            if may_stay and ((outcome.changes and way == CONTINUES) or stays):
                return self._stay_outside(stand_ins, live_ins, way, values, left)
            if way == PROCEEDS and self.element_given.has_more_than_contents:
                raise Refused("a part leaves something in what the loop goes over")
            if outcome.has_views_of_leaf:
                raise Refused("a step leaves a view of a leaf that was made before the loop")
            if outcome.changes:
                raise Refused(f"{outcome.changes!r} holds other kinds of things after some steps")
            self._add_path(outcome)
            self._take_back(outer, stand_ins, live_ins, states, guarded)
        except (Refused, NoBody) as refusal:
            self.stop(str(refusal))
            return self.stopped.go_on(way, values, stand_ins)
        except Exception as error:
            stop_for_defect(recorder, error)
            return self.stopped.go_on(way, values, stand_ins)
        self._assign(outcome)
        self.kinds.settle()
        return self._after(way)

    def _note_leaves(self, names: Collection[str]) -> None:
        """Note that these variables hold leaves.  Raises Refused where the steps so far cannot be made again."""
        if self.is_divided or self.calls.are_any or (self.is_nested and self.made):
            raise Refused(f"{min(names)!r} is a leaf that requires grad after some steps alone")
        self.leaves.variables.update(names)

    def _restore_written(self) -> None:
        """Give what the last step has written to the contents that it had before."""
        before = self.contents_before
        for x in {id(x): x for x in self.interpreter.defined.values() if id(x) in before}.values():
            x._array[...] = before[id(x)]

    def _once_more(self) -> tuple[int, Any] | None:
        """Begin again, with more leaves or lists.  Returns what `_after` does."""
        self.made = 0
        try:
            self._begin_again()
        except Refused as refusal:
            return self.stopped.refuse(str(refusal), None)
        return None

    @property
    def may_stay_outside(self) -> bool:
        """Whether the step that runs is a first one, which may stay outside of the node."""
        return not self.made and self.first < _MOST_FIRST and not self.is_divided

    def carry(self, name: str, form: Any, keys: Sequence[Any]) -> None:
        """Have a variable hold what is in the slots with these keys."""
        by_key = {slot.key: k for k, slot in enumerate(self.tree.slots)}
        self.carried[name] = Carried(form, [by_key[key] for key in keys])

    @property
    def read_after(self) -> Collection[str]:
        """The variables, and places, that are read after the loop."""
        return self.loop.read_after | {*self.places}

    def reachable(self, without: Collection[int] = ()) -> Snapshot | str:
        """What a step finds besides slots, or why that cannot be compared.  without: positions of further effects to leave out."""
        return reachable(self.recorder, self.function, self.fixed, {*self.positions, *without})

    @property
    def positions(self) -> set[int]:
        """The positions of the stores in places, and of calls for output, among the effects."""
        return self.places.positions | self.calls.positions

    def _reads_twice(self, outcome: StepOutcome) -> bool:
        """Whether a step reads a tensor that requires grad both as what it is given and from before the loop, or has it in two slots:
        what arrives there is added up in the order of the step."""
        given = [entered for entered, requires in zip(self.entered, self.grads, strict=False) if requires]
        if any(type(x) is Tensor and self.interpreter.values.get(id(x)) in given for x in self.fixed.values()):
            return True
        read = {x[1] for a in outcome.path for x in a.operands if type(x) is tuple and x[0] == SHARED}
        return len({*given}) < len(given) or not read.isdisjoint(given)

    def _drawn_from(self) -> list[Tensor]:
        """The states of generators that the recording has a value for."""
        interpreter = self.interpreter
        return [interpreter.defined[v] for x in [*interpreter.states] if (v := interpreter.values.get(x)) is not None]

    def _stand_ins(self) -> list[Tensor]:
        """What a step is given for each slot: a new tensor, also where two slots hold one object, since they may hold two in other
        steps; and the states of generators."""
        result = [self.states[k] if k in self.states else wrap(array) for k, array in enumerate(self.arrays)]
        self.tape.begin_step()
        for k, x in enumerate(result):
            if k in self.tape.live_ins:
                x._requires_grad, x._node, x._index = True, self.tape.live_ins[k], 0
            shape = self.tree.slots[k].aval.shape
            self.interpreter._define(x, shape=shape if has_symbols(shape) else None)
        self.recorder.keep += result
        known: dict[int, Tensor] = {}
        for k, x in enumerate(result):
            if self.tree.is_object(k) and self.tree.slots[k].holds is not Leaf:
                before = self.real_object(self.objects[k])
                real = known.setdefault(self.objects[k], x if before is None else before)
                if x._array is real._array:  # what it saves on the tape is changed where the memory is
                    x._storage = storage_of(real)
                self.recorder.loop_stand_ins[id(x)] = x, real
        return result

    def _arguments(self, stand_ins: list[Tensor]) -> list[Any]:
        """The arguments of the step."""
        recorder, given = self.recorder, []
        self.structures.begin_step()
        self.kinds.take(stand_ins)
        define = recorder.extracted_numbers.define_element
        if self.elements is not None:
            number, at = define(stand_ins[0], int(self.arrays[0])), self.elements.at
            given.append(self.of_program(lambda: at(number)))
            self.element_given = GivenElement(given[0])
        for name in self.parts[self.part].live_ins:
            if name in self.carried:
                form, slots = self.carried[name]
                if type(form) is RowView:
                    given.append(stand_ins[slots[0]])
                    self.kinds.given[name] = stand_ins[slots[0]]
                    continue
                given.append(put_together(recorder, form, iter([self.given_of(k, stand_ins[k]) for k in slots])))
                if type(form) is Structure:
                    self.structures.note_given(given[-1])
            elif name in self.unbound - self.fixed.keys() and (k := self.slot_made(name)) is not None:
                given.append(self.given_of(k, stand_ins[k]))
            else:
                given.append(self.variables[name])
        return given

    def given_of(self, k: int, stand_in: Tensor) -> Any:
        """What a step is given of a slot."""
        holds = self.tree.slots[k].holds
        if holds is bool:
            return self.take(stand_in)
        if holds in NUMBERS:
            return self.recorder.extracted_numbers.define_element(stand_in, holds(self.arrays[k]))
        return self.leaves.given[k] if holds is Leaf else stand_in

    def slot_made(self, name: str) -> int | None:
        """The slot of a variable that had no value before the loop; None before a step has given it one."""
        return next((k for k, slot in enumerate(self.tree.slots) if slot.key == ("variable", name)), None)

    def _add_path(self, outcome: StepOutcome) -> None:
        """Add the path of a step to the tree.  Raises Refused or NoBody."""
        interpreter = self.interpreter

        def outside(x: StepValue) -> StepValue:
            if x[0] != SHARED:
                return x
            return self.tree.shared_place(x[1], (interpreter.avals[x[1]], x[1] in interpreter.requires_grad))

        def insert() -> str:
            return self.tree.insert(outcome.path, outcome.end, outside, self.part)

        why = insert()
        # Tensors may have become those of slots, or a nested loop is another one.  The paths of all steps are needed by the tape, and where
        # items may be other objects.
        needs_all = self.tree.has_gradients or self.items.from_before() or slots_with_items(self.tree, self.items.numbers)
        if why and self.restarts < _MOST_RESTARTS and not needs_all and not self.is_divided:
            self.restarts += 1
            self.tree.clear()
            why = insert()
        if why:
            raise Refused(why)
        holding = slots_with_copies(self.tree)
        for key in [self.tree.slots[k].key for k in sorted(holding)]:
            if key[0] != "variable":
                raise Refused("a step returns a view that a variable holds")
            if key[1] in self.read_after and key not in self.kinds.rows:
                raise Refused(f"{key[1]!r} becomes a view that another variable holds")
        held = [k for k in self.tree.item_kinds if self.is_held(k)]
        if why := why_not_rows(self.tree, held):
            if not self.items.may_have_numbers(held):
                raise Refused(why)
            self.tree.number_lists = self.items.number_lists(held)
        if self.is_nested and not all(map(self.tree.is_full, self.tree.columns)):
            raise Refused("some steps append to a list, or values decide how many steps do, in a loop in a loop")
        self.has_paths = True
        if not any(part.is_empty for part in self.tree.parts):
            _, graph, places = body_of(self.tree)
            interpreter.path_nodes += len(graph.nodes)
            if interpreter.path_nodes > _MOST_NODES:
                raise Refused("there are too many paths, or they are too long")
            self.body = graph, places, self.tree.carried()
        else:  # the parts so far have to go together
            first_parts(self.tree, next(k for k, part in enumerate(self.tree.parts) if part.is_empty))
        self.walk.note_path()
        self.items.set_columns(self.tree)
        if self.tree.has_gradients:
            self.outside.update({v: outside_value(interpreter, v) for v in self.tree.shared if v not in self.outside})

    def whole_body(self) -> tuple[Graph, list[StepValue], list[StepValue]]:
        """(the graph of a step, the places of its inputs, what it carries).  Raises NoBody."""
        return self.body or (*body_of(self.tree)[1:], self.tree.carried())

    def _take_back(
        self,
        outer: RecordingPoint,
        stand_ins: Sequence[Tensor],
        live_ins: Sequence[int],
        states: dict[int, int],
        guarded: frozenset[Any],
    ) -> None:
        """Take back what a step has recorded, but for what it has read."""
        interpreter, recorder = self.interpreter, self.recorder
        backward_ran = interpreter.backward_ran
        generators = {id(x) for x in self.states.values()} & {*interpreter.states}
        del interpreter.leaves[outer.leaves :]
        interpreter.gradients = outer.gradients
        interpreter.truncate(outer.mark)
        interpreter.path_trees = {v: x for v, x in interpreter.path_trees.items() if v < outer.values}  # ids are used again
        interpreter.loop_constants = {v for v in interpreter.loop_constants if v < outer.values}
        interpreter.backward_ran = backward_ran
        for number in generators:
            interpreter.states.add(number)
        recorder.keep_guarded(guarded)
        for x in stand_ins:
            value = interpreter.values.pop(id(x), -1)
            interpreter.defined.pop(value, None)
            interpreter.requires_grad.discard(value)
        interpreter.requires_grad.difference_update(live_ins)
        for k, x in self.states.items():
            entered = states.get(id(x), self.entered[k])
            assert entered is not None
            interpreter.values[id(x)] = entered
            interpreter.defined[entered] = x
        recorder.extracted_numbers.forget_lost_tensors()

    def _assign(self, outcome: StepOutcome) -> None:
        """Put what a step has left into slots."""
        left, objects, arrays, grads = outcome.end.left, self.objects, self.arrays, self.grads
        for k in range(len(arrays), len(self.tree.slots)):  # slots that the step has brought
            arrays, objects, grads = [*arrays, outcome.contents[k]], [*objects, -1], [*grads, False]
        made = self.tree.made_numbers(outcome.end)
        self.arrays, self.objects = [*arrays], [*objects]
        self.grads = [outcome.grads.get(k, requires) for k, requires in enumerate(grads)]
        for k, place in left.items():
            if place[0] == LIVE_IN:
                self.arrays[k], self.objects[k] = arrays[place[1]], objects[place[1]]
            elif place[0] == SHARED and self.tree.is_object(k):
                self.arrays[k], self.objects[k] = outcome.contents[k], self.tree.number_of(place[1])
            else:
                self.arrays[k] = outcome.contents[k]
                self.objects[k] = self._first_object() + made[place] if self.tree.is_object(k) else -1
        if self.trips is not None and outcome.end.way != PROCEEDS:
            self.arrays[0] = np.array(int(arrays[0]) + self.trips.step)
        copied, holding = dict(outcome.end.copies), slots_with_copies(self.tree)
        appended: list[list[tuple[np.ndarray[Any, Any], Any]]] = [[] for _ in outcome.items]
        for column, more, places in zip(appended, outcome.items, outcome.end.items, strict=True):
            for array, place in zip(more, places, strict=True):
                number: Any = self._first_object() + made[place] if place in made else -1
                if place in copied or (place[0] == LIVE_IN and place[1] in holding):
                    number = wrap(array)  # on the memory of what it is a view of
                elif place[0] == LIVE_IN:
                    number = objects[place[1]]
                elif place[0] == SHARED and place[1] in self.interpreter.defined:
                    number = self.tree.number_of(place[1])
                column.append((array, number))
        self.items.note_step(appended)

    def _stay_outside(
        self,
        stand_ins: Sequence[Tensor],
        live_ins: Sequence[int],
        way: int,
        values: Sequence[Any],
        in_places: Mapping[str, Any],
        others: Sequence[StepPlace | GradPlace] = (),
    ) -> tuple[int, Any] | None:
        """Leave the nodes of the first step where they are: stand-ins become what they stand for.  live_ins: the values of stand-ins
        before the step.  way, values: what it has returned.  in_places: what these hold after it.  others: further places in which it has
        stored.  Returns None if there is another step, else the result of the loop."""
        interpreter = self.interpreter
        self.first += 1
        known: dict[int, int] = {}
        for x, v, entered in zip(
            stand_ins, live_ins, self.entered, strict=False
        ):  # what the step was the first to write to comes last
            assert entered is not None
            known[v] = entered
            if interpreter.values[id(x)] == v:
                interpreter.values[id(x)] = entered
            if v in interpreter.requires_grad:
                interpreter.requires_grad.discard(v)
                interpreter._by_tape[id(x._node), 0] = entered
        self.tape.fix()
        for at, node in enumerate(interpreter.nodes):
            if any(type(x) is int and x in known for x in node.operands):
                operands = tuple([known.get(x, x) if type(x) is int else x for x in node.operands])
                interpreter.nodes[at] = Node(node.op, operands, node.attributes, node.outputs, node.line)
        for v, record in interpreter.path_trees.items():
            starts = {key: start if start is None else known.get(start, start) for key, start in record.starts.items()}
            tree = record.tree.with_shared(lambda value: known.get(value, value))
            interpreter.path_trees[v] = replace(record, tree=tree, starts=starts)
        originals = {id(x): self.begun[j] for x, j in zip(stand_ins, self.begun_objects, strict=False) if j in self.begun}
        replaced = partial(self.stopped.original, originals=originals, seen=set())
        given = list(map(replaced, values))
        left, appended = given[: len(self.loop.live_outs)], given[len(self.loop.live_outs) :]
        self.variables = {**self.variables, **dict(zip(self.loop.live_outs, left, strict=True))}
        for column, more in zip(self.items.before, appended, strict=True):
            column.extend(more)
        self.reached.keep(replaced)
        for name, x in in_places.items():
            self.places[name].store(self.recorder, replaced(x))
        for place in others:
            if (real := replaced(x := place.value(self.recorder))) is not x:
                place.store(self.recorder, real)
        if way != CONTINUES:
            return way, self.recorder.mark_created((*left,))
        if self.trips is not None:
            self.element = self.recorder.operators.binary("+", self.element, self.trips.step)
        if not self._has_step():
            self.reached.emit([], {})
            return CONTINUES, self.recorder.mark_created((*left, *self.items.lists([], {})))
        self._fill_slots()
        return None

    # -- after a step
    def _after(self, way: int) -> tuple[int, Any] | None:
        """What follows a step that has ended so: None for another one, or for its next part, or the result of the loop."""
        if way == PROCEEDS:
            self.part += 1
            return None
        self.part = 0
        self.made += 1
        if way == CONTINUES and (self.trips is None or self._is_inside()):
            return None
        self.store_states()
        if self.recorder.stopped:
            return way, self.stopped.plain_result(way)
        try:
            return LoopResult(self).emit(way)
        except (Refused, NoBody) as refusal:
            return self.stopped.refuse(str(refusal), way)
        except Exception as error:
            stop_for_defect(self.recorder, error)
            return way, self.stopped.plain_result(way)

    def _is_inside(self) -> bool:
        """Whether there is a next element."""
        assert self.trips is not None and self.elements is not None
        element, stop = int(self.arrays[0]), plain(self.elements.stop)
        return bool(element < stop if self.trips.step > 0 else element > stop)

    def entered_number(self, k: int) -> int | None:
        """The value of the graph that a slot holds at first; None of one that steps fill."""
        return self.entered[k] if k < len(self.entered) else None

    def entered_tensor(self, place: StepValue) -> Tensor:
        """The tensor that the loop is given for what it carries."""
        k = place[1]
        if place[0] != LIVE_IN:
            return self.filled(place)
        return self.states[k] if k in self.states else self.given[k] if k < len(self.given) else self.filled(place)

    def filled(self, place: StepValue) -> Tensor:
        """A tensor of what the loop carries besides what it was given."""
        value, aval = self.tree.initial(place), self.tree.aval_of(place)
        if place[0] == identity(0)[0] and place[1] < len(self.begun_objects):
            value = self.begun_objects[place[1]]
        tensor: Tensor = REGISTRY["full"](bool(value) if place == GO else value, shape=aval.shape, dtype=aval.dtype)
        if (number := self.interpreter.values.get(id(tensor))) is not None:
            self.interpreter.loop_constants.add(number)
        return tensor

    def take(self, tensor: Tensor) -> Any:
        """The value of a tensor, guarded; it is no branch of the program's."""
        value = tensor._array.item()
        self.interpreter.require(tensor, value)
        return value

    def variable(self, name: str, by_key: dict[Any, int], value: Callable[[int], Any], recorder: Recorder | None = None) -> Any:
        """What a variable holds in the end.  value: what a slot does.  recorder: None where nothing is recorded any more."""
        if name in self.carried:
            form, slots = self.carried[name]
            return put_together(recorder, form, map(value, slots))
        if name in self.fixed:
            return self.fixed[name]
        return value(by_key["variable", name]) if ("variable", name) in by_key else UNBOUND
