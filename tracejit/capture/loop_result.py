"""What follows the last step of a branching loop (branching_loops.py): the node that stands for all steps, guards on how they have ended,
and what the loop gives to the program."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit.capture.item_objects import slots_with_items
from tracejit.capture.loop_emission import LoopResults, emit_loop, room_for
from tracejit.capture.loop_steps import LIVE_IN, StepValue
from tracejit.capture.path_body import body_of
from tracejit.capture.path_tree import BASE, GO, OBJECTS, WAY, Leaf, LoopRecord, identity, requires_grad
from tracejit.capture.step_paths import NUMBERS, Refused, put_together
from tracejit.capture.syntax.pieces import RETURNS
from tracejit.core.op import REGISTRY, Kind
from tracejit.core.symbolic import without_symbols
from tracejit.ir.graph import Body, Graph, Node
from tracejit.ops.movement.views import detach
from tracejit.tensor import Tensor
from tracejit.tensor.base import wrap

if TYPE_CHECKING:
    from tracejit.capture.branching_loops import LoopRun

__all__ = ["LoopResult"]


def _text_of_paths(steps: list[int]) -> str:
    """How often steps have taken each path, for users."""
    counts = ", ".join(map(str, sorted(steps, reverse=True)))
    return f"{len(steps)} path{'s' * (len(steps) > 1)}, taken {counts} times"


class LoopResult:
    """The result of one run."""

    def __init__(self, run: LoopRun) -> None:
        self._run = run

    def emit(self, way: int) -> tuple[int, Any]:
        """Append the node that stands for all steps, and guards on how they have ended.  Returns the result of the loop.  Raises
        Refused or NoBody."""
        interpreter, tree = self._run.interpreter, self._run.tree
        op, graph, places = body_of(tree)
        carried = tree.carried()
        if tree.has_gradients:
            return self._emit_differentiable(way, graph, places)
        given = {x: self._entered_value(x) for x in carried}
        operands = [given[x] if x in given else self._without_gradient(tree.shared[x[1]]) for x in places]
        attributes: dict[str, Any] = {"body": Body(graph), "carried": len(carried)}
        room = self._room()
        if room is not None:
            attributes.update(sliced=0, count=room, reverse=False)
        ends = {GO: np.array(False), WAY: np.array(way), BASE: np.array(0)}
        results = [
            wrap(np.array(self._run.arrays[x[1]] if x[0] == LIVE_IN else self._run.objects[x[1]] if x not in ends else ends[x]))
            for x in carried
        ]
        rows = self._run.items.rows(tree, self._run.made if room is None else without_symbols(room))
        named = tuple(sorted(attributes.items()))
        node = interpreter._append(op, (), tuple(operands), named, (*results, *rows), interpreter._line())
        interpreter.evaluated[node.outputs[0]] = False
        self._note_record(node, tuple(tree.names()))
        return self._after_node(way, dict(zip(carried, results, strict=True)), rows)

    def _emit_differentiable(self, way: int, graph: Graph, places: Sequence[StepValue]) -> tuple[int, Any]:
        """The same for a loop that gradients go through."""
        tree, carried = self._run.tree, self._run.tree.carried()
        values = [x for k, slot in enumerate(tree.slots) if slot.requires_grad and (x := self._run.entered_number(k)) is not None]
        if len({*values}) < len(values) or not {*tree.shared}.isdisjoint(values):
            raise Refused("it is given one tensor that requires grad twice")
        entered = [self._run.entered_tensor(x) for x in carried]
        shared = [self._run.outside[tree.shared[x[1]]] for x in places[len(carried) :]]
        for tensor in self._run.states.values():  # the loop is evaluated, from what they were before it
            tensor._array[...] = self._run.states_before[id(tensor)]
        try:
            results = emit_loop(graph, entered, (), shared, self._room(), False, of_paths=True, made_of=tree.pairs_made_of())
        finally:
            self._run.store_states()
        self._note_differentiable(results)
        return self._after_node(way, dict(zip(carried, results.ends, strict=True)), results.collected)

    def _room(self) -> Any:
        """How many steps the node has room for, an integer or a size; None where it keeps nothing of them."""
        count, room = self._run.count, room_for(self._run.made)
        if self._run.tree.is_bounded:
            return min(count, room) if type(count) is int else room
        return count if self._run.tree.is_counted else None

    def _note_record(self, node: Node, names: tuple[Hashable | None, ...], marked: Collection[Hashable] = ()) -> None:
        """Note what a node stands for, for the paths of a loop around it."""
        tree = self._run.tree
        starts = {slot.key: self._run.entered_number(k) for k, slot in enumerate(tree.slots)}
        begun = {tree.slots[k].key: number for k, number in enumerate(self._run.begun_objects) if number >= 0}
        record = LoopRecord(tree, starts, begun, names, node.attrs.get("count", 0), marked)
        self._run.interpreter.path_trees[node.outputs[0]] = record

    def _note_differentiable(self, results: LoopResults) -> None:
        """The same for the last node that gradients go through."""
        names: list[Any] = self._run.tree.names()
        node = next(x for x in reversed(self._run.interpreter.nodes) if x.op.kind is Kind.LOOP)
        given = [*results.ends, *results.collected]
        marked = [name for name, x in zip(names, given, strict=True) if x.requires_grad]
        in_order = [names[k] for k in (*results.order, *range(len(results.order), len(names)))]
        kept = len(results.history)
        others = len(node.outputs) - kept - len(names)
        self._note_record(node, (*[None] * kept, *in_order, *[None] * others), marked)

    def _after_node(self, way: int, at: dict[StepValue, Tensor], rows: Sequence[Tensor]) -> tuple[int, Any]:
        """Append guards on how the steps have ended, and what they have written.  at: what the loop carries in the end.  Returns the
        result of the loop."""
        interpreter, tree = self._run.interpreter, self._run.tree
        if not self._run.is_nested:
            texts = [_text_of_paths([end.steps for _, end in tree.paths_of(part)]) for part in range(len(tree.parts))]
            paths = f"{len(texts)} parts, each by {'; '.join(texts)}" if self._run.is_divided else f"by {texts[0]}"
            interpreter.remarks.append(f"the loop at {self._run.line}: {self._run.made} steps in the recorded call, {paths}")
        if tree.is_bounded:
            self._run.take(at[GO])
        if not tree.is_counted:
            self._run.take(at[WAY])
        for k in tree.changing_grad():
            self._run.take(at[requires_grad(k)])
        for k, x in self._run.states.items():
            write = REGISTRY["write"]
            operands = [interpreter.values[id(x)], interpreter.values[id(at[LIVE_IN, k])]]
            interpreter.nodes.append(Node(write, tuple(operands), (), (written := interpreter._define(x),), interpreter._line()))
            interpreter.evaluated[written] = False
            interpreter.requires_grad.discard(written)
            if id(x) in self._run.uncounted:
                interpreter.uncounted.add(written)
            interpreter._wrote = interpreter._wrote or id(x) not in interpreter.states
        self._guard_objects(at)
        return self._result(way, at, rows)

    def _entered_value(self, place: StepValue) -> int:
        """The value of the graph that the loop is given for what it carries."""
        entered = self._run.entered_number(place[1]) if place[0] == LIVE_IN else None
        if entered is None:
            entered = self._run.interpreter.values[id(self._run.filled(place))]
        return entered

    def _without_gradient(self, v: Any) -> int:
        """A shared value as an operand of the node."""
        interpreter = self._run.interpreter
        if v not in interpreter.requires_grad:
            return v  # type: ignore[no-any-return]
        copy = interpreter._append_same(detach, v, wrap(interpreter.defined[v]._array))
        interpreter.evaluated[copy] = False
        return copy

    def _guard_objects(self, at: dict[StepValue, Tensor]) -> None:
        """Guard which objects the slots that are read after the loop hold in the end."""
        bind, tree = self._run.interpreter.bind, self._run.tree
        holding = [k for k in range(len(tree.slots)) if tree.is_object(k) and self._run.objects[k] != -1 and self._is_result(k)]
        for k in holding:
            self._run.take(bind(REGISTRY["minimum"], (at[identity(k)], OBJECTS), {}))
        for n, k in enumerate(holding):
            for j in holding[:n]:
                if tree.slots[j].aval == tree.slots[k].aval and min(self._run.objects[j], self._run.objects[k]) >= OBJECTS:
                    self._run.take(bind(REGISTRY["eq"], (at[identity(j)], at[identity(k)]), {}))

    def _is_result(self, k: int) -> bool:
        """Whether what a slot holds in the end may be read after the loop."""
        key: Any = self._run.tree.slots[k].key
        if key[0] != "variable":
            return bool(key[0] == "return")
        held = k in self._run.carried[key[1]].slots if key[1] in self._run.carried else key[1] not in self._run.fixed
        return held and key[1] in self._run.read_after

    def _is_kept(self, name: str, changed: set[int]) -> bool:
        """Whether no step puts anything else in a variable.  changed: the slots in which some step does; runs of a nested loop share paths
        that are not known yet."""
        carried = self._run.carried.get(name)
        return carried is not None and not self._run.is_nested and changed.isdisjoint(carried.slots)

    def _result(self, way: int, at: dict[StepValue, Tensor], rows: Sequence[Tensor]) -> tuple[int, Any]:
        """The result of the loop."""
        tree, slots = self._run.tree, self._run.tree.slots
        known: dict[int, Tensor] = {}
        read = slots_with_items(tree, self._run.items.numbers)
        held: dict[int, Tensor] = {}

        def value_of_slot(k: int) -> Any:
            holds, x = slots[k].holds, at[LIVE_IN, k]
            if holds is bool:
                return self._run.take(x)
            if holds in NUMBERS:
                return self._run.recorder.extracted_numbers.define_element(x, holds(self._run.arrays[k]))
            if not self._is_result(k):
                return x
            number = self._run.objects[k]
            before = self._run.object_from_before(number)
            if before is None and holds is Leaf and number not in known:
                x = detach(x).requires_grad_()
            elif before is None and x.requires_grad and not self._run.grads[k]:
                x = detach(x)
            value = known.setdefault(number, self._run.freed.with_position(k, x)) if before is None else before
            if k in read:
                held[number] = value
            return value

        by_key = {slot.key: k for k, slot in enumerate(slots)}
        self._run.calls.emit(self._run.items.columns(rows))
        self._run.kinds.take_ends(at)
        self._run.places.restore()
        stored = {k for _, end in tree.all_paths() for k in end.left}
        changed = {k for _, end in tree.all_paths() for k, place in end.left.items() if place != (LIVE_IN, k)}
        for name in self._run.places.with_slots:
            own = self._run.carried[name].slots if name in self._run.carried else [by_key["variable", name]]
            if not stored.isdisjoint(own):
                self._run.places[name].store(
                    self._run.recorder, self._run.variable(name, by_key, value_of_slot, self._run.recorder)
                )
        if way == RETURNS:
            left = [value_of_slot(k) for key, k in by_key.items() if key[0] == "return"]
        else:
            left = [
                self._run.variables_before[x]
                if self._is_kept(x, changed)
                else self._run.variable(x, by_key, value_of_slot, self._run.recorder)
                for x in self._run.loop.live_outs
            ]
        self._run.items.note_objects(at, held)
        self._run.reached.emit(rows, held)
        if way == RETURNS:
            return way, put_together(self._run.recorder, self._run.template, iter(left))
        return way, self._run.recorder.mark_created((*left, *self._run.items.lists(rows, held)))
