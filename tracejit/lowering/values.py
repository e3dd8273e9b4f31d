"""The values of a graph as the scheduler sees them: producers, memory layouts, and which nodes a nest can hold.

Every VIEW output has a `Strided` layout over a *root*: an input, a constant, or the output of a node that is no view.

`operand_positions` says where a member of a nest reads its operands, given the position of its own element, by its own rule
(`Op.element`).  Nothing here decides what is fused.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from tracejit.core.aval import Aval, ScalarAval
from tracejit.core.op import Kind
from tracejit.core.shapes import product
from tracejit.core.symbolic import has_symbols
from tracejit.ir.graph import Graph, Literal, Node, Operand, likeness, numbered, operand_aval
from tracejit.ir.layouts import (
    ZERO,
    Position,
    Positions,
    Source,
    Strided,
    is_constant,
    through_view,
)
from tracejit.loops.combinations import COMBINATIONS, Combination

__all__ = ["Values", "is_member", "iteration_shape", "operand_positions", "reduced_dims"]

Shape = tuple[int, ...]


class Values:
    """Producers and layouts of the values of one graph, of which passes/copies.py has seen to the copies.

    `strided[v]` is where v's elements lie once v's root has memory, `reads[n]` the node that makes the memory of each tensor operand of
    node n (-1 for none), `sources[n]` these nodes, each once, `views[n]` and `members[n]` whether it is a view and what a nest can
    hold, `alike[n]` a number that it has in common with nodes that are alike (`_Likeness`).  `kinds[v]` is a number that v has in common
    with values of equal avals."""

    def __init__(self, graph: Graph, strided: Mapping[int, Strided]) -> None:
        self.graph = graph
        self.avals = graph.avals
        self.outputs = graph.outputs
        self.constants: dict[int, Any] = dict(graph.constants)
        self.nodes: list[Node] = []
        self.producer: dict[int, int] = {}
        self.reads: list[tuple[int, ...]] = []
        self.sources: list[tuple[int, ...]] = []
        self.views: list[bool] = []
        self.alike: list[int] = []
        self.strided = strided
        self.kinds = numbered(graph.avals)
        self._nbytes: dict[int, int] = {}  # by kind
        producer, kinds_of_nodes = self.producer, _Likeness(graph.avals, self.kinds)
        for node in graph.nodes:
            if is_constant(node):
                self.constants[node.outputs[0]] = node.attrs["array"].array
                continue
            reads = tuple([producer.get(strided[o].root, -1) for o in node.operands if type(o) is int and o in strided])
            self.reads.append(reads)
            self.sources.append(reads if len(reads) == 1 and reads[0] >= 0 else _sources(reads))
            is_view = bool(node.outputs) and strided[node.outputs[0]].root != node.outputs[0]
            self.views.append(is_view)
            self.alike.append(kinds_of_nodes.of(node, is_view))
            for o in node.outputs:
                producer[o] = len(self.nodes)
            self.nodes.append(node)
        self.members = [kinds_of_nodes.members[number] for number in self.alike]

    def aval(self, v: int) -> Aval:
        """The aval of a tensor value."""
        aval = self.avals[v]
        assert isinstance(aval, Aval), f"value {v} is a scalar"
        return aval

    def shape(self, v: int) -> Shape:
        return self.aval(v).shape

    def nbytes(self, v: int) -> int:
        kind = self.kinds[v]
        if kind not in self._nbytes:
            self._nbytes[kind] = self.aval(v).nbytes
        return self._nbytes[kind]

    def is_tensor(self, v: Operand) -> bool:
        return type(v) is int and type(self.avals[v]) is Aval

    def root(self, v: int) -> int:
        """The value in whose memory v lies."""
        return self.strided[v].root

    def is_view(self, v: int) -> bool:
        return self.strided[v].root != v

    def operand_position(self, v: int, positions: Positions, extents: Sequence[int]) -> tuple[int, Positions] | None:
        """(operand, positions in it) of a view's element; None where they are not affine."""
        node = self.nodes[self.producer[v]]
        base = node.operands[0]
        assert isinstance(base, int)
        found = through_view(node, positions, self.shape(base), extents)
        return None if found is None else (base, found)


def _sources(reads: tuple[int, ...]) -> tuple[int, ...]:
    """The nodes among these, each once."""
    return tuple(dict.fromkeys([p for p in reads if p >= 0]))


