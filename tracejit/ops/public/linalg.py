"""Public matrix products."""

from __future__ import annotations

from typing import Any

from tracejit.core.dtypes import bool_
from tracejit.core.interpreter import state
from tracejit.core.precision import autocast_operands, lowered, rounds_once
from tracejit.ops import linalg
from tracejit.ops.composites import products
from tracejit.ops.movement.views import reshape
from tracejit.ops.public.derive import public
from tracejit.ops.public.keywords import of_tensors


@public()
@of_tensors
def matmul(input: Any, other: Any) -> Any:
    """Matrix product (*, n, k) @ (*, k, m) = (*, n, m), a vector being a row on the left and a column on the right.
    Leading dimensions broadcast."""
    a, b = (input, other) if state.autocast is None else autocast_operands(input, other)
    if a.ndim == 0 or b.ndim == 0:
        raise RuntimeError(f"matmul(): both arguments need at least 1 dimension, got {a.ndim} and {b.ndim}")
    if a.ndim > 1 and b.ndim > 1:
        return linalg.matmul(a, b)
    left, right = a.ndim == 1, b.ndim == 1
    if right and a.ndim <= 2:
        return dot(a, b) if left else mv(a, b)
    if left:
        a = reshape(a, shape=(1, *a.shape))
    if right:
        b = reshape(b, shape=(*b.shape, 1))
    out = linalg.matmul(a, b)
    shape = out.shape
    return reshape(out, shape=(*shape[:-2], *(() if left else shape[-2:-1]), *(() if right else shape[-1:])))


def _exactly(name: str, ndim: int, *tensors: Any) -> None:
    for i, x in enumerate(tensors):
        if x.ndim != ndim:
            raise RuntimeError(
                f"{name}(): expected {ndim}-dimensional tensors, argument {i} has shape {list(x.shape)}; use matmul() for broadcasting"
            )


@public()
def mm(input: Any, mat2: Any) -> Any:
    """Product of two matrices; no broadcasting."""
    _exactly("mm", 2, input, mat2)
    return matmul(input, mat2)


@public(method=False)
def spmm(input: Any, mat2: Any) -> Any:
    """mm(): tensors are dense."""
    return mm(input, mat2)


@public()
def bmm(input: Any, mat2: Any) -> Any:
    """Batched product of (B, n, m) and (B, m, p)."""
    _exactly("bmm", 3, input, mat2)
    if input._sizes[0] != mat2.shape[0]:
        raise RuntimeError(f"bmm(): expected equal batch sizes, got {input._sizes[0]} and {mat2.shape[0]}")
    return matmul(input, mat2)


def _of_any_dtype(op: Any, a: Any, b: Any) -> Any:
    """A composite, or for integers what it stands for."""
    return op(a, b) if a.dtype.is_floating_point else op.expansion(a, b)


@public()
@rounds_once
def mv(input: Any, vec: Any) -> Any:
    """Product of a matrix and a vector."""
    _exactly("mv", 2, input)
    _exactly("mv", 1, vec)
    return _of_any_dtype(products.mv, input, vec)


@public(aliases=("vdot",))
@rounds_once
def dot(input: Any, tensor: Any) -> Any:
    """Inner product of two vectors of one length."""
    _exactly("dot", 1, input, tensor)
    return _of_any_dtype(products.dot, input, tensor)


@public(aliases=("ger",))
def outer(input: Any, vec2: Any) -> Any:
    """Outer product of two vectors."""
    _exactly("outer", 1, input, vec2)
    return reshape(input, shape=(input._sizes[0], 1)) * vec2


@public(in_place=True)
@lowered
def addmm(input: Any, mat1: Any, mat2: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    """beta * input + alpha * (mat1 @ mat2)."""
    return combined(input, mm(mat1, mat2), beta, alpha)


def combined(input: Any, product: Any, beta: float, alpha: float) -> Any:
    """beta * input + alpha * product, in the dtype of the product."""
    if not product.dtype.is_floating_point:
        kind = bool if product.dtype is bool_ else int
        beta, alpha = kind(beta), kind(alpha)
    if alpha != 1:
        product = product * alpha
    return product + (input if beta == 1 else input * beta)
