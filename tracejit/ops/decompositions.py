"""Solving and factorising matrices by LAPACK, on one thread, over any leading batch dimensions.  Programs call it for those with a
`routine` (llvm/lapack.py); the others are evaluated on the host.

The vjp rules follow M. B. Giles, "Collected matrix derivative results for forward and reverse mode algorithmic differentiation" (2008),
and J. Townsend, "Differentiating the singular value decomposition" (2016).  They are written with primitives, so they hold to any order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy

from tracejit.core import kernels
from tracejit.core.aval import Aval
from tracejit.core.dtypes import from_numpy_dtype, int64
from tracejit.core.interrupts import is_foreign
from tracejit.core.op import Kind
from tracejit.core.products import on_one_thread
from tracejit.core.shapes import broadcast_shapes
from tracejit.core.unbroadcast import sum_to
from tracejit.ops.creation import arange, eye
from tracejit.ops.declare import custom
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.ops.elementwise.comparison import eq, gt, lt, where
from tracejit.ops.linalg import matmul, transpose_matrix
from tracejit.ops.movement.copies import cat, pad
from tracejit.ops.movement.views import reshape, slice_
from tracejit.ops.reduce import sum_
from tracejit.ops.samples import Samples, cases, floats

__all__ = [
    "LinAlgError",
    "cholesky",
    "cofactor",
    "det",
    "eigh",
    "inv",
    "orthogonal_complement",
    "qr",
    "require_square",
    "slogdet",
    "solve",
    "solve_triangular",
    "svd",
    "triangle",
    "well_conditioned",
]


class LinAlgError(RuntimeError):
    """A matrix has no inverse or factorisation of the kind asked for."""


def require_square(name: str, x: Aval) -> None:
    """Raises RuntimeError, in the name of an operation, unless these are square matrices of floating-point numbers."""
    require_matrix(name, x)
    if x.shape[-1] != x.shape[-2]:
        raise RuntimeError(f"{name}(): expected square matrices in the last two dimensions, got shape {list(x.shape)}")


def require_matrix(name: str, x: Aval) -> None:
    if not x.dtype.is_floating_point:
        raise RuntimeError(f"{name}(): expected a floating-point dtype, got {x.dtype.name}; convert with .float()")
    if len(x.shape) < 2:
        raise RuntimeError(f"{name}(): expected at least 2 dimensions, got shape {list(x.shape)}")


def _square(name: str) -> Callable[..., Aval]:
    def rule(x: Aval) -> Aval:
        require_square(name, x)
        return x

    return rule


def well_conditioned(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Matrices for samples: random ones near three times the identity."""
    return floats(*shape, low=-0.5, seed=seed) + 3.0 * np.eye(shape[-2], shape[-1])


def _square_samples() -> Samples:
    return cases((well_conditioned(3, 3),), (well_conditioned(2, 2, 2).swapaxes(-1, -2),), (floats(0, 2, 2),))


def _positive_definite(*shape: int) -> np.ndarray[Any, Any]:
    a = well_conditioned(*shape)
    return a @ a.swapaxes(-1, -2)


def _lapack(name: str, function: Callable[..., Any], *arrays: Any) -> Any:
    """Raises LinAlgError, with the operation's name, for NumPy's."""
    try:
        return on_one_thread(function, *arrays)
    except np.linalg.LinAlgError as error:
        if is_foreign(error):
            raise
        raise LinAlgError(f"linalg.{name}(): {error}; the input has shape {list(arrays[0].shape)}") from None


def singular_value_decomposition(name: str, x: Any, full_matrices: bool = True) -> Any:
    """(U, S, Vh).  Raises LinAlgError where there are NaNs or infinities: LAPACK may not come to an end there."""
    if not np.isfinite(x).all():
        raise LinAlgError(
            f"linalg.{name}(): expected finite numbers, got NaN or infinity, for which the algorithm does not converge; the input has "
            f"shape {list(x.shape)}"
        )
    return tuple(_lapack(name, lambda a: np.linalg.svd(a, full_matrices=full_matrices), x))


