"""Equations of tensors that are equations of matrices in disguise, and those of matrices that are answered where they have no answer.

The functions named `..._ex` do not raise: beside their result they give `info`, 0 for each matrix that has one.  The others have NaN in
its place, and no gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracejit.core.precision import in_float32
from tracejit.core.shapes import normalise_dim, product
from tracejit.ops.creation import eye, full
from tracejit.ops.decompositions import LinAlgError
from tracejit.ops.elementwise.comparison import eq, where
from tracejit.ops.failures import cholesky_info, lu_info
from tracejit.ops.movement.copies import cat
from tracejit.ops.movement.views import permute, reshape
from tracejit.ops.public.derive import public
from tracejit.ops.public.keywords import of_tensors, write_out
from tracejit.ops.public.linear_algebra import cholesky_, inverse, solve
from tracejit.ops.public.movement import expand, flip
from tracejit.ops.public.reduce import any_, cumprod
from tracejit.ops.public.return_types import result_type

__all__ = ["cholesky_ex", "inv_ex", "solve_ex", "tensorinv", "tensorsolve", "vander"]

CholeskyInfo = result_type("linalg_cholesky_ex", "L", "info")
InverseInfo = result_type("linalg_inv_ex", "inverse", "info")
SolveInfo = result_type("linalg_solve_ex", "result", "info")


def _sound(name: str, a: Any, info: Any, check_errors: bool) -> tuple[Any, Any]:
    """(where `info` is 0, for elements of matrices; the matrices, unit matrices where it is not).  Raises LinAlgError if asked to."""
    if check_errors and bool(any_(info != 0)):
        raise LinAlgError(
            f"linalg.{name}(): a matrix has no result, info is {info.tolist()}; the input has shape {list(a.shape)}"
        )
    good = reshape(eq(info, 0), shape=(*info.shape, 1, 1))
    return good, where(good, a, eye(rows=a.shape[-1], columns=a.shape[-1], dtype=a.dtype))


def _given_out(name: str, result: Any, out: Any) -> Any:
    """The result, in the pair of tensors `out` where there is one."""
    return result if out is None else type(result)(*write_out(name, out, result))


@of_tensors
@in_float32
def cholesky_ex(a: Any, *, upper: bool = False, check_errors: bool = False, out: Any = None) -> Any:
    """(L, info): cholesky() of symmetric matrices (*, n, n), NaN for those that are not positive definite.

    info (*): the order of the first leading minor that is not positive, or 0.  Raises LinAlgError for one if check_errors."""
    info = cholesky_info(a)
    good, sound = _sound("cholesky_ex", a, info, check_errors)
    return _given_out("cholesky_ex", CholeskyInfo(where(good, cholesky_(sound, upper=upper), float("nan")), info), out)


@of_tensors
@in_float32
def inv_ex(a: Any, *, check_errors: bool = False, out: Any = None) -> Any:
    """(inverse, info): inv() of matrices (*, n, n), NaN for singular ones.

    info (*): the position, from 1, of the first pivot that is zero, or 0.  Raises LinAlgError for one if check_errors."""
    info = lu_info(a)
    good, sound = _sound("inv_ex", a, info, check_errors)
    return _given_out("inv_ex", InverseInfo(where(good, inverse(sound), float("nan")), info), out)


@of_tensors
@in_float32
def solve_ex(a: Any, b: Any, *, left: bool = True, check_errors: bool = False, out: Any = None) -> Any:
    """(result, info): solve(), NaN where a matrix is singular.

    info: the position, from 1, of the first pivot that is zero, or 0.  Raises LinAlgError for one if check_errors."""
    info = lu_info(a)
    good, sound = _sound("solve_ex", a, info, check_errors)
    vectors = b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1])
    good = reshape(good, shape=good.shape[:-1]) if vectors else good
    return _given_out("solve_ex", SolveInfo(where(good, solve(sound, b, left=left), float("nan")), info), out)


@of_tensors
def tensorinv(a: Any, ind: int = 2) -> Any:
    """The inverse of the map that tensordot(a, x, dims=x.ndim) is, whose values have the first `ind` dimensions of `a`.

    Its shape is a.shape[ind:] + a.shape[:ind].  Raises RuntimeError unless both have as many elements, LinAlgError for a singular map."""
    if ind <= 0:
        raise RuntimeError(f"linalg.tensorinv(): expected a strictly positive integer for ind, got {ind}")
    first, rest = tuple(a.shape[:ind]), tuple(a.shape[ind:])
    size = product(first)
    if size != product(rest):
        raise RuntimeError(
            f"linalg.tensorinv(): expected prod(a.shape[:ind]) == prod(a.shape[ind:]), got {size} and {product(rest)} of {list(a.shape)}"
        )
    return reshape(inverse(reshape(a, shape=(size, size))), shape=(*rest, *first))


@of_tensors
def tensorsolve(a: Any, b: Any, dims: Sequence[int] | None = None) -> Any:
    """X with tensordot(a, X, dims=X.ndim) = b, of shape a.shape[b.ndim:]; the dimensions `dims` of `a` come last before that.

    Raises RuntimeError unless X has as many elements as b, LinAlgError for a singular map."""
    if dims is not None:
        last = [normalise_dim("linalg.tensorsolve", dim, a.ndim) for dim in dims]
        a = permute(a, dims=(*(dim for dim in range(a.ndim) if dim not in last), *last))
    shape = tuple(a.shape[b.ndim :])
    size = product(b.shape)
    if product(shape) != size or product(a.shape) != size * size:
        raise RuntimeError(
            f"linalg.tensorsolve(): expected a to have as many elements in front as behind, got shapes {list(a.shape)} and {list(b.shape)}"
        )
    return reshape(solve(reshape(a, shape=(size, size)), reshape(b, shape=(size,))), shape=shape)


@of_tensors
def vander(x: Any, *, N: int | None = None) -> Any:  # noqa: N803  (PyTorch's name)
    """Vandermonde's matrices (*, n, N) of vectors x (*, n): the powers 0 to N - 1 of each number.  N is n by default.

    A number is a vector of one.  Raises RuntimeError for an N below 2."""
    if N is not None and N <= 1:
        raise RuntimeError(f"linalg.vander(): N must be greater than 1, got {N}")
    vectors = x if x.ndim else reshape(x, shape=(1,))
    return _powers(vectors, vectors.shape[-1] if N is None else N)


def _powers(x: Any, count: int) -> Any:
    column = reshape(x, shape=(*x.shape, 1))
    ones = full(1, shape=column._sizes, dtype=x.dtype)
    if count <= 1:
        return expand(ones, *x.shape, count)
    return cumprod(cat(ones, expand(column, *x.shape, count - 1), dim=x.ndim), -1)


@public("vander", method=False)
def legacy_vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:  # noqa: N803
    """Vandermonde's matrix (n, N) of a vector x (n): powers of its numbers, the greatest first unless `increasing`.  N is n by default.

    Raises RuntimeError for what is no vector, and for a negative N."""
    if x.ndim != 1:
        raise RuntimeError(f"vander(): x must be a one-dimensional tensor, got shape {list(x.shape)}")
    count = x.shape[0] if N is None else N
    if count < 0:
        raise RuntimeError(f"vander(): N must be non-negative, got {N}")
    powers = _powers(x, count)
    return powers if increasing else flip(powers, -1)
