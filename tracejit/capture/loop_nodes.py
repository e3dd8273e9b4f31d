"""Steps of a Python loop that do the same as one node of the graph, `loop` (ir/loop.py), and one step of the tape.

That is as good as the steps themselves where nobody can ask for what they have made in between.  So carried is what a step reads of the
step before; what steps make besides is nobody's, and a view at a place that moves with the steps is a slice of the loop.  Writes to all
of a tensor that is carried carry on what they write, and rows that are written one by one (`out[t] = h`) are written together.  What is
appended to a list that nothing else sees stays in one piece (stacked_items.py).  Steps that write or append otherwise do not
become a node.  Guards and draws may be part of one.

The gradients are to have the bits of those of the steps, and a backward pass is to refuse where theirs would.  So the loop saves what the
operations of the steps save (`Saved`); cotangents of a tensor that is shared go on from what has arrived before (the trait "accumulates");
and steps are left as they are where a pass would meet another part of each of them (`_backward_is_indivisible`), or where cotangents of one
tensor arrive in several ways (`_cotangents_disjoint`).

Steps that stay as they are:

- carry on a view of what they were given.  Without a gradient there are two exceptions: a slice, `before = x`, which is one place further
  back in the next step, and a part at a place that the program computes, `s = table[a]`, which is copied;
- carry on a tensor that is not row-major, or one that requires grad in every second step, `a, b = b, f(a)`;
- read windows of what requires grad, `xs[t - 2 : t]`, whose gradients would be added up in another order, or parts that grow, `xs[:t]`;
- read rows of a tensor with a gradient that they read as a whole, too, or at places such as `(t + 1) % n`;
- append what they were given, `outs.append(h); h = f(h)`, or change what a step before has appended;
- write rows of a tensor that requires grad where they read them, too, or call functions of the host.

A backward pass frees the loop as a whole, even a pass to some of its operands alone, and `grad_fn` leads to one node for all steps.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import accumulate
from itertools import count as numbers_from
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracejit.autograd.grad_mode import set_grad_enabled
from tracejit.autograd.tape import edge_of
from tracejit.capture.loop_steps import LoopStep, StackedItems, StepNode, StepValue
from tracejit.capture.row_writes import RowBefore, WrittenRows
from tracejit.core.aval import Aval, ScalarAval
from tracejit.core.interpreter import state
from tracejit.core.op import Effect, Kind, Op
from tracejit.ir.builder import producers
from tracejit.ir.graph import Body, Graph, Literal, Node
from tracejit.ir.interpreter import StepFailed
from tracejit.ir.loop import Saved, loop
from tracejit.ops.movement.copies import clone, flip
from tracejit.ops.movement.views import detach, permute, reshape, select, slice_, unfold
from tracejit.passes.backward import gradient_operands
from tracejit.passes.dce import dce
from tracejit.passes.loop_gradient import differentiable_loop
from tracejit.passes.memory import memory_roots
from tracejit.passes.partition import saved_values
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.tensors import RecordingInterpreter

__all__ = ["SlicedInput", "StepsAsLoop", "loop_node", "row"]


class LoopResults(NamedTuple):
    """What a loop leaves: what is carried in the end, what it has collected, and what was carried before each step."""

    ends: list[Tensor]
    collected: list[Tensor]
    history: dict[int, Tensor]


def loop_node(
    body: Graph, entered: Sequence[Tensor], sliced: Sequence[Tensor], shared: Sequence[Any], count: int, reverse: bool
) -> LoopResults:
    """What `count` steps leave that do what `body` says.  It carries on as many values as enter; of those that it collects, after them,
    some may be carried on as well, or enter the step: for these there is the history instead.

    The loop saves what the operations of the steps would: where someone changes that, a backward pass says so, and not else."""
    carried, last = len(entered), len(entered) + len(sliced)
    like = [x.requires_grad for x in entered]
    ends, collected = body.outputs[:carried], body.outputs[carried:]
    wanted: dict[Any, None] = {}  # values that the gradient needs
    tracked = state.grad_enabled and any(isinstance(x, Tensor) and x.requires_grad for x in (*entered, *sliced, *shared))
    if tracked:
        marked = body.requires_grad
        differentiable = [node for node in body.nodes if gradient_operands(node, marked) and not marked.isdisjoint(node.outputs)]
        makers = producers(body)
        saved = [v for node in differentiable for v in saved_values(body, node, marked)]
        wanted = dict.fromkeys([x for v in saved for x in _view_operands(body, makers, v)])
    entering = body.inputs[:carried]
    kept = [k for k in range(carried) if not {entering[k], ends[k]}.isdisjoint((*wanted, *collected))]
    order = [*kept, *[k for k in range(carried) if k not in kept]]
    inputs, outputs = [body.inputs[k] for k in order], [ends[k] for k in order]
    collected = tuple([v for v in collected if v not in ends and v not in entering])
    residuals = [v for v in wanted if v not in body.inputs and v not in outputs]
    body = replace(body, inputs=(*inputs, *body.inputs[carried:]), outputs=(*outputs, *collected, *residuals))
    if tracked:
        after = [k for k, v in enumerate(outputs) if v in wanted and v not in outputs[:k] and v not in inputs]
        kinds = Saved(
            operands=tuple([k for k in range(carried, len(body.inputs)) if body.inputs[k] in wanted]),
            before=tuple([k for k in range(len(kept)) if inputs[k] in wanted or k in after]),
            after=tuple(after),
            results=carried + len(collected),
            residuals=len(residuals),
        )
        op = differentiable_loop(len(kept), kinds)
    else:
        op, body = loop(len(kept)), replace(body, requires_grad=frozenset())
    given = (*[entered[k] for k in order], *sliced, *shared)
    found = op.of(*given, body=Body(body), carried=carried, sliced=last - carried, count=count, reverse=reverse)
    history, found = found[: len(kept)], found[len(kept) :]
    results = [x for _, x in sorted(zip(order, found[:carried], strict=True), key=itemgetter(0))]
    results = [y if y.requires_grad == marked else detach(y) for y, marked in zip(results, like, strict=True)]
    rows = [y if v in body.requires_grad or not tracked else detach(y) for v, y in zip(collected, found[carried:], strict=False)]
    before = {k: y if like[k] or not y.requires_grad else detach(y) for k, y in zip(kept, history, strict=True)}
    return LoopResults(results, rows, before)


def _view_operands(body: Graph, makers: Mapping[int, Node], v: int) -> list[int]:
    """The value whose memory another one has, and those that say where it looks: what a view is made of again."""
    maker = makers.get(v)
    if maker is None or maker.op.effect is not Effect.VIEW:
        return [v]
    tensors = [x for x in maker.operands if type(x) is int and isinstance(body.avals[x], Aval)]
    return [y for x in tensors for y in _view_operands(body, makers, x)]


def row(base: Tensor, dim: int, at: Any, width: int | None = None) -> Tensor:
    """The slice of `base` at a place along `dim`.  width: how long slices are along that, if they have it."""
    if width is not None:
        return slice_.of(base, dim=dim, start=at * width, stop=(at + 1) * width, step=1)  # type: ignore[no-any-return]
    return select.of(base, at, dim=dim)  # type: ignore[no-any-return]


class SlicedInput(NamedTuple):
    """One tensor for each step: slices of `base` along `dim`, the first one at `at`, the next one `distance` further.  since: when they
    were made, by the numbers of the tape, where that was before the steps.  width: how long they are along that dimension, if they have
    it: then `at` and `distance` count slices.  window: how long they are where they may overlap: then these count elements.  is_tracked:
    whether they require grad if `base` does: it may be looked at in `no_grad()`."""

    base: Tensor
    dim: int
    at: int
    distance: int
    since: float | None = None
    width: int | None = None
    window: int | None = None
    is_tracked: bool = True

    def one(self, k: int) -> Tensor:
        """That of step k."""
        at = self.at + k * self.distance
        with set_grad_enabled(state.grad_enabled and self.is_tracked):
            if self.window is not None:
                return slice_.of(self.base, dim=self.dim, start=at, stop=at + self.window, step=1)  # type: ignore[no-any-return]
            return row(self.base, self.dim, at, self.width)

    def stacked(self, count: int, reverse: bool | None = None) -> Tensor:
        """Those of so many steps along the first dimension.  reverse: the direction in which a loop goes through them; without one they are
        in the order of their places: a view."""
        with set_grad_enabled(state.grad_enabled and self.is_tracked):
            return self._stacked(count, reverse)

    def _stacked(self, count: int, reverse: bool | None) -> Tensor:
        last = self.at + self.distance * (count - 1)
        start, stop = (self.at, last + 1) if self.distance > 0 else (last, self.at + 1)
        made = []
        base, width = self.base, self.width
        if width is not None:
            if width > 1:
                base = slice_.of(base, dim=self.dim, start=start * width, stop=stop * width, step=1)
                made.append(base)
                start, stop = 0, stop - start
            shape = base.shape
            length = shape[self.dim] if width == 1 else stop
            base = reshape.of(base, shape=(*shape[: self.dim], length, width, *shape[self.dim + 1 :]))
            made.append(base)
        dims = [d for d in range(base.ndim) if d != self.dim]
        if self.window is not None:
            dims.insert(self.dim, base.ndim)  # the elements of a window
            base = unfold.of(base, dim=self.dim, size=self.window, step=1, dilation=1)
            made.append(base)
        made.append(slice_.of(base, dim=self.dim, start=start, stop=stop, step=abs(self.distance)))
        if self.dim or self.window is not None:
            made.append(permute.of(made[-1], dims=(self.dim, *dims)))
        if reverse is not None and (self.distance < 0) is not reverse:
            made.append(flip.of(made[-1], dims=(0,)))
        if self.since is not None and made[-1].requires_grad:  # cotangents of `base` are added up in the order of these numbers
            for k, x in enumerate(made, 1):
                x._node.sequence = self.since + k / 8
        return made[-1]  # type: ignore[no-any-return]


class _Trailing(NamedTuple):
    """What a step is given of a slice of a step before: so many steps before, and views of it, each of the one before."""

    slice: StepValue
    steps: int
    views: tuple[StepNode, ...]


def _viewed(a: StepNode, x: Tensor) -> Any:
    """The view of `x` that a step has made of another tensor, where nothing but that differs from step to step."""
    others = [x.value if isinstance(x, Literal) else x for x in a.operands[1:]]
    if a.position is not None and a.node.op is select:
        others[0] = a.position
    return a.node.op.of(x, *others, **a.node.attrs)


def _operands(a: StepNode, ids: Mapping[StepValue, int]) -> tuple[Any, ...]:
    """The operands of a node of a step in a graph.  ids: the values there, by their places."""
    operands = [ids[x] if type(x) is tuple else x for x in a.operands]
    if a.position is not None and a.node.op is select:
        operands[1] = Literal(a.position)
    return tuple(operands)


def _reversed_rows(rows: Tensor, other: bool) -> Tensor:
    """Rows in the other order, if so."""
    return flip.of(rows, dims=(0,)) if other else rows  # type: ignore[no-any-return]


class StepsAsLoop:
    """A step of a Python loop as the body of a loop.

    carried: the places, among the tensors that a step begins with, of what it reads of the step before.  What is written to one of these
    (`loss += ...`) is what is carried on; the tensor itself gets it in the end."""

    def __init__(
        self,
        interpreter: RecordingInterpreter,
        step: LoopStep,
        moves: Sequence[int],
        begins: Sequence[Tensor],
        elements: int,
        row_major: Sequence[bool],
        items: Collection[int] = (),
        listed: Sequence[Tensor] = (),
    ) -> None:
        """moves: how far the position of each node moves from step to step.  begins: the tensors that the first step begins with, of which
        so many come first that are elements of what Python goes through.  row_major: whether what the step appends to each list is.
        items: those elements that are no views, but items of lists; listed: the tensors in these lists, which the loop reads as they are
        before it."""
        self._listed = listed
        self._has_tape = not step.takes_gradients
        self._row_major = row_major
        self._interpreter = interpreter
        self._begins = begins
        self._elements = elements
        self._moving = {i: distance for i, distance in enumerate(moves) if distance}  # nodes that are slices of the loop
        counts = [len(a.kind) for a in step.nodes]
        self._numbers = [*accumulate(counts, initial=0)][:-1]  # of the first value that each node makes
        # Places of values -> (aval, whether it requires grad).
        self._kinds: dict[StepValue, tuple[Any, bool]] = {("given", k): self._kind(x) for k, x in enumerate(begins)}
        for a, number in zip(step.nodes, self._numbers, strict=True):
            self._kinds.update((("made", number + k), kind) for k, kind in enumerate(a.kind))
        selected = {i: distance for i, distance in self._moving.items() if step.nodes[i].node.op is select}
        written = WrittenRows(step, elements, self._numbers, selected, self._kinds)
        self._rows, self._before, self._done = written.rows, written.before, written.done
        for k, row in enumerate(self._before, len(begins)):
            self._kinds["given", k] = row.kind
        self._moving = {i: distance for i, distance in self._moving.items() if i not in self._done}
        step = written.step
        writes = [i for i, a in enumerate(step.nodes) if a.node.op.kind is Kind.WRITE]
        self._writes = {i: step.nodes[i] for i in writes if i not in self._rows and i not in self._done}
        self._done.update(self._moving, self._writes)
        self._targets: dict[int, StepValue] = {}  # of writes to all of a tensor: which, as the step begins with it
        self._step = self._without_writes(step)
        computing = [(i, a) for i, a in enumerate(self._step.nodes) if i not in self._done]
        operands = [x for i, a in computing for x in (a.operands[1:] if i in self._rows else a.operands)]
        self._read = dict.fromkeys([x for x in operands if type(x) is tuple])
        self._others = {x: self._outside(x) for x in self._read if x not in self._kinds}
        self._kinds.update((x, self._kind(y)) for x, y in self._others.items())
        self._viewing: dict[StepValue, StepNode] = {
            ("made", number): a
            for i, (a, number) in enumerate(zip(self._step.nodes, self._numbers, strict=True))
            if a.node.op.kind is Kind.VIEW and i not in self._moving
        }
        self._viewed = {place: a.operands[0] for place, a in self._viewing.items()}
        # Views that move with the steps: what keeps one of these keeps a view of the same memory.
        self._slices = {("given", k) for k in range(elements) if k not in items} | {
            ("made", self._numbers[i]) for i in self._moving
        }
        self._trailing = self._trailing_slices()
        self._kinds.update((("trailing", k), self._kinds[x.slice]) for k, x in self._trailing.items())
        self.carried = self._live_values()
        self.left = LoopResults([], [], {})
        """What the node has left, once there is one."""
        self.collected: list[int] = []
        """The lists whose items it has collected, in this order."""
        self.is_reverse = False
        self.is_possible = (
            self._is_possible()
            and not self._saves_what_is_written(step)
            and not self._writes_what_was_appended()
            and self._hands_its_own()
        )

    def _live_values(self) -> list[int]:
        """What the step computes with, and what the next one is given of that as it is; so for what it hands from place to place without
        computing: only a value that it makes anew is none that the steps after the loop need."""
        left, first = self._step.left, self._elements
        changed = {k: place for k, place in enumerate(left, first) if place != ("given", k) and k not in self._trailing}
        appended = {place for items in self._step.appended for place in items}
        handed = {j for kind, j in changed.values() if kind == "given" and j in changed}
        found = [k for k in changed if ("given", k) in self._read or k in handed or ("given", k) in appended]
        for k in found:
            kind, j = left[k - first]
            if kind == "given" and j not in found:
                found.append(j)
        return found

    def _trailing_slices(self) -> dict[int, _Trailing]:
        """What steps keep of their slices for the next one (`before = x`, `before = xs[:, t].unsqueeze(1)`), or for the one after that, by
        their places among what a step is given: slices as well, further back."""
        left = dict(enumerate(self._step.left[: len(self._begins) - self._elements], self._elements))
        found = {k: x for k, place in left.items() if (x := self._kept_slice(place)) is not None}
        handed = {k: place[1] for k, place in left.items() if place[0] == "given" and place[1] != k and k not in found}
        return found | {k: found[j]._replace(steps=2) for k, j in handed.items() if j in found}

    def _kept_slice(self, place: StepValue) -> _Trailing | None:
        """What the step after this one is given, if that is a slice, or a view of one.  Where slices require grad, cotangents of one would
        be added up in another order."""
        views: list[StepNode] = []
        while place in self._viewing:
            views.insert(0, self._viewing[place])
            place = views[0].operands[0]
        if place not in self._slices or self._kinds[place][1] or any(type(x) is tuple for a in views for x in a.operands[1:]):
            return None
        return _Trailing(place, 1, tuple(views))

    def _kind(self, x: Any) -> tuple[Any, bool]:
        if not isinstance(x, Tensor):
            return ScalarAval(type(x._value)), False
        value = self._interpreter.values[id(x)]
        return self._interpreter.avals[value], self._has_tape and value in self._interpreter.requires_grad

    def _outside(self, place: StepValue) -> Any:
        """What is the same in all steps: a tensor, or a number."""
        kind, k = place
        if kind == "given":
            return self._begins[k]
        numbers = self._interpreter.numbers
        return numbers[k] if k in numbers else self._interpreter.defined[k]

    def _is_possible(self) -> bool:
        """Whether a loop can do what the step does, and nothing that it makes besides what it carries on is anybody's."""
        collects = any(self._step.appended) or bool(self._rows)
        if not (self.carried or collects) or any(k < self._elements for k in self.carried):
            return False
        windows = {("made", self._numbers[i]) for i in self._moving if self._step.nodes[i].is_window}
        appended = [self._root(place) for items in self._step.appended for place in items]
        if not windows.isdisjoint(appended):  # nobody could write to the view that stands for all of them
            return False
        for items, row_major in zip(self._step.appended, self._row_major, strict=True):
            if len(items) > 1 or not all(
                place in self._slices or (row_major and (self._is_step_result(place) or self._enters(place))) for place in items
            ):
                return False
        for i, a in enumerate(self._step.nodes):
            op = a.node.op
            if i in self._writes or i in self._rows:
                if not (self._is_of_all(i, a) if i in self._writes else self._is_of_a_row(i, a)):
                    return False
            elif i in self._moving:
                if not self._is_invariant_view(a):
                    return False
            elif i not in self._done and not _may_be_looped(op):
                return False
            if not state.grad_enabled and any(requires for _, requires in a.kind):
                return False
        return True

    @property
    def appends_slices(self) -> bool:
        """Whether some item of a list is a slice as it is."""
        return any(place in self._slices for items in self._step.appended for place in items)

    @property
    def appends_what_enters(self) -> bool:
        """Whether some item of a list is what the step before has left."""
        return any(self._enters(place) for items in self._step.appended for place in items)

    @property
    def appends_twice(self) -> bool:
        """Whether items of several lists have the same memory."""
        places = [place for items in self._step.appended for place in items]
        roots = [self._root(self._step.left[place[1] - self._elements] if self._enters(place) else place) for place in places]
        return len({*roots}) < len(roots)

    def _enters(self, place: StepValue) -> bool:
        """Whether it is what the step before has made and left in one place, `states.append(x)` before `x = f(x)`, and what this step hands
        on to none: then nobody else has its memory."""
        kind, k = place
        if kind != "given" or k not in self.carried or place in self._step.left:
            return False
        return self._is_step_result(self._step.left[k - self._elements])

    def _is_step_result(self, place: StepValue) -> bool:
        """Whether a value, or what it is a view of, is one that a step makes, and no slice: nobody else has its memory."""
        root = self._root(place)
        return root[0] == "made" and all(root != ("made", self._numbers[i]) for i in self._moving)

    def _is_computed_slice(self, place: StepValue) -> bool:
        """Whether a value is a part, at a place that the program computes, of what is there before the steps, `p = table[p]`: without a
        gradient a copy of it is as good to the next step, since steps write neither to that nor to the part."""
        kind, k = root = self._root(place)
        given = kind == "given" and (k < self._elements or self._step.left[k - self._elements] == root)
        return root != place and (given or kind == "shared" or root in self._slices) and not self._kinds[place][1]

    def _root(self, place: StepValue) -> StepValue:
        """What a value is a view of, or itself."""
        while place in self._viewed:
            place = self._viewed[place]
        return place

    def _is_invariant_view(self, a: StepNode) -> bool:
        """Whether a view at a place that moves is always one of the same tensor, of which places count from the front; or of the same view
        of it, `x[0, t]`."""
        if a.is_window and a.kind[0][1]:  # cotangents of overlapping slices would be added up in another order
            return False
        place = kind, k = self._root(a.operands[0])
        if kind == "made" or (kind == "given" and (k < self._elements or self._step.left[k - self._elements] != place)):
            return False
        if a.operands[0] != place and self._kinds[place][1]:  # cotangents of each such view would arrive by themselves
            return False
        return a.position is not None and a.position >= 0

    def _base(self, place: StepValue) -> Any:
        """A tensor that is the same in all steps, or a view of one."""
        if place not in self._viewed:
            return self._outside(place)
        a = self._viewing[place]
        return _viewed(a, self._base(a.operands[0]))

    # -- writes
    def _without_writes(self, step: LoopStep) -> LoopStep:
        """The step where what has been written to a tensor is read in the place of that tensor."""
        same: dict[Any, Any] = {}
        targets: dict[StepValue, StepValue] = {}
        nodes = []
        for i, (a, number) in enumerate(zip(step.nodes, self._numbers, strict=True)):
            nodes.append(replace(a, operands=tuple([same.get(x, x) for x in a.operands])))
            if i in self._writes:
                same["made", number] = nodes[-1].operands[1]
                targets["made", number] = self._targets[i] = targets.get(a.operands[0], a.operands[0])
        return LoopStep(nodes, [same.get(x, x) for x in step.left], [[same.get(x, x) for x in items] for items in step.appended])

    def _is_of_all(self, i: int, a: StepNode) -> bool:
        """Whether a write gives a tensor that is carried, and has memory of its own, other contents and their place on the tape."""
        target, value = self._targets[i], a.operands[1]
        if target[0] != "given" or target[1] not in self.carried or self._kinds.get(value) != a.kind[0]:
            return False
        begun = self._begins[target[1]]
        has_place = begun.requires_grad or self._kinds[target][1] or any(w.kind[0][1] for w in self._writes_to(target))
        if self._has_tape and has_place and not a.with_grad:  # what is written leaves the tensor at its place
            return False
        return self._has_own_memory(begun)

    def _writes_to(self, target: StepValue) -> list[StepNode]:
        return [a for i, a in self._writes.items() if self._targets[i] == target]

    def _is_of_a_row(self, i: int, a: StepNode) -> bool:
        """Whether a write gives a row of a tensor of the call's, which has memory of its own, other contents and their place on the
        tape."""
        (kind, k), value = self._step.nodes[self._rows[i]].operands[0], a.operands[1]
        if kind != "given" or a.with_grad is not state.grad_enabled or type(value) is not tuple:
            return False
        return self._kinds[value] == a.kind[0] and self._has_own_memory(self._begins[k])

    def _has_own_memory(self, x: Tensor) -> bool:
        """Whether nothing that steps read has the memory of `x`, whatever it is to the tape: `x.detach()`, `x.data`."""
        if x._base is not None or any(y is x for y in self._listed):
            return False
        roots = [self._root(self._step.nodes[i].operands[0]) for i in self._moving]
        bases = [self._outside(root) for root in roots if root[0] == "shared"]
        others = (*self._begins, *self._listed, *self._others.values(), *bases)
        return not any(isinstance(y, Tensor) and y is not x and np.may_share_memory(y._array, x._array) for y in others)

    def _saves_what_is_written(self, step: LoopStep) -> bool:
        """Whether something saves, or looks at, memory that is written: then a backward pass may refuse, or a view may change."""
        written = {a.operands[0] for a in self._writes.values()} | {("made", self._numbers[i]) for i in self._writes}
        if any(place in written for items in step.appended for place in items):
            return True
        for i, a in enumerate(step.nodes):
            if i in self._writes or written.isdisjoint(a.operands):
                continue
            needs = tuple([type(x) is tuple and self._kinds[x][1] for x in a.operands])
            saved = a.node.op.saved_for(needs)[0] if any(requires for _, requires in a.kind) else ()
            if a.node.op.effect is Effect.VIEW or any(a.operands[k] in written for k in saved):
                return True
        return False

    def _writes_what_was_appended(self) -> bool:
        """Whether a step changes what it begins with, and a step before has appended that."""
        left, first = self._step.left, self._elements
        items = {self._root(place) for items in self._step.appended for place in items}
        appended = {("given", k) for k, place in enumerate(left, first) if self._root(place) in items or ("given", k) in items}
        while True:
            more = {("given", k) for k, place in enumerate(left, first) if self._root(place) in appended} - appended
            if not more:
                return not appended.isdisjoint(self._targets.values())
            appended |= more

    def _hands_its_own(self) -> bool:
        """Whether what steps only hand from place to place is the call's own: a loop leaves copies of what enters it."""
        handed = {k for k in self.carried if self._step.left[k - self._elements][0] == "given"}
        handed |= {self._step.left[k - self._elements][1] for k in handed}
        return all(self._was_computed(self._begins[k]) for k in handed if k < len(self._begins))

    def _was_computed(self, x: Tensor) -> bool:
        """Whether an operation has made a tensor with memory of its own."""
        value = self._interpreter.values[id(x)]
        maker = self._interpreter.producer(value)
        return maker is not None and maker.op.effect is Effect.PURE and x._base is None

    # -- the node
    def run(self, elements: Sequence[SlicedInput], count: int) -> tuple[dict[int, Tensor], list[list[Any]]] | None:
        """(what is at the places of `carried` after `count` steps, what they have appended); None where a node could not stand for them:
        then nothing has been recorded."""
        begin = self._interpreter.journal.mark()
        left = self._run(elements, count)
        if left is None:
            self._interpreter.truncate(begin)
        return left

    def _run(self, elements: Sequence[SlicedInput], count: int) -> tuple[dict[int, Tensor], list[list[Any]]] | None:
        begins = [*self._begins, *map(self._row_before, self._before)]
        sliced: dict[StepValue, SlicedInput] = {("given", k): x for k, x in enumerate(elements)}
        for i, distance in self._moving.items():
            a = self._step.nodes[i]
            assert a.position is not None
            base = self._base(a.operands[0])
            made = SlicedInput(base, a.node.attrs["dim"], a.position + distance, distance)
            sliced["made", self._numbers[i]] = made._replace(window=a.width) if a.is_window else made._replace(width=a.width)
        for k, trailing in self._trailing.items():
            x = sliced[trailing.slice]
            sliced["trailing", k] = x._replace(at=x.at - trailing.steps * x.distance)
        sliced = {place: x._replace(is_tracked=self._kinds[place][1] or not x.base.requires_grad) for place, x in sliced.items()}
        carried: list[StepValue] = [("given", k) for k in self.carried]
        others = dict(self._others)
        known = {*sliced, *carried, *[("given", k) for k in self._trailing]}
        others.update((x, begins[x[1]]) for x in self._read if x[0] == "given" and x not in known)
        graph, places = self._body(carried, [*sliced], [*others])
        rows = {x: sliced[x] for x in places if x in sliced}
        given = [others[x] for x in places if x in others]
        entered = [begins[k] for k in self.carried]
        written = {i: sliced["made", self._numbers[view]] for i, view in self._rows.items()}
        distances = [x.distance for x in (*rows.values(), *written.values())]
        reverse = bool(distances) and max(distances) < 0
        if (any(self._step.appended) or written) and not count > 2:
            return None
        # A view of slices in the order of steps that go down would be a copy.
        if any(sliced[x].distance < 0 for items in self._step.appended for x in items if x in self._slices):
            return None
        if (graph.nodes or graph.outputs) and not (entered or rows or given):  # nothing says of what kind the loop is
            return None
        if graph.nodes and not graph.outputs:  # steps that check something, and leave nothing but slices
            return None
        if not (
            _carried_memory_is_disjoint(graph, entered)
            and _cotangents_disjoint(list(rows.values()), given)
            and _backward_is_indivisible(graph, len(carried))
        ):
            return None
        # Of slices of one tensor, a backward pass comes to that made last first: it has to be the one which later steps reach back to.
        order = sorted(rows, key=lambda place: -rows[place].at if rows[place].distance > 0 else rows[place].at)
        stacked = {place: rows[place].stacked(count, reverse) for place in order}
        last = {self._targets[i][1]: a for i, a in self._writes.items()}  # writes to each tensor
        states = {id(x) for x in self._interpreter.generators_drawn_from()}
        drawn = {k: begins[k]._array.copy() for k in last if id(begins[k]) in states}
        try:
            does_nothing = not graph.nodes and not graph.outputs  # slices are appended as they are
            left = (
                LoopResults([], [], {})
                if does_nothing
                else loop_node(graph, entered, [stacked[place] for place in rows], given, count, reverse)
            )
        except StepFailed:  # it raises, or a guard does not hold: that is left to the step itself
            return None
        self.left, self.is_reverse = left, reverse
        ends = dict(zip(self.carried, left.ends, strict=True))
        moves = [(last[k].node.line, before, begins[k], ends[k]) for k, before in drawn.items()]
        if not self._interpreter.leave_generators(moves):
            return None
        for k, a in last.items():
            if k not in drawn:
                self._write(a, begins[k], ends[k])
            ends[k] = begins[k]
        for k, trailing in self._trailing.items():
            ends[k] = reduce(lambda x, a: _viewed(a, x), trailing.views, sliced["trailing", k].one(count))
        collected = iter(left.collected)
        for place in [items[0] for items in self._step.appended if items and items[0] in self._slices]:
            if place not in stacked:
                stacked[place] = sliced[place].stacked(count)
        appended = self._appended(left, ends, collected, count, reverse, stacked)
        for i, x in written.items():
            self._write(self._step.nodes[i], x.stacked(count), _reversed_rows(next(collected), (x.distance < 0) is not reverse))
        return ends, appended

    def _row_before(self, row: RowBefore) -> Tensor:
        """What a row has in it before the loop."""
        return clone.of(select.of(self._begins[row.base[1]], row.position, dim=row.dim))  # type: ignore[no-any-return]

    def _appended(
        self,
        left: LoopResults,
        ends: dict[int, Tensor],
        collected: Iterator[Tensor],
        count: int,
        reverse: bool,
        slices: Mapping[StepValue, Tensor],
    ) -> list[list[Any]]:
        """What steps have appended to each list, in the order of the steps.  Of what is carried on, that is what came before the steps, but
        for the first, and then what came in the end: so gradients of it arrive before those that the next step has.  slices: those of all
        steps, whether steps compute with them or append them as they are: their gradients are added up row by row."""
        found: list[list[Any]] = []
        for k, items in enumerate(self._step.appended):
            if items and items[0] in self._slices:
                found.append([StackedItems(slices[items[0]], count)])
                continue
            if items and self._enters(items[0]):
                history = left.history[self.carried.index(items[0][1])]
                found.append([StackedItems(_reversed_rows(history, reverse), count)])
                continue
            on = [n for n, j in enumerate(self.carried) if items and self._step.left[j - self._elements] == items[0]]
            if on and self._root(items[0]) == items[0]:
                start, stop = (0, count - 1) if reverse else (1, count)
                before = slice_.of(left.history[on[0]], dim=0, start=start, stop=stop, step=1)
                found.append([StackedItems(_reversed_rows(before, reverse), count - 1), ends[self.carried[on[0]]]])
            else:
                found.append([StackedItems(_reversed_rows(next(collected), reverse), count)] if items else [])
                self.collected += [k] if items else []
        return found

    def _write(self, a: StepNode, target: Tensor, value: Tensor) -> None:
        interpreter = self._interpreter
        interpreter.evaluating(lambda: interpreter.evaluate_node(a.node, a.node.attrs, (target, value), a.with_grad))

    def _body(
        self, carried: Sequence[StepValue], sliced: Sequence[StepValue], shared: Sequence[StepValue]
    ) -> tuple[Graph, list[StepValue]]:
        """(what the step does to what is carried, where it has its inputs from): of slices and of what is shared, what it reads."""
        outputs = [
            ("made", number + k) for a, number in zip(self._step.nodes, self._numbers, strict=True) for k in range(len(a.kind))
        ]
        inputs = [*carried, *sliced, *shared]
        ids = {place: v for v, place in enumerate(dict.fromkeys((*inputs, *outputs)))}
        more = numbers_from(len(ids))  # values that have no places
        nodes: list[Node] = []
        copies: list[Node] = []
        kinds: dict[int, tuple[Any, bool]] = {}
        for k, trailing in self._trailing.items():
            v = ids["trailing", k]
            for a in trailing.views:
                nodes.append(
                    Node(a.node.op, _operands(a, {a.operands[0]: v}), a.node.attributes, (v := next(more),), a.node.line)
                )
                kinds[v] = a.kind[0]
            ids["given", k] = v
        for i, (a, number) in enumerate(zip(self._step.nodes, self._numbers, strict=True)):
            if i in self._rows:  # a value of its own: gradients of the row arrive where it was written
                nodes.append(Node(clone, (ids[a.operands[1]],), (), (ids["made", number],), a.node.line))
            elif i not in self._done:
                made = tuple([ids["made", number + k] for k in range(len(a.kind))])
                nodes.append(Node(a.node.op, _operands(a, ids), a.node.attributes, made, a.node.line))
        kinds.update((ids[place], kind) for place, kind in self._kinds.items() if place in ids)
        ends: tuple[int, ...] = ()
        for place in [self._step.left[k - self._elements] for k in self.carried]:
            v = ids[place]
            if self._is_computed_slice(place):
                copies.append(Node(clone, (v,), (), (copied := next(more),)))
                kinds[copied] = kinds[v]
                v = copied
            ends += (v,)
        for place in [place for items in self._step.appended for place in items if place not in self._slices]:
            v = ids[place]
            if self._root(place) != place:  # a view, of what is carried on, say: it is collected by itself
                copied = next(more)
                copies.append(Node(clone, (v,), (), (copied,)))
                kinds[copied] = kinds[v]
                v = copied
            ends += (v,)
        ends += tuple([ids["made", self._numbers[i]] for i in self._rows])
        marked = frozenset([v for v, (_, requires) in kinds.items() if requires])
        avals = {v: aval for v, (aval, _) in kinds.items()}
        nodes += copies
        graph = dce(Graph(tuple([ids[x] for x in inputs]), avals, tuple(nodes), ends, requires_grad=marked))
        read = {*ends, *[ids[x] for x in carried], *[x for node in graph.nodes for x in node.operands]}
        places = [x for x in inputs if ids[x] in read]
        defined = {*[ids[x] for x in places], *[v for node in graph.nodes for v in node.outputs]}
        return (
            replace(
                graph,
                inputs=tuple([ids[x] for x in places]),
                avals={v: aval for v, aval in avals.items() if v in defined},
                requires_grad=marked & defined,
            ),
            places,
        )


