"""Tests of the Python rendering: its text, its types, and the order of reductions that it spells out."""

from __future__ import annotations

import numpy as np
import pytest

from tracejit.core import dtypes
from tracejit.loops import python
from tracejit.loops.expressions import Load, ScalarParam, Var, builder
from tracejit.loops.language import BLOCK, LANES, Axis, Buffer, Exit, For, Index, Let, Nest, Reduce, Scalar, Size, Store

b = builder
F32 = dtypes.float32


def softmax_row() -> Nest:
    x, y, i, j, k, n = Buffer("x", F32), Buffer("y", F32), Axis("i"), Axis("j"), Axis("k"), Size("n")
    top, total, e = Var("top", F32), Var("total", F32), Var("e", F32)
    body = (
        Reduce(i, n, ((top, "max", Load(x, Index(((i, 1),)))),)),
        Reduce(j, n, ((total, "sum", e),), (Let(e, b.exp(Load(x, Index(((j, 1),))) - top)), Store(y, Index(((j, 1),)), e))),
        For(k, n, (Store(y, Index(((k, 1),)), Load(y, Index(((k, 1),))) / total),), vector=True),
    )
    return Nest("softmax_row", (x, y), (n,), (), body)


def test_the_source_reads_like_the_algorithm() -> None:
    assert python.render(softmax_row()) == (
        "def softmax_row(x, y, n):\n"
        "    # x: float32[], y: float32[]\n"
        "    top_lanes = Lanes('max', 'float32', n)\n"
        "    for i in range(n):\n"
        "        top_lanes.take(i, x[i])\n"
        "    top = float32(top_lanes.result())\n"
        "    total_lanes = Lanes('sum', 'float32', n)\n"
        "    for j in range(n):\n"
        "        e = exp((x[j] - top))\n"
        "        y[j] = e\n"
        "        total_lanes.take(j, e)\n"
        "    total = float32(total_lanes.result())\n"
        "    for k in range(n):\n"
        "        y[k] = (y[k] / total)\n"
        "    return 0\n"
    )


def test_the_source_runs_as_it_stands() -> None:
    x, y = np.array([1.0, 2.0, 3.0], np.float32), np.zeros(3, np.float32)
    assert python.load(softmax_row())(x, y, 3) == 0
    np.testing.assert_allclose(y, np.exp(x) / np.exp(x).sum(), rtol=1e-6)


def test_scalars_keep_their_dtype() -> None:
    x, out, i, s = Buffer("x", F32), Buffer("out", F32), Axis("i"), Scalar("s", F32)
    value = Load(x, Index(((i, 1),))) * ScalarParam(s) + 0.1
    nest = Nest("scaled", (x, out), (), (s,), (For(i, 1, (Store(out, Index(((i, 1),)), value),)),))
    array, result = np.array([1 / 3], np.float32), np.zeros(1, np.float32)
    python.load(nest)(array, result, np.float32(3.3))
    assert result[0] == array[0] * np.float32(3.3) + np.float32(0.1)


def test_a_value_used_twice_is_computed_once() -> None:
    x, out, i = Buffer("x", F32), Buffer("out", F32), Axis("i")
    e = b.exp(Load(x, Index(((i, 1),))))
    nest = Nest("twice", (x, out), (), (), (For(i, 4, (Store(out, Index(((i, 1),)), e * e),)),))
    assert python.render(nest).count("exp(") == 1


def test_names_never_collide_with_operations_or_each_other() -> None:
    x, out, i = Buffer("exp", F32), Buffer("class", F32), Axis("exp")
    nest = Nest("exp", (x, out), (), (), (For(i, 2, (Store(out, Index(((i, 1),)), b.exp(Load(x, Index(((i, 1),))))),)),))
    array, result = np.zeros(2, np.float32), np.zeros(2, np.float32)
    assert python.load(nest)(array, result) == 0
    assert (result == 1).all()


def test_an_exit_returns_its_code_before_anything_later() -> None:
    x, i, code = Buffer("x", F32), Axis("i"), Scalar("code", dtypes.int64)
    body = (Exit(b.lt(Load(x, Index(((i, 1),))), 0.0), code), Store(x, Index(((i, 1),)), b.const(5.0, F32)))
    nest = Nest("guarded", (x,), (), (code,), (For(i, 3, body),))
    array = np.array([1.0, -1.0, 1.0], np.float32)
    assert python.load(nest)(array, np.int64(4)) == 4
    assert array.tolist() == [5, -1, 1]


def test_a_variable_that_nothing_names_is_an_error() -> None:
    x, stray = Buffer("x", F32), Var("stray", F32)
    with pytest.raises(ValueError, match="'stray' is used before"):
        python.render(Nest("wrong", (x,), (), (), (Store(x, Index(), stray),)))


@pytest.mark.parametrize("count", [1, LANES - 1, LANES, BLOCK + 3 * LANES + 5])
def test_sums_take_lanes_in_blocks_and_the_remainder_in_float64(count: int) -> None:
    x = np.random.default_rng(count).normal(size=count).astype(np.float32)
    lanes = python.Lanes("sum", F32, count)
    for i in range(count):
        lanes.take(i, x[i])
    full = count // LANES * LANES
    totals = np.zeros(LANES)
    for start in range(0, full, BLOCK):
        partial = np.zeros(LANES, np.float32)
        for group in range(start, min(start + BLOCK, full), LANES):
            partial += x[group : group + LANES]
        totals += partial
    totals[: count - full] += x[full:]
    while totals.size > 1:
        totals = totals[: totals.size // 2] + totals[totals.size // 2 :]
    assert lanes.result() == totals[0]


def test_an_infinite_sum_is_infinite() -> None:
    lanes = python.Lanes("sum", dtypes.float64, 3)
    with np.errstate(invalid="ignore"):
        for i, value in enumerate([1.0, np.inf, 2.0]):
            lanes.take(i, np.float64(value))
        assert lanes.result() == np.inf
