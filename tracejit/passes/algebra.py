"""Algebra that is exact: rewrites that give the same bits for every input, NaN, infinities, signed zeros and wrapping integers included.

So x * 1 goes and x + 0 stays (it turns -0.0 into 0.0), and so do x * 0, x - x and everything that rounds differently.  A rule looks at one
node and at what made its operands, and answers with nothing, with a value that equals the node's output, or with another node of
the same outputs, which is looked at again.  An output of the graph is only replaced by a value in memory of its own: the caller
gets a tensor that shares memory with no input and no other output.  For graphs through which no gradient will be taken any more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tracejit.core.aval import Aval
from tracejit.core.dtypes import DType, bool_
from tracejit.core.op import REGISTRY, Effect, Kind
from tracejit.core.shapes import broadcast_shapes
from tracejit.ir.builder import rebuild, substitute
from tracejit.ir.graph import Graph, Literal, Node, Operand
from tracejit.passes.memory import OutputMemory

__all__ = ["algebra"]

Rewrite = int | Node | None
Rule = Callable[["_Scope", Node], Rewrite]
RULES: dict[str, Rule] = {}


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
        scope.makers.update(dict.fromkeys(node.outputs, node))
    if not changed and not replaced:
        return graph
    return rebuild(graph, nodes, replaced)


class _Scope:
    """What rules may ask: avals of values and the (rewritten) node that made one."""

    __slots__ = ("avals", "makers")

    def __init__(self, graph: Graph) -> None:
        self.avals: Mapping[int, Any] = graph.avals
        self.makers: dict[int, Node] = {}

    def made_by(self, operand: Operand, name: str) -> Node | None:
        """The node that made `operand`, if it is one of the op called `name`."""
        maker = self.makers.get(operand) if type(operand) is int else None
        return maker if maker is not None and maker.op.name == name else None

    def memory(self, v: int) -> int:
        """The value whose memory `v` is in: the end of its chain of views."""
        while v in self.makers and self.makers[v].op.effect is Effect.VIEW:
            base = self.makers[v].operands[0]
            assert type(base) is int
            v = base
        return v

    def same(self, operand: Operand, node: Node) -> int | None:
        """`operand` if it is a tensor of the aval of the node's output."""
        return operand if type(operand) is int and self.avals[operand] == self.avals[node.outputs[0]] else None


