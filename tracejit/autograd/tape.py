"""The tape: nodes that remember how a tensor was made.

A `Node` has one edge per operand: None (no gradient wanted), a leaf tensor, or (node, output position).  `sequence` grows along the
program, so nodes in descending sequence are in strict reverse program order.  What a node saves is what the primitive's vjp
declared; every saved value carries the content version of its storage, and backward refuses a value changed since.

This module knows tensors only as objects with `_array`, `_storage`, `_node`, `_index`, `_requires_grad`.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import numpy as np

from tracejit.core.aval import Aval
from tracejit.core.dtypes import FROM_NUMPY
from tracejit.core.op import Kind, Op, VjpContext
from tracejit.core.unbroadcast import sum_to
from tracejit.ops.fused import pulled_back
from tracejit.ops.movement.copies import clone
from tracejit.ops.movement.views import detach

__all__ = [
    "AFTER", "AT_END", "RETAIN", "AccumulateGrad", "DataStorage", "LiveInNode", "LoopNode", "Node", "OpNode", "SelectiveNode", "Storage",
    "class_of", "edge_of", "edges_behind_freed", "handed_early", "install", "is_tensor", "leads_elsewhere", "make_tensor", "mark_written",
    "move_before", "move_retained", "next_sequence", "shown", "wanted_edge", "with_contents",
]  # fmt: skip

next_sequence = itertools.count().__next__
ndarray = np.ndarray
NOTHING_SAVED: tuple[Any, ...] = (None,)
_ELEMENTWISE = Kind.ELEMENTWISE  # found once: a member of an enumeration takes 0.1 us on Python 3.11
RETAIN = -1
"""The key, among the hooks of a value, of what `retain_grad()` does: it comes last, and goes with its tensor."""


AFTER = -2
"""Keys from here downwards, among the hooks of a leaf, are of what is called after its gradient was added to `.grad`."""

AT_END = -(1 << 62)
"""Keys from here downwards are of what is called at the end of a backward pass that has done so."""

handed_early: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""Leaves, by id, that get what they receive in a backward pass as soon as it is complete; they have hooks for its end."""


class Storage:
    """The memory that a tensor and its views share.

    version: how many times its contents were changed in place.  written: the number of the last such change, 0 for none: nodes and changes
    are numbered together, so `written > node.sequence` says that the contents have changed since the node was made.  exposed: whether
    NumPy arrays outside the library may share it."""

    __slots__ = ("__weakref__", "exposed", "version", "written")

    def __init__(self, exposed: bool = False) -> None:
        self.version = self.written = 0
        self.exposed = exposed


class DataStorage(Storage):
    """What `.data` gives its tensor: the memory of another one, whose version stays as it is when this tensor is written to.

    So a backward pass does not notice such a write, and reads what is in the memory at that time; that of a compiled program does the
    same (`live` of passes/residuals.py)."""

    __slots__ = ()


def mark_written(storages: Iterable[Storage]) -> None:
    """The contents of these storages have just been changed in place."""
    now = next_sequence()
    for storage in storages:
        storage.version += 1
        storage.written = now


def is_tensor(x: Any) -> bool:
    """Whether `x` may have a position on the tape."""
    return hasattr(x, "_requires_grad") and hasattr(x, "_node")


def edge_of(tensor: Any) -> tuple[Any, int]:
    """Where the gradient of `tensor` goes: (node, output position), or (leaf tensor, 0)."""
    node = tensor._node
    return (tensor, 0) if node is None else node.output_edge(tensor._index)


def wanted_edge(tensor: Any) -> tuple[Any, int]:
    """The same where the gradient of `tensor` is asked for: what stands for a leaf gets what arrives at the leaf."""
    node, index = edge_of(tensor)
    if isinstance(node, Node) and node.stands_for_leaf:
        (edge,) = node.edges
        assert edge is not None
        return edge
    return node, index


def move_retained(before: Node | None, position: int, node: Node, index: int = 0) -> None:
    """A tensor that was output `position` of `before`, if that is a node, becomes output `index` of `node`, which is new, since its
    contents were changed in place: what keeps its gradient goes with it."""
    if before is not None:
        before, position = before.output_edge(position)
        keep = (before.hooks or {}).get(position, {}).pop(RETAIN, None)
        if keep is not None:
            node.hooks = {**(node.hooks or {}), index: {RETAIN: keep}}


