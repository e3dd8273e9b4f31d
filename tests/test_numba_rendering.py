"""Tests of the rendering for Numba: its text, the arithmetic that Numba by itself would do otherwise, and random nests.  Each nest of the
tests of the LLVM rendering runs by Numba as well (tests/nest_runner.py)."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nest_runner import assert_same_bits, run_numba
from test_llvm_nests import BOOL_BINARY, FLOAT_BINARY, FLOAT_UNARY, INTEGER_BINARY, elementwise, values
from test_python_rendering import softmax_row

from tracejit.core import dtypes
from tracejit.core.dtypes import DType
from tracejit.loops import numba, python
from tracejit.loops.expressions import Expr, Load, Var, builder
from tracejit.loops.language import Axis, Buffer, For, Index, Nest, Reduce, Store

b = builder
NONE: frozenset[Buffer] = frozenset()


def test_the_source_is_the_plain_one_in_patterns_of_numba() -> None:
    rendered = numba.render(softmax_row(), NONE)
    assert rendered.text == (
        '@njit(error_model="numpy")\n'
        "def softmax_row(x, y, n):\n"
        "    # x: float32[], y: float32[]\n"
        "    top_lanes = np.zeros(LANES, float32)\n"
        "    top_lanes[:] = float32(-inf)\n"
        "    for first in range(0, n, LANES):\n"
        "        for lane in range(min(LANES, n - first)):\n"
        "            i = first + lane\n"
        "            top_lanes[lane] = maximum(top_lanes[lane], x[i])\n"
        "    for half in (8, 4, 2, 1):\n"
        "        for k in range(half):\n"
        "            top_lanes[k] = maximum(top_lanes[k], top_lanes[k + half])\n"
        "    top = top_lanes[0]\n"
        "    total_lanes = np.zeros(LANES, float32)\n"
        "    total_lanes_totals = np.zeros(LANES)\n"
        "    for first_2 in range(0, n, LANES):\n"
        "        for lane_2 in range(min(LANES, n - first_2)):\n"
        "            j = first_2 + lane_2\n"
        "            e = _exp_float32((x[j] - top))\n"
        "            y[j] = e\n"
        "            total_lanes[lane_2] += e\n"
        "        if (first_2 + LANES) % BLOCK == 0 or first_2 + 2 * LANES > n:\n"
        "            add_block(total_lanes, total_lanes_totals)\n"
        "    total = float32(sum_of_lanes(total_lanes_totals))\n"
        "    for k_2 in range(n):\n"
        "        y[k_2] = (y[k_2] / total)\n"
        "    return 0\n"
    )
    assert rendered.needs == ("maximum", "_exp_float32", "add_block", "sum_of_lanes")


def test_header_definitions_and_function_run_as_they_stand() -> None:
    rendered = numba.render(softmax_row(), NONE)
    scope: dict[str, object] = {}
    source = "\n".join((numba.HEADER, *numba.definitions(rendered.needs).values(), rendered.text))
    assert "tracejit" not in source
    exec(source, scope)
    x, y, expected = np.array([1.0, 2.0, 3.0], np.float32), np.zeros(3, np.float32), np.zeros(3, np.float32)
    assert scope["softmax_row"](x, y, 3) == 0  # type: ignore[operator]
    python.load(softmax_row())(x, expected, 3)
    assert_same_bits(y, expected, "softmax")


def test_equal_nests_are_compiled_once() -> None:
    assert numba.load(numba.render(softmax_row(), NONE)) is numba.load(numba.render(softmax_row(), NONE))


def test_what_a_function_uses_stands_before_it() -> None:
    names = list(numba.definitions(("corrected_sum", *numba.render(log_nest(), NONE).needs)))
    assert names.index("sum_of_lanes") < names.index("corrected_sum")
    assert names.index("_complete_log_float64") < names.index("_log_float64")


def log_nest() -> Nest:
    x, i = Buffer("x", dtypes.float64), Axis("i")
    at = Index(((i, 1),))
    return Nest("logarithms", (x,), (), (), (For(i, 4, (Store(x, at, b.log(Load(x, at))),)),))


@pytest.mark.parametrize("name", ["np", "njit", "LANES", "maximum", "_exp_float32", "float32", "abs", "min", "class"])
def test_names_never_hide_what_the_functions_use(name: str) -> None:
    x, y, i = Buffer(name, dtypes.float32), Buffer("out", dtypes.float32), Axis(name)
    at, top = Index(((i, 1),)), Var(name, dtypes.float32)
    body = Reduce(i, 3, ((top, "max", b.maximum(b.exp(b.abs(Load(x, at))), 0.0)),))
    array, result = np.array([1.0, -2.0, 0.5], np.float32), np.zeros(1, np.float32)
    assert run_numba(Nest(name, (x, y), (), (), (body, Store(y, Index(), top))), (array, result)) == 0
    np.testing.assert_allclose(result, np.exp(np.float32(2.0)), rtol=1e-6)


@pytest.mark.parametrize("operation", ["add", "sub", "mul"])
def test_int64_wraps_even_where_the_result_is_compared(operation: str) -> None:
    """A compiler that may assume that there is no overflow moves the constant to the other side."""
    x, out, i = Buffer("x", dtypes.int64), Buffer("out", dtypes.bool_), Axis("i")
    at = Index(((i, 1),))
    limits = np.iinfo(np.int64)
    array = np.array([limits.max, limits.min, limits.max - 3, 5, -5], np.int64)
    for constant, bound in ((5, limits.min + 3), (-5, limits.max - 3), (limits.max // 2, 0), (limits.min + 7, 3)):
        compared = b.lt(getattr(b, operation)(Load(x, at), constant), bound)
        nest = Nest("compared", (x, out), (), (), (For(i, 5, (Store(out, at, compared),)),))
        found, expected = np.zeros(5, bool), np.zeros(5, bool)
        run_numba(nest, (array, found))
        python.load(nest)(array, expected)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=lambda d: d.name)
def test_reduced_dtypes_have_the_references_bits_in_both_directions(dtype: DType) -> None:
    narrow, wide, back, i = Buffer("narrow", dtype), Buffer("wide", dtypes.float32), Buffer("back", dtype), Axis("i")
    at = Index(((i, 1),))
    count = 1 << 16
    stores = (Store(wide, at, b.cast(Load(narrow, at), dtypes.float32)), Store(back, at, b.cast(Load(wide, at) * 1.0009, dtype)))
    nest = Nest("conversions", (narrow, wide, back), (), (), (For(i, count, stores),))
    every = np.arange(count, dtype=np.uint16).view(dtype.numpy)
    found = np.zeros(count, np.float32), np.zeros(count, dtype.numpy)
    run_numba(nest, (every, *found))
    with np.errstate(all="ignore"):
        widened = every.astype(np.float32)
        expected = widened, (widened * np.float32(1.0009)).astype(dtype.numpy)
    for a, e in zip(found, expected, strict=True):
        bits, wanted = (array.view(f"u{array.itemsize}") for array in (a, e))
        np.testing.assert_array_equal(bits[~np.isnan(e)], wanted[~np.isnan(e)])
        assert np.isnan(a[np.isnan(e)]).all()


# --- random nests

DTYPES = (dtypes.float32, dtypes.float64, dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.int64, dtypes.bool_)
UNARY = {0: ("logical_not",), 1: ("neg", "abs", "bit_not"), 2: (*FLOAT_UNARY, "exp", "tanh", "log", "sin")}
BINARY = {0: BOOL_BINARY, 1: INTEGER_BINARY, 2: FLOAT_BINARY}
REDUCTIONS = {
    0: ("any", "all"),
    1: ("sum", "prod", "max", "min", "argmax", "argmin"),
    2: ("sum", "prod", "max", "min", "argmax", "argmin"),
}


def random_nest(seed: int, count: int) -> tuple[Nest, tuple[np.ndarray, ...]]:
    """A loop that stores a few of a dozen operations on values of all kinds, and a reduction of each of them."""
    choose, i, j = random.Random(seed), Axis("i"), Axis("j")
    inputs = tuple(Buffer(f"x{k}", dtype) for k, dtype in enumerate(DTYPES))
    pool: list[Expr] = [Load(x, Index(((i, 1),))) for x in inputs]
    for _ in range(12):
        x = choose.choice(pool[-8:])
        same = [y for y in pool if y.dtype is x.dtype]
        kind = choose.randrange(4)
        if kind == 0:
            pool.append(getattr(b, choose.choice(UNARY[x.dtype.category]))(x))
        elif kind == 1:
            pool.append(getattr(b, choose.choice(BINARY[x.dtype.category]))(x, choose.choice(same)))
        elif kind == 2:
            pool.append(b.cast(x, choose.choice(DTYPES)))
        else:
            truths = [y for y in pool if y.dtype is dtypes.bool_]
            pool.append(b.select(choose.choice(truths), x, choose.choice(same)))
    nest, outputs = elementwise(pool[-4:], inputs, i, count)
    stores, results = list(nest.body), []
    for k, e in enumerate(pool[-4:]):
        combine = choose.choice(REDUCTIONS[e.dtype.category])
        found = Var(f"r{k}", dtypes.int64 if combine.startswith("arg") else e.dtype)
        stored = Load(nest.buffers[len(inputs) + k], Index(((j, 1),)))
        results.append(Buffer(f"result{k}", found.dtype))
        stores += [Reduce(j, nest.sizes[0], ((found, combine, stored),)), Store(results[-1], Index(), found)]
    arrays = tuple(values(dtype, count, seed + k) for k, dtype in enumerate(DTYPES))
    full = Nest("random", (*nest.buffers, *results), nest.sizes, (), tuple(stores))
    return full, (*arrays, *outputs, *(np.zeros(1, r.dtype.numpy) for r in results))


@given(st.integers(0, 1 << 30), st.sampled_from((1, 15, 16, 17, 300)))
@settings(max_examples=6, deadline=None)  # a second each
def test_random_nests_have_the_references_bits(seed: int, count: int) -> None:
    nest, arrays = random_nest(seed, count)
    expected, found = ([a.copy() for a in arrays] for _ in range(2))
    assert python.load(nest)(*expected, count) == run_numba(nest, tuple(found), (count,)) == 0
    for name, a, e in zip(nest.buffers, found, expected, strict=True):
        assert_same_bits(a, e, f"{name} of\n{python.render(nest)}")
