"""The backward pass: nodes in strict reverse program order, cotangents accumulated per node output.

Three modes share one loop.  Plain: cotangents are NumPy arrays and rules run on arrays, at NumPy's speed.  With
create_graph=True, and while a recording is active: cotangents are Tensors and every rule passes `bind`, so it is itself on the
tape, or in the trace.  A trace accumulates with `acc(previous | None, d)` from the first contribution on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

    __slots__ = ("leaf", "received", "retained", "wanted")

    def __init__(self, leaf: Callable[[Any, Any], None] | None, wanted: Sequence[tuple[Any, int]] = ()) -> None:
        self.leaf = leaf
        self.wanted = {(id(t), i) for t, i in wanted}
        self.received: dict[tuple[int, int], Any] = {}


def _reachable(roots: Sequence[tuple[Any, int]]) -> list[Node]:
    """All nodes that roots depend on, latest first."""
    seen: set[Node] = set()
    stack = [t for t, _ in roots if isinstance(t, Node)]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        for edge in node.edges:
            if edge is not None:
                target = edge[0]
                if isinstance(target, Node) and target not in seen:
                    stack.append(target)
    return sorted(seen, key=_sequence, reverse=True)


def _sequence(node: Node) -> int:
    return node.sequence


def _needed(nodes: list[Node], wanted: set[tuple[int, int]]) -> set[Node]:
    """The nodes on a path to a wanted value."""
    targets = {i for i, _ in wanted}
    needed: set[Node] = set()
    for node in reversed(nodes):
        for edge in node.edges:
            if edge is not None and (id(edge[0]) in targets or edge[0] in needed):
                needed.add(node)
                break
    return needed


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
    nodes = _reachable(roots)
    if recording:
        state.top.note("backward", nodes)
    allowed = _needed(nodes, sink.wanted) if sink.leaf is None else None
    pending: dict[Node, list[Any]] = {}

    def deliver(target: Any, index: int, g: Any) -> None:
        if isinstance(target, Node):
            slots = pending.get(target)
            if slots is None:
                slots = pending[target] = [None] * len(target.out_meta)
            previous = slots[index]
            if previous is None:
                slots[index] = acc(None, g) if recording else g
            else:
                slots[index] = acc(previous, g)
            return
        if target._hooks:
            g = _run_hooks(target._hooks.values(), g, tensors, wrap)
        if (id(target), 0) in sink.wanted:
            key = (id(target), 0)
            previous = sink.received.get(key)
            sink.received[key] = g if previous is None else acc(previous, g)
        elif sink.leaf is not None:
            sink.leaf(target, g)

    def propagate() -> None:
        for (target, index), g in zip(roots, cotangents, strict=True):
            deliver(target, index, g if tensors else g._array)
        for node in nodes:
            slots = pending.pop(node, None)
            if slots is None:
                continue
            if node.hooks:
                for index, hooks in node.hooks.items():
                    if slots[index] is not None:
                        slots[index] = _run_hooks(hooks.values(), slots[index], tensors, wrap)
            if sink.wanted:
                for index, g in enumerate(slots):
                    if g is not None and (id(node), index) in sink.wanted:
                        sink.received[id(node), index] = g
            if allowed is not None and node not in allowed:
                continue
            grads = node.backward(slots, tensors)
            if not retain_graph:
                node.release()
            for edge, g in zip(node.edges, grads, strict=True):
                if edge is not None and g is not None:
                    deliver(edge[0], edge[1], g)

    previous_grad, previous_top = state.grad_enabled, state.top
    state.grad_enabled = create_graph
    try:
        if tensors:
            propagate()
        else:
            state.top = _ARRAYS
            with np.errstate(all="ignore"):
                propagate()
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
