"""Public linear algebra: what tracejit.linalg exports, and the names PyTorch has at top level."""

from __future__ import annotations

from typing import Any

from tracejit.core.precision import in_float32, lowered, rounds_once
from tracejit.core.shapes import normalise_dims
from tracejit.ops import decompositions, linalg
from tracejit.ops.creation import eye, full
from tracejit.ops.decompositions import cholesky, det, inv
from tracejit.ops.elementwise.comparison import where
from tracejit.ops.indexing import constant_index, index_select
from tracejit.ops.linalg import transpose_matrix
from tracejit.ops.movement.copies import cat, clone
from tracejit.ops.movement.versions import overwrite
from tracejit.ops.movement.views import diagonal, reshape
from tracejit.ops.public.derive import derive_unary, public
from tracejit.ops.public.keywords import of_tensors, require_tensors
from tracejit.ops.public.linalg import bmm, combined, outer
from tracejit.ops.public.movement import expand
from tracejit.ops.public.return_types import result_type
from tracejit.ops.reduce import sum_

derive_unary(det, "det", in_place=False)


SVD = result_type("linalg_svd", "U", "S", "Vh")
LegacySVD = result_type("svd", "U", "S", "V")
Eigh = result_type("linalg_eigh", "eigenvalues", "eigenvectors")
QR = result_type("linalg_qr", "Q", "R")
LegacyQR = result_type("qr", "Q", "R")
TriangularSolve = result_type("triangular_solve", "solution", "cloned_coefficient")
Slogdet = result_type("linalg_slogdet", "sign", "logabsdet")
LegacySlogdet = result_type("slogdet", "sign", "logabsdet")


@public()
@of_tensors
@in_float32
def inverse(input: Any) -> Any:
    """The inverses of square matrices.  Raises LinAlgError for a singular one."""
    return inv(input)


@of_tensors
@in_float32
def cholesky_(input: Any, *, upper: bool = False) -> Any:
    """The Cholesky factor of symmetric positive definite matrices: lower triangular, or upper.  Raises LinAlgError for others."""
    lower = cholesky(input)
    return transpose_matrix(lower) if upper else lower


@of_tensors
@in_float32
def solve(a: Any, b: Any, *, left: bool = True) -> Any:
    """X with a @ X = b (X @ a = b unless `left`); b may be a vector, or a batch of vectors.  Raises LinAlgError for a singular `a`."""
    vectors = b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1])
    if vectors:
        return reshape(decompositions.solve(a, reshape(b, shape=(*b.shape, 1))), shape=_vector_shape(a, b))
    if left:
        return decompositions.solve(a, b)
    return transpose_matrix(decompositions.solve(transpose_matrix(a), transpose_matrix(b)))


def _vector_shape(a: Any, b: Any) -> tuple[int, ...]:
    return (*a.shape[:-2], b.shape[-1])


