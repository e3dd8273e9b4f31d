"""What a step of a `for` or `while` statement is given: all that its code can find, and the lists that it appends to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tracejit.capture.handlers.effects import AttributeStore, ItemStore
from tracejit.capture.handlers.post_program import is_post_program
from tracejit.capture.handlers.symbols import is_symbolic
from tracejit.capture.loop_steps import LIVE_IN, CounterComparison, LoopStep, RecordingPoint, describe_step
from tracejit.capture.nested_places import children_of, is_tuple
from tracejit.capture.reached_lists import OutsideList, OwnList, appended_lists
from tracejit.capture.snapshots import Snapshot, outside_effects, snapshot
from tracejit.capture.stacked_items import reversed_items
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder
    from tracejit.capture.syntax.loops import LoopNames
    from tracejit.capture.tensors import RecordingInterpreter

__all__ = ["AppendedList", "LoopEntryState", "entry_state", "tensor_of"]


class AppendedList(NamedTuple):
    """A list that steps append to.  is_private: whether the function uses it as one that nothing else sees.  in_front: whether
    items are put in front of all others.  reached: what is known of a list that other code may see (reached_lists.py)."""

    items: list[Any]
    is_private: bool
    in_front: bool
    reached: OwnList | OutsideList | None = None

    def appended_since(self, length: int) -> list[Any]:
        """What has been appended since it was so long, in the order of the steps."""
        return self.items[: len(self.items) - length][::-1] if self.in_front else self.items[length:]

    def newest(self) -> Any:
        """The item that was appended last."""
        return self.items[0 if self.in_front else -1]

    def extend(self, more: list[Any]) -> None:
        """Append items, in this order."""
        if self.reached is not None:
            self.reached.extend(more)
        elif self.in_front:
            self.items[:0] = reversed_items(None, more)
        else:
            self.items.extend(more)


class LoopEntryState:
    """What a step is given.  point: how much the recording has.  snapshot: of what the step can find; its first `elements`
    tensors are those of the loop's element, and all of them are the live-ins of the step.  lists: those that steps append to.
    stores: in places outside, of what the step can find there, by their positions among the effects."""

    __slots__ = ("_lengths", "_values", "elements", "lists", "point", "snapshot", "stores")

    def __init__(
        self,
        interpreter: RecordingInterpreter,
        seen: Snapshot,
        elements: int,
        lists: list[AppendedList],
        stores: Mapping[int, AttributeStore | ItemStore],
    ) -> None:
        self.point = RecordingPoint.of(interpreter)
        self.snapshot = seen
        self.elements = elements
        self.lists = lists
        self.stores = stores
        self._values = [interpreter.values.get(id(x)) for x in seen.tensors]
        self._lengths = [len(x.items) for x in lists]

    @property
    def carried(self) -> list[Tensor]:
        """The live-ins that are not the loop's element."""
        return self.snapshot.tensors[self.elements :]

    def step_to(
        self, interpreter: RecordingInterpreter, now: LoopEntryState, comparisons: list[CounterComparison]
    ) -> LoopStep | None:
        """The step between this state and the next one; None where it is none that could go on like that."""
        same_lists = [id(x.items) for x in self.lists] == [id(x.items) for x in now.lists]
        if self.snapshot.tokens != now.snapshot.tokens or not same_lists:
            return None
        more = [grown.appended_since(length) for grown, length in zip(now.lists, self._lengths, strict=True)]
        appended = [list(map(tensor_of, items)) for items in more]

        def value_of(x: Any) -> int | None:
            return interpreter.values.get(id(x)) if isinstance(x, Tensor) else None

        step = describe_step(interpreter, self.point, self._values, now.carried, appended, value_of, comparisons)
        if step is None or any(a.with_grad is None for a in step.nodes):  # a tensor has changed without an operation
            return None
        fixed = [k for k in now.snapshot.fixed if k >= now.elements]
        return step if all(step.carried_on[k - now.elements] == (LIVE_IN, k) for k in fixed) else None


def tensor_of(item: Any) -> Any:
    """The tensor of a number that the program computes; other items unchanged."""
    return item._post_program.carried_tensor() if is_post_program(item) else item


def entry_state(
    interpreter: RecordingInterpreter,
    names: LoopNames,
    cells: Mapping[str, Any],
    variables: Mapping[str, Any],
    compared: Mapping[str, Any],
    element: list[Tensor],
    has_numbers: bool,
) -> LoopEntryState | str:
    """What the step that begins is given, or why that cannot be compared (empty where users need not know).

    cells: of the variables around the function.  variables: all of the function.  compared: those that tell steps apart, and
    other tensors of the loop, by name.  element: the tensors of the loop's element.  has_numbers: whether numbers that the
    program computes may be carried."""
    recorder = interpreter.recorder
    reached = recorder.reached
    appended = [x for x in names.appended if type(variables.get(x)) is list and id(variables[x]) not in reached]
    lists = [AppendedList(variables[name], name in names.private, name in names.in_front) for name in appended]
    if any(recorder.is_outside(x.items) for x in lists):
        return ""
    compared = {**compared}
    last = [(name, x.items[-1]) for name, x in zip(appended, lists, strict=True) if x.items and name in names.last]
    compared.update((f"{name}[-1]", item) for name, item in last)
    lists += [AppendedList(x.rows, False, False, x) for x in appended_lists(recorder)]
    for x in lists:
        if x.items:
            tensor_of(x.newest())  # the tensor of a number may be a new operation: it belongs to the step that is over
    touched = [c for name, c in cells.items() if name != "__class__" and not recorder.effects.is_untouched(c)]
    try:
        around = [cell.cell_contents for cell in touched]
    except ValueError:
        return "a variable around the function has no value"
    stores = _carried_stores(recorder, has_numbers)
    for effect in stores.values():
        name = _place_of(recorder, effect)
        while name in compared:
            name += " (another)"
        compared[name] = (effect.value,)
    seen = snapshot(
        recorder,
        element,
        compared,
        [*around, *outside_effects(recorder, stores)],
        [x.items for x in lists],
        interpreter.generators_drawn_from(),
        takes_numbers=has_numbers,
    )
    return seen if isinstance(seen, str) else LoopEntryState(interpreter, seen, len(element), lists, stores)


def _carried_stores(recorder: Recorder, has_numbers: bool) -> dict[int, AttributeStore | ItemStore]:
    """Stores outside that steps may carry on: of tensors, containers and objects that the call has made, and of numbers that the
    program computes."""

    def is_carried(value: Any) -> bool:
        if is_symbolic(value):
            return has_numbers and is_post_program(value)
        leads_on = isinstance(value, Tensor) or is_tuple(value) or children_of(recorder, value) is not None
        return leads_on and not recorder.is_opaque(value)

    return {k: effect for k, effect in recorder.effects.stores().items() if is_carried(effect.value)}


def _place_of(recorder: Recorder, store: AttributeStore | ItemStore) -> str:
    """The place of a store, as the program writes it."""
    if isinstance(store, AttributeStore):
        return recorder.facts.attribute(store.owner, store.name)
    return recorder.facts.item(store.container, store.key)
