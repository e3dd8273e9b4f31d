"""The backward graph: vjp rules run over tracers, in strict reverse program order.

A rule sees forward values as tracers with their forward ids.  A value that is not at hand (residual, direct input, constant) is computed
again: its forward node is put into the backward graph, unchanged, just before its first use.  Cotangents that do not exist
are None, never zeros.  Cotangents of one value are added through `acc(previous | None, d)` in the order in which they arrive, which is
the order of eager mode.

Where paths join (`phi`), the cotangent goes to the value of the path that was taken, and the others have none.  So a cotangent may
exist on some paths alone: then a *condition*, a bool, says whether it does, and its contents mean nothing where it does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import reduce
from typing import Any, Final, NamedTuple

from tracejit.core.aval import Aval, ScalarAval
from tracejit.core.dtypes import bool_
from tracejit.core.op import REGISTRY, Kind, VjpContext
from tracejit.core.unbroadcast import sum_to
from tracejit.ir.builder import GraphBuilder, next_id, producers
from tracejit.ir.graph import Graph, Literal, Node, Operand
from tracejit.ir.loop import results_made_of
from tracejit.ir.tracer import ScalarTracer, Tracer, TracingInterpreter
from tracejit.passes.path_conditions import ALWAYS, NEVER, Condition, Conditions, are_disjoint
from tracejit.passes.pullbacks import PullBacks

__all__ = [
    "ConditionalCotangent",
    "active_values",
    "backward_graph",
    "blind_ends",
    "contents_graph",
    "gradient_operands",
    "inner_leaves",
    "tape_values",
    "values_made_of",
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


def values_made_of(graph: Graph, v: int) -> list[int]:
    """The results of a loop that may be made of its result `v`, in the last step."""
    maker = next((node for node in graph.nodes if v in node.outputs), None)
    made_of = None if maker is None else results_made_of(maker.op)
    return [maker.outputs[k] for k in made_of.get(maker.outputs.index(v), ())] if maker and made_of else []


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
    graph: Graph,
    residuals: Sequence[int],
    direct_inputs: Sequence[int],
    present: Sequence[bool],
    targets: Sequence[int],
    conditional: Sequence[bool] | None = None,
) -> Graph:
    """The graph from (residuals, direct inputs, present cotangents, conditions) to one gradient per target, None where none arrives.

    conditional: which of the present cotangents have a condition.  The graph also gives the condition of each gradient; None of one that
    has none; it does not if `conditional` is None and no gradient has one.  Raises RuntimeError for a primitive without a derivative."""
    active = active_values(graph, targets)
    forward = _ForwardValues(graph, residuals, direct_inputs)
    builder, interpreter = forward.builder, forward.interpreter
    sums = _Cotangents(PullBacks(interpreter), interpreter)

    def given(chosen: Sequence[bool], aval: Aval | None) -> list[Tracer | None]:
        outputs = [v if there and type(v) is int else None for v, there in zip(graph.outputs, chosen, strict=True)]
        avals = [None if v is None else aval or graph.avals[v] for v in outputs]
        return [None if a is None else Tracer(interpreter, builder.input(a), a) for a in avals]  # type: ignore[arg-type]

    cotangents = given(present, None)
    conditions = given(conditional or [False] * len(cotangents), _TRUTH)
    for v, cotangent, exists in zip(graph.outputs, cotangents, conditions, strict=True):
        if cotangent is not None and v in active:
            sums.add(v, cotangent, ALWAYS if exists is None else sums.logic.holds(exists))  # type: ignore[arg-type]
    for node in visited_nodes(graph, active, present):
        interpreter.line = node.line
        accumulates = "accumulates" in node.op.traits
        arriving, condition = sums.arriving(node.outputs, accumulates)
        if all(g is None for g in arriving):
            continue
        needs = tuple(type(x) is int and x in active for x in node.operands)
        if "merges paths" in node.op.traits:
            sums.divide(node, needs, forward.operand(node.operands[0], True))
            continue
        accumulated: tuple[Any, ...] = ()
        if accumulates:
            accumulated = tuple([sums.take(x) if need else None for x, need in zip(node.operands, needs, strict=True)])  # type: ignore[arg-type]
        before = [None if x is None else sums.given(*x) for x in accumulated]
        answer = _pull_back(node, forward, needs, tuple(before), arriving, sums.pull_backs)
        for k, (x, need, d) in enumerate(zip(node.operands, needs, answer, strict=True)):
            if need and d is not None:
                assert type(x) is int
                found = sums.condition_of(d, condition)
                sums.add(x, *sums.going_on(accumulated[k] if accumulated else None, *found))
    gradients = [sums.values[v].id if v in sums.values else None for v in targets]
    kinds = [sums.conditions.get(v, ALWAYS) for v in targets]
    if conditional is not None or any(x != ALWAYS for x in kinds):
        gradients += [None if x == ALWAYS else sums.logic.value(x).id for x in kinds]
    return builder.build(tuple(gradients))


class ConditionalCotangent(NamedTuple):
    """What a vjp rule gives where it depends on values whether there is a cotangent.  exists: a bool that says so."""

    value: Tracer
    exists: Tracer


_TRUTH: Final = Aval((), bool_)
_PHI: Final = REGISTRY["phi"]


class _Cotangents:
    """What has arrived at values so far.  values: the cotangents.  conditions: on which these exist, by the same values."""

    def __init__(self, pull_backs: PullBacks, interpreter: TracingInterpreter) -> None:
        self.pull_backs, self._interpreter = pull_backs, interpreter
        self.values: dict[int, Tracer] = {}
        self.conditions: dict[int, Condition] = {}
        self.logic = Conditions()

    def arriving(self, outputs: Sequence[int], with_conditions: bool) -> tuple[list[Any], Condition]:
        """(the cotangents of the outputs of a node, the condition on which there is one).  with_conditions: whether each has its own
        condition with it, where that is another one."""
        there = [v for v in outputs if v in self.values]
        condition: Condition = reduce(self.logic.either, [self.conditions[v] for v in there], NEVER)
        found: dict[int, Any] = {v: self._only(self.values[v], self.conditions[v], len(there) > 1) for v in there}
        if with_conditions:
            found = {v: d if self.conditions[v] == condition else self.given(d, self.conditions[v]) for v, d in found.items()}
        return [found.get(v) for v in outputs], condition

    def add(self, v: int, d: Tracer, condition: Condition) -> None:
        """Add `d`, which exists on `condition`, to the cotangent of `v`."""
        value, known = self.values.get(v), self.conditions.get(v, condition)
        if value is not None and are_disjoint(known, condition):
            self.values[v] = _PHI.of(self.logic.value(condition), d, value)
        else:
            if known != condition:
                value, d = self._only(value, known), self._only(d, condition)  # type: ignore[arg-type]
            self.values[v] = self.pull_backs.sum(value, d, self._interpreter.line)
        self.conditions[v] = self.logic.either(known, condition)

    def take(self, v: int) -> tuple[Tracer, Condition] | None:
        """The cotangent of `v` so far, which has none from now on; -0.0 where it does not exist."""
        if v not in self.values:
            return None
        value, condition = self.values.pop(v), self.conditions.pop(v)
        return self._only(value, condition), condition

    def given(self, d: Tracer, condition: Condition) -> Tracer | ConditionalCotangent:
        """A cotangent for a rule, with the condition on which it exists."""
        return d if condition == ALWAYS else ConditionalCotangent(d, self.logic.value(condition))

    def condition_of(self, d: Tracer | ConditionalCotangent, condition: Condition) -> tuple[Tracer, Condition]:
        """A cotangent that a rule has given, and the condition on which it exists.  condition: on which the rule was to be asked."""
        if isinstance(d, ConditionalCotangent):
            return d.value, self.logic.with_outcome(condition, d.exists, True)
        return d, condition

    def going_on(self, before: tuple[Tracer, Condition] | None, total: Tracer, condition: Condition) -> tuple[Tracer, Condition]:
        """A cotangent that was `before`, and is `total` on `condition`."""
        if before is None or condition == ALWAYS:
            return total, condition
        value, known = before
        return _PHI.of(self.logic.value(condition), total, value), self.logic.either(known, condition)

    def divide(self, node: Node, needs: Sequence[bool], path: Tracer) -> None:
        """Give the cotangent of a `phi` to the value of the path that was taken.  path: its first operand."""
        v = node.outputs[0]
        for k, taken in ((2, False), (1, True)):
            if needs[k] and (condition := self.logic.with_outcome(self.conditions[v], path, taken)):
                self.add(node.operands[k], self.values[v], condition)  # type: ignore[arg-type]

    def _only(self, d: Tracer, condition: Condition, partly: bool = True) -> Tracer:
        """`d`, or what adds nothing to a sum where it does not exist."""
        if condition == ALWAYS or not partly:
            return d
        return _PHI.of(self.logic.value(condition), d, -0.0)  # type: ignore[no-any-return]


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
    return tuple(
        [
            None if not need or d is None else d if isinstance(d, ConditionalCotangent) else _fitted(node, d, aval)
            for need, d, aval in wanted
        ]
    )


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
