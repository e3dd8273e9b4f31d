"""Which groups of nodes need which others, while groups grow and are merged.

The relation is kept closed: for each group a mask with a bit for every group that it needs, directly or by way of others.  So whether a
path leads from one to another is one bit, however long the program is; a loop of a thousand steps that was unrolled asks millions of times.
Two that are merged go on under the number of one of them, which most of those that need them have already; the bits of the other
stay, and nobody asks for them any more.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["Dependences"]


class Dependences:
    """An acyclic relation between groups, which go by numbers.  Nothing here checks that it stays acyclic: ask `needs` before."""

    def __init__(self) -> None:
        self._ancestors: list[int] = []
        self._before: list[set[int]] = []  # what a group needs directly
        self._after: list[set[int]] = []

    def new(self) -> int:
        """The number of a group that needs nothing yet."""
        self._ancestors.append(0)
        self._before.append(set())
        self._after.append(set())
        return len(self._ancestors) - 1

    def add(self, group: int, sources: Iterable[int]) -> None:
        """The group needs these, too."""
        mask = 0
        for source in sources:
            if source != group and source not in self._before[group]:
                self._before[group].add(source)
                self._after[source].add(group)
                mask |= self._ancestors[source] | 1 << source
        if mask:
            self._inherit([group], mask)

    def needs(self, sources: Iterable[int], target: int) -> bool:
        """Whether any of the sources is the target, or needs it."""
        return any(source == target or self._ancestors[source] >> target & 1 for source in sources)

    def beyond(self, group: int) -> int:
        """A mask of those that the group needs by way of another one: it cannot be merged with them."""
        mask = 0
        for source in self._before[group]:
            mask |= self._ancestors[source]
        return mask

    def have_path_between(self, one: int, other: int) -> bool:
        """Whether a path from one of the two to the other goes by way of a third group."""
        return any(self._ancestors[p] >> other & 1 for p in self._before[one]) or any(
            self._ancestors[p] >> one & 1 for p in self._before[other]
        )

    def merge(self, one: int, other: int) -> int:
        """The number, one of theirs, of a group in the place of two that are not apart."""
        if self._ancestors[one] >> other & 1:  # who needs either has a bit for the one that is needed
            one, other = other, one
        both = {one, other}
        for neighbours, back in ((self._before, self._after), (self._after, self._before)):
            for group in neighbours[other] - both:
                back[group].discard(other)
                back[group].add(one)
            neighbours[one] = (neighbours[one] | neighbours[other]) - both
        self._ancestors[one] = (self._ancestors[one] | self._ancestors[other]) & ~(1 << one | 1 << other)
        self._inherit(self._after[one], self._ancestors[one] | 1 << one)
        return one

    def _inherit(self, groups: Iterable[int], mask: int) -> None:
        """These groups need all of the mask, and so does what needs them."""
        stack = list(groups)
        while stack:
            group = stack.pop()
            if mask & ~self._ancestors[group]:
                self._ancestors[group] |= mask
                stack.extend(self._after[group])
