"""The values of a graph as the scheduler sees them: producers, memory layouts, and which nodes a nest can hold.

`Values(graph, layouts)` normalises the graph without changing its meaning: dead nodes go, a view that would need a copy gets an explicit
`clone`, and so does an output or final write that has no memory of its own.  After that every VIEW output has a `Strided` layout over a
*root*: an input, a constant, or the output of a node that is no view.

`operand_positions` says where a member of a nest reads its operands, given the position of its own element.  Nothing here decides
what is fused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tracejit.codegen.products import gemm_layout, is_tiny, rewritten_products
from tracejit.codegen.views import ZERO, Position, Positions, Strided, contiguous, strided_view, through_view
from tracejit.core.aval import Aval, ScalarAval
from tracejit.core.dtypes import bool_
from tracejit.core.op import REGISTRY, Kind
from tracejit.core.shapes import product
from tracejit.ir.graph import Graph, Literal, Node, Operand

__all__ = ["Values", "is_host", "is_member", "iteration_shape", "operand_positions", "reduced_dims"]

Shape = tuple[int, ...]
_MEMBERS = frozenset({"full", "arange", "eye", "clone", "flip", "select_scatter", "gather", "index", "index_select", "select"})
_SPECIAL = frozenset(
    {
        *("cat", "pad", "slice_scatter", "diagonal_scatter", "scatter_add", "scatter", "index_add", "index_put"),
        *("cumsum", "cumprod", "matmul", "fold", "sum_at"),
        *("random_uniform", "random_normal", "random_exponential", "random_integers", "random_advance"),
    }
)


class Values:
    """Producers and layouts of the values of one graph.

    layouts: strides in elements of each tensor input.  kept: so many trailing outputs go to the residual slab, inputs among them as
    clones that a nest can hold.  `strided[v]` is where v's elements lie once v's root has memory.
    """

    def __init__(self, graph: Graph, layouts: Mapping[int, Shape], kept: int = 0) -> None:
        self.graph = graph
        self.avals: dict[int, Aval | ScalarAval] = dict(graph.avals)
        self.constants: dict[int, Any] = dict(graph.constants)
        self.nodes: list[Node] = []
        self.producer: dict[int, int] = {}
        self.strided: dict[int, Strided] = {}
        for v in graph.inputs:
            aval = self.avals[v]
            if isinstance(aval, Aval):
                self.strided[v] = Strided(v, 0, layouts.get(v, contiguous(aval.shape)))
        for v in self.constants:
            self._own(v)
        nodes, self.avals = rewritten_products(graph, _live(graph), self.avals)
        self._fresh = max(self.avals, default=0) + 1  # the next unused value id
        for node in nodes:
            self._take(node)
        self.outputs: list[Operand] = []
        copies: dict[int, int] = {}
        taken = {o for o in graph.outputs if isinstance(o, int)}  # roots whose memory is an output
        for o in graph.outputs[: len(graph.outputs) - kept]:
            if isinstance(o, int) and o in self.strided and o not in graph.inputs and o not in copies:
                root = self.strided[o].root
                if root in taken - {o} or root not in self.producer or not self.is_whole(o):
                    copies[o] = self._clone(o)  # the caller gets memory of its own
                taken.add(root)
            self.outputs.append(copies.get(o, o) if isinstance(o, int) else o)
        for o in graph.outputs[len(graph.outputs) - kept :]:
            outside = isinstance(o, int) and o in self.strided and self.root(o) not in self.producer
            self.outputs.append(self._clone(o) if outside else o)  # type: ignore[arg-type]
        written = {target for target, _ in graph.writes}
        self.writes: list[tuple[int, int]] = []
        for target, v in graph.writes:
            root = self.strided[v].root
            self.writes.append((target, self._clone(v) if root in written and not (root == v == target) else v))

    def aval(self, v: int) -> Aval:
        """The aval of a tensor value."""
        aval = self.avals[v]
        assert isinstance(aval, Aval), f"value {v} is a scalar"
        return aval

    def shape(self, v: int) -> Shape:
        return self.aval(v).shape

    def is_tensor(self, v: Operand) -> bool:
        return type(v) is int and type(self.avals[v]) is Aval

    def root(self, v: int) -> int:
        """The value in whose memory v lies."""
        return self.strided[v].root

    def is_view(self, v: int) -> bool:
        i = self.producer.get(v)
        return i is not None and self.strided[v].root != v

    def through(self, v: int, positions: Positions, extents: Sequence[int]) -> tuple[int, Positions] | None:
        """(operand, positions in it) of a view's element; None where they are not affine."""
        node = self.nodes[self.producer[v]]
        base = node.operands[0]
        assert isinstance(base, int)
        found = through_view(node, positions, self.shape(base), self.shape(v), extents)
        return None if found is None else (base, found)

    def is_whole(self, v: int) -> bool:
        """Whether v is all of its root's memory in row-major order, maybe under another shape."""
        layout, shape = self.strided[v], self.shape(v)
        return layout == Strided(layout.root, 0, contiguous(shape)) and product(shape) == self.aval(layout.root).size

    def _own(self, v: int) -> None:
        self.strided[v] = Strided(v, 0, contiguous(self.shape(v)))

    def _add(self, node: Node) -> None:
        for o in node.outputs:
            self.producer[o] = len(self.nodes)
        self.nodes.append(node)

    def _clone(self, v: int) -> int:
        copy, self._fresh = self._fresh, self._fresh + 1
        self.avals[copy] = self.avals[v]
        self._own(copy)
        self._add(Node(REGISTRY["clone"], (v,), (), (copy,)))
        return copy

    def _take(self, node: Node) -> None:
        if node.op.name == "constant":
            (out,) = node.outputs
            self.constants[out] = node.attrs["array"].array
            self._own(out)
            return
        if node.op.kind is Kind.VIEW:
            (out,) = node.outputs
            base = node.operands[0]
            assert isinstance(base, int)
            if node.op.name != "select" or isinstance(node.operands[1], Literal):
                layout = strided_view(node, self.strided[base], self.shape(base), self.shape(out))
                if layout is None:
                    base = self._clone(base)
                    node = Node(node.op, (base, *node.operands[1:]), node.attributes, node.outputs, node.line)
                    layout = strided_view(node, self.strided[base], self.shape(base), self.shape(out))
                    assert layout is not None, f"{node.op.name} has no layout over a contiguous base"
                self.strided[out] = layout
                self._add(node)
                return
        floating = node.op.name == "matmul" and self.aval(node.outputs[0]).dtype.is_floating_point
        if floating and not is_tiny(*(self.shape(o) for o in node.operands[:2])):  # type: ignore[arg-type]
            node = self._readable_by_gemm(node)
        for o in node.outputs:
            self._own(o)
        self._add(node)

    def _readable_by_gemm(self, node: Node) -> Node:
        """A copy before a product for every operand that gemm cannot read in place."""
        operands = tuple(
            o if gemm_layout(self.shape(o), self.strided[o].strides) is not None else self._clone(o)  # type: ignore[arg-type, index]
            for o in node.operands
        )
        return node if operands == node.operands else Node(node.op, operands, node.attributes, node.outputs, node.line)


