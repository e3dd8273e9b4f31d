"""Places that steps of a branching loop store in, and that their source does not show: `loss.backward(); optimizer.step()`.

Such places are attributes and items, as those that step_places.py reads from the source, and gradients of leaves.  They are found as a
step stores in them; then the steps are made again, with these places.

* The gradient that each step stores before anything reads it has no value before the loop: it does not matter whether there was one.  A
  gradient to which backward passes add is one object, which steps write to.
* A bool is mostly as it was after a step (`model.eval()`, then `model.train()`): it is a constant of the step."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tracejit.capture.handlers.base import ABSENT
from tracejit.capture.handlers.effects import AttributeStore, EffectTarget, GradStore, ItemStore, StepChanges
from tracejit.capture.handlers.stand_ins import plain
from tracejit.capture.policies import instance_dictionary
from tracejit.capture.step_paths import MOST_PARTS, Refused, is_carried_or_constant
from tracejit.capture.step_places import StepPlace
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.branching_loops import LoopRun
    from tracejit.capture.handlers.recorder import Recorder

__all__ = ["Found", "FoundPlaces", "GradPlace", "KnownPlaces"]


_MOST_ROUNDS: Final = 16
"""How often the steps of a run are made again because of places that were found, at most."""


@dataclass(frozen=True, slots=True, eq=False)
class GradPlace:
    """The gradient of a leaf, with what StepPlace has.  only_in_place: whether it stays one object, which steps write to.  is_read: whether
    some step reads it before it has stored one."""

    owner: Tensor
    only_in_place: bool = False
    is_read: bool = False

    @property
    def target(self) -> EffectTarget:
        """The place, as effects know it."""
        return id(self.owner), "_grad"

    def current_value(self) -> Any:
        """What it holds in Python."""
        return self.owner._grad

    def put(self, value: Any) -> None:
        """Have it hold a value in Python, which is no effect."""
        self.owner._grad = value

    def value(self, recorder: Recorder) -> Any:
        """What it holds for the recorder."""
        return self.owner._grad

    def read(self, recorder: Recorder) -> Any:
        """The same, guarded."""
        return recorder.interpreter.read_grad(self.owner)

    def store(self, recorder: Recorder, value: Any) -> None:
        """Store a gradient in it, as a backward pass does."""
        recorder.interpreter.write_grad(self.owner, value)

    def enter(self, recorder: Recorder, value: Any) -> None:
        """Have a step find `value` in it."""
        if recorder.is_outside(self.owner):
            recorder.effects.note_store(self.target, GradStore(self.owner, value))
        self.put(value)


@dataclass(slots=True)
class KnownPlaces:
    """The places that were found, by what effects know them by.  Runs of a nested loop have the same ones."""

    gradients: dict[EffectTarget, GradPlace] = field(default_factory=dict)
    others: dict[EffectTarget, StepPlace] = field(default_factory=dict)
    varying: set[EffectTarget] = field(default_factory=set)  # those that hold another bool after some step


Found = Sequence[tuple[GradPlace | StepPlace, Any]]
"""Places that were not known, or not as they are, each with what it held before the step."""


def _may_be_carried(x: Any) -> bool:
    """Whether a place holds what may be carried on: a list of such, too, as `scheduler.step()` leaves."""
    return is_carried_or_constant(x) or (type(x) is list and 0 < len(x) <= MOST_PARTS and all(map(is_carried_or_constant, x)))


class FoundPlaces:
    """The places that were found for one run.  changes: of the step that runs."""

    def __init__(self, run: LoopRun) -> None:
        self._run = run
        self.changes = StepChanges()
        self._rounds = 0  # how often some were found
        self._own = KnownPlaces()  # those in what the call has made
        self._known = run.interpreter.places_found.setdefault(run.function.__code__, KnownPlaces())

    def places(self, others: Collection[StepPlace | GradPlace]) -> dict[str, StepPlace | GradPlace]:
        """The places, by names for users.  others: those in the source."""
        recorder = self._run.recorder
        shown = {place.target for place in others}
        found: dict[str, StepPlace | GradPlace] = {}
        for target, place in (self._known.others | self._own.others).items():
            if target not in shown:
                name = (recorder.facts.item if place.is_item else recorder.facts.attribute)(place.owner, place.key)
                found[name if name not in found else f"{name}, {len(found)}"] = place
        for k, gradient in enumerate((self._known.gradients | self._own.gradients).values()):
            names = [name for name, x in self._run.variables.items() if x is gradient.owner]
            found[f"{names[0] if names else f'parameter {k}'}.grad"] = gradient
        return found

    def is_only_stored(self, place: StepPlace | GradPlace) -> bool:
        """Whether no step reads what it holds before the step has stored a gradient in it."""
        return type(place) is GradPlace and not place.is_read

    def has(self, place: StepPlace | GradPlace) -> bool:
        """Whether it is an attribute or an item that was found."""
        return any(place.target in known.others for known in (self._known, self._own))

    def has_one_bool(self, place: StepPlace | GradPlace, value: Any) -> bool:
        """Whether it holds a bool, which is the same after each step, as far as is known."""
        varies = any(place.target in known.varying for known in (self._known, self._own))
        return type(plain(value)) is bool and self.has(place) and not varies

    def is_stored(self, place: StepPlace | GradPlace) -> bool:
        """Whether the step that has run has stored a gradient in a place."""
        use = self.changes.gradients.get(id(place.owner))
        return use is not None and use.is_stored

    # -- looking for places
    def new(self) -> Found:
        """The places that were not known, or not as they are.  Raises Refused where the steps cannot be made again."""
        run = self._run
        found = [*self._new_gradients(), *self._new_others()]
        self._rounds += bool(found)
        may_begin_again = self._rounds <= _MOST_ROUNDS and not (
            run.is_divided or run.calls.are_any or (run.is_nested and run.made)
        )
        if found and not may_begin_again:
            raise Refused("a step changes other things outside than the steps before")
        return found

    def _new_gradients(self) -> Found:
        run, found = self._run, list[tuple[GradPlace | StepPlace, Any]]()
        for number, use in self.changes.gradients.items():
            target = number, "_grad"
            known = self._known.gradients.get(target) or self._own.gradients.get(target)
            is_from_before = number in run.recorder.tensors or run.interpreter.defined_before(use.leaf, self.changes.first_value)
            if not is_from_before or (known is None and not use.is_stored):
                continue
            # a write to what a slot holds; else it is from before the loop, and any write to it is one to a tensor outside
            is_given = id(use.before) in run.recorder.loop_stand_ins and id(use.before) in run.contents_before
            is_cleared = use.is_stored and use.leaf._grad is None  # then it has to hold None before the step, too
            flags = (False, False) if known is None else (known.only_in_place, known.is_read)
            is_written = is_given and use.leaf._grad is use.before
            place = GradPlace(use.leaf, flags[0] or is_written, flags[1] or use.is_read or is_cleared)
            if known is None or flags != (place.only_in_place, place.is_read):
                found.append((place, use.before))
        return found

    def _new_others(self) -> Found:
        return [*self._new_outside(), *([] if self._run.is_nested else self._new_own()), *self._new_varying()]

    def _new_varying(self) -> Found:
        """Those that hold another bool after the step than before it, but for a first step, which may stay outside of the node."""
        places, found = self._run.places, list[tuple[GradPlace | StepPlace, Any]]()
        if self._run.may_stay_outside:
            return found
        for name in places:
            place, before = places[name], places.entered(name)
            value = place.value(self._run.recorder)
            if places.is_constant(name, before) and type(plain(before)) is bool and value is not before:
                found.append((place, before))
        return found

    def _new_own(self) -> Found:
        """Those in dictionaries that the call has made, before the step."""
        run, found = self._run, list[tuple[GradPlace | StepPlace, Any]]()
        for target, (owner, is_item, key, value) in self.changes.own.items():
            before = self.changes.containers[target[0]][1]
            if (
                target in run.places.targets
                or key not in before
                or type(key) not in (str, int)
                or id(owner) not in run.containers_found
            ):
                continue
            if _may_be_carried(before[key]) and _may_be_carried(value):
                found.append((StepPlace(owner, key, is_item, False), before[key]))
        return found

    def _new_outside(self) -> Found:
        run, found = self._run, list[tuple[GradPlace | StepPlace, Any]]()
        shown = {*run.places.targets}
        for target, effect in self.changes.stores.items():
            if target in shown or not isinstance(effect, AttributeStore | ItemStore) or effect.value is ABSENT:
                continue
            is_item = isinstance(effect, ItemStore)
            owner, key = (effect.container, effect.key) if isinstance(effect, ItemStore) else (effect.owner, effect.name)
            container = owner if is_item else instance_dictionary(owner)
            before = self.changes.containers.get(id(container), (None, {}))[1]
            if type(container) is not dict or type(key) is not str or key not in before or id(owner) not in run.recorder.sources:
                continue
            if _may_be_carried(before[key]) and _may_be_carried(effect.value):
                found.append((StepPlace(owner, key, is_item, False), before[key]))
        return found

    def note(self, found: Found) -> None:
        """Have these be among the places."""
        for place, _ in found:
            is_outside = self._run.recorder.is_outside(place.owner)
            known = self._known if is_outside else self._own
            if isinstance(place, GradPlace):
                known.gradients[place.target] = place
            else:
                if place.target in known.others:
                    known.varying.add(place.target)
                known.others[place.target] = place

    def take(self, found: Found) -> None:
        """The same, and have them hold what they did before the step."""
        self.note(found)
        for place, before in found:
            place.put(before)
        for use in self.changes.gradients.values():
            use.leaf._grad = use.before
