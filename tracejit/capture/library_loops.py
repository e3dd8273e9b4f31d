"""`scan` and `map` of a recorded call as loops of the graph.

Steps run, and are recorded.  Where all steps but the first do the same (loop_steps.py) and change nothing but tensors, their
nodes are taken back, and one `loop` node stands for them.  The first step stays as it is: what is carried into it need not
require grad, say.  Where a step does anything else (an effect, a number that leaves a tensor, a draw, a write, a branch on a
tensor, a hook), all steps stay as they are.

Two steps are enough where the second one leaves all that it can find as it was (`reachable_state`), outside and among what the
call has made, and carries on tensors like those that it was given: then the third step does the same, and by induction all others
do.  So these do not run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from tracejit.capture.loop_emission import emit_loop
from tracejit.capture.loop_steps import (
    LIVE_IN,
    SHARED,
    LoopStep,
    RecordingPoint,
    StepValue,
    ValueKind,
    body_graph,
    describe_step,
    outside_value,
)
from tracejit.capture.snapshots import only_computes, reachable_state
from tracejit.core.interpreter import state
from tracejit.core.op import Effect, Kind
from tracejit.core.symbolic import without_symbols
from tracejit.ir.graph import Graph, all_nodes
from tracejit.ir.loop import FEWEST
from tracejit.ops.movement.copies import cat
from tracejit.ops.movement.views import reshape, select, slice_
from tracejit.ops.public.movement import stack
from tracejit.passes.memory import memory_roots
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.recording.journal import Mark
    from tracejit.capture.tensors import RecordingInterpreter

__all__ = ["StepFunction", "carries_distinct_tensors", "describe_library_step", "library_body", "record_scan"]

StepFunction = Callable[[list[Tensor], list[Tensor]], tuple[list[Tensor], list[Tensor]]]
"""A step of a loop: (carried, slices) -> (carried on, collected)."""
_REFUSED: Final = (Kind.GUARD, Kind.WRITE, Kind.RANDOM, Kind.OPAQUE)


def record_scan(
    interpreter: RecordingInterpreter, step: StepFunction, carried: list[Tensor], sliced: list[Tensor], count: int, reverse: bool
) -> tuple[list[Tensor], list[Tensor]]:
    """(what is carried in the end, what was collected, stacked in the order of the slices)."""
    recorder = interpreter.recorder
    collected: list[list[Tensor]] = []
    entered, start, state_before = carried, RecordingPoint.of(interpreter), None
    described, body = None, None
    repeats = count > FEWEST and not recorder.stopped
    for k in range(without_symbols(count)):
        i = count - 1 - k if reverse else k
        if k == 1 and repeats:
            entered, start, state_before = carried, RecordingPoint.of(interpreter), reachable_state(recorder, [step])
        slices = [select.of(x, i, dim=0) for x in sliced]
        begin, before = RecordingPoint.of(interpreter), carried
        carried, row = step(carried, slices)
        collected.append(row)
        if not (repeats and k):
            continue
        now = describe_library_step(interpreter, begin, [*before, *slices], carried, row, start.values)
        repeats = now is not None and (described is None or now.repeats(described)) and not recorder.stopped
        described = described or now
        if k == 1 and repeats:
            body = library_body(interpreter, now, len(carried))  # type: ignore[arg-type]
            repeats = body is not None and not _has_no_backward(body[0])
            if repeats and carries_distinct_tensors(interpreter, start.values, before, carried):
                repeats, state_after = only_computes(recorder, start.mark), reachable_state(recorder, [step])
                if (
                    repeats
                    and state_before is not None
                    and state_after is not None
                    and state_after.is_unchanged_since(state_before)
                ):
                    break
    if body is None or not (repeats and only_computes(recorder, start.mark)):
        int(count)  # a symbolic one becomes this number: the graph has as many steps
        rows = collected[::-1] if reverse else collected
        return carried, [stack(list(column)) for column in zip(*rows, strict=True)]
    return _emit_scan(interpreter, body, start.mark, entered, sliced, carried, collected[0], count, reverse)


def _emit_scan(
    interpreter: RecordingInterpreter,
    body: tuple[Graph, list[StepValue]],
    start: Mark,
    entered: list[Tensor],
    sliced: list[Tensor],
    carried: list[Tensor],
    first_row: list[Tensor],
    count: int,
    reverse: bool,
) -> tuple[list[Tensor], list[Tensor]]:
    """Replace the nodes since `start`, those of all steps but the first, by a loop.  Returns what `record_scan` does.

    entered: what is carried into the second step.  carried: what the last step that ran has left.  first_row: what the first step
    has collected."""
    graph, places = body
    operands = dict(zip([(LIVE_IN, len(carried) + k) for k in range(len(sliced))], sliced, strict=True))
    shared = [outside_value(interpreter, x[1]) for x in places if x[0] != LIVE_IN]
    interpreter.truncate(start)
    first, stop = (0, count - 1) if reverse else (1, count)
    rest = [slice_.of(operands[x], dim=0, start=first, stop=stop, step=1) for x in places if x in operands]
    results = emit_loop(graph, entered, rest, shared, count - 1, reverse, recomputes=True)
    # What steps carry on as they were given it stays the same object.  Where they hand it from place to place, their number says which.
    ends = [x if id(x) in interpreter.values else y for x, y in zip(carried, results.ends, strict=True)]
    if any(x is y and graph.outputs[k] != graph.inputs[k] for k, (x, y) in enumerate(zip(carried, ends, strict=True))):
        int(count)
    rows = zip(first_row, results.collected, strict=True)
    return ends, [_with_first(one, others, reverse) for one, others in rows]


def _with_first(one: Tensor, others: Tensor, reverse: bool) -> Tensor:
    """What the first step has collected and what the loop has, in the order of the slices."""
    single = reshape.of(one, shape=(1, *one.shape))
    return cat.of(*((others, single) if reverse else (single, others)), dim=0)  # type: ignore[no-any-return]


def describe_library_step(
    interpreter: RecordingInterpreter,
    begin: RecordingPoint,
    given: Sequence[Tensor],
    carried_on: Sequence[Tensor],
    collected: Sequence[Tensor],
    oldest: int,
) -> LoopStep | None:
    """What a step of `scan` or `while_loop` has done since `begin`; None where it does more than compute tensors.  given: what is
    carried into it, then its slices.  oldest: see `describe_step`."""
    live_ins = [interpreter.value_of(x) for x in given]
    if None in live_ins or len(set(live_ins)) < len(live_ins):
        return None
    rows = [[x] for x in collected]
    step = describe_step(interpreter, begin, live_ins, carried_on, rows, interpreter.value_of, oldest=oldest)
    if step is None or step.leaves:
        return None
    ops = [a.node.op for a in step.nodes]
    refused = any(op.kind in _REFUSED or op.effect not in (Effect.PURE, Effect.VIEW) or op.may_exit for op in ops)
    return None if refused else step


def library_body(interpreter: RecordingInterpreter, step: LoopStep, carried: int) -> tuple[Graph, list[StepValue]] | None:
    """The body of the loop of such a step, and the places of its inputs; None where what it carries on is no tensor of the kind
    that it was given, or has memory of something that it was given: a loop would carry on a copy."""
    shared = [(SHARED, v) for v in step.shared_values()]
    inputs: list[StepValue] = [(LIVE_IN, k) for k in range(len(step.live_ins))]
    kinds: dict[StepValue, ValueKind] = {x: kind for x, kind in zip(inputs, step.live_ins, strict=True) if kind is not None}
    kinds.update((x, (interpreter.avals[x[1]], x[1] in interpreter.requires_grad)) for x in shared)
    kinds.update(pair for a in step.nodes for pair in zip(a.outputs, a.kinds, strict=True))
    outputs = [*step.carried_on, *[x for column in step.collected for x in column]]
    graph, places = body_graph(step.nodes, [*inputs, *shared], outputs, kinds, kept=inputs[: max(carried, 1)])
    if not places:  # nothing says of what kind the loop is
        return None
    roots, slices = memory_roots(graph), [v for v, x in zip(graph.inputs, places, strict=True) if x in inputs[carried:]]
    for v, end in zip(graph.inputs, graph.outputs[:carried], strict=False):
        root = roots.get(end, end)  # type: ignore[arg-type]
        if (graph.avals[v], v in graph.requires_grad) != (graph.avals[end], end in graph.requires_grad):  # type: ignore[index]
            return None
        if root in slices or (root in graph.inputs and root != end):
            return None
    return graph, places


def _has_no_backward(graph: Graph) -> bool:
    """Whether a backward pass would compute a loop again that may not end: no interrupt leaves that."""
    return state.grad_enabled and bool(graph.requires_grad) and any("may not end" in node.op.traits for node in all_nodes(graph))


def carries_distinct_tensors(
    interpreter: RecordingInterpreter, first: int, before: Sequence[Tensor], carried: Sequence[Tensor]
) -> bool:
    """Whether what a step carries on are different tensors, each one that it has computed, or the very one that it was given in
    that place: so the next step finds the same object where this one has.  first: the first value id of the steps."""
    if len(set(map(id, carried))) < len(carried):
        return False
    return all(x is y or (interpreter.value_of(x) or 0) >= first for x, y in zip(carried, before, strict=True))