@custom(Kind.LAPACK, _square("linalg.inv"), routine="inverse", traits=("checked", "raises"), samples=_square_samples())
def inv(x: Any) -> Any:
    """Inverses of square matrices.  Raises LinAlgError for a singular one."""
    return _lapack("inv", np.linalg.inv, x)


@inv.vjp(saves="out")
def _(c: Any, g: Any) -> Any:
    transposed = transpose_matrix(c.outputs[0])
    return -matmul.of(transposed, matmul.of(g, transposed))


def _solve_rule(a: Aval, b: Aval) -> Aval:
    require_square("linalg.solve", a)
    if len(b.shape) < 2 or b.shape[-2] != a.shape[-1]:
        raise RuntimeError(f"linalg.solve(): incompatible shapes {list(a.shape)} and {list(b.shape)}: B needs {a.shape[-1]} rows")
    if a.dtype is not b.dtype:
        raise RuntimeError(f"linalg.solve(): expected both to have one dtype, got {a.dtype.name} and {b.dtype.name}")
    return Aval((*broadcast_shapes("linalg.solve", a.shape[:-2], b.shape[:-2]), *b.shape[-2:]), b.dtype)


@custom(
    Kind.LAPACK,
    _solve_rule,
    routine="gesv",
    traits=("checked", "raises"),
    samples=cases((well_conditioned(3, 3), floats(3, 2)), (well_conditioned(2, 2, 2), floats(3, 2).T)),
)
def solve(a: Any, b: Any) -> Any:
    """X with a @ X = b, for matrices.  Raises LinAlgError for a singular `a`."""
    return _lapack("solve", np.linalg.solve, a, b)


@solve.vjp(saves=("0 out", "0"))
def _(c: Any, g: Any) -> Any:
    gb = solve.of(transpose_matrix(c.inputs[0]), g)
    ga = sum_to(-matmul.of(gb, transpose_matrix(c.outputs[0])), c.avals[0].shape) if c.needs[0] else None
    return ga, sum_to(gb, c.avals[1].shape) if c.needs[1] else None


def triangle(x: Any, upper: bool, diagonal: float = 1.0) -> Any:
    """One triangle of square matrices, the diagonal scaled."""
    n = x.shape[-1]
    dtype = from_numpy_dtype(x.dtype) if isinstance(x.dtype, np.dtype) else x.dtype
    column = arange.beside(x, 0, 1, length=n, dtype=int64)
    row = reshape.of(column, shape=(n, 1))
    weights = cast.of((lt if upper else gt).of(row, column), dtype=dtype)
    if diagonal:
        weights = weights + cast.of(eq.of(row, column), dtype=dtype) * diagonal
    return x * weights


def _triangular_rule(a: Aval, b: Aval, upper: bool, unitriangular: bool) -> Aval:
    return _solve_rule(a, b)


