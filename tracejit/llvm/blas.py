"""One BLAS for everything: gemm, gemv and dot of NumPy's own OpenBLAS by pointer, or SciPy's where NumPy's cannot be reached.

Two BLAS libraries in one process have two thread pools that disturb each other, and a product computed by the same gemm as np.matmul
has the same bits; so NumPy's is looked for first (its symbols are found through the extension module that links it).  Any BLAS whose
names do not tell its integer width is refused.  SciPy's `cython_blas` exports Fortran entry points with 32-bit integers.

Where OpenBLAS would wake its threads, or might, `emit_gemm` has the product computed by the library's own (products.py).

`emit_gemm` writes the call as LLVM text; it knows matrices as pointers and numbers only.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
import scipy

from tracejit.core import dtypes, products
from tracejit.core.capsules import capsule_address
from tracejit.core.dtypes import DType
from tracejit.llvm import thread_pool
from tracejit.llvm.operations import Code, constant, lane_type

__all__ = ["NO_TRANSPOSE", "ROW_MAJOR", "TRANSPOSE", "Blas", "blas", "emit_gemm", "routine", "symbols"]

ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE = 101, 111, 112  # of the C interface
# CBLAS names with 64-bit integers, as NumPy's wheels and distributions spell them
_CBLAS_64: Final = ("scipy_cblas_{}64_", "cblas_{}64_")
_CBLAS_NAMES: Final = ("sgemm", "dgemm", "sgemv", "dgemv", "sdot", "ddot")


@dataclass(frozen=True, slots=True)
class Blas:
    """Where gemm is: `cblas` (row-major C interface, int64; gemv and dot too) or Fortran's (by reference, int32).  processor: what
    OpenBLAS takes this one for.  num_threads: where its number of threads is asked for, and where it is set."""

    source: str
    cblas: bool
    addresses: dict[str, int]  # sgemm, dgemm; with cblas sgemv, dgemv, sdot, ddot
    processor: str = ""
    num_threads: tuple[int, int] | None = None

    @property
    def governed(self) -> bool:
        """Whether products that it would share among threads go to the library's own (products.py)."""
        return self.num_threads is not None and thread_pool.supported()


def _from_numpy() -> Blas | None:
    module = sys.modules.get("numpy._core._multiarray_umath")
    path = getattr(module, "__file__", None)
    if path is None:
        return None
    library = ctypes.CDLL(path)  # already loaded; its dependencies are searched too
    for pattern in _CBLAS_64:
        try:
            functions = {name: getattr(library, pattern.format(name)) for name in _CBLAS_NAMES}
        except AttributeError:
            continue
        addresses = {name: _address(f) for name, f in functions.items()}
        name = f"numpy {np.__version__} ({pattern.format('*')})"
        return Blas(name, True, addresses, _processor(library, pattern), _num_threads(library, pattern))
    return None


def _address(function: Any) -> int:
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)


def _num_threads(library: ctypes.CDLL, pattern: str) -> tuple[int, int] | None:
    """OpenBLAS' functions that tell and set its number of threads; None of another BLAS."""
    get, set_ = (getattr(library, pattern.replace("cblas_{}", f"openblas_{what}_num_threads"), None) for what in ("get", "set"))
    return None if get is None or set_ is None else (_address(get), _address(set_))


def _processor(library: ctypes.CDLL, pattern: str) -> str:
    """The processor that OpenBLAS takes this one for; nothing of another BLAS."""
    function = getattr(library, pattern.replace("cblas_{}", "openblas_get_corename"), None)
    if function is None:
        return ""
    function.restype, function.argtypes = ctypes.c_char_p, []
    return str(function().decode())


def _from_scipy() -> Blas:
    capsules = scipy.linalg.cython_blas.__pyx_capi__
    addresses = {name: capsule_address(capsules[name]) for name in ("sgemm", "dgemm")}
    return Blas("scipy.linalg.cython_blas", False, addresses)


@cache
def blas() -> Blas:
    """The BLAS of this process."""
    return _from_numpy() or _from_scipy()


def _letter(dtype: DType) -> str:
    if not dtype.is_floating_point:
        raise TypeError(f"gemm: dtype must be float32 or float64, got {dtype.name}")
    return "s" if dtype is dtypes.float32 else "d"


def symbols(library: Blas) -> dict[str, int]:
    """Names under which the driver makes the routines known to the linker."""
    return {f"tracejit_blas_{name}": address for name, address in library.addresses.items()}


def routine(letter: str, name: str) -> str:
    """The symbol of gemm, gemv or dot under the library's own threads (products.py)."""
    return f"tracejit_product_{letter}{name}"


