"""LU factorisation as primitives: the factors in one matrix, as LAPACK has them, and the rows that its pivots exchange.

The vjp follows from A = P @ L @ U as for the other factorisations: of a square matrix it is
P @ L^-T @ (tril(L.T @ gL, -1) + triu(gU @ U.T)) @ U^-T, and of others the part beyond the square one is solved for by itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

from tracejit.core.aval import Aval
from tracejit.core.dtypes import int32, int64
from tracejit.core.op import Kind
from tracejit.ops.creation import arange
from tracejit.ops.declare import custom
from tracejit.ops.decompositions import require_matrix, solve_triangular, triangle, well_conditioned
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.ops.elementwise.comparison import eq
from tracejit.ops.linalg import matmul, transpose_matrix
from tracejit.ops.movement.copies import cat
from tracejit.ops.movement.views import reshape, slice_
from tracejit.ops.samples import cases

__all__ = ["lu_factors", "lu_permutation", "permutation_matrix"]


def _factors_rule(x: Aval) -> tuple[Aval, Aval, Aval]:
    require_matrix("linalg.lu_factor", x)
    *batch, m, n = x.shape
    return x, Aval((*batch, min(m, n)), int32), Aval(tuple(batch), int32)


@custom(
    Kind.OPAQUE,
    _factors_rule,
    multiple=True,
    traits=("checked",),
    samples=cases((well_conditioned(3, 3),), (well_conditioned(2, 3, 2),), (well_conditioned(2, 3),)),
)
def lu_factors(x: Any) -> Any:
    """(LU, pivots, info): L below the diagonal and U on and above it; row i was exchanged with row pivots[i] - 1, in order.

    info: the position, from 1, of the first zero on the diagonal of U, or 0."""
    *batch, m, n = x.shape
    out = np.empty(x.shape, x.dtype)
    pivots, info = np.empty((*batch, min(m, n)), np.int32), np.zeros(tuple(batch), np.int32)
    getrf = scipy.linalg.lapack.dgetrf if x.dtype == np.float64 else scipy.linalg.lapack.sgetrf
    if x.size:
        for i in np.ndindex(*batch):
            out[i], positions, info[i] = getrf(x[i])
            pivots[i] = positions + 1
    return out, pivots, info


@lu_factors.vjp(saves="out0 out1")
def _(c: Any, g: Any, g_pivots: Any, g_info: Any) -> Any:
    if g is None:
        return None
    factors, pivots = c.outputs[:2]
    *batch, m, n = c.avals[0].shape
    k, rows, columns = min(m, n), len(batch), len(batch) + 1
    square = slice_.of(slice_.of(factors, dim=rows, start=0, stop=k, step=1), dim=columns, start=0, stop=k, step=1)
    lower, upper = transpose_matrix(triangle(square, False, 0.0)), transpose_matrix(triangle(square, True))
    g_square = slice_.of(slice_.of(g, dim=rows, start=0, stop=k, step=1), dim=columns, start=0, stop=k, step=1)
    from_l = matmul.of(lower, triangle(g_square, False, 0.0)) + triangle(g_square, False, 0.0)  # lower lacks its diagonal of ones
    from_u = matmul.of(triangle(g_square, True), upper)
    if n > k:  # of [A1, A2] the columns beyond are U2 = L^-1 @ A2
        g_beyond = slice_.of(g, dim=columns, start=k, stop=n, step=1)
        beyond = slice_.of(factors, dim=columns, start=k, stop=n, step=1)
        from_l = from_l - matmul.of(g_beyond, transpose_matrix(beyond))
        rest = solve_triangular.of(lower, g_beyond, upper=True, unitriangular=True)
    if m > k:  # of [A1; A2] the rows beyond are L2 = A2 @ U^-1
        g_beyond = slice_.of(g, dim=rows, start=k, stop=m, step=1)
        beyond = slice_.of(factors, dim=rows, start=k, stop=m, step=1)
        from_u = from_u - matmul.of(transpose_matrix(beyond), g_beyond)
        rest = _by_upper(upper, g_beyond)
    inner = triangle(from_l, False, 0.0) + triangle(from_u, True)
    total = _by_upper(upper, solve_triangular.of(lower, inner, upper=True, unitriangular=True))
    if m != n:
        total = cat.of(total, rest, dim=rows if m > k else columns)
    return matmul.of(permutation_matrix(pivots, m, c.avals[0].dtype), total)


def _by_upper(lower: Any, x: Any) -> Any:
    """x @ lower^-1 for a lower triangular matrix."""
    above = transpose_matrix(lower)
    return transpose_matrix(solve_triangular.of(above, transpose_matrix(x), upper=True, unitriangular=False))


def permutation_matrix(pivots: Any, rows: int, dtype: Any) -> Any:
    """P of A = P @ L @ U."""
    moved = lu_permutation.of(pivots, rows=rows)
    counted = arange.beside(pivots, 0, 1, length=rows, dtype=int64)
    return cast.of(
        eq.of(reshape.of(moved, shape=(*moved.shape[:-1], 1, rows)), reshape.of(counted, shape=(rows, 1))), dtype=dtype
    )


def _permutation_rule(pivots: Aval, rows: int) -> Aval:
    if pivots.dtype is not int32:
        raise RuntimeError(
            f"lu_unpack(): LU_pivots is expected to be a contiguous tensor of torch.int32, got {pivots.dtype.name}"
        )
    return Aval((*pivots.shape[:-1], rows), int64)


@custom(
    Kind.OPAQUE,
    _permutation_rule,
    traits=("checked", "not differentiable"),
    samples=cases((np.array([[3, 2, 3], [1, 4, 3]], np.int32), {"rows": 4})),
)
def lu_permutation(pivots: Any, rows: int) -> Any:
    """Which row of A is each row of L @ U, from the pivots of lu_factors()."""
    out = np.broadcast_to(np.arange(rows), (*pivots.shape[:-1], rows)).copy()
    for batch in np.ndindex(*pivots.shape[:-1]):
        for i, j in enumerate(pivots[batch] - 1):
            out[batch][[i, j]] = out[batch][[j, i]]
    return out
