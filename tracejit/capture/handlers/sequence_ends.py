"""What a run does at the ends of a list or deque from outside, without knowing how long it is.

A list that grows with each call has another length in each, but what the run has put at an end is known, and so is which of the items
that were there before is the n-th from an end.  So reading at a fixed place from an end needs no guard on the length.

Counting: places *from the start* begin with 0, places *from the end* with 1; those of the original are those before the call.
It knows nothing of guards (contents.py, sequences.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["SequenceEnds", "fixed_places"]


@dataclass(slots=True)
class SequenceEnds:
    """A list or deque of which only the ends are known.

    length: of the original.  most: the length that a deque cannot exceed.  first, last: how many original items were taken from the front
    and from the back.  front, back: the items that were put there.  changed: original items that were replaced, by their places from the
    end.  overflowed: whether a deque has pushed items out at the other end, which depends on its length."""

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
        """How many original items there still are, in this run."""
        return self.length - self.first - self.last

    @property
    def growth(self) -> int:
        """By how much it has grown."""
        return len(self.front) + len(self.back) - self.first - self.last

    @property
    def moved(self) -> bool:
        """Whether places from the start are no longer those of the original."""
        return bool(self.front) or self.first > 0

    def push(self, name: str, items: list[Any]) -> None:
        """`append`, `extend` or `appendleft`."""
        if name == "appendleft":
            self.front[:0] = items
        else:
            self.back += items
        self.overflowed = self.overflowed or (self.most is not None and self.length + self.growth > self.most)

    def takes_old(self, left: bool) -> bool:
        """Whether the item at an end is an original one."""
        return not (self.front if left else self.back)

    def pop(self, left: bool) -> None:
        """The item at an end goes."""
        if left and self.front:
            del self.front[0]
        elif left:
            self.first += 1
        elif self.back:
            del self.back[-1]
        else:
            self.last += 1


def fixed_places(key: slice, length: int) -> tuple[int, list[int]] | None:
    """(how long a sequence must at least be, the indexes that a slice then stands for, all from one end); None for a slice whose extent
    depends on the length, or where a sequence of `length` is too short."""
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
