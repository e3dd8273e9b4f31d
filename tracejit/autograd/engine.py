"""The backward pass: nodes in strict reverse program order, cotangents accumulated per node output.

Three modes share one loop.  Plain: cotangents are NumPy arrays and rules run on arrays, at NumPy's speed.  With
create_graph=True, and while a recording is active: cotangents are Tensors and every rule passes `bind`, so it is itself on the
tape, or in the trace.  A trace accumulates with `acc(previous | None, d)` from the first contribution on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np

from tracejit.autograd.tape import Node
from tracejit.core.interpreter import Interpreter, state
from tracejit.ops.elementwise.arithmetic import acc

__all__ = ["ArrayInterpreter", "GradientSink", "run_backward"]


class ArrayInterpreter(Interpreter):
    """Evaluates primitives on bare arrays: the meaning of ops inside vjp rules of a plain backward pass."""

    def bind(self, op: Any, operands: tuple[Any, ...], attributes: Any) -> Any:
        return op.evaluate(*operands, **attributes)


_ARRAYS = ArrayInterpreter()


class GradientSink:
    """What happens to gradients that arrive: at leaves (`leaf`), at values asked for by autograd.grad (`wanted`)."""

    __slots__ = ("leaf", "received", "wanted")

    def __init__(self, leaf: Callable[[Any, Any], None] | None, wanted: Sequence[tuple[Any, int]] = ()) -> None:
        self.leaf = leaf
        self.wanted = {(id(t), i) for t, i in wanted}
        self.received: dict[tuple[int, int], Any] = {}


def _reachable(roots: Sequence[tuple[Any, int]]) -> set[Node]:
    """All nodes that `roots` depend on."""
    seen: set[Node] = set()
    stack = [t for t, _ in roots if isinstance(t, Node)]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend([e[0] for e in node.edges if e is not None and isinstance(e[0], Node)])
    return seen


def _needed(roots: Sequence[tuple[Any, int]], wanted: set[tuple[int, int]]) -> set[Node]:
    """The nodes on a path from `roots` to a wanted value."""
    seen = _reachable(roots)
    targets = {i for i, _ in wanted}
    needed: set[Node] = set()
    for node in sorted(seen, key=_sequence):
        if any(e is not None and (id(e[0]) in targets or e[0] in needed) for e in node.edges):
            needed.add(node)
    return needed


def _sequence(node: Node) -> int:
    return node.sequence


class _Pass:
    """One backward pass.  A heap keyed by descending sequence holds the nodes that have received a cotangent: when a node comes
    off it, all later nodes, hence all its consumers that take part, are done."""

    __slots__ = ("allowed", "heap", "leaves", "pending", "recording", "retain_graph", "sink", "tensors", "wrap")

    def __init__(
        self,
        sink: GradientSink,
        allowed: set[Node] | None,
        retain_graph: bool,
        tensors: bool,
        recording: bool,
        wrap: Callable[[Any], Any],
    ) -> None:
        self.sink = sink
        self.allowed = allowed
        self.retain_graph = retain_graph
        self.tensors = tensors
        self.recording = recording
        self.wrap = wrap
        self.heap: list[tuple[int, Node]] = []
        self.pending: dict[Node, list[Any]] = {}
        self.leaves: dict[int, list[Any]] = {}  # id -> [leaf, sum of what it received]

    def deliver(self, target: Any, index: int, g: Any) -> None:
        """Add `g` to what output `index` of a node, or a leaf, has received."""
        if isinstance(target, Node):
            slots = self.pending.get(target)
            if slots is None:
                slots = self.pending[target] = [None] * target.count
                heappush(self.heap, (-target.sequence, target))
        else:
            index = 1
            slots = self.leaves.get(id(target))
            if slots is None:
                slots = self.leaves[id(target)] = [target, None]
        previous = slots[index]
        if self.recording:
            slots[index] = acc(previous, g)
        elif previous is None:
            slots[index] = g
        else:
            slots[index] = acc(previous, g) if self.tensors else previous + g

    def chosen(self, node: Node, allowed: set[Node]) -> tuple[bool, ...]:
        """Which edges of `node` lead to a wanted value."""
        wanted = self.sink.wanted
        return tuple([e is not None and (e[0] in allowed or (id(e[0]), e[1]) in wanted) for e in node.edges])

    def run(self, roots: Sequence[tuple[Any, int]], cotangents: Sequence[Any]) -> None:
        """Propagate from the roots until no node is left, then hand the leaves what they received."""
        for (target, index), g in zip(roots, cotangents, strict=True):
            self.deliver(target, index, g)
        heap, pending, sink, allowed, tensors = self.heap, self.pending, self.sink, self.allowed, self.tensors
        retain, plain, deliver = self.retain_graph, not self.tensors, self.deliver
        while heap:
            node = heappop(heap)[1]
            slots: Any = pending.pop(node)
            if node.hooks:
                if node.is_selective:
                    node.check_watched([index for index, hooks in node.hooks.items() if hooks], slots)
                for index, hooks in node.hooks.items():
                    if slots[index] is not None:
                        slots[index] = _run_hooks(hooks.values(), slots[index], tensors, self.wrap)
            if allowed is not None:
                if node.is_selective:
                    node.check_watched([index for target, index in sink.wanted if target == id(node)], slots)
                for index, g in enumerate(slots):
                    if g is not None and (id(node), index) in sink.wanted:
                        sink.received[id(node), index] = g
                if node not in allowed:
                    continue
            if allowed is not None and node.is_selective:
                grads = node.backward_to(self.chosen(node, allowed), slots, tensors)
            else:
                grads = node.backward(slots, tensors)
            if not retain:
                node.release()
            for edge, g in zip(node.edges, grads):  # noqa: B905  (lengths agree by construction; the hot loop of backward)
                if edge is None or g is None:
                    continue
                target = edge[0]
                if plain and isinstance(target, Node) and target.count == 1:
                    slots = pending.get(target)
                    if slots is None:
                        pending[target] = [g]
                        heappush(heap, (-target.sequence, target))
                    else:
                        slots[0] = slots[0] + g
                else:
                    deliver(target, edge[1], g)
        for leaf, g in self.leaves.values():
            if leaf._hooks:
                g = _run_hooks(leaf._hooks.values(), g, tensors, self.wrap)
            if sink.leaf is not None:
                sink.leaf(leaf, g)
            elif (id(leaf), 0) in sink.wanted:
                sink.received[id(leaf), 0] = g


def run_backward(
    roots: Sequence[tuple[Any, int]],
    cotangents: Sequence[Any],
    sink: GradientSink,
    *,
    retain_graph: bool,
    create_graph: bool,
    wrap: Callable[[Any], Any],
) -> None:
    """Propagate `cotangents` (Tensors) from `roots` (edges) to the leaves and the wanted values of `sink`.

    wrap makes a Tensor of an array, for hooks.  Raises RuntimeError where the graph was freed or a saved value was changed in place."""
    recording = state.top is not state.base
    tensors = create_graph or recording
    if recording:
        state.top.note("backward", _reachable(roots))
    allowed = _needed(roots, sink.wanted) if sink.leaf is None else None
    work = _Pass(sink, allowed, retain_graph, tensors, recording, wrap)
    previous_grad, previous_top = state.grad_enabled, state.top
    state.grad_enabled = create_graph
    try:
        if tensors:
            work.run(roots, cotangents)
        else:
            state.top = _ARRAYS
            with np.errstate(all="ignore"):
                work.run(roots, [g._array for g in cotangents])
    finally:
        state.grad_enabled, state.top = previous_grad, previous_top


def _run_hooks(hooks: Any, g: Any, tensors: bool, wrap: Callable[[Any], Any]) -> Any:
    """Hooks see Tensors, whatever the mode; one that returns a value replaces the gradient."""
    value = g if tensors else wrap(g)
    previous, state.top = state.top, state.top if tensors else state.base
    try:
        for hook in list(hooks):
            result = hook(value)
            if result is not None:
                value = result
    finally:
        state.top = previous
    return value if tensors else value._array
