"""Reductions in machine code: the fixed tree, positions of extremes, integers."""

from __future__ import annotations

import numpy as np
import pytest
from nest_runner import TARGETS, assert_renderings_agree, run_compiled
from test_llvm_nests import COUNTS, FLOATS, b, values

from tracejit.core import dtypes
from tracejit.core.dtypes import DType
from tracejit.llvm.reductions import Emitter
from tracejit.loops.expressions import Load, Var
from tracejit.loops.language import Axis, Buffer, Index, Let, Nest, Reduce, Size, Store
from tracejit.loops.target import Target


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_reductions_of_floats_follow_the_fixed_tree(dtype: DType) -> None:
    X, R, P, i, n = Buffer("x", dtype), Buffer("out", dtype), Buffer("position", dtypes.int64), Axis("i"), Size("n")
    load = Load(X, Index(((i, 1),)))
    names = ["sum", "prod", "max", "min"]
    results = [Var(name, dtype) for name in names] + [Var("largest", dtypes.int64), Var("smallest", dtypes.int64)]
    items = [(v, name, load) for v, name in zip(results, [*names, "argmax", "argmin"], strict=True)]
    items.append((Var("squares", dtype), "sum", load * load))
    stores = [Store(R, Index((), k), v) for k, v in enumerate(results[:4])] + [Store(R, Index((), 4), items[-1][0])]
    stores += [Store(P, Index((), k), v) for k, v in enumerate(results[4:])]
    nest = Nest("reductions", (X, R, P), (n,), (), (Reduce(i, n, tuple(items)), *stores))
    for count in COUNTS:
        x = np.random.default_rng(count).normal(1, 0.1, max(count, 1)).astype(dtype.numpy)
        result = assert_renderings_agree(nest, (x, np.zeros(5, dtype.numpy), np.zeros(2, np.int64)), (count,))
        if count:
            exact = x[:count].astype(np.longdouble).sum()
            assert abs(result[1][0] - exact) <= 24 * np.finfo(dtype.numpy).eps / 2 * exact
            assert tuple(result[2]) == (x[:count].argmax(), x[:count].argmin())
            assert result[1][2] == x[:count].max()
    for count in (17, 300):
        x = values(dtype, count, 4)
        assert_renderings_agree(nest, (x, np.zeros(5, dtype.numpy), np.zeros(2, np.int64)), (count,))
        x = np.where(np.isfinite(x), np.sign(x), 2).astype(dtype.numpy)  # ties
        result = assert_renderings_agree(nest, (x, np.zeros(5, dtype.numpy), np.zeros(2, np.int64)), (count,))
        assert tuple(result[2]) == (x.argmax(), x.argmin())


