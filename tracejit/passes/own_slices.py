"""Slices of computed values are taken again by each node that reads them.

What a step of a loop keeps for the backward pass are the values that are read there.  Where these are slices of one value (the gates of a
recurrent cell), and that is read there too, it would be kept twice, once in pieces: a slice is no memory of its own, and can be taken of
what was kept.  For graphs that are searched for loops next (reroll.py), whose bodies then have slices once again (cse.py).
"""

from __future__ import annotations

from collections import Counter

from tracejit.core.op import Kind
from tracejit.ir.builder import GraphBuilder, next_id, rebuild, substitute
from tracejit.ir.graph import Graph, Node, Operand
from tracejit.ir.layouts import is_fixed_view

__all__ = ["own_slices"]


def own_slices(graph: Graph) -> Graph:
    """The graph with a slice for each reader; `graph` itself where no slice of a computed value has several."""
    computed: set[Operand] = set()
    slices: dict[Operand, Node] = {}
    for node in graph.nodes:
        if node.op.kind is not Kind.VIEW:
            computed.update(node.outputs)
        elif "positions" in node.op.traits and is_fixed_view(node) and node.operands[0] in computed:
            slices[node.outputs[0]] = node
    if not slices:
        return graph
    readers = Counter([x for node in graph.nodes if node.op.kind is not Kind.VIEW for x in {*node.operands} if x in slices])
    shared = {v: node for v, node in slices.items() if readers[v] > 1}
    if not shared:
        return graph
    needed = {x for node in graph.nodes if node.op.kind is Kind.VIEW for x in node.operands}
    needed.update(graph.outputs, [v for _, v in graph.writes])
    builder = GraphBuilder(next_id(graph))
    builder.avals = dict(graph.avals)
    for node in graph.nodes:
        if node.op.kind is Kind.VIEW:
            if node.outputs[0] in needed or node.outputs[0] not in shared:
                builder.nodes.append(node)
            continue
        own: dict[int, Operand] = {}
        for x in dict.fromkeys(node.operands):
            if type(x) is int and (taken := shared.get(x)) is not None:
                own[x] = builder.fresh(graph.avals[x])
                builder.nodes.append(Node(taken.op, taken.operands, taken.attributes, (own[x],), taken.line))  # type: ignore[arg-type]
        builder.nodes.append(substitute(node, own) if own else node)
    return rebuild(graph, builder.nodes, avals=builder.avals)
