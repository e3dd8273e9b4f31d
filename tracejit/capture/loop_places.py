"""The places of one run of a branching loop: what steps find in them, and what they hold after a step, and after the loop.

Places are those that the source shows (step_places.py), and those that were found as a step stored in them (found_places.py).  They hold
what may be carried on as a variable is, or what has no state.  While a step runs in Python they hold stand-ins."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tracejit.capture.found_places import Found, FoundPlaces, GradPlace
from tracejit.capture.snapshots import Snapshot
from tracejit.capture.step_paths import Refused, is_carried_or_constant, list_form, put_together
from tracejit.capture.step_places import StepPlace, places_of_step
from tracejit.capture.syntax.loops import UNBOUND
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.branching_loops import LoopRun

__all__ = ["LoopPlaces"]


class LoopPlaces:
    """The places of one run, by names for users.

    found: those among them that the source does not show.  values_in_python: what they hold in Python where slots are filled."""

    def __init__(self, run: LoopRun) -> None:
        self._run = run
        self.found = FoundPlaces(run)
        self.values_in_python: dict[str, Any] = {}
        self._places: dict[str, StepPlace | GradPlace] = {}
        self._entered: dict[str, Any] = {}  # what the step that runs found in them
        self._items_entered: dict[str, list[int]] = {}  # the ids of the items of lists there
        self._stores: set[int] = set()  # the positions of those in places among the effects, when the step began

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __getitem__(self, name: str) -> StepPlace | GradPlace:
        return self._places[name]

    def find(self) -> dict[str, Any]:
        """Find the places, and the lists in objects to which steps append.  Returns what the places hold; UNBOUND of one that each step
        stores in before anything reads it."""
        run = self._run
        shown, lists = places_of_step(run.recorder, run.function, {name: run.variables[name] for name in run.loop.live_ins})
        run.reached.begin([(x, len(x)) for x in lists if not run.is_nested], are_certain=False)
        places = shown | self.found.places(shown.values())
        values = {x: UNBOUND if self.found.is_only_stored(y) else y.read(run.recorder) for x, y in places.items()}
        self._places = {
            name: place
            for name, place in places.items()
            if is_carried_or_constant(x := values[name]) or (type(x) is list and self.found.has(place))
        }
        self.values_in_python = {name: place.current_value() for name, place in self._places.items()}
        return {name: values[name] for name in self._places}

    @property
    def targets(self) -> list[Any]:
        """The places, as effects know them."""
        return [place.target for place in self._places.values()]

    @property
    def with_slots(self) -> list[str]:
        """Those that steps carry on."""
        return [name for name in self if name in self._run.carried or self._run.slot_made(name) is not None]

    def is_constant(self, name: str, value: Any) -> bool:
        """Whether steps do not carry on what a place holds, but find the same in it."""
        place = self._places.get(name)
        is_same_tensor = place is not None and place.only_in_place and isinstance(value, Tensor)
        return is_same_tensor or (place is not None and self.found.has_one_bool(place, value))

    def entered(self, name: str) -> Any:
        """What the step that runs has found in a place."""
        return self._entered[name]

    def list_form(self, name: str, x: list[Any], leaves: list[Any]) -> Any:
        """The form of a list that a step has left in a place, whose tensors and numbers are appended to `leaves`; None if steps may not
        carry it.  Raises Refused for a list that something else holds, too, or that was there before and has changed."""
        run = self._run
        if sum(place.value(run.recorder) is x for place in self._places.values()) > 1:
            raise Refused(f"{name!r} is a list that is in another place, too")
        if x is self._entered[name] and [*map(id, x)] != self._items_entered[name]:
            raise Refused(f"a step changes the list in {name!r}")
        return list_form(run.recorder, x, leaves)

    @property
    def positions(self) -> set[int]:
        """The positions of the stores in places among the effects."""
        return self._stores | self._run.recorder.effects.positions_of(self.targets)

    # -- a step
    def enter(self, stand_ins: Sequence[Tensor]) -> None:
        """Have the step find stand-ins in its places."""
        run = self._run
        self.restore()
        self._entered = {}
        for name, place in self._places.items():
            value = run.variables[name]
            if name in run.carried:
                form, slots = run.carried[name]
                value = put_together(run.recorder, form, iter([run.given_of(k, stand_ins[k]) for k in slots]))
            elif value is UNBOUND:
                k = run.slot_made(name)
                value = self.values_in_python[name] if k is None else run.given_of(k, stand_ins[k])
            self._entered[name] = value
            if type(value) is list:
                self._items_entered[name] = [*map(id, value)]
            place.enter(run.recorder, value)
        self._stores = run.recorder.effects.positions_of(self.targets)  # a call for output begins new stores

    def restore(self) -> None:
        """Have places hold what they did before the loop: later guards on contents refer to that."""
        for name, place in self._places.items():
            place.put(self.values_in_python[name])

    def values_after_step(self) -> dict[str, Any]:
        """What they hold after a step; UNBOUND of one without a value before the loop, in which no step has stored."""
        run, result = self._run, {}
        for name, place in self._places.items():
            is_empty = self.found.is_only_stored(place) and run.slot_made(name) is None and not self.found.is_stored(place)
            result[name] = UNBOUND if is_empty else place.value(run.recorder)
        return result

    def reachable_after(self, left: Mapping[str, Any], without: Collection[int] = (), others: Found = ()) -> Snapshot | str:
        """What a step finds besides slots, after it, where places hold what they did before it.  left: what they hold.  without: positions
        of effects to leave out.  others: further places."""
        recorder = self._run.recorder
        own = [(place, self._entered[name], left[name]) for name, place in self._places.items()]
        own += [(place, before, place.value(recorder)) for place, before in others]
        own = [x for x in own if not recorder.is_outside(x[0].owner)]
        for place, before, _ in own:
            place.enter(recorder, before)
        try:
            return self._run.reachable(without)
        finally:
            for place, _, now in own:
                place.enter(recorder, now)
