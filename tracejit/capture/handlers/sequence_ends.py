"""The ends of a list or deque from outside: what a run adds and removes there, without regard to the length.

A list that grows with each call has a different length in each.  But the items that the run has added at an end are known, and so
is which of the original items is the n-th from an end.  So reading at a fixed position from an end needs no guard on the length.

Places *from the start* begin with 0, positions *from the end* with 1.  Those of the *original* items are those before the call.
This module must not know guards: contents.py and sequences.py add them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["SequenceEnds", "fixed_positions"]


@dataclass(slots=True)
class SequenceEnds:
    """A list or deque whose ends alone are known.

    length: of the original.  most: the largest length of a deque, its maxlen.  first, last: how many original items were removed
    at the front and at the back.  front, back: the items that were added there.  changed: position from the end -> new value of an
    original item.  overflowed: whether a deque may have dropped items at the other end, which depends on its length."""

    length: int
    most: int | None = None
    first: int = 0
    last: int = 0
    front: list[Any] = field(default_factory=list)
    back: list[Any] = field(default_factory=list)
    changed: dict[int, Any] = field(default_factory=dict)
    overflowed: bool = False

    @property
    def rest(self) -> int:
        """How many original items are left in this run."""
        return self.length - self.first - self.last

    @property
    def growth(self) -> int:
        """The length now, less the original length."""
        return len(self.front) + len(self.back) - self.first - self.last

    @property
    def moved(self) -> bool:
        """Whether items have other positions from the start than in the original."""
        return bool(self.front) or self.first > 0

    def push(self, name: str, items: list[Any]) -> None:
        """Add items by `append`, `extend` or `appendleft`."""
        if name == "appendleft":
            self.front[:0] = items
        else:
            self.back += items
        self.overflowed = self.overflowed or (self.most is not None and self.length + self.growth > self.most)

    def takes_old(self, left: bool) -> bool:
        """Whether the item at an end is an original one."""
        return not (self.front if left else self.back)

    def pop(self, left: bool) -> None:
        """Remove the item at an end."""
        if left and self.front:
            del self.front[0]
        elif left:
            self.first += 1
        elif self.back:
            del self.back[-1]
        else:
            self.last += 1


def fixed_positions(key: slice, length: int) -> tuple[int, list[int]] | None:
    """(least length of a sequence, indices) for which the slice `key` has these indices, all counted from one end.  None if the
    number of its items depends on the length, or `length` is less than the least one."""
    start, stop, step = key.start, key.stop, 1 if key.step is None else key.step
    if step == 0:
        return None
    begins_at_end = start < 0 if start is not None else step < 0
    ends_at_end = stop < 0 if stop is not None else step > 0
    if begins_at_end is not ends_at_end:
        return None
    if begins_at_end:
        least = max(-bound for bound in (start, stop, -1) if bound is not None)
        first, last = -1 if start is None else start, 0 if stop is None else stop
    else:
        least = max(bound + 1 for bound in (start, stop, 0) if bound is not None)
        first, last = 0 if start is None else start, -1 if stop is None else stop
    if step > 0 and not begins_at_end:
        least = max(least - 1, 0)
    return (least, list(range(first, last, step))) if length >= least else None
