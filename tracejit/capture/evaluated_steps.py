"""What is done in the place of steps of a loop that need not run (loop_recogniser.py): their operations, one by one, and no Python around
them.

What they make stands where the steps would have left it: in variables, tuples, lists, dictionaries and objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tracejit.capture.handlers.post_program import is_post_program
from tracejit.capture.loop_steps import LoopStep, StepValue
from tracejit.capture.nested_places import children_of, is_tuple, items_of, rebuilt_tuple, store_at
from tracejit.core.op import Effect, Kind
from tracejit.ir.graph import Literal
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.tensors import RecordingInterpreter

__all__ = ["EvaluatedStep", "Replacement", "may_be_evaluated", "without_guards"]


def without_guards(step: LoopStep, moves: list[int]) -> tuple[LoopStep, list[int]]:
    """A step that has been done, and how far its nodes move: its guards have held."""
    kept = [k for k, a in enumerate(step.nodes) if a.node.op.kind is not Kind.GUARD]
    return replace(step, nodes=[step.nodes[k] for k in kept]), [moves[k] for k in kept]


def may_be_evaluated(step: LoopStep) -> bool:
    """Whether the operations of a step may be evaluated one by one.  What raises there runs again, which what has written must not; between
    a draw and the move of the generator another thread may draw; and guards are asked of steps that run."""
    nodes = [a.node for a in step.nodes]
    if any(node.op.kind in (Kind.GUARD, Kind.RANDOM) for node in nodes):
        return False
    return not (any(node.op.effect is Effect.IN_PLACE for node in nodes) and any(node.may_exit for node in nodes))


class EvaluatedStep:
    """A step, to be done again and again.  Tensors have numbers: what the step begins with, then what it shares with others, then what it
    makes."""

    def __init__(self, interpreter: RecordingInterpreter, step: LoopStep, moves: list[int], elements: int) -> None:
        """moves: how far the position of each node moves from step to step."""
        self._interpreter = interpreter
        shared = sorted({place[1] for a in step.nodes for place in a.operands if type(place) is tuple and place[0] == "shared"})
        self._shared: list[Any] = [interpreter.numbers[v] if v in interpreter.numbers else interpreter.defined[v] for v in shared]
        starts = {"given": 0, "made": elements + len(step.left) + len(shared)}
        numbers = {("shared", v): elements + len(step.left) + k for k, v in enumerate(shared)}

        def number(place: StepValue) -> int:
            return numbers[place] if place in numbers else starts[place[0]] + place[1]

        self._nodes = [
            (a, [number(x) if type(x) is tuple else x for x in a.operands], distance)
            for a, distance in zip(step.nodes, moves, strict=True)
        ]
        self._left = list(map(number, step.left))
        self._appended = [list(map(number, items)) for items in step.appended]

    def evaluate(self, times: int, given: list[Tensor]) -> tuple[list[Tensor], list[list[Tensor]]]:
        """What a step leaves and appends, so many steps after the one that was recorded.  given: what it begins with."""
        again, known = self._interpreter.evaluate_node, [*given, *self._shared]
        for a, places, distance in self._nodes:
            node, attributes = a.node, a.node.attrs
            operands = [known[x] if type(x) is int else x for x in places]
            if a.position is not None:
                at = a.position + distance * times
                if a.width is not None:
                    attributes = {**attributes, "start": at, "stop": at + a.width}
                    node = replace(node, attributes=tuple(sorted(attributes.items())))
                else:
                    operands[1] = Literal(at)
            known += again(node, attributes, operands, a.with_grad)
        return [known[k] for k in self._left], [[known[k] for k in items] for items in self._appended]


class Replacement:
    """Puts other tensors in the places of tensors, and other numbers in those of numbers that the program takes out of them: in tuples,
    which are made anew, and inside of lists, dictionaries and objects."""

    def __init__(self, interpreter: RecordingInterpreter, before: Sequence[Tensor], after: Sequence[Tensor]) -> None:
        self._interpreter = interpreter
        self._recorder = interpreter.recorder
        self._known: dict[int, Any] = {id(x): y for x, y in zip(before, after, strict=True)}

    def __call__(self, value: Any) -> Any:
        if id(value) in self._known:
            return self._known[id(value)]
        if is_post_program(value):
            new = self._known.get(id(value._late.program_tensor())) if value._late.made else None
            self._known[id(value)] = value if new is None else self._interpreter.take_number(new)
        elif is_tuple(value):
            items = items_of(self._recorder, value)
            others = list(map(self, items))
            same = all(x is y for x, y in zip(others, items, strict=True))
            self._known[id(value)] = value if same else rebuilt_tuple(self._recorder, value, others)
        return self._known.get(id(value), value)

    def replace_contents(self, containers: Sequence[Any]) -> None:
        """Have lists, dictionaries and objects hold the other tensors."""
        for container in containers:
            for place, value in children_of(self._recorder, container) or ():
                if (new := self(value)) is not value:
                    store_at(self._recorder, container, place, new)
