"""Values that every nest computes for itself instead of reading them from memory, and those that memory must hold.

Constants and ranges (`full`, `arange`, `eye`) cost less than a load, and so do numbers made of them.  A value of this kind gets
memory only if something that is no nest needs it: an output, a BLAS call, a scatter.
"""

from __future__ import annotations

from collections.abc import Sequence

from tracejit.core.op import Kind
from tracejit.ir.graph import Node
from tracejit.lowering.costs import CHEAP_LOAD, operation_cost
from tracejit.lowering.fuse import Group
from tracejit.lowering.values import Values, nontrivial

__all__ = ["inlined_nodes", "stored_nodes"]


def inlined_nodes(values: Values) -> frozenset[int]:
    """Numbers of the nodes that belong to every group that uses them."""
    nodes = values.nodes
    kept = _results(values)
    moves: dict[int, bool] = {}  # by likeness of a node
    for number, node in enumerate(nodes):
        if not values.members[number] and not values.views[number]:
            kept.update(values.sources[number])
        if node.op.strides is None:
            continue
        alike = values.alike[number]
        if alike not in moves:
            moves[alike] = _moves_elements(values, node)
        if moves[alike]:
            kept.update([p for p in values.sources[number] if "uniform" not in nodes[p].op.traits])
    inlined: set[int] = set()
    for number, reads in enumerate(values.reads):
        if number not in kept and inlined.issuperset(reads) and _is_free(values, number, nodes[number]):
            inlined.add(number)
    return frozenset(inlined)


def _moves_elements(values: Values, node: Node) -> bool:
    """Whether positions before a reshape need not be affine in those after it; a uniform tensor is the same everywhere."""
    before, after = (nontrivial(values.shape(v)) for v in (node.operands[0], node.outputs[0]))  # type: ignore[arg-type]
    return before != after


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
        numbers, inside = list(g.members), set[int]()
        for n in numbers:  # it grows: inlined nodes are read through
            for p in values.sources[n]:
                if p not in inlined:
                    if home.get(p) is not g:
                        needed.add(p)
                elif p not in inside:
                    inside.add(p)
                    numbers.append(p)
    return frozenset(needed)