def _symbol(library: Blas, dtype: DType, name: str, sizes: Sequence[str], alone: int) -> str:
    """What computes a product: the BLAS itself where it is known to do so on one thread, which it does up to a product of its sizes."""
    if not library.governed or (all(size.isdecimal() for size in sizes) and math.prod(map(int, sizes)) <= alone):
        return f"tracejit_blas_{_letter(dtype)}{name}"
    return routine(_letter(dtype), name)


def emit_gemm(
    code: Code,
    library: Blas,
    dtype: DType,
    transpose: tuple[bool, bool],
    sizes: Sequence[str],
    operands: Sequence[tuple[str, str]],
    alpha: float,
    beta: float,
) -> None:
    """C = alpha op(A) op(B) + beta C, row-major.  `sizes` are (m, n, k), `operands` (pointer, leading dimension) of A, B and C; texts of
    constants or i64 values.  A product with one row or one column is a gemv, with both a dot, as in np.matmul."""
    number = lane_type(dtype)
    m, n, k = sizes
    (a, lda), (b, ldb), (c, ldc) = operands
    alpha_text, beta_text = constant(alpha, dtype), constant(beta, dtype)
    if library.cblas and m == n == "1":
        vectors = [("ptr", a), ("i64", lda if transpose[0] else "1"), ("ptr", b), ("i64", "1" if transpose[1] else ldb)]
        total = code.call(_symbol(library, dtype, "dot", [k], products.SMALL_VECTORS), number, ("i64", k), *vectors)
        if alpha != 1.0:
            total = code.op(f"fmul {number} {total}, {alpha_text}")
        if beta:
            before = code.op(f"load {number}, ptr {c}")
            total = code.op(f"fadd {number} {total}, " + code.op(f"fmul {number} {before}, {beta_text}"))
        code.lines.append(f"store {number} {total}, ptr {c}")
        return
    if library.cblas and "1" in (m, n):
        if m == "1":  # C' = op(B)' x, x being the row of op(A)
            matrix, ld, transposed, rows, columns = b, ldb, not transpose[1], k, n
            x, x_step, y_step = a, lda if transpose[0] else "1", "1"
        else:
            matrix, ld, transposed, rows, columns = a, lda, transpose[0], m, k
            x, x_step, y_step = b, "1" if transpose[1] else ldb, ldc
        if transposed != (m == "1"):  # `rows` and `columns` are those of the matrix as stored
            rows, columns = columns, rows
        arguments = [
            ("i32", str(ROW_MAJOR)),
            ("i32", str(TRANSPOSE if transposed else NO_TRANSPOSE)),
            ("i64", rows),
            ("i64", columns),
        ]
        arguments += [(number, alpha_text), ("ptr", matrix), ("i64", ld), ("ptr", x), ("i64", x_step)]
        symbol = _symbol(library, dtype, "gemv", [rows, columns], products.SMALL_VECTORS)
        code.call(symbol, "void", *arguments, (number, beta_text), ("ptr", c), ("i64", y_step))
        return
    if library.cblas:
        flags = [("i32", str(TRANSPOSE if t else NO_TRANSPOSE)) for t in transpose]
        arguments = [("i32", str(ROW_MAJOR)), *flags, ("i64", m), ("i64", n), ("i64", k), (number, alpha_text)]
        arguments += [("ptr", a), ("i64", lda), ("ptr", b), ("i64", ldb), (number, beta_text), ("ptr", c), ("i64", ldc)]
        code.call(_symbol(library, dtype, "gemm", sizes, products.SMALL), "void", *arguments)
        return

    # Column-major Fortran sees the transposes of row-major matrices: C' = op(B)' op(A)'.
    def by_reference(kind: str, text: str) -> tuple[str, str]:
        slot = code.op(f"alloca {kind}")
        code.lines.append(f"store {kind} {text}, ptr {slot}")
        return "ptr", slot

    def integer(text: str) -> tuple[str, str]:
        return by_reference("i32", text if not text.startswith("%") else code.op(f"trunc i64 {text} to i32"))

    stack = code.call("llvm.stacksave.p0", "ptr")
    letters = [by_reference("i8", str(ord("T" if t else "N"))) for t in (transpose[1], transpose[0])]
    arguments = [*letters, integer(n), integer(m), integer(k), by_reference(number, alpha_text)]
    arguments += [("ptr", b), integer(ldb), ("ptr", a), integer(lda), by_reference(number, beta_text), ("ptr", c), integer(ldc)]
    code.call(f"tracejit_blas_{_letter(dtype)}gemm", "void", *arguments)
    code.call("llvm.stackrestore.p0", "void", ("ptr", stack))
