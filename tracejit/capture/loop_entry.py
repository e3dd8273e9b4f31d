"""What a step of a loop begins with: what it finds, and the lists that it appends to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tracejit.capture.handlers.effects import AttributeStore, ItemStore
from tracejit.capture.snapshots import Snapshot
from tracejit.capture.stacked_items import reversed_items

if TYPE_CHECKING:
    from tracejit.capture.tensors import RecordingInterpreter

__all__ = ["AppendedList", "LoopEntryState"]


class AppendedList(NamedTuple):
    """A list that steps append to.  is_private: whether it is private to the function.  in_front: whether its items come in front of all
    others.  is_read: whether the function reads its items one by one."""

    items: list[Any]
    is_private: bool
    in_front: bool
    is_read: bool

    @property
    def has_places(self) -> bool:
        """Whether the function may look at the places of items on the tape: who reads one may ask for its gradient, which is not that of a
        row."""
        return self.is_read and bool(self.newest().requires_grad)

    def appended_since(self, length: int) -> list[Any]:
        """What has been appended since it was so long, in the order of the steps."""
        return self.items[: len(self.items) - length][::-1] if self.in_front else self.items[length:]

    def newest(self) -> Any:
        return self.items[0 if self.in_front else -1]

    def extend(self, more: list[Any]) -> None:
        """Append items, in this order."""
        if self.in_front:
            self.items[:0] = reversed_items(more)
        else:
            self.items.extend(more)


class LoopEntryState:
    """What a step begins with.  stores: in places outside, of tensors and of numbers that the program has, by their positions among the
    effects.  elements: how many of the snapshot's tensors are those of the loop's element.  values: of the tensors.  nodes: how many
    there are; gradients, leaves: how many of both the recording has counted.  lists: those that steps append to."""

    __slots__ = ("elements", "gradients", "leaves", "lengths", "lists", "nodes", "seen", "stores", "values")

    def __init__(
        self,
        interpreter: RecordingInterpreter,
        seen: Snapshot,
        elements: int,
        lists: list[AppendedList],
        stores: Mapping[int, AttributeStore | ItemStore],
    ) -> None:
        self.seen = seen
        self.stores = stores
        self.values = [interpreter.values.get(id(x)) for x in seen.tensors]
        self.elements = elements
        self.nodes = len(interpreter.nodes)
        self.gradients, self.leaves = interpreter.gradients, len(interpreter.leaves)
        self.lists = lists
        self.lengths = [len(x.items) for x in lists]
