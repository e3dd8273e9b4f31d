"""Literals as number inputs: so graphs that differ in these alone (1 / n, where n is a size) have the same nests.  Numbers computed of
sizes in the steps of a loop become operands of the loop (`with_sizes_given`).

Only for operations that are correctly rounded: a nest that is given such a number comes to the same bits as one that has it as a constant.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Collection, Hashable, Sequence
from dataclasses import replace

from tracejit.core.aval import ScalarAval
from tracejit.core.dtypes import float32, float64, int64
from tracejit.core.op import Kind
from tracejit.core.symbolic import SYMBOLIC, python_type
from tracejit.ir.graph import Body, Graph, Literal, Node, Operand

__all__ = ["as_inputs", "literals", "skeleton", "with_sizes_given"]

_ROUNDED_ONCE = (float32, float64, int64)


def skeleton(graph: Graph) -> Hashable:
    """What two graphs have in common that differ in sizes, attributes and literals, and in the numbers that their values have."""
    numbers: dict[Operand, int] = {v: k for k, v in enumerate((*graph.inputs, *graph.constants))}

    def kinds(operands: Sequence[Operand]) -> tuple[int | str | None, ...]:
        return tuple([type(x.value).__name__ if isinstance(x, Literal) else numbers.get(x) for x in operands])

    nodes: list[Hashable] = []
    for node in graph.nodes:
        nodes += node.op, kinds(node.operands)
        for v in node.outputs:
            numbers[v] = len(numbers)
    return len(graph.inputs), tuple(nodes), kinds(graph.outputs), tuple(map(kinds, graph.writes))


def literals(graph: Graph) -> dict[tuple[int, int], int | float]:
    """The literals that may be inputs, by their node and operand numbers."""
    return {
        (k, i): x.value
        for k, node in enumerate(graph.nodes)
        if Literal in map(type, node.operands) and _may_have_inputs(node)
        for i, x in enumerate(node.operands)
        if isinstance(x, Literal) and _may_be_input(x.value)
    }


def with_sizes_given(graph: Graph) -> Graph:
    """The graph with loops that are given the numbers computed of sizes which their steps have as literals."""
    nodes = tuple([_with_sizes_given(x) if x.op.kind is Kind.LOOP else x for x in graph.nodes])
    return graph if all(map(operator.is_, nodes, graph.nodes)) else replace(graph, nodes=nodes)


def _with_sizes_given(node: Node) -> Node:
    """A loop that is given these numbers as its last operands."""
    body = with_sizes_given(node.attrs["body"].graph)
    given: dict[
        tuple[type, int], tuple[int, Literal]
    ] = {}  # by numbers: the inputs of the body, and what the loop is given for them
    fresh = itertools.count(max(body.avals, default=0) + 1)

    def operand(of: Node, x: Operand) -> Operand:
        if not (isinstance(x, Literal) and type(x.value) in SYMBOLIC and (of.op.kind is Kind.LOOP or _may_have_inputs(of))):
            return x
        return given.setdefault((type(x.value), x.value.number), (next(fresh), x))[0]  # type: ignore[union-attr]

    nodes = [replace(x, operands=tuple([operand(x, y) for y in x.operands])) for x in body.nodes]
    if not given and body is node.attrs["body"].graph:
        return node
    avals = {v: ScalarAval(python_type(x.value)) for v, x in given.values()}
    body = replace(body, inputs=(*body.inputs, *avals), avals={**body.avals, **avals}, nodes=tuple(nodes))
    attributes = tuple([(name, Body(body) if name == "body" else x) for name, x in node.attributes])
    return replace(node, operands=(*node.operands, *[x for _, x in given.values()]), attributes=attributes)


def _may_have_inputs(node: Node) -> bool:
    """Whether inputs may take the places of literals of a node."""
    return (node.op.kind is Kind.ELEMENTWISE and "exact" in node.op.traits) or _is_of_a_size(node)


def _is_of_a_size(node: Node) -> bool:
    """Whether a node makes a tensor full of a number that was computed of sizes, as the gradient of a mean is."""
    x = node.operands[0] if node.op.kind is Kind.CREATION and "uniform" in node.op.traits else None
    return isinstance(x, Literal) and type(x.value) in SYMBOLIC and node.attrs["dtype"] in _ROUNDED_ONCE


def _may_be_input(number: int | float) -> bool:
    if type(number) in SYMBOLIC:
        return True
    return type(number) is float or (type(number) is int and number.bit_length() < 64)


def as_inputs(graph: Graph, chosen: Collection[tuple[int, int]]) -> tuple[Graph, dict[int, int | float]]:
    """The graph with the chosen literals as its last inputs, and their values."""
    avals, nodes, values = dict(graph.avals), list(graph.nodes), dict[int, int | float]()
    for k, i in chosen:
        x, fresh = nodes[k].operands[i], max(avals, default=0) + 1
        assert isinstance(x, Literal), x
        avals[fresh], values[fresh] = ScalarAval(float if isinstance(x.value, float) else int), x.value
        nodes[k] = replace(nodes[k], operands=(*nodes[k].operands[:i], fresh, *nodes[k].operands[i + 1 :]))
    return replace(graph, inputs=(*graph.inputs, *values), avals=avals, nodes=tuple(nodes)), values
