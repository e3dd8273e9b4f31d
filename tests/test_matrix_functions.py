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
