"""The standard's linear algebra: the functions of the namespace and its extension `linalg`."""

from __future__ import annotations

from typing import Any, NamedTuple

from tracejit import functions as F
from tracejit import linalg as L
from tracejit.array_api import reductions
from tracejit.array_api.promotion import promoted
from tracejit.tensor.shell import broadcast_shapes

__all__ = [
    "cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "matmul", "matrix_norm", "matrix_power", "matrix_rank",
    "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip


class EighResult(NamedTuple):
    """What eigh() gives."""

    eigenvalues: Any
    eigenvectors: Any


class QRResult(NamedTuple):
    """What qr() gives."""

    Q: Any
    R: Any


class SlogdetResult(NamedTuple):
    """What slogdet() gives."""

    sign: Any
    logabsdet: Any


class SVDResult(NamedTuple):
    """What svd() gives."""

    U: Any
    S: Any
    Vh: Any


def cholesky(x: Any, /, *, upper: bool = False) -> Any:
    """The Cholesky factor of symmetric positive definite matrices."""
    return L.cholesky(x, upper=upper)


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """Vector product of 3-element vectors along an axis, the other axes broadcast."""
    a, b = promoted("cross", x1, x2)
    shape = broadcast_shapes(tuple(a.shape), tuple(b.shape))
    if a.shape[axis] != 3 or b.shape[axis] != 3:
        raise ValueError(f"cross(): expected 3 elements along axis {axis}, got {a.shape[axis]} and {b.shape[axis]}")
    return L.cross(F.broadcast_to(a, shape), F.broadcast_to(b, shape), dim=axis)


def det(x: Any, /) -> Any:
    """Determinants of square matrices."""
    return L.det(x)


def diagonal(x: Any, /, *, offset: int = 0) -> Any:
    """The diagonal of the last two axes."""
    return L.diagonal(x, offset=offset)


def eigh(x: Any, /) -> EighResult:
    """(eigenvalues in ascending order, eigenvectors) of symmetric matrices."""
    return EighResult(*L.eigh(x))


def eigvalsh(x: Any, /) -> Any:
    """Eigenvalues of symmetric matrices in ascending order."""
    return L.eigvalsh(x)


def inv(x: Any, /) -> Any:
    """Inverses of square matrices."""
    return L.inv(x)


def matmul(x1: Any, x2: Any, /) -> Any:
    """Matrix product of the last two axes."""
    return F.matmul(*promoted("matmul", x1, x2))


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """A norm of the matrices in the last two axes."""
    return L.matrix_norm(x, ord, (-2, -1), keepdims)


def matrix_power(x: Any, n: int, /) -> Any:
    """A square matrix multiplied with itself n times."""
    return L.matrix_power(x, n)


def matrix_rank(x: Any, /, *, rtol: Any = None) -> Any:
    """How many singular values are more than rtol times the largest."""
    return L.matrix_rank(x, rtol=rtol)


def matrix_transpose(x: Any, /) -> Any:
    """The last two axes swapped."""
    return x.mT


def outer(x1: Any, x2: Any, /) -> Any:
    """Outer product of two vectors."""
    return F.outer(*promoted("outer", x1, x2))


def pinv(x: Any, /, *, rtol: Any = None) -> Any:
    """Pseudoinverses; singular values up to rtol times the largest count as 0."""
    return L.pinv(x, rtol=rtol)


def qr(x: Any, /, *, mode: str = "reduced") -> QRResult:
    """(Q, R) with orthonormal columns in Q and R upper triangular."""
    return QRResult(*L.qr(x, mode))


def slogdet(x: Any, /) -> SlogdetResult:
    """(sign, logarithm of the absolute value) of determinants."""
    return SlogdetResult(*F.slogdet(x))


def solve(x1: Any, x2: Any, /) -> Any:
    """X with x1 @ X = x2; only an x2 of one axis is a vector."""
    a, b = promoted("solve", x1, x2)
    if b.ndim == 1:
        return F.squeeze(L.solve(a, F.unsqueeze(b, -1)), -1)
    wide = broadcast_shapes(tuple(a.shape[:-2]), tuple(b.shape[:-2]))
    return L.solve(F.broadcast_to(a, (*wide, *a.shape[-2:])), F.broadcast_to(b, (*wide, *b.shape[-2:])))


def svd(x: Any, /, *, full_matrices: bool = True) -> SVDResult:
    """(U, S, Vh), the singular value decomposition."""
    return SVDResult(*L.svd(x, full_matrices))


def svdvals(x: Any, /) -> Any:
    """Singular values in descending order."""
    return L.svdvals(x)


def tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Any:
    """Sum of products over axes of both: the last and first `axes`, or pairs of tuples."""
    a, b = promoted("tensordot", x1, x2)
    return F.tensordot(a, b, axes)


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """Sum of the diagonal of the last two axes."""
    return reductions.sum(L.diagonal(x, offset=offset), axis=-1, dtype=dtype)


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """Sum of products along an axis."""
    a, b = promoted("vecdot", x1, x2)
    if a.shape[axis] != b.shape[axis]:
        raise ValueError(f"vecdot(): expected equal sizes along axis {axis}, got {a.shape[axis]} and {b.shape[axis]}")
    return F.sum(a * b, axis).to(a.dtype)


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """A norm of the vectors along axes."""
    return L.vector_norm(x, ord, axis, keepdims)
