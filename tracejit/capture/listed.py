"""Items of private lists that a loop goes through, or reads at places which move with its steps, where some of them are in one piece.

A list that a loop has filled holds most of its items in one piece (joining.py).  The loop that reads them one by one runs its first steps
and its last ones, with items that are the list's own: so these are taken out of the piece at its ends.  What the steps between would read
is put together when a node of the graph stands for them.

That is so for items that require no grad.  Of one that does, the function may ask for the gradient, or hang a hook on it, and a row of the
piece has another one: so a list of those stays one of items where they are read one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tracejit.capture.joining import has_stacked, length_of, put_together, take_apart
from tracejit.capture.loop_nodes import Slices
from tracejit.capture.steps import Read, Stacked
from tracejit.core.interpreter import state
from tracejit.ops.movement.views import select, slice_
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.tensors import RecordingInterpreter

__all__ = ["Items", "Reads", "item_at"]

_MOST: Final = 8
"""Items that are taken out of a piece at once: who reads more of them does not go on in steps that are left out."""


class Items:
    """The items of a private list that a loop goes through, in their order or in the other one."""

    def __init__(self, interpreter: RecordingInterpreter, items: list[Any], is_backwards: bool = False) -> None:
        self._interpreter = interpreter
        self._items = items
        self._count = length_of(items)
        self._is_backwards = is_backwards
        self._places: dict[int, Any] = {}

    def backwards(self) -> Items:
        """The same in the other order."""
        return Items(self._interpreter, self._items, not self._is_backwards)

    def make(self, k: int, place: Any) -> None:
        """Item `k` of this call is the one at `place` in each."""
        self._places[k] = self._count - 1 - place if self._is_backwards else place

    def complete(self, length: int) -> None:
        """So many items are all that there are."""
        take_apart(self._items)
        for k in range(length):
            self.make(k, k)

    @property
    def listed(self) -> list[Tensor]:
        """The tensors in the list, and the pieces."""
        return _tensors_in(self._items)

    def slices(self, k: int, place: Any) -> Slices | None:
        """Those from item `k` of this call on, which is the one at `place` in each, but for the last two; None where they are not alike."""
        first, end = (2, self._count - place) if self._is_backwards else (place, self._count - 2)
        base = _between(self._items, first, end)
        if base is None:
            return None
        return Slices(base, 0, end - first - 1, -1) if self._is_backwards else Slices(base, 0, 0, 1)

    def __getitem__(self, k: int) -> Any:
        return item_at(self._interpreter, self._items, self._places[k])


class Reads:
    """What steps read of private lists, at places that move with them."""

    def __init__(
        self, interpreter: RecordingInterpreter, reads: Sequence[Read], distances: Sequence[int], lists: Mapping[str, list[Any]]
    ) -> None:
        """reads: of the step that was recorded.  distances: how far their places move from step to step."""
        self._interpreter = interpreter
        self._reads = reads
        self._distances = distances
        self._lists = lists

    def __len__(self) -> int:
        return len(self._reads)

    @property
    def listed(self) -> list[Tensor]:
        """The tensors in the lists, and the pieces."""
        return [x for name in {read.name for read in self._reads} for x in _tensors_in(self._lists[name])]

    def tensors(self, steps: Any) -> list[Any]:
        """What is read so many steps later."""
        return [
            item_at(self._interpreter, self._lists[x.name], x.place + steps * distance)
            for x, distance in zip(self._reads, self._distances, strict=True)
        ]

    def slices(self, count: Any) -> list[Slices] | None:
        """What is read in so many steps that follow; None where items are not alike."""
        places = [
            (x.place + distance, x.place + distance * count) for x, distance in zip(self._reads, self._distances, strict=True)
        ]
        bases: dict[str, tuple[Any, Tensor]] = {}
        for name in dict.fromkeys([x.name for x in self._reads]):
            ends = [place for x, both in zip(self._reads, places, strict=True) if x.name == name for place in both]
            low = _least(ends)
            base = _between(self._lists[name], low, -_least([-place for place in ends]) + 1)
            if base is None:
                return None
            bases[name] = low, base
        return [
            Slices(bases[x.name][1], 0, first - bases[x.name][0], distance)
            for x, distance, (first, _) in zip(self._reads, self._distances, places, strict=True)
        ]


def _least(places: Sequence[Any]) -> Any:
    found = places[0]
    for place in places[1:]:
        found = place if place < found else found
    return found


def item_at(interpreter: RecordingInterpreter, items: list[Any], place: Any) -> Any:
    """The item at a place, which is a size: one near an end is taken out of the piece that it is in, else all are."""
    if not has_stacked(items):
        return items[int(place)]
    count: Any = length_of(items)
    from_the_end = -place if type(place) is int and place < 0 else count - place
    nodes = len(interpreter.nodes)
    first, last = _pieces(items)
    if type(place) is int and first <= place < first + _MOST:
        _open(items, first, place - first + 1, 0)
    elif type(from_the_end) is int and last < from_the_end <= last + _MOST:
        _open(items, len(items) - last - 1, 0, from_the_end - last)
    interpreter.taken_out.update([v for node in interpreter.nodes[nodes:] for v in node.outputs])
    first, last = _pieces(items) if has_stacked(items) else (0, 0)
    if type(place) is int and 0 <= place < first:
        return items[place]
    if type(from_the_end) is int and 0 < from_the_end <= last:
        return items[-from_the_end]
    take_apart(items)
    return items[int(place)]


def _tensors_in(items: list[Any]) -> list[Tensor]:
    found = [x.rows if type(x) is Stacked else x for x in items]
    return [x for x in found if isinstance(x, Tensor)]


def _pieces(items: list[Any]) -> tuple[int, int]:
    """How many items there are before the first piece, and after the last one."""
    pieces = [k for k, x in enumerate(items) if type(x) is Stacked]
    return pieces[0], len(items) - 1 - pieces[-1]


def _open(items: list[Any], k: int, first: int, last: int) -> None:
    """Have a list hold so many of the first and last items of a piece one by one.  They require grad as they did where they were appended,
    whatever the mode is now."""
    rows, count = items[k].rows, items[k].count
    if not count > first + last:
        take_apart(items)
        return
    grad_enabled, state.grad_enabled = state.grad_enabled, True
    try:
        places = range(first), [count - last + j for j in range(last)]
        before, after = ([select.of(rows, at, dim=0) for at in part] for part in places)
        rest = slice_.of(rows, dim=0, start=first, stop=count - last, step=1)
        items[k : k + 1] = [*before, Stacked(rest, count - first - last), *after]
    finally:
        state.grad_enabled = grad_enabled


def _between(items: list[Any], first: Any, end: Any) -> Tensor | None:
    """The items from a place on up to another one, along the first dimension of one tensor; None where they are not alike, or there is no
    piece among them."""
    begin: Any = 0
    found: list[Any] = []
    for x in items:
        after = begin + (x.count if type(x) is Stacked else 1)
        if after > first and begin < end:
            if type(x) is Stacked:
                low, high = (first if first > begin else begin), (end if end < after else after)
                whole = low == begin and high == after
                rows = x.rows if whole else slice_.of(x.rows, dim=0, start=low - begin, stop=high - begin, step=1)
                found.append(Stacked(rows, high - low))
            else:
                found.append(x)
        begin = after
    return put_together(found, 0) if has_stacked(found) and _are_alike(found) else None


def _are_alike(items: list[Any]) -> bool:
    """Whether all require grad, or none does, and are row-major."""
    tensors = _tensors_in(items)
    if len(tensors) < len(items) or not all(x._array.flags.c_contiguous for x in tensors):
        return False
    return len({x.requires_grad for x in tensors}) == 1
