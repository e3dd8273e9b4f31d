"""Matrix products as BLAS calls: which layouts gemm reads by itself, how batches are walked, and which are too small for a call.

gemm takes row-major matrices, transposed or not, with any row stride that is at least a row's length.  `gemm_layout` tells whether a
strided operand is one; where it is not, values.py puts a copy before the product.

`rewritten_products` changes products on the graph so that one call does what would be several steps: a product that is used
transposed only is computed transposed (the gradient of a weight that is stored transposed).  A batch of products that is summed is one
product over all rows (the gradient of a weight that a batch shares) or, where that would need copies and the products are large (the
gradient of a convolution's weight), one matrix of zeros to which each of them is added.  A sum of products is one product that adds to
the other's result: a matmul node with a third operand, in whose memory it is accumulated (the gradient of a weight that a loop uses in
every step).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tracejit.codegen.views import Strided, contiguous, strided_view
from tracejit.core.aval import Aval, ScalarAval
from tracejit.core.op import REGISTRY, Kind, Op
from tracejit.core.shapes import product
from tracejit.ir.graph import Graph, Literal, Node

__all__ = ["Matrix", "Product", "gemm_layout", "is_tiny", "plan_product", "rewritten_products"]

Shape = tuple[int, ...]
LARGE = 32768  # multiplications from which on a product is worth a call of its own rather than a copy of its operands
TINY = 4  # matrices up to this many rows and columns cost less in a nest than the call of a BLAS routine


@dataclass(frozen=True, slots=True)
class Matrix:
    """The last two dimensions of an operand as gemm sees them."""

    leading: int
    transposed: bool


@dataclass(frozen=True, slots=True)
class Product:
    """Sizes and batch of one GemmCall; batch entries are (extent, stride of a, of b, of c) in elements, outermost first."""

    m: int
    n: int
    k: int
    a: Matrix
    b: Matrix
    batch: tuple[tuple[int, int, int, int], ...]


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
    return 0 < max(*shape_a[-2:], shape_b[-1]) <= TINY


def plan_product(shape_a: Shape, a: Strided, shape_b: Shape, b: Strided, shape_c: Shape) -> Product:
    """The call for c = a @ b, c contiguous.  A batch over one matrix b becomes more rows where a's memory allows it.  If c has no batch
    dimensions, the products of a's are added to it."""
    summed = len(shape_c) < len(shape_a)
    outer = shape_a[:-2] if summed else shape_c[:-2]
    left, right = gemm_layout(shape_a, a.strides), gemm_layout(shape_b, b.strides)
    assert left is not None and right is not None
    m, k, n = shape_a[-2], shape_a[-1], shape_b[-1]
    batch: list[tuple[int, int, int, int]] = []
    lead = len(outer)
    size_c = 0 if summed else m * n
    for d in reversed(range(lead)):
        extent = outer[d]
        if extent == 1:
            continue
        stride_a = _batch_stride(shape_a, a.strides, d, lead)
        stride_b = _batch_stride(shape_b, b.strides, d, lead)
        stride_c = size_c * product(outer[d + 1 :])
        if not batch and not summed and stride_b == 0 and not left.transposed and stride_a == m * left.leading:
            m *= extent
            continue
        if batch and all(
            s == e[0] * t for s, t, e in zip((stride_a, stride_b, stride_c), batch[0][1:], [batch[0]] * 3, strict=True)
        ):
            batch[0] = (batch[0][0] * extent, *batch[0][1:])
            continue
        batch.insert(0, (extent, stride_a, stride_b, stride_c))
    return Product(m, n, k, left, right, tuple(batch))


def _batch_stride(shape: Shape, strides: Shape, d: int, lead: int) -> int:
    """The stride of an operand along batch dimension d of the result; 0 where it broadcasts."""
    own = d - (lead - (len(shape) - 2))
    return 0 if own < 0 or shape[own] == 1 else strides[own]


Avals = dict[int, Aval | ScalarAval]


def rewritten_products(graph: Graph, nodes: list[Node], avals: Avals) -> tuple[list[Node], Avals]:
    """Nodes and avals with better products; the values that the graph gives back keep their ids."""
    pinned = {o for o in graph.outputs if isinstance(o, int)} | {v for _, v in graph.writes}
    rewriter = _Rewriter(nodes, dict(avals), pinned)
    rewriter.sum_batches()
    rewriter.transpose()
    rewriter.accumulate()
    return rewriter.nodes, rewriter.avals


