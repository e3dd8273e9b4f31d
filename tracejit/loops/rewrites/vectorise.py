"""Vectors: in how many lanes the innermost loops of a nest run.

Lanes are as many as a register has of the widest elements that a loop names or stores; twice as many where the computation of an element
is long, which unrolls the loop by two: the processor waits for one register's worth while it computes the other.  A loop of few
iterations has fewer, so that no more lanes than need be are empty.  Reductions have LANES everywhere (`Reduce`), whatever the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tracejit.loops.expressions import Expr
from tracejit.loops.language import Exit, For, Let, Nest, Reduce, Statement, Store
from tracejit.loops.target import Target
from tracejit.loops.verify import independent
from tracejit.loops.weights import total_weight

__all__ = ["vectorise"]

LONG: Final = 40  # from this weight on two registers' worth of elements are computed at a time
NARROWEST: Final = 4  # bytes: narrower elements are computed with as wider ones


def vectorise(nest: Nest, target: Target) -> Nest:
    """The nest, its vector loops with the lanes that suit the target."""
    return replace(nest, body=_statements(nest.body, target))


def _statements(statements: Sequence[Statement], target: Target) -> tuple[Statement, ...]:
    return tuple([_loop(s, target) if isinstance(s, For | Reduce) else s for s in statements])


def _loop(s: For | Reduce, target: Target) -> Statement:
    if isinstance(s, For) and s.vector and independent(s):
        return replace(s, lanes=_lanes(s, target))
    return replace(s, body=_statements(s.body, target))


def _lanes(s: For, target: Target) -> int:
    widest = NARROWEST
    computed: list[Expr] = []
    for b in s.body:
        if isinstance(b, Let | Store):
            computed.append(b.value)
            widest = max(widest, b.value.dtype.itemsize)
        elif isinstance(b, Exit):
            computed.append(b.condition)
    lanes = target.lanes(widest)
    if total_weight(computed) >= LONG:
        lanes *= 2
    if isinstance(s.extent, int):
        most = 2 * s.extent - 1 if target.masked else s.extent  # without masks, what does not fill a group runs one by one
        while lanes > max(2, most):
            lanes //= 2
    return lanes
