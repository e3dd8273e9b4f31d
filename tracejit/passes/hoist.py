"""Products that a loop need not compute step by step: one product of many rows takes the place of many small ones.

- of a slice and what is the same in all steps (`x[t] @ w`): the product of all slices, before the loop, of which steps take theirs;
- of anything and what is the same in all steps, where steps only collect it (gradients of slices): after the loop;
- a sum of products over the steps, which is nothing but carried (gradients of weights): one product along the steps, after the loop.

Rounding differs from that of the products as they were written, as that of sums of products does (products.py): for graphs that are
lowered next.  Products that are large in all sizes stay where they are: they are as fast there, and their operands would have to be kept.
So do those whose operands or results of all steps would be much more than what the loop has in memory as it is, and those of some size
of which one would be much larger than the rest: loops over blocks are there to need little (ops/composites/attention_in_blocks.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from tracejit.core.aval import Aval
from tracejit.core.op import REGISTRY, Kind
from tracejit.ir.builder import GraphBuilder, next_id, producers, rebuild
from tracejit.ir.graph import Body, Graph, Node, Operand
from tracejit.passes.dce import dce

__all__ = ["hoist"]

LARGE: Final = 128
"""Rows, columns, and what is summed: products with as many of each are as fast on their own."""
MOST_KEPT: Final = 1 << 26
"""Bytes that an operand or a result may have in all steps."""
ALWAYS_KEPT: Final = 1 << 20
"""Bytes that it may have whatever the loop has."""
WORTH_A_STEP: Final = 1 << 21
"""Multiplications of a product that is nearly as fast on its own: it stays where what would have to be kept is large beside the rest."""
MUCH_LARGER: Final = 4
"""Times that an operand, or the result, of a product of rows is as large as the other of the two, and so is large."""


def hoist(graph: Graph) -> Graph:
    """The graph with products out of its loops; `graph` itself where there are none."""
    if not any(node.op.kind is Kind.LOOP for node in graph.nodes):
        return graph
    builder = GraphBuilder(next_id(graph))
    builder.avals = dict(graph.avals)
    changed = False
    for node in graph.nodes:
        has_count = node.op.kind is Kind.LOOP and "count" in node.attrs
        loop = _HoistedLoop(builder, node) if has_count else None
        if loop is not None and loop.hoist_products():
            changed = True
            builder.nodes += [*loop.before, loop.node(), *loop.after]
        else:
            builder.nodes.append(node)
    return dce(rebuild(graph, builder.nodes, avals=builder.avals)) if changed else graph


class _HoistedLoop:
    """A loop whose operands, results and body change."""

    def __init__(self, builder: GraphBuilder, node: Node) -> None:
        attributes = node.attrs
        self.original, self.builder, self.body = node, builder, attributes["body"].graph
        self.count, self.reverse = attributes["count"], attributes["reverse"]
        body, carried, sliced = self.body, attributes["carried"], attributes["sliced"]
        self.kept = len(node.outputs) - len(body.outputs)
        avals = [builder.avals[v] for v in (*node.operands, *node.outputs) if type(v) is int]
        own = sum(a.nbytes for a in avals if isinstance(a, Aval))
        self.most_kept = max(ALWAYS_KEPT, 2 * own)
        self.history = node.outputs[: self.kept]
        # What is carried: input of the body -> (what goes into the loop, what the body carries on, what the loop gives).
        ends = node.outputs[self.kept : self.kept + carried]
        going = zip(body.inputs, node.operands, body.outputs, ends, strict=False)
        self.carried: dict[int, tuple[Operand, Operand, int]] = {v: (x, on, end) for v, x, on, end in list(going)[:carried]}
        pairs = list(zip(body.inputs, node.operands, strict=True))[carried:]
        self.sliced: dict[int, Operand] = dict(pairs[:sliced])
        self.shared: dict[int, Operand] = dict(pairs[sliced:])
        collected = zip(body.outputs[carried:], node.outputs[self.kept + carried :], strict=True)
        self.collected: list[tuple[int, int]] = list(collected)  # (value of the body, what the loop gives)
        self.made = producers(body)
        self.avals = dict(body.avals)
        self.gone: set[int] = set()  # nodes of the body, by their outputs
        self.before: list[Node] = []
        self.after: list[Node] = []
        self.uses: Counter[Operand] = Counter([x for n in body.nodes for x in n.operands])
        self.uses.update(body.outputs)

    def hoist_products(self) -> bool:
        """Take products out; whether there were any."""
        for v in [*self.carried] if not self.kept else ():
            self._sum(v)
        for node in self.body.nodes:
            if self._is_small_product(node) and node.outputs[0] not in self.gone:
                self._row_by_row(node)
        return bool(self.gone)

    def _is_small_product(self, node: Node | None) -> bool:
        if node is None or node.op.kind is not Kind.CONTRACTION:
            return False
        avals = [self.avals[x] for x in (*node.operands, *node.outputs)]  # type: ignore[index]
        is_one = all(isinstance(a, Aval) and len(a.shape) == 2 and a.dtype.is_floating_point for a in avals)
        sizes = {size for a in avals for size in a.shape}  # type: ignore[union-attr]
        return is_one and min(sizes) < LARGE and self.count * max(a.nbytes for a in avals) <= MOST_KEPT  # type: ignore[union-attr]

    def _is_worth_a_step(self, product: Node) -> bool:
        """Whether it is large enough to be fast without those of other steps."""
        a, b = (self.avals[x] for x in product.operands[:2])  # type: ignore[index]
        return a.size * b.shape[-1] >= WORTH_A_STEP  # type: ignore[union-attr]

    def _may_be_kept(self, *values: int) -> bool:
        """Whether there is memory for values of each step in all steps, as the loop goes."""
        return self.count * max(self.avals[v].nbytes for v in values) <= self.most_kept  # type: ignore[union-attr]

    def _add(self, to: list[Node], name: str, *operands: int, **attributes: Any) -> int:
        self.builder.nodes, nodes = [], self.builder.nodes
        (v,) = self.builder.add(REGISTRY[name], operands, attributes, self.original.line)
        to += self.builder.nodes
        self.builder.nodes = nodes
        return v

    def _of_all_steps(self, v: int) -> int:
        """A value of each step, stacked: what is sliced for it, or a result of the loop."""
        if v in self.sliced:
            known = self.sliced[v]
            assert type(known) is int
            return known
        found = next((stack for x, stack in self.collected if x == v), None)
        if found is None:
            aval = self.avals[v]
            assert isinstance(aval, Aval)
            found = self.builder.fresh(Aval((self.count, *aval.shape), aval.dtype))
            self.collected.append((v, found))
            self.uses[v] += 1
        return found

    def _unused(self, operands: Sequence[Operand]) -> None:
        """A node of the body that has these operands is gone, and with it what nothing else reads."""
        for x in operands:
            self.uses[x] -= 1
            maker = self.made.get(x) if type(x) is int else None
            if maker is not None and not any(self.uses[v] for v in maker.outputs):
                self._unused(maker.operands)

    def _is_same(self, v: int) -> bool:
        """Whether a value is the same in all steps: an operand that they share, or a view of it."""
        node = self.made.get(v)
        is_view = node is not None and node.op.kind is Kind.VIEW and len(node.operands) == 1
        return v in self.shared or (is_view and self._is_same(node.operands[0]))  # type: ignore[union-attr, arg-type]

    def _outside(self, to: list[Node], v: int) -> int:
        """What such a value is outside the loop."""
        if v in self.shared:
            x = self.shared[v]
            assert type(x) is int
            return x
        node = self.made[v]
        return self._add(to, node.op.name, self._outside(to, node.operands[0]), **node.attrs)  # type: ignore[arg-type]

    # -- a product for each step
    def _row_by_row(self, node: Node) -> None:
        """Products with the same matrix, of slices or collected."""
        a, b = node.operands
        v = node.outputs[0]
        assert type(a) is int and type(b) is int
        positions = [i for i, (x, _) in enumerate(self.collected) if x == v]
        is_collected = 0 < len(positions) == self.uses[v]
        if not (a in self.sliced or is_collected) or not self._is_same(b) or not self._may_be_kept(a, v):
            return
        less, more = sorted(self.avals[x].nbytes for x in (a, v))  # type: ignore[union-attr]
        if self._is_worth_a_step(node) and more >= MUCH_LARGER * less:
            return
        rows, length = self.avals[a].shape  # type: ignore[union-attr]
        columns = self.avals[b].shape[1]  # type: ignore[union-attr]
        to = self.before if a in self.sliced else list[Node]()
        whole = self._add(to, "reshape", self._of_all_steps(a), shape=(self.count * rows, length))
        made = self._add(to, "matmul", whole, self._outside(to, b))
        shape = (self.count, rows, columns)
        self.gone.add(v)
        if a in self.sliced:
            self.sliced[v] = self._add(to, "reshape", made, shape=shape)
            return
        to += [Node(REGISTRY["reshape"], (made,), (("shape", shape),), (self.collected[i][1],)) for i in positions]
        self.after[:0] = to  # sums over the steps may read it
        self.collected = [pair for i, pair in enumerate(self.collected) if i not in positions]

    # -- a sum over the steps
    def _sum(self, v: int) -> None:
        """Where steps only add a product to a carried value, the product of all of them is added to what it was before the loop."""
        begin, on, end = self.carried[v]
        node = self.made.get(on)  # type: ignore[arg-type]
        if node is None or node.op.kind is not Kind.ELEMENTWISE or "adds" not in node.op.traits or v not in node.operands:
            return
        p = next((x for x in node.operands if x != v), None)
        product, used_once = self._product(p)
        alone = self.uses[v] == self.uses[on] == 1 and used_once
        if not alone or product is None or self.avals[v] != self.avals[p]:  # type: ignore[index]
            return
        a, b = product.operands
        assert type(a) is int and type(b) is int and type(begin) is int
        if self._is_same(a) or self._is_same(b) or not self._may_be_kept(a, b):
            return
        result, *operands = (self.avals[x].nbytes for x in (product.outputs[0], a, b))  # type: ignore[union-attr]
        if self._is_worth_a_step(product) and max(operands) >= result:
            return
        total = self._add(self.after, "matmul", self._along(a, 1), self._along(b, 0))
        if p != product.outputs[0]:
            total = self._add(self.after, "permute", total, dims=(1, 0))
        self.after.append(Node(node.op, (begin, total), (), (end,), node.line))
        self.gone.update((on, p, product.outputs[0]))  # type: ignore[arg-type]
        self._unused((a, b))
        del self.carried[v]

    def _product(self, v: Operand) -> tuple[Node | None, bool]:
        """The small product that a value is, or the transpose of (the gradient of a weight that is stored transposed), and whether nothing
        else reads it."""
        maker = self.made.get(v) if type(v) is int else None
        used_once = self.uses[v] == 1
        if maker is not None and _is_transpose(maker):
            v = maker.operands[0]
            maker, used_once = self.made.get(v), used_once and self.uses[v] == 1  # type: ignore[arg-type]
        return (maker if self._is_small_product(maker) else None), used_once

    def _along(self, v: int, dim: int) -> int:
        """The matrices of all steps, joined along a dimension."""
        maker = self.made.get(v)
        if maker is not None and _is_transpose(maker):
            return self._add(self.after, "permute", self._along(maker.operands[0], 1 - dim), dims=(1, 0))  # type: ignore[arg-type]
        rows, columns = self.avals[v].shape  # type: ignore[union-attr]
        stack = self._of_all_steps(v)
        if dim == 0:
            return self._add(self.after, "reshape", stack, shape=(self.count * rows, columns))
        turned = self._add(self.after, "permute", stack, dims=(1, 0, 2))
        return self._add(self.after, "reshape", turned, shape=(rows, self.count * columns))

    # -- the loop
    def node(self) -> Node:
        """What is left of it."""
        body = self.body
        nodes = tuple([n for n in body.nodes if not (n.outputs and n.outputs[0] in self.gone)])
        outputs = (*[on for _, on, _ in self.carried.values()], *[v for v, _ in self.collected])
        graph = dce(replace(body, inputs=(*self.carried, *self.sliced, *self.shared), nodes=nodes, outputs=outputs))
        read = {x for n in graph.nodes for x in n.operands} | set(outputs)
        sliced, shared = ({v: x for v, x in given.items() if v in read} for given in (self.sliced, self.shared))
        inputs = (*self.carried, *sliced, *shared)
        graph = rebuild(replace(graph, inputs=inputs), graph.nodes, avals=self.avals)
        operands = (*[x for x, _, _ in self.carried.values()], *sliced.values(), *shared.values())
        attributes: dict[str, Any] = {
            "body": Body(graph), "carried": len(self.carried), "sliced": len(sliced), "count": self.count, "reverse": self.reverse
        }  # fmt: skip
        results: Sequence[int] = (
            *self.history,
            *[end for _, _, end in self.carried.values()],
            *[stack for _, stack in self.collected],
        )
        return Node(self.original.op, operands, tuple(sorted(attributes.items())), tuple(results), self.original.line)


def _is_transpose(node: Node) -> bool:
    """Whether the node is a matrix transposed."""
    return "permutes" in node.op.traits and node.attrs["dims"] == (1, 0)
