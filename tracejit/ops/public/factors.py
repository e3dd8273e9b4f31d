"""LU factorisation and solving by its factors, and factorisations of low rank."""

from __future__ import annotations

from typing import Any

from tracejit.core.precision import in_float32
from tracejit.ops.creation import eye, full
from tracejit.ops.decompositions import LinAlgError
from tracejit.ops.linalg import matmul, transpose_matrix
from tracejit.ops.movement.copies import clone
from tracejit.ops.public.derive import FUNCTIONS, public
from tracejit.ops.public.keywords import of_tensors, require_tensors
from tracejit.ops.public.linear_algebra import qr, solve_triangular, svd
from tracejit.ops.public.movement import expand
from tracejit.ops.public.random import randn
from tracejit.ops.public.reduce import mean
from tracejit.ops.public.return_types import result_type
from tracejit.ops.triangular_factors import lu_factors, permutation_matrix

__all__ = ["lu", "lu_factor", "lu_factor_ex", "lu_solve", "lu_unpack", "pca_lowrank", "svd_lowrank"]

Factors = result_type("linalg_lu", "P", "L", "U")
Compact = result_type("linalg_lu_factor", "LU", "pivots")
CompactInfo = result_type("linalg_lu_factor_ex", "LU", "pivots", "info")
LegacyInfo = result_type("_lu_with_info", "LU", "pivots", "info")
Unpacked = result_type("lu_unpack", "P", "L", "U")


def _factored(name: str, a: Any, pivot: bool) -> tuple[Any, Any, Any]:
    require_tensors(name, A=a)
    if not pivot:
        raise RuntimeError(f"{name}(): LU without pivoting is not implemented on the CPU; use pivot=True")
    if a.ndim < 2:
        raise RuntimeError(f"{name}(): Expected tensor with 2 or more dimensions. Got size: {list(a.shape)} instead")
    factors, pivots, info = lu_factors(a)
    return factors, pivots, info


def _check_pivots(name: str, info: Any) -> None:
    """Raises LinAlgError for a zero on the diagonal of U."""
    if bool(FUNCTIONS["any"](info != 0)):
        raise LinAlgError(
            f"{name}(): a pivot on the diagonal of U is zero (info is {info.tolist()}), so lu_solve() would divide by zero; "
            "linalg.lu_factor_ex() gives the factors all the same"
        )


@of_tensors
@in_float32
def lu_factor(A: Any, *, pivot: bool = True) -> Any:  # noqa: N803  (PyTorch's name)
    """(LU, pivots) of matrices (*, m, n): L below the diagonal of LU and U on and above it; pivots (*, min(m, n)), int32, from 1.

    Row i was exchanged with row pivots[i] - 1, in order.  Raises RuntimeError for pivot=False, LinAlgError for a zero on the diagonal
    of U."""
    factors, pivots, info = _factored("linalg.lu_factor", A, pivot)
    _check_pivots("linalg.lu_factor", info)
    return Compact(factors, pivots)


@of_tensors
@in_float32
def lu_factor_ex(A: Any, *, pivot: bool = True, check_errors: bool = False) -> Any:  # noqa: N803
    """(LU, pivots, info): lu_factor() that tells in `info` (*) the position, from 1, of the first zero on the diagonal of U, or 0.

    Raises LinAlgError for one if check_errors."""
    factors, pivots, info = _factored("linalg.lu_factor_ex", A, pivot)
    if check_errors:
        _check_pivots("linalg.lu_factor_ex", info)
    return CompactInfo(factors, pivots, info)


@of_tensors
@in_float32
def lu(A: Any, *, pivot: bool = True) -> Any:  # noqa: N803
    """(P, L, U) with A = P @ L @ U: a permutation, L lower triangular with ones on its diagonal, U upper triangular."""
    factors, pivots, _ = _factored("linalg.lu", A, pivot)
    return Factors(*_unpacked(factors, pivots))


def _unpacked(factors: Any, pivots: Any) -> tuple[Any, Any, Any]:
    m, n = factors.shape[-2:]
    k = min(m, n)
    left, right = factors[..., :k], factors[..., :k, :]
    lower = FUNCTIONS["tril"](left, -1) + eye(rows=m, columns=k, dtype=factors.dtype)
    return permutation_matrix(pivots, m, factors.dtype), lower, FUNCTIONS["triu"](right)


