"""Copies that memory asks for: after this pass every view of a fixed position has a layout over memory that someone made.

`copies(graph, layouts, kept, targets, strided)`: `layouts` are strides of inputs.  Of the outputs, so many `kept` ones go to residuals, and
those at the end, one for each of `targets`, are what these inputs hold when the program is over; the others are results.  `strided` is told
where the elements of each value lie.  A `clone` is put

- before a view that would need a copy, and before a product for an operand that gemm cannot read in place, or cannot add to: only what
  nothing else reads may be taken over by `matmul_add`, or be what a loop carries on;
- before a loop, for a matrix that its steps share where their products would read it transposed: gemm packs such a one, number by number,
  in every step;
- before a convolution for images, or weights, that do not lie as its kernels read them;
- after all nodes, for a result that is not the whole memory of a node's output or would share it with another one; for a residual that is
  a result as well, since the program may change what it was given, or lies in memory that the program did not make (a node of its own,
  so that whatever makes the result writes both); for what a write reads of memory that is written itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tracejit.core import convolutions
from tracejit.core.aval import Aval
from tracejit.core.op import REGISTRY, Kind
from tracejit.core.shapes import contiguous
from tracejit.ir.builder import GraphBuilder, next_id, rebuild, uses
from tracejit.ir.graph import Graph, Node, Operand
from tracejit.ir.layouts import Strided, given_layouts, is_constant, is_fixed_view, is_whole, strided_view
from tracejit.passes.products import gemm_layout, is_tiny

__all__ = ["copies"]

Shape = tuple[int, ...]
FEWEST_STEPS = 2
"""Of a loop before which a matrix is copied."""
FEWEST_ELEMENTS = 1024
"""Of a product for which it is: a smaller one is done before packing shows."""


def copies(
    graph: Graph,
    layouts: Mapping[int, Shape],
    kept: int = 0,
    targets: Sequence[int] = (),
    strided: dict[int, Strided] | None = None,
) -> Graph:
    """The graph with its copies; outputs keep their positions."""
    copier = _Copier(graph, layouts, {} if strided is None else strided)
    for node in graph.nodes:
        copier.take(node)
    outputs = copier.outputs(graph.outputs, kept, targets)
    return rebuild(graph, copier.nodes, avals=copier.avals, outputs=outputs)


class _Copier(GraphBuilder):
    """strided: where the elements of each value are, once its root has memory."""

    __slots__ = ("dense", "graph", "made", "strided", "uses")

    def __init__(self, graph: Graph, layouts: Mapping[int, Shape], strided: dict[int, Strided]) -> None:
        super().__init__(next_id(graph))
        self.avals.update(graph.avals)
        self.graph = graph
        self.strided = strided
        strided.update(given_layouts(graph, layouts))
        self.dense: dict[int, Shape] = {}  # row-major strides by id of an aval: many are one object
        self.made: set[int] = set()  # memory that the program makes
        self.uses = uses(graph)

    def append(self, node: Node) -> None:
        """A node whose outputs have memory of their own."""
        self.nodes.append(node)
        outputs, dense = node.outputs, self.dense
        if node.op.kind is not Kind.CREATION or not is_constant(node):
            self.made.update(outputs)
        for o in outputs:
            aval = self.avals[o]
            if id(aval) not in dense:
                dense[id(aval)] = contiguous(self.aval(o).shape)
            self.strided[o] = Strided(o, 0, dense[id(aval)])

    def clone(self, v: int) -> int:
        copy = self.fresh(self.avals[v])
        self.append(Node(REGISTRY["clone"], (v,), (), (copy,)))
        return copy

    def take(self, node: Node) -> None:
        kind = node.op.kind
        if kind is Kind.VIEW and is_fixed_view(node):
            (out,), base = node.outputs, node.operands[0]
            assert isinstance(base, int)
            layout = strided_view(node, self.strided[base], self.aval(base).shape, self.aval(out).shape)
            if layout is None:
                base = self.clone(base)
                node = Node(node.op, (base, *node.operands[1:]), node.attributes, node.outputs, node.line)
                layout = strided_view(node, self.strided[base], self.aval(base).shape, self.aval(out).shape)
                assert layout is not None, f"{node.op.name} has no layout over a contiguous base"
            self.strided[out] = layout
            self.nodes.append(node)
            return
        if kind is Kind.CONTRACTION:
            node = self.readable(node)
        elif kind is Kind.COMPOSITE:
            node = self.with_images(node)
        elif kind is Kind.LOOP:
            carried = node.attrs["carried"]
            operands = (*map(self.given_up, node.operands[:carried]), *node.operands[carried:])
            node = Node(node.op, operands, node.attributes, node.outputs, node.line)
            node = self.with_straight_matrices(node)
        self.append(node)

    def with_images(self, node: Node) -> Node:
        """A convolution whose operands kernels can read where they are: images whose positions are side by side, weights without gaps."""
        assert node.op.routine is not None
        operands = list(node.operands)
        for k, place in enumerate(convolutions.places(node.op.routine)[:2]):
            x = operands[k]
            assert isinstance(x, int)
            shape, strides = self.aval(x).shape, self.strided[x].strides
            dense = contiguous(shape) == strides
            if not dense and (place == 1 or not convolutions.is_readable(shape, strides)):
                operands[k] = self.clone(x)
        return Node(node.op, tuple(operands), node.attributes, node.outputs, node.line)

    def with_straight_matrices(self, loop: Node) -> Node:
        """The loop, given matrices that lie as its products read them; as it is where it may have few steps."""
        attributes, operands = loop.attrs, list(loop.operands)
        if attributes.get("count", 0) < FEWEST_STEPS:
            return loop
        body, first = attributes["body"].graph, attributes["carried"] + attributes["sliced"]
        for k, (v, x) in enumerate(zip(body.inputs, operands, strict=True)):
            if k < first or type(x) is not int:
                continue
            layout = self.strided.get(x)
            if layout is None or len(layout.strides) != 2 or not _is_read_transposed(body, v, layout.strides):
                continue
            own = gemm_layout(self.aval(x).shape, layout.strides)
            if own is not None:
                operands[k] = self.clone(x) if own.transposed else self.transposed(self.clone(self.transposed(x)))
        return Node(loop.op, tuple(operands), loop.attributes, loop.outputs, loop.line)

    def transposed(self, v: int) -> int:
        aval = self.aval(v)
        out = self.fresh(Aval(aval.shape[::-1], aval.dtype))
        self.take(Node(REGISTRY["permute"], (v,), (("dims", (1, 0)),), (out,)))
        return out

    def given_up(self, x: Operand) -> int:
        """An operand whose memory the node may take over."""
        assert isinstance(x, int)
        return x if x in self.made and self.uses[x] == 1 else self.clone(x)

    def readable(self, node: Node) -> Node:
        """A product whose operands gemm can read, and add to, where they are."""
        a, b, *added = node.operands
        if not self.aval(a).dtype.is_floating_point or (not added and is_tiny(self.aval(a).shape, self.aval(b).shape)):
            return node
        operands = [x if gemm_layout(self.aval(x).shape, self.strided[x].strides) is not None else self.clone(x) for x in (a, b)]  # type: ignore[index, arg-type]
        operands += map(self.given_up, added)
        same = tuple(operands) == node.operands
        return node if same else Node(node.op, tuple(operands), node.attributes, node.outputs, node.line)

    def outputs(self, outputs: Sequence[Operand], kept: int, targets: Sequence[int]) -> tuple[Operand, ...]:
        """The outputs that have memory of their own where they need it."""
        first, last = len(outputs) - kept - len(targets), len(outputs) - len(targets)
        results, residuals, written = outputs[:first], list(outputs[first:last]), list(outputs[last:])
        taken = {o for o in results if isinstance(o, int)}  # roots whose memory is a result
        for k, v in enumerate(residuals):
            if v in taken and v in self.made:
                residuals[k] = self.clone(v)  # type: ignore[arg-type]
        taken.update(v for v in residuals if isinstance(v, int))
        copied: dict[int, int] = {}
        for o in results:
            if isinstance(o, int) and o in self.strided and o not in self.graph.inputs and o not in copied:
                layout = self.strided[o]
                if (
                    layout.root in taken - {o}
                    or layout.root not in self.made
                    or not is_whole(layout, self.aval(o).shape, self.avals)
                ):
                    copied[o] = self.clone(o)
                taken.add(layout.root)
        for k, v in enumerate(residuals):
            if isinstance(v, int) and self.strided[v].root not in self.made:
                residuals[k] = self.clone(v)
        for k, (v, target) in enumerate(zip(written, targets, strict=True)):
            assert isinstance(v, int)
            root = self.strided[v].root
            if root in targets and not (root == v == target):
                written[k] = self.clone(v)
        return (*[copied.get(o, o) if isinstance(o, int) else o for o in results], *residuals, *written)


def _is_read_transposed(body: Graph, v: int, strides: Shape) -> bool:
    """Whether there are products in a loop whose second operand is an input that has these strides, or a view of it, and they see it
    transposed, all of them."""
    found: set[bool] = set()
    lies = {v: Strided(v, 0, strides)}
    for node in body.nodes:
        if is_fixed_view(node) and (base := lies.get(node.operands[0])) is not None:  # type: ignore[arg-type]
            out = node.outputs[0]
            layout = strided_view(node, base, body.avals[node.operands[0]].shape, body.avals[out].shape)  # type: ignore[index, union-attr]
            if layout is not None:
                lies[out] = layout
        elif node.op.kind is Kind.CONTRACTION and (second := lies.get(node.operands[1])) is not None:  # type: ignore[arg-type]
            matrix = gemm_layout(body.avals[node.operands[1]].shape, second.strides)  # type: ignore[index, union-attr]
            found.add(matrix is not None and matrix.transposed and body.avals[node.outputs[0]].size >= FEWEST_ELEMENTS)  # type: ignore[union-attr]
    return found == {True}
