"""What many slices of one tensor are put together from is a slice of it.

Loops collect what their steps gave, one step after the other.  Where the slices of that are joined again (`cat`: results of all steps), or
added up at positions side by side (`sum_at`: gradients of what steps took their slices of), one operand stands for them.  `sums_in_one`
makes such sums of chains of additions, and where too many operands are left `join` makes several sums of one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tracejit.core.aval import Aval
from tracejit.core.dtypes import bool_
from tracejit.core.op import REGISTRY, Kind
from tracejit.ir.builder import GraphBuilder, next_id, producers, rebuild, uses
from tracejit.ir.graph import Graph, Literal, Node, Operand
from tracejit.passes.dce import dce

__all__ = ["join", "sums_in_one"]

FEWEST: Final = 8
"""Operands of a node that is looked at."""
MOST_PARTS: Final = 32
"""Operands of a sum at positions."""
Shape = tuple[int, ...]


def join(graph: Graph) -> Graph:
    """The graph with fewer operands; `graph` itself where nothing is to be joined."""
    if not any(_puts_together(node) for node in graph.nodes):
        return graph
    joining, changed = _Joining(graph), False
    for node in graph.nodes:
        if _puts_together(node) and joining.rewritten(node):
            changed = True
        else:
            joining.builder.nodes.append(node)
    if not changed:
        return graph
    return dce(rebuild(graph, joining.builder.nodes, avals=joining.builder.avals))


def _puts_together(node: Node) -> bool:
    return len(node.operands) >= FEWEST and not node.op.traits.isdisjoint(("joins", "adds at positions"))


@dataclass(slots=True)
class _SliceRun:
    """An operand: `count` slices of `base` from `first` on, in steps of 1 or -1, each of them as `shape` at `start`, a slice's length along
    the dimension further on each time (`way` 1) or back.  base None: the value itself."""

    value: int
    base: int | None
    first: int
    shape: Shape
    start: Shape
    count: int = 1
    step: int = 1
    way: int = 1


class _Joining:
    def __init__(self, graph: Graph) -> None:
        self.builder = GraphBuilder(next_id(graph))
        self.builder.avals = dict(graph.avals)
        self.made = producers(graph)

    def rewritten(self, node: Node) -> bool:
        """Append what gives the same as the node; False where there is nothing to join."""
        attributes = node.attrs
        joins = "joins" in node.op.traits
        if not joins and not _is_dense(node):
            return False
        starts: Sequence[Shape] = self._starts(node) if joins else attributes["starts"]
        parts = [self._part(x, start) for x, start in zip(node.operands, starts, strict=True)]  # type: ignore[arg-type]
        dim = attributes["dim"] if joins else next((d for d, (a, b) in enumerate(zip(*starts[-2:], strict=True)) if a != b), None)
        if dim is None:
            return False
        runs: list[_SliceRun] = []
        # Adding 0.0 to each element makes a positive zero of a negative one, so one operand of a sum stays apart.
        for part in parts if joins else parts[1:]:
            if not (runs and self._follows(runs[-1], part, dim)):
                runs.append(part)
        runs = runs if joins else [parts[0], *runs]
        if len(runs) == len(parts) and (joins or len(parts) <= MOST_PARTS):
            return False
        operands = [self._value(run, dim) for run in runs]
        if joins:
            made = Node(node.op, tuple(operands), node.attributes, node.outputs, node.line)
        else:
            made = self._sum(node, operands, [self._start(run, dim) for run in runs])
        self.builder.nodes.append(made)
        return True

    def _starts(self, node: Node) -> list[Shape]:
        found, at, dim = [], 0, node.attrs["dim"]
        for x in node.operands:
            shape = self.builder.aval(x).shape
            found.append((*[0] * dim, at, *[0] * (len(shape) - dim - 1)))
            at += shape[dim]
        return found

    def _part(self, v: int, start: Shape) -> _SliceRun:
        shape, maker = self.builder.aval(v).shape, self.made.get(v)
        if maker is not None and "reshapes" in maker.op.traits:
            maker = self.made.get(maker.operands[0])  # type: ignore[arg-type]
        if maker is not None and "one position" in maker.op.traits and maker.attrs["dim"] == 0:
            base, index = maker.operands
            if type(base) is int and isinstance(index, Literal):
                return _SliceRun(v, base, index.position, shape, start)
        return _SliceRun(v, None, 0, shape, start)

    def _follows(self, run: _SliceRun, part: _SliceRun, dim: int) -> bool:
        """Whether the part goes on where the run ends; then it is the run's."""
        if part.base is None or part.base != run.base or part.shape != run.shape:
            return False
        step = part.first - (run.first + run.step * (run.count - 1))
        length = part.shape[dim]
        beside = (*run.start[:dim], part.start[dim], *run.start[dim + 1 :]) == part.start
        way, rest = divmod(part.start[dim] - run.start[dim], length * run.count) if length else (0, 1)
        if not beside or rest or abs(step) != 1 or abs(way) != 1 or (run.count > 1 and (step, way) != (run.step, run.way)):
            return False
        run.count, run.step, run.way = run.count + 1, step, way
        return True

    def _start(self, run: _SliceRun, dim: int) -> Shape:
        back = run.shape[dim] * (run.count - 1) if run.way < 0 else 0
        return (*run.start[:dim], run.start[dim] - back, *run.start[dim + 1 :])

    def _value(self, run: _SliceRun, dim: int) -> int:
        if run.base is None or run.count == 1:
            return run.value
        add = self.builder.add
        first = min(run.first, run.first + run.step * (run.count - 1))
        (v,) = add(REGISTRY["slice"], (run.base,), {"dim": 0, "start": first, "stop": first + run.count, "step": 1})
        if run.step != run.way:
            (v,) = add(REGISTRY["flip"], (v,), {"dims": (0,)})
        (v,) = add(REGISTRY["reshape"], (v,), {"shape": (run.count, *run.shape)})
        rank = len(run.shape)
        (v,) = add(REGISTRY["permute"], (v,), {"dims": (*range(1, dim + 1), 0, *range(dim + 1, rank + 1))})
        shape = (*run.shape[:dim], run.count * run.shape[dim], *run.shape[dim + 1 :])
        return add(REGISTRY["reshape"], (v,), {"shape": shape})[0]

    def _sum(self, node: Node, operands: Sequence[int], starts: Sequence[Shape]) -> Node:
        """A sum of several: what has been added up so far is the first part of the next one, which keeps the order."""
        shape = node.attrs["shape"]
        ones, zeros = (1,) * len(shape), (0,) * len(shape)
        total: list[int] = []
        for k in range(0, len(operands), MOST_PARTS):
            these, where = (*total, *operands[k : k + MOST_PARTS]), (*[zeros] * len(total), *starts[k : k + MOST_PARTS])
            attributes = {"shape": shape, "starts": where, "steps": (ones,) * len(these)}
            total = [*self.builder.add(node.op, these, attributes, node.line)]
        last = self.builder.nodes.pop()
        return Node(last.op, last.operands, last.attributes, node.outputs, node.line)


