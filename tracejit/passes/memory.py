"""Which values share memory when views are not copied."""

from __future__ import annotations

from tracejit.core.op import Effect
from tracejit.ir.graph import Graph

__all__ = ["OutputMemory", "memory_roots"]


def memory_roots(graph: Graph) -> dict[int, int]:
    """For each output of a view, the value whose memory it shares."""
    roots: dict[int, int] = {}
    for node in graph.nodes:
        if node.op.effect is Effect.VIEW:
            base = node.operands[0]
            assert type(base) is int
            roots[node.outputs[0]] = roots.get(base, base)
    return roots


class OutputMemory:
    """The memory that outputs of a graph are in.  A pass that replaces values asks here, so that an output never comes to share
    memory with an input, a constant or another output with which it shared none.

    outputs: the output ids; occupied: the ids whose memory they are in."""

    __slots__ = ("occupied", "outputs", "roots")

    def __init__(self, graph: Graph) -> None:
        self.roots = memory_roots(graph)
        self.outputs = {x for x in graph.outputs if type(x) is int}
        self.occupied = {self.roots.get(x, x) for x in self.outputs}

    def may_become(self, v: int, memory: int, is_fresh: bool) -> bool:
        """Whether `v` may be replaced by a value in `memory`, which is fresh if a node of the graph makes it.  If so, the
        replacement is taken to happen."""
        before = self.roots.get(v, v)
        if before not in self.occupied:
            return True
        if before == memory:
            return v not in self.outputs
        if memory in self.occupied or not is_fresh:
            return False
        self.occupied.add(memory)
        return True
