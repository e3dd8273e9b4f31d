"""Matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.core.aval import Aval
from tracejit.core.op import Kind
from tracejit.core.shapes import broadcast_shapes, equal
from tracejit.core.unbroadcast import sum_to
from tracejit.ops.declare import custom
from tracejit.ops.movement.views import permute
from tracejit.ops.samples import cases, floats

__all__ = ["matmul", "transpose_matrix"]


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


matmul.named(lambda node: "MmBackward0" if len(node.out_meta[0]) == 2 else "BmmBackward0")


@matmul.vjp(saves=("1", "0"))
def _(c: Any, g: Any) -> Any:
    a, b = c.inputs
    ga = sum_to(matmul.of(g, transpose_matrix(b)), c.avals[0].shape) if c.needs[0] else None
    gb = sum_to(matmul.of(transpose_matrix(a), g), c.avals[1].shape) if c.needs[1] else None
    return ga, gb
