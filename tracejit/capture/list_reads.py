"""Items of private lists that a loop goes through, or reads at places which move with its steps, where some of them are in one piece.

A list that a loop has filled holds most of its items in one piece (stacked_items.py).  The loop that reads them one by one runs its first
steps and its last ones, with items that are the list's own: so these are taken out of the piece at its ends.  What the steps between would
read is put together when a node of the graph stands for them.

Of an item that requires grad the function may ask for the gradient, or hang a hook on it, and a row of the piece has another one.  So such
items are not taken out: the loop that has filled the list leaves as many at its ends as another one runs steps there, and whoever comes to
one of the others gets what its step has made (unrolled_items.py).  And what the steps between read has to be all of the piece: else rows
that nothing reads would get zeros for gradients, where an item gets none.

Items are read in order, by `for h in hs`, with `reversed`, `enumerate`, `zip`, `hs[::-1]` and `hs[1:]`, or at the place of a counter,
`hs[t]`, `hs[t - 1]`, `hs[n - 1 - t]`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from tracejit.capture.loop_nodes import SlicedInput
from tracejit.capture.loop_steps import ListRead, StackedItems, StepItems
from tracejit.capture.stacked_items import concatenated_items, has_stacked, item_of, length_of, unstack
from tracejit.core.interpreter import state
from tracejit.ops.movement.views import select, slice_
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.tensors import RecordingInterpreter

__all__ = ["ListItems", "ListReads", "SliceRequest", "item_at", "slices_of"]

T = TypeVar("T")

_MOST: Final = 8
"""Items that are taken out of a piece at once: who reads more of them does not go on in steps that are left out."""


class ListItems:
    """The items of a private list that a loop goes through, in their order or in the other one."""

    def __init__(self, interpreter: RecordingInterpreter, items: list[Any], is_backwards: bool = False) -> None:
        self._interpreter = interpreter
        self._items = items
        self._count = length_of(items)
        self._is_backwards = is_backwards
        self._places: dict[int, Any] = {}
        self._stand_ins: dict[int, Tensor] = {}

    def backwards(self) -> ListItems:
        """The same in the other order."""
        return ListItems(self._interpreter, self._items, not self._is_backwards)

    def make(self, k: int, place: Any) -> None:
        """Item `k` of this call is the one at `place` in each."""
        self._places[k] = self._count - 1 - place if self._is_backwards else place

    def complete(self, length: int) -> None:
        """So many items are all that there are."""
        unstack(self._items)
        for k in range(length):
            self.make(k, k)

    @property
    def listed(self) -> list[Tensor]:
        """The tensors in the list, and the pieces."""
        return _tensors_in(self._items)

    def slices(self, place: Any, after: Any) -> SliceRequest:
        """Those from the one at `place` on, in each call, up to the one at `after`."""
        if self._is_backwards:
            return SliceRequest(self._items, self._count - after, self._count - place, self._count - place - 1, -1)
        return SliceRequest(self._items, place, after, place, 1)

    def is_stand_in(self, k: int) -> bool:
        """Whether item `k` of this call, as it has been given, is a row in its place, which the program is not to get."""
        return k in self._stand_ins and has_stacked(self._items)

    def __getitem__(self, k: int) -> Any:
        interpreter, place = self._interpreter, self._places[k]
        row = _row_with_place(self._items, place)
        if row is None:
            return item_at(interpreter, self._items, place)
        if k not in self._stand_ins:
            self._stand_ins[k] = _unstacked_items(interpreter, lambda: select.of(*row, dim=0))
        return self._stand_ins[k]


class SliceRequest(NamedTuple):
    """Slices of items of a list, from the one at `at` on, each so far from the one before.  low, end: all that is put together lies between
    these places; of one list the same for all, unless its items have places of their own on the tape."""

    items: list[Any]
    low: Any
    end: Any
    at: Any
    distance: int


def slices_of(wanted: Sequence[SlicedInput | SliceRequest]) -> list[SlicedInput] | None:
    """The slices, those of lists among them; None where items are not alike, or gradients of an item would not be added up as if it were
    one."""
    lists = [x for x in wanted if isinstance(x, SliceRequest)]
    if not _readers_keep_their_order([x for x in lists if _made_of(x.items)]):
        return None
    bases: dict[tuple[int, int], Tensor] = {}
    # Gradients arrive at an item in the other order: first those of what is put together last, as that comes to it in the latest step.
    for x in sorted(lists, key=lambda x: (_first_piece(x.items) - x.at) * x.distance if _made_of(x.items) else 0):
        if _base_of(x) not in bases:
            base = _between(x.items, x.low, x.end)
            if base is None:
                return None
            bases[_base_of(x)] = base
    return [SlicedInput(bases[_base_of(x)], 0, x.at - x.low, x.distance) if isinstance(x, SliceRequest) else x for x in wanted]


def _base_of(x: SliceRequest) -> tuple[int, int]:
    """What has the same base: all that is wanted of one list, or this alone."""
    return id(x.items), id(x) if _made_of(x.items) else 0


def _readers_keep_their_order(wanted: Sequence[SliceRequest]) -> bool:
    """Whether of steps that come to the same item of a list, it is always the same part that does so first."""
    ways: dict[Any, tuple[bool, int]] = {}
    for x in wanted:
        made = _made_of(x.items)
        if len(made) > 1 and len(wanted) > 1:
            return False
        for one in made:
            if ways.setdefault(one.items, (one.is_turned, x.distance)) != (one.is_turned, x.distance):
                return False
    return True


def _made_of(items: list[Any]) -> list[StepItems]:
    return [x.made for x in items if type(x) is StackedItems and x.made is not None]


def _first_piece(items: list[Any]) -> int:
    """How many items come before the first piece."""
    return next(k for k, x in enumerate(items) if type(x) is StackedItems)


class ListReads:
    """What steps read of private lists, at places that move with them."""

    def __init__(
        self,
        interpreter: RecordingInterpreter,
        reads: Sequence[ListRead],
        distances: Sequence[int],
        lists: Mapping[str, list[Any]],
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

    def wanted(self, count: Any) -> list[SliceRequest]:
        """What is read in so many steps that follow."""
        ends = [
            (x.place + distance, x.place + distance * count) for x, distance in zip(self._reads, self._distances, strict=True)
        ]
        found = []
        for x, distance, own in zip(self._reads, self._distances, ends, strict=True):
            items = self._lists[x.name]
            together = [own] if _made_of(items) else [both for y, both in zip(self._reads, ends, strict=True) if y.name == x.name]
            low = _least([place for both in together for place in both])
            end = -_least([-place for both in together for place in both]) + 1
            found.append(SliceRequest(items, low, end, own[0], distance))
        return found


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
    first, last = _pieces(items)
    if type(place) is int and first <= place < first + _MOST:
        _unstacked_items(interpreter, lambda: _unstack_ends(items, first, place - first + 1, 0))
    elif type(from_the_end) is int and last < from_the_end <= last + _MOST:
        _unstacked_items(interpreter, lambda: _unstack_ends(items, len(items) - last - 1, 0, from_the_end - last))
    first, last = _pieces(items) if has_stacked(items) else (0, 0)
    if type(place) is int and 0 <= place < first:
        return items[place]
    if type(from_the_end) is int and 0 < from_the_end <= last:
        return items[-from_the_end]
    unstack(items)
    return items[int(place)]


def _tensors_in(items: list[Any]) -> list[Tensor]:
    found = [x.rows if type(x) is StackedItems else x for x in items]
    return [x for x in found if isinstance(x, Tensor)]


def _pieces(items: list[Any]) -> tuple[int, int]:
    """How many items there are before the first piece, and after the last one."""
    pieces = [k for k, x in enumerate(items) if type(x) is StackedItems]
    return pieces[0], len(items) - 1 - pieces[-1]


def _unstack_ends(items: list[Any], k: int, first: int, last: int) -> None:
    """Have a list hold so many of the first and last items of a piece one by one."""
    rows, count = items[k].rows, items[k].count
    if items[k].made is not None or not count > first + last:
        unstack(items)
        return
    places = range(first), [count - last + j for j in range(last)]
    before, after = ([item_of(rows, at) for at in part] for part in places)
    rest = slice_.of(rows, dim=0, start=first, stop=count - last, step=1)
    items[k : k + 1] = [*before, StackedItems(rest, count - first - last), *after]


def _unstacked_items(interpreter: RecordingInterpreter, action: Callable[[], T]) -> T:
    """Take items out of a piece.  They require grad as they did where they were appended, whatever the mode is now; and to do so is no
    part of what a step does."""
    nodes, grad_enabled = len(interpreter.nodes), state.grad_enabled
    state.grad_enabled = True
    try:
        return action()
    finally:
        state.grad_enabled = grad_enabled
        interpreter.taken_out.update([v for node in interpreter.nodes[nodes:] for v in node.outputs])


def _row_with_place(items: list[Any], place: Any) -> tuple[Tensor, Any] | None:
    """The row that the item at a place is, where it has a place of its own on the tape: (rows, which of them)."""
    begin: Any = 0
    for x in items if _made_of(items) else ():
        after = begin + (x.count if type(x) is StackedItems else 1)
        if type(x) is StackedItems and x.made is not None and begin <= place < after:
            return x.rows, place - begin
        begin = after
    return None


def _between(items: list[Any], first: Any, end: Any) -> Tensor | None:
    """The items from a place on up to another one, along the first dimension of one tensor; None where they are not alike, or there is no
    piece among them."""
    begin: Any = 0
    found: list[Any] = []
    for x in items:
        after = begin + (x.count if type(x) is StackedItems else 1)
        if after > first and begin < end:
            if type(x) is StackedItems:
                low, high = (first if first > begin else begin), (end if end < after else after)
                whole = low == begin and high == after
                if x.made is not None and not whole:
                    return None
                rows = x.rows if whole else slice_.of(x.rows, dim=0, start=low - begin, stop=high - begin, step=1)
                found.append(StackedItems(rows, high - low))
            else:
                found.append(x)
        begin = after
    return concatenated_items(found, 0) if has_stacked(found) and _are_alike(found) else None


def _are_alike(items: list[Any]) -> bool:
    """Whether all require grad, or none does, and are row-major."""
    tensors = _tensors_in(items)
    if len(tensors) < len(items) or not all(x._array.flags.c_contiguous for x in tensors):
        return False
    return len({x.requires_grad for x in tensors}) == 1
