"""Functions of matrices that are written with decompositions: pseudoinverse, least squares, rank, condition, exponential.

Where singular values coincide the gradient of cond() is not finite, as that of the decomposition itself."""

from __future__ import annotations

import math
from typing import Any, Final

from tracejit.core.dtypes import int64
from tracejit.core.number_info import finfo
from tracejit.core.precision import in_float32
from tracejit.ops import decompositions, pseudoinverse
from tracejit.ops.creation import eye, full
from tracejit.ops.decompositions import inv
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.ops.elementwise.comparison import where
from tracejit.ops.linalg import matmul
from tracejit.ops.movement.views import detach
from tracejit.ops.public.derive import public
from tracejit.ops.public.keywords import of_tensors, require_tensors
from tracejit.ops.public.linear_algebra import eigh, svdvals
from tracejit.ops.public.norms import matrix_norm
from tracejit.ops.public.reduce import all_, amax, amin, sum_
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


def _tolerances(a: Any, atol: Any, rtol: Any) -> tuple[Any, Any]:
    """(atol, rtol) as tensors: by default 0 and eps * max(m, n), or 0 beside an atol."""
    if rtol is None:
        rtol = 0.0 if atol is not None else max(a.shape[-2:]) * finfo(a.dtype).eps
    atol = 0.0 if atol is None else atol
    first, second = (cast(x, dtype=a.dtype) if hasattr(x, "ndim") else full(x, shape=(), dtype=a.dtype) for x in (atol, rtol))
    return detach(first), detach(second)


@of_tensors
@in_float32
def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None) -> Any:
    """The Moore-Penrose pseudoinverse.  Singular values up to max(atol, rtol * the largest) count as 0.

    rtol is eps * max(m, n) by default.  The gradient holds where the rank stays the same."""
    require_tensors("linalg.pinv", a=a)
    return pseudoinverse.pinv(a, *_tolerances(a, atol, rcond if rtol is None else rtol), hermitian=bool(hermitian))


@of_tensors
def matrix_rank(a: Any, tol: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None) -> Any:
    """How many singular values are more than max(atol, rtol * the largest); rtol is eps * max(m, n) by default."""
    magnitude = _magnitudes(detach(a), hermitian)
    if not magnitude.shape[-1]:
        return full(0, shape=tuple(magnitude.shape[:-1]), dtype=int64)
    least, share = _tolerances(a, tol if atol is None else atol, rtol)
    relative = amax(magnitude, -1) * share
    return sum_(magnitude > where(relative > least, relative, least).unsqueeze(-1), -1)


_DRIVERS: Final = (None, "gelsy", "gels", "gelsd", "gelss")


@of_tensors
@in_float32
def lstsq(a: Any, b: Any, rcond: Any = None, *, driver: str | None = None) -> Any:
    """(solution X with the least |a @ X - b|, and of those the least |X|; sums of squared residuals; rank; singular values).

    driver: "gelsy" (or None), "gels", which takes a matrix of full rank, "gelsd" or "gelss".  All but "gelsy" give residuals, of a tall
    matrix of full rank; all but "gels" the rank; "gelsd" and "gelss" the singular values.  Raises RuntimeError for another driver."""
    if driver not in _DRIVERS:
        raise RuntimeError(f"linalg.lstsq(): parameter driver should be one of (gels, gelsy, gelsd, gelss), got {driver!r}")
    if a.ndim < 2 or b.ndim < 1:
        raise RuntimeError(
            f"linalg.lstsq(): expected a matrix and a vector or matrix, got shapes {list(a.shape)} and {list(b.shape)}"
        )
    if a.dtype is not b.dtype:
        raise RuntimeError(f"linalg.lstsq(): expected both to have one dtype, got {a.dtype.name} and {b.dtype.name}")
    vectors = a.ndim == b.ndim + 1 and b._sizes == tuple(a.shape[:-1])
    right = b.unsqueeze(-1) if vectors else b
    if right.shape[-2] != a.shape[-2]:
        raise RuntimeError(f"linalg.lstsq(): {list(b.shape)} must have as many rows as {list(a.shape)} has")
    solution = matmul(pinv(a, rcond), right)
    nothing = full(0, shape=(0,), dtype=a.dtype)
    rank = full(0, shape=(0,), dtype=int64) if driver == "gels" else matrix_rank(a, rtol=rcond)
    residuals, values = nothing, nothing
    m, n = a.shape[-2:]
    if driver in ("gelsd", "gelss"):
        values = svdvals(detach(a))
    if m > n and (driver == "gels" or (driver in ("gelsd", "gelss") and bool(all_(rank == n)))):
        apart = matmul(a, solution) - right
        residuals = sum_(apart * apart, -2)
    return LeastSquares(solution.squeeze(-1) if vectors else solution, residuals, rank, values)


@of_tensors
def cond(a: Any, p: Any = None) -> Any:
    """The condition number: the norm of a matrix times that of its inverse; for None, 2 and -2 from the singular values."""
    if p in (None, 2, -2):
        magnitude = svdvals(a)
        largest, smallest = amax(magnitude, -1), amin(magnitude, -1)
        return smallest / largest if p == -2 else largest / smallest
    return matrix_norm(a, p) * matrix_norm(inv(a), p)


@public()
@of_tensors
def matrix_exp(input: Any) -> Any:
    """The exponential of square matrices, by scaling and squaring with the Pade approximant of degree 13."""
    if input.ndim < 2 or input._sizes[-1] != input._sizes[-2] or not input.dtype.is_floating_point:
        raise RuntimeError(f"matrix_exp(): expected floating-point square matrices, got {input.dtype.name} {list(input._sizes)}")
    if not input.numel():
        return input.clone()
    norm = float(amax(sum_(abs(detach(input)), -2)))
    squarings = max(0, math.ceil(math.log2(norm / _PADE_NORM))) if math.isfinite(norm) and norm > 0 else 0
    x = input * 2.0**-squarings
    one = eye(rows=input._sizes[-1], columns=input._sizes[-1], dtype=input.dtype)
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


@public()
def pinverse(input: Any, rcond: float = 1e-15) -> Any:
    """PyTorch's older name of linalg.pinv(), which counts less as 0."""
    require_tensors("pinverse", input=input)
    return pinv(input, rcond)
