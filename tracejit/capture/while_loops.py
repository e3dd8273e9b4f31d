"""Loops that the library runs for the program while something holds (`while_loop`) as loops of the graph: library_loops.py says how.

The node is one of another kind (WHILE), since the program finds how many steps there are; the condition belongs to the step
before. So it is one only where two steps were enough, and where nothing that they carry on requires grad: what a backward pass needs of
each step would take memory that grows with a number that nobody knows. Steps before these two, if these are not the first, stay as they
are, each with a guard on its condition, and so has the first of the two. Why a `while_loop` is no node stands in the recording
(`remarks`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracejit.capture.call_sites import user_line
from tracejit.capture.library_loops import shared_operands, signature_of, takes_own_gradients
from tracejit.capture.recording.journal import Mark, Topic
from tracejit.capture.snapshots import Snapshot, only_computes, only_reads, reachable_state
from tracejit.core.dtypes import bool_
from tracejit.ir.graph import Body, Graph
from tracejit.ir.loop import WHILE
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.ops.movement.views import detach, reshape
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder
    from tracejit.capture.tensors import RecordingInterpreter

__all__ = ["record_while_loop"]

MOST: Final = 8
"""Steps of a `while_loop` among which two have to do the same."""
_DIFFER: Final = (
    "no two steps in a row were the same operations, and nothing but operations (a value that leaves a tensor, a draw, a write, "
    "an index that may be out of range, a change outside are more)"
)


@dataclass(frozen=True, slots=True, eq=False)
class _LoopStart:
    """Where a run of equal steps may begin: before the guard on the condition `test` of its first step.  mark: of the journal.  values: how
    many of the recording there were.  gradients, leaves: how many of both it had counted.  known: what the functions
    found."""

    carried: list[Any]
    test: Any
    mark: Mark
    values: int
    gradients: int
    leaves: int
    known: Snapshot | None

    def has_lost_nothing(self, now: _LoopStart, recorder: Recorder) -> bool:
        """Whether steps since then have done nothing besides their nodes, but for reading."""
        if self.known is None or now.known is None:
            return False
        same = now.known.is_unchanged_since(self.known) and only_computes(recorder, self.mark, Topic.READS)
        return same and only_reads(recorder.prologue[self.mark.statements :])


def record_while_loop(
    interpreter: RecordingInterpreter,
    condition: Callable[[list[Any]], Any],
    step: Callable[[list[Any]], list[Any]],
    carried: list[Any],
) -> list[Any]:
    """What is carried in the end of a `while_loop`."""
    recorder = interpreter.recorder

    def tested(carried: list[Any]) -> Any:
        """The condition; of a tensor of one element its truth value without dimensions."""
        value = condition(carried)
        if isinstance(value, Tensor) and value.numel() == 1 and not recorder.stopped:
            value = reshape.of(value, shape=()) if value.shape else value
            value = value if value.dtype is bool_ else cast.of(value, dtype=bool_)
        return value

    def place() -> _LoopStart:
        counts = (
            recorder.journal.mark(),
            len(interpreter.avals),
            interpreter.gradients,
            len(interpreter.leaves),
        )
        return _LoopStart(carried, test, *counts, reachable_state(recorder, (condition, step)))

    test = tested(carried)
    steps, signature, why = 0, None, _obstacle(carried, test)
    for x in () if why or recorder.stopped else carried:
        interpreter.value_of(x)  # an operand, whether steps use it or not
    entry = begin = last = place()
    while test:
        if why or recorder.stopped:
            carried = step(carried)
            test = condition(carried)
            continue
        at, before, carried = len(interpreter.nodes), carried, step(carried)
        test = tested(carried)
        steps += 1
        now = place()
        for first in dict.fromkeys((begin, last)):  # the run that has begun goes on, or one begins with this step
            made = None
            takes_own = (first.gradients, first.leaves) == (now.gradients, now.leaves) or takes_own_gradients(
                carried, interpreter.leaves[first.leaves :], first.values
            )
            is_alike = takes_own and _have_same_layout(first.carried, before, carried)
            if is_alike and isinstance(test, Tensor) and first.has_lost_nothing(now, recorder):
                made = signature_of(interpreter, interpreter.nodes[at:], before, [], carried, [test], first.values)
            if made is not None and (first is last or signature is None or signature == made[0]):
                break
            signature = None
        if made is None:
            begin, signature = now, None
        elif (
            signature is not None
            and only_computes(recorder, last.mark)
            and _carries_same_objects(interpreter, begin, before, carried)
        ):
            why = _gradient(interpreter, begin.carried, carried)
            if not why:
                # What the steps before it have made may be elsewhere, too: then the loop is left with something of its own.
                kept = begin.mark.nodes + (begin is not entry)  # the guard is the first node after that place
                graph, shared = made[1]
                return _emit_while_loop(interpreter, begin, carried, graph, shared, replace(begin.mark, nodes=kept))
        else:
            begin, signature = first, made[0]
        last = now
        if steps == MOST:
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
    """Whether what is carried between steps, from the first of them on, lies in memory row by row, and has nothing but contents: so it does
    not tell how many steps there were.  What is carried on as it is stays the object that it is."""
    for entered, *others in zip(*steps, strict=True):
        changes = any(x is not entered for x in others)
        if changes and not all(_is_plain(x._array) and not vars(x) and not x._hooks for x in (entered, *others)):
            return False
    return True


def _is_plain(array: np.ndarray[Any, Any]) -> bool:
    return array.strides == np.empty(array.shape, array.dtype).strides


def _carries_same_objects(
    interpreter: RecordingInterpreter, begin: _LoopStart, before: Sequence[Any], carried: Sequence[Any]
) -> bool:
    """Whether the last step has found at each place the object that it leaves there, or one that a step has made, and leaves one that a
    step has made; so the next step finds the like."""
    if len(set(map(id, carried))) < len(carried):
        return False
    values = [(interpreter.value_of(x) or 0, interpreter.value_of(y) or 0) for x, y in zip(before, carried, strict=True)]
    return all(x is y or min(pair) >= begin.values for x, y, pair in zip(before, carried, values, strict=True))


def _gradient(interpreter: RecordingInterpreter, entered: Sequence[Any], carried: Sequence[Any]) -> str:
    """Why a gradient may be wanted of what steps have made; what is carried on as it is stays the object that it is."""
    marked = any(
        x is not y and interpreter.value_of(y) in interpreter.requires_grad for x, y in zip(entered, carried, strict=True)
    )
    return "what it carries on requires grad, and a backward pass needs what each step has made" if marked else ""


def _emit_while_loop(
    interpreter: RecordingInterpreter, begin: _LoopStart, carried: Sequence[Any], graph: Graph, shared: Sequence[int], kept: Mark
) -> list[Any]:
    """One node in the place of those from `begin` on.  kept: what comes before it."""
    go = graph.outputs[-1]
    unread = max(graph.avals) + 1  # the body is given the truth value that was found last
    avals = {**graph.avals, unread: graph.avals[go]}  # type: ignore[index]
    body = replace(
        graph, inputs=(unread, *graph.inputs), avals=avals, outputs=(go, *graph.outputs[:-1]), requires_grad=frozenset()
    )
    given = [*begin.carried, *shared_operands(interpreter, shared)]
    interpreter.truncate(kept)
    given = [detach.of(x) if isinstance(x, Tensor) and x.requires_grad else x for x in given]
    _, *found = WHILE.of(begin.test, *given, body=Body(body), carried=1 + len(carried))
    return [x if x is y else z for x, y, z in zip(begin.carried, carried, found, strict=True)]
