"""Replaces a selection of rows that is spread among zeros again by `where`.

Functions of ragged tensors are recorded as `index_add(zeros, positions, index_select(x, positions))` (capture/handlers/ragged.py).
Here that becomes `where(inside, x, 0)`, where `inside` is the mask that gave the positions.  Recorded backward passes have the same
pattern: gradients of selections are added up, then spread.  Selections, and the nodes that compute positions, are removed if nothing
else uses them: then no size in the graph depends on data.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tracejit.core.aval import Aval
from tracejit.core.dtypes import bool_
from tracejit.core.op import REGISTRY, Kind
from tracejit.ir.graph import Literal, Node
from tracejit.ops.creation import full
from tracejit.ops.elementwise.arithmetic import acc
from tracejit.ops.indexing import index_add, index_select, row_indices
from tracejit.ops.movement.copies import clone
from tracejit.ops.movement.views import detach

if TYPE_CHECKING:
    from tracejit.capture.tensors import RecordingInterpreter

__all__ = ["join_selections", "joined_nodes"]

_PASSING = frozenset({clone, detach})


def join_selections(interpreter: RecordingInterpreter, outputs: Iterable[int]) -> None:
    """Rewrite the nodes of a recording, in place.  outputs: the values that the graph gives."""
    nodes = interpreter.nodes
    if any(node.op is row_indices for node in nodes):
        nodes[:], removed = _Joining(interpreter).join(nodes, set(outputs))
        interpreter.requires_grad.difference_update(removed)
        for value in removed:
            del interpreter.avals[value]


def joined_nodes(interpreter: RecordingInterpreter, first: int, outputs: Iterable[int]) -> list[Node]:
    """The nodes of a recording from the `first` one on, rewritten; the recording keeps its own.  outputs: the values that are used
    besides."""
    nodes = interpreter.nodes[first:]
    return _Joining(interpreter).join(nodes, set(outputs))[0] if any(node.op is row_indices for node in nodes) else nodes


class _Joining:
    """The rewriting of one graph."""

    def __init__(self, interpreter: RecordingInterpreter) -> None:
        self._interpreter = interpreter
        self._avals = interpreter.avals
        self._inside: dict[int, int] = {}  # positions -> the mask that they were computed from
        self._selected: dict[int, tuple[int, int]] = {}  # selected rows -> (the tensor they were selected from, positions)
        self._zeros: set[int] = set()
        self._columns: dict[tuple[int, int], int] = {}
        self._nodes: list[Node] = []
        self._removable: set[int] = set()  # values that are removed if nothing uses them
        self._roots: dict[int, int] = {}  # views, and versions after writes -> the value that owns the memory
        self._writes: dict[int, int] = {}  # such a value -> how often it has been written to so far
        self._selected_at: dict[int, int] = {}  # selected rows -> that number for what they were selected from, at the selection

    def join(self, nodes: Iterable[Node], outputs: set[int]) -> tuple[list[Node], list[int]]:
        """(the nodes, rewritten, the values that are gone)."""
        for node in nodes:
            self._nodes.append(self._rewritten(node))
        live = outputs | set(self._interpreter.inputs)
        kept: list[Node] = []
        removed: list[int] = []
        for node in reversed(self._nodes):
            if node.outputs and live.isdisjoint(node.outputs) and self._removable.issuperset(node.outputs):
                removed += node.outputs
                continue
            kept.append(node)
            live.update([x for x in node.operands if type(x) is int])
        return kept[::-1], removed

    def _rewritten(self, node: Node) -> Node:
        """The node, or a `where` in its place."""
        op, operands = node.op, node.operands
        if len(node.outputs) != 1:
            return node
        (value,) = node.outputs
        if op.kind in (Kind.VIEW, Kind.WRITE):
            root = self._roots[value] = self._root(operands[0])
            if op.kind is Kind.WRITE:
                self._writes[root] = self._writes.get(root, 0) + 1
        if op is row_indices and type(operands[0]) is int:
            self._inside[value] = operands[0]
            self._removable.add(value)
        elif op is full and isinstance(operands[0], Literal) and operands[0].value == 0:
            self._zeros.add(value)
        elif op is index_select and node.attrs["dim"] == 0 and operands[1] in self._inside and type(operands[0]) is int:
            self._removable.add(value)
            self._selected[value] = operands[0], operands[1]  # type: ignore[assignment]
            self._selected_at[value] = self._writes.get(self._root(operands[0]), 0)
        elif op in _PASSING and operands[0] in self._selected and not self._interpreter.is_written(value):
            self._selected[value] = self._selected[operands[0]]  # type: ignore[index]
            self._selected_at[value] = self._selected_at[operands[0]]  # type: ignore[index]
            self._removable.add(value)
        elif op is acc and operands[1] in self._selected:
            self._add(node)
        elif op is index_add and node.attrs["dim"] == 0 and operands[0] in self._zeros and operands[2] in self._selected:
            source, indices = self._selected[operands[2]]  # type: ignore[index]
            if indices == operands[1] and self._is_as_selected(operands[2]):
                return self._spread(node, source, indices)
        return node

    def _root(self, value: Any) -> int:
        """The value that owns the memory of a value."""
        return self._roots.get(value, value)

    def _is_as_selected(self, value: Any) -> bool:
        """Whether what rows were selected from has not been written to since."""
        return self._selected_at[value] == self._writes.get(self._root(self._selected[value][0]), 0)

    def _spread(self, node: Node, source: int, indices: int) -> Node:
        aval = self._avals[node.outputs[0]]
        assert isinstance(aval, Aval)
        number = Literal(0.0 if aval.dtype.is_floating_point else False if aval.dtype is bool_ else 0)
        mask = self._column(indices, len(aval.shape), node.line)
        return Node(REGISTRY["where"], (mask, source, number), (), node.outputs, node.line)

    def _add(self, node: Node) -> None:
        """`acc` of selections (gradients that are added up): also add up the tensors that they were selected from."""
        previous, other = node.operands
        assert type(other) is int
        source, indices = self._selected[other]
        value = node.outputs[0]
        self._removable.add(value)
        if previous is None:
            self._selected[value], self._selected_at[value] = (source, indices), self._selected_at[other]
            return
        if type(previous) is not int or previous not in self._selected or self._selected[previous][1] != indices:
            return
        if self._is_as_selected(previous) and self._is_as_selected(other):
            total = self._interpreter._fresh(self._avals[source])
            self._nodes.append(Node(node.op, (self._selected[previous][0], source), node.attributes, (total,), node.line))
            self._selected[value], self._selected_at[value] = (total, indices), 0

    def _column(self, indices: int, rank: int, line: str) -> int:
        """The mask of `indices` with shape (rows, 1, ...) of this rank."""
        inside = self._inside[indices]
        if rank == 1:
            return inside
        column = self._columns.get((inside, rank))
        if column is None:
            aval = self._avals[inside]
            assert isinstance(aval, Aval)
            shape = (*aval.shape, *(1,) * (rank - 1))
            column = self._columns[inside, rank] = self._interpreter._fresh(Aval(shape, aval.dtype))
            self._nodes.append(Node(REGISTRY["reshape"], (inside,), (("shape", shape),), (column,), line))
        return column
