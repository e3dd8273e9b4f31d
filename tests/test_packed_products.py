"""Kernels of products: what they compute, for all sizes, strides and transpositions, and which memory they read and write."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tracejit.core import dtypes
from tracejit.core.dtypes import DType
from tracejit.core.products import Policy
from tracejit.llvm import blas, packed_products, products, thin_products, vector_text
from tracejit.native import machine_code

KINDS = [(dtype, width // dtype.itemsize) for dtype in (dtypes.float32, dtypes.float64) for width in (64, 32, 16)]
TILES = {
    64: vector_text.OF_32,
    32: vector_text.OF_16,
    16: vector_text.OF_16._replace(fused=False),
}  # by bytes of a vector
FORCED = {64: "", 32: "x86-64-v3", 16: "x86-64"}  # processors with AVX2, and with SSE2
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there programs have no such kernels")


class Compiled(NamedTuple):
    """Functions of one dtype and number of lanes, and what owns their code."""

    product: Callable[..., None]
    thin: Callable[..., None]
    is_thin: Callable[[int, int, int, int], bool]
    scratch: Callable[[int, int, int], int]
    owner: object


def assembled(text: str, processor: str) -> bytes:
    """Object code that uses the instructions of a processor of this name alone, where this machine has them; else its own."""
    features = llvm.get_host_cpu_features()
    if not processor or not all(features.get(name, False) for name in ("avx2", "fma")):
        return machine_code.assemble(text, computes=True)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    machine = target.create_target_machine(cpu=processor, opt=3, jit=True, reloc="static", codemodel="jitdefault")
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = llvm.get_process_triple(), str(machine.target_data)
    return bytes(machine.emit_object(module))


@cache
def compiled(dtype: DType, lanes: int) -> Compiled:
    name, text, declarations = packed_products.helper(dtype, lanes, TILES[lanes * dtype.itemsize])
    names = name, thin_products.thin(name), thin_products.is_thin(name), packed_products.scratch(name)
    table = f"@table = constant [4 x ptr] [{', '.join(f'ptr @{name}' for name in names)}]"
    text = "\n".join([*declarations.values(), text, table])
    address, owner = machine_code.link(assembled(text, FORCED[lanes * dtype.itemsize]), {}, "table")
    number = ctypes.c_float if dtype is dtypes.float32 else ctypes.c_double
    matrix = (ctypes.c_void_p, ctypes.c_int64)
    product = ctypes.CFUNCTYPE(
        None, *[ctypes.c_int] * 3, *[ctypes.c_int64] * 3, number, *matrix, *matrix, number, *matrix, ctypes.c_void_p
    )
    is_thin = ctypes.CFUNCTYPE(ctypes.c_bool, *[ctypes.c_int] * 2, *[ctypes.c_int64] * 2)
    scratch = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 3)
    kinds = product, product, is_thin, scratch
    return Compiled(*[k(at) for k, at in zip(kinds, (ctypes.c_void_p * 4).from_address(address), strict=True)], owner)


def multiply(
    dtype: DType,
    lanes: int,
    a: Any,
    b: Any,
    c: Any,
    turned: tuple[bool, bool],
    alpha: float = 1.0,
    beta: float = 0.0,
    thin: bool = False,
) -> None:
    """c = alpha * a @ b + beta * c; a and b as they are stored, turned: whether each stands for its transpose."""
    m, n = c.shape
    k = a.shape[0] if turned[0] else a.shape[1]
    flags = [blas.TRANSPOSE if t else blas.NO_TRANSPOSE for t in turned]
    (a, lda), (b, ldb), (c, ldc) = ((x.ctypes.data, x.strides[0] // x.itemsize) for x in (a, b, c))
    functions = compiled(dtype, lanes)
    held = scratch, _ = _before_a_wall((1, functions.scratch(m, n, k)), dtypes.uint8)
    run = functions.thin if thin else functions.product
    run(blas.ROW_MAJOR, *flags, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, scratch.ctypes.data)
    del held


def is_thin(dtype: DType, lanes: int, m: int, n: int, turned: tuple[bool, bool]) -> bool:
    return compiled(dtype, lanes).is_thin(*[blas.TRANSPOSE if t else blas.NO_TRANSPOSE for t in turned], m, n)


def matrix(rows: int, columns: int, dtype: DType, seed: int, beyond: int = 0) -> np.ndarray:
    """One whose rows are `beyond` elements apart."""
    return np.random.default_rng(seed).standard_normal((rows, columns + beyond)).astype(dtype.numpy)[:, :columns]


SIZES = st.one_of(st.integers(1, 9), st.integers(1, 70), st.sampled_from([191, 192, 193, 255, 256, 257, 400, 530, 800]))


@settings(max_examples=120, deadline=None)
@given(
    kind=st.sampled_from(KINDS), m=SIZES, n=SIZES, k=SIZES, turned=st.tuples(st.booleans(), st.booleans()),
    factors=st.sampled_from([(1.0, 0.0), (1.0, 1.0), (-2.0, 0.5), (0.5, 0.0)]), beyond=st.integers(0, 3),
)  # fmt: skip
@example(kind=KINDS[0], m=1040, n=200, k=800, turned=(False, True), factors=(1.0, 0.5), beyond=0)
@example(kind=KINDS[0], m=400, n=530, k=800, turned=(True, True), factors=(1.0, 1.0), beyond=1)
def test_products_are_within_the_bound_of_their_sums(
    kind: tuple[DType, int], m: int, n: int, k: int, turned: tuple[bool, bool], factors: tuple[float, float], beyond: int
) -> None:
    assert_within_bound(kind, m, n, k, turned, factors, beyond, thin=False)


@settings(max_examples=100, deadline=None)
@given(
    kind=st.sampled_from(KINDS), few=st.integers(1, 8), many=SIZES, k=SIZES, by_rows=st.booleans(), other=st.booleans(),
    factors=st.sampled_from([(1.0, 0.0), (1.0, 1.0), (-2.0, 0.5)]), beyond=st.integers(0, 3),
)  # fmt: skip
@example(kind=KINDS[0], few=5, many=7, k=9000, by_rows=True, other=True, factors=(1.0, 0.5), beyond=1)
@example(kind=KINDS[2], few=3, many=9, k=4097, by_rows=False, other=False, factors=(1.0, 0.0), beyond=0)
def test_thin_products_are_within_the_bound_of_their_sums(
    kind: tuple[DType, int], few: int, many: int, k: int, by_rows: bool, other: bool, factors: tuple[float, float], beyond: int
) -> None:
    few = min(few, TILES[kind[0].itemsize * kind[1]].thin)
    m, n, turned = (few, many, (other, True)) if by_rows else (many, few, (False, other))
    assert is_thin(*kind, m, n, turned)
    assert_within_bound(kind, m, n, k, turned, factors, beyond, thin=True)


def assert_within_bound(
    kind: tuple[DType, int],
    m: int,
    n: int,
    k: int,
    turned: tuple[bool, bool],
    factors: tuple[float, float],
    beyond: int,
    thin: bool,
) -> None:
    (dtype, lanes), (alpha, beta) = kind, factors
    a = matrix(*((k, m) if turned[0] else (m, k)), dtype, 0, beyond)
    b = matrix(*((n, k) if turned[1] else (k, n)), dtype, 1, beyond)
    whole = np.random.default_rng(2).standard_normal((m, n + 2)).astype(dtype.numpy)
    before, c = whole.copy(), whole[:, :n]
    if beta == 0:
        c[...] = np.nan
    multiply(dtype, lanes, a, b, c, turned, alpha, beta, thin)
    left, right = (x.T if t else x for x, t in zip((a.astype(np.float64), b.astype(np.float64)), turned, strict=True))
    expected = alpha * (left @ right) + (beta * before[:, :n].astype(np.float64) if beta else 0)
    eps = float(np.finfo(dtype.numpy).eps)
    bound = k * eps * abs(alpha) * (np.abs(left) @ np.abs(right)) + 4 * eps * np.abs(expected) + 1e-30
    assert (np.abs(c - expected) <= bound).all()
    assert np.array_equal(whole[:, n:], before[:, n:])


def test_which_products_are_thin() -> None:
    dtype, lanes = KINDS[0]
    assert is_thin(dtype, lanes, 8, 500, (False, True)) and is_thin(dtype, lanes, 500, 8, (False, False))
    assert not is_thin(dtype, lanes, 9, 500, (False, True)) and not is_thin(dtype, lanes, 500, 9, (False, False))
    assert not is_thin(dtype, lanes, 8, 500, (False, False)) and not is_thin(dtype, lanes, 500, 8, (True, True))


@pytest.mark.parametrize(("dtype", "lanes"), KINDS)
def test_an_element_has_the_same_bits_wherever_it_lies_in_a_thin_product(dtype: DType, lanes: int) -> None:
    few = TILES[lanes * dtype.itemsize].thin
    a, b = matrix(few, 203, dtype, 0), matrix(150, 203, dtype, 1)
    whole, part, turned = np.empty((few, 150), dtype.numpy), np.empty((2, 37), dtype.numpy), np.empty((150, few), dtype.numpy)
    multiply(dtype, lanes, a, b, whole, (False, True), thin=True)
    multiply(dtype, lanes, a[3:5], b[70:107], part, (False, True), thin=True)
    columns = np.ascontiguousarray(a.T)
    multiply(dtype, lanes, b, columns, turned, (False, False), thin=True)
    assert np.array_equal(part, whole[3:5, 70:107]) and np.array_equal(turned.T, whole)


@pytest.mark.parametrize(("dtype", "lanes"), KINDS)
@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False)])
def test_an_element_has_the_same_bits_wherever_it_lies_in_a_product(turned: tuple[bool, bool], dtype: DType, lanes: int) -> None:
    m, n, k = 205, 203, 300
    a = matrix(*((k, m) if turned[0] else (m, k)), dtype, 0)
    b = matrix(*((n, k) if turned[1] else (k, n)), dtype, 1)
    whole = np.empty((m, n), dtype.numpy)
    multiply(dtype, lanes, a, b, whole, turned)
    for rows, columns in ((slice(0, 1), slice(0, n)), (slice(7, 40), slice(5, 6)), (slice(100, m), slice(64, 130))):
        part = np.empty_like(whole[rows, columns])
        left, right = a[:, rows] if turned[0] else a[rows], b[columns] if turned[1] else b[:, columns]
        multiply(dtype, lanes, left, right, part, turned)
        assert np.array_equal(part, whole[rows, columns])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_reach_their_row_and_column_alone(value: float) -> None:
    for dtype, lanes in KINDS:
        a, b, c = matrix(13, 30, dtype, 0), matrix(70, 30, dtype, 1), np.empty((13, 70), dtype.numpy)
        a[5, 3] = b[33, 8] = value
        multiply(dtype, lanes, a, b, c, (False, True))
        finite = np.isfinite(c)
        assert not finite[5].any() and not finite[:, 33].any()
        assert np.delete(np.delete(finite, 5, 0), 33, 1).all()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="protects pages by the C library's mprotect")
@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("sizes", [(7, 13, 5), (33, 67, 70), (3, 200, 19), (200, 1, 300), (20, 64, 17)])
def test_nothing_is_read_or_written_beyond_the_matrices(sizes: tuple[int, int, int], turned: tuple[bool, bool]) -> None:
    m, n, k = sizes
    for dtype, lanes in KINDS:
        shapes = ((k, m) if turned[0] else (m, k), (n, k) if turned[1] else (k, n), (m, n))
        (a, _), (b, _), (c, _) = operands = [_before_a_wall(shape, dtype) for shape in shapes]
        a[...], b[...] = matrix(*shapes[0], dtype, 0), matrix(*shapes[1], dtype, 1)
        for thin in (False, True)[: 1 + is_thin(dtype, lanes, m, n, turned)]:
            c[...] = np.nan
            multiply(dtype, lanes, a, b, c, turned, thin=thin)  # a read of the wall would end the process
            np.testing.assert_allclose(c, (a.T if turned[0] else a) @ (b.T if turned[1] else b), rtol=0, atol=1e-3)
        del operands


def _before_a_wall(shape: tuple[int, int], dtype: DType) -> tuple[np.ndarray, mmap.mmap]:
    """An array after whose last element a page begins that cannot be read, and its memory."""
    size, page = shape[0] * shape[1] * dtype.itemsize, mmap.PAGESIZE
    pages = -(-size // page)
    memory = mmap.mmap(-1, (pages + 1) * page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + pages * page), page, 0) == 0
    return np.frombuffer(memory, dtype.numpy, shape[0] * shape[1], pages * page - size).reshape(shape), memory


@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, True)])
def test_processors_of_256_bits_have_kernels_of_thin_products_alone(
    monkeypatch: pytest.MonkeyPatch, turned: tuple[bool, bool]
) -> None:
    if products._kernels() is None or not blas.blas().governed:
        pytest.skip("this machine has none")
    functions, policy = linked_for_256_bits(monkeypatch)
    assert (policy.thin, policy.least) == (6, products.LARGE)  # eager mode takes the same ways
    for dtype, lanes, letter in ((dtypes.float32, 8, "s"), (dtypes.float64, 4, "d")):
        for m, n, k in ((5, 300, 150), (300, 5, 150), (40, 60, 70)):
            a = matrix(*((k, m) if turned[0] else (m, k)), dtype, 0)
            b = matrix(*((n, k) if turned[1] else (k, n)), dtype, 1)
            found, own = np.empty((m, n), dtype.numpy), np.empty((m, n), dtype.numpy)
            flags = [blas.TRANSPOSE if t else blas.NO_TRANSPOSE for t in turned]
            operands = [x for y in (a, b) for x in (y.ctypes.data, y.shape[1])]
            functions[letter](blas.ROW_MAJOR, *flags, m, n, k, 1.0, *operands, 0.0, found.ctypes.data, n)
            if is_thin(dtype, lanes, m, n, turned):
                multiply(dtype, lanes, a, b, own, turned, thin=True)
                np.testing.assert_array_equal(found, own)
            else:
                np.testing.assert_allclose(found, (a.T if turned[0] else a) @ (b.T if turned[1] else b), rtol=1e-3, atol=1e-3)


def linked_for_256_bits(monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Callable[..., None]], Policy]:
    """(gemm by its letter, eager mode's policy), as they are on a processor with AVX2 and FMA."""
    monkeypatch.setattr(products, "_kernels", lambda: products.FUSED)
    addresses = products._linked.__wrapped__()
    found = {}
    for letter, number in (("s", ctypes.c_float), ("d", ctypes.c_double)):
        matrix = (ctypes.c_void_p, ctypes.c_int64)
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_int] * 3, *[ctypes.c_int64] * 3, number, *matrix, *matrix, number, *matrix)
        found[letter] = kind(addresses[blas.routine(letter, "gemm")])
    return found, products._Eager(addresses)
