"""Reads of what has been written at a position: of `table[a] = row`, `table[b]` is `row` where a is b, and what was there before elsewhere.

So nothing looks at the whole of what a write has made, and lowering can change the row where it lies (lowering/regions.py) instead of
copying the table.  It pays where the table is much larger than the row.  Of slices, `table[a : a + n] = rows`, a read of just the rows
that were written last looks through; of others nothing is known before the program runs.
"""

from __future__ import annotations

from typing import Any, Final

from tracejit.core.aval import Aval
from tracejit.core.dtypes import int64
from tracejit.core.op import REGISTRY
from tracejit.ir.builder import GraphBuilder, next_id, rebuild, substitute
from tracejit.ir.graph import Graph, Literal, Node, Operand
from tracejit.passes.memory import outputs_and_bases

__all__ = ["forward_reads"]

WORTH: Final = 16
"""Rows of a table that is not worth copying."""
MOST_WRITES: Final = 8
"""Writes that a read looks through: each is a comparison, and a choice of elements."""


def forward_reads(graph: Graph) -> Graph:
    """The graph whose reads look through writes; `graph` itself where there are none."""
    if not any(map(_is_write, graph.nodes)):
        return graph
    writers: dict[int, Node] = {}
    builder = GraphBuilder(next_id(graph))
    builder.avals = dict(graph.avals)
    given = outputs_and_bases(graph)
    replaced: dict[int, Operand] = {}
    for node in graph.nodes:
        node = substitute(node, replaced)
        if _is_write(node):
            writers[node.outputs[0]] = node
        elif _is_worth_it(node, writers, builder) and node.outputs[0] not in given:
            replaced[node.outputs[0]] = _read(builder, writers, node.operands[0], node, MOST_WRITES)
            continue
        builder.nodes.append(node)
    return rebuild(graph, builder.nodes, avals=builder.avals) if replaced else graph


def _is_write(node: Node) -> bool:
    return node.op.region is not None and "position operand" in node.op.region.traits


def _is_worth_it(node: Node, writers: dict[int, Node], builder: GraphBuilder) -> bool:
    table = node.operands[0] if "position operand" in node.op.traits else None
    writer = writers.get(table) if type(table) is int else None
    if writer is None or not _same_dimension(writer, node) or not builder.aval(writer.operands[1]).size:
        return False
    if "one position" not in node.op.traits and node.operands[1] != writer.operands[2]:
        return False
    return builder.aval(table).size >= WORTH * builder.aval(writer.operands[1]).size


def _same_dimension(writer: Node, read: Node) -> bool:
    return writer.op.region is read.op and writer.attributes == read.attributes


def _read(builder: GraphBuilder, writers: dict[int, Node], table: Any, read: Node, most: int) -> int:
    """What `read` finds in a table: the value that it is."""
    position = read.operands[1]
    writer = writers.get(table)
    if writer is None or not most or not _same_dimension(writer, read):
        return builder.add(read.op, (table, position), read.attrs, read.line)[0]
    before, row, written = writer.operands
    assert type(row) is int
    if position == written:
        return row
    other = _read(builder, writers, before, read, most - 1)
    if isinstance(position, Literal) and isinstance(written, Literal):
        return other
    (there,) = builder.add(REGISTRY["eq"], (_tensor(builder, position), _tensor(builder, written)), {}, read.line)
    return builder.add(REGISTRY["where"], (there, row, other), {}, read.line)[0]


def _tensor(builder: GraphBuilder, position: Operand) -> int:
    """A position as a tensor without dimensions."""
    if type(position) is int and isinstance(builder.avals[position], Aval):
        return position
    return builder.add(REGISTRY["full"], (position,), {"shape": (), "dtype": int64})[0]