def _live(graph: Graph) -> list[Node]:
    """Nodes that an output, a write or an exit needs."""
    needed = {o for o in graph.outputs if isinstance(o, int)} | {v for _, v in graph.writes}
    kept = []
    for node in reversed(graph.nodes):
        if node.op.kind is Kind.GUARD or node.op.may_exit or any(o in needed for o in node.outputs):
            needed.update(o for o in node.operands if isinstance(o, int))
            kept.append(node)
    return kept[::-1]


def iteration_shape(values: Values, node: Node) -> Shape:
    """The shape over whose elements a member runs."""
    if node.op.kind is Kind.GUARD:
        return ()
    return values.shape(node.operands[0] if node.op.kind is Kind.REDUCTION else node.outputs[0])  # type: ignore[arg-type]


def reduced_dims(node: Node) -> tuple[int, ...]:
    attributes = node.attrs
    return attributes["dims"] if "dims" in attributes else (attributes["dim"],)


def _one_hot(values: Values, node: Node) -> bool:
    """A scatter of one position per line along `dim` is a comparison with the coordinate: elementwise."""
    if not all(map(values.is_tensor, node.operands)):
        return False
    base, index, src = (values.shape(o) for o in node.operands)  # type: ignore[arg-type]
    dim = node.attrs["dim"]
    return len(index) == len(base) > 0 and index == (*base[:dim], 1, *base[dim + 1 :]) and src == index


def is_member(values: Values, node: Node) -> bool:
    """Whether a nest can compute the node element by element, reading operands at positions of its own."""
    op = node.op
    if op.kind is Kind.ELEMENTWISE:
        return op.lowering is not None
    if op.kind is Kind.REDUCTION:
        return op.reducer is not None and len(values.shape(node.operands[0])) > 0  # type: ignore[arg-type]
    if op.name in ("scatter_add", "scatter"):
        return _one_hot(values, node)
    if op.name in ("gather", "index"):
        return len(values.shape(node.operands[0])) > 0  # type: ignore[arg-type]
    return op.name in _MEMBERS or op.kind is Kind.GUARD