def _substitute(a: Any, b: Any, upper: bool, unitriangular: bool) -> Any:
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    out = np.empty((*batch, *b.shape[-2:]), b.dtype)
    if not out.size:
        return out
    n, m = b.shape[-2:]
    solve_all = kernels.kernel(kernels.TRIANGULAR_SYSTEMS, from_numpy_dtype(b.dtype))
    if solve_all is not None:
        is_one = all(size == 1 for size in a.shape[:-2])
        left = np.require(a if is_one else np.broadcast_to(a, (*batch, n, n)), requirements=("C", "A"))
        right, scratch = np.require(np.broadcast_to(b, out.shape), requirements=("C", "A")), np.empty(n * (n + m))
        which, apart = upper + 2 * unitriangular, 0 if is_one else n * n
        info = solve_all(left, right, out, scratch, out.size // (n * m), n, m, apart, which)
    else:
        trtrs, info = scipy.linalg.lapack.dtrtrs if b.dtype == np.float64 else scipy.linalg.lapack.strtrs, 0
        left, right = np.broadcast_to(a, (*batch, n, n)), np.broadcast_to(b, out.shape)
        for i in np.ndindex(*batch):
            if info == 0:
                out[i], info = trtrs(left[i], right[i], lower=not upper, unitdiag=unitriangular)
    if info > 0:
        raise LinAlgError(f"linalg.solve_triangular(): the matrix is singular: element {info - 1} of its diagonal is 0")
    return out


@custom(
    Kind.LAPACK,
    _triangular_rule,
    routine="trtrs",
    traits=("checked", "raises"),
    samples=cases(
        (well_conditioned(3, 3), floats(3, 2), {"upper": True, "unitriangular": False}),
        (well_conditioned(2, 2, 2), floats(3, 2).T, {"upper": False, "unitriangular": True}),
    ),
)
def solve_triangular(a: Any, b: Any, upper: bool, unitriangular: bool) -> Any:
    """X with T @ X = b, T being the upper or lower triangle of `a` (with ones on the diagonal if `unitriangular`)."""
    return _substitute(a, b, upper, unitriangular)


@solve_triangular.vjp(saves=("0 out", "0"))
def _(c: Any, g: Any) -> Any:
    upper, unit = c.attributes["upper"], c.attributes["unitriangular"]
    gb = solve_triangular.of(transpose_matrix(c.inputs[0]), g, upper=not upper, unitriangular=unit)
    ga = None
    if c.needs[0]:
        ga = sum_to(-triangle(matmul.of(gb, transpose_matrix(c.outputs[0])), upper, 0.0 if unit else 1.0), c.avals[0].shape)
    return ga, sum_to(gb, c.avals[1].shape) if c.needs[1] else None


def _determinant_rule(x: Aval) -> Aval:
    require_square("linalg.det", x)
    return Aval(x.shape[:-2], x.dtype)


@custom(Kind.LAPACK, _determinant_rule, routine="determinant", traits=("checked",), samples=_square_samples())
def det(x: Any) -> Any:
    """Determinants of square matrices."""
    return on_one_thread(np.linalg.det, x)


@det.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    return reshape.of(g, shape=(*g.shape, 1, 1)) * cofactor.of(c.inputs[0])


@custom(Kind.OPAQUE, _square("cofactor"), traits=("raises",), samples=_square_samples())
def cofactor(x: Any) -> Any:
    """Matrices of signed minors: det(x) times the transposed inverse, and its limit where x is singular.  Raises LinAlgError where there
    are NaNs or infinities."""
    u, s, vh = singular_value_decomposition("cofactor", x)
    n = s.shape[-1]
    others = np.stack([np.prod(np.delete(s, i, axis=-1), axis=-1) for i in range(n)], axis=-1) if n else s
    sign = on_one_thread(np.linalg.det, u) * on_one_thread(np.linalg.det, vh)
    return (sign[..., None, None] * ((u * others[..., None, :]) @ vh)).astype(x.dtype)


@cofactor.vjp(saves="0 out")
def _(c: Any, g: Any) -> Any:
    (x,), (out,) = c.inputs, c.outputs
    transposed = transpose_matrix(inv.of(x))
    inner = sum_.of(g * transposed, dims=(len(g.shape) - 2, len(g.shape) - 1), keepdim=True)
    return inner * out - matmul.of(out, matmul.of(transpose_matrix(g), transposed))


def _slogdet_rule(x: Aval) -> tuple[Aval, Aval]:
    require_square("linalg.slogdet", x)
    return Aval(x.shape[:-2], x.dtype), Aval(x.shape[:-2], x.dtype)


@custom(Kind.LAPACK, _slogdet_rule, routine="logarithm", multiple=True, traits=("checked",), samples=_square_samples())
def slogdet(x: Any) -> Any:
    """(sign, logarithm of the absolute value) of determinants of square matrices, of those too that no number of the dtype can hold."""
    return tuple(on_one_thread(np.linalg.slogdet, x))


@slogdet.vjp(saves="0")
def _(c: Any, gs: Any, gl: Any) -> Any:
    return None if gl is None else reshape.of(gl, shape=(*gl.shape, 1, 1)) * transpose_matrix(inv.of(c.inputs[0]))


@custom(
    Kind.LAPACK,
    _square("linalg.cholesky"),
    routine="potrf",
    traits=("checked", "raises", "symmetric"),
    samples=cases((_positive_definite(3, 3),), (_positive_definite(2, 2, 2),), (floats(0, 2, 2),)),
)
def cholesky(x: Any) -> Any:
    """Lower triangular L with L @ L.T = x for symmetric positive definite matrices, whose lower triangle is read.
    Raises LinAlgError for others."""
    return _lapack("cholesky", np.linalg.cholesky, x)


@cholesky.vjp(saves="out")
def _(c: Any, g: Any) -> Any:
    transposed = transpose_matrix(c.outputs[0])
    inner = triangle(matmul.of(transposed, g), False, 0.5)
    half = solve_triangular.of(transposed, inner, upper=True, unitriangular=False)
    full = transpose_matrix(solve_triangular.of(transposed, transpose_matrix(half), upper=True, unitriangular=False))
    return (full + transpose_matrix(full)) * 0.5


def _svd_rule(x: Aval) -> tuple[Aval, Aval, Aval]:
    require_matrix("linalg.svd", x)
    *batch, m, n = x.shape
    k = min(m, n)
    return Aval((*batch, m, k), x.dtype), Aval((*batch, k), x.dtype), Aval((*batch, k, n), x.dtype)


@custom(
    Kind.LAPACK,
    _svd_rule,
    routine="gesdd",
    multiple=True,
    traits=("checked", "raises", "gauge"),
    samples=cases((well_conditioned(3, 3),), (well_conditioned(2, 3, 2),), (well_conditioned(2, 3),)),
)
def svd(x: Any) -> Any:
    """Thin singular value decomposition: (U, S, Vh) with x = U @ diag(S) @ Vh and S in descending order.  Raises LinAlgError where
    there are NaNs or infinities."""
    return singular_value_decomposition("svd", x, full_matrices=False)


def _complement_rule(x: Aval) -> Aval:
    require_matrix("linalg.svd", x)
    return Aval((*x.shape[:-1], x.shape[-2] - x.shape[-1]), x.dtype)


@custom(
    Kind.OPAQUE,
    _complement_rule,
    traits=("checked", "gauge", "not differentiable"),
    samples=cases((np.eye(3)[:, :2],), (np.stack([np.eye(2)[:, :1], np.eye(2)[:, 1:]]),)),
)
def orthogonal_complement(x: Any) -> Any:
    """Orthonormal columns that complete those of `x`, orthonormal themselves, to a basis."""
    return np.ascontiguousarray(on_one_thread(np.linalg.qr, x, "complete")[0][..., x.shape[-1] :])


def _spread_differences(s: Any) -> Any:
    """1 / (s[j] - s[i]) at (i, j), 0 on the diagonal."""
    n = s.shape[-1]
    diagonal = eye.beside(s, rows=n, columns=n, dtype=_dtype_of(s)) != 0
    differences = reshape.of(s, shape=(*s.shape[:-1], 1, n)) - reshape.of(s, shape=(*s.shape, 1))
    return where.of(diagonal, 0.0, 1.0 / where.of(diagonal, 1.0, differences))


def _dtype_of(x: Any) -> Any:
    return x.dtype if hasattr(x.dtype, "numpy") else from_numpy_dtype(x.dtype)


@svd.vjp(saves="out0 out1 out2")
def _(c: Any, gu: Any, gs: Any, gvh: Any) -> Any:
    u, s, vh = c.outputs
    m, n, k = c.avals[0].shape[-2], c.avals[0].shape[-1], s.shape[-1]
    row, column = reshape.of(s, shape=(*s.shape[:-1], 1, k)), reshape.of(s, shape=(*s.shape, 1))
    ut, v = transpose_matrix(u), transpose_matrix(vh)
    inner = (
        None if gs is None else reshape.of(gs, shape=(*gs.shape, 1)) * eye.beside(s, rows=k, columns=k, dtype=c.avals[0].dtype)
    )
    gaps = None if gu is None and gvh is None else _spread_differences(s * s)
    outside = None
    if gu is not None:
        turn = matmul.of(ut, gu)
        part = (turn - transpose_matrix(turn)) * gaps * row
        inner = part if inner is None else inner + part
        if m > k:
            outside = matmul.of((gu - matmul.of(u, turn)) / row, vh)
    if gvh is not None:
        turn = matmul.of(vh, transpose_matrix(gvh))
        part = column * ((turn - transpose_matrix(turn)) * gaps)
        inner = part if inner is None else inner + part
        if n > k:
            rest = matmul.of(u / row, gvh - matmul.of(matmul.of(gvh, v), vh))
            outside = rest if outside is None else outside + rest
    total = matmul.of(u, matmul.of(inner, vh))
    return total if outside is None else total + outside


def _eigh_rule(x: Aval) -> tuple[Aval, Aval]:
    require_square("linalg.eigh", x)
    return Aval(x.shape[:-1], x.dtype), x


@custom(
    Kind.LAPACK,
    _eigh_rule,
    routine="syevd",
    multiple=True,
    traits=("checked", "raises", "symmetric", "gauge"),
    samples=cases((_positive_definite(3, 3),), (_positive_definite(2, 2, 2),)),
)
def eigh(x: Any) -> Any:
    """(eigenvalues in ascending order, eigenvectors as columns) of symmetric matrices; the lower triangle is read."""
    return tuple(_lapack("eigh", np.linalg.eigh, x))


@eigh.vjp(saves="out0 out1")
def _(c: Any, gw: Any, gv: Any) -> Any:
    w, v = c.outputs
    n = w.shape[-1]
    inner = (
        None if gw is None else reshape.of(gw, shape=(*gw.shape, 1)) * eye.beside(w, rows=n, columns=n, dtype=c.avals[0].dtype)
    )
    if gv is not None:
        part = matmul.of(transpose_matrix(v), gv) * _spread_differences(w)
        inner = part if inner is None else inner + part
    total = matmul.of(v, matmul.of(inner, transpose_matrix(v)))
    return (total + transpose_matrix(total)) * 0.5


def _qr_rule(x: Aval) -> tuple[Aval, Aval]:
    require_matrix("linalg.qr", x)
    *batch, m, n = x.shape
    k = min(m, n)
    return Aval((*batch, m, k), x.dtype), Aval((*batch, k, n), x.dtype)


@custom(
    Kind.LAPACK,
    _qr_rule,
    routine="geqrf",
    multiple=True,
    traits=("checked",),
    samples=cases(
        (well_conditioned(3, 3),), (well_conditioned(2, 3, 2),), (well_conditioned(2, 3),), (well_conditioned(2, 1, 3),)
    ),
)
def qr(x: Any) -> Any:
    """Reduced QR decomposition: (Q, R) with orthonormal columns in Q and R upper triangular."""
    return tuple(on_one_thread(np.linalg.qr, x))


@qr.vjp(saves="out0 out1")
def _(c: Any, gq: Any, gr: Any) -> Any:
    q, r = c.outputs
    *batch, m, n = c.avals[0].shape
    beyond = None
    if m < n:  # of a wide matrix [first, rest], Q and the square part of R come from the first columns, and Q @ R' is the rest
        last = len(batch) + 1
        if gr is not None:
            g_rest = slice_.of(gr, dim=last, start=m, stop=n, step=1)
            beyond = matmul.of(q, g_rest)
            turn = matmul.of(q, matmul.of(slice_.of(r, dim=last, start=m, stop=n, step=1), transpose_matrix(g_rest)))
            gq = turn if gq is None else gq + turn
            gr = slice_.of(gr, dim=last, start=0, stop=m, step=1)
        r = slice_.of(r, dim=last, start=0, stop=m, step=1)
    skew = None if gr is None else matmul.of(r, transpose_matrix(gr))
    if gq is not None:
        turn = matmul.of(transpose_matrix(gq), q)
        skew = -turn if skew is None else skew - turn
    lower = triangle(skew, False, 0.5)
    inner = matmul.of(q, lower + transpose_matrix(lower))
    if gq is not None:
        inner = inner + gq
    first = transpose_matrix(solve_triangular.of(r, transpose_matrix(inner), upper=True, unitriangular=False))
    if m >= n:
        return first
    if beyond is not None:
        return cat.of(first, beyond, dim=last)
    return pad.of(first, 0.0, low=(0,) * (last + 1), high=(*[0] * last, n - m))
