"""Programs of one function that differ in numbers alone: sizes, strides, offsets, and what is computed of sizes.

The text of a function's first program has its numbers as constants, for which LLVM specialises the nests that it calls.  A later program
of the same graph but for numbers has those that differ in its data table instead, and all offsets with them, since the arena is planned
anew for other sizes.  So the machine code of the second size serves the sizes that follow.  What has been the same so far (the width of a
layer beside a changing batch) stays a constant.

A program with symbolic sizes (core/symbolic.py) says itself which numbers are computed of sizes: these are data, whatever was seen before.
Programs with other sizes that the user marks as static (tensor/marks.py) share nothing.

Which numbers are data is a choice that cannot be wrong: programs with the same text share machine code, whatever led to it.  The results
are those of the constants: nests are the same, and LLVM reorders no floating-point arithmetic, whatever it knows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Final

from tracejit.llvm.arena import Arena

__all__ = ["Family", "Member", "NumberPattern", "SizeVariant"]

_REMEMBERED: Final = 256
_WITHOUT_DIGITS: Final = str.maketrans("", "", "0123456789")


class NumberPattern:
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
            return self._varying
        different = [k for k, (a, b) in enumerate(zip(first, numbers, strict=True)) if a != b]
        if different and not self._varying.issuperset(different):
            self._varying = self._varying.union(different, together)
        return self._varying if different else frozenset()


class SizeVariant:
    """The programs of one graph but for numbers: which of their numbers are data."""

    __slots__ = ("_literals", "_steps")

    def __init__(self) -> None:
        self._literals = NumberPattern()
        self._steps: dict[tuple[str, int], NumberPattern] = {}  # by what texts of steps have in common

    def literals(self, numbers: Sequence[int | float]) -> frozenset[int]:
        """The positions of the literals that are data of the program."""
        return self._literals.data(numbers)

    def data(self, text: str, numbers: Sequence[int], offsets: Collection[int]) -> frozenset[int]:
        """The positions of the numbers of its steps that are data of the program of this text.

        Sizes decide how steps are cut, so programs of two sizes need not have the same steps.  Numbers are compared with those of the first
        program that had the same text but for digits; the first of a text with the first that had as many numbers."""
        steps = self._steps
        key = hashlib.sha256(text.translate(_WITHOUT_DIGITS).encode()).hexdigest(), len(numbers)
        pattern = steps.get(key)
        if pattern is None:
            pattern = next((p for (_, count), p in list(steps.items()) if count == len(numbers)), NumberPattern())
            steps[key] = pattern
        return pattern.data(numbers, offsets)


class Family:
    """The programs that a function has had, by what their graphs have in common, and the arena that they share."""

    def __init__(self) -> None:
        self.arena = Arena()
        self._variants: dict[Hashable, SizeVariant] = {}

    def variant(self, kind: Hashable) -> SizeVariant:
        """The one for programs of this kind."""
        if len(self._variants) > _REMEMBERED:
            self._variants.clear()
        return self._variants.setdefault(kind, SizeVariant())


@dataclass(frozen=True, slots=True)
class Member:
    """A recording in the family.  static: sizes that the user wants as constants, with where they stand."""

    family: Family
    static: tuple[tuple[int, ...], ...] = ()

    def size_variant(self, skeleton: Hashable) -> SizeVariant:
        return self.family.variant((skeleton, self.static))
