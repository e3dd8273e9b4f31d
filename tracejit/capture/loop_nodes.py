"""Steps of a Python loop that do the same as one node of the graph, `loop` (ir/loop.py), and one step of the tape.

That is as good as the steps themselves where nobody can ask for what they have made in between.  So carried is what a step reads of the
step before; what steps make besides is nobody's, and a view at a place that moves with the steps is a slice of the loop.  Steps that
write, append to lists, or check what is in tensors are none.

The gradients are to have the bits of those of the steps, and a backward pass is to refuse where theirs would.  So the loop saves what the
operations of the steps save (`Saved`); cotangents of a tensor that is shared go on from what has arrived before (the trait "accumulates");
and steps are left as they are where a pass would meet another part of each of them (`_is_one`), or where cotangents of one tensor arrive in
several ways (`_apart`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tracejit.autograd.tape import edge_of
from tracejit.core.aval import ScalarAval
from tracejit.core.interpreter import state
from tracejit.core.op import Effect, Kind
from tracejit.ir.graph import Body, Graph, Literal, Node
from tracejit.ir.loop import Saved, loop
from tracejit.ops.movement.views import detach, permute, slice_
from tracejit.passes.backward import gradient_operands
from tracejit.passes.dce import dce
from tracejit.passes.loop_gradient import differentiable_loop
from tracejit.passes.memory import memory_roots
from tracejit.passes.partition import saved_values
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.tensors import RecordingInterpreter

__all__ = ["Applied", "Place", "Slices", "Step", "StepsAsLoop", "loop_node"]

Place = tuple[str, int]
"""Where a step finds a tensor: "given", by its place in the snapshot, "made", by its number in the step, or "shared", by its value."""
_REFUSED: Final = (Kind.WRITE, Kind.OPAQUE)


@dataclass(frozen=True, slots=True)
class Applied:
    """A node of a step.  operands: places of tensors and numbers; anything else as it is in the node.  kind: of its outputs.  position:
    which slice it is a view of, if it is one; not compared."""

    node: Node
    operands: tuple[Any, ...]
    with_grad: bool
    kind: tuple[Any, ...]
    position: int | None

    def is_like(self, other: Applied) -> bool:
        ours, theirs = self.node, other.node
        return (
            ours.op is theirs.op
            and self.operands == other.operands
            and ours.attributes == theirs.attributes
            and (self.with_grad, self.kind) == (other.with_grad, other.kind)
        )


@dataclass(frozen=True, slots=True)
class Step:
    """What a step does: its nodes, where it leaves the tensors of the next snapshot, and those that it appends to lists."""

    nodes: list[Applied]
    left: list[Place]
    appended: list[list[Place]]

    def is_like(self, other: Step) -> bool:
        return (
            len(self.nodes) == len(other.nodes)
            and (self.left, self.appended) == (other.left, other.appended)
            and all(a.is_like(b) for a, b in zip(self.nodes, other.nodes, strict=True))
        )


def loop_node(
    body: Graph,
    entered: Sequence[Tensor],
    sliced: Sequence[Tensor],
    shared: Sequence[Any],
    like: Sequence[bool],
    count: int,
    reverse: bool,
) -> list[Tensor]:
    """What is carried in the end by `count` steps that do what `body` says.  like: whether each of that requires grad.

    The loop saves what the operations of the steps would: where someone changes that, a backward pass says so, and not else."""
    carried, last = len(entered), len(entered) + len(sliced)
    tracked = state.grad_enabled and any(isinstance(x, Tensor) and x.requires_grad for x in (*entered, *sliced, *shared))
    if tracked:
        roots, marked = memory_roots(body), body.requires_grad
        differentiable = [node for node in body.nodes if gradient_operands(node, marked) and not marked.isdisjoint(node.outputs)]
        values = [v for node in differentiable for v in saved_values(body, node, marked)]
        wanted = dict.fromkeys([roots.get(v, v) for v in values])
        kept = [k for k in range(carried) if body.inputs[k] in wanted or body.outputs[k] in wanted]
        order = [*kept, *[k for k in range(carried) if k not in kept]]
        inputs, outputs = [body.inputs[k] for k in order], [body.outputs[k] for k in order]
        residuals = [v for v in wanted if v not in body.inputs and v not in outputs]
        saved = Saved(
            operands=tuple([k for k in range(carried, len(body.inputs)) if body.inputs[k] in wanted]),
            after=tuple([k for k, v in enumerate(outputs) if v in wanted and v not in outputs[:k] and v not in inputs]),
            results=carried,
            residuals=len(residuals),
        )
        op = differentiable_loop(len(kept), saved)
        body = replace(body, inputs=(*inputs, *body.inputs[carried:]), outputs=(*outputs, *residuals))
        entered = [entered[k] for k in order]
    else:
        op, order = loop(0), [*range(carried)]
        body = replace(body, requires_grad=frozenset())
    given = (*entered, *sliced, *shared)
    found = op.of(*given, body=Body(body), carried=carried, sliced=last - carried, count=count, reverse=reverse)
    ends = found[len(found) - len(body.outputs) :][:carried]
    found = [x for _, x in sorted(zip(order, ends, strict=True), key=itemgetter(0))]
    return [y if y.requires_grad == marked else detach(y) for y, marked in zip(found, like, strict=True)]


class Slices(NamedTuple):
    """One tensor for each step: slices of `base` along `dim`, the first one at `at`, the next one `distance` further.  since: when they
    were made, by the numbers of the tape, where that was before the steps."""

    base: Tensor
    dim: int
    at: int
    distance: int
    since: float | None = None

    def stacked(self, count: int) -> Tensor:
        """Those of so many steps along the first dimension, as they lie there: a view."""
        last = self.at + self.distance * (count - 1)
        start, stop = (self.at, last + 1) if self.distance > 0 else (last, self.at + 1)
        rows = slice_.of(self.base, dim=self.dim, start=start, stop=stop, step=abs(self.distance))
        places = [rows._node]
        if self.dim:
            rows = permute.of(rows, dims=(self.dim, *[d for d in range(rows.ndim) if d != self.dim]))
            places.append(rows._node)
        if self.since is not None and rows.requires_grad:  # cotangents of `base` are added up in the order of these numbers
            for k, node in enumerate(places, 1):
                node.sequence = self.since + k / 4
        return rows  # type: ignore[no-any-return]


class StepsAsLoop:
    """A step of a Python loop as the body of a loop.

    carried: the places, among the tensors that a step begins with, of what it reads of the step before."""

    def __init__(self, interpreter: RecordingInterpreter, step: Step, moves: Sequence[int], elements: int) -> None:
        """moves: how far the position of each node moves from step to step.  elements: how many of the tensors that a step begins with are
        elements of what Python goes through."""
        self._interpreter = interpreter
        self._step = step
        self._elements = elements
        self._moving = {i: distance for i, distance in enumerate(moves) if distance}  # nodes that are slices of the loop
        self._numbers = [*accumulate((len(a.kind) for a in step.nodes), initial=0)][
            :-1
        ]  # of the first value that each node makes
        computing = [a for i, a in enumerate(step.nodes) if i not in self._moving]
        self._read = dict.fromkeys([x for a in computing for x in a.operands if type(x) is tuple])
        self.carried = self._live()

    def _live(self) -> list[int]:
        left, first = self._step.left, self._elements
        found = [k for k, place in enumerate(left, first) if place != ("given", k) and ("given", k) in self._read]
        for k in found:
            kind, j = left[k - first]
            if kind == "given" and j not in found:
                found.append(j)
        return found

    @property
    def is_possible(self) -> bool:
        """Whether a loop can do what the step does, and nothing that it makes besides what it carries on is anybody's."""
        step, kept = self._step, {("given", k) for k in self.carried}
        if any(step.appended) or not kept or min(self.carried) < self._elements:
            return False
        for i, a in enumerate(step.nodes):
            op = a.node.op
            if op.effect not in (Effect.PURE, Effect.VIEW) or op.kind in _REFUSED or op.may_exit:
                return False
            if i in self._moving and not self._stays(a):
                return False
            if not state.grad_enabled and any(requires for _, requires in a.kind):
                return False
        return True

    def _stays(self, a: Applied) -> bool:
        """Whether a view at a place that moves is always one of the same tensor, of which places count from the front."""
        place = kind, k = a.operands[0]
        if kind == "made" or (kind == "given" and (k < self._elements or self._step.left[k - self._elements] != place)):
            return False
        return a.position is not None and a.position >= 0

    def run(self, begins: Sequence[Tensor], elements: Sequence[Slices], count: int) -> dict[int, Tensor] | None:
        """What is at the places of `carried` after `count` steps, of which the first begins with `begins`; None where a node could not
        stand for them."""
        nodes = self._step.nodes
        sliced: dict[Place, Slices] = {("given", k): x for k, x in enumerate(elements)}
        kinds: dict[Place, tuple[Any, bool]] = {}  # (aval, whether it requires grad) of what steps make
        for i, (a, number) in enumerate(zip(nodes, self._numbers, strict=True)):
            kinds.update((("made", number + k), kind) for k, kind in enumerate(a.kind))
            if i in self._moving:
                assert a.position is not None
                distance = self._moving[i]
                base = self._outside(a.operands[0], begins)
                sliced["made", number] = Slices(base, a.node.attrs["dim"], a.position + distance, distance)
        carried: list[Place] = [("given", k) for k in self.carried]
        shared = [x for x in self._read if x not in kinds and x not in sliced and x not in carried]
        others = {x: self._outside(x, begins) for x in shared}
        kinds.update((("given", k), self._kind(x)) for k, x in enumerate(begins))
        kinds.update((x, self._kind(y)) for x, y in others.items())
        graph, places = self._body(carried, [*sliced], shared, kinds)
        rows = {x: sliced[x] for x in places if x in sliced}
        given = [others[x] for x in places if x in others]
        reverse = any(x.distance < 0 for x in rows.values())
        entered = [begins[k] for k in self.carried]
        if reverse and any(x.distance > 0 for x in rows.values()):
            return None
        if not (_are_new(graph, entered) and _apart(list(rows.values()), given) and _is_one(graph, len(carried))):
            return None
        # Of slices of one tensor, a backward pass comes to that made last first: it has to be the one which later steps reach back to.
        order = sorted(rows, key=lambda place: -rows[place].at if rows[place].distance > 0 else rows[place].at)
        stacked = {place: rows[place].stacked(count) for place in order}
        found = loop_node(
            graph, entered, [stacked[place] for place in rows], given, [x.requires_grad for x in entered], count, reverse
        )
        return dict(zip(self.carried, found, strict=True))

    def _kind(self, x: Any) -> tuple[Any, bool]:
        if not isinstance(x, Tensor):
            return ScalarAval(type(x._value)), False
        value = self._interpreter.values[id(x)]
        return self._interpreter.avals[value], value in self._interpreter.requires_grad

    def _outside(self, place: Place, begins: Sequence[Tensor]) -> Any:
        """What is the same in all steps: a tensor, or a number."""
        kind, k = place
        if kind == "given":
            return begins[k]
        numbers = self._interpreter.numbers
        return numbers[k] if k in numbers else self._interpreter.defined[k]

    def _body(
        self, carried: Sequence[Place], sliced: Sequence[Place], shared: Sequence[Place], kinds: Mapping[Place, tuple[Any, bool]]
    ) -> tuple[Graph, list[Place]]:
        """(what the step does to what is carried, where it has its inputs from): of slices and of what is shared, what it reads."""
        outputs = [
            ("made", number + k) for a, number in zip(self._step.nodes, self._numbers, strict=True) for k in range(len(a.kind))
        ]
        inputs = [*carried, *sliced, *shared]
        ids = {place: v for v, place in enumerate(dict.fromkeys((*inputs, *outputs)))}
        nodes = []
        for i, (a, number) in enumerate(zip(self._step.nodes, self._numbers, strict=True)):
            if i not in self._moving:
                operands = tuple([ids[x] if type(x) is tuple else x for x in a.operands])
                if a.position is not None:
                    operands = (operands[0], Literal(a.position))
                made = tuple([ids["made", number + k] for k in range(len(a.kind))])
                nodes.append(Node(a.node.op, operands, a.node.attributes, made, a.node.line))
        ends = tuple([ids[self._step.left[k - self._elements]] for k in self.carried])
        marked = frozenset([v for place, v in ids.items() if kinds[place][1]])
        avals = {v: kinds[place][0] for place, v in ids.items()}
        graph = dce(Graph(tuple([ids[x] for x in inputs]), avals, tuple(nodes), ends, requires_grad=marked))
        read = {*ends, *[ids[x] for x in carried], *[x for node in graph.nodes for x in node.operands]}
        places = [x for x in inputs if ids[x] in read]
        defined = {*[ids[x] for x in places], *[v for node in graph.nodes for v in node.outputs]}
        return (
            replace(
                graph,
                inputs=tuple([ids[x] for x in places]),
                avals={v: aval for v, aval in avals.items() if v in defined},
                requires_grad=marked & defined,
            ),
            places,
        )


