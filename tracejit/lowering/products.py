"""Matrix products as BLAS calls: how batches are walked.  Which layouts gemm reads is passes/products.py's to know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracejit.core.shapes import broadcast_shapes, product
from tracejit.core.symbolic import cached
from tracejit.passes.products import Matrix, gemm_layout

__all__ = ["Product", "batch_stride", "plan_product", "with_dimension"]

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Product:
    """Sizes and batch of one GemmCall; batch entries are (extent, stride of a, of b, of c) in elements, outermost first."""

    m: int
    n: int
    k: int
    a: Matrix
    b: Matrix
    batch: tuple[tuple[int, int, int, int], ...]


@cached(4096)
def plan_product(shape_a: Shape, strides_a: Shape, shape_b: Shape, strides_b: Shape, shape_c: Shape) -> Product:
    """The call for c = a @ b, c contiguous.  A batch over one matrix b becomes more rows where a's memory allows it.  If c has no batch
    dimensions, the products of a's are added to it."""
    outer = broadcast_shapes("matmul", shape_a[:-2], shape_b[:-2])
    summed = len(shape_c) < len(outer) + 2
    left, right = gemm_layout(shape_a, strides_a), gemm_layout(shape_b, strides_b)
    assert left is not None and right is not None
    m, k, n = shape_a[-2], shape_a[-1], shape_b[-1]
    batch: list[tuple[int, ...]] = []
    lead = len(outer)
    size_c = 0 if summed else m * n
    for d in reversed(range(lead)):
        extent = outer[d]
        if extent == 1:
            continue
        stride_a = batch_stride(shape_a, strides_a, d, lead)
        stride_b = batch_stride(shape_b, strides_b, d, lead)
        stride_c = size_c * product(outer[d + 1 :])
        if not batch and not summed and stride_b == 0 and not left.transposed and stride_a == m * left.leading:
            m *= extent
            continue
        batch = with_dimension(batch, extent, (stride_a, stride_b, stride_c))
    return Product(m, n, k, left, right, tuple(batch))  # type: ignore[arg-type]


def with_dimension(batch: Sequence[tuple[int, ...]], extent: int, strides: Sequence[int]) -> list[tuple[int, ...]]:
    """A batch, each entry an extent and strides, with a dimension around it: part of the outermost one where the strides allow it."""
    if batch and all(stride == batch[0][0] * inner for stride, inner in zip(strides, batch[0][1:], strict=True)):
        return [(batch[0][0] * extent, *batch[0][1:]), *batch[1:]]
    return [(extent, *strides), *batch]


def batch_stride(shape: Shape, strides: Shape, d: int, lead: int) -> int:
    """The stride of an operand along batch dimension d of the result; 0 where it broadcasts."""
    own = d - (lead - (len(shape) - 2))
    return 0 if own < 0 or shape[own] == 1 else strides[own]
