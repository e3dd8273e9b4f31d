"""The loops of an iteration space: which neighbouring axes become one loop.

`accesses` lists how the members of a group touch memory (strides by axis); `collapsed` joins the axes that all of them treat as one.  A
reduction over some axes, and a coordinate that is itself a value (a range, a comparison with an index), keep axes apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

from tracejit.core.op import Kind
from tracejit.core.shapes import contiguous
from tracejit.ir.layouts import Positions, Strided, linear
from tracejit.lowering.fuse import INNER, LATE, Group, Growth
from tracejit.lowering.values import Values, operand_positions

__all__ = ["accesses", "collapsed", "in_memory_order"]


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


def in_memory_order(values: Values, group: Group, stored: frozenset[int], inlined: frozenset[int]) -> Group:
    """The group with its axes in the order of memory, if it reduces nothing, never exits and all its accesses have one order."""
    assert group.axes is not None
    ops = [values.nodes[n].op for n in group.members]
    outer = {n for n, m in group.members.items() if m.level != INNER}  # may go inside, unless their results have a position
    if outer & stored or any(op.kind in (Kind.REDUCTION, Kind.GUARD) or op.may_exit for op in ops):
        return group
    strides, pinned, _ = accesses(values, group, stored, inlined)
    axes = range(len(group.axes))
    reach = {a: max((abs(s.get(a, 0)) for s in strides), default=0) for a in axes}
    order = sorted(axes, key=lambda a: -reach[a])
    if pinned or order == list(axes):
        return group
    for s in strides:
        own = [abs(s[a]) for a in order if s.get(a, 0)]
        if own != sorted(own, reverse=True):
            return group
    position = {a: k for k, a in enumerate(order)}

    def moved(at: Positions) -> Positions:
        return tuple(replace(p, terms=tuple(sorted((position[a], c) for a, c in p.terms))) if p.terms else p for p in at)

    made = Group(values, tuple(group.axes[a] for a in order), Growth())
    made.members = {n: replace(m, at=moved(m.at), out=moved(m.out), level=INNER) for n, m in group.members.items()}
    return made


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

    def visit(v: int, at: Positions) -> None:
        while True:
            source = values.producer.get(values.root(v), -1)
            if source not in group.members and source not in inlined:
                access(values.strided[v], at)
                return
            if not values.is_view(v):
                member(source, at)
                return
            if "uniform" in values.nodes[source].op.traits:
                return
            below = values.operand_position(v, at, extents)
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
        read, coordinates = operand_positions(values, node, at, None)
        for p in coordinates:
            pinned.update(a for a, _ in p.terms)
        for k, where in read:
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
