"""Matrix products to which something is added, and products with vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.core import products
from tracejit.core.aval import Aval
from tracejit.core.shapes import equal
from tracejit.core.unbroadcast import sum_to
from tracejit.ops.declare import composite
from tracejit.ops.linalg import matmul, transpose_matrix
from tracejit.ops.movement.views import reshape
from tracejit.ops.samples import cases, floats

__all__ = ["addmm", "dot", "mv"]


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
    samples=cases(
        (floats(4), floats(2, 3), floats(3, 4, seed=1)), (floats(2, 1), floats(3, 2).T, floats(4, 3, seed=1).T),
        (floats(), floats(0, 2), floats(2, 3)), (floats(3), floats(2, 0), floats(0, 3)),
    ),
)  # fmt: skip
def addmm(bias: Any, a: Any, b: Any) -> Any:
    """a @ b + bias for matrices of one dtype, and a bias of that dtype that broadcasts to the product."""
    out = products.matmul(a, b)
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


def _check_vectors(name: str, a: Aval, vector: Aval) -> None:
    if not equal(a.shape[-1], vector.shape[0]):
        raise RuntimeError(
            f"{name}(): shapes {list(a.shape)} and {list(vector.shape)} cannot be multiplied: the last sizes {a.shape[-1]} and "
            f"{vector.shape[0]} must be equal"
        )
    if a.dtype is not vector.dtype:
        raise RuntimeError(
            f"{name}(): expected both operands to have one dtype, got {a.dtype.name} and {vector.dtype.name}; convert one with .to()"
        )


def _dot_rule(a: Aval, b: Aval) -> Aval:
    _check_vectors("dot", a, b)
    return Aval((), a.dtype)


def _row(x: Any) -> Any:
    return reshape.of(x, shape=(1, x.shape[0]))


def _column(x: Any) -> Any:
    return reshape.of(x, shape=(x.shape[0], 1))


@composite(
    _dot_rule,
    lambda a, b: reshape.of(matmul.of(_row(a), _column(b)), shape=()),
    traits=("checked",),
    ufunc=np.matmul,
    samples=cases((floats(3), floats(3, seed=1)), (floats(1), floats(1)), (floats(0), floats(0))),
)
def dot(a: Any, b: Any) -> Any:
    """The inner product of two vectors of one length and dtype."""
    return products.matmul(a, b)


@dot.vjp(saves=("1", "0"))
def _(c: Any, g: Any) -> Any:
    a, b = c.inputs
    return g * b if c.needs[0] else None, g * a if c.needs[1] else None


def _mv_rule(a: Aval, vector: Aval) -> Aval:
    _check_vectors("mv", a, vector)
    return Aval(a.shape[:1], a.dtype)


@composite(
    _mv_rule,
    lambda a, vector: reshape.of(matmul.of(a, _column(vector)), shape=(a.shape[0],)),
    traits=("checked",),
    ufunc=np.matmul,
    samples=cases(
        (floats(2, 3), floats(3, seed=1)),
        (floats(3, 2).T, floats(3, seed=1)),
        (floats(2, 0), floats(0)),
        (floats(0, 2), floats(2)),
    ),
)
def mv(a: Any, vector: Any) -> Any:
    """The product of a matrix and a vector of one dtype."""
    return products.matmul(a, vector)


@mv.vjp(saves=("1", "0"))
def _(c: Any, g: Any) -> Any:
    a, vector = c.inputs
    return (
        _column(g) * vector if c.needs[0] else None,
        reshape.of(matmul.of(transpose_matrix(a), _column(g)), shape=c.avals[1].shape) if c.needs[1] else None,
    )
