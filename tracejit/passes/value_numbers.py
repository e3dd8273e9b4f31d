"""Value numbers: values of several graphs that are computed alike, of the same inputs, have the same number.

The table is hash-consed from the operands up (Cocke & Schwartz, "Programming Languages and Their Compilers", 1970, value numbering), and
outlives the graphs that it has seen.  What the inputs are says the caller, by any key; an input without one is like no other value, nor is
what an impure operation makes.

A node without a result, or whose result nobody needs, has a number as well: two that check the same have the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from tracejit.core.op import Effect, Kind
from tracejit.ir.graph import Graph, Literal, Node, Operand

__all__ = ["ValueNumbers"]


class ValueNumbers:
    """The table."""

    def __init__(self) -> None:
        self._table: dict[Hashable, int] = {}
        self._fresh = 0

    def number(self, key: Hashable) -> int:
        """The number of whatever has this key."""
        return self._table.setdefault(key, len(self._table))

    def unique(self) -> int:
        """A number that nothing else has."""
        self._fresh += 1
        return self.number(("unique", self._fresh))

    def of(self, graph: Graph, inputs: Mapping[int, Hashable]) -> tuple[dict[int, int], dict[int, int]]:
        """(number of each value, number of each node by its id()) of a functional graph."""
        numbers = {v: self.number(("input", inputs[v])) if v in inputs else self.unique() for v in graph.inputs}
        for v, array in graph.constants.items():
            numbers[v] = self.number(("constant", array.dtype.str, array.shape, array.tobytes()))
        nodes = {}
        for node in graph.nodes:
            nodes[id(node)] = own = self.node(node, numbers)
            numbers.update({v: self.number((own, k)) for k, v in enumerate(node.outputs)})
        return numbers, nodes

    def node(self, node: Node, numbers: Mapping[int, int]) -> int:
        """The number of a node whose operands have these."""
        op = node.op
        if op.effect is Effect.IN_PLACE or (op.effect is Effect.RANDOM and op.kind is not Kind.RANDOM):
            return self.unique()
        return self.number((op, tuple([_operand(x, numbers) for x in node.operands]), node.attributes))


def _operand(x: Operand, numbers: Mapping[int, int]) -> Hashable:
    return numbers[x] if type(x) is int else x if isinstance(x, Literal) else None
