"""Which values share memory when views are not copied."""

from __future__ import annotations

from tracejit.core.op import Effect
from tracejit.ir.graph import Graph

__all__ = ["memory_roots"]


def memory_roots(graph: Graph) -> dict[int, int]:
    """For each output of a view, the value whose memory it shares."""
    roots: dict[int, int] = {}
    for node in graph.nodes:
        if node.op.effect is Effect.VIEW:
            base = node.operands[0]
            assert type(base) is int
            roots[node.outputs[0]] = roots.get(base, base)
    return roots
