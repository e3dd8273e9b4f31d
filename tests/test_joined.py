"""Stacks, joins and rolls, which move elements: as NumPy does, row-major, in programs as well, and back in gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracejit as T

DTYPES = (T.float32, T.int64, T.bool, T.float16, T.bfloat16)
SHAPES = st.lists(st.integers(0, 3), max_size=3).map(tuple)


def parts(shape: tuple[int, ...], count: int, dtype: Any) -> list[Any]:
    generator = np.random.default_rng(0)
    made = [T.from_numpy(generator.integers(0, 9, shape[::-1]).astype(np.float32)).to(dtype) for _ in range(count)]
    return [
        x.permute(*reversed(range(x.ndim))) if i % 2 else x.permute(*reversed(range(x.ndim))).clone() for i, x in enumerate(made)
    ]


@given(SHAPES, st.integers(1, 4), st.sampled_from(DTYPES), st.data())
def test_a_stack_is_that_of_numpy_along_any_dimension(shape: tuple[int, ...], count: int, dtype: Any, data: Any) -> None:
    dim = data.draw(st.integers(-len(shape) - 1, len(shape)))
    given = parts(shape, count, dtype)
    found = T.stack(given, dim)
    assert found.dtype is dtype and found.is_contiguous()
    assert np.array_equal(found.float().numpy(), np.stack([x.float().numpy() for x in given], dim))


@given(SHAPES, st.integers(-5, 5), st.data())
def test_a_roll_is_that_of_numpy(shape: tuple[int, ...], shift: int, data: Any) -> None:
    dim = data.draw(st.one_of(st.none(), st.integers(0, len(shape) - 1) if shape else st.none()))
    (x,) = parts(shape, 1, T.float32)
    found = T.roll(x, shift) if dim is None else T.roll(x, shift, dim)
    assert found.is_contiguous() and np.array_equal(found.numpy(), np.roll(x.numpy(), shift, dim))


def test_what_does_not_fit_is_refused_with_the_shapes() -> None:
    with pytest.raises(
        RuntimeError, match=r"stack\(\): each tensor must have the same shape, got \[2\] for tensor 0 and \[4\] for tensor 1"
    ):
        T.stack([T.zeros(2), T.zeros(4), T.zeros(3)])
    with pytest.raises(
        RuntimeError, match=r"stack\(\): each tensor must have the same shape, got \[2, 1\] for tensor 0 and \[2\] for tensor 1"
    ):
        T.stack([T.zeros(2, 1), T.zeros(2)])
    with pytest.raises(RuntimeError, match=r"must match except in dimension 0: tensor 0 has shape \[2\], tensor 1 \[2, 1\]"):
        T.cat([T.zeros(2), T.zeros(2, 1)])
    with pytest.raises(TypeError, match="expected Tensor as element 1 of tensors, but got float"):
        T.cat([T.zeros(2), 1.0])  # type: ignore[list-item]
    assert T.cat([T.zeros(0), T.ones(2, 2)]).tolist() == [[1, 1], [1, 1]]
    assert T.stack([T.tensor(1), T.tensor(2.5)]).tolist() == [1.0, 2.5]


def test_programs_and_gradients_move_elements_back() -> None:
    def moved(x: Any, y: Any) -> Any:
        out = T.roll(T.stack([x, y, x], 1), 2, 0)
        weights = T.arange(out.numel(), dtype=T.float32).reshape(out.shape)
        return out.detach(), *T.autograd.grad((out * weights).sum(), [x, y])

    x, y = T.arange(5.0).requires_grad_(), (-T.arange(5.0)).requires_grad_()
    expected, compiled = moved(x, y), T.compile(moved)
    assert expected[1].tolist() == [2 * 3 * i + 2 for i in (2, 3, 4, 0, 1)]
    for _ in range(3):
        for one, other in zip(compiled(x, y), expected, strict=True):
            assert one.numpy().tobytes() == other.numpy().tobytes(), compiled.explain()
    assert T.autograd.gradgradcheck(lambda a: T.roll(T.stack([a, a * a]), 1), (T.arange(3.0, dtype=T.float64).requires_grad_(),))
