"""The backward pass: nodes in strict reverse program order, cotangents accumulated per node output.

Three modes share one loop.  Plain: cotangents are NumPy arrays and rules run on arrays, at NumPy's speed.  With
create_graph=True, and while a recording is active: cotangents are Tensors and every rule passes `bind`, so it is itself on the
tape, or in the trace; what arrives second is added to the first by `acc(previous, d)`.

What a rule means depends on what it is given, so a plain pass switches nothing: other code that runs in the middle of it (callbacks of the
garbage collector, finalizers, signal handlers, other threads) finds the thread as the program left it, but for NumPy's silence about
floating-point errors.  Hooks, which belong to the program, run without that, and in the grad mode of the pass.

A pass to chosen values enters the nodes that lead to one of them, and no others: their hooks are not called.

Leaves are handed what they received when no node is left.  Those with a hook for the end of the pass are handed it as soon as it is
complete, in a plain pass to all leaves: what a hook then begins goes on beside the rest of the pass, and its hook for the end waits for it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np

from tracejit.autograd.anomaly import anomaly_interpreter
from tracejit.autograd.tape import AFTER, AT_END, RETAIN, LoopNode, Node, SelectiveNode, handed_early
from tracejit.core.floating import quietly, read_errors, with_errors
from tracejit.core.interpreter import state
from tracejit.ops.elementwise.arithmetic import acc

__all__ = ["GradientSink", "hooks_after", "run_backward"]

TapeEdge = tuple[Any, int]


class GradientSink:
    """What happens to gradients that arrive: at leaves (`leaf`), at edges asked for by autograd.grad (`wanted`).

    handed: arrays that others may hold, the given cotangents and what hooks were shown, by their ids.  `leaf` is called with a leaf, its
    gradient and `handed`, and so need not hold the sink: what a pass held is gone with it, whether the garbage collector runs or not."""

    __slots__ = ("handed", "leaf", "received", "wanted")

    def __init__(self, leaf: Callable[[Any, Any, dict[int, Any]], None] | None, wanted: Iterable[TapeEdge] = ()) -> None:
        self.leaf = leaf
        self.wanted = {(id(t), i) for t, i in wanted} if wanted else set()
        self.received: dict[tuple[int, int], Any] = {}
        self.handed: dict[int, Any] = {}


def _reachable(roots: Iterable[TapeEdge], since: float = -1.0) -> set[Node]:
    """All nodes that `roots` depend on, or those of them that were made after the one with sequence number `since`."""
    seen: set[Node] = set()
    stack = [t for t, _ in roots if isinstance(t, Node)]
    while stack:
        node = stack.pop()
        if node not in seen and node.sequence > since:
            seen.add(node)
            stack.extend([e[0] for e in node.edges if e is not None and isinstance(e[0], Node)])
    return seen


def _sequence(node: Node) -> float:
    return node.sequence


class _Pass:
    """One backward pass.  A heap keyed by descending sequence holds the nodes that have received a cotangent: when a node comes
    off it, all later nodes, hence all its consumers that take part, are done.

    allowed: the nodes on a path from the roots to a wanted value; None for a pass to all leaves.  leading: for those that stand for several
    steps, the outputs from which there is one.  hooked: edges whose hooks have run, of
    nodes that were taken apart afterwards.  errors: NumPy's error state outside the pass.  boundary: nodes that the pass does not enter;
    what they have received is in `left`.  awaited: of leaves that are handed their gradients early, by id, how many edges to them the pass
    has not passed.  ending: hooks to be called at the end, and a leaf that has each."""

    __slots__ = (
        "allowed", "awaited", "boundary", "create_graph", "ending", "errors", "heap", "hooked", "leading", "leaves", "left", "pending",
        "recording", "retain_graph", "roots", "sink", "tensors", "wrap",
    )  # fmt: skip

    def __init__(
        self,
        roots: Sequence[TapeEdge],
        sink: GradientSink,
        retain_graph: bool,
        create_graph: bool,
        recording: bool,
        wrap: Callable[[Any], Any],
    ) -> None:
        self.roots = roots
        self.sink = sink
        self.retain_graph = retain_graph
        self.create_graph = create_graph
        self.tensors = create_graph or recording
        self.recording = recording
        self.wrap = wrap
        self.heap: list[tuple[float, Node]] = []
        self.pending: dict[Node, list[Any]] = {}
        self.leaves: dict[int, list[Any]] = {}  # id -> [leaf, sum of what it received]
        self.hooked: set[tuple[int, int]] = set()
        self.errors = read_errors()
        self.allowed: set[Node] | None = None
        self.leading: dict[Node, frozenset[int]] = {}
        self.boundary: set[Node] = set()
        self.left: list[tuple[TapeEdge, Any]] = []
        self.awaited: dict[int, int] = {}
        self.ending: dict[Any, Any] = {}
        if sink.leaf is None:
            self.allowed = set()
            self.allow(sorted(_reachable(roots), key=_sequence))

    # -- where it goes
    def leads(self, edge: TapeEdge | None) -> bool:
        """Whether `edge` leads to a wanted value, in a pass to chosen ones."""
        assert self.allowed is not None
        if edge is None:
            return False
        target, index = edge
        if target in self.allowed and (not self.leading or index in self.leading.get(target, (index,))):
            return True
        return (id(target), index) in self.sink.wanted

    def allow(self, nodes: Iterable[Node]) -> None:
        """Enter those of `nodes`, which come earliest first, that lead to a wanted value, or inside of which one is."""
        assert self.allowed is not None
        for node in nodes:
            if isinstance(node, SelectiveNode):
                results = [index for index in range(node.count) if (id(node), index) in self.sink.wanted]
                asks = results and not node.expanded and not self.is_exact(node, self.arriving(node))
                if asks or (isinstance(node, LoopNode) and self.hooks_before(node)):
                    self.take_apart(node)  # it takes the steps to say which of the others lead to a wanted one
                    continue
                self.leading[node] = found = node.leading(tuple(map(self.leads, node.edges)), results)
                if found:
                    self.allowed.add(node)
            elif any(map(self.leads, node.edges)):
                self.allowed.add(node)

    def arriving(self, node: Node) -> list[TapeEdge | None]:
        """For each output of `node`, an edge if something may arrive there; else None."""
        edges = [*self.roots, *[edge for other in _reachable(self.roots) for edge in other.edges]]
        there = {edge[1]: edge for edge in edges if edge is not None and edge[0] is node}
        return [there.get(index) for index in range(node.count)]

    def hooks_before(self, node: LoopNode) -> bool:
        """Whether the pass may come to hooks, and then to a loop, and it takes the steps of that to say whether it does."""
        if not node.is_expandable or not any(map(self.leads, node.edges)):
            return False
        return any(other.hooks for other in _reachable(self.roots, node.sequence))

    def entered(self, roots: Sequence[TapeEdge]) -> Sequence[TapeEdge | None]:
        """The roots, None for those that lead nowhere.  One that is alone is entered all the same, as PyTorch does: its hooks run."""
        if self.allowed is None:
            return roots
        if len(roots) > 1:
            return [root if self.leads(root) else None for root in roots]
        ((target, index),) = roots
        if isinstance(target, SelectiveNode) and not target.expanded and target.hooks and target.hooks.get(index):
            self.take_apart(target)
            return [target.output_edge(index)]
        return roots

    def ways(self, roots: Sequence[TapeEdge]) -> tuple[set[Node], set[Node]]:
        """(nodes that the pass goes through, nodes where it only leaves something that was asked for)."""
        if self.allowed is None:
            return _reachable(roots), set()
        through = {target for target, _ in roots if isinstance(target, Node)}
        through.update(node for node in self.allowed if any(map(self.leads, node.edges)))
        reached = {edge[0] for node in through for edge in node.edges if edge is not None and self.leads(edge)}
        return through, {target for target in reached - through if isinstance(target, Node)}

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
        if previous is None:
            slots[index] = g
        else:
            slots[index] = acc(previous, g) if self.tensors else previous + g

    def taken(self, node: Node) -> tuple[Any, ...]:
        """What the edges of `node` to which it hands gradients have received so far, which is theirs no more."""
        return tuple(
            [None if edge is None or not (self.allowed is None or self.leads(edge)) else self.take(*edge) for edge in node.edges]
        )

    def take(self, target: Any, index: int) -> Any:
        """What an edge has received so far; from now on it has received nothing."""
        slots = self.pending.get(target) if isinstance(target, Node) else self.leaves.get(id(target))
        if slots is None:
            return None
        index = index if isinstance(target, Node) else 1
        received, slots[index] = slots[index], None
        return received

    # -- nodes that stand for several
    def is_whole(self, node: SelectiveNode, slots: Sequence[Any]) -> bool:
        """Whether the pass may go through `node` in one step."""
        return (node.accumulates or not self.tensors) and self.is_exact(node, slots)

    def is_exact(self, node: SelectiveNode, slots: Sequence[Any]) -> bool:
        """Whether one step through `node` does what all of its steps would."""
        allowed, wanted = self.allowed, self.sink.wanted
        hooked = [] if not node.hooks else [index for index, hooks in node.hooks.items() if hooks]
        asked = [] if allowed is None else [index for index in range(node.count) if (id(node), index) in wanted]
        chosen = None if allowed is None else tuple(map(self.leads, node.edges))
        return node.is_exact(slots, hooked, asked, chosen)

    def take_apart(self, node: SelectiveNode) -> None:
        """Go on in the nodes that `node` stands for."""
        self.awaited.clear()
        if self.recording and node.accumulates:
            state.top.note("loop expanded", node)
        node.expand()
        wanted = self.sink.wanted
        for index, target_edge in enumerate(node.edges):
            if target_edge is not None and (id(node), index) in wanted:
                wanted.remove((id(node), index))
                wanted.add((id(target_edge[0]), target_edge[1]))
        if self.allowed is not None:
            self.allow([*sorted(_reachable(filter(None, node.edges), node.sequence - 1), key=_sequence), node])

    # -- the pass
    def run(self, roots: Sequence[TapeEdge], cotangents: Sequence[Any]) -> None:
        """Propagate from the roots until no node is left, then hand the leaves what they received."""
        if handed_early and self.allowed is None and not self.tensors:
            self.count_edges(roots)
        for root, g in zip(self.entered(roots), cotangents):  # noqa: B905  (lengths agree: who starts a pass has looked)
            if root is not None:
                self.deliver(*root, g)
        heap, pending, leaves, allowed, tensors = self.heap, self.pending, self.leaves, self.allowed, self.tensors
        retain, plain, deliver = self.retain_graph, not tensors, self.deliver
        watched, boundary = anomaly_interpreter(), self.boundary
        while heap:
            node = heappop(heap)[1]
            slots: Any = pending.pop(node)
            if boundary and node in boundary:
                self.left += [((node, index), g) for index, g in enumerate(slots) if g is not None]
                continue
            selective: Any = node if node.is_selective else None
            if selective is not None and not selective.expanded and not self.is_whole(selective, slots):
                self.take_apart(selective)
            if node.hooks:
                self.run_hooks(node, slots)
            if allowed is not None:
                self.receive(node, slots)
                if node not in allowed or not any(map(self.leads, node.edges)):
                    continue
            if selective is not None and not selective.expanded and not node.accumulates:
                handed = selective.backward_to(None if allowed is None else tuple(map(self.leads, node.edges)), slots, retain)
            else:
                if watched is None and not node.accumulates:
                    gradients = node.backward(slots, tensors)
                else:
                    backward = functools.partial(node.onto, self.taken(node)) if node.accumulates else node.backward  # type: ignore[attr-defined]
                    run = functools.partial(backward, slots, tensors)
                    gradients = run() if watched is None else watched.checked(node, run)
                handed = zip(node.edges, gradients)  # noqa: B905  (lengths agree by construction)
                if not retain:
                    node.release()
            for edge, g in handed:
                if edge is None or g is None:
                    continue
                if allowed is not None and not self.leads(edge):
                    continue
                target, index = edge
                if not plain:
                    deliver(target, index, g)
                elif isinstance(target, Node):  # `deliver` spelled out, for speed, here and below
                    slots = pending.get(target)
                    if slots is not None:
                        previous = slots[index]
                        slots[index] = g if previous is None else previous + g
                    elif target.count == 1:
                        pending[target] = [g]
                        heappush(heap, (-target.sequence, target))
                    else:
                        deliver(target, index, g)
                else:
                    slots = leaves.get(id(target))
                    if slots is None:
                        leaves[id(target)] = [target, g]
                    else:
                        slots[1] = g if slots[1] is None else slots[1] + g
            if self.awaited:
                self.hand_early(node)
        self.arrive()

    def receive(self, node: Node, slots: Sequence[Any]) -> None:
        """Keep what has arrived at edges that were asked for."""
        sink = self.sink
        for index, g in enumerate(slots):
            if g is not None and (id(node), index) in sink.wanted:
                sink.received[id(node), index] = g

    def count_edges(self, roots: Sequence[TapeEdge]) -> None:
        """Count the edges to leaves that are handed their gradients early."""
        awaited = self.awaited
        for node in _reachable(roots):
            for edge in node.edges:
                if edge is not None and id(edge[0]) in handed_early:
                    awaited[id(edge[0])] = awaited.get(id(edge[0]), 0) + 1

    def hand_early(self, node: Node) -> None:
        """The pass has gone through `node`: hand their gradients to leaves that get no more."""
        awaited = self.awaited
        for edge in node.edges:
            count = 0 if edge is None else awaited.get(id(edge[0]), 0)
            if count > 1:
                awaited[id(edge[0])] = count - 1  # type: ignore[index]
            elif count:
                del awaited[id(edge[0])]  # type: ignore[index]
                received = self.leaves.pop(id(edge[0]), None)  # type: ignore[index]
                if received is not None:
                    self.hand(*received)

    def arrive(self) -> None:
        """Hand the leaves what they received, and call what waits for the end of the pass."""
        for leaf, g in self.leaves.values():
            self.hand(leaf, g)
        for hook, leaf in self.ending.items():
            self.run_after(hook, leaf)

    def hand(self, leaf: Any, g: Any) -> None:
        """Hand a leaf what it received."""
        sink = self.sink
        if leaf._hooks:
            if self.recording:
                state.top.note("hooks of a leaf run", leaf)
            if any(key > AFTER for key in leaf._hooks):
                g = self.hooked_value(leaf._hooks, g)
            elif not self.tensors:
                sink.handed[id(g)] = g  # a hook may change `.grad`, and what the pass still holds may share the memory of `g`
        if sink.leaf is not None:
            sink.leaf(leaf, g, sink.handed)
            if leaf._hooks:
                for hook in hooks_after(leaf):
                    self.run_after(hook, leaf)
                if id(leaf) in handed_early:
                    self.ending.update([(hook, leaf) for key, hook in leaf._hooks.items() if key <= AT_END])
        else:
            sink.received[id(leaf), 0] = g

    # -- hooks
    def run_after(self, hook: Any, leaf: Any) -> None:
        """Call what waits for the gradient of `leaf` to be in its `.grad`."""
        previous = state.grad_enabled
        try:
            state.grad_enabled = self.create_graph
            if self.tensors:
                state.top.call(hook, leaf)
            else:
                with_errors(self.errors, hook, leaf)
        finally:
            state.grad_enabled = previous

    def run_hooks(self, node: Node, slots: list[Any]) -> None:
        """Call the hooks of the outputs of `node` that have received something."""
        assert node.hooks is not None
        called, hooked = [], list(node.hooks.items())
        if len(hooked) > 1 and isinstance(node, SelectiveNode) and not node.expanded:
            hooked = [(index, node.hooks[index]) for index in node.latest_first(node.hooks)]
        for index, hooks in hooked:
            if hooks and slots[index] is not None and (id(node), index) not in self.hooked:
                slots[index] = self.hooked_value(hooks, slots[index])
                called.append(index)
        if called and isinstance(node, SelectiveNode) and (node.expanded or not self.is_whole(node, slots)):
            if not node.expanded:  # the hooks have gone through the same graph
                self.take_apart(node)
            self.hooked.update(
                [(id(target_edge[0]), target_edge[1]) for index in called if (target_edge := node.edges[index]) is not None]
            )

    def hooked_value(self, hooks: Mapping[int, Callable[[Any], Any]], g: Any) -> Any:
        """The gradient `g` after the hooks, which see Tensors, whatever the mode; one that returns a value replaces it.

        They see a row-major one of their own, which they may change, unless it is itself differentiable: in which memory it was computed,
        and who shares that, is up to the pass.  Raises TypeError for a value that is no Tensor, RuntimeError for one of another shape or
        dtype."""
        if self.tensors:
            value = g if self.create_graph else g.clone()
        else:
            value = self.wrap(np.array(g, order="C"))
        array = value._array
        self.sink.handed[id(array)] = array
        last = hooks.get(RETAIN)
        ordered = [hook for key, hook in hooks.items() if key >= 0]
        previous = state.grad_enabled
        try:
            state.grad_enabled = self.create_graph
            for hook in ordered if last is None else [*ordered, last]:
                result = state.top.call(hook, value) if self.tensors else with_errors(self.errors, hook, value)
                if result is not None:
                    _check_replacement(hook, result, array)
                    value = result
        finally:
            state.grad_enabled = previous
        self.sink.handed[id(value._array)] = value._array
        return value if self.tensors else value._array


def hooks_after(leaf: Any) -> list[Callable[[Any], Any]]:
    """What is to be called when a gradient was added to `leaf.grad`."""
    return [hook for key, hook in (leaf._hooks or {}).items() if AT_END < key <= AFTER]


def _check_replacement(hook: Any, result: Any, array: Any) -> None:
    """Raises for what cannot take the place of a gradient with this array."""
    name = getattr(hook, "__name__", repr(hook))
    given = getattr(result, "_array", None)
    if given is None:
        raise TypeError(
            f"backward(): the hook {name} returned a {result.__class__.__name__}; expected a Tensor, or None to keep the gradient"
        )
    if given.shape != array.shape:
        raise RuntimeError(
            f"backward(): the hook {name} has changed the size of the gradient: it is {list(array.shape)}, the hook returned "
            f"{list(given.shape)}"
        )
    if given.dtype != array.dtype:
        raise RuntimeError(
            f"backward(): the hook {name} has changed the type of the gradient: it is {array.dtype}, the hook returned {given.dtype}; "
            "convert it back with .to()"
        )


def run_backward(
    roots: Sequence[TapeEdge],
    cotangents: Sequence[Any],
    sink: GradientSink,
    *,
    retain_graph: bool,
    create_graph: bool,
    wrap: Callable[[Any], Any],
) -> None:
    """Propagate `cotangents` (Tensors) from `roots` to the leaves and the wanted values of `sink`.

    wrap makes a Tensor of an array, for hooks.  Raises RuntimeError where the graph was freed or a saved value was changed in place."""
    recording = state.top is not state.base
    work = _Pass(roots, sink, retain_graph, create_graph, recording, wrap)
    if recording:
        to_all = sink.leaf is not None and not create_graph
        state.top.note("backward", *work.ways(roots), sink.leaf is not None, work.boundary if to_all else None)
    for g in cotangents:
        sink.handed[id(g._array)] = g._array
    if work.tensors:
        previous = state.grad_enabled
        try:
            state.grad_enabled = create_graph
            work.run(roots, cotangents)
        finally:
            state.grad_enabled = previous
        if work.left:
            state.top.note("backward left", work.left, retain_graph)
    else:
        quietly(work.run, roots, [g._array for g in cotangents])
