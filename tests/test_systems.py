"""Least squares and roots over tensors, structures and Modules (tracejit/optimize/systems.py, derivatives.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize as scipy_optimize

import tracejit as T
from tracejit import nn
from tracejit.func import hessian, jacrev
from tracejit.optimize import derivatives, least_squares, root
from tracejit.optimize.layout import Layout

TIMES = np.linspace(0, 3, 30)
VALUES = 2.5 * np.exp(-1.3 * TIMES) + 0.5 + 0.01 * np.sin(40 * TIMES)
t, y = T.from_numpy(TIMES), T.from_numpy(VALUES)


def double(*values: float) -> Any:
    return T.tensor(values, dtype=T.float64)


def decay(p: Any) -> Any:
    return p["scale"] * T.exp(-p["rate"] * t) + p["floor"] - y


@pytest.mark.parametrize("method", ["trf", "dogbox", "lm"])
def test_a_curve_is_fitted_as_by_a_jacobian_on_paper(method: str) -> None:
    def jacobian(p: Any) -> Any:
        e = np.exp(-p[1] * TIMES)
        return np.stack([e, -p[0] * TIMES * e, np.ones_like(TIMES)], 1)

    start = {"scale": T.ones((), dtype=T.float64), "rate": T.ones((), dtype=T.float64), "floor": T.zeros((), dtype=T.float64)}
    found = least_squares(decay, start, method)
    theirs = scipy_optimize.least_squares(
        lambda p: p[0] * np.exp(-p[1] * TIMES) + p[2] - VALUES, [1.0, 1.0, 0.0], jacobian, method=method
    )
    assert found.success and np.allclose([x.item() for x in found.x.values()], theirs.x, atol=1e-8)
    assert found.scipy.cost == pytest.approx(theirs.cost, rel=1e-9)
    assert np.allclose(found.fun.numpy(), theirs.fun, atol=1e-8) and np.allclose(found.jac.numpy(), theirs.jac, atol=1e-6)


def test_residuals_may_be_a_structure_and_the_loss_robust() -> None:
    data = double(1, 1, 1, 100)
    found = least_squares(lambda x: {"near": x - data[:3], "far": [x - data[3:]]}, double(0), loss="soft_l1")
    theirs = scipy_optimize.least_squares(lambda x: x - data.numpy(), [0.0], loss="soft_l1")
    assert found.x.item() == pytest.approx(theirs.x[0], abs=1e-5) and found.fun["near"].shape == (3,)


def test_a_module_is_fitted_in_place() -> None:
    model = nn.Linear(2, 1).double()
    x = T.randn(20, 2, dtype=T.float64)
    target = x @ double(1, 2) + 3
    found = least_squares(lambda m, x: m(x)[:, 0] - target, model, args=(x,))
    assert found.x is model and np.allclose(model.weight.detach().numpy(), [[1, 2]]) and model.bias.item() == pytest.approx(3)


@pytest.mark.parametrize("method", ["hybr", "lm", "krylov", "broyden1"])
def test_roots_are_found_in_the_structure_of_the_parameters(method: str) -> None:
    def f(p: Any) -> Any:
        return p["x"] - 0.5 * T.cos(p["y"]), p["y"] - 0.5 * T.sin(p["x"])

    found = root(f, {"x": T.zeros(2, dtype=T.float64), "y": T.zeros(2, dtype=T.float64)}, method, tol=1e-10)
    assert found.success and all(np.allclose(r.numpy(), 0, atol=1e-8) for r in found.fun)
    x, y = found.x["x"].numpy(), found.x["y"].numpy()
    assert np.allclose(x, 0.5 * np.cos(y)) and np.allclose(y, 0.5 * np.sin(x))
    assert np.allclose(found.jac.numpy()[:2, 2:], np.diag(0.5 * np.sin(y)), atol=1e-8)


WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "other counts": (lambda: root(lambda x: x[:1], double(1, 2)), ValueError, r"root\(\): f returned 1 numbers for 2 parameters"),
    "no tensor": (lambda: root(lambda x: 1.0, double(1)), TypeError, "f must return tensors, or a structure of tensors, got float"),
    "a root of NaN": (lambda: root(T.log, double(-1, 2)), ValueError, r"root\(\): f is not finite at the first point: 1 of 2 numbers"),
    "residuals of NaN": (lambda: least_squares(T.log, double(-1, 2)), ValueError, r"least_squares\(\): residuals is not finite"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_errors_say_what_was_wrong(case: str) -> None:
    call, kind, message = WRONG[case]
    with pytest.raises(kind, match=message):
        call()


def test_what_has_no_root_is_no_success() -> None:
    assert not root(lambda x: x * x + 1, double(1.0)).success


@settings(max_examples=8, deadline=None)
@given(st.integers(1, 12), st.integers(1, 6), st.integers(0, 2**31))
def test_jacobians_are_those_of_func_however_many_rows_and_columns(rows: int, columns: int, seed: int) -> None:
    matrix = T.from_numpy(np.random.default_rng(seed).normal(size=(rows, columns)))
    x = T.from_numpy(np.random.default_rng(seed + 1).normal(size=columns))

    def f(v: Any) -> Any:
        return T.tanh(matrix @ v) * v.sum()

    layout = Layout(x, "test")
    run = derivatives.compiled(derivatives.jacobian, f)
    for _ in range(2):
        assert T.allclose(run(f, layout, x, ()), jacrev(f)(x), atol=1e-12)


def test_hessians_and_their_products_are_those_of_func() -> None:
    x = double(0.3, -0.2, 0.7)

    def f(v: Any) -> Any:
        return T.exp(v).prod() + (v**3).sum()

    layout, whole = Layout(x, "test"), hessian(f)(x)
    p = double(1, -2, 0.5)
    for _ in range(2):
        assert T.allclose(derivatives.compiled(derivatives.hessian, f)(f, layout, x, ()), whole)
        assert T.allclose(derivatives.compiled(derivatives.hessian_product, f)(f, layout, x, (), p), whole @ p)


def test_the_program_of_a_jacobian_does_not_grow_with_its_columns() -> None:
    sizes = []
    for n in (4, 40):

        def f(v: Any) -> Any:
            return T.cat([T.sin(v), T.cos(v), v * v])

        run = T.compile(lambda f, layout, x: derivatives.jacobian(f, layout, x, ()))
        x = T.ones(n, dtype=T.float64)
        for _ in range(3):
            run(f, Layout(x, "test"), x)
        assert run.stats.compiled_calls == 2, run.explain()
        sizes.append(len(str(run.graph())))
    assert sizes[1] < 1.2 * sizes[0]
