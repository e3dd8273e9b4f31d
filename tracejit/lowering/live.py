"""What lies whole in the arena of a program when it leaves at an exit: values that what goes on from there need not compute again.

`LiveValues` is asked by exit.  A value is there if some step before that of the exit has made it, and none since then has written to its
memory, whatever for.  Which exits come before another one is known as well: steps are in order, so their guards held, and what may
raise did not.

`Inherited` is the other side: the memory of a program that has left, and the values that another program finds in it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tracejit.core.symbolic import has_symbols

__all__ = ["NOTHING_LIVE", "Inherited", "LiveValues", "ValueLocation", "live"]

_MOST: Final = 4_000_000  # pairs of a value and a step that are looked at


@dataclass(frozen=True, slots=True)
class ValueLocation:
    """Where the elements of a value are: `offset` in bytes, `strides` in elements."""

    offset: int
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Inherited:
    """`nbytes` of memory with the values of a program that has left."""

    nbytes: int
    locations: Mapping[int, ValueLocation]


@dataclass(frozen=True, slots=True)
class LiveValues:
    """steps: the step of each exit.  values: (value, where it is, the step that makes it, the one that writes to its memory next)."""

    steps: Mapping[int, int] = field(default_factory=dict)
    values: tuple[tuple[int, ValueLocation, int, int], ...] = ()

    def at(self, number: int) -> dict[int, ValueLocation]:
        """The values that are there when the program leaves at this exit."""
        step = self.steps.get(number, -1)
        return {v: location for v, location, made, lost in self.values if made < step < lost}

    def before(self, number: int) -> frozenset[int]:
        """The exits that were not taken where this one is."""
        step = self.steps.get(number, -1)
        return frozenset([other for other, own in self.steps.items() if own < step])


@dataclass(frozen=True, slots=True)
class SymbolicLiveValues(LiveValues):
    """That of a program with symbolic sizes: which memory is written to again is asked of each size.  memory: arguments of `live`."""

    memory: tuple[Any, ...] = ()

    def substituted(self, of: Callable[[Any], Any]) -> LiveValues:
        """What is there with other sizes."""
        written, homes, sizes = of(self.memory)
        return live(self.steps, written, homes, sizes)


NOTHING_LIVE: Final = LiveValues()


def live(
    steps: Mapping[int, int],
    written: Sequence[Collection[tuple[int, int]]],
    homes: Mapping[int, Collection[tuple[int, ValueLocation]]],
    sizes: Mapping[int, tuple[int, int, int]],
) -> LiveValues:
    """steps: the step of each exit.  written: (start, end) of the memory that each step up to the last exit writes to.  sizes: of each
    value that has memory of its own the step that makes it, the start and the end of that.  homes: the values that lie in it, and where."""
    if len(sizes) * len(written) > _MOST:
        return NOTHING_LIVE
    if any(map(has_symbols, sizes.values())):
        return SymbolicLiveValues(steps, (), (written, homes, sizes))
    found = []
    for root, (made, start, end) in sizes.items():
        lost = next((k for k in range(made + 1, len(written)) if any(a < end and start < b for a, b in written[k])), len(written))
        found += [(v, location, made, lost) for v, location in homes.get(root, ())]
    return LiveValues(steps, tuple(found))
