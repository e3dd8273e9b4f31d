"""What the forward graph keeps for the backward: the choice between saving a value and computing it again.

A value that a vjp reads is either read directly (graph inputs that the eager tape would have saved, numbers, constants), or kept in the
residual slab, or computed again in the backward from such values.  Contractions, reductions, scans, gathers, random draws and anything that
runs on the host are never computed again.  Of what remains the cheapest choice is a minimum cut: keeping costs memory traffic per byte,
computing again costs per element.

Soundness: eager mode checks, at backward, that what its tape saved was not changed since.  So the backward may read a graph input
only where that would be noticed (partition.py); and not if the program itself writes to it, because then its
memory holds the new contents.  Everything else goes through the slab, as a copy.

Of what a program writes through `.data` eager mode notices nothing: what its tape saved is what is there at backward.  Such contents
(`live`) are kept as they are, never a view of them nor what is computed from them again, so that what is there then can take their place.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from tracejit.core.aval import Aval, ScalarAval
from tracejit.core.op import Effect, Kind, Promotion
from tracejit.core.symbolic import called
from tracejit.ir.builder import producers
from tracejit.ir.graph import Graph, Node
from tracejit.passes.memory import memory_roots
from tracejit.passes.mincut import Cut

__all__ = ["choose_residuals", "direct_reads"]

SAVE_PER_BYTE = 6  # writing and reading back one byte, in units of one arithmetic operation on one element
SAVE_ONCE = 256
FUNCTION = 4  # an elementary function, in the same unit
ENDLESS = 1 << 60


def is_recomputable(node: Node) -> bool:
    """Whether the backward may run `node` again: cheap, deterministic, without exits."""
    op = node.op
    if len(node.outputs) != 1 or op.may_exit or op.effect in (Effect.RANDOM, Effect.IN_PLACE):
        return False
    if op.kind is Kind.ELEMENTWISE:
        return op.lowering is not None
    return op.kind in (Kind.VIEW, Kind.MOVEMENT, Kind.CREATION)


def _recompute_cost(node: Node, aval: Aval) -> int:
    op = node.op
    if op.kind is Kind.VIEW:
        return 1
    weight = FUNCTION if op.promotion is Promotion.FLOAT and len(node.operands) == 1 else 1
    return weight * aval.size + 1


def choose_residuals(
    graph: Graph, needed: Iterable[int], direct: AbstractSet[int], live: AbstractSet[int] = frozenset()
) -> set[int]:
    """The values to keep so that all `needed` ones can be had in the backward; `direct`: inputs that it may read; `live`: contents of
    memory that it is to read as it is then."""
    makers = producers(graph)
    roots = memory_roots(graph) if live else {}
    memory = {roots.get(v, v): v for v in live}

    def is_made_again(v: int, maker: Node) -> bool:
        if v in live or not is_recomputable(maker):
            return False
        return maker.op.kind is Kind.VIEW or not any(type(x) is int and roots.get(x, x) in memory for x in maker.operands)

    source, sink = 0, 1
    entry: dict[int, int] = {}  # value -> its "computed in the backward" vertex; the next one is "had in the backward"
    edges: list[tuple[int, int]] = []
    capacities: list[int] = []
    stack: list[int] = []

    def visit(v: int) -> int:
        known = entry.get(v)
        if known is None:
            known = entry[v] = 2 + 2 * len(entry)
            stack.append(v)
        return known

    def add_edge(tail: int, head: int, capacity: int) -> None:
        edges.append((tail, head))
        capacities.append(capacity)

    for v in needed:
        if not _is_free(graph, v, direct):
            add_edge(visit(v) + 1, sink, ENDLESS)
    while stack:
        v = stack.pop()
        vertex, aval, maker = entry[v], graph.avals[v], makers.get(v)
        assert isinstance(aval, Aval)
        add_edge(vertex, vertex + 1, SAVE_PER_BYTE * aval.nbytes + SAVE_ONCE)
        if maker is None or not is_made_again(v, maker):
            add_edge(source, vertex, ENDLESS)
            continue
        add_edge(source, vertex, _recompute_cost(maker, aval))
        for x in maker.operands:
            if type(x) is int and not _is_free(graph, x, direct):
                add_edge(visit(x) + 1, vertex, ENDLESS)
    # With symbolic sizes it is asked anew for each, rather than how the algorithm got there.
    forward = called(Cut(2 + 2 * len(entry), source, sink, tuple(edges)), *capacities)
    kept = {v for v, vertex in entry.items() if forward[vertex] and not forward[vertex + 1]}
    return {memory.get(roots.get(v, v), v) for v in kept} if live else kept


def _is_free(graph: Graph, v: int, direct: AbstractSet[int]) -> bool:
    return v in direct or v in graph.constants or isinstance(graph.avals[v], ScalarAval)


def direct_reads(graph: Graph, needed: Iterable[int], residuals: AbstractSet[int]) -> set[int]:
    """The graph inputs that are read when the `needed` values are had from `residuals`."""
    makers, inputs = producers(graph), set(graph.inputs)
    seen: set[int] = set()
    stack = list(needed)
    while stack:
        v = stack.pop()
        if v in seen or v in residuals:
            continue
        seen.add(v)
        if v in makers:
            stack.extend(x for x in makers[v].operands if type(x) is int)
    return seen & inputs
