"""Steps that a node of the graph stands for, one by one after all.

A list that a loop has filled with tensors which require grad holds most of them in one piece (stacked_items.py), and a loop that goes
through it reads slices of that.  So nobody has an item of the piece: who has one may ask for its gradient, hang a hook on it, change it in
place, and a row of the piece has another place on the tape.  Where one is to be had nevertheless (the second loop is none whose steps are
left out, an item in the middle is read), the recording stops, and the steps are made anew on the tape, in the place of the node: each item
is what its step has made, and whatever was computed of the node's results leads to those of the steps.  Recordings that follow keep items
one by one (`Recorder.keeps_items`).

The call in which this happens runs eagerly from there on.  Recordings that follow are of one number of steps each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracejit.autograd.tape import Node, OpNode, edge_of, next_sequence
from tracejit.capture.loop_nodes import LoopResults, SlicedInput
from tracejit.capture.loop_steps import StackedItems, StepItems
from tracejit.core.interpreter import state
from tracejit.core.op import Kind
from tracejit.core.symbolic import without_symbols
from tracejit.ops.public.movement import stack
from tracejit.tensor import Tensor
from tracejit.tensor.rebinding import rebound

if TYPE_CHECKING:
    from tracejit.capture.tensors import RecordingInterpreter

__all__ = ["LoopedSteps", "UnrolledItems", "with_tape_positions"]

Edge = tuple[Any, int]


class LoopedSteps(NamedTuple):
    """Steps of a loop that a node stands for, so many as `count`.

    once: what the step leaves and appends that comes so many steps after the one that was recorded, of what it is given.  slices: what
    steps are given of tensors that the loop goes through; begins: what the first one begins with besides; carried: which of these the node
    carries on.  left: what the node has left; collected: the lists of which `left.collected` are items.  reverse: whether the node goes
    down."""

    once: Callable[[int, list[Tensor]], tuple[list[Tensor], list[list[Tensor]]]]
    slices: Sequence[SlicedInput]
    begins: list[Tensor]
    carried: Sequence[int]
    left: LoopResults
    collected: Sequence[int]
    count: Any
    reverse: bool


class UnrolledItems:
    """The items that such steps have appended to lists, each the tensor that it would be without the node."""

    def __init__(self, interpreter: RecordingInterpreter, steps: LoopedSteps) -> None:
        self._interpreter = interpreter
        self._steps = steps
        self._loop = next((node for x in _result_tensors(steps.left) if (node := _loop_of(x)) is not None), None)
        self._used = list(_used(interpreter, steps, self._loop))
        self._versions = list(map(_version, self._used))
        self._items: list[list[Tensor]] | None = None
        interpreter.unrolled.append(self)

    def appended(self, k: int, count: int) -> list[Tensor] | None:
        """So many items, the first ones that steps have appended to list k.  None where these answer no more than rows do: their graph was
        freed, or what they are computed of has been changed."""
        recorder = self._interpreter.recorder
        recorder.stop("items_used", "an item, or all")
        if self._items is None and self._is_intact():
            self._items = recorder.unwatched(self._unroll)
        return None if self._items is None else self._items[k][:count]

    def before_write(self, target: Tensor) -> None:
        """A tensor is about to be changed in place: if steps have computed of it, they are made anew while it is what it was."""
        if self._items is not None or not self._is_intact():
            return
        if any(np.may_share_memory(target._array, x._array) for x in self._used):
            self.appended(0, 0)

    def _is_intact(self) -> bool:
        node = self._loop
        return isinstance(node, OpNode) and not node.freed and self._versions == list(map(_version, self._used))

    def _unroll(self) -> list[list[Tensor]]:
        steps, first, grad_enabled = self._steps, next_sequence(), state.grad_enabled
        begun, appended = [steps.begins], []
        state.grad_enabled = True  # as where the node was made
        try:
            for k in range(without_symbols(steps.count)):
                found, added = steps.once(k + 1, [*[x.one(k) for x in steps.slices], *begun[-1]])
                begun.append(found)
                appended.append(added)
                state.grad_enabled = True
            items = [[x for made in column for x in made] for column in zip(*appended, strict=True)]
            places = self._places(begun, items)
        finally:
            state.grad_enabled = grad_enabled
        self._lead_to(places, first)
        return items

    def _places(self, begun: list[list[Tensor]], items: list[list[Tensor]]) -> dict[tuple[int, int], Edge]:
        """Where gradients go that would go to the node: places of its results -> those of what steps have made.  begun: what each step
        begins with, and what the last one leaves."""
        steps, left = self._steps, self._steps.left
        *before, last = begun
        columns = {k: [found[steps.carried[k]] for found in before] for k in left.history}
        single = [(end, last[k]) for end, k in zip(left.ends, steps.carried, strict=True)]
        rows = [(x, columns[k]) for k, x in left.history.items()]
        rows += [(x, items[k]) for x, k in zip(left.collected, steps.collected, strict=True)]
        single += [(x, stack(column[::-1] if steps.reverse else column)) for x, column in rows if _loop_of(x) is self._loop]
        return {(id(x._node), x._index): edge_of(made) for x, made in single if _loop_of(x) is self._loop}

    def _lead_to(self, places: dict[tuple[int, int], Edge], first: float) -> None:
        """Have all that leads to the node lead to these places.  first: nodes that were made since are those of the steps."""
        interpreter, node = self._interpreter, self._loop
        assert node is not None
        known = [x for x in interpreter.recorder.keep if isinstance(x, Node)]
        made: list[Node] = []
        for x in _behind([*known, *[target for target, _ in places.values() if isinstance(target, Node)]]):
            if x.sequence > first:
                made.append(x)
            elif not places.keys().isdisjoint([_key(edge) for edge in x.edges]):
                x.edges = tuple([places.get(_key(edge), edge) for edge in x.edges])
        for tensor in interpreter.defined.values():
            if tensor._node is node and (place := places.get((id(node), tensor._index))) is not None:
                tensor._node, tensor._index = place
        rebound()
        made.sort(key=lambda x: x.sequence)
        for k, x in enumerate(made, 1):  # between those of what came before the loop, and the loop
            x.sequence = node.sequence - 1 + k / (len(made) + 1)


def with_tape_positions(added: Sequence[list[Any]], unrolled: UnrolledItems) -> list[list[Any]]:
    """What steps have appended to each list, where pieces know what has made their items."""

    def found(k: int, x: Any) -> Any:
        if type(x) is not StackedItems:
            return x
        return StackedItems(x.rows, x.count, StepItems(partial(unrolled.appended, k, without_symbols(x.count))))

    return [[found(k, x) for x in items] for k, items in enumerate(added)]


def _result_tensors(left: LoopResults) -> list[Tensor]:
    return [*left.ends, *left.collected, *left.history.values()]


def _loop_of(x: Tensor) -> Node | None:
    """The loop that has made a tensor, for the tape."""
    node = x._node
    return node if isinstance(node, OpNode) and node.op.kind is Kind.LOOP else None


def _used(interpreter: RecordingInterpreter, steps: LoopedSteps, node: Node | None) -> Iterator[Tensor]:
    """The tensors of which the steps compute."""
    yield from steps.begins
    for x in steps.slices:
        yield x.base
    for made in interpreter.nodes if node is not None else ():
        if made.op.kind is Kind.LOOP and interpreter.defined[made.outputs[0]]._node is node:
            yield from [interpreter.defined[v] for v in made.operands if type(v) is int and v in interpreter.defined]


def _version(x: Tensor) -> tuple[Any, int]:
    return id(x._array), 0 if x._storage is None else x._storage.version


def _key(edge: Edge | None) -> tuple[int, int]:
    return (0, 0) if edge is None else (id(edge[0]), edge[1])


def _behind(nodes: Sequence[Node]) -> list[Node]:
    """These nodes of the tape, and all that gradients come to from there."""
    seen: dict[int, Node] = {}
    waiting = list(nodes)
    while waiting:
        x = waiting.pop()
        if id(x) not in seen:
            seen[id(x)] = x
            waiting += [edge[0] for edge in x.edges if edge is not None and isinstance(edge[0], Node)]
    return [*seen.values()]
