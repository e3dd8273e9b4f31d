"""Programs of one function that differ in numbers alone: sizes, strides, offsets.

The text of a function's first program has its numbers as constants, for which LLVM specialises the nests that it calls.  A later program
whose text is the same but for some numbers has those in its data table instead, and all offsets with them, since the arena is planned
anew for other sizes.  So the machine code of the second size serves the sizes that follow.  What has been the same so far (the width of a
layer beside a changing batch) stays a constant.

The results are those of the constants: nests are the same, and LLVM reorders no floating-point arithmetic, whatever it knows.
It must not know what a number means.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["Family"]

_REMEMBERED: Final = 256


@dataclass(slots=True)
class _Pattern:
    numbers: tuple[int, ...]  # of the first program
    varying: frozenset[int]  # positions among them of what has been different since


class Family:
    """The programs that a function has had, by their text without numbers."""

    def __init__(self) -> None:
        self._patterns: dict[str, _Pattern] = {}

    def data(self, skeleton: str, numbers: Sequence[int], offsets: Collection[int]) -> frozenset[int]:
        """The positions of the numbers that are data of a program: none for the first one of this `skeleton`, and for the same numbers
        again.  offsets: the positions that vary with any other."""
        if len(self._patterns) > _REMEMBERED:
            self._patterns.clear()
        pattern = self._patterns.setdefault(skeleton, _Pattern(tuple(numbers), frozenset()))
        different = [k for k, (a, b) in enumerate(zip(pattern.numbers, numbers, strict=True)) if a != b]
        if different and not pattern.varying.issuperset(different):
            pattern.varying = pattern.varying.union(different, offsets)
        return pattern.varying if different else frozenset()
