"""Graph: frozen SSA.

A value is an integer id with an aval.  A node applies an Op to operands; Python scalars are operands (`Literal`, or a graph
input whose aval is a ScalarAval), never attributes.  Graphs are never edited: passes build a new one through a substitution
map (`rebuild` in ir/builder.py).

A *raw* graph, as recorded, holds views and writes in program order.  After `functionalise` every node is pure, and what
the program does to memory is in `writes`: at the end, the contents of input i become value v.

Guards are nodes too: `guard(value, expected)` has no output; it must hold before anything is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from tracejit.core.aval import Aval, ScalarAval
from tracejit.core.op import Kind, Op
from tracejit.core.symbolic import SYMBOLIC, SymFloat, SymInt, by_origin

__all__ = ["Body", "Graph", "Literal", "Node", "Operand", "all_nodes", "likeness", "numbered", "operand_aval"]


@dataclass(frozen=True, slots=True)
class Literal:
    """A Python scalar constant as operand.  Equality is by type and bits: 1, 1.0, True, 0.0 and -0.0 all differ, NaN equals itself."""

    value: bool | int | float

    def _key(self) -> tuple[str, str]:
        v = self.value
        if type(v) in SYMBOLIC:  # computed of symbolic sizes: equal if that is the same
            return type(v).__name__, f"{id(v.env)} {v.number}"  # type: ignore[union-attr]
        return type(v).__name__, v.hex() if isinstance(v, float) else repr(v)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Literal) or type(self.value) is not type(other.value):
            return False
        if type(self.value) is int:
            return self.value == other.value
        return self._key() == other._key()

    def __hash__(self) -> int:
        v = self.value
        return hash(self._key()) if type(v) in SYMBOLIC or v != v else hash(v)  # each NaN has a hash of its own

    @property
    def has_symbol(self) -> bool:
        """Whether it was computed of symbolic sizes: to ask which number it is would make a program of one size."""
        return type(self.value) in SYMBOLIC

    @property
    def position(self) -> int:
        """The integer that it is; a symbolic one stays one."""
        return self.value if self.has_symbol else int(self.value)  # type: ignore[return-value]


Operand = int | Literal | None


@dataclass(frozen=True, slots=True, init=False)
class Node:
    """One application of a primitive.  `attributes` are sorted (name, value) pairs; `line` is the user's "file:line"."""

    op: Op
    operands: tuple[Operand, ...]
    attributes: tuple[tuple[str, Hashable], ...]
    outputs: tuple[int, ...]
    line: str

    def __init__(
        self,
        op: Op,
        operands: tuple[Operand, ...],
        attributes: tuple[tuple[str, Hashable], ...],
        outputs: tuple[int, ...],
        line: str = "",
    ) -> None:
        set_op, set_operands, set_attributes, set_outputs, set_line = _SETTERS  # what a dataclass does, for speed
        set_op(self, op)
        set_operands(self, operands)
        set_attributes(self, attributes)
        set_outputs(self, outputs)
        set_line(self, line)

    @property
    def attrs(self) -> dict[str, Any]:
        return dict(self.attributes)

    @property
    def may_exit(self) -> bool:
        """Whether a program may leave here: a guard, what data makes raise or change its size, a loop with such a node
        or one that may not end: an interrupt leaves it."""
        kind = self.op.kind
        if kind is Kind.LOOP:
            return "may not end" in self.op.traits or any(node.may_exit for node in self.attrs["body"].graph.nodes)
        return kind is Kind.GUARD or self.op.may_exit


_SETTERS: Final = tuple([getattr(Node, slot.name).__set__ for slot in fields(Node)])


