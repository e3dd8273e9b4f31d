"""Dead code: nodes whose results nothing needs are dropped.

Kept whatever their use: guards, writes to memory (one of which moves a generator on), and ops that may exit: the error that data raises is
part of what the program does, and a size that depends on data has been seen by Python.
"""

from __future__ import annotations

from tracejit.core.op import Effect
from tracejit.ir.builder import rebuild
from tracejit.ir.graph import Graph, Node

__all__ = ["dce"]


def dce(graph: Graph) -> Graph:
    """The graph without dead nodes; `graph` itself where there are none."""
    live = {x for x in graph.outputs if type(x) is int}
    live.update(v for _, v in graph.writes)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if not live.isdisjoint(node.outputs) or node.op.effect is Effect.IN_PLACE or node.may_exit:
            kept.append(node)
            for x in node.operands:
                if type(x) is int:
                    live.add(x)
    if len(kept) == len(graph.nodes):
        return graph
    kept.reverse()
    return rebuild(graph, kept)
