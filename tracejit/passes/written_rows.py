"""A tensor whose rows are written one after the other, `out[t] = x` in a loop, is put together of them at the end.

The graph has a new tensor for each write, and a step that writes another row than the one before is no step of a loop (reroll.py).  Where
rows, or slices, are written at fixed positions, each beside the others or just where one was written before, and what is between the writes
is read at such positions alone, one `cat` of them stands for all writes, and a read is what was written there last.  The gradient of such
writes is read through in the same way.

Where few rows of an input are written, they are written where they lie (lowering/regions.py).
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from tracejit.core.op import REGISTRY
from tracejit.ir.builder import GraphBuilder, next_id, rebuild, substitute, uses
from tracejit.ir.graph import Graph, Literal, Node, Operand
from tracejit.passes.dce import dce
from tracejit.passes.memory import outputs_and_bases

__all__ = ["written_rows"]

FEWEST: Final = 8
"""Writes to one tensor that are looked at."""


class _Part(NamedTuple):
    """Places of one dimension, `is_row` where that is left out."""

    dim: int
    start: int
    stop: int
    is_row: bool


@dataclass(slots=True, eq=False)
class _Chain:
    """Writes, each to what the one before has made.

    starts: of what is written, in order; stops: by start; rows: by start, the numbers of the writes there, and what they write.
    reads_only: whether nothing looks at the whole of what the last one makes."""

    base: int
    last: Node
    dim: int
    count: int = 0
    starts: list[int] = field(default_factory=list)
    stops: dict[int, int] = field(default_factory=dict)
    rows: dict[int, tuple[list[int], list[tuple[int, bool]]]] = field(default_factory=dict)
    reads_only: bool = False

    def takes(self, part: _Part) -> bool:
        """Whether it is beside all that is written, or where something is."""
        if part.dim != self.dim:
            return False
        k = bisect(self.starts, part.start)
        before = self.starts[k - 1] if k else None
        if before == part.start:
            return self.stops[part.start] == part.stop
        free = before is None or self.stops[before] <= part.start
        return free and (k == len(self.starts) or part.stop <= self.starts[k])

    def looks_through(self, part: _Part, number: int) -> bool:
        """Whether a read of what a write has made finds what was there: all reads of what the next write changes do."""
        return number < self.count - 1 or self.takes(part)

    def add(self, node: Node, part: _Part) -> None:
        if part.start not in self.stops:
            self.starts.insert(bisect(self.starts, part.start), part.start)
            self.stops[part.start] = part.stop
        numbers, values = self.rows.setdefault(part.start, ([], []))
        numbers.append(self.count)
        values.append((node.operands[1], part.is_row))  # type: ignore[arg-type]
        self.count += 1
        self.last = node

    def row(self, start: int, before: int) -> tuple[int, bool] | None:
        """What the writes with lower numbers than `before` have left at a position, and whether that is a row."""
        numbers, values = self.rows.get(start, ([], []))
        found = bisect(numbers, before - 1)
        return values[found - 1] if found else None


def written_rows(graph: Graph) -> Graph:
    """The graph with such tensors put together at once; `graph` itself where there are none."""
    if sum(_written(node) is not None for node in graph.nodes) < FEWEST:
        return graph
    chains = _chains(graph)
    if not chains:
        return graph
    builder = GraphBuilder(next_id(graph))
    builder.avals = dict(graph.avals)
    given = outputs_and_bases(graph)
    replaced: dict[int, Operand] = {}
    for node in graph.nodes:
        known = chains.get(node.outputs[0]) if node.outputs else None
        if known is not None:
            chain, _ = known
            if node is chain.last and not chain.reads_only:
                _put_together(builder, chain, replaced)
            continue
        part = _read(node)
        known = None if part is None else chains.get(node.operands[0])  # type: ignore[arg-type]
        if part is None or known is None or not known[0].looks_through(part, known[1]):
            builder.nodes.append(substitute(node, replaced))
            continue
        (chain, number), out = known, node.outputs[0]
        row, is_row = chain.row(part.start, number + 1) or (None, False)
        if row is None:
            read = substitute(Node(node.op, (chain.base, *node.operands[1:]), node.attributes, node.outputs, node.line), replaced)
        elif is_row == part.is_row and out not in given:
            replaced[out] = replaced.get(row, row)
            continue
        else:
            attributes = (("shape", builder.aval(out).shape),)
            read = Node(REGISTRY["reshape"], (replaced.get(row, row),), attributes, (out,), node.line)
        if out in given:  # it was in memory of its own: what the writes made
            (shared,) = builder.add(read.op, read.operands, read.attrs, read.line)
            read = Node(REGISTRY["clone"], (shared,), (), (out,), read.line)
        builder.nodes.append(read)
    return dce(rebuild(graph, builder.nodes, avals=builder.avals))


def _chains(graph: Graph) -> dict[int, tuple[_Chain, int]]:
    """What writes make -> (their chain, the number of the write)."""
    used = uses(graph)
    reads: dict[Any, list[_Part]] = {}
    for node in graph.nodes:
        if (part := _read(node)) is not None:
            reads.setdefault(node.operands[0], []).append(part)

    def looked_through(chain: _Chain, others: int) -> bool:
        """Whether what the chain has made so far is read at its positions alone, and so often by others."""
        found = reads.get(chain.last.outputs[0], [])
        return used[chain.last.outputs[0]] == len(found) + others and all(map(chain.takes, found))

    found: dict[int, tuple[_Chain, int]] = {}
    chains: list[_Chain] = []
    for node in graph.nodes:
        part = _written(node)
        if part is None:
            continue
        chain, _ = found.get(node.operands[0], (None, 0))  # type: ignore[arg-type]
        if chain is None or chain.last.outputs[0] != node.operands[0] or not chain.takes(part) or not looked_through(chain, 1):
            chain = _Chain(node.operands[0], node, part.dim)  # type: ignore[arg-type]
            chains.append(chain)
        found[node.outputs[0]] = chain, chain.count
        chain.add(node, part)
    for chain in chains:
        chain.reads_only = looked_through(chain, 0)
    return {v: known for v, known in found.items() if _pays(graph, known[0])}


def _pays(graph: Graph, chain: _Chain) -> bool:
    out = chain.last.outputs[0]
    shape = graph.avals[out].shape  # type: ignore[union-attr]
    if chain.count < FEWEST or 0 in shape:
        return False
    most = 2 * sum(chain.stops[start] - start for start in chain.starts) >= shape[chain.dim]
    return most or chain.reads_only or (chain.base, out) not in graph.writes


def _written(node: Node) -> _Part | None:
    """Where a node writes, if that is a fixed position of one dimension."""
    return None if node.op.region is None else _part(node.op.region.traits, node, 2)


def _read(node: Node) -> _Part | None:
    """Where a node reads, if that is a fixed position of one dimension."""
    return _part(node.op.traits, node, 1)


def _part(traits: frozenset[str], node: Node, operand: int) -> _Part | None:
    attributes = node.attrs
    if "one position" in traits and isinstance(position := node.operands[operand], Literal):
        return _Part(attributes["dim"], at := position.position, at + 1, True)
    if "positions" in traits and attributes["step"] == 1 and attributes["start"] < attributes["stop"]:
        return _Part(attributes["dim"], attributes["start"], attributes["stop"], False)
    return None


def _put_together(builder: GraphBuilder, chain: _Chain, replaced: Mapping[int, Operand]) -> None:
    """Append what the last write of a chain makes: what was written, and what was there before where nothing was."""
    last, dim = chain.last, chain.dim
    shape = builder.aval(last.outputs[0]).shape
    base = replaced.get(chain.base, chain.base)  # type: ignore[arg-type]
    parts: list[Operand] = []
    position = 0

    def untouched(end: int) -> None:
        if position < end:
            parts.extend(
                builder.add(REGISTRY["slice"], (base,), {"dim": dim, "start": position, "stop": end, "step": 1}, last.line)
            )

    for start in chain.starts:
        untouched(start)
        found = chain.row(start, chain.count)
        assert found is not None, f"nothing was written at {start}"
        value, attributes = replaced.get(found[0], found[0]), {"shape": (*shape[:dim], 1, *shape[dim + 1 :])}
        parts += builder.add(REGISTRY["reshape"], (value,), attributes, last.line) if found[1] else [value]
        position = chain.stops[start]
    untouched(shape[dim])
    builder.nodes.append(Node(REGISTRY["cat"], tuple(parts), (("dim", dim),), last.outputs, last.line))
