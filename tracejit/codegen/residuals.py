"""Residuals that are results as well: the backward pass needs a copy, because the program may change what it was given.

The copy is a node, so that whatever makes the result writes both.  Residuals that are inputs or views of something keep their value: the
lowering copies them in a step of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tracejit.core.op import REGISTRY, Kind
from tracejit.ir.graph import Graph, Node

__all__ = ["with_own_residuals"]


def with_own_residuals(graph: Graph, slab_outputs: Sequence[int]) -> tuple[Graph, tuple[int, ...]]:
    """The graph, and its residuals (the trailing outputs), of which none is a result that a node makes."""
    first = len(graph.outputs) - len(slab_outputs)
    results = {v for v in graph.outputs[:first] if type(v) is int}
    made = {v for node in graph.nodes if node.op.kind is not Kind.VIEW for v in node.outputs}
    avals, copies, residuals = dict(graph.avals), list[Node](), list[int]()
    for v in slab_outputs:
        if v in results and v in made:
            copy = max(avals) + 1
            avals[copy] = avals[v]
            copies.append(Node(REGISTRY["clone"], (v,), (), (copy,)))
            v = copy
        residuals.append(v)
    if not copies:
        return graph, tuple(slab_outputs)
    outputs = (*graph.outputs[:first], *residuals)
    return replace(graph, avals=avals, nodes=(*graph.nodes, *copies), outputs=outputs), tuple(residuals)
