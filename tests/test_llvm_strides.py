"""Tests of small strides: every second, third or fourth element is read in vectors, and columns are stored as rows, within bounds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nest_runner import TARGETS, assert_renderings_agree

import tracejit as T
from tracejit.core import dtypes
from tracejit.core.dtypes import DType
from tracejit.llvm.reductions import Emitter
from tracejit.loops.expressions import Load
from tracejit.loops.language import Axis, Buffer, For, Index, Nest, Size, Store
from tracejit.loops.rewrites.pipeline import rewritten
from tracejit.loops.target import Target

N = Size("n")
SOME = (dtypes.bool_, dtypes.uint8, dtypes.int16, dtypes.float32, dtypes.float64)


def numbers(dtype: DType, count: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 2 if dtype is dtypes.bool_ else 100, count).astype(dtype.numpy)


def every(dtype: DType, step: int) -> Nest:
    x, out, i = Buffer("x", dtype), Buffer("out", dtype), Axis("i")
    store = Store(out, Index(((i, 1),)), Load(x, Index(((i, step),), 1)))
    return Nest("every", (x, out), (N,), (), (For(i, N, (store,), vector=True),))


def columns(dtype: DType, count: int) -> Nest:
    sources = tuple(Buffer(f"x{k}", dtype) for k in range(count))
    out, i = Buffer("out", dtype), Axis("i")
    stores = tuple(Store(out, Index(((i, count),), 1 + k), Load(x, Index(((i, 1),)))) for k, x in enumerate(sources))
    return Nest("columns", (*sources, out), (N,), (), (For(i, N, stores, vector=True),))


@pytest.mark.parametrize("dtype", SOME, ids=lambda d: d.name)
@pytest.mark.parametrize("step", [2, 3, 4])
def test_elements_some_positions_apart_are_read_exactly(dtype: DType, step: int) -> None:
    for count in (0, 1, 2, 7, 16, 33):
        x = numbers(dtype, max(1 + (count - 1) * step + 1, 2))
        result = assert_renderings_agree(every(dtype, step), (x, np.zeros(count + 1, dtype.numpy)), (count,))[1]
        np.testing.assert_array_equal(result[:count], x[1::step][:count])


@pytest.mark.parametrize("dtype", SOME, ids=lambda d: d.name)
@pytest.mark.parametrize("count", [2, 3, 4])
def test_columns_are_interleaved_and_nothing_else_is_written(dtype: DType, count: int) -> None:
    for rows in (0, 1, 2, 7, 16, 33):
        sources = tuple(numbers(dtype, rows + k + 1) for k in range(count))
        out = np.ones(rows * count + 3, dtype.numpy)
        result = assert_renderings_agree(columns(dtype, count), (*sources, out), (rows,))[-1]
        np.testing.assert_array_equal(result[1 : 1 + rows * count].reshape(rows, count).T, [x[:rows] for x in sources])
        assert result[0] == 1 and (result[1 + rows * count :] == 1).all()


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: str(t.bits))
@pytest.mark.parametrize("make", [every, columns], ids=["loads", "stores"])
@pytest.mark.parametrize("step", [2, 3, 4])
def test_whole_vectors_need_no_gather_and_read_nothing_behind_the_last_element(
    make: Callable[[DType, int], Nest], step: int, target: Target
) -> None:
    text = Emitter(rewritten(make(dtypes.float64, step), target), "nest", target).text()
    whole = text[: text.index("= phi i64")] + text[text.index("= phi i64") :].split("br i1")[0]
    assert "shufflevector" in whole
    assert "masked.gather" not in whole and "masked.scatter" not in whole
    lanes = target.lanes(8)
    if make is every:
        steps = (line for line in whole.splitlines() if "getelementptr double, ptr %v" in line and ", i64 %" not in line)
        starts = [int(line.rsplit(" ", 1)[1]) for line in steps]
        assert max(starts) + lanes - 1 == (lanes - 1) * step


def test_a_column_computed_from_the_table_is_stored_by_itself() -> None:
    out, i = Buffer("out", dtypes.float32), Axis("i")
    first = Store(out, Index(((i, 2),)), Load(out, Index(((i, 2),))) + 1.0)
    second = Store(out, Index(((i, 2),), 1), Load(out, Index(((i, 2),))) * 2.0)
    nest = Nest("dependent", (out,), (N,), (), (For(i, N, (first, second), vector=True),))
    (result,) = assert_renderings_agree(nest, (numbers(dtypes.float32, 80),), (40,))
    np.testing.assert_array_equal(result[1::2], result[::2] * 2)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=4).filter(lambda widths: 0 < sum(widths) <= 6),
    st.sampled_from([(16,), (37,), (5, 7), (2, 3, 8)]),
    st.sampled_from([T.float32, T.float64, T.int64, T.uint8, T.bool]),
    st.integers(1, 4),
    st.booleans(),
)
def test_narrow_tables_are_joined_and_taken_apart_as_eager_does(
    widths: list[int], rows: tuple[int, ...], dtype: object, step: int, turned: bool
) -> None:
    parts = []
    for k, width in enumerate(widths):
        shape = (width, *rows) if turned else (*rows, width)
        part = (T.arange(int(np.prod(shape))) % (7 + k)).to(dtype).reshape(shape)
        parts.append(part.permute(*range(1, len(rows) + 1), 0) if turned else part)

    def join(*tables: T.Tensor) -> tuple[T.Tensor, ...]:
        whole = T.cat(tables, -1)
        return whole, T.stack([whole[..., 0], whole[..., -1]], -1), (whole == whole.flip(-1)).reshape(-1)[::step]

    compiled = T.compile(join)
    compiled(*parts)
    for actual, expected in zip(compiled(*parts), join(*parts), strict=True):
        np.testing.assert_array_equal(actual.numpy(), expected.numpy())
    assert compiled.stats.compiled_calls == 1