def _may_be_looped(op: Op) -> bool:
    """Whether an operation may be one of a step of a loop: a function of what it is given, or a guard, which leaves the loop."""
    return op.kind in (Kind.GUARD, Kind.RANDOM) or (op.effect in (Effect.PURE, Effect.VIEW) and op.kind is not Kind.OPAQUE)


def _carried_memory_is_disjoint(body: Graph, entered: Sequence[Tensor]) -> bool:
    """Whether what steps carry on are different tensors, row by row in memory that nothing else has, so that copies are as good."""
    carried, roots = body.inputs[: len(entered)], memory_roots(body)
    results = dict.fromkeys(body.outputs)
    memory = [roots.get(v, v) for v in results]  # type: ignore[arg-type]
    if (
        len({*body.outputs[: len(entered)]}) < len(entered)
        or len(set(memory)) < len(memory)
        or not all(x._array.flags.c_contiguous for x in entered)
    ):
        return False
    return all(v in carried or root not in body.inputs for v, root in zip(results, memory, strict=True))


def _cotangents_disjoint(rows: Sequence[SlicedInput], others: Sequence[Any]) -> bool:
    """Whether cotangents of what is sliced and shared are added up at different places, those of slices that move alike apart: then those
    that a loop adds as a whole arrive in the order in which its steps would have added them."""
    moving = {(id(x.base), x.dim, x.distance): x.base for x in rows}
    places = [edge_of(x) for x in (*moving.values(), *others) if isinstance(x, Tensor) and x.requires_grad]
    return len({(id(target), k) for target, k in places}) == len(places)


