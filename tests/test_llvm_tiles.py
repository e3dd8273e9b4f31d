"""Tests of loops in tiles: transposed accesses are vectors, whatever is left over at the ends, and only where iterations may change
places."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nest_runner import TARGETS, assert_renderings_agree

import tracejit as T
from tracejit.core import dtypes
from tracejit.core.dtypes import DType
from tracejit.llvm.reductions import Emitter
from tracejit.loops import python
from tracejit.loops.expressions import Expr, Load, Var
from tracejit.loops.language import Axis, Buffer, For, Index, Let, Nest, Size, Store
from tracejit.loops.rewrites.pipeline import rewritten
from tracejit.loops.target import Target

N, M = Size("n"), Size("m")


def transposed_copy(dtype: DType, extra: Expr | None = None) -> Nest:
    """out[i, j] = x[j, i] for n rows of m."""
    x, out, i, j = Buffer("x", dtype), Buffer("out", dtype), Axis("i"), Axis("j")
    load: Expr = Load(x, Index(((i, 1), (j, N)), 3))
    inner = For(j, M, (Store(out, Index(((i, M), (j, 1))), load),), vector=True)
    return Nest("transposed", (x, out), (N, M), (), (For(i, N, (inner,)),))


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(1, 1), (3, 40), (40, 3), (16, 16), (17, 32), (32, 31), (35, 50)])
def test_a_transposed_copy_is_exact_for_whole_tiles_and_what_is_left_over(dtype: DType, shape: tuple[int, int]) -> None:
    n, m = shape
    x = np.random.default_rng(0).integers(0, 2 if dtype is dtypes.bool_ else 100, n * m + 3).astype(dtype.numpy)
    out = np.zeros(n * m + 2, dtype.numpy)
    result = assert_renderings_agree(transposed_copy(dtype), (x, out), (n, m))[1]
    np.testing.assert_array_equal(result[: n * m].reshape(n, m), x[3:].reshape(m, n).T)
    assert not result[n * m :].any()


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: str(t.bits))
def test_a_tile_is_loaded_in_vectors_and_turned_over_in_registers(target: Target) -> None:
    text = Emitter(rewritten(transposed_copy(dtypes.float32), target), "nest", target).text()
    lanes = target.bits // 32
    assert f"alloca [{lanes * lanes} x float]" in text
    assert text.count(f"shufflevector <{lanes} x float>") == lanes * (lanes.bit_length() - 1)


def test_what_does_not_vary_with_the_inner_loop_is_named_before_it() -> None:
    x, scale, out = (Buffer(name, dtypes.float32) for name in ("x", "scale", "out"))
    i, k, j, factor = Axis("i"), Axis("k"), Axis("j"), Var("factor", dtypes.float32)
    columns, middle, rows = 33, 3, 18
    load = Load(x, Index(((i, 1), (k, rows), (j, rows * middle))))
    store = Store(out, Index(((i, middle * columns), (k, columns), (j, 1))), load * factor)
    body = (For(k, middle, (Let(factor, Load(scale, Index(((i, 1),)))), For(j, columns, (store,), vector=True))),)
    nest = Nest("scaled", (x, scale, out), (), (), (For(i, rows, body),))
    assert "for i in rows:" in python.render(rewritten(nest, TARGETS[0]))
    data = np.arange(rows * middle * columns, dtype=np.float32)
    by_row = np.arange(rows, dtype=np.float32)
    result = assert_renderings_agree(nest, (data, by_row, np.zeros_like(data)))[2]
    expected = data.reshape(columns, middle, rows).transpose(2, 1, 0) * by_row[:, None, None]
    np.testing.assert_array_equal(result.reshape(rows, middle, columns), expected)


@settings(max_examples=25, deadline=None)
@given(
    st.permutations(range(3)),
    st.tuples(*(st.sampled_from([1, 2, 5, 16, 19, 33]) for _ in range(3))),
    st.sampled_from([T.float32, T.float64, T.int64, T.uint8, T.bool]),
)
def test_permuted_tensors_are_copied_and_combined_as_eager_does(
    order: list[int], shape: tuple[int, int, int], dtype: object
) -> None:
    x = (T.arange(shape[0] * shape[1] * shape[2]) % 251).to(dtype).reshape(shape)
    y = (T.arange(x.numel()) % 3).to(dtype).reshape(tuple(shape[d] for d in order))

    def copy(a: T.Tensor, b: T.Tensor) -> tuple[T.Tensor, ...]:
        return a.permute(*order).contiguous(), T.where(b != 0, a.permute(*order), b), (a.permute(*order) == b).sum(1)

    compiled = T.compile(copy)
    compiled(x, y)
    for actual, expected in zip(compiled(x, y), copy(x, y), strict=True):
        np.testing.assert_array_equal(actual.numpy(), expected.numpy())
    assert compiled.stats.compiled_calls == 1


@settings(max_examples=25, deadline=None)
@given(
    st.permutations(range(3)),
    st.tuples(*(st.sampled_from([1, 2, 5, 16, 19]) for _ in range(3))),
    st.sets(st.integers(0, 2), min_size=1),
    st.booleans(),
)
def test_permuted_tensors_are_reduced_over_any_dimensions(
    order: list[int], shape: tuple[int, int, int], dims: set[int], keepdim: bool
) -> None:
    x = (T.arange(shape[0] * shape[1] * shape[2]) % 251).to(T.float64).reshape(shape)

    def reduce(a: T.Tensor) -> tuple[T.Tensor, ...]:
        b = a.permute(*order)
        total = b.sum(tuple(sorted(dims)), keepdim=keepdim)
        return total * 2, b.amax(tuple(sorted(dims)), keepdim=True) - b, (b > 100).any(min(dims)), b.argmax(max(dims))

    compiled = T.compile(reduce)
    compiled(x)
    for actual, expected in zip(compiled(x), reduce(x), strict=True):
        np.testing.assert_array_equal(actual.numpy(), expected.numpy())
    assert compiled.stats.compiled_calls == 1


@pytest.mark.parametrize("shape", [(20, 20), (17, 33), (1, 5)])
def test_compositions_of_transposed_tensors_are_equal_to_eager(shape: tuple[int, int]) -> None:
    rows, columns = shape
    x, row = T.arange(rows * columns).reshape(shape).to(T.float64) % 17, T.arange(rows).to(T.float64)

    def compose(a: T.Tensor, b: T.Tensor) -> tuple[T.Tensor, ...]:
        t = a.t()
        total = (t * t).sum(1, keepdim=True)
        return t / (total + 1), (t * 2 + b) * t, (t * b).sum(0), (t + t.flip(0)).amax(1), (t * t).argmax(0), t.softmax(1)

    compiled = T.compile(compose)
    compiled(x, row)
    for actual, expected in zip(compiled(x, row), compose(x, row), strict=True):
        assert actual.stride() == expected.stride()
        np.testing.assert_allclose(actual.numpy(), expected.numpy(), rtol=1e-14)
    assert compiled.stats.compiled_calls == 1
