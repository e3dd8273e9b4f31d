"""Which values share memory when views are not copied."""

from __future__ import annotations

from typing import Final

from tracejit.core.op import Effect
from tracejit.ir.graph import Graph, Operand
from tracejit.ir.verifier import VerificationError

__all__ = ["OutputMemory", "memory_roots", "outputs_and_bases", "verify_memory"]

_OF_THEIR_BASE: Final = (Effect.VIEW, Effect.IN_PLACE)


def memory_roots(graph: Graph) -> dict[int, int]:
    """For each output of a view, or of a write, the value whose memory it shares."""
    roots: dict[int, int] = {}
    for node in graph.nodes:
        if node.op.effect in _OF_THEIR_BASE:
            base = node.operands[0]
            assert type(base) is int
            roots[node.outputs[0]] = roots.get(base, base)
    return roots


def outputs_and_bases(graph: Graph) -> set[Operand]:
    """Outputs, what is written to inputs, and what these are views of: values that must keep memory of their own."""
    given: set[Operand] = {*graph.outputs, *[v for _, v in graph.writes]}
    for node in reversed(graph.nodes):
        if node.op.effect is Effect.VIEW and node.outputs[0] in given:
            given.add(node.operands[0])
    return given


def verify_memory(before: Graph, after: Graph) -> None:
    """Raises VerificationError where an output of a rewritten graph shares memory with an input, a constant or another output with which it
    shared none before: to the caller these are tensors of their own."""
    found: dict[int, tuple[int, int]] = {}  # what memory outputs are in -> the first of them, and what memory it was in
    first, second = memory_roots(before), memory_roots(after)
    for i, (x, y) in enumerate(zip(before.outputs, after.outputs, strict=True)):
        if not isinstance(x, int) or not isinstance(y, int):
            continue
        was, v = first.get(x, x), second.get(y, y)
        if v != was and (v in after.inputs or v in after.constants):
            raise VerificationError(f"output {i} has come to share memory with v{v}, an input or constant")
        k, shared = found.setdefault(v, (i, was))
        if shared != was:
            raise VerificationError(f"outputs {k} and {i} have come to share memory, that of v{v}")


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
        before, memory = self.roots.get(v, v), self.roots.get(memory, memory)  # what was a view may by now have memory of its own
        if before not in self.occupied:
            return True
        if before == memory:
            return v not in self.outputs
        if memory in self.occupied or not is_fresh:
            return False
        self.occupied.add(memory)
        return True