def sums_in_one(graph: Graph) -> Graph:
    """The graph with one sum at positions for each long chain of additions of tensors that are zero but for a part."""
    if not any(map(_may_have_parts, graph.nodes)):
        return graph
    made, used = producers(graph), Counter[int]()
    sums: dict[int, list[tuple[Node, int]]] = {}  # value -> (node, its operand) of the parts that it is the sum of
    goes_on: dict[int, int] = {}  # a sum -> the longer one that it is the beginning of
    for node in graph.nodes:
        parts = _parts(made, node)
        if parts:
            sums[node.outputs[0]] = parts
        elif "adds" in node.op.traits and node.op.kind is Kind.ELEMENTWISE:
            x, y = node.operands
            if type(x) is not int or type(y) is not int or x not in sums or len(sums.get(y, ())) != 1:
                continue
            used = used or uses(graph)
            if used[x] == used[y] == 1 and _is_same(graph, x, y, node.outputs[0]):
                sums[x].extend(sums[y])
                sums[node.outputs[0]] = sums[x]
                goes_on[x] = node.outputs[0]
    whole = {v for v in goes_on.values() if v not in goes_on and len(sums[v]) >= FEWEST}
    if not whole:
        return graph
    builder = GraphBuilder(next_id(graph))
    builder.avals = dict(graph.avals)
    for node in graph.nodes:
        if node.outputs and node.outputs[0] in whole:
            builder.nodes.append(_in_one(builder, node, sums[node.outputs[0]]))
        else:
            builder.nodes.append(node)
    return dce(rebuild(graph, builder.nodes, avals=builder.avals))


def _may_have_parts(node: Node) -> bool:
    return node.op.region is not None or "adds at positions" in node.op.traits


def _parts(made: Mapping[int, Node], node: Node) -> list[tuple[Node, int]]:
    """Which operands of a node are put into zeros, and added up."""
    if "adds at positions" in node.op.traits:
        return [(node, k) for k in range(len(node.operands))] if _is_dense(node) else []
    region = node.op.region
    if region is None or "one position" not in region.traits or not isinstance(node.operands[2], Literal):
        return []
    base = made.get(node.operands[0])  # type: ignore[arg-type]
    return [(node, 1)] if base is not None and "uniform" in base.op.traits and _is_zero(base.operands[0]) else []


def _is_same(graph: Graph, *values: int) -> bool:
    """Whether values are of one shape and of one dtype in which 0 + x is a sum."""
    avals = [graph.avals[v] for v in values]
    return all(a == avals[0] and isinstance(a, Aval) and a.dtype is not bool_ for a in avals)


def _is_dense(node: Node) -> bool:
    return all(step == 1 for steps in node.attrs["steps"] for step in steps)


def _is_zero(x: Operand) -> bool:
    return isinstance(x, Literal) and Literal(float(x.value)) == Literal(0.0)


def _in_one(builder: GraphBuilder, node: Node, parts: Sequence[tuple[Node, int]]) -> Node:
    shape = builder.aval(node.outputs[0]).shape
    operands, starts = [], []
    for maker, k in parts:
        x = maker.operands[k]
        if "adds at positions" in maker.op.traits:
            operands.append(x)
            starts.append(maker.attrs["starts"][k])
            continue
        dim, index = maker.attrs["dim"], maker.operands[2].value  # type: ignore[union-attr]
        operands += builder.add(REGISTRY["reshape"], (x,), {"shape": (*shape[:dim], 1, *shape[dim + 1 :])}, maker.line)
        starts.append((*[0] * dim, index, *[0] * (len(shape) - dim - 1)))
    ones = ((1,) * len(shape),) * len(operands)
    attributes = (("shape", shape), ("starts", tuple(starts)), ("steps", ones))
    return Node(REGISTRY["sum_at"], tuple(operands), attributes, node.outputs, node.line)
