"""Common subexpressions: equal nodes are computed once.

Two nodes are equal when op, operands and attributes are.  Draws of random numbers, writes and guards are never merged.  An output of
the graph, or what an output is a view of, is never replaced: two outputs are two tensors to the caller even when their contents are
equal.  Nor is what is created for one input alone (zeroed gradients): filling memory costs half of copying it.  For graphs through
which no gradient will be taken any more (`requires_grad` is not looked at).
"""

from __future__ import annotations

from typing import Any, Final

from tracejit.core.op import Effect, Kind
from tracejit.ir.builder import rebuild, substitute
from tracejit.ir.graph import Graph, Node
from tracejit.passes.memory import OutputMemory

__all__ = ["cse"]

_NEVER_MERGED: Final = (Effect.RANDOM, Effect.IN_PLACE)


def cse(graph: Graph) -> Graph:
    """The graph with equal nodes merged into the first of them; `graph` itself where there are none."""
    ownership = OutputMemory(graph)
    kept = ownership.outputs | ownership.occupied
    filled = kept | {v for _, v in graph.writes}
    known: dict[Any, Node] = {}
    replaced: dict[int, int] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        if replaced:
            node = substitute(node, replaced)
        op = node.op
        if op.effect not in _NEVER_MERGED and op.kind is not Kind.GUARD:
            first = known.setdefault((op, node.operands, node.attributes), node)
            own = filled if op.kind is Kind.CREATION else kept
            if first is not node and own.isdisjoint(node.outputs):
                replaced.update(zip(node.outputs, first.outputs, strict=True))
                continue
        nodes.append(node)
    if not replaced:
        return graph
    return rebuild(graph, nodes, replaced)