class Node:
    """One step of the tape; subclasses give `backward`."""

    __slots__ = ("__weakref__", "count", "edges", "hooks", "needs", "sequence")
    is_selective: ClassVar[bool] = False
    """Whether it is a SelectiveNode."""

    accumulates: ClassVar[bool] = False
    """Whether it is a LoopNode that was not expanded."""

    stands_for_leaf = False
    """Whether it is the position of a tensor that stands for a leaf (LiveInNode)."""

    count: int
    edges: tuple[tuple[Any, int] | None, ...]
    needs: tuple[bool, ...]
    hooks: dict[int, dict[int, Callable[[Any], Any]]] | None
    sequence: float

    def __init__(self, edges: tuple[tuple[Any, int] | None, ...], count: int = 1) -> None:
        self.edges = edges
        self.needs = tuple([e is not None for e in edges])
        self.count = count
        self.hooks = None
        self.sequence = next_sequence()

    def name(self) -> str:
        """The node's name, PyTorch style."""
        return type(self).__name__

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """((node or None, output position), ...), one per operand; leaves appear as AccumulateGrad."""
        out: list[tuple[Any, int]] = []
        for edge in self.edges:
            if edge is None:
                out.append((None, 0))
            else:
                target, index = edge
                out.append((shown(target), index) if isinstance(target, Node) else (AccumulateGrad(target), 0))
        return tuple(out)

    def backward(self, cotangents: Sequence[Any], tensors: bool) -> Sequence[Any]:
        """Cotangents of the operands, given one per output (None where there is none).  Arrays, or Tensors when `tensors` is true
        (double backward, recording)."""
        raise NotImplementedError(type(self).__name__)

    def output_edge(self, index: int) -> tuple[Node, int]:
        """Where the gradient of output `index` is added up."""
        return self, index

    def release(self) -> None:
        """Drop the values that the last `backward` used; another one that needs them then raises."""

    def __repr__(self) -> str:
        return f"<{self.name()} object at {id(self):#x}>"


class SelectiveNode(Node):
    """A node that stands for several steps of eager mode's tape, of which a pass enters some.  A pass goes through it in one step
    where that does what those would do.  Where it does not, the node is expanded: from then on it hands what arrives at output i on
    to `edges[i]`, a position on a tape of those steps."""

    __slots__ = ()
    is_selective = True

    @property
    def expanded(self) -> bool:
        """Whether it hands on what it receives."""
        raise NotImplementedError(type(self).__name__)

    def forwarding_edge(self, index: int) -> tuple[Any, int]:
        """Where the gradient of output `index` is added up, if it is expanded."""
        edge = self.edges[index]
        assert edge is not None
        target, position = edge
        return target.output_edge(position) if isinstance(target, Node) else edge

    def leading(self, wanted: tuple[bool, ...], results: Iterable[int]) -> frozenset[int]:
        """The outputs from which a pass gets to an edge that is `wanted`, or to one of the outputs `results`."""
        raise NotImplementedError(type(self).__name__)

    def latest_first(self, outputs: Iterable[int]) -> Sequence[int]:
        """These outputs in the order in which a pass comes to the steps that made them."""
        raise NotImplementedError(type(self).__name__)

    def is_exact(
        self, cotangents: Sequence[Any], hooked: Sequence[int], asked: Sequence[int], wanted: tuple[bool, ...] | None
    ) -> bool:
        """Whether a pass through it does what the steps would, when the outputs `hooked` have hooks, and what arrives at `asked` is
        wanted."""
        raise NotImplementedError(type(self).__name__)

    def backward_to(
        self, wanted: tuple[bool, ...] | None, cotangents: Sequence[Any], retain: bool
    ) -> Iterable[tuple[tuple[Any, int] | None, Any]]:
        """`backward` on arrays, where it is exact, for at least those edges that are `wanted` (None for all): (edge, gradient) in the
        order in which the steps hand them on.  Unless `retain`, what the steps would release is released."""
        raise NotImplementedError(type(self).__name__)

    def expand(self) -> None:
        """Become a node that hands on.  The steps have sequence numbers between those of this node and of the one before."""
        raise NotImplementedError(type(self).__name__)