def is_host(values: Values, node: Node) -> bool:
    """Whether the node must be evaluated on the host."""
    if node.op.kind is Kind.VIEW or node.op.name == "constant":
        return False
    if node.op.may_exit and 0 in values.aval(node.outputs[0]).shape:  # no loop over its elements would look at the indices
        return True
    if is_member(values, node):
        return False
    if node.op.name == "fold" and values.aval(node.outputs[0]).dtype is bool_:
        return True
    return node.op.name not in _SPECIAL or not all(values.shape(o) for o in node.operands if values.is_tensor(o))  # type: ignore[arg-type]


def broadcast_positions(out: Positions, shape: Shape) -> Positions:
    """Positions in an operand that broadcasts to the output."""
    lead = len(out) - len(shape)
    if not lead and 1 not in shape:
        return out
    return tuple(ZERO if s == 1 else out[lead + d] for d, s in enumerate(shape))


def operand_positions(values: Values, node: Node, at: Positions, dynamic: Any) -> list[tuple[int, Positions]]:
    """(operand number, positions) of the tensor operands for the element at `at` of the iteration space.

    `dynamic` stands for the index that the node reads at run time (elements.Dynamic when nests are built; one for each index tensor of
    `index`, or one for all)."""
    name, kind = node.op.name, node.op.kind
    if kind is Kind.REDUCTION:
        return [(0, at)]
    if kind is Kind.GUARD:
        return [(0, tuple(ZERO for _ in values.shape(node.operands[0])))]  # type: ignore[arg-type]
    if kind is Kind.ELEMENTWISE:
        return [(k, broadcast_positions(at, values.shape(o))) for k, o in enumerate(node.operands) if values.is_tensor(o)]  # type: ignore[arg-type]
    if kind is Kind.CREATION:
        return []
    a = node.attrs
    moving = Position(dynamic=((1, dynamic),))
    if name == "clone":
        return [(0, at)]
    if name == "flip":
        shape = values.shape(node.outputs[0])
        return [(0, tuple(p.scaled(-1).shifted(shape[d] - 1) if d in a["dims"] else p for d, p in enumerate(at)))]
    if name == "index":
        return _index_positions(values, node, at, dynamic)
    dim = a["dim"]
    if name == "gather":
        return [(1, at), (0, (*at[:dim], moving, *at[dim + 1 :]))]
    if name == "index_select":
        rank = len(values.shape(node.operands[1]))  # type: ignore[arg-type]
        return [(1, at[dim : dim + rank]), (0, (*at[:dim], moving, *at[dim + rank :]))]
    if name in ("scatter_add", "scatter"):
        line = (*at[:dim], ZERO, *at[dim + 1 :])
        return [(0, at), (1, line), (2, line)]
    if name == "select_scatter":
        return [(0, at), (1, broadcast_positions((*at[:dim], *at[dim + 1 :]), values.shape(node.operands[1])))]  # type: ignore[arg-type]
    assert name == "select", name
    return [(0, (*at[:dim], moving, *at[dim:]))]


def index_block(values: Values, node: Node, first: int) -> tuple[int, int]:
    """(where the block of broadcast indices begins in the result of `index`, its rank); the index tensors start at operand `first`."""
    dims = node.attrs["dims"]
    adjacent = dims == tuple(range(dims[0], dims[0] + len(dims)))
    rank = max(len(values.shape(o)) for o in node.operands[first:])  # type: ignore[arg-type]
    return (dims[0] if adjacent else 0), rank


def _index_positions(values: Values, node: Node, at: Positions, dynamic: Any) -> list[tuple[int, Positions]]:
    dims = node.attrs["dims"]
    start, rank = index_block(values, node, 1)
    block = at[start : start + rank]
    rest = iter((*at[:start], *at[start + rank :]))
    tokens = dynamic if isinstance(dynamic, tuple) else (dynamic,) * len(dims)
    moving = {d: Position(dynamic=((1, token),)) for d, token in zip(dims, tokens, strict=True)}
    own = tuple(moving[d] if d in moving else next(rest) for d in range(len(values.shape(node.operands[0]))))  # type: ignore[arg-type]
    found = [(k, broadcast_positions(block, values.shape(o))) for k, o in enumerate(node.operands) if k]  # type: ignore[arg-type]
    return [*found, (0, own)]


def nontrivial(shape: Shape) -> Shape:
    return tuple(s for s in shape if s != 1)


def is_single(shape: Shape) -> bool:
    return product(shape) == 1
