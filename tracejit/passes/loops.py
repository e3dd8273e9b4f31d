"""Loops do no more than is asked of them: what nothing reads is neither kept nor collected, and bodies go through the passes themselves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from tracejit.core.op import Kind
from tracejit.ir.builder import rebuild
from tracejit.ir.graph import Body, Graph, Node
from tracejit.ir.loop import leaves_by_step, loop

__all__ = ["loops"]


def loops(graph: Graph, passes: Sequence[Callable[[Graph], Graph]]) -> Graph:
    """The graph with other loops; `graph` itself where there are none.  passes: what bodies go through, besides this one."""
    if all(node.op.kind is not Kind.LOOP for node in graph.nodes):
        return graph
    read = {x for node in graph.nodes for x in node.operands} | {*graph.outputs, *[v for _, v in graph.writes]}
    return rebuild(graph, [_reduced(node, read, passes) if node.op.kind is Kind.LOOP else node for node in graph.nodes])


def _reduced(node: Node, read: Collection[object], passes: Sequence[Callable[[Graph], Graph]]) -> Node:
    attributes = node.attrs
    body, carried = attributes["body"].graph, attributes["carried"]
    kept = len(node.outputs) - len(body.outputs)
    history = node.outputs[:kept]
    if not any(v in read for v in history):
        history = ()
    collected = [k for k in range(carried, len(body.outputs)) if node.outputs[kept + k] in read]
    if not (history or carried or collected):
        collected = [0]  # a loop that may leave gives something
    body = replace(body, outputs=(*body.outputs[:carried], *[body.outputs[k] for k in collected]), requires_grad=frozenset())
    for run in passes:
        body = run(body)
    attributes["body"] = Body(loops(body, passes))
    outputs = (*history, *node.outputs[kept : kept + carried], *[node.outputs[kept + k] for k in collected])
    op = loop(len(history), exits_alike=not leaves_by_step(node.op)) if "count" in attributes else node.op
    return Node(op, node.operands, tuple(sorted(attributes.items())), outputs, node.line)
