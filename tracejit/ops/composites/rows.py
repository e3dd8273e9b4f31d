"""Sums over dimensions of arrays, kept as dimensions of size 1.

NumPy starts anew for each row that it adds up, which for short rows costs several times what BLAS takes: there rows are products with
ones, or with each other.  BLAS adds as many numbers side by side as a vector register holds, so up to `_LONGEST` elements the error stays
near that of NumPy's pairwise sums, which longer rows get.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.core import products

__all__ = ["dotted", "summed"]

Dims = tuple[int, ...]
_LONGEST = 512
_MANY = 1 << 13  # elements, from which BLAS adds them all up in pieces of that length, which are added up pairwise
_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))
_ONES = {dtype: np.ones(_LONGEST, dtype) for dtype in _DTYPES}
_SUM: Any = np.add.reduce  # Any: NumPy's signatures want keepdims as a literal


def _row(x: Any, dims: Dims) -> tuple[int, int]:
    """(how many dimensions stand before, how many elements have) the longest rows, of the last dimensions of x that are among dims, that
    BLAS is to add up; 1 element where it is to add up none."""
    before, count = x.ndim, 1
    if x.dtype in _DTYPES and x.size and x.flags.c_contiguous:
        while before - 1 in dims and count * x.shape[before - 1] <= _LONGEST:
            before -= 1
            count *= x.shape[before]
    return before, count


def _rest(sums: Any, x: Any, dims: Dims, before: int) -> Any:
    """The sums of rows, added up over the dimensions of `dims` that come before them."""
    kept = sums.reshape(*x.shape[:before], *(1,) * (x.ndim - before))
    rest = tuple([d for d in dims if d < before]) if before else ()
    return _SUM(kept, rest, x.dtype, None, True) if rest else kept


def summed(x: Any, dims: Dims) -> Any:
    """The sums of x over dims."""
    before, count = _row(x, dims)
    if count == 1:
        return _SUM(x, dims, x.dtype, None, True)
    return _rest(products.matmul(x.reshape(-1, count), _ONES[x.dtype][:count]), x, dims, before)


def dotted(x: Any, y: Any, dims: Dims) -> Any:
    """The sums of x * y over dims; both are of one dtype."""
    if len(dims) == x.ndim and x.size >= _MANY and x.flags.c_contiguous and y.flags.c_contiguous and x.shape == y.shape:
        return _whole(x.reshape(-1), y.reshape(-1)).reshape((1,) * x.ndim)
    before, count = _row(x, dims)
    if count == 1 or y.shape != x.shape or not y.flags.c_contiguous:
        return _SUM(x * y, dims, x.dtype, None, True)
    rows = x.reshape(-1, count)
    return _rest(np.vecdot(rows, rows if y is x else y.reshape(-1, count)), x, dims, before)


def _whole(x: Any, y: Any) -> Any:
    """The sum of all x * y of vectors."""
    whole = x.size // _LONGEST * _LONGEST
    sums = np.vecdot(x[:whole].reshape(-1, _LONGEST), y[:whole].reshape(-1, _LONGEST))
    return _SUM(sums, None, x.dtype) + np.vecdot(x[whole:], y[whole:])
