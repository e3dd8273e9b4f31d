"""Values that every nest computes for itself instead of reading them from memory, and those that memory must hold.

Constants and ranges (`full`, `arange`, `eye`) cost less than a load, and so do numbers made of them.  A value of this kind gets
memory only if something that is no nest needs it: an output, a BLAS call, a scatter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tracejit.core.op import Kind
from tracejit.ir.graph import Node, Operand
from tracejit.lowering.costs import CHEAP_LOAD, operation_cost
from tracejit.lowering.fuse import Group
from tracejit.lowering.values import Values, is_member, nontrivial

__all__ = ["inlined_nodes", "stored_nodes"]


def inlined_nodes(values: Values) -> frozenset[int]:
    """Numbers of the nodes that belong to every group that uses them."""

    def producers(operands: Iterable[Operand]) -> Iterator[int]:
        for o in operands:
            if values.is_tensor(o):
                yield values.producer.get(values.root(o), -1)  # type: ignore[arg-type]

    kept = set(producers(values.outputs))
    for node in values.nodes:
        if not is_member(values.avals, node) and not (node.outputs and values.is_view(node.outputs[0])):
            kept.update(producers(node.operands))
    for node in values.nodes:
        # The places of elements before a reshape need not be affine in those after it; a uniform tensor is the same everywhere.
        if node.op.strides is None:
            continue
        before, after = (nontrivial(values.shape(v)) for v in (node.operands[0], node.outputs[0]))  # type: ignore[arg-type]
        if before != after:
            kept.update(p for p in producers(node.operands) if p >= 0 and "uniform" not in values.nodes[p].op.traits)
    inlined: set[int] = set()
    for number, node in enumerate(values.nodes):
        if number not in kept and all(p in inlined for p in producers(node.operands)) and _is_free(values, node):
            inlined.add(number)
    return frozenset(inlined)


def _is_free(values: Values, node: Node) -> bool:
    if node.op.kind is Kind.CREATION:
        return is_member(values.avals, node)
    if node.op.kind is not Kind.ELEMENTWISE or node.op.lowering is None:
        return False
    return not values.aval(node.outputs[0]).ndim or operation_cost(values, node) < CHEAP_LOAD


def stored_nodes(values: Values, groups: Sequence[Group], inlined: frozenset[int]) -> frozenset[int]:
    """Numbers of the nodes whose output needs memory: results, and what another group reads."""
    needed = {values.root(v) for v in values.outputs if values.is_tensor(v)}  # type: ignore[arg-type]
    home = {n: g for g in groups for n in g.members}
    for g in groups:
        readers = set(g.members)
        for n in g.members:
            readers |= _inlined_below(values, n, inlined)
        for n in readers:
            for o in values.nodes[n].operands:
                if values.is_tensor(o):
                    root = values.root(o)  # type: ignore[arg-type]
                    producer = values.producer.get(root)
                    if producer is not None and home.get(producer) is not g and (producer not in inlined):
                        needed.add(root)
    return frozenset(p for v in needed if (p := values.producer.get(v)) is not None)


def _inlined_below(values: Values, number: int, inlined: frozenset[int]) -> set[int]:
    found: set[int] = set()
    stack = [number]
    while stack:
        for o in values.nodes[stack.pop()].operands:
            if values.is_tensor(o):
                p = values.producer.get(values.root(o), -1)  # type: ignore[arg-type]
                if p in inlined and p not in found:
                    found.add(p)
                    stack.append(p)
    return found