class _Likeness:
    """Numbers of nodes.  Those have the same that do the same to values of the same sizes, which are the same views of the memory that they
    are in: what these values are, and where their memory is, may differ.

    members: for each number, whether nests can hold such nodes."""

    def __init__(self, avals: Mapping[int, Aval | ScalarAval], kinds: Mapping[int, int]) -> None:
        self.members: list[bool] = []
        self._avals = avals
        self._kinds = kinds
        self._known: dict[Hashable, int] = {}
        self._seen = dict(kinds)  # what values are as operands: of views that depends on the views, too

    def of(self, node: Node, is_view: bool) -> int:
        """The number of a node that comes after those that make its operands.  One with symbolic sizes among its attributes, which are not
        to be compared, is like no other."""
        is_own = node.attributes and has_symbols(node.attributes)
        key = id(node) if is_own else likeness(node, self._seen, self._kinds)
        number = self._known.setdefault(key, len(self.members))
        if number == len(self.members):
            self.members.append(is_member(self._avals, node))
        if is_view:
            self._seen[node.outputs[0]] = -1 - number
        return number


def iteration_shape(values: Values, node: Node) -> Shape:
    """The shape over whose elements a member runs."""
    if node.op.kind is Kind.GUARD:
        return ()
    return values.shape(node.operands[0] if node.op.kind is Kind.REDUCTION else node.outputs[0])  # type: ignore[arg-type]


def combination(node: Node) -> Combination:
    """How a reduction or a scan makes one value of many."""
    assert node.op.reducer is not None, node.op
    return COMBINATIONS[node.op.reducer]


def finds_position(node: Node) -> bool:
    """Whether it is a reduction to the position of an extreme."""
    return node.op.kind is Kind.REDUCTION and combination(node).position


def reduced_dims(node: Node) -> tuple[int, ...]:
    attributes = node.attrs
    return attributes["dims"] if "dims" in attributes else (attributes["dim"],)


def is_member(avals: Mapping[int, Any], node: Node) -> bool:
    """Whether a nest can compute the node element by element, reading operands at positions of its own."""
    op = node.op
    if op.kind is Kind.ELEMENTWISE:
        return op.lowering is not None
    if op.kind is Kind.REDUCTION:
        return op.reducer is not None and len(avals[node.operands[0]].shape) > 0  # type: ignore[index]
    if op.element is None or op.where is None:
        return op.element is not None or op.kind is Kind.GUARD
    return op.where(*[operand_aval(o, avals) for o in node.operands], **node.attrs)


def broadcast_positions(out: Positions, shape: Shape) -> Positions:
    """Positions in an operand that broadcasts to the output."""
    lead = len(out) - len(shape)
    if not lead and 1 not in shape:
        return out
    return tuple(ZERO if s == 1 else out[lead + d] for d, s in enumerate(shape))


class Unknown:
    """What an element is in a rule that is asked for positions only."""

    def __add__(self, other: Any) -> Unknown:
        return self

    __radd__ = __mul__ = __rmul__ = __add__


class _Reads:
    """What `Op.element` is given to find where it reads its operands: `found`.  coordinates: those that are values themselves."""

    def __init__(self, dynamic: Any) -> None:
        self.index = Position(dynamic=((1, dynamic),))
        self.found: list[tuple[int, Positions]] = []
        self.coordinates: list[Position] = []

    def operand(self, number: int, shape: Shape) -> Source:
        def read(at: Positions) -> Unknown:
            self.found.append((number, at))
            return _UNKNOWN

        return Source(shape, read)

    def position(self, index: Any, size: int, wraps: bool = False) -> Position | int:
        return index.position if isinstance(index, Literal) else self.index

    def bounded(self, p: Position | int, size: int) -> tuple[Unknown, Position]:
        return self.coordinate(p), self.index

    def coordinate(self, p: Position | int) -> Unknown:
        if isinstance(p, Position):
            self.coordinates.append(p)
        return _UNKNOWN

    def __getattr__(self, name: str) -> Callable[..., Unknown]:
        return lambda *operands: _UNKNOWN


_UNKNOWN = Unknown()


def operand_positions(
    values: Values, node: Node, at: Positions, dynamic: Any
) -> tuple[list[tuple[int, Positions]], list[Position]]:
    """(operand number, positions) of the tensor operands for the element at `at` of the iteration space, and the coordinates that the
    element is made of.  `dynamic` stands for the indices that the node reads at run time."""
    kind = node.op.kind
    if kind is Kind.REDUCTION:
        return [(0, at)], []
    if kind is Kind.GUARD:
        return [(0, tuple(ZERO for _ in values.shape(node.operands[0])))], []  # type: ignore[arg-type]
    if kind is Kind.ELEMENTWISE:
        return [(k, broadcast_positions(at, values.shape(o))) for k, o in enumerate(node.operands) if values.is_tensor(o)], []  # type: ignore[arg-type]
    reads = _Reads(dynamic)
    operands = [reads.operand(k, values.shape(o)) if values.is_tensor(o) else o for k, o in enumerate(node.operands)]  # type: ignore[arg-type]
    assert node.op.element is not None, node.op.name
    node.op.element(reads, at, *operands, **node.attrs)
    return reads.found, reads.coordinates


def nontrivial(shape: Shape) -> Shape:
    return tuple(s for s in shape if s != 1)


def is_single(shape: Shape) -> bool:
    return product(shape) == 1
