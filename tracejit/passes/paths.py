"""The ways that backward passes can take through a graph, as eager mode's tape has it.

A pass comes from some outputs and goes to some *targets*: inputs, leaves made inside, outputs whose own gradient someone asks for.  It
enters every node on a way between them.  Sets of targets are the bits of integers, so a question about all passes is answered by one
walk through the graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from tracejit.ir.graph import Graph
from tracejit.ir.loop import results_made_of
from tracejit.passes.backward import gradient_operands, visited_nodes

__all__ = ["BackwardPaths", "BackwardStep"]


@dataclass(frozen=True, slots=True, eq=False)
class BackwardStep:
    """A node that passes enter.  position: in the graph, and in the same graph of other sizes.  before: which steps made its operands.
    reach: the targets it leads to."""

    position: int
    before: tuple[int, ...]
    reach: int


class BackwardPaths:
    """steps: the nodes that some pass enters, in program order.  ends: the steps that made the outputs."""

    __slots__ = ("_number", "ends", "steps")

    def __init__(self, graph: Graph, active: AbstractSet[int], present: Sequence[bool], targets: Iterable[int]) -> None:
        bits = {v: 1 << i for i, v in enumerate(dict.fromkeys(targets))}
        visited = visited_nodes(graph, active, present)
        entered = {id(node) for node in visited}
        arriving = {x for node in visited for x in gradient_operands(node, active)}
        arriving.update([v for v, there in zip(graph.outputs, present, strict=True) if there and type(v) is int])
        self.steps: list[BackwardStep] = []
        self._number: dict[int, int] = {}  # value -> the step that made it
        for position, node in enumerate(graph.nodes):
            if id(node) not in entered:
                continue
            operands = gradient_operands(node, active)
            before = tuple(dict.fromkeys([self._number[x] for x in operands if x in self._number]))
            reach = 0
            for x in operands:
                reach |= bits.get(x, 0)
            for i in before:
                reach |= self.steps[i].reach
            for k, others in (results_made_of(node.op) or {}).items():  # another result leads to it
                if any(node.outputs[i] in arriving for i in others):
                    reach |= bits.get(node.outputs[k], 0)
            self._number.update(dict.fromkeys(node.outputs, len(self.steps)))
            self.steps.append(BackwardStep(position, before, reach))
        made = [self._number.get(v) for v, there in zip(graph.outputs, present, strict=True) if there and type(v) is int]
        self.ends = [i for i in made if i is not None]

    def meeting(self, steps: AbstractSet[int]) -> list[int]:
        """For each step, the targets that a pass from there cannot reach without entering one of `steps`."""
        found: list[int] = []
        for number, step in enumerate(self.steps):
            meets = step.reach if number in steps else 0
            for i in step.before:
                meets |= found[i]
            found.append(meets)
        return found

    def numbers(self, positions: AbstractSet[int]) -> set[int]:
        """The steps at these positions of the graph."""
        return {number for number, step in enumerate(self.steps) if step.position in positions}
