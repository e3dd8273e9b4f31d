"""Tests of products of few rows in pieces: which pieces, and that they come to the bits of the whole."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from tracejit.core import dtypes, products
from tracejit.core.dtypes import DType
from tracejit.llvm import blas, thin_products
from tracejit.llvm.operations import lane_type

SIZES = [
    # rows, columns, terms, whether it is in pieces
    (16, 256, 128, False),  # few multiplications
    (16, 512, 128, True),  # two blocks of columns
    (16, 128, 512, True),  # one block, the sum in two stretches
    (8, 480, 1000, True),  # blocks and stretches
    (5, 336, 640, True),  # the last block is a smaller one
    (16, 520, 128, False),  # blocks would end within a vector
    (256, 512, 128, False),  # blocks would be narrow
    (2, 2048, 1024, False),  # far away
]


def _gemm_type(dtype: DType) -> Any:
    number = ctypes.c_float if dtype is dtypes.float32 else ctypes.c_double
    matrix = (ctypes.c_void_p, ctypes.c_int64)
    return ctypes.CFUNCTYPE(None, *[ctypes.c_int] * 3, *[ctypes.c_int64] * 3, number, *matrix, *matrix, number, *matrix)


_numbers = itertools.count()


def compiled(dtype: DType, gemm: int) -> tuple[Callable[..., None], object]:
    """(the helper over the routine of an address, what owns it)."""
    symbol = f"gemm_of_test_{next(_numbers)}"  # names are global to the process
    name, text = thin_products.helper(dtype, symbol)
    number = lane_type(dtype)
    types = ["i32"] * 3 + ["i64"] * 3 + [number, "ptr", "i64", "ptr", "i64", number, "ptr", "i64"]
    text = f"declare void @{symbol}({', '.join(types)})\n{text.replace('define internal', 'define')}"
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.add_symbol(symbol, gemm)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), llvm.Target.from_default_triple().create_target_machine())
    engine.finalize_object()
    return _gemm_type(dtype)(engine.get_function_address(name)), engine


def multiply(helper: Callable[..., None], a: np.ndarray, b: np.ndarray, c: np.ndarray, turned: bool, beta: float) -> None:
    m, n = c.shape
    leading = [x.strides[0] // x.itemsize for x in (a, b, c)]
    pointers = [(x.ctypes.data, ld) for x, ld in zip((a, b, c), leading, strict=True)]
    helper(101, 112 if turned else 111, 111, m, n, len(b), 1.0, *pointers[0], *pointers[1], beta, *pointers[2])


def operands(dtype: DType, m: int, n: int, k: int, turned: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Matrices whose rows are not next to each other."""
    generator = np.random.default_rng(m + n + k)
    a = generator.normal(size=((k, m + 3) if turned else (m, k + 3))).astype(dtype.numpy)[:, : m if turned else k]
    b = generator.normal(size=(k, n + 5)).astype(dtype.numpy)[:, :n]
    return a, b, generator.normal(size=(m, n + 2)).astype(dtype.numpy)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=lambda d: d.name)
@pytest.mark.parametrize(("m", "n", "k", "cut"), SIZES)
def test_pieces_are_small_enough_and_cover_the_product_once(m: int, n: int, k: int, cut: bool, dtype: DType) -> None:
    a, b, c = operands(dtype, m, n, k, False)
    seen = np.zeros((n, k), np.int64)
    sizes: list[tuple[int, int, int]] = []

    def note(*given: Any) -> None:
        _, _, _, rows, columns, terms, _, at_a, lda, at_b, ldb, beta, at_c, ldc = given
        first, column = divmod((at_b - b.ctypes.data) // b.itemsize, ldb)
        assert (rows, lda, ldb, ldc) == (m, k + 3, n + 5, n + 2)
        assert (at_a - a.ctypes.data) // a.itemsize == first and (at_c - c.ctypes.data) // c.itemsize == column
        assert beta == (0.0 if first == 0 else 1.0)
        seen[column : column + columns, first : first + terms] += 1
        sizes.append((rows, columns, terms))

    callback = _gemm_type(dtype)(note)
    helper, _owner = compiled(dtype, ctypes.cast(callback, ctypes.c_void_p).value or 0)
    multiply(helper, a, b, c[:, :n], False, 0.0)
    np.testing.assert_array_equal(seen, 1)
    assert (len(sizes) > 1) == cut
    if cut:
        assert all(rows * columns * terms <= thin_products.SMALL for rows, columns, terms in sizes)
        assert all(columns % 16 == 0 for _, columns, _ in sizes)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("beta", [0.0, 1.0])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("m", "n", "k", "cut"), SIZES)
def test_pieces_come_to_the_product(m: int, n: int, k: int, cut: bool, turned: bool, beta: float, dtype: DType) -> None:
    library = blas._from_numpy()
    if library is None:
        pytest.skip("this NumPy exports no 64-bit CBLAS")
    helper, _owner = compiled(dtype, library.addresses["sgemm" if dtype is dtypes.float32 else "dgemm"])
    a, b, c = operands(dtype, m, n, k, turned)
    beyond = c[:, n:].copy()
    exact = (a.T if turned else a).astype(np.float64) @ b.astype(np.float64) + (c[:, :n] if beta else 0)
    if beta == 0:
        c[:, :n] = np.nan
    multiply(helper, a, b, c[:, :n], turned, beta)
    np.testing.assert_allclose(c[:, :n], exact, rtol=0, atol=4 * k * float(np.finfo(dtype.numpy).eps))
    np.testing.assert_array_equal(c[:, n:], beyond)
    if library.processor in thin_products.PROCESSORS and beta == 0:  # where it is used, the bits are those of the whole
        np.testing.assert_array_equal(c[:, :n], products.on_one_thread(np.matmul, a.T if turned else a, b))
