"""Solving and factorising matrices as calls of LAPACK: sizes, scratch memory, and how batches are walked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tracejit.core.dtypes import float64
from tracejit.core.shapes import broadcast_shapes, product
from tracejit.core.symbolic import cached
from tracejit.ir.graph import Node
from tracejit.lowering.elements import Scratch
from tracejit.lowering.products import batch_stride, with_dimension
from tracejit.lowering.steps import Address, LapackCall, OperandMatrix, ResultArray
from tracejit.lowering.values import Values

__all__ = ["lapack_call", "scratch_for"]

Shape = tuple[int, ...]
BLOCK: Final = 64
"""Numbers of workspace for each row and column: LAPACK works on fewer columns together."""
_SCRATCH: Final[dict[str, Callable[[int, int], int]]] = {
    "geqrf": lambda n, m: n * m + n + BLOCK * (n + m),
    "syevd": lambda n, m: 3 * n * n + (BLOCK + 6) * n + 4,
    "gesdd": lambda n, m: 8 * n * m + 9 * n + BLOCK * (n + m),
}
"""float64 numbers for copies of operands and results, and for work, where other routines need less."""


def scratch_for(values: Values, node: Node) -> Scratch:
    """Memory for pivots and for copies of the operands, all of which but the last are square, or what `_SCRATCH` says."""
    n, m = values.shape(node.operands[-1])[-2:]  # type: ignore[arg-type]
    needed = _SCRATCH.get(node.op.routine or "", lambda n, m: n * (n + m + 1))
    return Scratch(float64, needed(n, m))


def lapack_call(
    values: Values, node: Node, scratch: Address, code: int, address: Callable[[int, int, int], Address]
) -> LapackCall:
    """The step of a node.  address(root, element, itemsize): of an element of a root value.  code: of its exit, or 0."""
    layouts = [values.strided[x] for x in node.operands]  # type: ignore[index]
    shapes = [values.shape(x) for x in node.operands]  # type: ignore[arg-type]
    dtype = values.aval(node.outputs[0]).dtype
    operands = [
        OperandMatrix(address(x.root, x.offset, dtype.itemsize), *shape[-2:], *x.strides[-2:])
        for x, shape in zip(layouts, shapes, strict=True)
    ]
    outer = broadcast_shapes("linalg", *[shape[:-2] for shape in shapes])
    results = [ResultArray(address(v, 0, dtype.itemsize), values.shape(v)[len(outer) :]) for v in node.outputs]
    batch = _batch(outer, tuple(shapes), tuple([x.strides for x in layouts]), tuple([product(x.shape) for x in results]))  # type: ignore[arg-type]
    assert node.op.routine is not None
    flags = tuple([bool(value) for _, value in sorted(node.attributes)])
    return LapackCall(node.op.routine, dtype, tuple(operands), tuple(results), scratch, flags, batch, code)


@cached(4096)
def _batch(outer: Shape, shapes: tuple[Shape, ...], strides: tuple[Shape, ...], sizes: Shape) -> tuple[tuple[int, ...], ...]:
    """sizes: the elements of a result for one matrix."""
    batch: list[tuple[int, ...]] = []
    for d in reversed(range(len(outer))):
        steps = [batch_stride(shape, own, d, len(outer)) for shape, own in zip(shapes, strides, strict=True)]
        steps += [size * product(outer[d + 1 :]) for size in sizes]
        if outer[d] != 1:
            batch = with_dimension(batch, outer[d], steps)
    return tuple(batch)
