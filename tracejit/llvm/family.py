"""Programs of one function that differ in numbers alone: sizes, strides, offsets, and what is computed of sizes.

The text of a function's first program has its numbers as constants, for which LLVM specialises the nests that it calls.  A later program
of the same graph but for numbers has those that differ in its data table instead, and all offsets with them, since the arena is planned
anew for other sizes.  So the machine code of the second size serves the sizes that follow.  What has been the same so far (the width of a
layer beside a changing batch) stays a constant.

Which numbers are data is a choice that cannot be wrong: programs with the same text share machine code, whatever led to it.  The results
are those of the constants: nests are the same, and LLVM reorders no floating-point arithmetic, whatever it knows.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Hashable, Sequence
from typing import Final

from tracejit.llvm.arena import Arena

__all__ = ["Family", "Kin", "Pattern"]

_REMEMBERED: Final = 256
_DIGITS: Final = re.compile(r"[0-9]+")


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
    """What is known of the programs of one graph but for numbers.

    Their steps need not be alike: sizes decide how they are cut.  So numbers of steps are compared with those of the first program that had
    the same text but for digits; the first of a text with the first that had as many."""

    __slots__ = ("_patterns", "literals")

    def __init__(self) -> None:
        self.literals = Pattern()
        self._patterns: dict[tuple[str, int], Pattern] = {}

    def data(self, text: str, numbers: Sequence[int], offsets: Collection[int]) -> frozenset[int]:
        """The positions of the numbers that are data of a program of this text."""
        key = hashlib.sha256(_DIGITS.sub("", text).encode()).hexdigest(), len(numbers)
        known = self._patterns.get(key)
        if known is None:
            known = next((p for (_, count), p in list(self._patterns.items()) if count == len(numbers)), Pattern())
            self._patterns[key] = known
        return known.data(numbers, offsets)


class Family:
    """The programs that a function has had, by what their graphs have in common, and the arena that they share."""

    def __init__(self) -> None:
        self.arena = Arena()
        self._known: dict[Hashable, Kin] = {}

    def kin(self, skeleton: Hashable) -> Kin:
        if len(self._known) > _REMEMBERED:
            self._known.clear()
        return self._known.setdefault(skeleton, Kin())
