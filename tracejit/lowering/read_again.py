"""Elementwise values that are read long after they are made are computed again there, of what is in memory anyway.

A training step reads in its backward part what its forward part has made: of `gelu(x)` several values that lead to its derivative.  To
keep them is to write and read them; to compute them again from x, which products have put into memory, takes a few operations of the nest
that reads them.  So where some values, read beyond a product, are made of one that is there anyway, by few operations, the nodes that
make them are in the graph once more, just before those that read them.  The bits are the same: docs/equality.md says that a kernel may
evaluate a value twice.

Must not know: which nodes become one nest.  A product is between two nests, whatever they are.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from tracejit.core.aval import Aval
from tracejit.core.op import Effect, Kind
from tracejit.core.symbolic import has_symbols
from tracejit.ir.builder import next_id, rebuild, substitute
from tracejit.ir.graph import Graph, Node
from tracejit.lowering.costs import AvalsOf, operation_cost

__all__ = ["read_again"]

LEAST_BYTES: Final = 1 << 16
"""Smaller values are kept: they are in near memory."""
MOST_OPERATIONS: Final = 4
"""For each byte that is neither written nor read."""
MANY: Final = 4
"""Times as large as what is read instead, if that would be gone by then: else lives grow longer, and other steps are not done again."""
_JOINED: Final = (Kind.ELEMENTWISE, Kind.REDUCTION, Kind.VIEW, Kind.CREATION)
"""Kinds of nodes that a nest may have beside others."""


def read_again(graph: Graph) -> Graph:
    """The graph with nodes that are there again; `graph` itself where there are none."""
    if not any(node.op.kind is Kind.CONTRACTION for node in graph.nodes):
        return graph
    made = {v: k for k, node in enumerate(graph.nodes) for v in node.outputs}
    level = dict.fromkeys(graph.inputs, 0) | dict.fromkeys(graph.constants, 0)
    begins: list[int] = []  # at which level each node is computed
    kept = {v for v in (*graph.outputs, *[v for _, v in graph.writes]) if type(v) is int}
    readers: defaultdict[int, list[int]] = defaultdict(list)
    for k, node in enumerate(graph.nodes):
        at = max((level[v] for v in node.operands if type(v) is int), default=0)
        begins.append(at)
        joins = node.op.kind in _JOINED
        level.update(dict.fromkeys(node.outputs, at if joins else at + 1))
        for v in node.operands:
            if type(v) is int:
                readers[v].append(k)
                if not joins or node.op.kind is Kind.VIEW:
                    kept.add(v)
    costs = AvalsOf(graph.avals)

    def bytes_of(v: int) -> int:
        return costs.aval(v).nbytes

    def is_large(v: int) -> bool:
        aval = graph.avals[v]
        return isinstance(aval, Aval) and not has_symbols(aval.shape) and aval.nbytes >= LEAST_BYTES

    def is_made_again(v: int) -> bool:
        if v in kept or v not in made:
            return False
        node = graph.nodes[made[v]]
        return node.op.kind is Kind.ELEMENTWISE and node.op.effect is Effect.PURE and not node.may_exit

    def chain(wanted: list[int]) -> tuple[list[int], set[int]]:
        """(the nodes that make these values, in order; the large values that they are made of)."""
        nodes, leaves, stack = set[int](), set[int](), list(wanted)
        while stack:
            v = stack.pop()
            if not is_made_again(v):
                if is_large(v):
                    leaves.add(v)
            elif made[v] not in nodes:
                nodes.add(made[v])
                stack += [x for x in graph.nodes[made[v]].operands if type(x) is int]
        return sorted(nodes), leaves

    far: defaultdict[int, list[int]] = defaultdict(list)  # level -> the values that are read there and were made before
    for v, where in readers.items():
        if is_made_again(v) and is_large(v):
            for at in {begins[k] for k in where}:
                if at > level[v]:
                    far[at].append(v)
    groups: defaultdict[tuple[int, frozenset[int]], list[int]] = defaultdict(list)
    for at, values in far.items():
        for v in values:
            groups[at, frozenset(chain([v])[1])].append(v)
    unused = next_id(graph)
    avals = dict(graph.avals)
    before: defaultdict[int, list[Node]] = defaultdict(list)
    instead: defaultdict[int, dict[int, int]] = defaultdict(dict)  # level -> value -> its name there
    for (at, leaves), values in groups.items():
        nodes, _ = chain(values)
        new = [v for v in leaves if all(begins[k] < at for k in readers[v])]
        gone, kept_for_it = (sum([bytes_of(v) for v in given]) for given in (values, new))
        saved = 2 * (gone - kept_for_it)
        done = sum([operation_cost(costs, graph.nodes[k]) * costs.aval(graph.nodes[k].outputs[0]).size for k in nodes])
        if gone < MANY * kept_for_it or saved <= 0 or done > MOST_OPERATIONS * saved:
            continue
        first = min(k for v in values for k in readers[v] if begins[k] == at)
        for k in nodes:
            node = graph.nodes[k]
            (v,) = node.outputs
            avals[unused] = avals[v]
            copied = substitute(node, instead[at])
            before[first].append(Node(copied.op, copied.operands, copied.attributes, (unused,), copied.line))
            instead[at][v] = unused
            unused += 1
    if not before:
        return graph
    result: list[Node] = []
    for k, node in enumerate(graph.nodes):
        result += before.get(k, ())
        result.append(substitute(node, instead[begins[k]]) if begins[k] in instead else node)
    return rebuild(graph, result, avals=avals)
