"""Algebra that is exact: rewrites that give the same bits for every input, NaN, infinities, signed zeros and wrapping integers included.

So x * 1 goes and x + 0 stays (it turns -0.0 into 0.0), and so do x * 0, x - x and everything that rounds differently.  A primitive's own
rule (`Op.simplified`) looks at one node and at what made its operands, and answers with nothing, with a value that equals the node's
output, or with another node of the same outputs, which is looked at again.  Here is what holds for whole families of primitives.  An output
of the graph is only replaced by a value in memory of its own: the caller gets a tensor that shares memory with no input and no other
output.  For graphs through which no gradient will be taken any more.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tracejit.core.aval import Aval
from tracejit.core.dtypes import DType, bool_
from tracejit.core.op import REGISTRY, Effect, Kind, Op, Promotion
from tracejit.core.shapes import broadcast_shapes
from tracejit.core.symbolic import called, has_symbols, python_type
from tracejit.ir.builder import rebuild, substitute
from tracejit.ir.graph import Graph, Literal, Node, Operand, likeness
from tracejit.passes.memory import OutputMemory

__all__ = ["algebra"]

Rewrite = int | Node | None
_ABSORBABLE: Final = ("broadcasts", "uniform")


def algebra(graph: Graph) -> Graph:
    """The simplified graph; `graph` itself where nothing applies.  Nodes that became unused are left to `dce`."""
    scope = _Scope(graph)
    ownership: OutputMemory | None = None
    replaced: dict[int, Operand] = {}
    nodes: list[Node] = []
    changed = False
    for node in graph.nodes:
        if replaced:
            node = substitute(node, replaced)
        while True:
            answer = _rewrite(scope, node)
            if not isinstance(answer, Node):
                break
            node, changed = answer, True
        if answer is not None:
            ownership = ownership or OutputMemory(graph)
            memory = scope.memory(answer)
            if ownership.may_become(node.outputs[0], memory, memory in scope.makers):
                replaced[node.outputs[0]] = answer
                continue
        nodes.append(node)
        scope.made(node)
    if not changed and not replaced:
        return graph
    return rebuild(graph, nodes, replaced)


class _Scope:
    """What rules may ask: avals of values and the (rewritten) node that made one."""

    __slots__ = ("_seen", "absorbable", "answers", "avals", "looked", "looks", "makers", "numbers")

    def __init__(self, graph: Graph) -> None:
        self.avals: Mapping[int, Any] = graph.avals
        self.makers: dict[int, Node] = {}
        self.absorbable: set[int] = set()  # values that are one number, or elements as elementwise primitives see them anyway
        self.answers: dict[Hashable, int | None] = {}  # operands that are the outputs of nodes, by what these look like
        self.looked = False  # whether more was asked than a node looks like
        self.numbers = {v: id(aval) for v, aval in graph.avals.items()}  # most avals are one object
        self.looks: dict[int, Hashable] = dict(self.numbers)  # avals, and by which operations values were made
        self._seen: dict[int, _Value] = {}

    def made(self, node: Node) -> None:
        """The node is one of the graph's."""
        for v in node.outputs:
            self.makers[v] = node
            self.looks[v] = node.op, self.numbers[v]
        if not node.op.traits.isdisjoint(_ABSORBABLE):
            self.absorbable.update(node.outputs)

    def uniform(self, operand: Operand) -> Node | None:
        """The node that made `operand`, if it gives all its elements one number."""
        maker = self.makers.get(operand) if type(operand) is int else None
        if maker is None or "uniform" not in maker.op.traits:
            return None
        self.looked = True
        return maker

    def operand(self, operand: Operand) -> Any:
        """An operand as rules see it."""
        if type(operand) is not int:
            return operand.value if isinstance(operand, Literal) else None
        if operand not in self._seen:
            self._seen[operand] = _Value(self, operand)
        return self._seen[operand]

    def memory(self, v: int) -> int:
        """The value whose memory `v` is in: the end of its chain of views."""
        while v in self.makers and self.makers[v].op.effect is Effect.VIEW:
            base = self.makers[v].operands[0]
            assert type(base) is int
            v = base
        return v


@dataclass(slots=True, eq=False)
class _Value:
    """What a rule sees of an operand that is no literal number."""

    _scope: _Scope
    id: int

    @property
    def aval(self) -> Any:
        return self._scope.avals[self.id]

    @property
    def op(self) -> Op | None:
        maker = self._scope.makers.get(self.id)
        return None if maker is None else maker.op

    @property
    def operands(self) -> tuple[Any, ...]:
        self._scope.looked = True
        return tuple(map(self._scope.operand, self._scope.makers[self.id].operands))

    @property
    def attributes(self) -> dict[str, Any]:
        self._scope.looked = True
        return self._scope.makers[self.id].attrs


@dataclass(slots=True, eq=False)
class _Rewriter:
    """What a rule is given to ask about the node's output, and to say what gives the same."""

    _node: Node
    op: Op
    aval: Any

    def same(self, x: Any) -> bool:
        """Whether an operand is a tensor of the shape and dtype of the output."""
        return isinstance(x, _Value) and bool(x.aval == self.aval)

    def __call__(self, op: Op, *operands: Any, **attributes: Any) -> Node:
        given = tuple([x.id if isinstance(x, _Value) else None if x is None else Literal(x) for x in operands])
        return Node(op, given, tuple(sorted(attributes.items())), self._node.outputs, self._node.line)


