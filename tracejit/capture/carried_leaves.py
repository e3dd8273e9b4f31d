"""Leaves that the steps of a branching loop make for the next ones: `x = (x - rate * gradient).detach().requires_grad_()`.

Gradients that a step takes end at such a leaf.  So no tape goes through the loop, and the slot of the variable holds contents alone, beside
the number of the object.  A step is given the leaf that the loop was given, or, where an earlier step has made it, a leaf of its contents.
So is what follows the loop.

This is as in eager mode where nothing but the variable refers to the leaf, or to the memory of one that a step leaves, and steps neither
write to the leaf that they are given, nor give it a gradient.  A leaf from outside may be referred to anywhere: a step that is given such
a one stays outside of the node.  A step that is the first to leave a leaf in a variable is made again with such a slot, and so are those
before it, which have only computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tracejit.capture.loop_steps import LIVE_IN, LOCAL, SHARED, StepNode, outside_value
from tracejit.capture.path_tree import Leaf, Slot
from tracejit.ir.graph import Node
from tracejit.ops.movement.copies import clone
from tracejit.ops.movement.views import detach
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.branching_loops import LoopRun
    from tracejit.capture.loop_steps import RecordingPoint

__all__ = ["CarriedLeaves"]


class CarriedLeaves:
    """The leaves of one run.  variables: those that hold leaves.  begun: by slots, those that the loop was given.  given: by slots, those
    that the step was given that has run last."""

    def __init__(self, run: LoopRun) -> None:
        self._run = run
        self.variables: set[str] = set()
        self.begun: dict[int, Tensor] = {}
        self.given: dict[int, Tensor] = {}
        self._values: dict[int, int] = {}  # of these, in the graph
        self._before: list[Tensor] = []  # leaves that were made before the loop

    # -- what the loop is given
    @property
    def are_from_outside(self) -> bool:
        """Whether the loop was given a leaf from outside."""
        return any(map(self._run.recorder.is_outside, self.begun.values()))

    def why_not_begin(self) -> str:
        """Why the leaves that the loop was given cannot have slots, for users; "" if they can."""
        run = self._run
        if not run.first:
            self._before = [*self.begun.values()]
        if not self.begun or (self.are_from_outside and run.may_stay_outside):
            return ""
        if self.are_from_outside or any(run.objects.count(run.objects[k]) > 1 for k in self.begun):
            return "something else may refer to a leaf that the loop was given"
        names = [name for name in run.places if name in self.variables]
        for name in names:
            run.places[name].put(None)
        found = run.reachable()
        for name in names:
            run.places[name].put(run.places.values_in_python[name])
        if isinstance(found, str):
            return found
        is_found = any(x is y for x in found.tensors for y in self.begun.values())
        return "something else refers to a leaf that the loop was given" if is_found else ""

    # -- a step
    def begin_step(self, contents: Sequence[Tensor]) -> None:
        """Make the leaves for the step that begins.  contents: of all slots."""
        run = self._run
        self.given = {}
        for k in [k for k, slot in enumerate(run.tree.slots) if slot.holds is Leaf]:
            before = run.object_from_before(run.objects[k])
            self.given[k] = clone(contents[k]).requires_grad_() if before is None else before
        self._values = {k: run.interpreter.values[id(x)] for k, x in self.given.items()}

    def live_ins(self, values: Sequence[int]) -> list[int]:
        """The values of what the step is given.  values: of its stand-ins, by slots."""
        return [self._values.get(k, v) for k, v in enumerate(values)]

    def path_of_copies(self, first: int) -> list[StepNode]:
        """The nodes that make the contents of the leaves of a step, each two: what shares memory with them is no view of a slot.  first:
        the number of their first output."""
        nodes: list[StepNode] = []
        for n, k in enumerate(self.given):
            kinds = ((self._run.tree.slots[k].aval, False),)
            copy, leaf = (LOCAL, first + 2 * n), (LOCAL, first + 2 * n + 1)
            nodes.append(StepNode(Node(clone, (), (), (), ""), ((LIVE_IN, k),), (), False, (copy,), kinds))
            nodes.append(StepNode(Node(detach, (), (), (), ""), (copy,), (), False, (leaf,), kinds))
        return nodes

    @property
    def are_from_before(self) -> bool:
        """Whether the node is given a leaf that was made before the loop: variables that steps do not see may hold it."""
        return any(x is y for x in self.begun.values() for y in self._before)

    def slot(self, begin: RecordingPoint, slot: Slot, x: Any) -> Slot:
        """The slot for `x`, which a step leaves in a variable or returns; `slot` itself if that is no leaf that the step has made or was
        given, or the variable is not known to hold leaves.  begin: the point before the step."""
        is_known = slot.key[0] == "return" or slot.key[1] in self.variables
        is_leaf = self._is_of_step(begin, x) or any(x is y for y in self.given.values())
        return replace(slot, holds=Leaf) if is_known and is_leaf else slot

    def new_in(self, begin: RecordingPoint, left: Sequence[tuple[Slot, Any]]) -> set[str]:
        """The variables in which a step leaves leaves that it has made, and that are not known to hold such.  left: slots, and what it
        leaves in them."""
        return {
            str(slot.key[1])
            for slot, x in left
            if slot.holds is Tensor and slot.key[0] == "variable" and len(slot.key) == 2 and self._is_of_step(begin, x)
        }

    def why_not(self, path: Sequence[StepNode]) -> str:
        """Why a step cannot be given leaves that are made of contents, for users; "" if it can."""
        interpreter = self._run.interpreter
        if any(interpreter.value_of(x) != self._values[k] or x._grad is not None for k, x in self.given.items()):
            return "a step writes to a leaf that it was given, or to its gradient"
        read = {x[1] for a in path for x in a.operands if type(x) is tuple and x[0] == SHARED} & interpreter.requires_grad
        if self.given and not all(outside_value(interpreter, v).is_leaf for v in read):
            return "a step reads what may depend on a leaf that the loop was given"
        return ""

    def _is_of_step(self, begin: RecordingPoint, x: Any) -> bool:
        if not (isinstance(x, Tensor) and x.requires_grad and x.is_leaf):
            return False
        value = self._run.interpreter.value_of(x)
        return value is not None and value >= begin.values
