"""Values that every nest computes for itself instead of reading them from memory, and those that memory must hold.

Constants and ranges (`full`, `arange`, `eye`) cost less than a load, and so do numbers made of them.  A value of this kind gets
memory only if something that is no nest needs it: an output, a BLAS call, a scatter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tracejit.core.op import Kind
from tracejit.ir.graph import Node
from tracejit.lowering.costs import CHEAP_LOAD, operation_cost
from tracejit.lowering.fuse import Group
from tracejit.lowering.values import Values, nontrivial

__all__ = ["inlined_nodes", "stored_nodes"]


def inlined_nodes(values: Values) -> frozenset[int]:
    """Numbers of the nodes that belong to every group that uses them."""
    nodes, producer, roots = values.nodes, values.producer, values.roots
    kept = _results(values)
    for number, sources in enumerate(values.sources):
        if not values.members[number] and not values.views[number]:
            kept.update(sources)
    for number, node in enumerate(nodes):
        # The places of elements before a reshape need not be affine in those after it; a uniform tensor is the same everywhere.
        if node.op.strides is None:
            continue
        before, after = (nontrivial(values.shape(v)) for v in (node.operands[0], node.outputs[0]))  # type: ignore[arg-type]
        if before != after:
            kept.update([p for p in values.sources[number] if "uniform" not in nodes[p].op.traits])
    inlined: set[int] = set()
    for number, node in enumerate(nodes):
        if number not in kept and all(producer.get(v) in inlined for v in roots[number]) and _is_free(values, number, node):
            inlined.add(number)
    return frozenset(inlined)


def _results(values: Values) -> set[int]:
    """Numbers of the nodes whose memory outputs of the graph are in."""
    made = [values.producer.get(values.root(v)) for v in values.outputs if values.is_tensor(v)]  # type: ignore[arg-type]
    return {number for number in made if number is not None}


def _is_free(values: Values, number: int, node: Node) -> bool:
    if node.op.kind is Kind.CREATION:
        return values.members[number]
    if node.op.kind is not Kind.ELEMENTWISE or node.op.lowering is None:
        return False
    return not values.aval(node.outputs[0]).ndim or operation_cost(values, node) < CHEAP_LOAD


def stored_nodes(values: Values, groups: Sequence[Group], inlined: frozenset[int]) -> frozenset[int]:
    """Numbers of the nodes whose output needs memory: results, and what another group reads."""
    needed = _results(values)
    home = {n: g for g in groups for n in g.members}
    for g in groups:
        for n in {*g.members, *_inlined_below(values, g.members, inlined)}:
            needed.update([p for p in values.sources[n] if p not in inlined and home.get(p) is not g])
    return frozenset(needed)


def _inlined_below(values: Values, numbers: Iterable[int], inlined: frozenset[int]) -> set[int]:
    """The inlined nodes that these read, directly or by way of others."""
    found: set[int] = set()
    stack = list(numbers)
    while stack:
        for p in values.sources[stack.pop()]:
            if p in inlined and p not in found:
                found.add(p)
                stack.append(p)
    return found
