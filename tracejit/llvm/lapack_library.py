"""NumPy's own LAPACK by pointer, or SciPy's where it cannot be reached, or where its names do not tell the width of its integers.

SciPy's is another library, whose threads nobody holds (core/products.py).
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple

import scipy

from tracejit.core.capsules import capsule_address
from tracejit.llvm import blas

__all__ = ["Library", "library", "of_scipy"]

_PATTERNS: Final = ("scipy_{}_64_", "{}_64_")
"""Fortran names with 64-bit integers, as NumPy's wheels and distributions spell them."""


class Library(NamedTuple):
    """address: of a function.  integer: the type of its integers.  governed: whether its threads are those that products.py holds."""

    address: Callable[[str], int]
    integer: str
    governed: bool


def of_scipy() -> Library:
    """SciPy's."""
    capsules: Any = scipy.linalg.cython_lapack.__pyx_capi__
    return Library(lambda name: capsule_address(capsules[name]), "i32", False)


@cache
def library() -> Library:
    """NumPy's, or SciPy's."""
    path = getattr(sys.modules.get("numpy._core._multiarray_umath"), "__file__", None)
    found = None if path is None else ctypes.CDLL(path)  # already loaded; its dependencies are searched too
    patterns = [pattern for pattern in _PATTERNS if hasattr(found, pattern.format("dgesv"))]
    if not patterns:
        return of_scipy()

    def address(name: str) -> int:
        return int(ctypes.cast(getattr(found, patterns[0].format(name)), ctypes.c_void_p).value or 0)

    return Library(address, "i64", blas.blas().governed)