def rule(*names: str) -> Callable[[Rule], Rule]:
    def declare(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return declare


def _rewrite(scope: _Scope, node: Node) -> Rewrite:
    op = node.op
    if op.effect is Effect.IN_PLACE:
        return None
    if op.name in _FOLDED:
        folded = _fold(scope, node)
        if folded is not None:
            return folded
    if op.kind is Kind.ELEMENTWISE and op.name not in _KEEPS_SHAPES:
        for x in node.operands:
            if type(x) is int and x in scope.makers and scope.makers[x].op.name in ("expand", "full"):
                simpler = _absorb(scope, node)
                if simpler is not None:
                    return simpler
                break
    elif op.kind in (Kind.VIEW, Kind.MOVEMENT):
        made = scope.made_by(node.operands[0], "full") if op.name in _UNIFORM else None
        if made is not None:  # any arrangement of equal elements
            return _full(scope, node, made.operands[0])
    apply = RULES.get(op.name)
    return None if apply is None else apply(scope, node)


_KEEPS_SHAPES = frozenset(
    {"cast", "acc", "overwrite", "replace_data"}
)  # their output has the shape of an operand: nothing broadcasts
_UNIFORM = frozenset({"reshape", "permute", "expand", "slice", "select", "diagonal", "clone", "flip"})
_TAKES_LITERALS = frozenset({"add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge"})
_FOLDED = _TAKES_LITERALS | {"neg", "cast"}  # correctly rounded: the same bits now and at run time


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
        made = scope.made_by(x, "full")
        if made is None or not isinstance(made.operands[0], Literal):
            return None
        values.append((made.operands[0].value, made.attrs["dtype"]))
    with np.errstate(all="ignore"):
        numbers = [value if dtype is None else np.full((), value, dtype.numpy) for value, dtype in values]
        value = np.asarray(node.op.evaluate(*numbers, **node.attrs)).item()
    return _full(scope, node, Literal(value)) if math.isfinite(value) else None


def _absorb(scope: _Scope, node: Node) -> Node | None:
    """An elementwise node without the expansions that its own broadcasting does anyway, and with numbers for tensors of one number."""
    avals, shape = scope.avals, scope.avals[node.outputs[0]].shape
    operands = list(node.operands)
    for i, x in enumerate(operands):
        maker = scope.makers.get(x) if type(x) is int else None
        if maker is None or type(x) is not int:
            continue
        others = [avals[y] for j, y in enumerate(operands) if j != i and type(y) is int and isinstance(avals[y], Aval)]
        if maker.op.name == "expand":
            narrow = maker.operands[0]
            assert type(narrow) is int
            if broadcast_shapes("expand", avals[narrow].shape, *(a.shape for a in others)) == shape:
                operands[i] = narrow
        elif maker.op.name == "full" and node.op.name in _TAKES_LITERALS:
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
    if type(value) is float:
        return dtype.is_floating_point
    if dtype is bool_ or type(value) is bool:
        return dtype is bool_ and type(value) is bool
    return (
        abs(value) < 2**24 if dtype.is_floating_point else bool(np.iinfo(dtype.numpy).min <= value <= np.iinfo(dtype.numpy).max)
    )


def _is_number(operand: Operand, value: int) -> bool:
    return isinstance(operand, Literal) and operand.value == value


@rule("mul")
def _(scope: _Scope, node: Node) -> Rewrite:
    x, y = node.operands
    if _is_number(y, 1):
        return scope.same(x, node)
    return scope.same(y, node) if _is_number(x, 1) else None


@rule("div")
def _(scope: _Scope, node: Node) -> Rewrite:
    x, y = node.operands
    return scope.same(x, node) if _is_number(y, 1) else None


@rule("sub")
def _(scope: _Scope, node: Node) -> Rewrite:
    """x - 0 is x for every x; x - (-0.0) is not."""
    x, y = node.operands
    positive_zero = isinstance(y, Literal) and y.value == 0 and math.copysign(1.0, y.value) > 0
    return scope.same(x, node) if positive_zero else None


@rule("pow")
def _(scope: _Scope, node: Node) -> Rewrite:
    """x ** 2 is evaluated as x * x."""
    x, y = node.operands
    if scope.same(x, node) is not None and isinstance(y, Literal) and type(y.value) is not bool and y.value == 2:
        return Node(REGISTRY["mul"], (x, x), (), node.outputs, node.line)
    return None


@rule("neg", "logical_not")
def _(scope: _Scope, node: Node) -> Rewrite:
    inner = scope.made_by(node.operands[0], node.op.name)
    return None if inner is None else scope.same(inner.operands[0], node)


@rule("acc")
def _(scope: _Scope, node: Node) -> Rewrite:
    previous, d = node.operands
    if previous is None:
        return scope.same(d, node)
    return Node(REGISTRY["add"], (previous, d), (), node.outputs, node.line)


@rule("cast")
def _(scope: _Scope, node: Node) -> Rewrite:
    """Casts to the same dtype, and casts of a cast that lost nothing."""
    (x,) = node.operands
    same = scope.same(x, node)
    if same is not None:
        return same
    target = scope.avals[node.outputs[0]].dtype
    inner = scope.made_by(x, "cast")
    if inner is None or type(inner.operands[0]) is not int or not isinstance(scope.avals[inner.operands[0]], Aval):
        return None
    source, middle = scope.avals[inner.operands[0]].dtype, scope.avals[node.operands[0]].dtype  # type: ignore[index]
    if not _holds(middle, source):
        return None
    if target is source:
        return scope.same(inner.operands[0], node)
    if target.is_floating_point or target is bool_ or not middle.is_floating_point:
        return Node(node.op, (inner.operands[0],), node.attributes, node.outputs, node.line)
    return None  # float to integer: out of range, the result depends on the width


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether every element of `narrow` is exact in `wide`."""
    return bool(np.can_cast(narrow.numpy, wide.numpy, "safe")) and not (
        wide.is_floating_point and narrow.itemsize == 8 and not narrow.is_floating_point
    )


@rule("reshape")
def _(scope: _Scope, node: Node) -> Rewrite:
    (x,) = node.operands
    same = scope.same(x, node)
    if same is not None:
        return same
    inner = scope.made_by(x, "reshape")
    return None if inner is None else Node(node.op, inner.operands, node.attributes, node.outputs, node.line)


@rule("expand")
def _(scope: _Scope, node: Node) -> Rewrite:
    (x,) = node.operands
    same = scope.same(x, node)
    if same is not None:
        return same
    inner = scope.made_by(x, "expand")
    return None if inner is None else Node(node.op, inner.operands, node.attributes, node.outputs, node.line)


@rule("permute")
def _(scope: _Scope, node: Node) -> Rewrite:
    (x,), dims = node.operands, node.attrs["dims"]
    if dims == tuple(range(len(dims))):
        return scope.same(x, node)
    inner = scope.made_by(x, "permute")
    if inner is None:
        return None
    before = inner.attrs["dims"]
    return Node(node.op, inner.operands, (("dims", tuple(before[d] for d in dims)),), node.outputs, node.line)


@rule("slice")
def _(scope: _Scope, node: Node) -> Rewrite:
    attributes = node.attrs
    whole = attributes["start"] == 0 and attributes["step"] == 1
    return scope.same(node.operands[0], node) if whole else None


@rule("slice_scatter")
def _(scope: _Scope, node: Node) -> Rewrite:
    """A slice that is all of its base, or that is put into zeros."""
    base, value = node.operands
    dim, start, stop, step = (node.attrs[key] for key in ("dim", "start", "stop", "step"))
    same = scope.same(value, node) if start == 0 and step == 1 else None
    zeros = scope.made_by(base, "full")
    if same is not None or zeros is None or not _is_zero(zeros.operands[0]) or type(value) is not int:
        return same
    aval, shape = scope.avals[value], scope.avals[node.outputs[0]].shape
    count = max(0, -((start - stop) // step))
    if aval.dtype is bool_ or aval.shape != (*shape[:dim], count, *shape[dim + 1 :]):
        return None
    parts = _parts(scope, value) or [(value, (0,) * len(shape), (1,) * len(shape))]
    moved = []
    for x, starts, steps in parts:
        there = (*starts[:dim], start + starts[dim] * step, *starts[dim + 1 :])
        moved.append((x, there, (*steps[:dim], steps[dim] * step, *steps[dim + 1 :])))
    return _sum_at(shape, moved, node)


_Part = tuple[Operand, tuple[int, ...], tuple[int, ...]]
_MOST_PARTS = 32


def _is_zero(operand: Operand) -> bool:
    """Whether an operand is the literal 0, not -0.0."""
    return _is_number(operand, 0) and math.copysign(1.0, operand.value) > 0  # type: ignore[union-attr]


def _parts(scope: _Scope, operand: Operand) -> list[_Part] | None:
    """(tensor, starts, steps) of each summand if an operand is a sum of tensors in zeros."""
    made = scope.made_by(operand, "sum_at")
    if made is not None:
        return list(zip(made.operands, made.attrs["starts"], made.attrs["steps"], strict=True))
    padded = scope.made_by(operand, "pad")
    if padded is None or not _is_zero(padded.operands[1]) or min((*padded.attrs["low"], *padded.attrs["high"]), default=0) < 0:
        return None
    return [(padded.operands[0], padded.attrs["low"], (1,) * len(padded.attrs["low"]))]


def _sum_at(shape: tuple[int, ...], parts: list[_Part], node: Node) -> Node:
    operands, starts, steps = zip(*parts, strict=True)
    attributes = (("shape", shape), ("starts", starts), ("steps", steps))
    return Node(REGISTRY["sum_at"], operands, attributes, node.outputs, node.line)


@rule("add")
def _(scope: _Scope, node: Node) -> Rewrite:
    """A sum of tensors in zeros, and one more.  a + (b + c) is (b + c) + a; (a + b) + (c + d) would round in another order."""
    left, right = (_parts(scope, x) for x in node.operands)
    aval = scope.avals[node.outputs[0]]
    if left is None or right is None or aval.dtype is bool_ or any(scope.same(x, node) is None for x in node.operands):
        return None
    if len(left) == 1 < len(right):
        left, right = right, left
    parts = left + right
    if len(right) > 1 or len(parts) > _MOST_PARTS or any(step != 1 for _, _, steps in parts for step in steps):
        return None
    return _sum_at(aval.shape, parts, node)


@rule("fold")
def _(scope: _Scope, node: Node) -> Rewrite:
    """Windows over one dimension whose elements are added up after those over another one: both at once."""
    inner = scope.made_by(node.operands[0], "fold")
    if inner is None:
        return None
    outer = node.attrs
    attributes = tuple((key, outer[key] + value) for key, value in inner.attributes)
    return Node(node.op, inner.operands, attributes, node.outputs, node.line)


@rule("clone", "detach")
def _(scope: _Scope, node: Node) -> Rewrite:
    return scope.same(node.operands[0], node)


@rule("replace_data", "overwrite")
def _(scope: _Scope, node: Node) -> Rewrite:
    return Node(REGISTRY["clone"], node.operands[1:], (), node.outputs, node.line)


@rule("sum", "prod", "amax", "amin", "any", "all")
def _(scope: _Scope, node: Node) -> Rewrite:
    """A reduction over no dimension."""
    return None if node.attrs["dims"] else scope.same(node.operands[0], node)
