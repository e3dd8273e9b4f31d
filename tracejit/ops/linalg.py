"""Matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.core import products
from tracejit.core.aval import Aval
from tracejit.core.op import Kind
from tracejit.core.shapes import broadcast_shapes, equal
from tracejit.core.unbroadcast import sum_to
from tracejit.ops.declare import custom
from tracejit.ops.movement.views import expand, permute
from tracejit.ops.samples import cases, floats

__all__ = ["matmul", "matmul_add", "transpose_matrix"]


def transpose_matrix(x: Any) -> Any:
    """The last two dimensions swapped (a view)."""
    n = len(x.shape)
    return permute.of(x, dims=(*range(n - 2), n - 1, n - 2))


def _matmul_rule(a: Aval, b: Aval) -> Aval:
    if not equal(a.shape[-1], b.shape[-2]):
        raise RuntimeError(
            f"matmul(): shapes {list(a.shape)} and {list(b.shape)} cannot be multiplied: "
            f"the last size of the first is {a.shape[-1]}, the second-to-last of the second {b.shape[-2]}; they must be equal"
        )
    if a.dtype is not b.dtype:
        raise RuntimeError(
            f"matmul(): expected both operands to have one dtype, got {a.dtype.name} and {b.dtype.name}; convert one with .to()"
        )
    batch = a.shape[:-2] if a.shape[:-2] == b.shape[:-2] else broadcast_shapes("matmul", a.shape[:-2], b.shape[:-2])
    return Aval((*batch, a.shape[-2], b.shape[-1]), a.dtype)


@custom(
    Kind.CONTRACTION,
    _matmul_rule,
    traits=("checked",),
    ufunc=np.matmul,
    samples=cases(
        (floats(2, 3), floats(3, 4, seed=1)), (floats(3, 2).T, floats(4, 3, seed=1).T), (floats(2, 2, 3), floats(3, 2, seed=1)),
        (floats(3, 1, 2, 2), floats(2, 2, 1, seed=1)), (floats(2, 0), floats(0, 3)), (floats(0, 2), floats(2, 3)),
    ),
)  # fmt: skip
def matmul(a: Any, b: Any) -> Any:
    """Matrix product of the last two dimensions; the leading ones broadcast."""
    return products.matmul(a, b)


matmul.named(lambda node: "MmBackward0" if len(node.out_meta[0]) == 2 else "BmmBackward0")


def _of_factors(c: Any, g: Any) -> tuple[Any, Any]:
    a, b = c.inputs[:2]
    ga = sum_to(matmul.of(g, transpose_matrix(b)), c.avals[0].shape) if c.needs[0] else None
    gb = sum_to(matmul.of(transpose_matrix(a), g), c.avals[1].shape) if c.needs[1] else None
    return ga, gb


matmul.vjp(saves=("1", "0"))(_of_factors)


def _matmul_add_rule(a: Aval, b: Aval, c: Aval) -> Aval:
    product = _matmul_rule(a, b)
    if not c.dtype.is_floating_point or c.dtype is not product.dtype or c.shape not in (product.shape, product.shape[-2:]):
        raise RuntimeError(f"matmul_add(): expected a third operand like the product, {product}, or one matrix of it, got {c}")
    return c


@custom(
    Kind.CONTRACTION,
    _matmul_add_rule,
    traits=("checked", "adds"),
    samples=cases(
        (floats(2, 3), floats(3, 4, seed=1), floats(2, 4, seed=2)), (floats(3, 2).T, floats(4, 3, seed=1).T, floats(4, 2, seed=2).T),
        (floats(2, 2, 3), floats(3, 2, seed=1), floats(2, 2, 2, seed=2)), (floats(3, 2, 3), floats(3, 3, 2, seed=1), floats(2, 2)),
        (floats(5, 6), floats(2, 6, 7, seed=1), floats(5, 7, seed=2)), (floats(2, 0), floats(0, 3), floats(2, 3)),
        (floats(0, 2), floats(2, 3), floats(0, 3)), (floats(0, 2, 3), floats(0, 3, 2), floats(2, 2)),
    ),
)  # fmt: skip
def matmul_add(a: Any, b: Any, c: Any) -> Any:
    """a @ b + c, of floating-point numbers.  Where c is one matrix, all products of a batch are added to it."""
    product = products.matmul(a, b)
    return (product if product.ndim == c.ndim else product.sum(tuple(range(product.ndim - 2)))) + c


@matmul_add.vjp(saves=("1", "0", ""))
def _(c: Any, g: Any) -> Any:
    return *_of_factors(c, expand.of(g, shape=_matmul_rule(*c.avals[:2]).shape)), g
