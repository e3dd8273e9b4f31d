"""Steps of a loop along the paths that are known, with NumPy.

The body of a tree computes all segments, and selects what a step leaves by masks (path_body.py).  A `PathWalk` branches: it evaluates
the segments on the path of the step, and no others.  So the steps of a recorded call cost what their paths cost.  What a step leaves
is the same.  A nested loop is evaluated by its body.

It must not know what runs the steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracejit.capture.item_objects import slots_with_copies
from tracejit.capture.loop_steps import LIVE_IN, SHARED, StepValue
from tracejit.capture.path_body import nodes_to_run
from tracejit.capture.path_tree import PathEnd, PathTree, Segment
from tracejit.capture.syntax.outlined_loops import PROCEEDS
from tracejit.core.dtypes import DType
from tracejit.ir.graph import Literal
from tracejit.ir.interpreter import NodeFailed
from tracejit.ir.runner import NodeRun
from tracejit.tensor import Tensor
from tracejit.tensor.base import wrap

__all__ = ["PathWalk", "StepResult"]


class StepResult:
    """What a step has left.

    way: how it has ended.  arrays: what each slot holds.  objects: the numbers of these objects, -1 of what is none.  grads: whether they
    require grad.  items: what it appends to each list, as `AppendedItems.steps` has it."""

    __slots__ = ("arrays", "grads", "items", "objects", "way")

    def __init__(self, way: int, arrays: list[Any], objects: list[int], grads: list[bool], items: list[list[Any]]) -> None:
        self.way, self.arrays, self.objects, self.grads, self.items = way, arrays, objects, grads, items


class _Values(dict[StepValue, Any]):
    """Values by their places.  What steps share is read when a step asks for it."""

    def __init__(self, shared: Callable[[int], Any], arrays: Sequence[Any]) -> None:
        super().__init__({(LIVE_IN, k): x for k, x in enumerate(arrays)})
        self._shared = shared

    def __missing__(self, place: StepValue) -> Any:
        assert place[0] == SHARED, place
        value = self[place] = self._shared(place[1])
        return value


class PathWalk:
    """The steps of one tree.  shared: what the k-th of its shared values is, an array or a number."""

    def __init__(self, tree: PathTree, shared: Callable[[int], Any]) -> None:
        self._tree, self._shared = tree, shared
        self._ready: dict[int, tuple[Segment, list[Any], NodeRun]] = {}  # by ids of segments: the nodes that are made ready
        self._grads: dict[int, list[tuple[int, frozenset[int] | bool]]] = {}  # by ids of ends; see `_require_grad`
        self._holding_copies: set[int] = set()  # slots, whose arrays are the views
        self._changes: dict[int, tuple[PathEnd, _Changes]] = {}  # by ids of ends
        self._marked: list[bool] = []  # for each slot, whether it may require grad

    def note_path(self) -> None:
        """Note that the tree has another path."""
        tree, segments = self._tree, {id(segment): segment for segment in self._tree.segments()}
        self._ready = {
            k: known
            for k, known in self._ready.items()
            if k in segments and len(known[1]) == len(segments[k].nodes) and all(map(_is, known[1], segments[k].nodes))
        }
        self._holding_copies = slots_with_copies(tree)
        self._changes, self._marked = {}, [slot.requires_grad for slot in tree.slots]
        changing = tree.changing_grad()
        self._grads = {}
        for path, end in tree.all_paths() if changing else ():
            grad = tree.grad_of_path(path)
            needs = [(k, grad(end.in_slot(k))) for k in changing]
            self._grads[id(end)] = [(k, x if not isinstance(x, frozenset) or x <= {*changing} else True) for k, x in needs]

    def step(
        self, arrays: Sequence[Any], objects: Sequence[int], grads: Sequence[bool], first: int, part: int = 0
    ) -> StepResult | None:
        """Make a part of a step; None where no path serves it.  arrays, objects, grads: see StepResult.  first: the number of the first
        object that it makes.  To be called where floating-point warnings are off."""
        values, segment = _Values(self._shared, arrays), self._tree.parts[part]
        if segment.is_empty:
            return None
        try:
            while segment.end is None:
                self._nodes(segment)(values)
                assert segment.decided is not None
                following = _following(segment, values[segment.decided])
                if following is None:
                    return None
                segment = following
            self._nodes(segment)(values)
        except NodeFailed:
            return None
        return self._result(segment.end, values, objects, grads, first)

    def _nodes(self, segment: Segment) -> NodeRun:
        known = self._ready.get(id(segment))
        if known is None:
            nodes = nodes_to_run(self._tree, segment)
            avals = {place: kind[0] for a in nodes for place, kind in zip(a.outputs, a.kinds, strict=True)}
            made = [a.in_graph(_PLACES) for a in nodes]
            known = self._ready[id(segment)] = segment, [*segment.nodes], NodeRun(made, avals)
        return known[2]

    def _result(self, end: PathEnd, values: _Values, objects: Sequence[int], grads: Sequence[bool], first: int) -> StepResult:
        tree = self._tree
        end.steps += 1
        known = self._changes.get(id(end))
        if known is None:
            known = self._changes[id(end)] = end, _Changes(tree, end)
        changes = known[1]
        arrays = [values[LIVE_IN, k] for k in range(len(tree.slots))]
        for k, place, dtype in changes.arrays:
            arrays[k] = _own(values, place, dtype)
        if tree.trips is not None and end.way != PROCEEDS:
            arrays[0] = np.array(int(arrays[0]) + tree.trips.step)
        numbers = [*objects]
        for k, place in changes.objects:
            numbers[k] = changes.number(place, objects, first)
        require = [*self._marked]
        for k, needs in self._grads.get(id(end), ()):
            require[k] = any(grads[j] for j in needs) if isinstance(needs, frozenset) else needs

        def item(k: int, x: StepValue) -> tuple[Any, Any]:
            aval, holds = tree.item_kinds[k]
            copied = changes.copies.get(x, x)
            is_view = copied is not x or (x[0] == LIVE_IN and x[1] in self._holding_copies)
            number: Any = changes.number(x, objects, first) if holds is Tensor else -1
            return _own(values, x, aval.dtype), wrap(values[copied]) if is_view else number

        items = [[item(k, x) for x in column] for k, column in enumerate(end.items)]
        return StepResult(end.way, arrays, numbers, require, items)


class _Changes:
    """What a path leaves otherwise than it was.

    arrays: slots that hold something else, each with the place of that, or of the view that it is a copy of, and its dtype.  objects: those
    of tensors, with the place.  copies: of views, each with the view."""

    def __init__(self, tree: PathTree, end: PathEnd) -> None:
        left = sorted([(k, x) for k, x in end.left.items() if x != (LIVE_IN, k)])
        self.copies = dict(end.copies)
        self.arrays = [(k, self.copies.get(x, x), tree.slots[k].aval.dtype) for k, x in left]
        self.objects = [(k, x) for k, x in left if tree.is_object(k)]
        self._tree = tree
        self._made = tree.made_numbers(end)

    def number(self, place: StepValue, objects: Sequence[int], first: int) -> int:
        """The number of the object at a place."""
        if place[0] == LIVE_IN:
            return objects[place[1]]
        if place[0] == SHARED:
            return self._tree.number_of(self._tree.shared[place[1]])
        return first + self._made[place]


def _own(values: _Values, place: StepValue, dtype: DType) -> Any:
    """The array at a place; a copy of a shared one, or a number."""
    return np.array(values[place], dtype.numpy) if place[0] == SHARED else values[place]


class _Places(dict[Any, Any]):
    """Places of values, as the names of these in nodes."""

    def __missing__(self, place: StepValue) -> StepValue:
        return place


_PLACES = _Places()


def _is(a: Any, b: Any) -> bool:
    return a is b


def _following(segment: Segment, value: Any) -> Segment | None:
    """The segment that follows where the value that decides is this one."""
    value = value.item() if isinstance(value, np.ndarray) else value
    for expected, following in segment.following.items():
        if Literal(bool(value) if type(expected.value) is bool else value) == expected:
            return following
    return None
