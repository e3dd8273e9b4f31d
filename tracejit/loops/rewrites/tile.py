"""Tiles: loops that read memory across, cut so that what they read can be transposed in registers.

A vector loop that steps through memory in strides, where a loop around it goes on to the neighbouring element, would gather every
vector from as many cache lines as it has lanes, and use each line again only after the whole inner loop.  Both loops are therefore cut into
groups of as many iterations as the inner one has lanes.  Small strides in the inner loop are left to exchanges of lanes.

Iterations change places, so only loops are cut whose stores are of one iteration alone (`interchangeable`); the bits stay the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tracejit.loops.expressions import Load, topological
from tracejit.loops.language import (
    SMALL_STRIDES,
    Axis,
    Buffer,
    Extent,
    For,
    Index,
    Let,
    Nest,
    Reduce,
    Statement,
    Store,
    Tiles,
    chain,
)
from tracejit.loops.rewrites.vectorise import NARROWEST
from tracejit.loops.target import Target
from tracejit.loops.verify import interchangeable

__all__ = ["tile"]

MOST: Final = 4  # accesses at a time: their tiles must stay in the nearest cache


def tile(nest: Nest, target: Target) -> Nest:
    """The nest, whose loops have lanes, with tiles where something is read across."""
    return replace(nest, body=_statements(nest.body, target))


def _statements(statements: Sequence[Statement], target: Target) -> tuple[Statement, ...]:
    return tuple([_loop(s, target) if isinstance(s, For | Reduce) else s for s in statements])


def _loop(s: For | Reduce, target: Target) -> Statement:
    tiles = _tiles(s, target) if isinstance(s, For) else None
    if isinstance(s, For) and tiles is not None:
        return replace(s, tiles=tiles)
    return replace(s, body=_statements(s.body, target))


def _tiles(outer: For, target: Target) -> Tiles | None:
    loops, lets = chain(outer)
    if len(loops) < 2 or outer.extent in (0, 1) or loops[-1].extent in (0, 1) or not interchangeable(outer):
        return None
    inner = loops[-1]
    values = [s.value for s in (*lets, *inner.body) if isinstance(s, Let | Store)]
    read = dict.fromkeys((e.buffer, e.index) for e in topological(values) if isinstance(e, Load) and e.index.dynamic is None)

    def across(loop: For) -> list[tuple[Buffer, Index]]:
        return [
            (b, i) for b, i in read if _stride(i, loop.axis) == 1 and _stride(i, inner.axis) not in (0, 1, -1, *SMALL_STRIDES)
        ]

    accesses = tuple(across(outer)[:MOST])
    if not accesses or any(across(loop) for loop in loops[1:-1]):
        return None
    return Tiles(min(inner.lanes, *(target.lanes(max(b.dtype.itemsize, NARROWEST)) for b, _ in accesses)), accesses)


def _stride(index: Index, axis: Axis) -> Extent:
    return dict(index.terms).get(axis, 0)
