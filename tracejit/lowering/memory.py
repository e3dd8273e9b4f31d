"""Where temporary memory lies: offsets in the arena of a frame, and in a residual slab.

`plan(requests)` packs byte ranges with lifetimes (first and last step, inclusive) into one arena: two requests share bytes only if their
lifetimes do not meet.  Largest first, each at the lowest offset that is free for its whole life (Pisarchyk & Lee, "Efficient Memory
Management for Deep Neural Net Inference", 2020, greedy by size).  `slab_offsets` lays values one after the other.  All offsets are
multiples of 64.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tracejit.core.aval import Aval
from tracejit.core.symbolic import called

__all__ = ["ALIGNMENT", "Request", "aligned", "plan", "slab_offsets"]

ALIGNMENT: Final = 64
HALF: Final = 32  # steps of a half of a stretch


class Request(NamedTuple):
    """`nbytes` for `key`, alive from step `first` to step `last`."""

    key: Hashable
    nbytes: int
    first: int
    last: int


def aligned(nbytes: int) -> int:
    """The next multiple of the alignment."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def plan(requests: Iterable[Request]) -> tuple[dict[Hashable, int], int]:
    """(offset of every key, size of the arena).  Of symbolic sizes it is planned anew for each."""
    requests = list(requests)
    *offsets, total = called(_Plan(tuple([(r.first, r.last) for r in requests])), *[r.nbytes for r in requests])
    return {r.key: offset for r, offset in zip(requests, offsets, strict=True)}, total


@dataclass(frozen=True, slots=True)
class _Plan:
    """A plan of requests with these lifetimes: a function of their sizes.

    Most requests live for a few steps.  So what is placed is also listed by stretches of steps, each of which begins where the one before
    it is half over: a short life is inside one of them, and looks at those alone that may meet it."""

    lives: tuple[tuple[int, int], ...]

    def __call__(self, *sizes: int) -> list[int]:
        """The offset of each, then the size of the arena."""
        lives, offsets, total = self.lives, [0] * len(sizes), 0
        everything: list[tuple[int, int, int, int]] = []  # (start, stop, first, last) in order, as are those of each stretch
        stretches: defaultdict[int, list[tuple[int, int, int, int]]] = defaultdict(list)
        for k in sorted(range(len(sizes)), key=lambda k: (-sizes[k], lives[k][0])):
            first, last = lives[k]
            size = aligned(sizes[k])
            offset, end = 0, size
            begins, ends = first // HALF, last // HALF
            for start, stop, begun, ended in stretches[begins] if ends <= begins + 1 else everything:
                if begun > last or ended < first:
                    continue
                if end <= start:
                    break
                if stop > offset:
                    offset, end = stop, stop + size
            offsets[k] = offset
            if size:
                allocation = offset, end, first, last
                insort(everything, allocation)
                for n in range(begins - 1, ends + 1):
                    insort(stretches[n], allocation)
            total = max(total, end)
        return [*offsets, total]


def slab_offsets(avals: Sequence[Aval]) -> tuple[tuple[int, ...], int]:
    """(byte offset of every value, size) of a residual slab."""
    offsets, total = [], 0
    for aval in avals:
        offsets.append(total)
        total += aligned(aval.nbytes)
    return tuple(offsets), total