def move_before(nodes: Iterable[Node | None], first: int, end: float) -> None:
    """Give nodes, and those that they lead to, sequence numbers before `end` in their order, if they were made after the number
    `first`."""
    last = next_sequence()
    waiting, seen = [node for node in nodes if node is not None], set()
    while waiting:
        node = waiting.pop()
        if node in seen or node.sequence < first:
            continue
        seen.add(node)
        waiting += [edge[0] for edge in node.edges if edge is not None and isinstance(edge[0], Node)]
    for node in seen:
        node.sequence = end - 1 + (node.sequence - first) / (last - first + 1)


class LiveInNode(Node):
    """The position of a tensor whose history is found when it is asked for.  find: gives a tensor with the same history."""

    __slots__ = ("_find", "_found")

    def __init__(self, find: Callable[[], Any]) -> None:
        self._find = find
        self._found: tuple[tuple[Any, int], ...] = ()
        super().__init__((None,))
        self.needs = (True,)

    @property
    def edges(self) -> tuple[tuple[Any, int] | None, ...]:  # type: ignore[override]
        if not self._found:
            self._found = (edge_of(self._find()),)
        return self._found

    @edges.setter
    def edges(self, edges: tuple[tuple[Any, int] | None, ...]) -> None:
        """There are none before they are asked for."""

    @property
    def stands_for_leaf(self) -> bool:  # type: ignore[override]
        (edge,) = self.edges
        return edge is not None and not isinstance(edge[0], Node)

    def output_edge(self, index: int) -> tuple[Any, int]:
        (edge,) = self.edges  # others may have been made of the tensor
        assert edge is not None
        target, position = edge
        return target.output_edge(position) if isinstance(target, Node) else (self, index)

    def backward(self, cotangents: Sequence[Any], tensors: bool) -> Sequence[Any]:
        return cotangents

    def name(self) -> str:
        return "AliasBackward0"


class AccumulateGrad:
    """The end of an edge that reaches a leaf tensor, as shown by `next_functions`."""

    __slots__ = ("variable",)

    def __init__(self, variable: Any) -> None:
        self.variable = variable

    next_functions: tuple[Any, ...] = ()

    def name(self) -> str:
        """AccumulateGrad."""
        return "AccumulateGrad"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AccumulateGrad) and other.variable is self.variable

    def __hash__(self) -> int:
        return id(self.variable)

    def __repr__(self) -> str:
        return f"<AccumulateGrad object at {id(self.variable):#x}>"


def leads_elsewhere(tensor: Any, leaves: Sequence[Any]) -> bool:
    """Whether a backward pass from `tensor` would reach another leaf than these."""
    known = {id(leaf) for leaf in leaves}
    seen: set[Node] = set()
    stack: list[Any] = [edge_of(tensor)[0]]
    while stack:
        target = stack.pop()
        if not isinstance(target, Node):
            if id(target) not in known:
                return True
        elif target not in seen:
            seen.add(target)
            stack.extend([edge[0] for edge in target.edges if edge is not None])
    return False


def edges_behind_freed(tensor: Any, since: int) -> set[tuple[int, int]] | None:
    """Where a backward pass from `tensor` would go on to behind the nodes that were made since sequence number `since`, as (id of the node
    or leaf, position), if it would meet one whose saved values were freed; else None."""
    stack = [tensor._node] if tensor._node is not None and tensor._node.sequence >= since else []
    seen: set[Node] = set()
    edges: set[tuple[int, int]] = set()
    freed = False
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        freed = freed or bool(getattr(node, "freed", False))
        for target, index in filter(None, node.edges):
            if isinstance(target, Node) and target.sequence >= since:
                stack.append(target)
            else:
                edges.add((id(target), index))
    return edges if freed else None


FREED = (
    "backward(): the saved values of this graph were freed by an earlier backward pass. "
    "Pass retain_graph=True to the earlier backward() or grad() to go through the graph a second time"
)


