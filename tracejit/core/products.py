"""Products of NumPy arrays on the library's own threads.

NumPy's OpenBLAS has threads of its own, which wait spinning for each other: beside another busy process a product takes ten times as
long.  So eager mode has large products computed as compiled programs have (`llvm/products.py`, which installs itself here by `set_policy`),
and what else OpenBLAS would share among its threads on one thread.  Small products go to NumPy at once.

Until a policy is installed, and where there is none for this BLAS, all of them go to NumPy.  This module knows arrays only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

import numpy as np

__all__ = ["SMALL", "SMALL_VECTORS", "Policy", "dot_of", "is_small", "matmul", "on_one_thread", "set_policy"]

SMALL: Final = 100_000
"""Multiplications up to which NumPy computes a product of matrices: there OpenBLAS has one thread (from 262,144 on several)."""
SMALL_VECTORS: Final = 4096
"""The same of products with vectors (9,216 and 10,000)."""
_LARGE_MATRIX: Final = 1 << 20
"""Elements of a matrix from which its product with a vector may be computed by several threads."""


class Policy(ABC):
    """How products are computed that are not small."""

    on_one_thread: Callable[..., Any]
    """`on_one_thread(function, *arguments)` calls the function while NumPy's BLAS computes on the calling thread only."""
    least: int
    """Multiplications from which `multiplier` computes products of matrices, more than SMALL."""
    thin: int = 0
    """Rows, or columns, up to which it computes all products of more than SMALL multiplications."""

    @abstractmethod
    def multiplier(self, dtype: Any) -> Callable[[Any, Any, Any], Any] | None:
        """What computes the product of two matrices of a dtype of NumPy's, and of more than one row and column, into a third, and answers
        whether it has: not where they do not lie as BLAS reads them."""

    @abstractmethod
    def multiply_by_vector(self, matrix: Any, vector: Any, out: Any) -> bool:
        """The same of a matrix and a vector, into a vector."""


_install: list[Callable[[], Policy | None]] = []
_policy: Policy | None = None


def set_policy(make: Callable[[], Policy | None]) -> None:
    """Have products computed by what `make()` gives, once one asks for it."""
    _install[:] = [make]


def _policy_of_process() -> Policy | None:
    global _policy
    if _policy is None and _install:
        _policy = _install[0]()
        _install.clear()
    return _policy


def on_one_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """`function(*arguments)`, while NumPy's BLAS has no other threads than those that call it."""
    policy = _policy or _policy_of_process()
    return function(*arguments) if policy is None else policy.on_one_thread(function, *arguments)


def dot_of(a: Any, b: Any) -> Callable[[Any, Any, Any], Any]:
    """`np.dot(a, b, out)` for matrices that are like these two."""
    work = a.shape[0] * b.size
    if work <= (SMALL if a.shape[0] > 1 else SMALL_VECTORS):
        return np.dot
    policy = _policy or _policy_of_process()
    run = None
    side = min(a.shape[0], b.shape[1])
    if policy is not None and (work >= policy.least or side <= policy.thin) and side > 1 and a.dtype == b.dtype:
        run = policy.multiplier(a.dtype)

    def dot(a: Any, b: Any, out: Any) -> None:
        if run is None or not run(a, b, out):
            on_one_thread(np.dot, a, b, out)

    return dot


def is_small(a: Any, b: Any) -> bool:
    """Whether a product is known to be so small, with all of its batch, that NumPy computes it on the calling thread."""
    columns = b.shape[-1]
    work: int = a.size * columns
    return work <= SMALL and (work <= SMALL_VECTORS or (a.ndim > 1 < b.ndim and a.shape[-2] > 1 < columns))


def matmul(a: Any, b: Any, out: Any = None) -> Any:
    """np.matmul of arrays."""
    if out is None and is_small(a, b):
        return np.matmul(a, b)
    columns = b.shape[-1]
    if a.ndim < 2 or b.ndim < 2 or a.shape[-2] == 1 or columns == 1:
        if max(a.size, b.size) <= SMALL_VECTORS:
            return np.matmul(a, b, out)
        return _with_vector(a, b, out)
    work = a.shape[-2] * a.shape[-1] * columns  # of one of a batch
    if work <= SMALL:
        return np.matmul(a, b, out)
    policy = _policy or _policy_of_process()
    if policy is None:
        return np.matmul(a, b, out)
    if work < policy.least and min(a.shape[-2], columns) > policy.thin:
        return policy.on_one_thread(np.matmul, a, b, out)
    return _by_policy(policy, a, b, out)


def _with_vector(a: Any, b: Any, out: Any) -> Any:
    """Where one operand is a vector, a row or a column, or each of a batch is."""
    if max(a.size, b.size) >= _LARGE_MATRIX and a.ndim <= 2 and b.ndim <= 2 and a.shape[-1] == b.shape[0]:
        policy = _policy or _policy_of_process()
        rows, columns = a.shape[0] if a.ndim == 2 else 1, b.shape[1] if b.ndim == 2 else 1
        if policy is not None and (rows == 1) != (columns == 1):
            result = np.empty(a.shape[:-1] + b.shape[1:], np.result_type(a, b)) if out is None else out
            matrix, vector = (b.T, a) if rows == 1 else (a, b)
            if policy.multiply_by_vector(matrix, vector.reshape(-1), result.reshape(-1)):
                return result
    return on_one_thread(np.matmul, a, b, out)


def _by_policy(policy: Policy, a: Any, b: Any, out: Any) -> Any:
    if a.ndim == b.ndim == 2:
        dtype = a.dtype
        run = policy.multiplier(dtype) if b.dtype == dtype and a.shape[1] == b.shape[0] else None
        if run is not None and not _is_square_of_one(a, b):
            result = np.empty((a.shape[0], b.shape[1]), dtype) if out is None else out
            if result.dtype == dtype and run(a, b, result):
                return result
        return policy.on_one_thread(np.matmul, a, b, out)
    if a.shape[-1] != b.shape[-2]:
        return np.matmul(a, b, out)  # which says so
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if out is None:
        out = np.empty((*batch, a.shape[-2], b.shape[-1]), np.result_type(a, b))
    a, b = np.broadcast_to(a, (*batch, *a.shape[-2:])), np.broadcast_to(b, (*batch, *b.shape[-2:]))
    for at in np.ndindex(batch):
        _by_policy(policy, a[at], b[at], out[at])
    return out


def _is_square_of_one(a: Any, b: Any) -> bool:
    """Whether one operand is the other one transposed: NumPy computes half of such a product, and mirrors it."""
    return a.shape == b.shape[::-1] and a.strides == b.strides[::-1] and a.ctypes.data == b.ctypes.data