def _rewrite(scope: _Scope, node: Node) -> Rewrite:
    """What stands for the node.  Whether it is one of the operands, or the node itself, is found out once for nodes that look alike."""
    looks = _looks(scope, node)
    known = scope.answers.get(looks, -1)
    if known != -1:
        return None if known is None else node.operands[known]  # type: ignore[return-value]
    scope.looked = looks is None
    answer = _simpler(scope, node)
    if not scope.looked and not isinstance(answer, Node):
        scope.answers[looks] = None if answer is None else node.operands.index(answer)
    return answer


def _looks(scope: _Scope, node: Node) -> Hashable:
    """A node, the avals of its values, and by which operations its operands were made: rules see no value as such.  None where two operands
    are one value, and for a node with symbolic sizes among its attributes, which are not to be compared."""
    operands, count = node.operands, len(node.operands)
    is_twice = operands[0] == operands[1] if count == 2 else count > 2 and len({*operands}) < count
    if is_twice or (node.attributes and has_symbols(node.attributes)):
        return None
    return likeness(node, scope.looks, scope.numbers)


def _simpler(scope: _Scope, node: Node) -> Rewrite:
    op = node.op
    if op.effect is Effect.IN_PLACE:
        return None
    if "exact" in op.traits:
        folded = _fold(scope, node)
        if folded is not None:
            return folded
    if op.kind is Kind.ELEMENTWISE and op.promotion is not Promotion.NONE:  # those take operands as they are: nothing broadcasts
        if any(type(x) is int and x in scope.absorbable for x in node.operands):
            scope.looked = True
            simpler = _absorb(scope, node)
            if simpler is not None:
                return simpler
    elif "arranges" in op.traits and (made := scope.uniform(node.operands[0])) is not None:  # equal elements
        return _full(scope, node, made.operands[0])
    if op.simpler is None or int not in map(type, node.operands):
        return None
    rewriter = _Rewriter(node, op, scope.avals[node.outputs[0]])
    answer = op.simpler(rewriter, *map(scope.operand, node.operands), **node.attrs)
    if isinstance(answer, Node):
        return answer
    return answer.id if rewriter.same(answer) else None


def _full(scope: _Scope, node: Node, value: Operand) -> Node:
    aval = scope.avals[node.outputs[0]]
    return Node(REGISTRY["full"], (value,), (("dtype", aval.dtype), ("shape", aval.shape)), node.outputs, node.line)


def _fold(scope: _Scope, node: Node) -> Node | None:
    """A node whose tensor operands are all uniform, evaluated now by the op itself; not if the result is infinite or NaN."""
    values: list[tuple[Any, DType | None]] = []
    for x in node.operands:
        if isinstance(x, Literal):
            values.append((x.value, None))
            continue
        made = scope.uniform(x)
        if made is None or not isinstance(made.operands[0], Literal):
            return None
        values.append((made.operands[0].value, made.attrs["dtype"]))
    evaluate = _Evaluate(node.op, tuple([dtype for _, dtype in values]), node.attributes)
    (value,) = called(evaluate, *[value for value, _ in values])
    return _full(scope, node, Literal(value)) if -math.inf < value < math.inf else None


@dataclass(frozen=True, slots=True)
class _Evaluate:
    """What an op gives of numbers: Python's own, or tensors of these dtypes that are full of them."""

    op: Op
    dtypes: tuple[DType | None, ...]
    attributes: tuple[tuple[str, Hashable], ...]

    def __call__(self, *numbers: Any) -> list[Any]:
        """The number that the result is full of."""
        with np.errstate(all="ignore"):
            given = [n if dtype is None else np.full((), n, dtype.numpy) for n, dtype in zip(numbers, self.dtypes, strict=True)]
            return [np.asarray(self.op.evaluate(*given, **dict(self.attributes))).item()]


def _absorb(scope: _Scope, node: Node) -> Node | None:
    """An elementwise node without the expansions that its own broadcasting does anyway, and with numbers for tensors of one number."""
    avals, shape = scope.avals, scope.avals[node.outputs[0]].shape
    operands = list(node.operands)
    for i, x in enumerate(operands):
        maker = scope.makers.get(x) if type(x) is int else None
        if maker is None or type(x) is not int:
            continue
        others = [avals[y] for j, y in enumerate(operands) if j != i and type(y) is int and isinstance(avals[y], Aval)]
        if "broadcasts" in maker.op.traits:
            narrow = maker.operands[0]
            assert type(narrow) is int
            if broadcast_shapes("expand", avals[narrow].shape, *(a.shape for a in others)) == shape:
                operands[i] = narrow
        elif "uniform" in maker.op.traits and "exact" in node.op.traits:
            number, dtype = maker.operands[0], avals[x].dtype
            if (
                any(a.dtype is dtype for a in others)
                and isinstance(number, Literal)
                and _is_exact(number.value, dtype)
                and broadcast_shapes("full", *(a.shape for a in others)) == shape
            ):
                operands[i] = number
    if tuple(operands) == node.operands:
        return None
    return Node(node.op, tuple(operands), node.attributes, node.outputs, node.line)


def _is_exact(value: Any, dtype: DType) -> bool:
    """Whether a Python number means the same element beside a tensor of `dtype` as a `full` tensor of that dtype."""
    kind = python_type(value)
    if kind is float:
        return dtype.is_floating_point
    if dtype is bool_ or kind is bool:
        return dtype is bool_ and kind is bool
    return (
        abs(value) < 2**24 if dtype.is_floating_point else bool(np.iinfo(dtype.numpy).min <= value <= np.iinfo(dtype.numpy).max)
    )
