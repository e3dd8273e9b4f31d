"""Matrix products as BLAS calls: which layouts gemm reads by itself, and how batches are walked.

gemm takes row-major matrices, transposed or not, with any row stride that is at least a row's length.  `gemm_layout` tells whether a
strided operand is one; where it is not, values.py puts a copy before the product.
"""

from __future__ import annotations

from dataclasses import dataclass

from tracejit.codegen.views import Strided
from tracejit.core.shapes import product

__all__ = ["Matrix", "Product", "gemm_layout", "plan_product"]

Shape = tuple[int, ...]


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


def plan_product(shape_a: Shape, a: Strided, shape_b: Shape, b: Strided, shape_c: Shape) -> Product:
    """The call for c = a @ b, c contiguous.  A batch over one matrix b becomes more rows where a's memory allows it."""
    left, right = gemm_layout(shape_a, a.strides), gemm_layout(shape_b, b.strides)
    assert left is not None and right is not None
    m, k, n = shape_a[-2], shape_a[-1], shape_b[-1]
    batch: list[tuple[int, int, int, int]] = []
    lead = len(shape_c) - 2
    size_c = m * n
    for d in reversed(range(lead)):
        extent = shape_c[d]
        if extent == 1:
            continue
        stride_a = _batch_stride(shape_a, a.strides, d, lead)
        stride_b = _batch_stride(shape_b, b.strides, d, lead)
        stride_c = size_c * product(shape_c[d + 1 : lead])
        if not batch and stride_b == 0 and not left.transposed and stride_a == m * left.leading:
            m *= extent
            continue
        if batch and all(s == e[0] * t for s, t, e in zip((stride_a, stride_b, stride_c), batch[0][1:], [batch[0]] * 3, strict=True)):
            batch[0] = (batch[0][0] * extent, *batch[0][1:])
            continue
        batch.insert(0, (extent, stride_a, stride_b, stride_c))
    return Product(m, n, k, left, right, tuple(batch))


def _batch_stride(shape: Shape, strides: Shape, d: int, lead: int) -> int:
    """The stride of an operand along batch dimension d of the result; 0 where it broadcasts."""
    own = d - (lead - (len(shape) - 2))
    return 0 if own < 0 or shape[own] == 1 else strides[own]
