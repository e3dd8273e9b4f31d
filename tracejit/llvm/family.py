"""Programs of one function that differ in numbers alone: sizes, strides, offsets, and what is computed of sizes.

The text of a function's first program has its numbers as constants, for which LLVM specialises the nests that it calls.  A later program
of the same graph but for numbers has those that differ in its data table instead, and all offsets with them, since the arena is planned
anew for other sizes.  So the machine code of the second size serves the sizes that follow.  What has been the same so far (the width of a
layer beside a changing batch) stays a constant.

Which numbers are data is a choice that cannot be wrong: programs with the same text share machine code, whatever led to it.  The results
are those of the constants: nests are the same, and LLVM reorders no floating-point arithmetic, whatever it knows.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import Final

__all__ = ["Family", "Kin", "Pattern"]

_REMEMBERED: Final = 256


class Pattern:
    """A sequence of numbers, and the positions that have been different since the first time."""

    __slots__ = ("_first", "_varying")

    def __init__(self) -> None:
        self._first: tuple[int | float, ...] | None = None
        self._varying: frozenset[int] = frozenset()

    def data(self, numbers: Sequence[int | float], together: Collection[int] = ()) -> frozenset[int]:
        """The positions of the numbers that are data of a program: none for the first one, and for the same numbers again.  together:
        positions that vary with any other."""
        first = self._first
        if first is None or len(first) != len(numbers):
            self._first, self._varying = tuple(numbers), frozenset()
            return frozenset()
        different = [k for k, (a, b) in enumerate(zip(first, numbers, strict=True)) if a != b]
        if different and not self._varying.issuperset(different):
            self._varying = self._varying.union(different, together)
        return self._varying if different else frozenset()


class Kin:
    """What is known of the programs of one graph but for numbers: those of the graph, and those of its steps."""

    __slots__ = ("literals", "numbers")

    def __init__(self) -> None:
        self.literals = Pattern()
        self.numbers = Pattern()


class Family:
    """The programs that a function has had, by what their graphs have in common."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Kin] = {}

    def kin(self, skeleton: Hashable) -> Kin:
        if len(self._known) > _REMEMBERED:
            self._known.clear()
        return self._known.setdefault(skeleton, Kin())
