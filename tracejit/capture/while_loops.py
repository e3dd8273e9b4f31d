"""`while_loop` of a recorded call as a loop of the graph: a node of its own kind (WHILE), since the program finds the number of
steps.

Steps are described and compared as those of `scan` are (library_loops.py); the condition belongs to the step before it.  Two
steps in a row that do the same are enough, if the second one leaves all that it can find as it was.  Steps before these two stay
as they are, each with a guard on its condition, and so does the guard of the first of the two.

Where something that is carried requires grad, a backward pass needs what each step has computed.  So the loop is a node with room for
so many steps (`room_for`), of which those after the last one leave what they find; a call of more steps leaves the program.  The
recording says why a `while_loop` is no node (`remarks`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracejit.capture.call_sites import user_line
from tracejit.capture.handlers.stand_ins import plain
from tracejit.capture.library_loops import describe_library_step, library_body
from tracejit.capture.loop_emission import emit_loop, room_for
from tracejit.capture.loop_steps import LIVE_IN, LoopStep, RecordingPoint, StepValue, outside_value
from tracejit.capture.recording.journal import Topic
from tracejit.capture.snapshots import Snapshot, calls_in, only_computes, reachable_state
from tracejit.core.dtypes import bool_
from tracejit.core.floating import quietly
from tracejit.core.op import REGISTRY
from tracejit.ir.graph import Body, Graph, Node
from tracejit.ir.loop import WHILE
from tracejit.ir.runner import Runner
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.ops.movement.views import detach, reshape
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder
    from tracejit.capture.tensors import RecordingInterpreter

__all__ = ["record_while_loop"]

_MOST_STEPS: Final = 8
"""Two steps in a row of the first so many have to do the same."""
_DIFFER: Final = (
    "no two steps in a row were the same operations, and nothing but operations (a value that leaves a tensor, a draw, a write, "
    "an index that may be out of range, a change outside are more)"
)


@dataclass(frozen=True, slots=True, eq=False)
class _StepStart:
    """Where a step begins: before the guard on `test`, its condition.  state: what the functions can find; None where that cannot
    be compared."""

    point: RecordingPoint
    carried: list[Any]
    test: Any
    state: Snapshot | None

    def is_unchanged(self, now: _StepStart, recorder: Recorder) -> bool:
        """Whether steps since then have only computed and read."""
        if self.state is None or now.state is None or not now.state.is_unchanged_since(self.state):
            return False
        mark = self.point.mark
        return only_computes(recorder, mark, Topic.READS) and not calls_in(recorder, recorder.prologue[mark.statements :])


def record_while_loop(
    interpreter: RecordingInterpreter,
    condition: Callable[[list[Any]], Any],
    step: Callable[[list[Any]], list[Any]],
    carried: list[Any],
) -> list[Any]:
    """What is carried in the end of a `while_loop`."""
    recorder = interpreter.recorder

    def tested(carried: list[Any]) -> Any:
        """The condition; that of a tensor of one element as a truth value without dimensions."""
        value = condition(carried)
        if isinstance(value, Tensor) and value.numel() == 1 and not recorder.stopped:
            value = reshape.of(value, shape=()) if value.shape else value
            value = value if value.dtype is bool_ else cast.of(value, dtype=bool_)
        return value

    def start() -> _StepStart:
        return _StepStart(RecordingPoint.of(interpreter), carried, test, reachable_state(recorder, (condition, step)))

    test = tested(carried)
    steps, described, why = 0, None, _obstacle(carried, test)
    for x in () if why or recorder.stopped else carried:
        interpreter.value_of(x)  # an operand, whether steps use it or not
    entry = begin = last = start()
    while test:
        if why or recorder.stopped:
            carried = step(carried)
            test = condition(carried)
            continue
        point, before = RecordingPoint.of(interpreter), carried
        carried = step(carried)
        test = tested(carried)
        steps += 1
        now = start()
        # The step may continue the run of equal steps since `begin`, or begin a new one.
        for first in dict.fromkeys((begin, last)):
            latest: LoopStep | None = None
            body = None
            if (
                isinstance(test, Tensor)
                and _have_same_layout(first.carried, before, carried)
                and first.is_unchanged(now, recorder)
            ):
                latest = describe_library_step(interpreter, point, before, carried, [test], first.point.values)
                body = None if latest is None else library_body(interpreter, latest, len(carried))
            if latest is not None and body is not None and (first is last or described is None or latest.repeats(described)):
                break
            described = None
        if body is None:
            begin, described = now, None
        elif (
            described is not None
            and only_computes(recorder, last.point.mark)
            and _carries_same_objects(interpreter, begin, before, carried)
        ):
            shared = [x[1] for x in body[1] if x[0] != LIVE_IN]
            has_gradient = _has_gradient(interpreter, begin.carried, carried)
            why = _given_twice(interpreter, begin.carried, shared) if has_gradient else ""
            if not why:
                return _emit_while_loop(interpreter, begin, carried, *body, begin is not entry, has_gradient)
        else:
            begin, described = first, latest
        last = now
        if steps == _MOST_STEPS:
            why = _DIFFER
    if not recorder.stopped:
        why = why or (_DIFFER if steps > 2 else f"it was over after {steps} steps, before two of them were known to do the same")
        interpreter.remarks.append(f"while_loop() at {user_line()} is one path for each number of steps: {why}")
    return carried


def _obstacle(carried: Sequence[Any], test: Any) -> str:
    """Why a `while_loop` is no node, whatever its steps do."""
    numbers = [type(x).__name__ for x in carried if not isinstance(x, Tensor)]
    if numbers:
        return f"it carries on what is no tensor ({', '.join(dict.fromkeys(numbers))})"
    return "" if isinstance(test, Tensor) else f"its condition is no tensor ({type(test).__name__})"


def _have_same_layout(*steps: Sequence[Any]) -> bool:
    """Whether what is carried between steps, from the first of them on, is row-major and has nothing but contents, so that it
    does not show how many steps there were.  What is carried on as it is stays the same object."""
    for entered, *others in zip(*steps, strict=True):
        changes = any(x is not entered for x in others)
        if changes and not all(_is_row_major(x._array) and not vars(x) and not x._hooks for x in (entered, *others)):
            return False
    return True


def _is_row_major(array: np.ndarray[Any, Any]) -> bool:
    return array.strides == np.empty(array.shape, array.dtype).strides


def _carries_same_objects(
    interpreter: RecordingInterpreter, begin: _StepStart, before: Sequence[Any], carried: Sequence[Any]
) -> bool:
    """Whether the last step was given at each place the object that it leaves there, or one that a step has made, and leaves one
    that a step has made; so the next step is given the like."""
    if len(set(map(id, carried))) < len(carried):
        return False
    values = [(interpreter.value_of(x) or 0, interpreter.value_of(y) or 0) for x, y in zip(before, carried, strict=True)]
    return all(x is y or min(pair) >= begin.point.values for x, y, pair in zip(before, carried, values, strict=True))


def _has_gradient(interpreter: RecordingInterpreter, entered: Sequence[Any], carried: Sequence[Any]) -> bool:
    """Whether a gradient may be wanted of what steps have made; what is carried on as it is stays the same object."""
    marked = interpreter.requires_grad
    return any(x is not y and interpreter.value_of(y) in marked for x, y in zip(entered, carried, strict=True))


def _given_twice(interpreter: RecordingInterpreter, entered: Sequence[Any], shared: Sequence[int]) -> str:
    """Why the order in which a gradient is added up would be another one; "" if it would not."""
    values = [v for x in entered if (v := interpreter.value_of(x)) in interpreter.requires_grad]
    twice = len({*values}) < len(values) or not {*values}.isdisjoint(shared)
    return "it is given one tensor that requires grad twice" if twice else ""


def _emit_while_loop(
    interpreter: RecordingInterpreter,
    begin: _StepStart,
    carried: Sequence[Any],
    graph: Graph,
    places: Sequence[StepValue],
    keeps_guard: bool,
    has_gradient: bool,
) -> list[Any]:
    """Put one node in the place of those from `begin` on.  graph: a step and the condition after it; places: of its inputs.
    keeps_guard: the guard on the condition of the first step, which is the first node, stays: the tensors of the steps before it
    may be in use elsewhere.  has_gradient: whether gradients go through the loop."""
    body, entered = _with_condition(graph), [begin.test, *begin.carried]
    shared = [outside_value(interpreter, x[1]) for x in places if x[0] != LIVE_IN]
    interpreter.truncate(replace(begin.point.mark, nodes=begin.point.mark.nodes + keeps_guard))
    if has_gradient:
        room = room_for(_steps_of(body, [*entered, *shared]))
        ends = emit_loop(_while_it_goes_on(body), entered, (), shared, room, False, of_paths=True).ends
        interpreter.require(ends[0], False)
    else:
        given = [detach.of(x) if isinstance(x, Tensor) and x.requires_grad else x for x in (*entered, *shared)]
        ends = WHILE.of(*given, body=Body(replace(body, requires_grad=frozenset())), carried=len(entered))
    return [x if x is y else z for x, y, z in zip(begin.carried, carried, ends[1:], strict=True)]


def _with_condition(graph: Graph) -> Graph:
    """The body of a step that is given the truth value that was found last, and gives the next one first."""
    go = graph.outputs[-1]
    given = max(graph.avals) + 1
    avals = {**graph.avals, given: graph.avals[go]}  # type: ignore[index]
    return replace(graph, inputs=(given, *graph.inputs), avals=avals, outputs=(go, *graph.outputs[:-1]))


def _steps_of(body: Graph, given: Sequence[Any]) -> int:
    """How many steps a loop makes, until the first thing that its body gives does not hold."""
    steps, run = 0, Runner(body)
    arrays = [x._array if isinstance(x, Tensor) else plain(x) for x in given]
    while arrays[0]:
        arrays[: len(body.outputs)] = quietly(run, arrays)
        steps += 1
    return steps


def _while_it_goes_on(body: Graph) -> Graph:
    """A body that leaves what it finds where its first input, which says whether there is a further step, does not hold."""
    go, fresh = body.inputs[0], max(body.avals) + 1
    nodes, avals, outputs, marked = list(body.nodes), dict(body.avals), list(body.outputs), set(body.requires_grad)
    for k, (v, end) in enumerate(zip(body.inputs, body.outputs, strict=False)):
        if v == end:
            continue
        op = "logical_and" if not k else "phi" if end in marked else "where"
        operands = (go, end) if not k else (go, end, v)
        nodes.append(Node(REGISTRY[op], operands, (), (fresh,)))
        avals[fresh] = body.avals[v]
        if end in marked:
            marked.add(fresh)
        outputs[k], fresh = fresh, fresh + 1
    return replace(body, nodes=tuple(nodes), avals=avals, outputs=tuple(outputs), requires_grad=frozenset(marked))
