"""The pseudoinverse as a primitive, so that its gradient needs no gaps between singular values."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.core.aval import Aval
from tracejit.core.op import Kind
from tracejit.ops.declare import custom
from tracejit.ops.decompositions import eigh, require_matrix, singular_value_decomposition
from tracejit.ops.linalg import matmul, transpose_matrix
from tracejit.ops.samples import cases, floats

__all__ = ["pinv"]


def _rule(a: Aval, atol: Aval, rtol: Aval, hermitian: bool) -> Aval:
    require_matrix("linalg.pinv", a)
    if not atol.dtype is rtol.dtype is a.dtype:
        names = ", ".join(x.dtype.name for x in (a, atol, rtol))
        raise RuntimeError(f"linalg.pinv(): expected operands of one floating-point dtype, got {names}; convert with .to()")
    if hermitian and a.shape[-1] != a.shape[-2]:
        raise RuntimeError(f"linalg.pinv(): expected square matrices for hermitian=True, got shape {list(a.shape)}")
    return Aval((*a.shape[:-2], a.shape[-1], a.shape[-2]), a.dtype)


_ATOL, _RTOL = np.array(0.0), np.array(1e-14)


@custom(
    Kind.OPAQUE,
    _rule,
    traits=("checked", "raises"),
    samples=cases(
        (floats(3, 2), _ATOL, _RTOL, {"hermitian": False}),
        (floats(2, 4, 3).swapaxes(-1, -2), _ATOL, np.full(2, 1e-14), {"hermitian": False}),
    ),
)
def pinv(a: Any, atol: Any, rtol: Any, hermitian: bool) -> Any:
    """The pseudoinverse of matrices; singular values up to max(atol, rtol * the largest) count as 0.  Of those that are `hermitian` the
    lower triangle is read.  Raises LinAlgError where there are NaNs or infinities."""
    if not a.size:
        return np.zeros((*a.shape[:-2], a.shape[-1], a.shape[-2]), a.dtype)
    if hermitian:
        values, u = eigh.evaluate(a)
        vh = np.swapaxes(u, -1, -2)
    else:
        u, values, vh = singular_value_decomposition("pinv", a, full_matrices=False)
    size = np.abs(values)
    limit = np.maximum(np.asarray(atol)[..., None], np.asarray(rtol)[..., None] * size.max(-1, keepdims=True))
    scale = np.where(size > limit, 1 / np.where(size > limit, values, 1), 0)
    return (np.swapaxes(vh, -1, -2) * scale[..., None, :]) @ np.swapaxes(u, -1, -2)


@pinv.vjp(saves="0 out")
def _(c: Any, g: Any) -> Any:
    # G. H. Golub, V. Pereyra, "The differentiation of pseudo-inverses and nonlinear least squares problems whose variables separate" (1973)
    (a, *_), (p,) = c.inputs, c.outputs
    pt, gt = transpose_matrix(p), transpose_matrix(g)
    if a.shape[-2] <= a.shape[-1]:
        k = matmul.of(gt, p)
        kpt = matmul.of(k, pt)
        out = kpt - transpose_matrix(matmul.of(p, k)) - matmul.of(matmul.of(a, p), kpt)
        return out + matmul.of(matmul.of(pt, p), gt - matmul.of(k, a)), None, None
    k = matmul.of(p, gt)
    ptk = matmul.of(pt, k)
    out = ptk - transpose_matrix(matmul.of(k, p)) - matmul.of(matmul.of(ptk, p), a)
    return out + matmul.of(matmul.of(gt - matmul.of(a, k), p), pt), None, None