@dataclass(frozen=True, slots=True)
class Graph:
    """Inputs, constants, nodes in program order, outputs and final writes.

    avals: aval of every value id.  constants: ids bound to NumPy arrays known at capture (never written to).
    outputs: what the caller wants back, in order.  writes: (input id, value id) pairs, committed after the last guard.
    requires_grad: ids whose eager value required grad: gradients flow through these values only.
    stale: ids in a pure graph whose making saved something for backward that the program overwrote later: eager mode refuses to go
    backward through them.
    history: one line per pass that made this graph.
    """

    inputs: tuple[int, ...]
    avals: Mapping[int, Aval | ScalarAval]
    nodes: tuple[Node, ...]
    outputs: tuple[Operand, ...]
    constants: Mapping[int, Any] = field(default_factory=dict)
    writes: tuple[tuple[int, int], ...] = ()
    requires_grad: frozenset[int] = frozenset()
    stale: frozenset[int] = frozenset()
    history: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def equals(self, other: Graph) -> bool:
        """Whether both are the same program: everything but history, with constants compared by dtype, shape and bytes."""
        return (
            self.inputs == other.inputs
            and self.nodes == other.nodes
            and self.outputs == other.outputs
            and self.writes == other.writes
            and self.requires_grad == other.requires_grad
            and self.stale == other.stale
            and dict(self.avals) == dict(other.avals)
            and self.constants.keys() == other.constants.keys()
            and all(_same_array(a, other.constants[v]) for v, a in self.constants.items())
        )


class Body:
    """A graph as an attribute of a node: equal to another that is the same program."""

    __slots__ = ("_hash", "graph")

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._hash = hash((graph.nodes, graph.outputs))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Body) and (self.graph is other.graph or self.graph.equals(other.graph))

    def __hash__(self) -> int:
        return self._hash

    def substituted(self, of: Callable[[Any], Any]) -> Body:
        """The same with other numbers in the places of symbolic ones."""
        graph = of(self.graph)
        return self if graph is self.graph else Body(graph)


def _same_array(a: Any, b: Any) -> bool:
    return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())


def all_nodes(graph: Graph) -> Iterator[Node]:
    """The nodes of a graph, with those of the bodies of loops in it."""
    for node in graph.nodes:
        yield node
        if node.op.kind is Kind.LOOP:
            yield from all_nodes(node.attrs["body"].graph)


def operand_aval(operand: Operand, avals: Mapping[int, Aval | ScalarAval]) -> Aval | ScalarAval | None:
    """What a shape rule sees of an operand: its aval, the type of a literal, None for an absent one."""
    if operand is None:
        return None
    if isinstance(operand, Literal):
        return _SCALAR_AVALS[type(operand.value)]
    return avals[operand]


def numbered(avals: Mapping[int, Aval | ScalarAval]) -> dict[int, int]:
    """The same number for values with equal avals.  Most of these are one object, which is sooner found than its equal; sizes that are
    equal by chance are not."""
    numbers: dict[int, int] = {}
    known: dict[int, int] = {}  # by id of an aval
    equal: dict[Hashable, int] = {}
    for v, aval in avals.items():
        number = known.get(id(aval))
        if number is None:
            key = (aval.dtype, *map(by_origin, aval.shape)) if isinstance(aval, Aval) else aval
            number = known[id(aval)] = equal.setdefault(key, len(equal))
        numbers[v] = number
    return numbers


def likeness(node: Node, operands: Mapping[int, Hashable], outputs: Mapping[int, Hashable]) -> Hashable:
    """Equal for nodes that do the same to values that go by the same: by what is in `operands`, and in `outputs` for what they make."""
    read, made = node.operands, node.outputs
    if len(read) == 1 and type(read[0]) is int:
        given = operands[read[0]]
    else:
        given = tuple([operands[x] if type(x) is int else x for x in read])
    return node.op, given, node.attributes, outputs[made[0]] if len(made) == 1 else tuple([outputs[v] for v in made])


_SCALAR_AVALS = {kind: ScalarAval(kind) for kind in (bool, int, float)}
_SCALAR_AVALS |= {SymInt: _SCALAR_AVALS[int], SymFloat: _SCALAR_AVALS[float]}  # type: ignore[dict-item]
