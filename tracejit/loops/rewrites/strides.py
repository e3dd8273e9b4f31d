"""Strides: stores to the columns of a narrow table become one interleaved store, where they follow each other and leave no column out.

Single ones are not worth it, wide tables would need more registers than there are.  Loads at small strides need no rewrite: each is an
exchange of lanes of its own, a pattern of the emitter (llvm/strides.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tracejit.loops.language import SMALL_STRIDES, Axis, For, Interleaved, Nest, Reduce, Statement, Store
from tracejit.loops.target import Target
from tracejit.loops.verify import fill_a_table

__all__ = ["interleave"]


def interleave(nest: Nest, target: Target) -> Nest:
    """The nest, with interleaved stores in its loops with lanes and its reductions."""
    return replace(nest, body=_statements(nest.body, None))


def _statements(statements: Sequence[Statement], axis: Axis | None) -> tuple[Statement, ...]:
    """axis: that of the lanes, if the statements run in lanes."""
    made: list[Statement] = []
    position = 0
    while position < len(statements):
        s = statements[position]
        if isinstance(s, Store) and axis is not None:
            stride = dict(s.index.terms).get(axis, 0)
            if isinstance(stride, int) and stride in SMALL_STRIDES:
                columns = tuple([c for c in statements[position : position + stride] if isinstance(c, Store)])
                if fill_a_table(columns, axis):
                    made.append(Interleaved(columns))
                    position += stride
                    continue
        if isinstance(s, For | Reduce):
            s = replace(s, body=_statements(s.body, s.axis if isinstance(s, Reduce) or s.lanes > 1 else None))
        made.append(s)
        position += 1
    return tuple(made)
