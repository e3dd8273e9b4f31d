"""Pseudoinverse, least squares, rank, condition and exponential of matrices: PyTorch's values and gradients, compiled as eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracejit
from tests.against_torch import numbers, torch

FUNCTIONS: dict[str, tuple[Callable[[Any, Any], Any], tuple[int, ...]]] = {
    "pinv of a tall matrix": (lambda t, a: t.linalg.pinv(a), (5, 3)),
    "pinv of a wide matrix": (lambda t, a: t.linalg.pinv(a), (2, 3, 5)),
    "pinv of a symmetric matrix": (lambda t, a: t.linalg.pinv(a + a.mT, hermitian=True), (4, 4)),
    "pinv with a tolerance": (lambda t, a: t.linalg.pinv(a, rtol=1e-3), (4, 3)),
    "pinv of a matrix whose singular values coincide": (lambda t, a: t.linalg.pinv(a * 0 + t.eye(3, dtype=a.dtype)), (3, 3)),
    "pinv of a matrix of lower rank": (lambda t, a: t.linalg.pinv(a[:, :1] @ a[:1]), (4, 3)),
    "residuals of lstsq": (lambda t, a: t.linalg.lstsq(a, a[:, :2] * 2 + 1, driver="gelsd").residuals, (5, 3)),
    "pinverse": (lambda t, a: t.pinverse(a), (4, 3)),
    "lstsq of a tall matrix": (lambda t, a: t.linalg.lstsq(a, a[:, :1] * 2 + 1).solution, (5, 3)),
    "lstsq of a wide matrix": (lambda t, a: t.linalg.lstsq(a, a[:, :2]).solution, (3, 5)),
    "cond": (lambda t, a: t.linalg.cond(a), (2, 4, 3)),
    "matrix_exp": (lambda t, a: t.matrix_exp(a), (4, 4)),
    "matrix_exp of large matrices": (lambda t, a: t.matrix_exp(a * 10), (2, 3, 3)),
    "cholesky_ex": (lambda t, a: t.linalg.cholesky_ex(a @ a.mT + 2 * t.eye(3, dtype=a.dtype), upper=True).L, (2, 3, 3)),
    "info of cholesky_ex": (lambda t, a: t.linalg.cholesky_ex(a + a.mT).info + a.sum(), (4, 3, 3)),
    "inv_ex": (lambda t, a: t.linalg.inv_ex(a + 3 * t.eye(3, dtype=a.dtype), check_errors=True)[0], (2, 3, 3)),
    "info of inv_ex": (lambda t, a: t.linalg.inv_ex(t.stack([a, a * 0, t.eye(3, dtype=a.dtype)])).info + a.sum(), (3, 3)),
    "solve_ex": (lambda t, a: t.linalg.solve_ex(a + 3 * t.eye(3, dtype=a.dtype), a[0]).result, (3, 3)),
    "solve_ex from the right": (lambda t, a: t.linalg.solve_ex(a + 3 * t.eye(3, dtype=a.dtype), a, left=False)[0], (2, 3, 3)),
    "tensorinv": (lambda t, a: t.linalg.tensorinv(a), (2, 3, 3, 2)),
    "tensorinv of another shape": (lambda t, a: t.linalg.tensorinv(a, ind=1), (6, 3, 2)),
    "tensorsolve": (lambda t, a: t.linalg.tensorsolve(a, a[..., 0, 0]), (2, 3, 3, 2)),
    "tensorsolve with dimensions": (lambda t, a: t.linalg.tensorsolve(a, a[:, 0, :, 0] * 2, dims=(1, 3)), (2, 3, 3, 2)),
    "vander": (lambda t, a: t.vander(a.detach()) + t.vander(a.detach(), 4, True) + a.sum(), (4,)),
    "vander of few powers": (lambda t, a: t.vander(a.detach(), N=2) + a.sum(), (3,)),
    "vander of a batch": (lambda t, a: t.linalg.vander(a, N=5), (2, 3)),
    "matrix_exp of tiny matrices": (lambda t, a: t.linalg.matrix_exp(a * 1e-9), (3, 3)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients_are_those_of_pytorch(name: str) -> None:
    function, shape = FUNCTIONS[name]
    array = numbers(*shape, seed=3)
    results = []
    for library in (torch(), tracejit):
        a = library.tensor(array, requires_grad=True)
        out = function(library, a)
        weights = library.tensor(numbers(*out.shape, seed=4))
        (gradient,) = library.autograd.grad((out * weights).sum(), a)
        results.append((out.detach().numpy(), gradient.numpy()))
    for ours, theirs in zip(results[1], results[0], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9 * max(1.0, float(np.abs(theirs).max())))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_compiled_call_gives_what_an_eager_call_gives(name: str) -> None:
    function, shape = FUNCTIONS[name]
    compiled = tracejit.compile(lambda a: function(tracejit, a))
    for seed in (3, 3, 3, 5):
        a = tracejit.tensor(numbers(*shape, seed=seed), requires_grad=True)
        b = tracejit.tensor(numbers(*shape, seed=seed), requires_grad=True)
        expected, actual = function(tracejit, a), compiled(b)
        np.testing.assert_allclose(actual.detach().numpy(), expected.detach().numpy(), rtol=1e-10, atol=1e-10)
        expected.sum().backward()
        actual.sum().backward()
        np.testing.assert_allclose(b.grad.numpy(), a.grad.numpy(), rtol=1e-8, atol=1e-8)


def test_least_squares_by_an_unknown_driver_is_refused() -> None:
    with pytest.raises(RuntimeError, match="gelsy"):
        tracejit.linalg.lstsq(tracejit.eye(2), tracejit.ones(2, 1), driver="qr")


def test_the_exponential_of_a_matrix_with_an_infinity_is_not_finite() -> None:
    assert not tracejit.isfinite(tracejit.matrix_exp(tracejit.tensor([[float("inf"), 0.0], [0.0, 1.0]]))).all()


def test_matrices_without_a_result_have_nan_and_a_number_in_place_of_an_error_also_in_a_compiled_call() -> None:
    def function(a: Any, b: Any) -> Any:
        return *tracejit.linalg.cholesky_ex(a), *tracejit.linalg.inv_ex(b), *tracejit.linalg.solve_ex(b, b)

    indefinite = tracejit.stack([tracejit.eye(3), tracejit.tensor([[1.0, 0, 0], [0, -1.0, 0], [0, 0, 1.0]])])
    singular = tracejit.stack([tracejit.tensor([[1.0, 2, 3], [2.0, 4, 6], [0, 0, 1.0]]), 2 * tracejit.eye(3)])
    compiled = tracejit.compile(function)
    for call in (function, compiled, compiled, compiled):
        factor, minor, inverse, pivot, solution, _ = call(indefinite, singular)
        assert minor.tolist() == [0, 2] and minor.dtype is tracejit.int32
        assert pivot.tolist()[0] > 0 and pivot.tolist()[1] == 0
        assert factor[0].equal(tracejit.eye(3)) and factor[1].isnan().all()
        assert inverse[0].isnan().all() and inverse[1].equal(tracejit.eye(3) / 2)
        assert solution[0].isnan().all() and solution[1].equal(tracejit.eye(3))
    assert compiled.stats.compiled_calls > 0, compiled.explain()
    for wrong in (
        lambda: tracejit.linalg.cholesky_ex(indefinite, check_errors=True),
        lambda: tracejit.linalg.inv_ex(singular, check_errors=True),
        lambda: tracejit.linalg.solve_ex(singular, singular, check_errors=True),
    ):
        with pytest.raises(tracejit.linalg.LinAlgError, match="info is"):
            wrong()


def test_what_is_no_equation_of_matrices_is_refused() -> None:
    with pytest.raises(RuntimeError, match="strictly positive"):
        tracejit.linalg.tensorinv(tracejit.ones(2, 2), ind=0)
    with pytest.raises(RuntimeError, match="expected prod"):
        tracejit.linalg.tensorinv(tracejit.ones(2, 3, 2))
    with pytest.raises(RuntimeError, match="as many elements"):
        tracejit.linalg.tensorsolve(tracejit.ones(2, 3, 2), tracejit.ones(2))
    with pytest.raises(RuntimeError, match="greater than 1"):
        tracejit.linalg.vander(tracejit.ones(3), N=1)
    with pytest.raises(RuntimeError, match="one-dimensional"):
        tracejit.vander(tracejit.ones(3, 2))
    with pytest.raises(RuntimeError, match="non-negative"):
        tracejit.vander(tracejit.ones(3), -1)
    assert tracejit.vander(tracejit.ones(3), 0).shape == (3, 0)
    assert tracejit.vander(tracejit.tensor([2, 3]), 3).tolist() == [
        [4, 2, 1],
        [9, 3, 1],
    ]
