"""Loops that the library runs for the program (`scan`, `map`) as loops of the graph.

Steps run, and are recorded, as any other code of the call.  Where all steps but the first have appended the same nodes, of what they
were given, and nothing else of the recording has changed meanwhile, these nodes are taken back, and one node stands for them: a loop whose
body is one step.  (The first one may differ: what is carried into it need not require grad.)  Its results are computed anew, so that
the tape has it, and with it the backward pass, as one step.  Otherwise the steps stay as they are.

So a loop means what its steps did: whatever a step does besides (an effect, a number that leaves, a draw, a write, a branch on a tensor, a
hook, a Python variable that makes the next step another one) shows, and the loop stays written out.  A gradient that a step takes is
operations like others where nothing of that stays on the tape (`takes_own_gradients`).

Two steps suffice where the second one is all that the others can be: it has changed nothing that code can find, outside or among
what the call has made (`reachable_state`), and was given tensors like those that it gives, so the third one does the same, and by
induction all others do.  Then these do not run at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tracejit.capture.snapshots import only_computes, reachable_state
from tracejit.core.interpreter import state
from tracejit.core.op import Effect, Kind
from tracejit.core.symbolic import without_symbols
from tracejit.ir.graph import Body, Graph, Node, all_nodes
from tracejit.ir.loop import FEWEST, loop
from tracejit.ops.movement.copies import cat
from tracejit.ops.movement.views import detach, reshape, select, slice_
from tracejit.ops.public.movement import stack
from tracejit.passes.loop_gradient import differentiable_loop
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.recording.journal import Mark
    from tracejit.capture.tensors import RecordingInterpreter

__all__ = ["StepFunction", "record_scan", "shared_operands", "signature_of", "takes_own_gradients"]

StepFunction = Callable[[list[Tensor], list[Tensor]], tuple[list[Tensor], list[Tensor]]]
"""What a loop does: (carried, slices) -> (carried on, collected)."""
_REFUSED: Final = (Kind.GUARD, Kind.WRITE, Kind.RANDOM, Kind.OPAQUE)


def record_scan(
    interpreter: RecordingInterpreter, step: StepFunction, carried: list[Tensor], sliced: list[Tensor], count: int, reverse: bool
) -> tuple[list[Tensor], list[Tensor]]:
    """What is carried in the end, and what was collected, stacked in the order of the slices."""
    recorder, nodes = interpreter.recorder, interpreter.nodes
    collected: list[list[Tensor]] = []
    entered, first = carried, 0
    entry = recorder.journal.mark()
    gradients = leaves = 0
    known: Any = None
    signature: Any = None
    same = count > FEWEST and not recorder.stopped

    def leave_nothing_else() -> bool:
        """Whether steps have left all but nodes as it was."""
        if not only_computes(recorder, entry):
            return False
        made = interpreter.leaves[leaves:]
        has_taken = bool(made) or interpreter.gradients != gradients
        return not has_taken or takes_own_gradients([*carried, *collected[-1]], made, first)

    for k in range(without_symbols(count)):
        i = count - 1 - k if reverse else k
        if len(collected) == 1 and same:
            entered, entry, first = carried, recorder.journal.mark(), len(interpreter.avals)
            known = reachable_state(recorder, [step])
            gradients, leaves = interpreter.gradients, len(interpreter.leaves)
        slices = [select.of(x, i, dim=0) for x in sliced]
        at = len(nodes)
        before, (carried, found) = carried, step(carried, slices)
        collected.append(found)
        if same and len(collected) > 1:
            made = signature_of(interpreter, nodes[at:], before, slices, carried, found, first)
            same = made is not None and (signature is None or made[0] == signature[0]) and not recorder.stopped
            same = same and not _has_no_backward(made[1][0])  # type: ignore[index]
            signature = signature or made
            if len(collected) == 2 and same and _carries_distinct_tensors(interpreter, first, before, carried):
                same = leave_nothing_else()
                now = reachable_state(recorder, [step])
                if same and known is not None and now is not None and now.is_unchanged_since(known):
                    break
    rows = collected[::-1] if reverse else collected
    if not (same and leave_nothing_else()):
        int(count)  # which steps there are is what a symbolic one is asked for
        return carried, [stack(list(column)) for column in zip(*rows, strict=True)]
    leaving = [*carried, *collected[-1]]
    return _emit_loop(interpreter, signature[1], entered, sliced, collected[0], leaving, entry, count, reverse)


def signature_of(
    interpreter: RecordingInterpreter,
    nodes: Sequence[Node],
    carried: Sequence[Tensor],
    slices: Sequence[Tensor],
    carried_on: Sequence[Tensor],
    collected: Sequence[Tensor],
    first: int,
) -> tuple[Any, Any] | None:
    """(what is the same in two steps that do the same, (the body, the values that it shares)); None for a step that is no body.  first: the
    first value that is newer than the loop's first step."""
    avals, marked = interpreter.avals, interpreter.requires_grad
    given = [interpreter.value_of(x) for x in (*carried, *slices)]
    results = [interpreter.value_of(x) for x in (*carried_on, *collected)]
    if None in given or None in results or len(set(given)) < len(given):
        return None
    names: dict[Any, Any] = {v: ("given", k) for k, v in enumerate(given)}
    shared: list[int] = []
    text: list[Any] = [tuple([(avals[v], v in marked) for v in given])]  # type: ignore[index]
    inside = 0
    roots: dict[Any, Any] = {}  # of what the step has made: whose memory it has

    def named(v: int) -> Any:
        if v not in names:
            if v in interpreter.numbers or (v in interpreter.defined and (v < first or v in interpreter.inputs)):
                shared.append(v)
            names[v] = ("shared", v)
        return names[v]

    for node in nodes:
        op = node.op
        if op.kind in _REFUSED or op.effect not in (Effect.PURE, Effect.VIEW) or op.may_exit:
            return None
        operands = tuple([named(x) if type(x) is int else x for x in node.operands])
        for v in node.outputs:
            names[v] = ("made", inside)
            inside += 1
            base = node.operands[0] if op.kind is Kind.VIEW else v
            roots[v] = roots.get(base, base)
        text.append((op, operands, node.attributes, tuple([(avals[v], v in marked) for v in node.outputs])))
    text.append(tuple([named(v) for v in results]))  # type: ignore[arg-type]
    if {v for v, name in names.items() if name[0] == "shared"} != set(shared):
        return None  # something of an earlier step
    for result in results[: len(carried)]:
        kind, k = names[result]
        if (kind == "made" and names.get(roots[result], ("shared", 0))[0] != "made") or (kind == "given" and k >= len(carried)):
            return None  # it has memory of something that the step was given, which a loop would copy
    if [avals[v] for v in results[: len(carried)]] != [avals[v] for v in given[: len(carried)]]:  # type: ignore[index]
        return None
    if [v in marked for v in results[: len(carried)]] != [v in marked for v in given[: len(carried)]]:
        return None
    return tuple(text), (_body(interpreter, [*given, *shared], nodes, results), shared)


