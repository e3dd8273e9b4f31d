"""Composites become the primitives that they stand for.

They stay whole as long as gradients may be taken of a graph, since eager mode's tape has one node for each, with what that saves.
A convolution that kernels compute at once (core/convolutions.py) stays whole for good.  Composites that are alike, as those of equal
layers, are expanded once; the others get the same nodes on their own values.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from tracejit.core.aval import Aval, ScalarAval
from tracejit.core.interpreter import pushed
from tracejit.core.op import Kind
from tracejit.core.symbolic import has_symbols
from tracejit.ir.builder import GraphBuilder, next_id, rebuild, substitute
from tracejit.ir.convolutions import is_direct
from tracejit.ir.graph import Graph, Literal, Node, Operand
from tracejit.ir.tracer import ScalarTracer, Tracer, TracingInterpreter

__all__ = ["expand"]


def expand(graph: Graph) -> Graph:
    """The graph without composites, but for those that kernels compute; `graph` itself where there are none."""
    if all(node.op.kind is not Kind.COMPOSITE or is_direct(graph.avals, node) for node in graph.nodes):
        return graph
    builder = GraphBuilder(next_id(graph))
    builder.avals.update(graph.avals)
    builder.constants.update(graph.constants)
    replaced: dict[int, Operand] = {}
    known: dict[Hashable, _Expansion] = {}
    for node in graph.nodes:
        if replaced:
            node = substitute(node, replaced)
        if node.op.kind is Kind.COMPOSITE and not is_direct(builder.avals, node):
            likeness = _likeness(builder, node)
            like = None if likeness is None else known.get(likeness)
            if like is None:
                first = len(builder.nodes)
                results = _expand(builder, node)
                if likeness is not None:
                    known[likeness] = _Expansion(node.operands, tuple(builder.nodes[first:]), results)
            else:
                results = _expand_like(builder, node, like)
            replaced.update(zip(node.outputs, results, strict=True))
        else:
            builder.nodes.append(node)
    with_constants = replace(graph, constants=builder.constants)
    return rebuild(with_constants, builder.nodes, replaced, avals=builder.avals)


class _Expansion(NamedTuple):
    """What a composite of these operands was expanded to: nodes, and which values its outputs are."""

    operands: tuple[Operand, ...]
    nodes: tuple[Node, ...]
    results: Sequence[int]


def _likeness(builder: GraphBuilder, node: Node) -> Hashable:
    """The same for composites that have the same expansion on other values.  None for one with symbolic sizes, which are not to be
    compared: its expansion is its own."""
    first = {x: k for k, x in reversed(list(enumerate(node.operands))) if type(x) is int}  # which operands are one value
    avals = [builder.avals[x] for x in first]
    if has_symbols([*[value for _, value in node.attributes], *[aval.shape for aval in avals if isinstance(aval, Aval)]]):
        return None
    operands = tuple([first[x] if type(x) is int else x for x in node.operands])
    attributes = tuple([(name, Literal(x) if isinstance(x, (bool, int, float)) else x) for name, x in node.attributes])
    return node.op, attributes, tuple(avals), operands


def _expand_like(builder: GraphBuilder, node: Node, like: _Expansion) -> list[int]:
    """Append what another composite of the same likeness was expanded to, on the values of `node`; which of these its outputs are."""
    other: dict[int, Any] = {x: y for x, y in zip(like.operands, node.operands, strict=True) if type(x) is int}
    for made in like.nodes:
        operands = tuple([other.get(x, x) if type(x) is int else x for x in made.operands])
        for v in made.outputs:
            other[v] = builder.fresh(builder.avals[v])
        builder.nodes.append(Node(made.op, operands, made.attributes, tuple([other[v] for v in made.outputs]), node.line))
    return [other.get(v, v) for v in like.results]


def _expand(builder: GraphBuilder, node: Node) -> list[int]:
    """Append what `node` stands for; which values its outputs are now."""
    interpreter = TracingInterpreter(builder)
    interpreter.line = node.line

    def value(operand: Operand) -> Any:
        if isinstance(operand, Literal):
            return operand.value
        if operand is None:
            return None
        aval = builder.avals[operand]
        return (ScalarTracer if isinstance(aval, ScalarAval) else Tracer)(interpreter, operand, aval)

    expansion = node.op.expansion
    assert expansion is not None, node.op.name
    with pushed(interpreter):
        result = expansion(*map(value, node.operands), **node.attrs)
    results = result if node.op.multiple else (result,)
    for output, made in zip(node.outputs, results, strict=True):
        if builder.avals[made.id] != builder.avals[output]:
            raise AssertionError(
                f"{node.op.name}: its expansion gives {builder.avals[made.id]}, its shape rule {builder.avals[output]}"
            )
    return [made.id for made in results]
