"""Writes to a part of an input: what a row of a large buffer is set to is stored there, and the rest of the buffer is left alone.

A pure graph has the whole new contents of an input, `select_scatter(input, row, index)`.  The program need not write them:
`partial_writes` puts what such nodes scatter into the graph's writes, with the `Region` of the input that it is for, and takes the
nodes out where nothing else reads the whole.  An index that is known only when the program runs is checked by a nest of its own, before
anything is written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tracejit.core.aval import Aval
from tracejit.core.op import Kind
from tracejit.ir.builder import producers, uses
from tracejit.ir.graph import Graph, Node
from tracejit.ir.layouts import Strided, moving_view
from tracejit.passes.dce import dce

__all__ = ["Moving", "Region", "partial_writes"]

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Moving:
    """The position `operand`, a number of the call or a tensor of one, among `size`, of elements that are `stride` apart.

    node: which leaves where it is none."""

    operand: int
    size: int
    stride: int
    node: Node


@dataclass(frozen=True, slots=True)
class Region:
    """The part of an input that scatters lead to, from the whole to the part: each but the first scatters to what the one before it
    scatters.  shapes: of the input, and of what each scatters."""

    nodes: tuple[Node, ...]
    shapes: tuple[Shape, ...]

    @property
    def positions(self) -> list[int]:
        """The positions that are no constants."""
        return [x for node in self.nodes for x in node.operands[2:] if type(x) is int]

    def layout(self, base: Strided) -> tuple[Strided, tuple[Moving, ...]]:
        """Where the elements of the part lie in an input that lies like `base`, those at position 0 of what moves; and what moves."""
        moving: list[Moving] = []
        for node, shape, part in zip(self.nodes, self.shapes, self.shapes[1:], strict=False):
            assert node.op.region is not None
            view = Node(node.op.region, (base.root, *node.operands[2:]), node.attributes, node.outputs)
            known = moving_view(view, base, shape, part)
            assert known is not None, f"{node.op.name} scatters to what has no layout"
            base, positions = known
            moving += [Moving(operand, size, stride, node) for operand, size, stride in positions]
        return base, tuple(moving)


def partial_writes(graph: Graph) -> tuple[Graph, tuple[Region | None, ...]]:
    """The graph, whose writes may give an input what goes to a region of it, one after the other; and the region of each write."""
    if not any(map(_is_scatter, graph.nodes)):
        return graph, (None,) * len(graph.writes)
    finder = _Finder(graph)
    writes: list[tuple[int, int]] = []
    regions: list[Region | None] = []
    for target, v in graph.writes:
        parts = finder.parts(target, v)
        writes += [(target, part) for part, _ in parts] or [(target, v)]
        regions += [region for _, region in parts] or [None]
    if not any(regions):
        return graph, tuple(regions)
    positions = [x for region in regions if region is not None for x in region.positions]  # which nothing else may need
    needed = dce(replace(graph, writes=tuple(writes), outputs=(*graph.outputs, *positions)))
    return replace(needed, outputs=graph.outputs), tuple(regions)


def _is_scatter(node: Node) -> bool:
    """Whether the node puts a part, which is a view, into a copy of its operand 0."""
    return node.op.region is not None and node.op.region.kind is Kind.VIEW


class _Finder:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.made = producers(graph)
        self.uses = uses(graph)

    def parts(self, target: int, v: int) -> list[tuple[int, Region]]:
        """What is scattered to `target`, first to last, to make `v`; nothing where something else is done."""
        found: list[tuple[int, Region]] = []
        while v != target:
            nodes = self._nested(v)
            if not nodes:
                return []
            part, base = nodes[-1].operands[1], nodes[0].operands[0]
            assert type(part) is int and type(base) is int
            if part == target:
                return []
            shapes = tuple([self._shape(x) for x in (v, *[node.operands[1] for node in nodes])])
            found.append((part, Region(tuple(nodes), shapes)))
            v = base
        return found[::-1]

    def _nested(self, v: int) -> list[Node]:
        """The scatters from `v` to its innermost part that nothing else looks at."""
        nodes: list[Node] = []
        views: list[int] = []
        node = self.made.get(v)
        while node is not None and _is_scatter(node) and type(node.operands[1]) is int:
            nodes.append(node)
            inner = self.made.get(node.operands[1])
            if inner is None or not _is_scatter(inner) or self.uses[node.operands[1]] != 1:
                break
            view = inner.operands[0]
            assert type(view) is int
            around = self.made.get(view)
            outer = (node.op.region, node.operands[0], *node.operands[2:])
            if around is None or (around.op, *around.operands) != outer or around.attributes != node.attributes:
                break
            views.append(view)
            node = inner
        while views and not self._is_alone(views):
            nodes.pop()
            views.pop()
        return nodes

    def _is_alone(self, views: list[int]) -> bool:
        """Whether each view is used by the scatter to it, and by the next view, alone."""
        return all(self.uses[view] == (2 if k + 1 < len(views) else 1) for k, view in enumerate(views))

    def _shape(self, v: Any) -> Shape:
        aval = self.graph.avals[v]
        assert isinstance(aval, Aval)
        return aval.shape