@of_tensors
@in_float32
def solve_triangular(a: Any, b: Any, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    """X with a @ X = b (X @ a = b unless `left`), reading one triangle of `a`."""
    require_tensors("linalg.solve_triangular", a=a, b=b)
    if left:
        return decompositions.solve_triangular(a, b, upper=upper, unitriangular=unitriangular)
    flipped = decompositions.solve_triangular(
        transpose_matrix(a), transpose_matrix(b), upper=not upper, unitriangular=unitriangular
    )
    return transpose_matrix(flipped)


@public()
@in_float32
def cholesky_solve(input: Any, L: Any, upper: bool = False) -> Any:  # noqa: N803  (PyTorch's name)
    """X with A @ X = input, where A = L @ L.mT, or L.mT @ L for `upper`: of its triangle alone, which cholesky() gives.

    input (*, n, k), L (*, n, n), batches broadcast.  Raises RuntimeError for other shapes, LinAlgError for a zero on the diagonal of L."""
    require_tensors("cholesky_solve", input=input, L=L)
    for name, x in (("input", input), ("L", L)):
        if x.ndim < 2:
            raise RuntimeError(f"cholesky_solve(): {name} must have at least 2 dimensions, got {x.ndim}")
    lower, above = (transpose_matrix(L), L) if upper else (L, transpose_matrix(L))
    return solve_triangular(above, solve_triangular(lower, input, upper=False), upper=True)


@public()
@in_float32
def cholesky_inverse(input: Any, upper: bool = False) -> Any:
    """The inverse of A = input @ input.mT, or input.mT @ input for `upper`: of its triangle alone, which cholesky() gives.

    Raises RuntimeError for what are no square matrices, LinAlgError for a zero on the diagonal."""
    if input.ndim < 2 or input._sizes[-1] != input._sizes[-2]:
        raise RuntimeError(f"cholesky_inverse(): expected square matrices, got shape {list(input._sizes)}")
    n = input._sizes[-1]
    return cholesky_solve(expand(eye(rows=n, columns=n, dtype=input.dtype), input._sizes), input, upper)


@of_tensors
@in_float32
def svd(a: Any, full_matrices: bool = True) -> Any:
    """Singular value decomposition: a = U[..., :k] @ diag(S) @ Vh[..., :k, :] with k = min(m, n); U and Vh are square for full_matrices.

    The vectors beyond the first k are any that complete a basis, and constants to a gradient, as in PyTorch."""
    u, s, vh = decompositions.svd(a)
    if full_matrices and a.shape[-2] > a.shape[-1]:
        u = cat(u, decompositions.orthogonal_complement(u), dim=a.ndim - 1)
    elif full_matrices and a.shape[-2] < a.shape[-1]:
        rows = transpose_matrix(decompositions.orthogonal_complement(transpose_matrix(vh)))
        vh = cat(vh, rows, dim=a.ndim - 2)
    return SVD(u, s, vh)


@public("svd")
@in_float32
def legacy_svd(input: Any, some: bool = True, compute_uv: bool = True) -> Any:
    """PyTorch's older form of linalg.svd(): the third matrix is V, not its transpose; thin for `some`; zeros unless compute_uv."""
    u, s, vh = svd(input, full_matrices=not some)
    v = transpose_matrix(vh)
    if not compute_uv:
        m, n = input._sizes[-2:]
        batch = tuple(input._sizes[:-2])
        u, v = (full(0, shape=(*batch, size, size), dtype=input.dtype) for size in (m, n))
    return LegacySVD(u, s, v)


@of_tensors
@in_float32
def svdvals(a: Any) -> Any:
    """Singular values in descending order."""
    return decompositions.svd(a)[1]


@of_tensors
@in_float32
def eigh(a: Any, UPLO: str = "L") -> Any:  # noqa: N803  (PyTorch's name)
    """Eigenvalues in ascending order and eigenvectors of symmetric matrices, of which one triangle is read."""
    return Eigh(*decompositions.eigh(transpose_matrix(a) if UPLO.upper() == "U" else a))


@of_tensors
@in_float32
def eigvalsh(a: Any, UPLO: str = "L") -> Any:  # noqa: N803
    """Eigenvalues of symmetric matrices, in ascending order."""
    return eigh(a, UPLO).eigenvalues


@of_tensors
@in_float32
def qr(A: Any, mode: str = "reduced") -> Any:  # noqa: N803  (PyTorch's name)
    """QR decomposition of (*, m, n), k = min(m, n): "reduced" Q (*, m, k) and R (*, k, n); "complete" Q (*, m, m) and R (*, m, n); "r"
    an empty Q and the reduced R.

    Raises RuntimeError for another mode, and where a gradient through a complete Q with more rows than columns is asked for:
    its last columns are any that complete a basis."""
    require_tensors("linalg.qr", A=A)
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(
            f"qr(): received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'"
        )
    q, r = decompositions.qr(A)
    m, n = A.shape[-2:]
    if mode == "r":
        return QR(full(0, shape=(0,), dtype=A.dtype), r)
    if mode == "complete" and m > n:
        if q.requires_grad:
            raise RuntimeError(
                "linalg.qr(): The QR decomposition is not differentiable when mode='complete' and nrows > ncols; use mode='reduced', "
                "or A.detach()"
            )
        q = cat(q, decompositions.orthogonal_complement(q), dim=A.ndim - 1)
        r = cat(r, full(0, shape=(*A.shape[:-2], m - n, n), dtype=A.dtype), dim=A.ndim - 2)
    return QR(q, r)


@public("qr")
def legacy_qr(input: Any, some: bool = True) -> Any:
    """PyTorch's older form of linalg.qr(): reduced for `some`, else complete."""
    require_tensors("qr", input=input)
    return LegacyQR(*qr(input, "reduced" if some else "complete"))


@public("cholesky")
def legacy_cholesky(input: Any, upper: bool = False) -> Any:
    """PyTorch's older form of linalg.cholesky()."""
    return cholesky_(input, upper=upper)


@public()
@in_float32
def triangular_solve(
    input: Any,
    A: Any,  # noqa: N803  (PyTorch's name)
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> Any:
    """PyTorch's older form of linalg.solve_triangular(): (X with A @ X = input, A.mT @ X for `transpose`; a copy of A)."""
    require_tensors("triangular_solve", input=input, A=A)
    triangular = transpose_matrix(A) if transpose else A
    found = solve_triangular(triangular, input, upper=upper is not transpose, unitriangular=unitriangular)
    return TriangularSolve(found, clone(A))


@of_tensors
@in_float32
def slogdet(input: Any) -> Any:
    """Sign and logarithm of the absolute value of the determinant.  Its backward pass raises LinAlgError for a singular matrix."""
    return Slogdet(*decompositions.slogdet(input))


@public("slogdet")
def legacy_slogdet(input: Any) -> Any:
    """Sign and logarithm of the absolute value of the determinant."""
    return LegacySlogdet(*slogdet(input))


@public()
@in_float32
def logdet(input: Any) -> Any:
    """Logarithm of the determinant; NaN where that is negative.  Its backward pass raises LinAlgError for a singular matrix."""
    signs, logarithms = decompositions.slogdet(input)
    return where(signs < 0, float("nan"), logarithms)


@public()
@of_tensors
@lowered
def matrix_power(input: Any, n: int) -> Any:
    """A square matrix multiplied with itself n times; of its inverse for a negative n."""
    if input._sizes[-1] != input._sizes[-2]:
        raise RuntimeError(f"matrix_power(): expected square matrices, got shape {list(input._sizes)}")
    if n < 0:
        return matrix_power(inv(input), -n)
    result = None
    square = input
    while n:
        if n & 1:
            result = square if result is None else linalg.matmul(result, square)
        n >>= 1
        if n:
            square = linalg.matmul(square, square)
    if result is None:  # constant, but a function of the matrix all the same
        size = input._sizes[-1]
        return overwrite(input, expand(eye(rows=size, columns=size, dtype=input.dtype), *input._sizes))
    return result


@of_tensors
@lowered
def multi_dot(tensors: Any) -> Any:
    """Product of two or more matrices, the first and last of which may be vectors, from left to right."""
    if len(tensors) < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors, got {len(tensors)}")
    require_tensors("linalg.multi_dot", **{f"tensors[{i}]": x for i, x in enumerate(tensors)})
    out = tensors[0]
    for x in tensors[1:]:
        out = out @ x
    return out


@public(method=False)
def chain_matmul(*matrices: Any) -> Any:
    """PyTorch's older form of linalg.multi_dot(): the matrices are arguments of their own."""
    require_tensors("chain_matmul", **{f"matrices[{i}]": x for i, x in enumerate(matrices)})
    return matrices[0] if len(matrices) == 1 else multi_dot(matrices)


@public()
@of_tensors
@rounds_once
def cross(input: Any, other: Any, dim: int = -1) -> Any:
    """Vector product of 3-element vectors along `dim`.  Raises RuntimeError for other sizes."""
    (at,) = normalise_dims("cross", dim, input.ndim)
    if input._sizes[at] != 3 or other.shape[at] != 3:
        raise RuntimeError(
            f"linalg.cross(): inputs dimension {dim} must have length 3, got {input._sizes[at]} and {other.shape[at]}"
        )
    ahead, behind = (1, 2, 0), (2, 0, 1)
    return _picked(input, at, ahead) * _picked(other, at, behind) - _picked(input, at, behind) * _picked(other, at, ahead)


def _picked(x: Any, dim: int, positions: tuple[int, ...]) -> Any:
    return index_select(x, constant_index(list(positions)), dim=dim)


@of_tensors
@lowered
def vecdot(x: Any, y: Any, *, dim: int = -1) -> Any:
    """Sum of products along `dim`."""
    product = x * y
    return sum_(product, dims=normalise_dims("vecdot", dim, product.ndim), keepdim=False)


@of_tensors
def diagonal_of(a: Any, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    """The diagonal of the last two dimensions (a view)."""
    return diagonal(a, offset=offset, dim1=dim1 % a.ndim, dim2=dim2 % a.ndim)


@public(in_place=True)
@lowered
def baddbmm(input: Any, batch1: Any, batch2: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    """beta * input + alpha * (batch1 @ batch2), batched."""
    return combined(input, linalg.matmul(batch1, batch2), beta, alpha)


@public(in_place=True)
@rounds_once
def addmv(input: Any, mat: Any, vec: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    """beta * input + alpha * (mat @ vec)."""
    return combined(input, mat @ vec, beta, alpha)


@public(in_place=True)
@rounds_once
def addr(input: Any, vec1: Any, vec2: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    """beta * input + alpha * outer(vec1, vec2)."""
    return combined(input, outer(vec1, vec2), beta, alpha)


@public(in_place=True)
@lowered
def addbmm(input: Any, batch1: Any, batch2: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    """beta * input + alpha * the sum of the products batch1[i] @ batch2[i]."""
    return combined(input, sum_(bmm(batch1, batch2), dims=(0,), keepdim=False), beta, alpha)


@public()
@lowered
def inner(input: Any, other: Any) -> Any:
    """Sum of products over the last dimension of both."""
    if not input.ndim or not other.ndim:
        return input * other
    if input._sizes[-1] != other.shape[-1]:
        raise RuntimeError(f"inner(): the last dimensions must match, got shapes {list(input._sizes)} and {list(other.shape)}")
    k = input._sizes[-1]
    flat = linalg.matmul(input.reshape(-1, k), transpose_matrix(other.reshape(-1, k)))
    return reshape(flat, shape=(*input._sizes[:-1], *other.shape[:-1]))
