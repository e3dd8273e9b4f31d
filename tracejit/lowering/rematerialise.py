"""Which steps are done again where their results are read later, so that these need not be kept until then.

A training step reads in its backward part much of what its forward part made.  All of that is alive where the two meet, and there a
program needs the most memory.  Some of it costs little to make again: a norm with its activation makes three values of one; and where
no kernel reads windows where they are, a convolution copies those of an image into a matrix, nine times as large as the image for
windows of 3 x 3, which the gradient of the weights reads again.  A step that is done again does what it did, out of the same values:
it gives the same bits.  To compute activations again rather than keep them is the idea of Chen, Xu, Zhang & Guestrin, "Training Deep
Nets with Sublinear Memory Cost", 2016.

`repetitions` finds the step at which most bytes are alive.  Which of the values that are made before and read after it are kept, and
which are made again, and out of what, is a minimum cut: keeping a value costs its bytes, doing a step again what the caller says.
Knows steps by what they read and write; not what they compute.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tracejit.passes.mincut import Cut

__all__ = ["LEAST_BYTES", "LEAST_PEAK", "Repetition", "Work", "most_alive", "repetitions"]

LEAST_PEAK: Final = 8 << 20
"""Bytes: a program that never has more alive is left as it is."""
LEAST_BYTES: Final = 1 << 14
"""Smaller values are kept."""
NEAR: Final = 4
"""A value that is read again within so many steps is kept."""
_ENDLESS: Final = 1 << 60


@dataclass(frozen=True, slots=True)
class Work:
    """A step: the values that it reads and makes, and what it costs to do it again, in bytes kept instead; None where it may not be."""

    reads: frozenset[int]
    writes: frozenset[int]
    cost: int | None = None


@dataclass(frozen=True, slots=True)
class Repetition:
    """Step `step` is done again just before step `before`; `names`: of its results, what they are called then."""

    step: int
    before: int
    names: Mapping[int, int]


def _lives(steps: Sequence[Work], sizes: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """The first and last step of each value that has a size."""
    lives: dict[int, tuple[int, int]] = {}
    for k, step in enumerate(steps):
        for v in (*step.reads, *step.writes):
            if v in sizes:
                lives[v] = lives[v][0] if v in lives else k, k
    return lives


def most_alive(steps: Sequence[Work], sizes: Mapping[int, int]) -> tuple[int, int]:
    """(the most bytes that are alive during a step, the first such step)."""
    changes = [0] * (len(steps) + 1)
    for v, (first, last) in _lives(steps, sizes).items():
        changes[first] += sizes[v]
        changes[last + 1] -= sizes[v]
    alive, most, at = 0, 0, 0
    for k, change in enumerate(changes):
        alive += change
        if alive > most:
            most, at = alive, k
    return most, at


def repetitions(
    steps: Sequence[Work], sizes: Mapping[int, int], fresh: int, near: int | None = None, least_bytes: int | None = None
) -> tuple[list[Repetition], dict[int, dict[int, int]]]:
    """(what is done again, in order; for each step that then reads something else: the value -> what it reads instead).  Steps go by their
    numbers, repetitions by those that follow.

    sizes: bytes of the values whose memory is free when nothing reads them any more; all others are there in any case, and are as they
    were.  fresh: names of new values are this number and those that follow.  near, least_bytes: what is kept in any case; NEAR and
    LEAST_BYTES where they are None."""
    near, least_bytes = NEAR if near is None else near, LEAST_BYTES if least_bytes is None else least_bytes
    _, peak = most_alive(steps, sizes)
    makers = {v: k for k, step in enumerate(steps) for v in step.writes}
    seen: dict[int, int] = {}  # value -> the last step up to the peak that makes or reads it
    later: dict[int, int] = {}  # value -> the first step after the peak that reads it
    for k, step in enumerate(steps):
        for v in (*step.reads, *step.writes):
            if k <= peak:
                seen[v] = k
            elif v in seen:
                later.setdefault(v, k)
    kept = {v for v in seen if sizes.get(v, 0) <= least_bytes or (v in later and later[v] - seen[v] <= near)}
    again = _made_again(steps, sizes, makers, [v for v in later if v not in kept], kept)

    found: list[Repetition] = []
    instead: dict[int, dict[int, int]] = {}
    names: dict[int, int] = {}  # value -> its name once it is made again

    def make(wanted: Collection[int], before: int) -> None:
        """Do again what makes these values, and what that reads, in the order of the steps."""
        stack, repeated = list(wanted), set[int]()
        while stack:
            v = stack.pop()
            if v in again and v not in names and makers[v] not in repeated:
                repeated.add(makers[v])
                stack.extend(steps[makers[v]].reads)
        for step in sorted(repeated):
            instead[len(steps) + len(found)] = {x: names[x] for x in steps[step].reads if x in names}
            own = {x: fresh + len(names) + i for i, x in enumerate(sorted(steps[step].writes))}
            names.update(own)
            found.append(Repetition(step, before, own))

    for k in range(peak + 1, len(steps)):
        make(steps[k].reads, k)
        read = {v: names[v] for v in steps[k].reads if v in names and v in again}
        if read:
            instead[k] = read
    return found, instead


def _made_again(
    steps: Sequence[Work], sizes: Mapping[int, int], makers: Mapping[int, int], needed: Sequence[int], kept: Collection[int]
) -> set[int]:
    """The values that are not kept but made again, that all `needed` ones are to be had at the least cost; `kept`: those that are kept
    in any case."""
    source, sink = 0, 1
    vertices: dict[tuple[str, int], int] = {}
    edges: dict[tuple[int, int], int] = {}
    stack: list[int] = []

    def vertex(kind: str, number: int) -> int:
        return vertices.setdefault((kind, number), 2 + len(vertices))

    def had(v: int) -> int:
        """On the sink's side if the value is there after the peak; `made`, on the sink's side if it is made again."""
        if ("had", v) not in vertices:
            stack.append(v)
        return vertex("had", v)

    for v in needed:
        edges[had(v), sink] = _ENDLESS
    while stack:
        v = stack.pop()
        made = vertex("made", v)
        edges[made, vertex("had", v)] = sizes[v]
        step = makers.get(v)
        cost = None if step is None else steps[step].cost
        if step is None or cost is None:
            edges[source, made] = _ENDLESS
            continue
        repeated = vertex("step", step)
        edges[repeated, made] = _ENDLESS
        if (source, repeated) not in edges:
            edges[source, repeated] = cost
            for x in steps[step].reads:
                if x in sizes and x not in kept:
                    edges[had(x), repeated] = _ENDLESS
    on_source_side = Cut(2 + len(vertices), source, sink, tuple(edges))(*edges.values())
    return {v for (kind, v), number in vertices.items() if kind == "made" and not on_source_side[number]}
