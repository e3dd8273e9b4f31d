"""A step of a `for` statement as the body of a `loop` node (ir/loop.py): whether the node can stand for steps, and the node
itself.

A node can stand for steps where nobody can ask for what they compute in between:

- A tensor that a step reads of the step before is carried.  Whatever else steps compute is nobody's after them.
- A view at a place that moves with the steps is a slice of an operand of the loop.
- A write to all of a carried tensor (`loss += ...`) carries on what it writes.  Rows that are written one by one (`out[t] = h`)
  are collected, and written together after the loop.
- An item that is appended to a list which nothing else sees is collected, too (stacked_items.py).
- Guards and random draws may be part of the body.

Steps stay as they are where memory or backward passes could tell the node from them (loop_equivalence.py), and where they

- carry on a view of what they were given; except, without a gradient, a slice, `before = x`, or a part at a place that the program
  computes, `s = table[a]`: a copy is as good;
- carry on a tensor that is not row-major, or one that requires grad in every second step, `a, b = b, f(a)`;
- read windows of what requires grad, `xs[t - 2 : t]`, whose gradients would be added up in another order, or parts that grow,
  `xs[:t]`;
- read rows of a tensor with a gradient that they also read as a whole, or at places such as `(t + 1) % n`;
- append what they were given, `outs.append(h); h = f(h)`, or change what a step before has appended;
- read rows of a tensor whose rows they write, `out[t] = f(out[t - 1])`, or call functions of the host.

A backward pass frees the loop as a whole, even a pass to some of its operands alone, and `grad_fn` leads to one node for all
steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit.autograd.grad_mode import set_grad_enabled
from tracejit.capture.loop_emission import LoopResults, emit_loop
from tracejit.capture.loop_equivalence import backward_is_indivisible, carried_memory_is_disjoint, cotangents_are_disjoint
from tracejit.capture.loop_slices import SlicedInput
from tracejit.capture.loop_steps import (
    LIVE_IN,
    LOCAL,
    SHARED,
    LoopStep,
    StepNode,
    StepValue,
    ValueKind,
    body_graph,
    outside_value,
)
from tracejit.capture.stacked_items import StackedItems
from tracejit.core.aval import ScalarAval
from tracejit.core.interpreter import state
from tracejit.core.op import Effect, Kind, Op
from tracejit.ir.graph import Graph, Literal, Node
from tracejit.ir.interpreter import StepFailed
from tracejit.ops.movement.copies import clone, flip
from tracejit.ops.movement.views import select, slice_
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.tensors import RecordingInterpreter

__all__ = ["StepsAsLoop"]


class StepsAsLoop:
    """A step of a `for` statement as the body of a loop.

    is_possible: whether a loop can do what the step does.  carried: positions of the live-ins that the loop carries.  In the
    descriptions below, a slice is a live-in that the loop goes over, or a view at a place that moves with the steps."""

    def __init__(
        self,
        interpreter: RecordingInterpreter,
        step: LoopStep,
        moves: Sequence[int],
        live_ins: Sequence[Tensor],
        elements: int,
        row_major: Sequence[bool],
        visible: Collection[StepValue],
        kept: Collection[int],
    ) -> None:
        """moves: how far the position of each node moves from step to step.  live_ins: the tensors that the first step is given,
        of which the first `elements` are slices.  row_major: whether what the step appends to each list is row-major.
        visible: the items of lists that other code may see.  kept: live-ins in whose places one of the last steps may leave what it
        finds there."""
        self._interpreter = interpreter
        self._live_ins, self._elements, self._row_major = live_ins, elements, row_major
        self._has_tape = not step.takes_gradients
        self._kinds: dict[StepValue, ValueKind] = {(LIVE_IN, k): self._kind(x) for k, x in enumerate(live_ins)}
        self._kinds.update(pair for a in step.nodes for pair in zip(a.outputs, a.kinds, strict=True))
        self._moving = {i: distance for i, distance in enumerate(moves) if distance}  # nodes that are slices
        self._moving_views = {step.nodes[i].outputs[0]: i for i in self._moving}
        self._rows = self._row_writes(step)  # nodes that write a row -> nodes that are views of the row
        writes = [i for i, a in enumerate(step.nodes) if a.node.op.kind is Kind.WRITE]
        self._writes = {i: step.nodes[i] for i in writes if i not in self._rows}  # to all of a tensor
        self._targets: dict[int, StepValue] = {}  # of these: the tensor, as the step is given it
        self._step = self._without_writes(step)
        self._computing = [i for i in range(len(step.nodes)) if i not in self._moving and i not in self._writes]
        operands = [x for i in self._computing for x in self._step.nodes[i].operands[i in self._rows :]]
        self._read = dict.fromkeys([x for x in operands if type(x) is tuple])
        self._shared = {x: self._outside(x) for x in self._read if x not in self._kinds}
        self._kinds.update((x, self._kind(y)) for x, y in self._shared.items())
        self._views: dict[StepValue, StepNode] = {
            a.outputs[0]: a for i, a in enumerate(self._step.nodes) if a.node.op.kind is Kind.VIEW and i not in self._moving
        }
        self._slices = {(LIVE_IN, k) for k in range(elements)} | {*self._moving_views}
        self._visible = visible
        self._kept = kept if any(a.node.op.kind is Kind.GUARD for a in step.nodes) else ()
        self.carried = self._carried()
        self.is_possible = (
            self._is_possible()
            and not any(k in self._kept and self._is_part_of_what_stays(self._next(k)) for k in self.carried)
            and not self._saves_what_is_written(step)
            and not self._writes_what_was_appended()
            and self._owns_what_it_hands_on()
            and (not visible or self._are_alone())
        )

    def _kind(self, x: Any) -> ValueKind:
        if not isinstance(x, Tensor):
            return ScalarAval(type(x._value)), False
        value = self._interpreter.values[id(x)]
        return self._interpreter.avals[value], self._has_tape and value in self._interpreter.requires_grad

    def _outside(self, place: StepValue) -> Any:
        """A tensor or number that is the same in all steps."""
        kind, k = place
        return self._live_ins[k] if kind == LIVE_IN else outside_value(self._interpreter, k)

    def _next(self, k: int) -> StepValue:
        """What the step leaves in the place of live-in `k` for the next step."""
        return self._step.carried_on[k - self._elements]

    def _carried(self) -> list[int]:
        """The live-ins that the step changes, and that the next step computes with, appends, or hands on to such a place, or that the last
        steps, which run, may not change."""
        changed = {k: place for k, place in enumerate(self._step.carried_on, self._elements) if place != (LIVE_IN, k)}
        handed_on = {j for kind, j in changed.values() if kind == LIVE_IN and j in changed}
        carried = [
            k
            for k in changed
            if k in self._kept or (LIVE_IN, k) in self._read or k in handed_on or (LIVE_IN, k) in self._appended
        ]
        for k in carried:
            kind, j = changed.get(k, (LIVE_IN, k))
            if kind == LIVE_IN and j >= self._elements and j not in carried:
                carried.append(j)
        return carried

    @property
    def _appended(self) -> list[StepValue]:
        return [place for items in self._step.collected for place in items]

    # -- whether a loop can do it
    def _is_possible(self) -> bool:
        if not (self.carried or self._appended or self._rows) or any(k < self._elements for k in self.carried):
            return False
        windows = {view for view, i in self._moving_views.items() if self._step.nodes[i].is_window}
        if not windows.isdisjoint(map(self._root, self._appended)):  # nobody could write to the view that stands for all of them
            return False
        for items, row_major in zip(self._step.collected, self._row_major, strict=True):
            if len(items) > 1 or not all(
                place in self._slices or (row_major and (self._is_own(place) or self._is_own_of_step_before(place)))
                for place in items
            ):
                return False
        for i, a in enumerate(self._step.nodes):
            if i in self._writes:
                if not self._writes_all(i, a):
                    return False
            elif i in self._rows:
                if not self._writes_row(i, a):
                    return False
            elif i in self._moving:
                if not self._is_slice_of_one_tensor(a):
                    return False
            elif not _may_be_in_body(a.node.op):
                return False
            if not state.grad_enabled and any(requires for _, requires in a.kinds):
                return False
        return True

    def _root(self, place: StepValue) -> StepValue:
        """The value whose memory a value has."""
        while place in self._views:
            place = self._views[place].operands[0]
        return place

    def _is_own(self, place: StepValue) -> bool:
        """Whether a step computes a value, or what it is a view of: then nobody else has its memory."""
        root = self._root(place)
        return root[0] == LOCAL and root not in self._moving_views

    def _is_own_of_step_before(self, place: StepValue) -> bool:
        """Whether the step before has computed a value and left it in one place, `states.append(x)` before `x = f(x)`, and this
        step hands it on to none: then nobody else has its memory."""
        kind, k = place
        if kind != LIVE_IN or k not in self.carried or place in self._step.carried_on:
            return False
        return self._is_own(self._next(k))

    def _is_part_of_what_stays(self, place: StepValue) -> bool:
        """Whether a value is a slice, `before = x`, or a part of a slice or of what is the same in all steps, `p = table[p]`.  Steps
        write neither to that nor to the part, so without a gradient the next step may have a copy; after the loop, the last steps,
        which run, have left the view itself."""
        kind, k = root = self._root(place)
        stays = kind == LIVE_IN and (k < self._elements or self._next(k) == root)
        is_part = place in self._slices or (root != place and (stays or kind == SHARED or root in self._slices))
        return is_part and not self._kinds[place][1]

    def _is_slice_of_one_tensor(self, a: StepNode) -> bool:
        """Whether a view at a place that moves is one of the same tensor in all steps, or of the same view of it, `x[0, t]`; its
        places count from the front."""
        if a.is_window and a.kinds[0][1]:  # cotangents of overlapping slices would be added up in another order
            return False
        place = kind, k = self._root(a.operands[0])
        if kind == LOCAL or (kind == LIVE_IN and (k < self._elements or self._next(k) != place)):
            return False
        if a.operands[0] != place and self._kinds[place][1]:  # cotangents of each such view would arrive by themselves
            return False
        return a.position is not None and a.position >= 0

    # -- writes
    def _row_writes(self, step: LoopStep) -> dict[int, int]:
        """The nodes that write a row (`out[t] = h`), each with the view of the row: of tensors that steps do nothing else
        with."""
        uses = Counter([x for a in step.nodes for x in a.operands if type(x) is tuple])
        leaving = [place for k, place in enumerate(step.carried_on, self._elements) if place != (LIVE_IN, k)]
        leaving += [place for items in step.collected for place in items]
        rows = {}
        for i, a in enumerate(step.nodes):
            view = self._moving_views.get(a.operands[0]) if a.node.op.kind is Kind.WRITE else None
            if view is None or step.nodes[view].node.op is not select:
                continue
            base = step.nodes[view].operands[0]
            is_only_written = uses[base] == uses[a.operands[0]] == 1 and not uses[a.outputs[0]]
            if is_only_written and not {base, a.operands[0], a.outputs[0]} & {*leaving}:
                rows[i] = view
        return rows

    def _without_writes(self, step: LoopStep) -> LoopStep:
        """The step with what has been written to all of a tensor read in the place of that tensor."""
        same: dict[Any, Any] = {}
        targets: dict[StepValue, StepValue] = {}
        nodes = []
        for i, a in enumerate(step.nodes):
            nodes.append(replace(a, operands=tuple([same.get(x, x) for x in a.operands])))
            if i in self._writes:
                same[a.outputs[0]] = nodes[-1].operands[1]
                targets[a.outputs[0]] = self._targets[i] = targets.get(a.operands[0], a.operands[0])
        collected = [[same.get(x, x) for x in items] for items in step.collected]
        return replace(step, nodes=nodes, carried_on=[same.get(x, x) for x in step.carried_on], collected=collected)

    def _writes_all(self, i: int, a: StepNode) -> bool:
        """Whether a write gives a carried tensor, which has memory of its own, other contents and their place on the tape."""
        target, value = self._targets[i], a.operands[1]
        if target[0] != LIVE_IN or target[1] not in self.carried or self._kinds.get(value) != a.kinds[0]:
            return False
        begun = self._live_ins[target[1]]
        others = [other for k, other in self._writes.items() if self._targets[k] == target]
        has_place = begun.requires_grad or self._kinds[target][1] or any(other.kinds[0][1] for other in others)
        if self._has_tape and has_place and not a.with_grad:  # what is written leaves the tensor at its place
            return False
        return self._has_own_memory(begun)

    def _writes_row(self, i: int, a: StepNode) -> bool:
        """Whether a write gives a row of a tensor of the call, which has memory of its own, other contents and their place on the
        tape."""
        (kind, k), value = self._step.nodes[self._rows[i]].operands[0], a.operands[1]
        if kind != LIVE_IN or a.with_grad is not state.grad_enabled or type(value) is not tuple:
            return False
        return self._kinds[value] == a.kinds[0] and self._has_own_memory(self._live_ins[k])

    def _has_own_memory(self, x: Tensor) -> bool:
        """Whether nothing that steps read has the memory of `x`, as `x.detach()` and `x.data` do."""
        if x._base is not None:
            return False
        roots = [self._root(self._step.nodes[i].operands[0]) for i in self._moving]
        bases = [self._outside(root) for root in roots if root[0] == SHARED]
        others = (*self._live_ins, *self._shared.values(), *bases)
        return not any(isinstance(y, Tensor) and y is not x and np.may_share_memory(y._array, x._array) for y in others)

    def _saves_what_is_written(self, step: LoopStep) -> bool:
        """Whether something saves memory that is written, or looks at it: then a backward pass may refuse, or a view may
        change."""
        written = {a.operands[0] for a in self._writes.values()} | {a.outputs[0] for a in self._writes.values()}
        if any(place in written for items in step.collected for place in items):
            return True
        for i, a in enumerate(step.nodes):
            if i in self._writes or written.isdisjoint(a.operands):
                continue
            needs = tuple([type(x) is tuple and self._kinds[x][1] for x in a.operands])
            saved = a.node.op.saved_for(needs)[0] if any(requires for _, requires in a.kinds) else ()
            if a.node.op.effect is Effect.VIEW or any(a.operands[k] in written for k in saved):
                return True
        return False

    def _writes_what_was_appended(self) -> bool:
        """Whether a step changes what it is given, and a step before has appended that."""
        items = {*map(self._root, self._appended)}
        live_ins = {k: self._root(place) for k, place in enumerate(self._step.carried_on, self._elements)}
        appended = {(LIVE_IN, k) for k, root in live_ins.items() if root in items or (LIVE_IN, k) in items}
        while True:
            more = {(LIVE_IN, k) for k, root in live_ins.items() if root in appended} - appended
            if not more:
                return not appended.isdisjoint(self._targets.values())
            appended |= more

    def _are_alone(self) -> bool:
        """Whether each item that other code may see is an object of its own: no other list, no place from which the next step appends,
        and no view has it.  Nor has a variable once the last two steps have run, if no tensor is handed on more than once from one place
        to another."""
        left = {k: self._next(k) for k in range(self._elements, len(self._live_ins))}
        for place in self._visible:
            others = [(LIVE_IN, k) for k, x in left.items() if x == place]  # by which the next step may append it again
            others += [left[place[1]]] if place[0] == LIVE_IN and place[1] in left else []
            if place in self._slices or self._root(place) != place or self._appended.count(place) > 1:
                return False
            if not {*others}.isdisjoint(self._appended):
                return False
        handed_on = {k: j for k, (kind, j) in left.items() if kind == LIVE_IN and j != k}
        return not any(j in handed_on for j in handed_on.values())

    def _owns_what_it_hands_on(self) -> bool:
        """Whether an operation of the call has made what steps only hand from place to place: a loop leaves copies of what enters
        it."""
        handed_on = {k for k in self.carried if self._next(k)[0] == LIVE_IN and self._next(k) not in self._slices}
        handed_on |= {self._next(k)[1] for k in handed_on}
        return all(self._is_result_of_call(self._live_ins[k]) for k in handed_on)

    def _is_result_of_call(self, x: Tensor) -> bool:
        maker = self._interpreter.producer(self._interpreter.values[id(x)])
        return maker is not None and maker.op.effect is Effect.PURE and x._base is None

    # -- the node
    def emit(self, elements: Sequence[SlicedInput], count: Any) -> tuple[dict[int, Tensor], list[list[Any]]] | None:
        """(live-in -> what is in its place after `count` steps, the items that steps have appended to each list); None where a
        node could not stand for them: then nothing has been recorded.  elements: the slices that the loop goes over."""
        begin = self._interpreter.journal.mark()
        results = self._emit(elements, count)
        if results is None:
            self._interpreter.truncate(begin)
        return results

    def _emit(self, elements: Sequence[SlicedInput], count: Any) -> tuple[dict[int, Tensor], list[list[Any]]] | None:
        sliced: dict[StepValue, SlicedInput] = {(LIVE_IN, k): x for k, x in enumerate(elements)}
        for i, distance in self._moving.items():
            a = self._step.nodes[i]
            view = SlicedInput(self._base(a.operands[0]), a.node.attrs["dim"], a.position + distance, distance)  # type: ignore[operator]
            sliced[a.outputs[0]] = view._replace(window=a.width) if a.is_window else view._replace(width=a.width)
        sliced = {place: x._replace(is_tracked=self._kinds[place][1] or not x.base.requires_grad) for place, x in sliced.items()}
        carried: list[StepValue] = [(LIVE_IN, k) for k in self.carried]
        shared = dict(self._shared)
        shared.update((x, self._live_ins[x[1]]) for x in self._read if x[0] == LIVE_IN and x not in sliced and x not in carried)
        graph, places = self._body(carried, [*sliced], [*shared])
        slices = {x: sliced[x] for x in places if x in sliced}
        given = [shared[x] for x in places if x in shared]
        entered = [self._live_ins[k] for k in self.carried]
        written = {i: sliced[self._step.nodes[view].outputs[0]] for i, view in self._rows.items()}
        distances = [x.distance for x in (*slices.values(), *written.values())]
        reverse = bool(distances) and max(distances) < 0
        appended_slices = dict.fromkeys([x for x in self._appended if x in self._slices])
        if (self._appended or written) and not count > 2:
            return None
        if any(sliced[x].distance < 0 for x in appended_slices):  # a view of them in the order of the steps would be a copy
            return None
        if graph.nodes and not graph.outputs:  # steps that check something, and leave nothing but slices
            return None
        if graph.outputs and not (entered or slices or given):  # nothing says of what kind the loop is
            return None
        if not (
            carried_memory_is_disjoint(graph, entered)
            and cotangents_are_disjoint([*slices.values()], given)
            and backward_is_indivisible(graph, len(carried))
        ):
            return None
        # A backward pass reaches the slices of one tensor that were made last first: these have to be the ones that later steps read again.
        order = sorted(slices, key=lambda x: -slices[x].at if slices[x].distance > 0 else slices[x].at)
        stacked = {place: slices[place].stacked(count, reverse) for place in order}
        last_writes = {self._targets[i][1]: a for i, a in self._writes.items()}
        states = {id(x) for x in self._interpreter.generators_drawn_from()}
        drawn = {k: self._live_ins[k]._array.copy() for k in last_writes if id(self._live_ins[k]) in states}
        try:
            results = LoopResults([], [], {})
            if graph.outputs:  # else slices are appended as they are
                results = emit_loop(graph, entered, [stacked[place] for place in slices], given, count, reverse)
        except StepFailed:  # it raises, or a guard does not hold: that is left to the step itself
            return None
        ends = dict(zip(self.carried, results.ends, strict=True))
        moves = [(last_writes[k].node.line, before, self._live_ins[k], ends[k]) for k, before in drawn.items()]
        if not self._interpreter.leave_generators(moves):
            return None
        for k, a in last_writes.items():
            if k not in drawn:
                self._write(a, self._live_ins[k], ends[k])
            ends[k] = self._live_ins[k]
        collected = iter(results.collected)
        stacked.update((place, sliced[place].stacked(count)) for place in appended_slices if place not in stacked)
        items = self._items(results, ends, collected, count, reverse, stacked)
        for i, x in written.items():
            rows = _reversed_rows(next(collected), (x.distance < 0) is not reverse)
            self._write(self._step.nodes[i], x.stacked(count), rows)
        return ends, items

    def _base(self, place: StepValue) -> Any:
        """A tensor that is the same in all steps, or a view of one."""
        if place not in self._views:
            return self._outside(place)
        a = self._views[place]
        others = [x.value if isinstance(x, Literal) else x for x in a.operands[1:]]
        if a.position is not None and a.node.op is select:
            others[0] = a.position
        return a.node.op.of(self._base(a.operands[0]), *others, **a.node.attrs)

    def _body(
        self, carried: Sequence[StepValue], sliced: Sequence[StepValue], shared: Sequence[StepValue]
    ) -> tuple[Graph, list[StepValue]]:
        """See `body_graph`.  It gives what is carried on, then the items of lists, then the rows that are written."""
        copies: list[StepNode] = []

        def copied(place: StepValue, line: str = "") -> StepValue:
            """A value of its own, which has the contents of another one."""
            node = Node(clone, (), (), (), line)
            copies.append(StepNode(node, (place,), (), None, (("copy", len(copies)),), (self._kinds[place],)))
            return copies[-1].outputs[0]

        outputs = [copied(x) if self._is_part_of_what_stays(x) else x for x in map(self._next, self.carried)]
        for place in self._appended:
            if place not in self._slices:
                outputs.append(copied(place) if self._root(place) != place else place)  # a view is collected by itself
        # A gradient arrives where a row was written, so the row is a value of its own.
        outputs += [copied(self._step.nodes[i].operands[1], self._step.nodes[i].node.line) for i in self._rows]
        nodes = [*[self._step.nodes[i] for i in self._computing if i not in self._rows], *copies]
        kinds = self._kinds | {a.outputs[0]: a.kinds[0] for a in copies}
        return body_graph(nodes, [*carried, *sliced, *shared], outputs, kinds, kept=carried)

    def _items(
        self,
        results: LoopResults,
        ends: Mapping[int, Tensor],
        collected: Iterator[Tensor],
        count: Any,
        reverse: bool,
        stacked: Mapping[StepValue, Tensor],
    ) -> list[list[Any]]:
        """What steps have appended to each list, in the order of the steps.  stacked: slices; those that are appended are also
        what steps compute with, so that their gradients are added up row by row.

        What is carried on as well is what was carried before each step but the first, and what is carried in the end: so
        gradients of an item arrive before those that the next step has of it."""
        result: list[list[Any]] = []
        for items in self._step.collected:
            place = items[0] if items else None
            if place is None:
                result.append([])
                continue
            if place in self._slices:
                result.append([StackedItems(stacked[place], count)])
                continue
            if self._is_own_of_step_before(place):
                history = results.history[self.carried.index(place[1])]
                result.append([StackedItems(_reversed_rows(history, reverse), count)])
                continue
            on = [n for n, k in enumerate(self.carried) if self._next(k) == place]
            if on and self._root(place) == place:
                start, stop = (0, count - 1) if reverse else (1, count)
                before = slice_.of(results.history[on[0]], dim=0, start=start, stop=stop, step=1)
                result.append([StackedItems(_reversed_rows(before, reverse), count - 1), ends[self.carried[on[0]]]])
            else:
                result.append([StackedItems(_reversed_rows(next(collected), reverse), count)])
        return result

    def _write(self, a: StepNode, target: Tensor, value: Tensor) -> None:
        recorder = self._interpreter.recorder
        line, recorder.line = recorder.line, a.node.line
        try:
            with set_grad_enabled(bool(a.with_grad)):
                a.node.op.of(target, value, **a.node.attrs)
        finally:
            recorder.line = line


def _may_be_in_body(op: Op) -> bool:
    """Whether an operation may be part of a loop: a function of its operands, or a guard, which leaves the loop."""
    return op.kind in (Kind.GUARD, Kind.RANDOM) or (op.effect in (Effect.PURE, Effect.VIEW) and op.kind is not Kind.OPAQUE)


def _reversed_rows(rows: Tensor, is_reversed: bool) -> Tensor:
    return flip.of(rows, dims=(0,)) if is_reversed else rows  # type: ignore[no-any-return]
