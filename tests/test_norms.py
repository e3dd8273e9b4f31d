"""Euclidean norms and distances: their values, and gradients where they are zero."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracejit as T

EPS = np.finfo(np.float32).eps


def normal(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(), (1,), (5,), (513,), (8192,), (100001,), (0,), (3, 4000)])
def test_a_norm_is_the_root_of_the_sum_of_squares(shape: tuple[int, ...], dtype: Any) -> None:
    x = normal(*shape, dtype=dtype)
    expected = np.sqrt(np.sum(np.square(x.astype(np.longdouble))))
    assert T.norm(T.from_numpy(x)).item() == pytest.approx(float(expected), rel=4 * float(np.finfo(dtype).eps))


def test_norms_over_dimensions_keep_them_where_asked_to() -> None:
    x = T.from_numpy(normal(2, 3, 4))
    for dim in (0, 1, 2, (0, 2), (1, 2), None):
        for keepdim in (False, True):
            found = T.norm(x, dim=dim, keepdim=keepdim)
            expected = (
                np.linalg.norm(x.numpy().reshape(-1)) if dim is None else np.sqrt((x.numpy() ** 2).sum(dim, keepdims=keepdim))
            )
            np.testing.assert_allclose(found.numpy().reshape(np.shape(expected)), expected, rtol=1e-6)
            assert found.ndim == (3 if keepdim else 0 if dim is None else 3 - np.size(dim))


def test_the_gradient_of_a_norm_is_the_direction_and_zero_at_zero() -> None:
    x = T.tensor([[3.0, 4.0], [0.0, 0.0]], dtype=T.float64).requires_grad_()
    out = T.norm(x, dim=1)
    out.sum().backward()
    assert out.grad_fn.name() == "LinalgVectorNormBackward0"
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), [[0.6, 0.8], [0.0, 0.0]], rtol=1e-15)
    assert T.autograd.gradgradcheck(lambda v: T.norm(v, dim=1), (T.from_numpy(normal(3, 4, dtype=np.float64)).requires_grad_(),))


def by_pairs(x: Any, y: Any) -> Any:
    return np.sqrt(((x.astype(np.float64)[..., :, None, :] - y.astype(np.float64)[..., None, :, :]) ** 2).sum(-1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sizes", [(3, 4), (26, 3), (3, 26), (300, 700), (0, 40), (40, 0)])
@pytest.mark.parametrize("batch", [(), (2, 3)])
def test_distances_are_those_of_pairs_whether_or_not_a_product_computes_them(
    batch: tuple[int, ...], sizes: tuple[int, int], dtype: Any
) -> None:
    x, y = normal(*batch, sizes[0], 5, dtype=dtype) + 100, normal(*batch, sizes[1], 5, seed=1, dtype=dtype) + 100
    found = T.cdist(T.from_numpy(x.astype(dtype)), T.from_numpy(y.astype(dtype)))
    expected = by_pairs(x, y)
    assert found.shape == expected.shape and found.dtype.numpy == dtype
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6, atol=1e-6)
    compiled = T.compile(T.cdist)
    for _ in range(3):
        np.testing.assert_allclose(compiled(T.from_numpy(x), T.from_numpy(y)).numpy(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("rows", [4, 40])
def test_distances_of_equal_rows_are_zero_and_have_no_gradient(rows: int) -> None:
    values = normal(rows, 3)
    x, y = (T.from_numpy(values.copy()).requires_grad_() for _ in range(2))
    distances = T.cdist(x, y)
    assert distances.diagonal().abs().max().item() < 1e-6
    distances.diagonal().sum().backward()
    assert x.grad is not None and y.grad is not None and T.isfinite(x.grad).all() and T.isfinite(y.grad).all()


@pytest.mark.parametrize("rows", [3, 30])
def test_gradients_of_distances_agree_with_differences(rows: int) -> None:
    x, y = (T.from_numpy(normal(n, 2, seed=n, dtype=np.float64)).requires_grad_() for n in (rows, 4))
    assert T.autograd.gradcheck(T.cdist, (x, y))
    assert T.autograd.gradgradcheck(T.cdist, (x, y))


def test_distances_of_rows_that_do_not_fit_are_refused() -> None:
    with pytest.raises(RuntimeError, match="same number of columns"):
        T.cdist(T.zeros(2, 3), T.zeros(2, 4))
    with pytest.raises(RuntimeError):
        T.cdist(T.zeros(3), T.zeros(2, 3))


def test_distances_of_other_orders_dtypes_and_modes_are_those_of_pairs() -> None:
    x, y = normal(30, 4), normal(40, 4, seed=1)
    pairs = np.abs(x[:, None] - y[None])
    a, b = T.from_numpy(x), T.from_numpy(y)
    np.testing.assert_allclose(T.cdist(a, b, 1).numpy(), pairs.sum(-1), rtol=1e-5)
    np.testing.assert_allclose(T.cdist(a, b, float("inf")).numpy(), pairs.max(-1), rtol=1e-6)
    np.testing.assert_allclose(T.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist").numpy(), by_pairs(x, y), rtol=1e-5)
    np.testing.assert_allclose(T.cdist(a.half(), b.half()).float().numpy(), by_pairs(x, y), rtol=4e-3)
    assert T.cdist(a[None], b).shape == (1, 30, 40)
