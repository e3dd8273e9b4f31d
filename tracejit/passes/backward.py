"""The backward graph: vjp rules run over tracers, in strict reverse program order.

A rule sees forward values as tracers with their forward ids.  A value that is not at hand (residual, direct input, constant) is computed
again: its forward node is put into the backward graph, unchanged, just before its first use.  Cotangents that do not exist
are None, never zeros.  Cotangents of one value are added through `acc(previous | None, d)` in the order in which they arrive, which is
the order of eager mode.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from tracejit.core.aval import Aval, ScalarAval
from tracejit.core.op import Kind, VjpContext
from tracejit.core.unbroadcast import sum_to
from tracejit.ir.builder import GraphBuilder, next_id, producers
from tracejit.ir.graph import Graph, Literal, Node, Operand
from tracejit.ir.tracer import ScalarTracer, Tracer, TracingInterpreter
from tracejit.passes.pullbacks import PullBacks

__all__ = [
    "active_values",
    "backward_graph",
    "blind_ends",
    "contents_graph",
    "gradient_operands",
    "inner_leaves",
    "tape_values",
    "visited_nodes",
]


def gradient_operands(node: Node, values: AbstractSet[int]) -> list[int]:
    """The operands of `node` among `values` to which it hands a gradient on."""
    if "not differentiable" in node.op.traits:
        return []
    return [x for x in node.operands if type(x) is int and x in values]


def inner_leaves(graph: Graph) -> tuple[int, ...]:
    """Values made inside where gradients end as they do at inputs: `requires_grad_()` was called on a tensor of the program's own.
    Recordings mark them, by a detach() unless they are made from nothing."""
    marked = graph.requires_grad
    made = [node for node in graph.nodes if node.op.kind is Kind.CREATION or "not differentiable" in node.op.traits]
    return tuple([v for node in made for v in node.outputs if v in marked])


def blind_ends(graph: Graph) -> list[int]:
    """Values made inside that require grad, and hand none on: leaves, and what a number was written to."""
    marked = graph.requires_grad
    return [v for node in graph.nodes for v in node.outputs if v in marked and not gradient_operands(node, marked)]


def tape_values(graph: Graph) -> dict[int, int]:
    """Values that have no position of their own on eager mode's tape -> the value whose position it is: contents that were replaced under
    no_grad are those of the same tensor."""
    found: dict[int, int] = {}
    for node in graph.nodes:
        if "straight through" in node.op.traits:
            (v,), previous = node.outputs, node.operands[0]
            assert type(previous) is int
            found[v] = found.get(previous, previous)
    return found


def active_values(graph: Graph, targets: Iterable[int]) -> set[int]:
    """Values through which a gradient reaches one of `targets`, inputs or values made inside."""
    marked = graph.requires_grad
    active = {v for v in targets if v in marked}
    for node in graph.nodes:
        if gradient_operands(node, active):
            active.update(v for v in node.outputs if v in marked)
    return active


def visited_nodes(graph: Graph, active: AbstractSet[int], present: Sequence[bool]) -> list[Node]:
    """The nodes whose vjp runs, latest first, when the outputs in `present` have cotangents."""
    reached = {v for v, there in zip(graph.outputs, present, strict=True) if there and type(v) is int and v in active}
    visited: list[Node] = []
    for node in reversed(graph.nodes):
        if not reached.isdisjoint(node.outputs):
            wanting = gradient_operands(node, active)
            if wanting:
                visited.append(node)
                reached.update(wanting)
    return visited


def backward_graph(
    graph: Graph, residuals: Sequence[int], direct_inputs: Sequence[int], present: Sequence[bool], targets: Sequence[int]
) -> Graph:
    """The graph from (residuals, direct inputs, present cotangents) to one gradient per target, None where none arrives.

    Raises RuntimeError for a primitive without a derivative."""
    active = active_values(graph, targets)
    forward = _ForwardValues(graph, residuals, direct_inputs)
    builder, interpreter = forward.builder, forward.interpreter
    pull_backs = PullBacks(interpreter)
    cotangents: dict[int, Tracer] = {}

    def accumulate(v: int, d: Tracer) -> None:
        cotangents[v] = pull_backs.sum(cotangents.get(v), d, interpreter.line)

    given = [
        (v, builder.input(graph.avals[v])) for v, there in zip(graph.outputs, present, strict=True) if there and type(v) is int
    ]
    for v, cotangent in given:
        if v in active:
            accumulate(v, Tracer(interpreter, cotangent, graph.avals[v]))
    for node in visited_nodes(graph, active, present):
        interpreter.line = node.line
        arriving = [cotangents.get(v) for v in node.outputs]
        if all(g is None for g in arriving):
            continue
        needs = tuple(type(x) is int and x in active for x in node.operands)
        accumulated: tuple[Any, ...] = ()
        if "accumulates" in node.op.traits:
            accumulated = tuple([cotangents.pop(x, None) if need else None for x, need in zip(node.operands, needs, strict=True)])  # type: ignore[arg-type]
        answer = _pull_back(node, forward, needs, accumulated, arriving, pull_backs)
        for x, need, d in zip(node.operands, needs, answer, strict=True):
            if need and d is not None:
                assert type(x) is int
                accumulate(x, d)
    return builder.build(tuple(cotangents[v].id if v in cotangents else None for v in targets))


def contents_graph(graph: Graph, residuals: Sequence[int], direct_inputs: Sequence[int], values: Sequence[int]) -> Graph:
    """The graph from residuals and direct inputs to `values`."""
    forward = _ForwardValues(graph, residuals, direct_inputs)
    return forward.builder.build(tuple(forward.tracer(v).id for v in values))


def _pull_back(
    node: Node,
    forward: _ForwardValues,
    needs: tuple[bool, ...],
    accumulated: tuple[Any, ...],
    arriving: list[Tracer | None],
    pull_backs: PullBacks,
) -> tuple[Any, ...]:
    op = node.op
    if op.vjp_rule is None:
        raise RuntimeError(
            f"backward(): the primitive {op.name} ({node.line or 'unknown line'}) has no derivative; detach() its input"
        )
    saved_inputs, saved_outputs = op.saved_for(needs)
    inputs = tuple(forward.operand(x, i in saved_inputs) for i, x in enumerate(node.operands))
    outputs = tuple(forward.tracer(v) if i in saved_outputs else None for i, v in enumerate(node.outputs))
    avals = tuple(a if type(x) is int and isinstance(a := forward.graph.avals[x], Aval) else None for x in node.operands)
    return pull_backs.of(node, VjpContext(inputs, outputs, needs, avals, node.attrs, accumulated), arriving, _all_fitted)


def _all_fitted(node: Node, context: VjpContext, cotangents: tuple[Any, ...]) -> tuple[Any, ...]:
    """The cotangents that are wanted, in the shapes of the operands."""
    wanted = zip(context.needs, cotangents, context.avals, strict=True)
    return tuple([_fitted(node, d, aval) if need and d is not None else None for need, d, aval in wanted])


def _fitted(node: Node, d: Any, aval: Any) -> Tracer:
    """The cotangent in the shape of the operand.  Raises AssertionError where the rule is wrong."""
    if node.op.kind is Kind.ELEMENTWISE:
        d = sum_to(d, aval.shape)
    if d.aval != aval:
        raise AssertionError(f"the vjp of {node.op.name} returned {d.aval} as the cotangent of an operand that is {aval}")
    tracer: Tracer = d
    return tracer


class _ForwardValues:
    """Forward values inside the backward graph: at hand, or computed again on demand."""

    def __init__(self, graph: Graph, residuals: Sequence[int], direct_inputs: Sequence[int]) -> None:
        self.graph = graph
        self.makers = producers(graph)
        self.builder = builder = GraphBuilder(next_id(graph))
        self.interpreter = TracingInterpreter(builder)
        for v in (*residuals, *direct_inputs):
            builder.avals[v] = graph.avals[v]
            builder.inputs.append(v)

    def operand(self, operand: Operand, saved: bool) -> Any:
        """What stands in `context.inputs`: numbers always, tensors where saved."""
        if isinstance(operand, Literal):
            return operand.value
        if operand is None or not (saved or isinstance(self.graph.avals[operand], ScalarAval)):
            return None
        return self.tracer(operand)

    def tracer(self, v: int) -> Tracer:
        self._have(v)
        aval = self.graph.avals[v]
        return (ScalarTracer if isinstance(aval, ScalarAval) else Tracer)(self.interpreter, v, aval)

    def _have(self, wanted: int) -> None:
        """Make sure that `wanted` is defined in the backward graph."""
        builder, graph = self.builder, self.graph
        stack = [wanted]
        while stack:
            v = stack[-1]
            if v in builder.avals:
                stack.pop()
                continue
            if v in graph.constants:
                builder.constants[v] = graph.constants[v]
                builder.avals[v] = graph.avals[v]
                continue
            node = self.makers.get(v)
            if node is None:
                raise AssertionError(f"the backward needs input v{v}, which is neither saved nor read directly")
            missing = [x for x in node.operands if type(x) is int and x not in builder.avals]
            if missing:
                stack.extend(missing)
                continue
            builder.nodes.append(node)
            builder.avals.update((x, graph.avals[x]) for x in node.outputs)