def changed_in_place(name: str, shape: Any) -> RuntimeError:
    """The error for a saved value whose contents changed.  It says what is known of a node whether eager mode made it or a program."""
    return RuntimeError(
        "backward(): one of the variables needed for gradient computation has been modified by an inplace operation: an operand or the "
        f"result of {name}, whose result has shape {list(shape)}, was saved and has been changed since; expected the contents that it had. "
        "Clone it before changing it, or compute the change out of place"
    )


class OpNode(Node):
    """An applied primitive.  It is its own vjp context in a plain backward pass (`inputs`, `outputs`: arrays).

    meta: (shape, dtype) per operand (None for a scalar); just None for an elementwise primitive without broadcasting: all are
    `out_meta`."""

    __slots__ = ("attributes", "freed", "inputs", "meta", "op", "out_meta", "outputs", "saved", "storages")

    storages: Any

    def __init__(
        self,
        op: Op,
        operands: tuple[Any, ...],
        arrays: Sequence[Any],
        attributes: Any,
        needs: tuple[bool, ...],
        outs: tuple[Any, ...],
    ) -> None:
        self.op = op
        self.attributes = attributes
        self.needs = needs
        self.hooks = None
        self.freed = False
        self.sequence = next_sequence()
        self.count = len(outs)
        out = outs[0]
        out_shape = out.shape
        self.out_meta = (out_shape, out.dtype)
        self.edges = tuple(
            [
                None if not need else (x, 0) if (node := x._node) is None else (node, x._index)
                for x, need in zip(operands, needs, strict=True)
            ]
        )
        saved_inputs, saved_outputs = op.saved_for(needs)
        if saved_inputs:
            self.inputs: tuple[Any, ...] = tuple(
                [a if i in saved_inputs or not isinstance(a, ndarray) else None for i, a in enumerate(arrays)]
            )
            self.saved: Any = [
                (x, 0 if (s := x._storage) is None else s.version) for i in saved_inputs if hasattr(x := operands[i], "_storage")
            ]
        else:
            self.inputs = NOTHING_SAVED if len(needs) == 1 else tuple([None if isinstance(a, ndarray) else a for a in arrays])
            self.saved = ()
        self.storages = None if saved_outputs else ()  # None: filled by the maker, who owns the output tensors
        self.outputs: tuple[Any, ...] = (
            tuple([a if i in saved_outputs else None for i, a in enumerate(outs)]) if saved_outputs else NOTHING_SAVED
        )
        meta = None
        if op.kind is _ELEMENTWISE and op.keeps_dtype:
            for a in arrays:
                if isinstance(a, ndarray) and a.shape != out_shape:
                    break
            else:
                self.meta = None
                return
        meta = tuple([(a.shape, a.dtype) if isinstance(a, ndarray) else None for a in arrays])
        self.meta = meta

    def name(self) -> str:
        given = self.op.node_name
        if given is None:
            return "".join(w.capitalize() for w in self.op.name.split("_")) + "Backward0"
        return given if isinstance(given, str) else given(self)

    @property
    def numbers(self) -> tuple[bool, ...]:
        """Which operands are numbers, as far as what is left of a freed node tells."""
        return tuple([isinstance(x, bool | int | float) for x in self.inputs])

    @property
    def avals(self) -> tuple[Any, ...]:
        """Avals of the tensor operands (None for scalars)."""
        if self.meta is None:
            shape, dtype = self.out_meta
            return (Aval(shape, FROM_NUMPY[dtype]),) * len(self.needs)
        return tuple([None if m is None else Aval(m[0], FROM_NUMPY[m[1]]) for m in self.meta])

    def _holds(self, array: Any) -> bool:
        """Whether this is an array that was saved, and not one that was put in its place (`x.data = ...`) since."""
        return any(a is array for a in self.inputs)

    def backward(self, cotangents: Sequence[Any], tensors: bool) -> Sequence[Any]:
        if self.freed:
            raise RuntimeError(FREED)
        op = self.op
        for tensor, version in self.saved:
            storage = tensor._storage
            if storage is not None and storage.version != version and self._holds(tensor._array):
                raise changed_in_place(op.title, self.out_meta[0])
        for storage, version in self.storages:
            if storage.version != version:
                raise changed_in_place(op.title, self.out_meta[0])
        rule = op.vjp_rule
        assert rule is not None, op.name
        if self.meta is None and not tensors and op.kind is _ELEMENTWISE and not self.attributes and self.count == 1:
            found = pulled_back(op, self.needs, self.inputs, self.outputs, cotangents[0])
            if found is not None:
                return found
        context = self.tensor_context() if tensors else self
        result = rule(context, cotangents[0]) if self.count == 1 else rule(context, *cotangents)
        if type(result) is not tuple:
            result = (result,)
        if self.meta is not None and op.kind is _ELEMENTWISE:
            return [
                None if g is None or m is None or not n else sum_to(g, m[0])
                for g, m, n in zip(result, self.meta, self.needs, strict=True)
            ]
        return result

    @property
    def accumulated(self) -> tuple[Any, ...]:
        """See VjpContext."""
        return ()

    def tensor_context(self) -> VjpContext:
        """The context over Tensors, through which gradients flow again."""
        if any(
            t._node is not None and not self._holds(t._array) for t, _ in self.saved
        ):  # of another shape now, and at another position
            raise changed_in_place(self.op.title, self.out_meta[0])
        tensors = iter([t for t, _ in self.saved])
        storages = iter([s for s, _ in self.storages])
        inputs = tuple([with_contents(next(tensors), a) if isinstance(a, ndarray) else a for a in self.inputs])
        outputs = tuple([None if a is None else make_tensor(a, (self, i), next(storages)) for i, a in enumerate(self.outputs)])
        return VjpContext(inputs, outputs, self.needs, self.avals, self.attributes, self.accumulated)

    def saved_values(self) -> dict[str, Any]:
        """What the vjp reads, under names like PyTorch's: `_saved_self` and `_saved_other` of operands, `_saved_result` of the result,
        `_saved_dim` and the like of attributes.  Raises RuntimeError for a node that was freed."""
        if self.freed:
            raise RuntimeError(FREED)
        context = self.tensor_context()
        operands = ("self", "other", *(f"operand{i}" for i in range(2, len(context.inputs))))
        results = ("result", *(f"result{i}" for i in range(1, len(context.outputs))))
        pairs = [
            *zip(operands, context.inputs, strict=False),
            *zip(results, context.outputs, strict=False),
            *self.attributes.items(),
        ]
        return {f"_saved_{name}": value for name, value in pairs if value is not None}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_saved_"):
            found = self.saved_values()
            if name in found:
                return found[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(() if self.freed else self.saved_values())]

    def release(self) -> None:
        if self.saved or self.storages:
            self.freed = True
            self.inputs = self.outputs = ()
            self.saved = self.storages = ()


