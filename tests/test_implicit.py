"""Roots and minima with gradients (tracejit/optimize/implicit.py)."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tracejit import nn
from tracejit.autograd import gradcheck, gradgradcheck
from tracejit.func import functional_call, jacrev
from tracejit.optimize import NotConvergedError, implicit_minimum, implicit_root


def double(*values: float, requires_grad: bool = False) -> Any:
    return T.tensor(values, dtype=T.float64, requires_grad=requires_grad)


A, K = double(1.5, 2.0, 0.7, requires_grad=True), double(0.6, 1.2, 2.0, requires_grad=True)


def cubic(x: Any, a: Any, more: Any) -> Any:
    return x**3 * more["k"] + a * x + 0.1 * x.sum() - more["offset"]


def root_of_cubic(a: Any, k: Any) -> Any:
    return implicit_root(cubic, T.zeros(3, dtype=T.float64), a, {"k": k, "offset": 1.0})


def energy(x: Any, a: Any, k: Any) -> Any:
    return (x["u"] ** 4 * k).sum() + ((x["u"] - a) ** 2).sum() + (x["v"] - a.sum()) ** 2 * k.sum() + T.exp(x["v"])


def minimum_of_energy(a: Any, k: Any) -> Any:
    start = {"u": T.zeros(3, dtype=T.float64), "v": T.zeros((), dtype=T.float64)}
    return tuple(implicit_minimum(energy, start, a, k).values())


@pytest.mark.parametrize("solution", [root_of_cubic, minimum_of_energy])
def test_first_and_second_derivatives_are_those_by_differences(solution: Any) -> None:
    rounding = 1e-12  # the first backward pass is an eager one
    assert gradcheck(solution, (A, K), nondet_tol=rounding) and gradgradcheck(solution, (A, K), nondet_tol=rounding)


def test_third_derivatives_are_those_on_paper() -> None:
    a = double(4.0, requires_grad=True)
    x: Any = implicit_root(lambda x, a: x * x - a, double(1.0), a)
    for expected in (2.0, 4.0**-0.5 / 2, -(4.0**-1.5) / 4, 3 * 4.0**-2.5 / 8):
        assert x.item() == pytest.approx(expected, rel=1e-12)
        (x,) = T.autograd.grad(x.sum(), a, create_graph=True)


def test_the_solution_is_as_exact_as_rounding_allows() -> None:
    x = implicit_minimum(lambda x, a: T.exp(x).sum() - (a * x).sum(), T.zeros(3, dtype=T.float64), A, tol=1e-2)
    assert np.allclose(x.detach().numpy(), np.log(A.detach().numpy()), rtol=0, atol=1e-15)


def test_gradients_of_ridge_regression_are_those_of_its_formula() -> None:
    rng = np.random.default_rng(0)
    features, target = T.from_numpy(rng.normal(size=(30, 4))), T.from_numpy(rng.normal(size=30))

    def loss(w: Any, log_penalty: Any, target: Any) -> Any:
        return ((features @ w - target) ** 2).sum() + T.exp(log_penalty) * (w * w).sum()

    def formula(log_penalty: Any, target: Any) -> Any:
        left = features.mT @ features + T.exp(log_penalty) * T.eye(4, dtype=T.float64)
        return T.linalg.solve(left, features.mT @ target)

    given = double(0.3)[0], target
    ours = jacrev(lambda *a: implicit_minimum(loss, T.zeros(4, dtype=T.float64), *a), (0, 1))(*given)
    theirs = jacrev(formula, (0, 1))(*given)
    assert all(T.allclose(o, t, atol=1e-10) for o, t in zip(ours, theirs, strict=True))


def test_gradients_reach_the_parameters_of_a_module_that_are_arguments() -> None:
    model = nn.Linear(2, 2).double()
    x0 = T.zeros(2, dtype=T.float64)

    def equilibrium(x: Any, parameters: Any) -> Any:
        return x - 0.5 * T.tanh(functional_call(model, parameters, (x,)))

    implicit_root(equilibrium, x0, dict(model.named_parameters())).sum().backward()
    bias = model.bias.detach().clone()
    slope = model.bias.grad.clone()
    for i in range(2):
        step = T.zeros(2, dtype=T.float64)
        step[i] = 1e-6
        ends = []
        for sign in (1, -1):
            with T.no_grad():
                model.bias.copy_(bias + sign * step)
                ends.append(implicit_root(equilibrium, x0, dict(model.named_parameters())).sum().item())
        assert slope[i].item() == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6)


def test_without_gradients_the_solution_is_a_constant() -> None:
    assert not implicit_root(lambda x, a: x - a, double(0.0), double(3.0)).requires_grad
    with T.no_grad():
        assert not root_of_cubic(A, K).requires_grad


def test_dtypes_of_what_is_given_are_kept() -> None:
    a = T.tensor([4.0], requires_grad=True)
    x = implicit_root(lambda x, a: x * x - a, T.ones(1), a)
    x.sum().backward()
    assert x.dtype is T.float32 and a.grad.dtype is T.float32 and a.grad.item() == pytest.approx(0.25, rel=1e-5)


def test_compiled_functions_with_a_solution_give_what_eager_ones_give() -> None:
    def f(a: Any) -> Any:
        return implicit_root(lambda x, a: x**3 + x - a, T.zeros(2, dtype=T.float64), a) * 2

    compiled = T.compile(f)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it runs eagerly, and says so
        for value in (1.0, 2.0, 3.0):
            results = []
            for function in (f, compiled):
                a = double(value, value + 1, requires_grad=True)
                x = function(a)
                x.sum().backward()
                results.append((x.tolist(), a.grad.tolist()))
            assert np.allclose(results[0], results[1], rtol=1e-14, atol=0)


closed_over = double(2.0, requires_grad=True)
WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "no root": (lambda: implicit_root(lambda x, a: x * x + a, double(3.0), double(1.0)), NotConvergedError, "did not converge"),
    "no minimum": (
        lambda: implicit_minimum(lambda x, a: (a * x * x).sum(), double(3.0), double(1.0), options={"maxiter": 1}),
        NotConvergedError,
        "Maximum number of iterations",
    ),
    "a double root": (
        lambda: implicit_root(lambda x, a: T.stack([x[0] + x[1], 2 * x.sum()]) - a * 0, double(0.0, 0.0), A[:2]),
        RuntimeError,
        r"Jacobian of f with respect to x has no inverse at the solution \(shape \(2, 2\), rank 1\)",
    ),
    "a flat minimum": (
        lambda: implicit_minimum(lambda x, a: (x[0] - a[0]) ** 2 + 0 * x[1], double(0.0, 0.0), A[:2]), RuntimeError, "Hessian of f",
    ),
    "a saddle": (
        lambda: implicit_minimum(lambda x, a: (x[0] - a[0]) ** 2 - x[1] ** 2, double(0.0, 0.0), A[:2]), RuntimeError, "eigenvalue -2",
    ),
    "closed over": (
        lambda: implicit_root(lambda x, a: x - a * closed_over, double(0.0), double(1.0)),
        RuntimeError,
        "reads a tensor that requires a gradient and is not in args",
    ),
    "bounds": (lambda: implicit_minimum(energy, double(0.0), A, K, bounds=(0, 1)), TypeError, "bounds is not supported"),
    "a module": (lambda: implicit_root(lambda m: m.weight, nn.Linear(1, 1)), TypeError, "got a Module"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_errors_say_what_was_wrong(case: str) -> None:
    call, kind, message = WRONG[case]
    with pytest.raises(kind, match=message):
        call()
