"""One step of a loop at recording: what it did, whether another step did the same, and a graph that does it.

`for` statements, comprehensions, `scan`, `map` and `while_loop` record loops in the same way:

1. Before a step, `RecordingPoint` notes how much the recording has.
2. The step runs, and is recorded, as any other code.
3. `describe_step` outlines it: its live-ins, its nodes, what it carries on and what it collects, each by its place (`StepValue`).
4. `LoopStep.is_like` compares two descriptions.  What else a step may change is the caller's to compare (snapshots.py, the
   journal).
5. `body_graph` builds the body of the loop of a description, and `loop_emission.py` appends the loop."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tracejit.core.op import Effect, Kind
from tracejit.core.symbolic import python_type
from tracejit.ir.graph import Graph, Literal, Node
from tracejit.ops.movement.views import detach, select, slice_
from tracejit.passes.dce import dce
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.recording.journal import Mark
    from tracejit.capture.tensors import RecordingInterpreter

__all__ = [
    "LIVE_IN",
    "LOCAL",
    "SHARED",
    "CounterComparison",
    "LoopStep",
    "RecordingPoint",
    "StepNode",
    "StepValue",
    "ValueKind",
    "body_graph",
    "describe_step",
    "outside_value",
]  # fmt: skip

StepValue = tuple[str, int]
"""A value by its place in a step: (LIVE_IN, position among the tensors that the step is given), (LOCAL, number among the values
that the step computes), or (SHARED, value id) of one that all steps read.  The same value of two steps that do the same has the
same place in both."""
LIVE_IN: Final = "live-in"
LOCAL: Final = "local"
SHARED: Final = "shared"

ValueKind = tuple[Any, bool]
"""What is known of a value: (aval, whether it requires grad)."""


@dataclass(frozen=True, slots=True)
class RecordingPoint:
    """How much a recording has at a point.  mark: of the journal; values: ids of values; gradients: backward passes, and switches
    of `requires_grad`; leaves: tensors that have become leaves."""

    mark: Mark
    values: int
    gradients: int
    leaves: int

    @staticmethod
    def of(interpreter: RecordingInterpreter) -> RecordingPoint:
        """The present point."""
        return RecordingPoint(interpreter.journal.mark(), len(interpreter.avals), interpreter.gradients, len(interpreter.leaves))


@dataclass(frozen=True, slots=True)
class StepNode:
    """A node of a step.

    operands: places of tensors and of numbers of the recording; anything else as in the node.  outputs: their places; kinds: what
    is known of them.  with_grad: the grad mode in which it was evaluated; None of a node that stands for a change of a tensor
    (`requires_grad_`, `.data`). position: the slice that a view reads (`xs[t]`, `xs[:, t : t + 3]`), which is no part of
    operands, attributes and comparisons; None of other nodes.  width: the length of `t : t + 3`; None of `xs[t]`, which drops the
    dimension.  is_written: whether it reads or makes memory that steps of a branching loop write to (step_paths.py)."""

    node: Node
    operands: tuple[Any, ...]
    attributes: tuple[tuple[str, Any], ...]
    with_grad: bool | None
    outputs: tuple[StepValue, ...]
    kinds: tuple[ValueKind, ...]
    position: int | None = None
    width: int | None = None
    is_written: bool = False

    @property
    def is_window(self) -> bool:
        """Whether it is a slice of several elements, some of which may be in the next slice, too."""
        return self.width is not None and self.width > 1

    def is_like(self, other: StepNode) -> bool:
        """Whether both do the same, but for the positions of slices."""
        return (
            self.node.op is other.node.op
            and self.operands == other.operands
            and self.attributes == other.attributes
            and (self.with_grad, self.kinds, self.width) == (other.with_grad, other.kinds, other.width)
        )

    def in_graph(self, ids: Mapping[StepValue, int]) -> Node:
        """The node of a graph in which values have these ids."""
        operands = [ids[x] if type(x) is tuple else x for x in self.operands]
        if self.position is not None and self.node.op is select:
            operands[1] = Literal(self.position)
        outputs = tuple([ids[x] for x in self.outputs])
        return Node(self.node.op, tuple(operands), self.node.attributes, outputs, self.node.line)


class CounterComparison(NamedTuple):
    """A comparison of a loop counter with a number, and its result."""

    symbol: str
    counter: Any
    other: Any
    answer: bool

    def is_like(self, other: CounterComparison) -> bool:
        return (self.symbol, self.answer) == (other.symbol, other.answer) and bool(self.other == other.other)


@dataclass(frozen=True, slots=True)
class LoopStep:
    """What a step does.

    live_ins: what is known of the tensors that it is given.  carried_on: the tensors that the next step is given in their places,
    for those live-ins that are no slices.  collected: the tensors that it appends to each list.  comparisons: of counters.
    takes_gradients: it has taken gradients of what it computed, and left nothing on the tape: it can be done without a tape.
    leaves: which of `carried_on` are leaves that require grad, then."""

    live_ins: Sequence[ValueKind | None]
    nodes: list[StepNode]
    carried_on: list[StepValue]
    collected: list[list[StepValue]]
    comparisons: Sequence[CounterComparison] = ()
    takes_gradients: bool = False
    leaves: tuple[int, ...] = ()

    def is_like(self, other: LoopStep) -> bool:
        """Whether both steps do the same, but for the positions of slices."""
        return (
            (len(self.nodes), len(self.comparisons)) == (len(other.nodes), len(other.comparisons))
            and self.live_ins == other.live_ins
            and (self.carried_on, self.collected, self.leaves) == (other.carried_on, other.collected, other.leaves)
            and self.takes_gradients == other.takes_gradients
            and all(a.is_like(b) for a, b in zip(self.nodes, other.nodes, strict=True))
            and all(a.is_like(b) for a, b in zip(self.comparisons, other.comparisons, strict=True))
        )

    def repeats(self, other: LoopStep) -> bool:
        """Whether both steps do the same, with slices at the same positions."""
        return self.is_like(other) and [a.position for a in self.nodes] == [a.position for a in other.nodes]

    def difference_from(self, before: LoopStep) -> str:
        """How it differs from the step before it, as a text for users; empty where both do the same."""
        for a, b in zip(before.nodes, self.nodes, strict=False):
            if not a.is_like(b):
                return f"{b.node.op.name} at {b.node.line} is not what the step before did there"
        fewer, more = sorted((before.nodes, self.nodes), key=len)
        if len(fewer) < len(more):
            only = more[len(fewer)].node
            return f"{only.op.name} at {only.line} is in some steps alone"
        if [(x.symbol, x.answer) for x in before.comparisons] != [(x.symbol, x.answer) for x in self.comparisons]:
            return "a comparison with the number of the step comes out otherwise"
        return "" if before.is_like(self) else "steps leave other things in their variables or lists"

    def shared_values(self) -> list[int]:
        """The ids of the values that it shares with other steps, in the order in which it reads them."""
        read = [x for a in self.nodes for x in a.operands if type(x) is tuple]
        read += [*self.carried_on, *[x for items in self.collected for x in items]]
        return [*dict.fromkeys([v for kind, v in read if kind == SHARED])]


def describe_step(
    interpreter: RecordingInterpreter,
    begin: RecordingPoint,
    live_ins: Sequence[int | None],
    carried_on: Sequence[Tensor],
    collected: Sequence[Sequence[Tensor]],
    value_of: Callable[[Tensor], int | None],
    comparisons: Sequence[CounterComparison] = (),
    oldest: int = 0,
    recorded: Sequence[Node] | None = None,
) -> LoopStep | None:
    """What the run has done since `begin`, as a step of a loop; None where it reads something of an earlier step, carries on or
    collects something that has no place, or leaves something on the tape that gradients in the step were taken of.

    live_ins: value ids of the tensors that the step is given; None of one that is no tensor of the recording.  carried_on,
    collected: see LoopStep.  value_of: gives the value id of one of these.  oldest: values with smaller ids are shared by all
    steps, besides inputs and numbers of the recording.  recorded: the nodes of the step, if not those since `begin`."""
    avals, marked = interpreter.avals, interpreter.requires_grad
    places: dict[int, StepValue] = {v: (LIVE_IN, k) for k, v in enumerate(live_ins) if v is not None}
    leaves = interpreter.leaves[begin.leaves :]

    def place(v: int | None) -> StepValue | None:
        if v is None or v in places:
            return None if v is None else places[v]
        return (SHARED, v) if v < oldest or v in interpreter.inputs or v in interpreter.numbers else None

    nodes: list[StepNode] = []
    locals_count = 0
    for node in interpreter.nodes[begin.mark.nodes :] if recorded is None else recorded:
        described = _step_node(interpreter, node, place, leaves, locals_count)
        if described is None:
            return None
        nodes.append(described)
        places.update(zip(node.outputs, described.outputs, strict=True))
        locals_count += len(node.outputs)
    ends = [place(value_of(x)) for x in carried_on]
    items = [[place(value_of(x)) for x in column] for column in collected]
    if None in ends or any(None in column for column in items):
        return None
    kinds = [None if v is None else (avals[v], v in marked) for v in live_ins]
    step = LoopStep(kinds, nodes, ends, items, comparisons)  # type: ignore[arg-type]
    if (begin.gradients, begin.leaves) == (interpreter.gradients, len(interpreter.leaves)):
        return step
    return _without_tape(step, carried_on, collected, [place(v) for v in leaves])


def _step_node(interpreter: RecordingInterpreter, node: Node, place: Any, leaves: Sequence[int], first: int) -> StepNode | None:
    """A node of a step; None where it reads something of an earlier step, or means something else in each step.  leaves: value
    ids of tensors that have become leaves in the step, each followed by a `detach` that defines the leaf.  first: the number of
    its first output."""
    op = node.op
    with_grad = interpreter.evaluated.get(node.outputs[0]) if node.outputs else op.kind is Kind.GUARD
    if with_grad is None and op is detach and node.operands[0] in leaves:
        with_grad = False
    if "dynamic shape" in op.traits or (op.effect is Effect.RANDOM and op.kind is not Kind.RANDOM):
        return None
    operands: list[Any] = [place(x) if type(x) is int else x for x in node.operands]
    if any(x is None and type(y) is int for x, y in zip(operands, node.operands, strict=True)):
        return None
    attributes, position, width = node.attributes, None, None
    if op is select and isinstance(operands[1], Literal) and python_type(operands[1].value) is int:
        position, operands[1] = operands[1].value, None
    elif op is slice_ and (width := _width(bounds := node.attrs)) is not None:
        attributes, position = (("dim", bounds["dim"]),), bounds["start"]
    outputs = tuple([(LOCAL, first + k) for k in range(len(node.outputs))])
    kinds = tuple([(interpreter.avals[v], v in interpreter.requires_grad) for v in node.outputs])
    return StepNode(node, tuple(operands), attributes, with_grad, outputs, kinds, position, width)  # type: ignore[arg-type]


def _width(bounds: Mapping[str, Any]) -> int | None:
    """The length of a slice such as `x[:, t : t + 3]`; None where it differs from call to call, is 0, or has a step."""
    if python_type(bounds["start"]) is not int or bounds["step"] != 1:
        return None
    width = bounds["stop"] - bounds["start"]
    return width if type(width) is int and width > 0 else None


def _without_tape(
    step: LoopStep, carried_on: Sequence[Tensor], collected: Sequence[Sequence[Tensor]], begun: Sequence[StepValue | None]
) -> LoopStep | None:
    """A step that has taken gradients, as one that computes without a tape; None where it leaves something on the tape besides
    leaves, or has made leaves of what it has not computed.  begun: the places of what has become a leaf."""
    leaves = tuple([k for k, x in enumerate(carried_on) if x.requires_grad])
    if any(x.requires_grad for column in collected for x in column) or any(x is None or x[0] != LOCAL for x in begun):
        return None
    if not all(
        carried_on[k].is_leaf and carried_on[k]._base is None and step.carried_on[k][0] in (LOCAL, LIVE_IN) for k in leaves
    ):
        return None
    nodes = [replace(a, with_grad=False, kinds=tuple([(aval, False) for aval, _ in a.kinds])) for a in step.nodes]
    return replace(step, nodes=nodes, takes_gradients=True, leaves=leaves)


def outside_value(interpreter: RecordingInterpreter, value: int) -> Any:
    """The tensor or number of the recording that a value id stands for."""
    numbers = interpreter.numbers
    return numbers[value] if value in numbers else interpreter.defined[value]


def body_graph(
    nodes: Sequence[StepNode],
    inputs: Sequence[StepValue],
    outputs: Sequence[StepValue],
    kinds: Mapping[StepValue, ValueKind],
    kept: Collection[StepValue],
) -> tuple[Graph, list[StepValue]]:
    """(the graph of nodes of a step, the places of its inputs): those of `inputs` that it reads, and those of `kept`.  kinds: of
    its inputs, and of what its nodes compute."""
    ids = {place: v for v, place in enumerate(dict.fromkeys((*inputs, *[x for a in nodes for x in a.outputs])))}
    marked = frozenset([v for place, v in ids.items() if kinds[place][1]])
    avals = {v: kinds[place][0] for place, v in ids.items()}
    body = tuple([a.in_graph(ids) for a in nodes])
    graph = dce(Graph(tuple([ids[x] for x in inputs]), avals, body, tuple([ids[x] for x in outputs]), requires_grad=marked))
    read = {*graph.outputs, *[x for node in graph.nodes for x in node.operands]}
    places = [x for x in inputs if ids[x] in read or x in kept]
    defined = {*[ids[x] for x in places], *[v for node in graph.nodes for v in node.outputs]}
    graph = replace(
        graph,
        inputs=tuple([ids[x] for x in places]),
        avals={v: aval for v, aval in avals.items() if v in defined},
        requires_grad=marked & defined,
    )
    return graph, places