class LoopNode(OpNode, SelectiveNode):
    """A loop, whose vjp goes on adding to what cotangents of its operands have come to.

    A pass goes through it as a whole, but where someone asks for what arrives at a result of which another one was made in the last step:
    then the operations of the steps take its place, made of what it has saved.  span: how far its sequence number is from that of the
    node before; 0 once it is expanded."""

    __slots__ = ("_accumulated", "span")
    span: float

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.span = 1.0

    @property
    def accumulates(self) -> bool:  # type: ignore[override]
        return not self.expanded

    @property
    def accumulated(self) -> tuple[Any, ...]:
        return self._accumulated

    @property
    def expanded(self) -> bool:
        return not self.span

    @property
    def is_expandable(self) -> bool:
        """Whether it has saved what its steps save, and still has it."""
        return not self.expanded and not self.freed and _LOOPS[0](self.op) is not None

    def output_edge(self, index: int) -> tuple[Any, int]:
        return self.forwarding_edge(index) if self.expanded else (self, index)

    def leading(self, wanted: tuple[bool, ...], results: Iterable[int]) -> frozenset[int]:
        if self.expanded:
            return frozenset([index for index, there in enumerate(wanted) if there])
        made_of = _LOOPS[0](self.op) or {}
        return frozenset(range(self.count) if any(wanted) else [k for i in results for k in (i, *made_of.get(i, ()))])

    def latest_first(self, outputs: Iterable[int]) -> Sequence[int]:
        return tuple(outputs)

    def is_exact(
        self, cotangents: Sequence[Any], hooked: Sequence[int], asked: Sequence[int], wanted: tuple[bool, ...] | None
    ) -> bool:
        made_of = _LOOPS[0](self.op)
        if self.freed or made_of is None:
            return True
        if hooked and (wanted is not None or len(hooked) > 1):
            return False  # it takes the steps to say which of these lead to a wanted value, or what their order is
        return not any(cotangents[k] is not None for i in (*hooked, *asked) for k in made_of.get(i, ()))

    def expand(self) -> None:
        edges = _LOOPS[1](self)
        for index, hooks in (self.hooks or {}).items():
            node, position = edges[index]
            node.hooks = {**(node.hooks or {}), position: hooks}
        self.edges, self.needs, self.hooks, self.span = edges, tuple([edge is not None for edge in edges]), None, 0.0
        self.inputs = self.outputs = self.saved = self.storages = ()

    def backward(self, cotangents: Sequence[Any], tensors: bool) -> Sequence[Any]:
        return cotangents if self.expanded else super().backward(cotangents, tensors)

    def onto(self, accumulated: tuple[Any, ...], cotangents: Sequence[Any], tensors: bool) -> Sequence[Any]:
        """`backward`, which answers with what the cotangents come to."""
        self._accumulated: tuple[Any, ...] = accumulated
        try:
            return self.backward(cotangents, tensors)
        finally:
            self._accumulated = ()


