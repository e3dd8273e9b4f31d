"""LU factorisation, solving by its factors, and factorisations of low rank: values and gradients are PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracejit
from tests.against_torch import numbers, torch

SHAPES = [(3, 3), (2, 4, 4), (2, 4, 3), (3, 5), (1, 1), (0, 2, 2)]
FACTORS: dict[str, Callable[[Any, Any], Any]] = {
    "lu": lambda t, x: t.linalg.lu(x)[1:],
    "lu_factor": lambda t, x: t.linalg.lu_factor(x)[:1],
    "lu_factor_ex": lambda t, x: t.linalg.lu_factor_ex(x)[:1],
    "lu_unpack": lambda t, x: t.lu_unpack(*t.linalg.lu_factor(x)),
    "qr": lambda t, x: t.qr(x),
}


def weighed(outputs: Any) -> Any:
    return sum(((i + 1.5) * y * y * y).sum() for i, y in enumerate(outputs))


def assert_values_and_gradients_agree(run: Callable[..., Any], *arrays: np.ndarray) -> None:
    results = []
    for library in (torch(), tracejit):
        given = [library.tensor(a, requires_grad=True) for a in arrays]
        outputs = run(library, *given)
        weighed(outputs).backward()
        results.append([y.detach().numpy() for y in outputs] + [x.grad.numpy() for x in given])
    for expected, actual in zip(*results, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", FACTORS)
def test_factors_and_their_gradients_are_those_of_torch(name: str, shape: tuple[int, ...]) -> None:
    assert_values_and_gradients_agree(FACTORS[name], numbers(*shape))


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("adjoint", [True, False])
def test_solving_by_factors_agrees(left: bool, adjoint: bool) -> None:
    b = numbers(2, 3, 2, seed=1) if left else numbers(2, 2, 3, seed=1)
    assert_values_and_gradients_agree(
        lambda t, x, y: [t.linalg.lu_solve(*t.linalg.lu_factor(x), y, left=left, adjoint=adjoint)], numbers(2, 3, 3), b
    )


@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("transpose", [True, False])
def test_the_older_triangular_solver_agrees(upper: bool, transpose: bool) -> None:
    a = numbers(3, 3) + 3 * np.eye(3)
    assert_values_and_gradients_agree(lambda t, x, y: t.triangular_solve(x, y, upper, transpose), numbers(3, 2, seed=1), a)


def test_a_complete_qr_of_more_rows_than_columns_agrees_and_has_no_gradient() -> None:
    a = numbers(4, 2)
    for expected, actual in zip(
        torch().linalg.qr(torch().tensor(a), "complete"), tracejit.linalg.qr(tracejit.tensor(a), "complete"), strict=True
    ):
        np.testing.assert_allclose(actual.numpy(), expected.numpy(), atol=1e-12)
    with pytest.raises(RuntimeError, match="not differentiable when mode='complete'"):
        tracejit.linalg.qr(tracejit.tensor(a, requires_grad=True), "complete")


@pytest.mark.parametrize("shape", [(30, 20), (20, 30)])
def test_a_factorisation_of_low_rank_finds_a_matrix_of_that_rank(shape: tuple[int, int]) -> None:
    a = numbers(shape[0], 4) @ numbers(4, shape[1], seed=1)
    u, s, v = tracejit.svd_lowrank(tracejit.tensor(a), q=5)
    np.testing.assert_allclose((u * s @ v.mT).numpy(), a, atol=1e-9)
    np.testing.assert_allclose(s[:4].numpy(), np.linalg.svd(a)[1][:4], rtol=1e-9)
    u, s, v = tracejit.pca_lowrank(tracejit.tensor(a + 3.0))
    np.testing.assert_allclose((u * s @ v.mT).numpy(), a - a.mean(0), atol=1e-9)


def test_poisson_draws_have_the_moments_of_their_rates() -> None:
    tracejit.manual_seed(0)
    drawn = tracejit.poisson(tracejit.tensor([0.5, 8.0]).expand(4000, 2))
    np.testing.assert_allclose(drawn.mean(0).numpy(), [0.5, 8.0], rtol=0.1)
    np.testing.assert_allclose(drawn.var(0).numpy(), [0.5, 8.0], rtol=0.15)


def test_a_step_with_foreach_operations_is_compiled() -> None:
    def step(xs: Any, gs: Any) -> None:
        tracejit._foreach_mul_(xs, 0.9)
        tracejit._foreach_add_(xs, tracejit._foreach_neg(gs), alpha=0.1)

    compiled, xs, expected = (
        tracejit.compile(step, wait=True),
        [tracejit.ones(3), tracejit.ones(2)],
        [tracejit.ones(3), tracejit.ones(2)],
    )
    gs = [tracejit.ones(3), tracejit.ones(2) * 2]
    for _ in range(4):
        compiled(xs, gs)
        step(expected, gs)
    assert compiled.stats.compiled_calls >= 2, compiled.explain()
    assert [x.tolist() for x in xs] == [x.tolist() for x in expected]


NO_TENSORS: dict[str, tuple[Callable[[Any, Any, Any], Any], str]] = {
    "triangular_solve": (lambda x, p, n: tracejit.triangular_solve(x, n), "A"),
    "Tensor.triangular_solve": (lambda x, p, n: x.triangular_solve(n), "A"),
    "solve_triangular": (lambda x, p, n: tracejit.linalg.solve_triangular(x, n, upper=True), "b"),
    "solve_triangular's matrix": (lambda x, p, n: tracejit.linalg.solve_triangular(n, x, upper=True), "a"),
    "Tensor.lu_solve": (lambda x, p, n: x.lu_solve(n, p), "LU_data"),
    "lu_solve's pivots": (lambda x, p, n: tracejit.lu_solve(x, x, n), "LU_pivots"),
    "linalg.lu_solve": (lambda x, p, n: tracejit.linalg.lu_solve(x, p, n), "B"),
    "linalg.lu_solve's factors": (lambda x, p, n: tracejit.linalg.lu_solve(n, p, x, left=False), "LU"),
    "lu_unpack": (lambda x, p, n: tracejit.lu_unpack(x, n), "LU_pivots"),
    "lu": (lambda x, p, n: tracejit.linalg.lu(n), "A"),
    "qr": (lambda x, p, n: tracejit.qr(n), "input"),
    "linalg.qr": (lambda x, p, n: tracejit.linalg.qr(n), "A"),
    "pinverse": (lambda x, p, n: tracejit.pinverse(n), "input"),
    "linalg.pinv": (lambda x, p, n: tracejit.linalg.pinv(n), "a"),
    "cholesky_solve": (lambda x, p, n: x.cholesky_solve(n), "L"),
}


@pytest.mark.parametrize("name", NO_TENSORS)
def test_a_number_in_the_place_of_a_matrix_is_named_in_eager_mode_and_compiled(name: str) -> None:
    call, argument = NO_TENSORS[name]
    x, pivots = tracejit.eye(3), tracejit.tensor([1, 2, 3], dtype=tracejit.int32)
    for function in (call, tracejit.compile(call)):
        for _ in range(2):
            with pytest.raises(TypeError, match=rf"\(\): argument '{argument}' \(position \d\) must be Tensor, not float"):
                function(x, pivots, 0.5)


def test_binomial_draws_have_the_moments_of_their_counts_and_probabilities() -> None:
    tracejit.manual_seed(0)
    count, prob = tracejit.tensor([10.0, 3.0]).expand(4000, 2), tracejit.tensor([0.3, 0.8])
    drawn = tracejit.binomial(count, prob)
    assert drawn.dtype is tracejit.float32 and (drawn <= count).all() and (drawn == drawn.floor()).all()
    np.testing.assert_allclose(drawn.mean(0).numpy(), [3.0, 2.4], rtol=0.05)
    np.testing.assert_allclose(drawn.var(0).numpy(), [2.1, 0.48], rtol=0.15)
    assert tracejit.binomial(tracejit.tensor([4.0, 4.0, 0.0]), tracejit.tensor([0.0, 1.0, 0.5])).tolist() == [0.0, 4.0, 0.0]
    assert tracejit.binomial(tracejit.zeros(0), tracejit.zeros(0)).shape == (0,)
    for count, prob, what in ((-1.0, 0.5, "not negative"), (1.0, 1.5, "between 0 and 1")):
        with pytest.raises(RuntimeError, match=what):
            tracejit.binomial(tracejit.tensor(count), tracejit.tensor(prob))


def test_spmm_is_the_product_of_dense_matrices() -> None:
    a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(tracejit.spmm(tracejit.tensor(a), tracejit.tensor(b)).numpy(), a @ b)