class _Rewriter:
    def __init__(self, nodes: list[Node], avals: Avals, pinned: set[int]) -> None:
        self.nodes = nodes
        self.avals = avals
        self.pinned = pinned
        self.fresh = max(avals, default=0) + 1

    def readers(self) -> dict[int, list[Node]]:
        found: dict[int, list[Node]] = {}
        for node in self.nodes:
            for o in node.operands:
                if isinstance(o, int):
                    found.setdefault(o, []).append(node)
        return found

    def aval(self, v: Any) -> Aval:
        aval = self.avals[v]
        assert isinstance(aval, Aval)
        return aval

    def view(self, out: list[Node], name: str, v: int, **attributes: Any) -> int:
        """Append a view of v; the new value."""
        op: Op = REGISTRY[name]
        made, self.fresh = self.fresh, self.fresh + 1
        self.avals[made] = op.infer(self.aval(v), **attributes)
        out.append(Node(op, (v,), tuple(sorted(attributes.items())), (made,)))
        return made

    def sole_reader(self, readers: Mapping[int, list[Node]], v: int) -> Node | None:
        found = readers.get(v, [])
        return found[0] if len(found) == 1 and v not in self.pinned else None

    def transpose(self) -> None:
        """(a @ b) transposed, and used in no other way, is transposed b @ transposed a."""
        readers = self.readers()
        turned: dict[int, Node] = {}  # output of the permutation -> the product
        dropped: set[int] = set()
        for node in self.nodes:
            if node.op.name == "matmul":
                user = self.sole_reader(readers, node.outputs[0])
                if (
                    user is not None
                    and user.op.name == "permute"
                    and user.attrs["dims"] == _swap(self.aval(node.outputs[0]).ndim)
                ):
                    turned[user.outputs[0]] = node
                    dropped.add(node.outputs[0])
        out: list[Node] = []
        for node in self.nodes:
            key = node.outputs[0] if node.outputs else -1
            if key in dropped:
                continue
            matmul = turned.get(key)
            if matmul is None:
                out.append(node)
                continue
            operands = tuple(self.view(out, "permute", o, dims=_swap(self.aval(o).ndim)) for o in reversed(matmul.operands))  # type: ignore[arg-type]
            out.append(Node(matmul.op, operands, matmul.attributes, node.outputs, matmul.line))
        self.nodes = out

    def sum_batches(self) -> None:
        """The sum over all batch dimensions of a @ b is one product whose inner dimension is batch and inner dimension together."""
        readers = self.readers()
        replaced: dict[int, Node] = {}  # output of the sum (or of the reshape behind it) -> the product
        dropped: set[int] = set()
        for node in self.nodes:
            if node.op.name != "matmul":
                continue
            out = node.outputs[0]
            rank = self.aval(out).ndim
            user = self.sole_reader(readers, out)
            if user is None or user.op.name != "sum" or rank < 3 or user.attrs["dims"] != tuple(range(rank - 2)):
                continue
            if not self.aval(out).dtype.is_floating_point or self.aval(out).size == 0:
                continue
            if any(self.aval(o).shape[:-2] != self.aval(out).shape[:-2] for o in node.operands):
                continue
            last = user
            behind = self.sole_reader(readers, user.outputs[0])
            if behind is not None and behind.op.name == "reshape" and behind.attrs["shape"] == self.aval(out).shape[-2:]:
                dropped.add(user.outputs[0])
                last = behind
            dropped.add(out)
            replaced[last.outputs[0]] = node
        found: list[Node] = []
        makers = {o: node for node in self.nodes for o in node.outputs} if replaced else {}
        for node in self.nodes:
            key = node.outputs[0] if node.outputs else -1
            if key in dropped:
                continue
            matmul = replaced.get(key)
            if matmul is None:
                found.append(node)
            elif self._needs_copies(makers, matmul):
                self._added_up(found, matmul, key)
            else:
                self._one_product(found, matmul, key)
        self.nodes = found

    def accumulate(self) -> None:
        """a @ b + c @ d, each product used only here, is the later one accumulated on the other; it moves to the addition's place."""
        readers = self.readers()
        products: dict[int, tuple[int, Node]] = {}  # output -> (position, product), of those with one reader
        found: list[Node | None] = list(self.nodes)
        for position, node in enumerate(self.nodes):
            if node.op.name == "matmul":
                out = node.outputs[0]
                shapes = [self.aval(o).shape for o in node.operands]
                some = self.aval(out).dtype.is_floating_point and self.aval(out).size * shapes[0][-1] > 0
                if some and not is_tiny(shapes[0], shapes[1]) and self.sole_reader(readers, out):
                    products[out] = position, node
            elif node.op.name in ("add", "acc"):
                terms = [products.get(o) for o in node.operands if isinstance(o, int)]
                first, second = terms if len(terms) == 2 else (None, None)
                if first is None or second is None or first[1].outputs == second[1].outputs:
                    continue
                base, added = sorted((first, second), key=lambda term: (len(term[1].operands) == 2, term[0]))
                out, total = node.outputs[0], base[1].outputs[0]
                if len(added[1].operands) != 2 or self.aval(total).shape != self.aval(added[1].outputs[0]).shape:
                    continue
                found[added[0]] = None
                accumulated = Node(added[1].op, (*added[1].operands, total), added[1].attributes, (out,), added[1].line)
                found[position] = accumulated
                if self.sole_reader(readers, out):
                    products[out] = position, accumulated
        self.nodes = [node for node in found if node is not None]

    def _one_product(self, out: list[Node], matmul: Node, result: int) -> None:
        a, b = matmul.operands
        assert isinstance(a, int) and isinstance(b, int)
        rank = self.aval(a).ndim
        m, k = self.aval(a).shape[-2:]
        n = self.aval(b).shape[-1]
        inner = product(self.aval(a).shape[:-2]) * k
        rows = self.view(out, "permute", a, dims=(rank - 2, *range(rank - 2), rank - 1))
        left = self.view(out, "reshape", rows, shape=(m, inner))
        right = self.view(out, "reshape", b, shape=(inner, n))
        self._product(out, matmul, (left, right), (m, n), result)

    def _product(self, out: list[Node], matmul: Node, operands: tuple[int, ...], shape: Shape, result: int) -> None:
        """Append a product of `shape`, and the reshape to that of the result if it is another one."""
        if self.aval(result).shape == shape:
            out.append(Node(matmul.op, operands, matmul.attributes, (result,), matmul.line))
            return
        made, self.fresh = self.fresh, self.fresh + 1
        self.avals[made] = Aval(shape, self.aval(result).dtype)
        out.append(Node(matmul.op, operands, matmul.attributes, (made,), matmul.line))
        out.append(Node(REGISTRY["reshape"], (made,), (("shape", self.aval(result).shape),), (result,)))

    def _added_up(self, out: list[Node], matmul: Node, result: int) -> None:
        """The products of a batch, added one after the other to zeros."""
        a, b = matmul.operands
        assert isinstance(a, int) and isinstance(b, int)
        shape = (self.aval(a).shape[-2], self.aval(b).shape[-1])
        zeros, self.fresh = self.fresh, self.fresh + 1
        self.avals[zeros] = Aval(shape, self.aval(a).dtype)
        attributes = (("dtype", self.aval(a).dtype), ("shape", shape))
        out.append(Node(REGISTRY["full"], (Literal(0.0),), attributes, (zeros,)))
        self._product(out, matmul, (a, b, zeros), shape, result)

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
        if maker is not None and maker.op.kind is Kind.VIEW and all(isinstance(o, Literal) for o in maker.operands[1:]):
            base = maker.operands[0]
            assert isinstance(base, int)
            found = strided_view(maker, self._layout(makers, base), self.aval(base).shape, shape)
            if found is not None:
                return found
        return Strided(v, 0, contiguous(shape))


def _reshapes(layout: Strided, shape: Shape, result: Shape) -> bool:
    """Whether a reshape of this layout is a view."""
    return strided_view(Node(REGISTRY["reshape"], (), (("shape", result),), ()), layout, shape, result) is not None


def _swap(rank: int) -> Shape:
    """The permutation that transposes matrices."""
    return (*range(rank - 2), rank - 1, rank - 2)