@pytest.mark.parametrize("dtype", [*FLOATS, dtypes.bool_, dtypes.uint8, dtypes.int32, dtypes.int64], ids=lambda d: d.name)
@pytest.mark.parametrize("position", [dtypes.int32, dtypes.int64], ids=lambda d: d.name)
def test_positions_of_extremes_are_the_first_ones_and_those_of_nan_first_of_all(dtype: DType, position: DType) -> None:
    X, P, i, n = Buffer("x", dtype), Buffer("position", position), Axis("i"), Size("n")
    load = Load(X, Index(((i, 1),)))
    items = tuple((Var(name, position), name, load) for name in ("argmax", "argmin"))
    stores = [Store(P, Index((), k), var) for k, (var, _, _) in enumerate(items)]
    nest = Nest("positions", (X, P), (n,), (), (Reduce(i, n, items), *stores))
    generator = np.random.default_rng(0)
    for count in (1, 2, 15, 16, 17, 33, 70, 300):
        few = generator.integers(0, 2 if dtype is dtypes.bool_ else 4, count).astype(dtype.numpy)  # ties
        cases = [few, np.zeros_like(few), np.ones_like(few), np.sort(values(dtype, count, count))]
        if dtype.is_floating_point:
            cases += [np.full_like(few, np.inf), np.full_like(few, -np.inf)]
            for positions in ([0], [count - 1], [count // 2, count - 1], range(count), range(count // 3, count)):
                cases.append(few.copy())
                cases[-1][list(positions)] = np.nan
        for x in cases:
            result = assert_renderings_agree(nest, (x, np.zeros(2, position.numpy)), (count,))
            assert tuple(result[1]) == (x.argmax(), x.argmin()), x


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: str(t.bits))
def test_a_position_within_a_row_is_kept_in_no_more_bits_than_it_needs(target: Target) -> None:
    X, P, i = Buffer("x", dtypes.float32), Buffer("position", dtypes.int64), Axis("i")
    position = Var("position", dtypes.int32)
    reduce = Reduce(i, 160, ((position, "argmax", Load(X, Index(((i, 1),)))),))
    text = Emitter(
        Nest("position", (X, P), (), (), (reduce, Store(P, Index(), b.cast(position, dtypes.int64)))), "nest", target
    ).text()
    assert "x i64>" not in text
    assert text.count("= phi <16 x ") == 3  # the extreme, its group, the first NaN's group


@pytest.mark.parametrize("count", [1, 5, 16, 31, 256, 272, 530, 777])
def test_reductions_over_exact_extents_follow_the_same_tree(count: int) -> None:
    X, R, P, i = Buffer("x", dtypes.float32), Buffer("out", dtypes.float32), Buffer("y", dtypes.float32), Axis("i")
    load, at = Load(X, Index(((i, 1),))), Index(((i, 1),))
    total, top, kept = Var("total", dtypes.float32), Var("top", dtypes.float32), Var("kept", dtypes.float32)
    reduce = Reduce(i, count, ((total, "sum", kept), (top, "max", load)), (Let(kept, b.exp(load)), Store(P, at, kept)))
    nest = Nest("exact", (X, R, P), (), (), (reduce, Store(R, Index(), total), Store(R, Index((), 1), top)))
    x = np.random.default_rng(1).normal(size=count).astype(np.float32)
    result = assert_renderings_agree(nest, (x, np.zeros(2, np.float32), np.zeros(count + 1, np.float32)))
    np.testing.assert_allclose(result[1][0], np.exp(x.astype(np.float64)).sum(), rtol=1e-6)


@pytest.mark.parametrize("dtype", [dtypes.bool_, dtypes.uint8, dtypes.int64], ids=lambda d: d.name)
def test_reductions_of_integers_and_bools_agree(dtype: DType) -> None:
    X, R, F, i, n = Buffer("x", dtype), Buffer("out", dtypes.int64), Buffer("flags", dtypes.bool_), Axis("i"), Size("n")
    load = Load(X, Index(((i, 1),)))
    wide = b.cast(load, dtypes.int64)
    whole = [
        (Var("sum", dtypes.int64), "sum", wide),
        (Var("prod", dtypes.int64), "prod", wide | 1),
        (Var("position", dtypes.int64), "argmax", load),
    ]
    whole += [(Var("max", dtype), "max", load), (Var("min", dtype), "min", load)]
    truth = [
        (Var("any", dtypes.bool_), "any", b.cast(load, dtypes.bool_)),
        (Var("all", dtypes.bool_), "all", b.cast(load, dtypes.bool_)),
    ]
    stores = [Store(R, Index((), k), b.cast(item[0], dtypes.int64)) for k, item in enumerate(whole)]
    stores += [Store(F, Index((), k), item[0]) for k, item in enumerate(truth)]
    nest = Nest("integers", (X, R, F), (n,), (), (Reduce(i, n, (*whole, *truth)), *stores))
    for count in COUNTS:
        x = values(dtype, max(count, 1), count)
        result = assert_renderings_agree(nest, (x, np.zeros(5, np.int64), np.zeros(2, np.bool_)), (count,))
        if count:
            x = x[:count]
            assert result[1][0] == x.sum(dtype=np.int64) and result[1][2] == x.argmax() and result[1][3] == x.max()
            assert tuple(result[2]) == (x.any(), x.all())


def test_a_float64_sum_is_more_accurate_than_numpys() -> None:
    X, R, i = Buffer("x", dtypes.float64), Buffer("out", dtypes.float64), Axis("i")
    total = Var("total", dtypes.float64)
    count = 200_000
    nest = Nest(
        "long", (X, R), (), (), (Reduce(i, count, ((total, "sum", Load(X, Index(((i, 1),)))),)), Store(R, Index(), total))
    )
    x, out = np.random.default_rng(0).random(count), np.zeros(1)
    run_compiled(nest, (x, out))
    exact = x.astype(np.longdouble).sum()
    assert abs(out[0] - exact) <= 2 * np.spacing(np.float64(exact))
