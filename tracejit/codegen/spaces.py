"""The loops of an iteration space: which neighbouring axes become one loop.

`accesses` lists how the members of a group touch memory (strides by axis); `collapsed` joins the axes that all of them treat as one.  A
reduction over some axes, and a coordinate that is itself a value (a range, a comparison with an index), keep axes apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from tracejit.codegen.fuse import LATE, Group
from tracejit.codegen.values import Values, operand_positions
from tracejit.codegen.views import Position, Positions, Strided, contiguous, linear

__all__ = ["accesses", "collapsed"]


def collapsed(
    extents: Sequence[int], barriers: AbstractSet[int], strides: Sequence[Mapping[int, int]], pinned: AbstractSet[int]
) -> list[list[int]]:
    """Runs of neighbouring axes that every access (strides by axis) treats as one.  Nothing joins across a barrier (an axis that starts
    a run), or with a pinned axis."""
    runs: list[list[int]] = []
    for a in range(len(extents)):
        joins = (
            bool(runs)
            and a not in barriers
            and a not in pinned
            and a - 1 not in pinned
            and all(s.get(a - 1, 0) == s.get(a, 0) * extents[a] for s in strides)
        )
        if joins:
            runs[-1].append(a)
        else:
            runs.append([a])
    return runs


def accesses(
    values: Values, group: Group, stored: frozenset[int], inlined: frozenset[int]
) -> tuple[list[Mapping[int, int]], set[int], set[int]]:
    """(strides by axis of every access of a group, axes whose coordinate itself is used, axes that must start a loop)."""
    assert group.axes is not None
    extents = group.axes
    strides: list[Mapping[int, int]] = []
    pinned: set[int] = set()
    barriers: set[int] = {0}
    if group.inner is not None:
        barriers.add(group.inner)
    seen: set[Any] = set()

    def access(layout: Strided, at: Positions) -> None:
        strides.append(dict(linear(at, layout.strides).terms))

    def pin(p: Position) -> None:
        pinned.update(a for a, _ in p.terms)

    def visit(v: int, at: Positions) -> None:
        while True:
            source = values.producer.get(values.root(v), -1)
            if source not in group.members and source not in inlined:
                access(values.strided[v], at)
                return
            if not values.is_view(v):
                member(source, at)
                return
            if values.nodes[source].op.name == "full":
                return
            below = values.through(v, at, extents)
            assert below is not None
            v, at = below

    def member(number: int, at: Positions) -> None:
        m = group.members.get(number)
        if (m is not None and m.out == at) or (number, at) in seen:
            return
        seen.add((number, at))
        operands(number, at)

    def operands(number: int, at: Positions) -> None:
        node = values.nodes[number]
        if node.op.name in ("arange", "eye"):
            for p in at:
                pin(p)
        elif node.op.name in ("scatter_add", "scatter", "select_scatter"):
            pin(at[node.attrs["dim"]])
        for k, where in operand_positions(values, node, at, None):
            visit(node.operands[k], where)  # type: ignore[arg-type]

    for number, m in group.members.items():
        operands(number, m.at)
        node = values.nodes[number]
        if m.reduced:
            for a in m.reduced:
                if a - 1 not in m.reduced:
                    barriers.add(a)
                if a + 1 not in m.reduced:
                    barriers.add(a + 1)
        if number in stored or m.level == LATE:
            out = node.outputs[0]
            access(Strided(out, 0, contiguous(values.shape(out))), m.out)
    return strides, pinned, barriers
