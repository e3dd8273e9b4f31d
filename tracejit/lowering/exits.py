"""The numbers of a program's exits: one for each node, the same for all backends."""

from __future__ import annotations

from tracejit.core.op import Kind
from tracejit.ir.graph import Graph

__all__ = ["exit_codes"]


def exit_codes(graph: Graph) -> dict[int, int]:
    """Exit number by id() of the node: guards in order from 1, then all others in order.  What decides whether a node can leave (a range
    to check, an error or a size that the host finds) is no affair of the numbers."""
    guards = [n for n in graph.nodes if n.op.kind is Kind.GUARD]
    others = [n for n in graph.nodes if n.op.kind is not Kind.GUARD]
    return {id(n): k for k, n in enumerate((*guards, *others), 1)}
