"""Tests of the BLAS access: which library, and products of all layouts through both calling conventions."""

from __future__ import annotations

import ctypes
import itertools

import llvmlite.binding as llvm
import numpy as np
import pytest

from tracejit.core import dtypes
from tracejit.core import products as eager
from tracejit.core.dtypes import DType
from tracejit.llvm import blas, products
from tracejit.llvm.operations import Code

LIBRARIES = {"numpy": blas._from_numpy, "scipy": blas._from_scipy}


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> blas.Blas:
    found = LIBRARIES[request.param]()
    if found is None:
        pytest.skip("this NumPy exports no 64-bit CBLAS")
    return found


def gemm(
    library: blas.Blas,
    dtype: DType,
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    transpose: tuple[bool, bool],
    alpha: float,
    beta: float,
) -> None:
    """c = alpha op(a) op(b) + beta c through a function compiled for this one call."""
    m, n = c.shape
    columns = "1" if n == 1 else "%n"
    k = a.shape[0] if transpose[0] else a.shape[1]
    code = Code()
    leading = [x.strides[0] // x.itemsize for x in (a, b, c)]
    blas.emit_gemm(
        code,
        library,
        dtype,
        transpose,
        (str(m), columns, str(k)),
        [(p, str(ld)) for p, ld in zip(("%a", "%b", "%c"), leading, strict=True)],
        alpha,
        beta,
    )
    text = "\n".join(
        [*code.declarations.values(), "define void @product(ptr %a, ptr %b, ptr %c, i64 %n) {", *code.lines, "ret void", "}"]
    )
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    # Names are global to the process: these may stand for the other library already.
    given = blas.symbols(library) | (products.symbols() if library.governed else {})
    for symbol, address in given.items():
        text = text.replace(f"@{symbol}(", f"@{symbol}_{library.cblas}(")
        llvm.add_symbol(f"{symbol}_{library.cblas}", address)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), llvm.Target.from_default_triple().create_target_machine())
    engine.finalize_object()
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64)(engine.get_function_address("product"))
    function(a.ctypes.data, b.ctypes.data, c.ctypes.data, n)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=lambda d: d.name)
def test_products_of_every_layout_are_right(library: blas.Blas, dtype: DType) -> None:
    generator = np.random.default_rng(0)
    sizes = [(7, 5, 9), (1, 5, 9), (7, 1, 9), (1, 1, 9), (1, 40, 1), (33, 1, 1)]
    for (m, n, k), ta, tb, beta in itertools.product(sizes, (False, True), (False, True), (0.0, 1.0)):
        a = generator.normal(size=((k, m + 3) if ta else (m, k + 2))).astype(dtype.numpy)[:, : m if ta else k]
        b = generator.normal(size=((n, k + 1) if tb else (k, n + 4))).astype(dtype.numpy)[:, : k if tb else n]
        c = generator.normal(size=(m, n + 2)).astype(dtype.numpy)
        c[:, :n] = np.nan if beta == 0 else c[:, :n]
        expected = 0.5 * (a.T if ta else a).astype(np.float64) @ (b.T if tb else b).astype(np.float64)
        expected = expected + (c[:, :n] if beta else 0)
        beyond = c[:, n:].copy()
        gemm(library, dtype, a, b, c[:, :n], (ta, tb), 0.5, beta)
        np.testing.assert_allclose(c[:, :n], expected, rtol=0, atol=20 * float(np.finfo(dtype.numpy).eps))
        np.testing.assert_array_equal(c[:, n:], beyond)


@pytest.mark.parametrize("k", [70, 1000])
@pytest.mark.parametrize(("m", "n"), [(33, 21), (1, 128), (128, 1), (1, 1), (16, 512), (7, 640)])
def test_numpys_own_library_gives_matmuls_bits(m: int, n: int, k: int) -> None:
    library = blas._from_numpy()
    if library is None:
        pytest.skip("this NumPy exports no 64-bit CBLAS")
    generator = np.random.default_rng(1)
    a, b = generator.normal(size=(m, k)).astype(np.float32), generator.normal(size=(k, n)).astype(np.float32)
    c = np.full((m, n), np.nan, np.float32)
    gemm(library, dtypes.float32, a, b, c, (False, False), 1.0, 0.0)
    np.testing.assert_array_equal(c, eager.matmul(a, b))


@pytest.mark.parametrize(
    ("sizes", "name", "alone"),
    [
        (("16", "64", "64"), "gemm", True),
        (("16", "512", "128"), "gemm", False),
        (("%m", "16", "16"), "gemm", False),
        (("1", "64", "64"), "gemv", True),
        (("1", "512", "128"), "gemv", False),
        (("512", "1", "%k"), "gemv", False),
        (("1", "1", "4096"), "dot", True),
        (("1", "1", "20000"), "dot", False),
    ],
)
@pytest.mark.parametrize("threads", [None, (1, 2)])
def test_products_that_openblas_may_share_among_its_threads_go_to_the_library_s_own(
    threads: tuple[int, int] | None, sizes: tuple[str, str, str], name: str, alone: bool
) -> None:
    code = Code()
    library = blas.Blas("test", True, {}, num_threads=threads)
    blas.emit_gemm(code, library, dtypes.float32, (False, False), sizes, [("%a", "512")] * 3, 1.0, 0.0)
    called = f"tracejit_blas_s{name}" if alone or not library.governed else blas.routine("s", name)
    assert set(code.declarations) == {called}


def test_other_dtypes_are_refused() -> None:
    with pytest.raises(TypeError, match="float32 or float64, got int32"):
        blas.emit_gemm(Code(), blas.blas(), dtypes.int32, (False, False), ("1", "1", "1"), [("%a", "1")] * 3, 1.0, 0.0)
