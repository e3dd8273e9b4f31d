"""Euclidean norms, and the distances of rows from each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.core import products
from tracejit.core.aval import Aval
from tracejit.core.dtypes import FROM_NUMPY, float32, float64
from tracejit.core.shapes import equal, same, size_range
from tracejit.ops.composites.rows import dotted
from tracejit.ops.declare import composite, reduced_shape
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.ops.elementwise.comparison import where
from tracejit.ops.elementwise.mathematics import sqrt
from tracejit.ops.linalg import matmul, transpose_matrix
from tracejit.ops.movement.views import reshape, slice_
from tracejit.ops.reduce import sum_
from tracejit.ops.samples import cases, floats

__all__ = ["euclidean_distances", "euclidean_norm"]

Dims = tuple[int, ...]


def _rule(x: Aval, dims: Dims, keepdim: bool) -> Aval:
    return Aval(reduced_shape(x.shape, dims, keepdim), x.dtype)


def _expansion(x: Any, dims: Dims, keepdim: bool) -> Any:
    return sqrt.of(sum_.of(x * x, dims=dims, keepdim=keepdim))


@composite(
    _rule,
    _expansion,
    samples=cases(
        (floats(5), {"dims": (0,), "keepdim": False}),
        (floats(2, 3).T, {"dims": (1,), "keepdim": True}),
        (floats(2, 3, 2), {"dims": (0, 2), "keepdim": False}),
        (floats(30, 40), {"dims": (0, 1), "keepdim": False}),
        (floats(0, 2), {"dims": (0,), "keepdim": False}),
    ),
)
def euclidean_norm(x: Any, dims: Dims, keepdim: bool) -> Any:
    """The root of the sum of squares over `dims`, whose gradient where it is zero is zero."""
    norms = np.sqrt(dotted(x, x, dims))
    if keepdim:
        return norms
    return norms.reshape(() if len(dims) == x.ndim else reduced_shape(x.shape, dims, False))


euclidean_norm.named("LinalgVectorNormBackward0")


@euclidean_norm.vjp(saves="0 out")
def _(c: Any, g: Any) -> Any:
    (x,), (out,) = c.inputs, c.outputs
    dims, shape = c.attributes["dims"], c.avals[0].shape
    zero = out == 0.0
    scale = where.of(zero, 0.0, g) / where.of(zero, 1.0, out)
    if not c.attributes["keepdim"]:
        scale = reshape.of(scale, shape=tuple([1 if d in dims else s for d, s in enumerate(shape)]))
    return x * scale


# ---- distances ------------------------------------------------------------------------------------------------------
_FEW_ROWS = 25
"""With more rows on either side squares of distances are |x|**2 + |y|**2 - 2 x.y, by a matrix product, as in PyTorch; but of float32 in
float64, where nothing is lost by that, and of rows from which a common one is subtracted."""
_BLOCK = 1 << 18


def _by_product(x: Any, y: Any) -> bool:
    return (x.shape[-2] > _FEW_ROWS or y.shape[-2] > _FEW_ROWS) and 0 not in (*x.shape, *y.shape)


def _pairs(x: Any, y: Any) -> Any:
    """x[i] - y[j]: (..., rows of x, rows of y, columns)."""
    first = reshape.of(x, shape=(*x.shape[:-1], 1, x.shape[-1]))
    return first - reshape.of(y, shape=(*y.shape[:-2], 1, *y.shape[-2:]))


def _wide(x: Any) -> Any:
    return cast.of(x, dtype=float64) if x.dtype is float32 or x.dtype == np.float32 else x


def _like(x: Any, reference: Any) -> Any:
    return cast.of(x, dtype=FROM_NUMPY[reference.dtype] if isinstance(reference.dtype, np.dtype) else reference.dtype)


def _distances(x: Any, y: Any) -> Any:
    last = (len(x.shape),)
    if not _by_product(x, y):
        return euclidean_norm.of(_pairs(x, y), dims=last, keepdim=False)
    wide, other = _wide(x), _wide(y)
    middle = slice_.of(other, dim=len(y.shape) - 2, start=0, stop=1, step=1)
    wide, other = wide - middle, other - middle
    columns = (len(x.shape) - 1,)
    squares = sum_.of(wide * wide, dims=columns, keepdim=True)
    others = sum_.of(other * other, dims=columns, keepdim=True)
    products = matmul.of(wide, transpose_matrix(other))
    total = squares + transpose_matrix(others) - products * 2.0
    return _like(sqrt.of(where.of(total < 0.0, 0.0, total)), x)


def _distances_rule(x: Aval, y: Aval) -> Aval:
    if x.ndim < 2 or y.ndim < 2 or not same(x.shape[:-2], y.shape[:-2]) or not equal(x.shape[-1], y.shape[-1]):
        raise RuntimeError(
            f"cdist(): X1 and X2 must be matrices with the same number of columns, or batches of such, got shapes {list(x.shape)} and "
            f"{list(y.shape)}"
        )
    return Aval((*x.shape[:-1], y.shape[-2]), x.dtype)


@composite(
    _distances_rule,
    _distances,
    samples=cases(
        (floats(3, 2), floats(4, 2, seed=1)),
        (floats(2, 3).T, floats(1, 2, seed=1)),
        (floats(2, 3, 2), floats(2, 4, 2, seed=1)),
        (floats(30, 2), floats(3, 2, seed=1) + 8.0),  # far apart: the samples are compared to the last bits
        (floats(0, 2), floats(3, 2, seed=1)),
    ),
)
def euclidean_distances(x: Any, y: Any) -> Any:
    """Distances of each row of x from each row of y, whose gradient where it is zero is zero."""
    _distances_rule(x, y)
    if not _by_product(x, y):
        pairs = x[..., :, None, :] - y[..., None, :, :]
        return np.sqrt(np.vecdot(pairs, pairs), order="C")  # lies as it does for larger sizes
    left, right = (np.empty((*v.shape[:-1], v.shape[-1] + 2)) for v in (x, y))
    middle = y[..., :1, :].astype(np.float64)
    for rows, v, (own, others) in ((left, x, (-2, -1)), (right, y, (-1, -2))):
        inner = np.subtract(v, middle, out=rows[..., :-2])
        rows[..., own], rows[..., others] = np.vecdot(inner, inner), 1.0
    left[..., :-2] *= -2.0
    out = np.empty((*x.shape[:-1], y.shape[-2]), x.dtype)
    block = max(1, _BLOCK // y.shape[-2])  # so many rows of squares stay in a cache
    for first in size_range(0, x.shape[-2], block):
        part = out[..., first : first + block, :]
        squares = products.matmul(left[..., first : first + block, :], right.swapaxes(-1, -2))  # |x|**2 + |y|**2 - 2 x.y
        np.maximum(squares, 0.0, out=squares)
        part[...] = squares
        np.sqrt(part, out=part)
    return out


euclidean_distances.named("CdistBackward0")


@euclidean_distances.vjp(saves=("0 1 out", "0 1 out"))
def _(c: Any, g: Any) -> Any:
    (x, y), (out,) = c.inputs, c.outputs
    zero = out == 0.0
    weight = where.of(zero, 0.0, g) / where.of(zero, 1.0, out)
    gx = gy = None
    if not _by_product(x, y):
        parts = reshape.of(weight, shape=(*weight.shape, 1)) * _pairs(x, y)
        rank = len(x.shape)
        gx = sum_.of(parts, dims=(rank - 1,), keepdim=False) if c.needs[0] else None
        return gx, -sum_.of(parts, dims=(rank - 2,), keepdim=False) if c.needs[1] else None
    wide, other, weight = _wide(x), _wide(y), _wide(weight)
    columns, rows = (len(x.shape) - 1,), (len(x.shape) - 2,)
    if c.needs[0]:
        gx = _like(wide * sum_.of(weight, dims=columns, keepdim=True) - matmul.of(weight, other), x)
    if c.needs[1]:
        turned = transpose_matrix(weight)
        gy = _like(other * transpose_matrix(sum_.of(weight, dims=rows, keepdim=True)) - matmul.of(turned, wide), y)
    return gx, gy
