"""Products of matrices in the form that BLAS computes with the fewest steps.

A product that is used transposed only is computed transposed (the gradient of a weight that is stored transposed).  A batch of products
that is summed is one product over all rows (the gradient of a weight that a batch shares) or, where that would need copies and the products
are large (the gradient of a convolution's weight), one matrix of zeros to which each of them is added.  A sum of products is one product
that is added to the other (the gradient of a weight that a loop uses in every step).

gemm takes row-major matrices, transposed or not, with any row stride that is at least a row's length; `gemm_layout` tells whether a strided
operand is one.  Rounding differs from that of the products as they were written: for graphs that are lowered next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tracejit.core.aval import Aval
from tracejit.core.op import REGISTRY, Kind
from tracejit.core.shapes import contiguous, product, same
from tracejit.ir.builder import GraphBuilder, next_id, rebuild
from tracejit.ir.graph import Graph, Literal, Node, Operand
from tracejit.ir.layouts import Strided, is_fixed_view, strided_view

__all__ = ["Matrix", "gemm_layout", "is_tiny", "products"]

Shape = tuple[int, ...]
LARGE = 32768  # multiplications from which on a product is worth a call of its own rather than a copy of its operands
TINY = 4  # matrices up to this many rows and columns cost less in a nest than the call of a BLAS routine


@dataclass(frozen=True, slots=True)
class Matrix:
    """The last two dimensions of an operand as gemm sees them."""

    leading: int
    transposed: bool


def gemm_layout(shape: Shape, strides: Shape) -> Matrix | None:
    """How gemm can read a matrix of this layout; None if it cannot."""
    rows, columns = shape[-2:]
    row, column = strides[-2:]
    if (column == 1 or columns == 1) and (rows == 1 or row >= max(columns, 1)):
        return Matrix(row if rows > 1 else max(columns, 1), False)
    if (row == 1 or rows == 1) and (columns == 1 or column >= max(rows, 1)):
        return Matrix(column if columns > 1 else max(rows, 1), True)
    return None


def is_tiny(shape_a: Shape, shape_b: Shape) -> bool:
    """Whether a product of matrices of these shapes, or a batch of them, is a nest."""
    sizes = (*shape_a[-2:], shape_b[-1])
    return all(size <= TINY for size in sizes) and any(size > 0 for size in sizes)


def products(graph: Graph) -> Graph:
    """The graph with better products; `graph` itself where there are none."""
    if all(node.op.kind is not Kind.CONTRACTION for node in graph.nodes):
        return graph
    rewriter = _Rewriter(graph)
    rewriter.sum_batches()
    rewriter.transpose()
    rewriter.accumulate()
    return rebuild(graph, rewriter.nodes, avals=rewriter.avals)


class _Rewriter(GraphBuilder):
    """nodes: those of the graph, which each rewrite writes anew."""

    __slots__ = ("pinned", "reader")

    def __init__(self, graph: Graph) -> None:
        super().__init__(next_id(graph))
        self.avals.update(graph.avals)
        self.nodes = list(graph.nodes)
        self.pinned = {o for o in graph.outputs if isinstance(o, int)} | {v for _, v in graph.writes}
        self.reader: dict[Operand, Node | None] = {}  # None of what is read more than once
        self.find_readers()

    def find_readers(self) -> None:
        """Who reads what now."""
        self.reader = reader = {}
        for node in self.nodes:
            for o in node.operands:
                if type(o) is int:
                    reader[o] = None if o in reader else node

    def begin(self) -> list[Node]:
        """The nodes to be written anew."""
        nodes, self.nodes = self.nodes, []
        return nodes

    def products(self) -> list[tuple[Node, Node]]:
        """The products, without additions, that a single node reads, each with that."""
        found = [(node, self.sole_reader(node.outputs[0])) for node in self.nodes if _is_product(node)]
        return [(node, user) for node, user in found if user is not None]

    def view(self, name: str, v: int, **attributes: Any) -> int:
        """Append a view of v; the new value."""
        return self.add(REGISTRY[name], (v,), attributes)[0]

    def sole_reader(self, v: int) -> Node | None:
        return None if v in self.pinned else self.reader.get(v)

    def transpose(self) -> None:
        """(a @ b) transposed, and used in no other way, is transposed b @ transposed a."""
        turned: dict[int, Node] = {}  # output of the permutation -> the product
        dropped: set[int] = set()
        for node, user in self.products():
            if self.is_transpose(user):
                turned[user.outputs[0]] = node
                dropped.add(node.outputs[0])
        if not turned:
            return
        for node in self.begin():
            key = node.outputs[0] if node.outputs else -1
            matmul = turned.get(key)
            if matmul is not None:
                operands = tuple([self.view("permute", o, dims=_swap(self.aval(o).ndim)) for o in matmul.operands[::-1]])  # type: ignore[arg-type]
                self.nodes.append(Node(matmul.op, operands, (), node.outputs, matmul.line))
            elif key not in dropped:
                self.nodes.append(node)
        self.find_readers()

    def is_transpose(self, node: Node) -> bool:
        """Whether the node is a view of matrices transposed."""
        if not is_fixed_view(node) or node.op.strides is not None:
            return False
        shape, result = self.aval(node.operands[0]).shape, self.aval(node.outputs[0]).shape
        own, swap = contiguous(shape), _swap(len(shape))
        layout = strided_view(node, Strided(0, 0, own), shape, result)
        turned = tuple([own[d] if shape[d] != 1 else 0 for d in swap])
        return result == tuple([shape[d] for d in swap]) and layout == Strided(0, 0, turned)

    def sum_batches(self) -> None:
        """The sum over all batch dimensions of a @ b is one product whose inner dimension is batch and inner dimension together."""
        replaced: dict[int, Node] = {}  # output of the sum (or of the reshape behind it) -> the product
        dropped: set[int] = set()
        for node, user in self.products():
            if "adds" not in user.op.traits or user.op.kind is not Kind.REDUCTION:
                continue
            aval = self.aval(node.outputs[0])
            if aval.ndim < 3 or user.attrs["dims"] != tuple(range(aval.ndim - 2)):
                continue
            if not aval.dtype.is_floating_point or aval.size == 0:
                continue
            if any(self.aval(o).shape[:-2] != aval.shape[:-2] for o in node.operands):
                continue
            last = user
            behind = self.sole_reader(user.outputs[0])
            if behind is not None and behind.op.strides is not None and self.aval(behind.outputs[0]).shape == aval.shape[-2:]:
                dropped.add(user.outputs[0])
                last = behind
            dropped.add(node.outputs[0])
            replaced[last.outputs[0]] = node
        if not replaced:
            return
        makers = {o: node for node in self.nodes for o in node.outputs}
        for node in self.begin():
            key = node.outputs[0] if node.outputs else -1
            matmul = replaced.get(key)
            if matmul is not None:
                (self._added_up if self._needs_copies(makers, matmul) else self._one_product)(matmul, key)
            elif key not in dropped:
                self.nodes.append(node)
        self.find_readers()

    def accumulate(self) -> None:
        """a @ b + c @ d, each product used only here, is the later one added to the other; it moves to the addition's position."""
        products: dict[int, tuple[int, Node]] = {}  # output -> (position, product), of those with one reader
        found: list[Node | None] = list(self.nodes)
        for position, node in enumerate(self.nodes):
            if node.op.kind is Kind.CONTRACTION:
                out = node.outputs[0]
                a, b, aval = self.aval(node.operands[0]).shape, self.aval(node.operands[1]).shape, self.aval(out)
                some = aval.dtype.is_floating_point and aval.size * a[-1] > 0
                if some and not is_tiny(a, b) and self.sole_reader(out):
                    products[out] = position, node
            elif "adds" in node.op.traits and node.op.kind is Kind.ELEMENTWISE:
                terms = [products.get(o) for o in node.operands if isinstance(o, int)]
                first, second = terms if len(terms) == 2 else (None, None)
                if first is None or second is None or first[1].outputs == second[1].outputs:
                    continue
                base, added = sorted((first, second), key=lambda term: (_is_product(term[1]), term[0]))
                out, total = node.outputs[0], base[1].outputs[0]
                if not _is_product(added[1]) or not same(self.aval(total).shape, self.aval(added[1].outputs[0]).shape):
                    continue
                found[added[0]] = None
                both = Node(REGISTRY["matmul_add"], (*added[1].operands, total), (), (out,), added[1].line)
                found[position] = both
                if self.sole_reader(out):
                    products[out] = position, both
        self.nodes = [node for node in found if node is not None]

    def _one_product(self, matmul: Node, result: int) -> None:
        a, b = matmul.operands
        assert isinstance(a, int) and isinstance(b, int)
        (*batch, m, k), n = self.aval(a).shape, self.aval(b).shape[-1]
        rank, inner = len(batch), product(batch) * k
        rows = self.view("permute", a, dims=(rank, *range(rank), rank + 1))
        left = self.view("reshape", rows, shape=(m, inner))
        right = self.view("reshape", b, shape=(inner, n))
        self._product("matmul", matmul, (left, right), (m, n), result)

    def _product(self, name: str, matmul: Node, operands: tuple[int, ...], shape: Shape, result: int) -> None:
        """Append a product of `shape`, and the reshape to that of the result if it is another one."""
        aval = self.aval(result)
        made = result if same(aval.shape, shape) else self.fresh(Aval(shape, aval.dtype))
        self.nodes.append(Node(REGISTRY[name], operands, (), (made,), matmul.line))
        if made != result:
            self.nodes.append(Node(REGISTRY["reshape"], (made,), (("shape", aval.shape),), (result,)))

    def _added_up(self, matmul: Node, result: int) -> None:
        """The products of a batch, added one after the other to zeros."""
        a, b = matmul.operands
        assert isinstance(a, int) and isinstance(b, int)
        shape = (self.aval(a).shape[-2], self.aval(b).shape[-1])
        (zeros,) = self.add(REGISTRY["full"], (Literal(0.0),), {"dtype": self.aval(a).dtype, "shape": shape})
        self._product("matmul_add", matmul, (a, b, zeros), shape, result)

    def _needs_copies(self, makers: Mapping[int, Node], matmul: Node) -> bool:
        """Whether the operands of large products would have to be copied to become those of one, and can be read as they are."""
        a, b = matmul.operands
        assert isinstance(a, int) and isinstance(b, int)
        (*batch, m, k), n = self.aval(a).shape, self.aval(b).shape[-1]
        if m * k * n < LARGE:
            return False
        inner, last = product(batch) * k, len(batch)
        left, right = self._layout(makers, a), self._layout(makers, b)
        if gemm_layout(self.aval(a).shape, left.strides) is None or gemm_layout(self.aval(b).shape, right.strides) is None:
            return False
        rows = Strided(a, left.offset, (left.strides[last], *left.strides[:last], left.strides[-1]))
        return not (_reshapes(rows, (m, *batch, k), (m, inner)) and _reshapes(right, self.aval(b).shape, (inner, n)))

    def _layout(self, makers: Mapping[int, Node], v: int) -> Strided:
        """Where the elements of v will be, if inputs and what is no view are in row-major order."""
        shape, maker = self.aval(v).shape, makers.get(v)
        if maker is not None and is_fixed_view(maker):
            base = maker.operands[0]
            assert isinstance(base, int)
            found = strided_view(maker, self._layout(makers, base), self.aval(base).shape, shape)
            if found is not None:
                return found
        return Strided(v, 0, contiguous(shape))


def _is_product(node: Node) -> bool:
    """Whether the node is a product to which nothing is added."""
    return node.op.kind is Kind.CONTRACTION and len(node.operands) == 2


def _reshapes(layout: Strided, shape: Shape, result: Shape) -> bool:
    """Whether a reshape of this layout is a view."""
    return strided_view(Node(REGISTRY["reshape"], (), (("shape", result),), ()), layout, shape, result) is not None


def _swap(rank: int) -> Shape:
    """The permutation that transposes matrices."""
    return (*range(rank - 2), rank - 1, rank - 2)
