"""Building graphs: a `GraphBuilder` that appends nodes, and `rebuild`, through which passes make a graph from another.

Invariants: value ids are never reused within a builder; the avals of a node's outputs come from its op's shape rule, and from whoever
has seen them where sizes depend on data; a rebuilt graph keeps exactly the avals and requires_grad marks of the values that it still
defines.  Knows nothing of what passes want.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tracejit.core.aval import Aval, ScalarAval
from tracejit.core.dtypes import from_numpy_dtype
from tracejit.core.op import Op
from tracejit.ir.graph import Graph, Node, Operand, operand_aval

__all__ = ["GraphBuilder", "next_id", "producers", "rebuild", "substitute", "uses"]

Attributes = tuple[tuple[str, Any], ...]
Substitution = Mapping[int, Operand]


class GraphBuilder:
    """Appends to a graph under construction.  `first_id`: ids from here on are free."""

    __slots__ = ("avals", "constants", "inputs", "nodes", "requires_grad", "unused_id")

    def __init__(self, first_id: int = 0) -> None:
        self.inputs: list[int] = []
        self.avals: dict[int, Aval | ScalarAval] = {}
        self.constants: dict[int, Any] = {}
        self.nodes: list[Node] = []
        self.requires_grad: set[int] = set()
        self.unused_id = first_id

    def aval(self, v: Any) -> Aval:
        """The aval of a tensor."""
        aval = self.avals[v]
        assert isinstance(aval, Aval)
        return aval

    def fresh(self, aval: Aval | ScalarAval) -> int:
        """A new value id."""
        value = self.unused_id
        self.unused_id = value + 1
        self.avals[value] = aval
        return value

    def input(self, aval: Aval | ScalarAval) -> int:
        """A new graph input."""
        value = self.fresh(aval)
        self.inputs.append(value)
        return value

    def constant(self, array: Any) -> int:
        """A value whose contents are known now.  The caller must not write to `array` afterwards."""
        array = np.asarray(array)
        value = self.fresh(Aval(array.shape, from_numpy_dtype(array.dtype)))
        self.constants[value] = array
        return value

    def add(
        self,
        op: Op,
        operands: tuple[Operand, ...],
        attributes: Mapping[str, Any],
        line: str = "",
        seen: Sequence[Aval] | None = None,
    ) -> tuple[int, ...]:
        """Append a node; the ids of its outputs.  seen: the avals of the outputs of an op whose sizes depend on data.

        Raises what the op's shape rule raises, and RuntimeError for avals that it does not allow."""
        avals = self.avals
        inferred = op.infer_tuple([operand_aval(x, avals) for x in operands], attributes)
        if "dynamic shape" in op.traits:
            if seen is None or not all(rule.allows(aval) for rule, aval in zip(inferred, seen, strict=True)):
                raise RuntimeError(
                    f"{op.name}(): the shape of the result depends on data: it is {', '.join(map(str, inferred))}, and a graph holds "
                    f"only sizes that were seen, got {'none' if seen is None else ', '.join(map(str, seen))}"
                )
            inferred = tuple(seen)
        outputs = tuple(self.fresh(aval) for aval in inferred)
        self.nodes.append(Node(op, operands, tuple(sorted(attributes.items())), outputs, line))
        return outputs

    def build(self, outputs: Iterable[Operand], writes: Iterable[tuple[int, int]] = (), history: Iterable[str] = ()) -> Graph:
        """The finished graph."""
        return Graph(
            inputs=tuple(self.inputs),
            avals=dict(self.avals),
            nodes=tuple(self.nodes),
            outputs=tuple(outputs),
            constants=dict(self.constants),
            writes=tuple(writes),
            requires_grad=frozenset(self.requires_grad),
            history=tuple(history),
        )


def next_id(graph: Graph) -> int:
    """The smallest id above all ids of a graph."""
    return max(graph.avals, default=-1) + 1


def producers(graph: Graph) -> dict[int, Node]:
    """The node that defines each value; inputs and constants have none."""
    return {v: node for node in graph.nodes for v in node.outputs}


def substitute(node: Node, substitution: Substitution) -> Node:
    """`node` with its operands replaced; the node itself where there is nothing to replace.  Replacements are final: they are not
    looked up again."""
    if substitution.keys().isdisjoint(node.operands):
        return node
    operands = tuple([substitution.get(x, x) if type(x) is int else x for x in node.operands])
    return Node(node.op, operands, node.attributes, node.outputs, node.line)


def uses(graph: Graph) -> Counter[int]:
    """How often each value is read: by nodes, and as an output or a write of the graph."""
    found = Counter([x for node in graph.nodes for x in node.operands if type(x) is int])
    found.update([x for x in (*graph.outputs, *[v for _, v in graph.writes]) if type(x) is int])
    return found


def rebuild(
    graph: Graph,
    nodes: Sequence[Node],
    substitution: Substitution | None = None,
    *,
    avals: Mapping[int, Aval | ScalarAval] | None = None,
    requires_grad: Iterable[int] | None = None,
    stale: Iterable[int] | None = None,
    outputs: tuple[Operand, ...] | None = None,
    writes: tuple[tuple[int, int], ...] | None = None,
    history: tuple[str, ...] | None = None,
) -> Graph:
    """A graph of `nodes` with the inputs and constants of `graph`.  Its outputs and writes go through `substitution`, unless given;
    `avals`, `requires_grad` and `stale` may be larger than needed.  Constants that nothing reads are dropped."""
    known = graph.avals if avals is None else avals
    marked = graph.requires_grad if requires_grad is None else requires_grad
    if outputs is None:
        outputs = graph.outputs
        if substitution:
            outputs = tuple(substitution.get(x, x) if type(x) is int else x for x in outputs)
    if writes is None:
        writes = graph.writes
        if substitution:
            writes = tuple((target, _as_id(substitution.get(v, v))) for target, v in writes)
    constants = graph.constants
    if constants:
        read: set[Any] = {x for node in nodes for x in node.operands if type(x) is int}
        read.update(x for x in outputs if type(x) is int)
        read.update(v for _, v in writes)
        constants = {v: array for v, array in constants.items() if v in read}
    kept = {v: known[v] for v in (*graph.inputs, *constants)}
    kept.update({v: known[v] for node in nodes for v in node.outputs})
    return replace(
        graph,
        avals=kept,
        nodes=tuple(nodes),
        outputs=outputs,
        constants=constants,
        writes=writes,
        requires_grad=frozenset(kept.keys() & marked),
        stale=frozenset(kept.keys() & (graph.stale if stale is None else stale)),
        history=graph.history if history is None else history,
    )


def _as_id(operand: Operand) -> int:
    assert type(operand) is int
    return operand