def _are_new(body: Graph, entered: Sequence[Tensor]) -> bool:
    """Whether what steps carry on are different tensors, row by row in memory that nothing else has, so that copies are as good."""
    carried, roots = body.inputs[: len(entered)], memory_roots(body)
    memory = [roots.get(v, v) for v in body.outputs]  # type: ignore[arg-type]
    if len(set(memory)) < len(memory) or not all(x._array.flags.c_contiguous for x in entered):
        return False
    return all(v in carried or root not in body.inputs for v, root in zip(body.outputs, memory, strict=True))


def _apart(rows: Sequence[Slices], others: Sequence[Any]) -> bool:
    """Whether cotangents of what is sliced and shared are added up at different places, those of slices that move alike apart: then those
    that a loop adds as a whole arrive in the order in which its steps would have added them."""
    moving = {(id(x.base), x.dim, x.distance): x.base for x in rows}
    places = [edge_of(x) for x in (*moving.values(), *others) if isinstance(x, Tensor) and x.requires_grad]
    return len({(id(target), k) for target, k in places}) == len(places)


def _is_one(body: Graph, carried: int) -> bool:
    """Whether a backward pass through steps is one through the loop: from whatever is carried on, it comes to the same carried values in
    all steps but the last two; and of any two passes, from one or the other of these, the second one meets something that the first one
    has freed, as it does where they go through the loop; or nothing is saved."""
    marked, inputs = body.requires_grad, body.inputs
    nodes = [node for node in body.nodes if gradient_operands(node, marked) and not marked.isdisjoint(node.outputs)]
    leading = {v: 1 << k for k, v in enumerate(inputs[:carried])}  # the carried values that gradients come to, as bits
    for node in nodes:
        found = 0
        for x in gradient_operands(node, marked):
            found |= leading.get(x, 0)
        leading.update((v, found) for v in node.outputs if v in marked)
    ends = [leading.get(v, 0) if v in marked else 0 for v in body.outputs]  # type: ignore[arg-type]

    def before(places: int) -> int:
        found = 0
        for k, there in enumerate(ends):
            found |= there if places >> k & 1 else 0
        return found

    savers = {k for k, node in enumerate(nodes) if saved_values(body, node, marked)}
    passes: list[set[int]] = []  # which of these they meet
    for first in [k for k, v in enumerate(inputs[:carried]) if v in marked]:
        twice = before(before(1 << first))
        if before(twice) != twice:
            return False
        there = {v for k, v in enumerate(body.outputs) if (twice or 1 << first) >> k & 1}
        met = set()
        for k in range(len(nodes) - 1, -1, -1):
            if not there.isdisjoint(nodes[k].outputs):
                met.add(k)
                there.update(gradient_operands(nodes[k], marked))
        passes.append(met & savers)
    return not savers or not any(a.isdisjoint(b) for k, a in enumerate(passes) for b in passes[: k + 1])