class NumberReadingNode(LoopNode):
    """A loop whose vjp reads nothing but what eager mode has as numbers of Python: no gradients flow through these, and no pass frees
    them."""

    __slots__ = ()

    def tensor_context(self) -> VjpContext:
        context = super().tensor_context()
        context.outputs = tuple([None if x is None else detach.of(x) for x in context.outputs])
        return context

    def release(self) -> None:
        """A second pass may go through it."""


def class_of(op: Op) -> type[OpNode]:
    """The class of the nodes of a primitive."""
    if "reads numbers alone" in op.traits:
        return NumberReadingNode
    return LoopNode if "accumulates" in op.traits else OpNode


_NODE_CLASSES: dict[tuple[type[OpNode], str], type[OpNode]] = {}


def shown(node: Any) -> Any:
    """A node as programs see it: that of a primitive has, from the first time that it is looked at, a class called by its name."""
    kind = type(node)
    if isinstance(node, OpNode) and "is_shown" not in kind.__dict__:
        name = node.name()
        found = _NODE_CLASSES.get((kind, name))
        if found is None:
            found = _NODE_CLASSES[kind, name] = type(name, (kind,), {"__slots__": (), "is_shown": True})
        node.__class__ = found
    return node


def with_contents(tensor: Any, array: Any) -> Any:
    """`tensor` with the contents that it had when it was saved: itself, unless other memory was put in their place."""
    if tensor._array is array:
        return tensor
    edge = (OpNode(clone, (tensor,), (array,), {}, (True,), (array,)), 0) if tensor._requires_grad else None
    return make_tensor(array, edge, None)


_MAKE: list[Callable[[Any, tuple[Node | None, int] | None, Storage | None], Any]] = []


def make_tensor(array: Any, edge: tuple[Node | None, int] | None, storage: Storage | None) -> Any:
    """A Tensor of `array`, at its position on the tape; (None, 0) is that of a leaf, None no position."""
    return _MAKE[0](array, edge, storage)


def install(make: Callable[[Any, tuple[Node | None, int] | None, Storage | None], Any]) -> None:
    """Tell what `make_tensor` does; called once, by tensor/eager.py."""
    _MAKE[:] = [make]


_LOOPS: list[Callable[[Any], Any]] = []


def install_loops(made_of: Callable[[Op], dict[int, list[int]] | None], expand: Callable[[LoopNode], tuple[Any, ...]]) -> None:
    """Tell what a LoopNode does not know; called once, by capture/loop_emission.py.  made_of: see `results_made_of` of
    ir/loop.py.  expand: the positions of the outputs on a tape of the steps."""
    _LOOPS[:] = [made_of, expand]
