"""Functions of matrices that are written with decompositions: pseudoinverse, least squares, rank, condition, exponential.

Where singular values coincide the gradient through them is not finite, as in the decomposition itself."""

from __future__ import annotations

import math
from typing import Any, Final

from tracejit.core.number_info import finfo
from tracejit.core.precision import in_float32
from tracejit.ops import decompositions
from tracejit.ops.creation import eye, full
from tracejit.ops.decompositions import inv
from tracejit.ops.elementwise.comparison import where
from tracejit.ops.linalg import matmul, transpose_matrix
from tracejit.ops.movement.views import detach
from tracejit.ops.public.derive import public
from tracejit.ops.public.linear_algebra import eigh, svdvals
from tracejit.ops.public.norms import matrix_norm
from tracejit.ops.public.reduce import amax, amin, sum_
from tracejit.ops.public.return_types import result_type

LeastSquares = result_type("linalg_lstsq", "solution", "residuals", "rank", "singular_values")

_PADE: Final = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0, 10559470521600.0,
    670442572800.0, 33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
_PADE_NORM: Final = 5.371920351148152
"""The coefficients of degree 13 and the 1-norm up to which they are exact to float64: N. J. Higham, "The scaling and squaring method for
the matrix exponential revisited" (2005)."""


def _magnitudes(a: Any, hermitian: bool) -> Any:
    """The singular values, in any order."""
    return abs(eigh(a).eigenvalues) if hermitian else svdvals(a)


def _cutoff(a: Any, largest: Any, atol: Any, rtol: Any) -> Any:
    """The magnitude up to which a singular value counts as 0."""
    if rtol is None:
        rtol = 0.0 if atol is not None else max(a.shape[-2:]) * finfo(a.dtype).eps
    relative = largest * rtol
    if atol is None:
        return relative
    return where(relative > atol, relative, full(0, shape=(), dtype=a.dtype) + atol)


@in_float32
def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None) -> Any:
    """The Moore-Penrose pseudoinverse.  Singular values up to max(atol, rtol * the largest) count as 0.

    rtol is eps * max(m, n) by default."""
    if hermitian:
        values, u = eigh(a)
        magnitude, vh = abs(values), transpose_matrix(u)
    else:
        u, values, vh = decompositions.svd(a)
        magnitude = values
    if not values.shape[-1]:
        return transpose_matrix(a)
    small = magnitude <= _cutoff(a, amax(magnitude, -1, True), atol, rcond if rtol is None else rtol)
    scale = where(small, 0.0, 1.0 / where(small, 1.0, values))
    return matmul(transpose_matrix(vh) * scale.unsqueeze(-2), transpose_matrix(u))


def matrix_rank(a: Any, tol: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None) -> Any:
    """How many singular values are more than max(atol, rtol * the largest); rtol is eps * max(m, n) by default."""
    magnitude = _magnitudes(detach(a), hermitian)
    limit = _cutoff(a, amax(magnitude, -1, True), tol if atol is None else atol, rtol)
    return sum_(magnitude > limit, -1)


def lstsq(a: Any, b: Any, rcond: Any = None, *, driver: str | None = None) -> Any:
    """X with the least |a @ X - b|, and of those the least |X|.  Raises NotImplementedError for a driver other than "gelsy"."""
    if driver not in (None, "gelsy"):
        raise NotImplementedError(f"linalg.lstsq(): driver {driver!r} is not supported; use 'gelsy'")
    vectors = a.ndim == b.ndim + 1
    solution = matmul(pinv(a, rcond), b.unsqueeze(-1) if vectors else b)
    nothing = full(0, shape=(0,), dtype=a.dtype)
    return LeastSquares(solution.squeeze(-1) if vectors else solution, nothing, matrix_rank(a, rtol=rcond), nothing)


def cond(a: Any, p: Any = None) -> Any:
    """The condition number: the norm of a matrix times that of its inverse; for None, 2 and -2 from the singular values."""
    if p in (None, 2, -2):
        magnitude = svdvals(a)
        largest, smallest = amax(magnitude, -1), amin(magnitude, -1)
        return smallest / largest if p == -2 else largest / smallest
    return matrix_norm(a, p) * matrix_norm(inv(a), p)


@public()
def matrix_exp(input: Any) -> Any:
    """The exponential of square matrices, by scaling and squaring with the Pade approximant of degree 13."""
    if input.ndim < 2 or input.shape[-1] != input.shape[-2] or not input.dtype.is_floating_point:
        raise RuntimeError(f"matrix_exp(): expected floating-point square matrices, got {input.dtype.name} {list(input.shape)}")
    if not input.numel():
        return input.clone()
    norm = float(amax(sum_(abs(detach(input)), -2)))
    squarings = max(0, math.ceil(math.log2(norm / _PADE_NORM))) if math.isfinite(norm) and norm > 0 else 0
    x = input * 2.0**-squarings
    one = eye(rows=input.shape[-1], columns=input.shape[-1], dtype=input.dtype)
    c = _PADE
    x2 = matmul(x, x)
    x4 = matmul(x2, x2)
    x6 = matmul(x4, x2)
    odd = matmul(x6, x6 * c[13] + x4 * c[11] + x2 * c[9]) + x6 * c[7] + x4 * c[5] + x2 * c[3] + one * c[1]
    even = matmul(x6, x6 * c[12] + x4 * c[10] + x2 * c[8]) + x6 * c[6] + x4 * c[4] + x2 * c[2] + one * c[0]
    odd = matmul(x, odd)
    out = decompositions.solve(even - odd, even + odd)
    for _ in range(squarings):
        out = matmul(out, out)
    return out


@public(method=False)
def pinverse(input: Any, rcond: float = 1e-15) -> Any:
    """PyTorch's older name of linalg.pinv(), which counts less as 0."""
    return pinv(input, rcond)
