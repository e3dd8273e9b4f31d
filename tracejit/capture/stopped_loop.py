"""What becomes of an outlined loop whose recording stops: the remaining steps run in Python, as in eager mode.

The recording may stop between steps, or in the middle of one.  The rest of such a step still finds stand-ins in its variables, on the
memory of what they stand for; what follows finds what they stand for: variables, places, lists, and what the step has stored outside."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tracejit.capture.handlers.base import ABSENT
from tracejit.capture.handlers.effects import MethodCall
from tracejit.capture.handlers.stand_ins import plain, plain_value
from tracejit.capture.nested_places import is_tuple
from tracejit.capture.path_tree import Leaf
from tracejit.capture.policies import instance_dictionary, is_user_instance
from tracejit.capture.python_steps import elements_without_end, run_steps
from tracejit.capture.step_paths import put_together
from tracejit.capture.syntax.loops import UNBOUND
from tracejit.capture.syntax.outlined_loops import PROCEEDS, WAYS
from tracejit.capture.syntax.pieces import RETURNS
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.branching_loops import LoopRun

__all__ = ["StoppedLoop"]


class StoppedLoop:
    """The steps of one run that are left to Python."""

    def __init__(self, run: LoopRun) -> None:
        self._run = run
        self._element: Any = None  # of the step in the middle of which the recording has stopped

    def refuse(self, why: str, way: int | None) -> tuple[int, Any]:
        """Stop the recording, and make the remaining steps in Python.  way: how the last step has ended; None before the first."""
        self._run.stop(why)
        return self.steps_in_python(self.remaining(first=True)) if way is None else (way, self.plain_result(way))

    def refuse_elements(self, elements: Callable[[], Iterator[Any]], why: str) -> tuple[int, Any]:
        """Stop the recording, since a node cannot go over these elements, and make all steps in Python."""
        self._run.recorder.stop("outlined_loop", f"the loop at {self._run.line}: {why}")
        return self.steps_in_python(elements())

    def steps_in_python(
        self, elements: Iterator[Any], done: tuple[int, Any] | None = None, known: dict[int, Tensor] | None = None
    ) -> tuple[int, Any]:
        """Make the steps for these elements in Python.  done: see `run_steps`.  known: objects, by their numbers."""
        known = {} if known is None else known
        self._run.reached.flush(known)
        variables = self.plain_variables(known)
        items = self._run.items.plain(known)
        for name in self._run.places.with_slots if done is None else ():
            self._run.places[name].put(variables[name])

        def run() -> tuple[int, Any]:
            loop, whole = self._run.loop, done
            if self._run.is_divided and (done is not None or self._run.part):
                whole = self._rest_of_step(elements, variables, done)
            return run_steps(loop, self._run.function, elements, variables, whole, items)

        return self._run.of_program(run)  # type: ignore[no-any-return]

    def _rest_of_step(self, elements: Iterator[Any], variables: dict[str, Any], done: tuple[int, Any] | None) -> tuple[int, Any]:
        """Make the parts of a step in Python that are still to be made.  elements: this one's too, if no part of it has just run.  done:
        what that has returned.  Returns what the whole step does."""
        run = self._run
        element = next(elements) if done is None else self._element
        part, (way, values) = (run.part, (PROCEEDS, ())) if done is None else (run.part + 1, done)
        columns: list[list[Any]] = [[] for _ in range(run.loop.items)]
        left: Sequence[str] = () if done is None else run.live_outs
        while way != RETURNS:
            variables.update(zip(left, values, strict=False))
            for column, more in zip(columns, values[len(left) :], strict=False):
                column.extend(more)
            if way != PROCEEDS:
                return way, (*[variables[name] for name in run.loop.live_outs], *columns)
            left = run.parts[part].live_outs
            given = [variables[name] for name in run.parts[part].live_ins]
            named, values = run.functions[part](*([element] if run.loop.has_elements else []), *given)
            way, part = WAYS.index(named), part + 1
        return way, values

    def go_on(self, way: int, values: Any, stand_ins: Sequence[Tensor]) -> tuple[int, Any]:
        """Make the remaining steps in Python, after one that has ended so."""
        self._run.tape.fix()
        self._run.items.plain({})
        originals = self.originals(stand_ins)
        self.hand_over_states(stand_ins, originals)
        seen: set[int] = set()
        for container in [*self._run.recorder.created.values(), *self._run.variables.values()]:
            if type(container) in (list, dict) or is_user_instance(container):
                self.original(container, originals, seen)
        values = self.original(values, originals, seen)
        self._element = plain_value(self.original(self._run.element_given.value, originals, seen))
        if way != RETURNS:
            left = len(self._run.live_outs)
            appended = values[left : left + self._run.loop.items]
            plain_items = [x if x is UNBOUND else tuple(map(plain, x)) for x in appended]
            values = (*values[:left], *plain_items, *values[left + self._run.loop.items :])
        return self.steps_in_python(self.remaining(), (way, values), self._known_objects(stand_ins))

    def _known_objects(self, stand_ins: Sequence[Tensor]) -> dict[int, Tensor]:
        """The objects in slots, by their numbers, after a step that was given these stand-ins."""
        known: dict[int, Tensor] = {}
        for k, x in enumerate(stand_ins):
            if self._run.tree.is_object(k):
                before = self._run.real_object(self._run.objects[k])
                stand_in = self._run.leaves.given.get(k, x)
                if self._run.tree.slots[k].holds is not Leaf or stand_in is not x:
                    known.setdefault(self._run.objects[k], stand_in if before is None else before)
        return known

    def originals(self, stand_ins: Sequence[Tensor]) -> dict[int, Any]:
        """What the stand-ins of a step stand for, by their ids."""
        of_slots = {id(x): real for x in stand_ins if (real := self._run.recorder.stands_for(x)) is not x}
        return of_slots | {id(x): item for x, item in self._run.gathered.stand_ins} | self._run.kinds.views_given()

    def hand_over_stored(self, stand_ins: Sequence[Tensor]) -> None:
        """Put what stand-ins of a step stand for where the step has stored them outside."""
        effects, originals, seen = self._run.recorder.effects, self.originals(stand_ins), set[int]()
        for effect in effects.in_order:
            if isinstance(effect, MethodCall) and type(effect.container) in (list, dict):
                self.original(effect.container, originals, seen)
        self._run.reached.flush(self._known_objects(stand_ins), lambda x: self.original(plain_value(x), originals, seen))
        effects.replace_stored(lambda x: self.original(x, originals, seen))
        for name in self._run.places:
            place = self._run.places[name]
            if (held := place.current_value()) is not ABSENT:
                place.put(self.original(held, originals, seen))

    def hand_over_states(self, stand_ins: Sequence[Tensor], originals: dict[int, Any]) -> None:
        """Give the objects that stand-ins stand for what the step has changed of them besides contents."""
        for k, x in enumerate(stand_ins):
            if id(x) in originals:
                is_moved = x._requires_grad != self._run.grads[k] or x._node is not self._run.tape.live_ins.get(k)
                self.hand_over_state(x, originals[id(x)], is_moved or x._array is not self._run.arrays[k])
        for x, item in self._run.gathered.stand_ins:
            if type(x) is Tensor:
                self.hand_over_state(x, item, self._run.gathered.is_moved(x, item))

    def hand_over_state(self, stand_in: Tensor, before: Tensor, is_moved: bool) -> None:
        """is_moved: whether the stand-in has another memory, or another place on the tape, than before the step."""
        before.__dict__.update(vars(stand_in))
        if stand_in._grad is not None:
            before._grad = stand_in._grad
        if is_moved:
            self._run.interpreter.become(before, stand_in)

    def original(self, x: Any, originals: dict[int, Any], seen: set[int]) -> Any:
        """What a stand-in stands for; a tuple without stand-ins for one with some; else `x` itself.  Lists, dictionaries, and instances
        that the call has made, get what these stand for in the places of stand-ins.  originals: by ids of stand-ins.  seen: the ids of
        those that were looked through."""
        kind = type(x)
        if id(x) in originals:
            return originals[id(x)]
        if is_tuple(x):
            parts = [self.original(y, originals, seen) for y in tuple.__iter__(x)]
            return tuple.__new__(kind, parts) if any(y is not z for y, z in zip(parts, x, strict=True)) else x
        is_instance = is_user_instance(x) and self._run.recorder.is_created(x)
        contents: Any = instance_dictionary(x) if is_instance else x
        if type(contents) in (list, dict) and id(x) not in seen:
            seen.add(id(x))
            for key, y in list(enumerate(contents) if kind is list else contents.items()):
                if (original := self.original(y, originals, seen)) is not y:
                    contents[key] = original
        return x

    def plain_variables(self, known: dict[int, Tensor]) -> dict[str, Any]:
        result = {}
        for name in dict.fromkeys((*self._run.variables, *self._run.carried)):
            if name in self._run.carried:
                form, slots = self._run.carried[name]
                result[name] = put_together(None, form, iter([self._run.value_of_slot(k, known) for k in slots]))
            else:
                result[name] = self._run.recorder.stands_for(plain(self._run.variables[name]))
        for k, slot in enumerate(self._run.tree.slots[: len(self._run.arrays)] if self._run.made or self._run.part else ()):
            name = str(slot.key[1]) if slot.key[0] == "variable" and len(slot.key) == 2 else ""  # that each step assigns to
            if name and result.get(name, UNBOUND) is UNBOUND:
                result[name] = self._run.value_of_slot(k, known)
        return result

    def plain_result(self, way: int) -> Any:
        """What the loop gives, from what the slots hold."""
        known: dict[int, Tensor] = {}
        self._run.reached.flush(known)
        by_key = {slot.key: k for k, slot in enumerate(self._run.tree.slots)}
        for name in self._run.places.with_slots:
            self._run.places[name].put(self._run.variable(name, by_key, lambda k: self._run.value_of_slot(k, known)))
        if way == RETURNS:
            leaves = [self._run.value_of_slot(k, known) for key, k in by_key.items() if key[0] == "return"]
            return put_together(None, self._run.template, iter(leaves))
        left = [self._run.variable(x, by_key, lambda k: self._run.value_of_slot(k, known)) for x in self._run.loop.live_outs]
        return (*left, *self._run.items.plain(known))

    def remaining(self, first: bool = False, done: bool = True) -> Iterator[Any]:
        """The elements of the steps that are still to be made.  first: no step was made, and the slots are not filled.  done: whether
        the step for the element in the slots was made."""
        if self._run.elements is None or self._run.trips is None:
            return elements_without_end()
        following = plain(self._run.element) if first else int(self._run.arrays[0]) + (self._run.trips.step if done else 0)
        return self._run.elements.remaining((following - plain(self._run.elements.start)) // self._run.trips.step)
