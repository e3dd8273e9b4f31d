"""Composites become the primitives that they stand for.

They stay whole as long as gradients may be taken of a graph, since eager mode's tape has one node for each, with what that saves.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tracejit.core.aval import ScalarAval
from tracejit.core.interpreter import pushed
from tracejit.core.op import Kind
from tracejit.ir.builder import GraphBuilder, next_id, rebuild, substitute
from tracejit.ir.graph import Graph, Literal, Node, Operand
from tracejit.ir.tracer import ScalarTracer, Tracer, TracingInterpreter

__all__ = ["expand"]


def expand(graph: Graph) -> Graph:
    """The graph without composites; `graph` itself where there are none."""
    if all(node.op.kind is not Kind.COMPOSITE for node in graph.nodes):
        return graph
    builder = GraphBuilder(next_id(graph))
    builder.avals.update(graph.avals)
    builder.constants.update(graph.constants)
    replaced: dict[int, Operand] = {}
    for node in graph.nodes:
        node = substitute(node, replaced)
        if node.op.kind is Kind.COMPOSITE:
            _expand(builder, node, replaced)
        else:
            builder.nodes.append(node)
    with_constants = replace(graph, constants=builder.constants)
    return rebuild(with_constants, builder.nodes, replaced, avals=builder.avals)


def _expand(builder: GraphBuilder, node: Node, replaced: dict[int, Operand]) -> None:
    """Append what `node` stands for, and say what its outputs are now."""
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
        replaced[output] = made.id
