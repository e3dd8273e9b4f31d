"""Which values are made again where they are read later, instead of being kept until then.

A value that a step makes and a much later one reads takes memory at all steps between the two.  A convolution copies the windows of
an image into a matrix, nine times as large as the image for windows of 3 x 3, and multiplies it; the gradient of its weights reads the
same matrix.  It takes less memory to keep the image, and to copy the windows again.  That activations are computed again rather than
kept is the idea of Chen, Xu, Zhang & Guestrin, "Training Deep Nets with Sublinear Memory Cost", 2016.

`second_lives` decides by positions alone.  Knows no nodes and no memory.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

__all__ = ["GROWTH", "LEAST_BYTES", "NEAR", "SecondLife", "second_lives"]

GROWTH: Final = 1.5
"""A value that is made again takes at least so many times the memory of what it is made of: that is kept instead of it."""
LEAST_BYTES: Final = 1 << 16
"""A smaller value is kept: it is in cache when it is read."""
NEAR: Final = 4
"""Between readers with fewer steps than this from one to the next a value is kept."""


@dataclass(frozen=True, slots=True)
class SecondLife:
    """`value` is made again just before step `readers[0]`, and these steps read what is made then."""

    value: int
    readers: tuple[int, ...]


def second_lives(reads: Sequence[Collection[int]], movable: Collection[int]) -> list[SecondLife]:
    """What is made again, in the order of the steps before which it is.  reads: the values that each step reads.  movable: those
    that may be made again."""
    readers: dict[int, list[int]] = {}
    for k, values in enumerate(reads):
        for v in values:
            if v in movable:
                readers.setdefault(v, []).append(k)
    found = []
    for v, steps in readers.items():  # the first of them read what was made first, however far away that was
        bounds = [*(k for k in range(1, len(steps)) if steps[k] - steps[k - 1] > NEAR), len(steps)]
        found += [SecondLife(v, tuple(steps[begin:end])) for begin, end in pairwise(bounds)]
    return sorted(found, key=lambda life: life.readers[0])