def _backward_is_indivisible(body: Graph, carried: int) -> bool:
    """Whether a backward pass through steps is one through the loop: from whatever is carried on or collected, it comes to the same carried
    values in all steps but the last two; and of any two passes, from one or the other of these, the second one meets something that the
    first one has freed, as it does where they go through the loop; or nothing is saved, neither by steps nor by the loop."""
    marked, inputs = body.requires_grad, body.inputs
    nodes = [node for node in body.nodes if gradient_operands(node, marked) and not marked.isdisjoint(node.outputs)]
    leading = {v: 1 << k for k, v in enumerate(inputs[:carried])}  # the carried values that gradients come to, as bits
    for node in nodes:
        found = 0
        for x in gradient_operands(node, marked):
            found |= leading.get(x, 0)
        leading.update((v, found) for v in node.outputs if v in marked)
    results = [leading.get(v, 0) if v in marked else 0 for v in body.outputs]  # type: ignore[arg-type]
    ends = results[:carried]

    def before(places: int) -> int:
        found = 0
        for k, there in enumerate(ends):
            found |= there if places >> k & 1 else 0
        return found

    savers = {k for k, node in enumerate(nodes) if saved_values(body, node, marked)}
    passes: list[set[int]] = []  # which of these they meet
    for first, v in enumerate(body.outputs):
        if first < carried:
            if inputs[first] not in marked:
                continue
            through = before(before(1 << first))
            there = {*[body.outputs[k] for k in _bits(through or 1 << first)]}
        elif v in marked:
            through = results[first] | before(results[first])
            there = {v, *[body.outputs[k] for k in _bits(through)]}
        else:
            continue
        if before(through) & ~through or (first < carried and before(through) != through):
            return False
        met = set()
        for k in range(len(nodes) - 1, -1, -1):
            if not there.isdisjoint(nodes[k].outputs):
                met.add(k)
                there.update(gradient_operands(nodes[k], marked))
        passes.append(met & savers)
    return not (savers and any(a.isdisjoint(b) for k, a in enumerate(passes) for b in passes[: k + 1]))


def _bits(number: int) -> list[int]:
    return [k for k in range(number.bit_length()) if number >> k & 1]
