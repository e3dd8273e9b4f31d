"""The tape of eager mode for the steps of a branching loop that were made without one.

While a loop is recorded, known paths make most steps, and what the others have put on the tape is taken back with their nodes.  If the
recording stops, or a step takes gradients, a backward pass goes on into the steps before: then these are made again from the start,
operation by operation, along the paths that they have taken.  Until then a step is given tensors at a position (`LiveInNode`) that
asks for that tape."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tracejit.autograd.tape import LiveInNode, move_before, next_sequence
from tracejit.capture.handlers.stand_ins import plain
from tracejit.capture.loop_emission import written_out
from tracejit.capture.loop_steps import LIVE_IN
from tracejit.capture.path_body import first_parts
from tracejit.core.floating import quietly
from tracejit.core.interpreter import state
from tracejit.tensor import Tensor
from tracejit.tensor.base import wrap

if TYPE_CHECKING:
    from tracejit.capture.branching_loops import LoopRun
    from tracejit.capture.loop_steps import StepValue
    from tracejit.ir.graph import Graph

__all__ = ["StepsOnTape"]


class StepsOnTape:
    """The tape of the steps that a run has made.  live_ins: by slots of tensors that require grad, the positions of what the step is
    given that runs in Python."""

    def __init__(self, run: LoopRun) -> None:
        self.live_ins: dict[int, LiveInNode] = {}
        self._run = run
        # (how many steps were made, and parts of another one; what `_graphs` gave then), and the former of what follows.
        self._prepared: tuple[Any, list[Any]] = (-1, 0), []
        self._done = (-1, 0)
        self._tensors: dict[int, Tensor] = {}
        self._items: list[list[Tensor]] = []
        self._first = 0  # the sequence number that its nodes come after

    def begin_step(self) -> None:
        """Make the positions of what the next step is given."""
        if self._run.is_divided and self._run.tree.has_gradients:  # later the tree may have a path that has no body
            self._prepared = (self._run.made, self._run.part), self._graphs()
        position = self._run.made, self._run.part, next_sequence()
        slots = [k for k, requires in enumerate(self._run.grads) if requires]
        self.live_ins = {k: LiveInNode(partial(self._live_in, k, position)) for k in slots}

    def fix(self) -> None:
        """Find what the live-ins lead to, before anything of that changes."""
        for node in self.live_ins.values():
            assert node.edges

    def tensors(self) -> dict[int, Tensor]:
        """By slots of tensors that require grad, what they hold, with its position on the tape."""
        self._make()
        return self._tensors

    def items(self) -> list[list[Tensor]]:
        """The items for each list, with their positions on the tape."""
        self._make()
        return self._items

    @property
    def is_needed(self) -> bool:
        """Whether the steps have made anything that requires grad."""
        return any(graph.requires_grad for graph, _, _ in self._graphs())

    def before_write(self, x: Tensor) -> None:
        """Have the steps before save what they have read of a tensor that the step is about to write to."""
        run = self._run
        if (
            (run.made or run.part)
            and run.tree.has_gradients
            and any(x is y or x is getattr(y, "_base", None) for y in run.outside.values())
        ):
            self._make()

    def _live_in(self, k: int, position: tuple[int, int, float]) -> Tensor:
        """What a slot holds before a step, or a part of it.  position: the number of the step, and of the part, and where the tape of
        those before it ends."""
        step, part, end = position
        if (step, part) != (self._run.made, self._run.part):
            raise RuntimeError(
                "backward(): a tensor of a step of a loop outlived the step; this is a defect of tracejit, please report it"
            )
        tensors = self.tensors()
        if step or part:
            move_before([x._node for x in tensors.values()], self._first, end)
        return tensors[k]

    def _make(self) -> None:
        run, recorder = self._run, self._run.recorder
        if self._done == (run.made, run.part):
            return
        grad_enabled, state.grad_enabled = state.grad_enabled, True
        self._first = next_sequence()
        try:
            self._tensors, self._items = self._steps_again() if recorder.stopped else recorder.unwatched(self._steps_again)
        finally:
            state.grad_enabled = grad_enabled
        self._done = run.made, run.part

    def _graphs(self) -> list[tuple[Graph, list[StepValue], list[StepValue]]]:
        """The graphs of the steps so far, and of the parts of another one, each with the places of its inputs and what it carries."""
        run = self._run
        if self._prepared[0] == (run.made, run.part):
            return self._prepared[1]
        steps = [run.whole_body()] * run.made if run.made else []
        if run.part:
            steps.append((*first_parts(run.tree, run.part), run.tree.carried()))
        return steps

    def _steps_again(self) -> tuple[dict[int, Tensor], list[list[Tensor]]]:
        """Make the steps again.  Returns (what slots of tensors that require grad hold, the items for each list)."""
        run = self._run
        slots = [k for k, requires in enumerate(run.grads) if requires]
        items: list[list[Tensor]] = [[] for _ in run.items.before]
        if not (run.made or run.part):
            return {k: run.begun[run.begun_objects[k]] for k in slots}, items
        steps = self._graphs()
        carried = steps[0][2]
        given: list[Any] = [run.entered_tensor(x) for x in carried]
        for x, tensor in run.states.items():
            if (LIVE_IN, x) in carried:  # else a step has written to it that is none of them
                given[carried.index((LIVE_IN, x))] = wrap(run.states_before[id(tensor)].copy())
        for step, (graph, places, _) in enumerate(steps):
            shared = [plain(run.outside[run.tree.shared[x[1]]]) for x in places[len(carried) :]]
            parts = len(run.parts) if step < run.made else run.part
            found = quietly(written_out, graph, [*given, *shared])
            given = found[: len(carried)]
            for column, more in zip(items, run.items.of_step(found[len(carried) :], parts), strict=True):
                column.extend(more)
        at = dict(zip(carried, given, strict=True))
        return {k: at[LIVE_IN, k] for k in slots}, items