@public()
def lu_unpack(LU_data: Any, LU_pivots: Any, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:  # noqa: N803
    """(P, L, U) of what lu_factor() gives; what is not asked for is empty.

    Raises RuntimeError for pivots of another dtype than int32."""
    require_tensors("lu_unpack", LU_data=LU_data, LU_pivots=LU_pivots)
    p, lower, upper = _unpacked(LU_data, LU_pivots)
    nothing = full(0, shape=(0,), dtype=LU_data.dtype)
    return Unpacked(p if unpack_pivots else nothing, *((lower, upper) if unpack_data else (nothing, nothing)))


@public("lu")
@in_float32
def legacy_lu(A: Any, pivot: bool = True, get_infos: bool = False) -> Any:  # noqa: N803
    """PyTorch's older form of linalg.lu_factor(), with `info` for get_infos."""
    factors, pivots, info = _factored("lu", A, pivot)
    if get_infos:
        return LegacyInfo(factors, pivots, info)
    _check_pivots("lu", info)
    return factors, pivots


@of_tensors
@in_float32
def lu_solve(LU: Any, pivots: Any, B: Any, *, left: bool = True, adjoint: bool = False) -> Any:  # noqa: N803
    """X with A @ X = B (X @ A = B unless `left`; A.mT for `adjoint`), where LU and pivots are lu_factor(A).

    Raises RuntimeError for shapes that do not fit, LinAlgError for a zero on the diagonal of U."""
    require_tensors("linalg.lu_solve", LU=LU, pivots=pivots, B=B)
    if not left:
        return clone(transpose_matrix(lu_solve(LU, pivots, transpose_matrix(B), adjoint=not adjoint)))
    p = permutation_matrix(pivots, LU.shape[-1], LU.dtype)
    if adjoint:
        inner = solve_triangular(transpose_matrix(LU), B, upper=False)
        return matmul(p, solve_triangular(transpose_matrix(LU), inner, upper=True, unitriangular=True))
    inner = solve_triangular(LU, matmul(transpose_matrix(p), B), upper=False, unitriangular=True)
    return solve_triangular(LU, inner, upper=True)


@public("lu_solve")
def legacy_lu_solve(input: Any, LU_data: Any, LU_pivots: Any) -> Any:  # noqa: N803
    """PyTorch's older form of linalg.lu_solve(): the right-hand side comes first."""
    require_tensors("lu_solve", input=input, LU_data=LU_data, LU_pivots=LU_pivots)
    return lu_solve(LU_data, LU_pivots, input)


def _range_of(a: Any, size: int, rounds: int, shift: Any) -> Any:
    """Orthonormal columns (*, m, size) that nearly span the range of a - shift: N. Halko, P. G. Martinsson, J. A. Tropp, "Finding structure
    with randomness" (2011), algorithm 4.4."""

    def times(x: Any) -> Any:
        return matmul(a, x) - (0 if shift is None else matmul(shift, x))

    def times_transposed(x: Any) -> Any:
        return matmul(transpose_matrix(a), x) - (0 if shift is None else matmul(transpose_matrix(shift), x))

    q = qr(times(randn(a.shape[-1], size, dtype=a.dtype))).Q
    for _ in range(rounds):
        q = qr(times(qr(times_transposed(q)).Q)).Q
    return q


@public(method=False)
@in_float32
def svd_lowrank(A: Any, q: int | None = 6, niter: int | None = 2, M: Any = None) -> Any:  # noqa: N803
    """(U, S, V) of rank q with A - M nearly U @ diag(S) @ V.mT, from random products; niter: rounds that sharpen it.

    A (*, m, n), M of a shape that broadcasts to it."""
    m, n = A.shape[-2:]
    q = min(6, m, n) if q is None else q
    niter = 2 if niter is None else niter
    shift = None if M is None else expand(M, *A.shape)
    centred = A if shift is None else A - shift
    if m < n:
        basis = _range_of(transpose_matrix(A), q, niter, None if shift is None else transpose_matrix(shift))
        u, s, vh = svd(matmul(centred, basis), full_matrices=False)
        return u, s, matmul(basis, transpose_matrix(vh))
    basis = _range_of(A, q, niter, shift)
    u, s, vh = svd(matmul(transpose_matrix(basis), centred), full_matrices=False)
    return matmul(basis, u), s, clone(transpose_matrix(vh))


@public(method=False)
def pca_lowrank(A: Any, q: int | None = None, center: bool = True, niter: int = 2) -> Any:  # noqa: N803
    """(U, S, V): svd_lowrank() of A (*, m, n), of the columns less their means with `center`; q is min(6, m, n) unless given.

    Raises ValueError unless 0 <= q <= min(m, n) and niter >= 0."""
    m, n = A.shape[-2:]
    if q is not None and not 0 <= q <= min(m, n):
        raise ValueError(f"pca_lowrank(): q(={q}) must be non-negative integer and not greater than min(m, n)={min(m, n)}")
    if niter < 0:
        raise ValueError(f"pca_lowrank(): niter(={niter}) must be non-negative integer")
    return svd_lowrank(A, q, niter, mean(A, -2, True) if center else None)
