"""Norms of vectors and matrices: compositions, with PyTorch's subgradients at zero."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tracejit.core import dtypes
from tracejit.core.interpreter import state
from tracejit.core.numbers import settled
from tracejit.core.precision import in_float32, rounds_once
from tracejit.core.shapes import normalise_dim, normalise_dims, product
from tracejit.ops import decompositions
from tracejit.ops import reduce as primitives
from tracejit.ops.composites.norms import euclidean_distances, euclidean_norm
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.ops.elementwise.comparison import where
from tracejit.ops.elementwise.mathematics import abs_, pow_, sign
from tracejit.ops.indexing import index_select
from tracejit.ops.movement.views import permute, reshape
from tracejit.ops.public.arrangement import triangle_positions
from tracejit.ops.public.derive import public
from tracejit.ops.public.keywords import of_tensors

Dim = int | Sequence[int] | None


def _floating(name: str, x: Any, dtype: dtypes.DType | None) -> Any:
    given = x.dtype
    if dtype is not None and given is not dtype:
        x, given = cast(x, dtype=dtype), dtype
    if not given.is_floating_point:
        raise RuntimeError(f"{name}(): expected a floating-point input, got {given.name}; pass dtype= or convert with .float()")
    return x


def _norm_over(x: Any, order: float, dims: tuple[int, ...], keepdim: bool) -> Any:
    """The norm over `dims`, whose gradient at zero is zero."""
    if order in (math.inf, -math.inf):
        if not dims:
            return abs_(x)
        if order > 0 and product(x.shape[d] for d in dims) == 0:
            raise RuntimeError(
                f"linalg.vector_norm(): the infinity norm of no elements does not exist; the input has shape {list(x.shape)}"
            )
        return (primitives.amax if order > 0 else primitives.amin)(abs_(x), dims=dims, keepdim=keepdim)
    if order == 0:
        return primitives.sum_(abs_(sign(x)), dims=dims, keepdim=keepdim)
    if order == 1:
        return primitives.sum_(abs_(x), dims=dims, keepdim=keepdim)
    if order == 2:
        return state.top.bind(euclidean_norm, (x,), {"dims": dims, "keepdim": keepdim})
    magnitude = abs_(x)
    absent, at_zero = magnitude == 0, math.inf if order < 0 else 0.0
    total = primitives.sum_(where(absent, at_zero, pow_(where(absent, 1.0, magnitude), float(order))), dims=dims, keepdim=keepdim)
    zero = total == at_zero
    return where(zero, 0.0, pow_(where(zero, 1.0, total), 1 / order))


@of_tensors
@rounds_once
def vector_norm(x: Any, ord: float = 2, dim: Dim = None, keepdim: bool = False, *, dtype: dtypes.DType | None = None) -> Any:
    """sum(|x| ** ord) ** (1 / ord) over `dim` (all for None); the largest magnitude for infinity, the count of nonzeros for 0."""
    x = _floating("linalg.vector_norm", x, dtype)
    return _norm_over(x, float(settled(ord)), normalise_dims("linalg.vector_norm", dim, x.ndim), keepdim)


@of_tensors
@rounds_once
def matrix_norm(
    a: Any, ord: Any = "fro", dim: Sequence[int] = (-2, -1), keepdim: bool = False, *, dtype: dtypes.DType | None = None
) -> Any:
    """Norm of the matrices in two dimensions: "fro", "nuc", 2, -2 (singular values), 1, -1 (columns), inf, -inf (rows)."""
    a = _floating("linalg.matrix_norm", a, dtype)
    if len(dim) != 2:
        raise RuntimeError(f"linalg.matrix_norm(): dim must be a tuple of two dimensions, got {tuple(dim)}")
    if a.ndim < 2:
        raise RuntimeError(f"linalg.matrix_norm(): the input must have at least 2 dimensions, got {a.ndim}")
    row, column = (normalise_dim("linalg.matrix_norm", d, a.ndim) for d in dim)
    if row == column:
        raise RuntimeError(f"linalg.matrix_norm(): the dimensions must be different, got {tuple(dim)}")
    both = tuple(sorted((row, column)))
    if ord == "fro":
        return _norm_over(a, 2.0, both, keepdim)
    if ord == "nuc" or (ord in (2, -2) and not isinstance(ord, str)):
        rest = tuple(d for d in range(a.ndim) if d not in both)
        values = decompositions.svd(permute(a, dims=(*rest, row, column)))[1]
        last = (values.ndim - 1,)
        reduce = primitives.sum_ if ord == "nuc" else primitives.amax if ord == 2 else primitives.amin
        out = reduce(values, dims=last, keepdim=False)
        return reshape(out, shape=tuple(1 if d in both else s for d, s in enumerate(a.shape))) if keepdim else out
    if isinstance(ord, str) or abs(ord) not in (1, math.inf):
        raise RuntimeError(f"linalg.matrix_norm(): order {ord!r} is not supported; use 'fro', 'nuc', inf, -inf, 1, -1, 2 or -2")
    summed, extreme = (row, column) if abs(ord) == 1 else (column, row)
    sums = primitives.sum_(abs_(a), dims=(summed,), keepdim=True)
    out = (primitives.amax if ord > 0 else primitives.amin)(sums, dims=(extreme,), keepdim=True)
    return out if keepdim else reshape(out, shape=tuple(s for d, s in enumerate(a.shape) if d not in both))


@of_tensors
def linalg_norm(a: Any, ord: Any = None, dim: Dim = None, keepdim: bool = False, *, dtype: dtypes.DType | None = None) -> Any:
    """A vector or matrix norm: of all elements where neither `ord` nor `dim` is given; of a matrix for two dimensions."""
    if dim is not None:
        dim = settled(dim)
        dims = (dim,) if isinstance(dim, int) else tuple(dim)
        if ord is None or len(dims) == 1:
            if isinstance(ord, str):
                raise RuntimeError(f"linalg.norm(): order {ord!r} is for matrices; give two dimensions")
            return vector_norm(a, 2 if ord is None else ord, dims, keepdim, dtype=dtype)
        return matrix_norm(a, ord, dims, keepdim, dtype=dtype)
    if ord is None:
        return vector_norm(a, 2, None, keepdim, dtype=dtype)
    if a.ndim not in (1, 2):
        raise RuntimeError(f"linalg.norm(): with ord and without dim, the input must be 1-D or 2-D, got {a.ndim} dimensions")
    if a.ndim == 1:
        if isinstance(ord, str):
            raise RuntimeError(f"linalg.norm(): order {ord!r} is for matrices, the input is 1-D")
        return vector_norm(a, ord, None, keepdim, dtype=dtype)
    return matrix_norm(a, ord, (-2, -1), keepdim, dtype=dtype)


@public()
def norm(input: Any, p: Any = "fro", dim: Dim = None, keepdim: bool = False, dtype: dtypes.DType | None = None) -> Any:
    """The vector norm of order p ("fro": 2) over `dim` (all for None), or the nuclear norm of matrices for "nuc"."""
    if p == "nuc":
        return matrix_norm(input, "nuc", (-2, -1) if dim is None else dim, keepdim, dtype=dtype)  # type: ignore[arg-type]
    if isinstance(p, str) and p != "fro":
        raise RuntimeError(f"norm(): p must be a number, 'fro' or 'nuc', got {p!r}")
    return vector_norm(input, 2 if p == "fro" or p is None else p, dim, keepdim, dtype=dtype)


@public()
@rounds_once
def dist(input: Any, other: Any, p: float = 2) -> Any:
    """The p-norm of input - other."""
    return vector_norm(input - other, p)


@public()
@in_float32
def cdist(x1: Any, x2: Any, p: float = 2.0, compute_mode: str | None = None) -> Any:
    """p-norm distances between each row of x1 and each row of x2, batched.

    Euclidean ones of more than 25 rows on either side are computed with a matrix product, those of float32 in float64;
    compute_mode="donot_use_mm_for_euclid_dist" subtracts row by row instead."""
    direct = compute_mode == "donot_use_mm_for_euclid_dist"
    if p == 2 and not direct and x1.dtype.is_floating_point and x1.dtype is x2.dtype and x1.shape[:-2] == x2.shape[:-2]:
        return euclidean_distances(x1, x2)
    return vector_norm(
        reshape(x1, shape=(*x1.shape[:-1], 1, x1.shape[-1])) - reshape(x2, shape=(*x2.shape[:-2], 1, *x2.shape[-2:])), p, -1
    )


@public(method=False)
@of_tensors
def pdist(input: Any, p: float = 2.0) -> Any:
    """The p-norms of the differences of all pairs of rows of a matrix: those of row 0 with rows 1, 2, ..., then of row 1 with ..."""
    if input.ndim != 2:
        raise RuntimeError(f"pdist(): expected a matrix, got shape {list(input._sizes)}")
    first, second = triangle_positions(input._sizes[0], input._sizes[0], 1, upper=True)
    return vector_norm(index_select(input, first, dim=0) - index_select(input, second, dim=0), p, -1)


@public(in_place=True)
def renorm(input: Any, p: float, dim: int, maxnorm: float) -> Any:
    """`input` with its slices along `dim` scaled down to the p-norm `maxnorm` where theirs is larger.

    Raises RuntimeError for fewer than two dimensions, p <= 0, a negative maxnorm, and dtypes that are not floating-point."""
    if input.ndim < 2:
        raise RuntimeError(f"renorm(): input needs at least 2 dimensions, got {input.ndim} dimensions")
    if p <= 0:
        raise RuntimeError(f"renorm(): p must be positive, got {p}")
    if maxnorm < 0:
        raise RuntimeError(f"renorm(): maxnorm must not be negative, got {maxnorm}")
    at = normalise_dim("renorm", dim, input.ndim)
    return _renormalised(_floating("renorm", input, None), float(p), at, float(maxnorm))


@rounds_once
def _renormalised(x: Any, p: float, dim: int, maxnorm: float) -> Any:
    norm = _norm_over(x, p, tuple([d for d in range(x.ndim) if d != dim]), True)
    return x * where(norm > maxnorm, maxnorm / (norm + 1e-7), 1.0)
