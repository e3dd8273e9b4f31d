"""Sums of rows as composites make them: exact within NumPy's own bound, whichever way through memory they take."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tracejit.ops.composites.rows import dotted, summed

SHAPES = [
    ((7,), (0,)), ((3, 5), (1,)), ((3, 5), (0,)), ((3, 5), (0, 1)), ((2, 3, 4, 5), (0, 2, 3)), ((2, 3, 4, 5), (3,)), ((2, 3, 4, 5), (1,)),
    ((2, 3, 30, 40), (0, 2, 3)), ((4, 512), (1,)), ((4, 513), (1,)), ((2, 1), (1,)), ((0, 3), (1,)), ((3, 0), (1,)),
    ((2, 3, 1, 1), (0, 2, 3)),
]  # fmt: skip


def _numbers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * 3).astype(dtype)


def _exact(x: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
    moved = np.moveaxis(x.astype(np.float64), dims, range(-len(dims), 0))
    rows = moved.reshape(math.prod(moved.shape[: x.ndim - len(dims)]), math.prod(x.shape[d] for d in dims))
    sums = np.array([math.fsum(row) for row in rows])
    return sums.reshape([1 if d in dims else s for d, s in enumerate(x.shape)])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("shape", "dims"), SHAPES)
@pytest.mark.parametrize("order", ["C", "F"])
def test_sums_are_as_exact_as_numpys(shape: tuple[int, ...], dims: tuple[int, ...], dtype: str, order: str) -> None:
    x, y = (np.asarray(_numbers(shape, dtype, seed), order=order) for seed in (0, 1))
    for actual, terms in ((summed(x, dims), x), (dotted(x, y, dims), x.astype(np.float64) * y)):
        expected = _exact(np.asarray(terms), dims)
        bound = 64 * np.finfo(dtype).eps * _exact(np.abs(terms), dims)
        assert actual.shape == expected.shape and actual.dtype == x.dtype
        assert (np.abs(actual - expected) <= bound).all()


def test_infinities_and_nan_stay_in_their_rows() -> None:
    x = np.ones((4, 3), np.float32)
    x[1, 1], x[2, 0], x[2, 2], x[3, 1] = np.inf, np.inf, -np.inf, np.nan
    with np.errstate(invalid="ignore"):
        answers = summed(x, (1,)), dotted(x, np.ones_like(x), (1,))
    for answer in answers:
        np.testing.assert_array_equal(answer, np.array([[3], [np.inf], [np.nan], [np.nan]], np.float32))


def test_one_operand_may_lie_otherwise_in_memory() -> None:
    x, y = _numbers((6, 5), "float32"), _numbers((5, 6), "float32", 1).T
    np.testing.assert_allclose(dotted(x, y, (1,)), (x * y).sum(1, keepdims=True), rtol=1e-5)
