"""Matrix products to which something is added."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.core.aval import Aval
from tracejit.core.shapes import equal
from tracejit.core.unbroadcast import sum_to
from tracejit.ops.declare import composite
from tracejit.ops.linalg import matmul, transpose_matrix
from tracejit.ops.samples import cases, floats

__all__ = ["addmm"]


def _addmm_rule(bias: Aval, a: Aval, b: Aval) -> Aval:
    if not equal(a.shape[1], b.shape[0]):
        raise RuntimeError(
            f"addmm(): shapes {list(a.shape)} and {list(b.shape)} cannot be multiplied: the sizes {a.shape[1]} and {b.shape[0]} "
            "must be equal"
        )
    return Aval((a.shape[0], b.shape[1]), a.dtype)


@composite(
    _addmm_rule,
    lambda bias, a, b: matmul.of(a, b) + bias,
    traits=("checked",),
    samples=cases(
        (floats(4), floats(2, 3), floats(3, 4, seed=1)), (floats(2, 1), floats(3, 2).T, floats(4, 3, seed=1).T),
        (floats(), floats(0, 2), floats(2, 3)), (floats(3), floats(2, 0), floats(0, 3)),
    ),
)  # fmt: skip
def addmm(bias: Any, a: Any, b: Any) -> Any:
    """a @ b + bias for matrices of one dtype, and a bias of that dtype that broadcasts to the product."""
    out = np.matmul(a, b)
    out += bias
    return out


@addmm.vjp(saves=("", "2", "1"))
def _(c: Any, g: Any) -> Any:
    _, a, b = c.inputs
    return (
        sum_to(g, c.avals[0].shape) if c.needs[0] else None,
        matmul.of(g, transpose_matrix(b)) if c.needs[1] else None,
        matmul.of(transpose_matrix(a), g) if c.needs[2] else None,
    )
