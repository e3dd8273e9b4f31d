"""Programs of one function that differ in numbers alone: sizes, strides, offsets, and what is computed of sizes.

The text of a function's first program has its numbers as constants, for which LLVM specialises the nests that it calls.  A later program
of the same graph but for numbers has those that differ in its data table instead, and all offsets with them, since the arena is planned
anew for other sizes.  So the machine code of the second size serves the sizes that follow.  What has been the same so far (the width of a
layer beside a changing batch) stays a constant.

Sizes that the program marks as dynamic (tensor/marks.py) are data of the first program already, and so is what looks as if it was computed
of them; programs with other sizes that it marks as static are no kin.

Which numbers are data is a choice that cannot be wrong: programs with the same text share machine code, whatever led to it.  The results
are those of the constants: nests are the same, and LLVM reorders no floating-point arithmetic, whatever it knows.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Final

from tracejit.llvm.arena import Arena

__all__ = ["Family", "Member", "NumberPattern", "SizeVariant"]

_REMEMBERED: Final = 256
_WITHOUT_DIGITS: Final = str.maketrans("", "", "0123456789")


class NumberPattern:
    """A sequence of numbers, and the positions that have been different since the first time."""

    __slots__ = ("_first", "_first_data", "_varying")

    def __init__(self) -> None:
        self._first: tuple[int | float, ...] | None = None
        self._first_data: frozenset[int] = frozenset()
        self._varying: frozenset[int] = frozenset()

    def data(
        self, numbers: Sequence[int | float], together: Collection[int] = (), dynamic: Collection[int] = ()
    ) -> frozenset[int]:
        """The positions of the numbers that are data of a program: for the first one, and for the same numbers again, those that come of
        dynamic sizes.  together: positions that vary with any other."""
        first = self._first
        if first is None or len(first) != len(numbers):
            moving = [k for k, number in enumerate(numbers) if any(_comes_of(n, number) for n in dynamic)]
            self._first, self._first_data = tuple(numbers), frozenset([*moving, *together] if moving else ())
            self._varying = self._first_data
            return self._first_data
        different = [k for k, (a, b) in enumerate(zip(first, numbers, strict=True)) if a != b]
        if different and not self._varying.issuperset(different):
            self._varying = self._varying.union(different, together)
        return self._varying if different else self._first_data


def _comes_of(size: int, number: int | float) -> bool:
    """Whether a number may have been computed of a size: a multiple of it, one more or less, or one divided by such a number.  Sizes of 0
    and 1 are constants of any program (driver.py)."""
    if size < 2 or not number or not math.isfinite(number) or not math.isfinite(1 / number):
        return False
    whole = int(number) or round(1 / number)
    return number in (whole, 1 / whole) and (whole % size == 0 or abs(whole) in (size - 1, size + 1))


class _Known:
    """What is known of the programs of one graph but for numbers: literals, and numbers of steps by what their texts have in common."""

    __slots__ = ("literals", "steps")

    def __init__(self) -> None:
        self.literals = NumberPattern()
        self.steps: dict[tuple[str, int], NumberPattern] = {}


@dataclass(frozen=True, slots=True)
class SizeVariant:
    """The programs of one graph but for numbers, as one of them sees them, with its dynamic sizes."""

    known: _Known
    dynamic: frozenset[int] = frozenset()

    def literals(self, numbers: Sequence[int | float]) -> frozenset[int]:
        """The positions of the literals that are data of the program."""
        return self.known.literals.data(numbers, (), self.dynamic)

    def data(self, text: str, numbers: Sequence[int], offsets: Collection[int]) -> frozenset[int]:
        """The positions of the numbers of its steps that are data of the program of this text.

        Steps of kin need not be alike: sizes decide how they are cut.  So numbers are compared with those of the first program that had the
        same text but for digits; the first of a text with the first that had as many."""
        steps = self.known.steps
        key = hashlib.sha256(text.translate(_WITHOUT_DIGITS).encode()).hexdigest(), len(numbers)
        known = steps.get(key)
        if known is None:
            known = steps[key] = next((p for (_, count), p in list(steps.items()) if count == len(numbers)), NumberPattern())
        return known.data(numbers, offsets, self.dynamic)


class Family:
    """The programs that a function has had, by what their graphs have in common, and the arena that they share."""

    def __init__(self) -> None:
        self.arena = Arena()
        self._known: dict[Hashable, _Known] = {}

    def known(self, kind: Hashable) -> _Known:
        if len(self._known) > _REMEMBERED:
            self._known.clear()
        return self._known.setdefault(kind, _Known())


@dataclass(frozen=True, slots=True)
class Member:
    """A recording in the family.  dynamic: sizes that the program marks as such; static: those that it wants as constants, with where
    they stand."""

    family: Family
    dynamic: frozenset[int] = frozenset()
    static: tuple[tuple[int, ...], ...] = ()

    def size_variant(self, skeleton: Hashable) -> SizeVariant:
        return SizeVariant(self.family.known((skeleton, self.static)), self.dynamic)