def takes_own_gradients(results: Sequence[Tensor], leaves: Sequence[int], first: int) -> bool:
    """Whether steps that take gradients leave nothing of that on the tape: they give nothing that requires grad, and make leaves of
    nothing but what they have made, and give nothing else a gradient.  leaves: the values of these; first: see `signature_of`."""
    return not any(x.requires_grad for x in results) and all(v >= first for v in leaves)


def _has_no_backward(graph: Graph) -> bool:
    """Whether a backward pass would compute a loop again that may not end: nothing leaves that one for an interrupt."""
    return state.grad_enabled and bool(graph.requires_grad) and any("may not end" in node.op.traits for node in all_nodes(graph))


def _body(interpreter: RecordingInterpreter, inputs: Sequence[Any], nodes: Sequence[Node], results: Sequence[Any]) -> Graph:
    """The nodes as a graph of their own, with numbers of their own: equal for steps that do the same."""
    number = {v: k for k, v in enumerate((*inputs, *[v for node in nodes for v in node.outputs]))}
    renumbered = [
        Node(
            node.op,
            tuple([number[x] if type(x) is int else x for x in node.operands]),
            node.attributes,
            tuple([number[v] for v in node.outputs]),
            node.line,
        )
        for node in nodes
    ]
    return Graph(
        tuple(range(len(inputs))),
        {k: interpreter.avals[v] for v, k in number.items()},
        tuple(renumbered),
        tuple([number[v] for v in results]),
        requires_grad=frozenset([k for v, k in number.items() if v in interpreter.requires_grad]),
    )


def _emit_loop(
    interpreter: RecordingInterpreter,
    made: tuple[Graph, list[int]],
    entered: list[Tensor],
    sliced: list[Tensor],
    collected: list[Tensor],
    leaving: list[Tensor],
    entry: Mark,
    count: int,
    reverse: bool,
) -> tuple[list[Tensor], list[Tensor]]:
    """One node in the place of those since `entry`.  entered: what is carried into it; collected: by the first step, which stays as it
    is; leaving: what the last step has given."""
    graph, shared = made
    given = shared_operands(interpreter, shared)
    interpreter.truncate(entry)
    start, stop = (0, count - 1) if reverse else (1, count)
    rest = [slice_.of(x, dim=0, start=start, stop=stop, step=1) for x in sliced]
    operands = (*entered, *rest, *given)
    tracked = state.grad_enabled and any(isinstance(x, Tensor) and x.requires_grad for x in operands)
    tracked = tracked and any(x.requires_grad for x in leaving)
    op = differentiable_loop(len(entered)) if tracked else loop(0)
    body = Body(graph if tracked else replace(graph, requires_grad=frozenset()))
    found = op.of(*operands, body=body, carried=len(entered), sliced=len(sliced), count=count - 1, reverse=reverse)
    found = found[len(entered) :] if tracked else found
    found = [y if y.requires_grad == x.requires_grad else detach(y) for x, y in zip(leaving, found, strict=True)]
    rows = []
    for one, others in zip(collected, found[len(entered) :], strict=True):
        single = reshape.of(one, shape=(1, *one.shape))
        rows.append(cat.of(*((others, single) if reverse else (single, others)), dim=0))
    # What has been carried on as it was is the object that it was: where steps hand it from place to place, their number tells which.
    carried = [x if id(x) in interpreter.values else y for x, y in zip(leaving, found[: len(entered)], strict=False)]
    if any(x is y and graph.outputs[k] != graph.inputs[k] for k, (x, y) in enumerate(zip(leaving, carried, strict=False))):
        int(count)
    return carried, rows


def shared_operands(interpreter: RecordingInterpreter, shared: Sequence[int]) -> list[Any]:
    """The tensors and numbers that values stand for which all steps read."""
    return [interpreter.numbers[v] if v in interpreter.numbers else interpreter.defined[v] for v in shared]


def _carries_distinct_tensors(
    interpreter: RecordingInterpreter, first: int, before: Sequence[Tensor], carried: Sequence[Tensor]
) -> bool:
    """Whether what a step carries on are different tensors, each one that it has made, or the very one that was carried in there: so the
    next step finds the same object where this one has."""
    if len(set(map(id, carried))) < len(carried):
        return False
    return all(x is y or (interpreter.value_of(x) or 0) >= first for x, y in zip(carried, before, strict=True))
