"""Minima by SciPy's methods over tensors, structures and Modules (tracejit/optimize/minimum.py, layout.py, objective.py)."""

from __future__ import annotations

import gc
import warnings
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize as scipy_optimize

import tracejit as T
from tracejit import nn
from tracejit.optimize import derivatives, minimize
from tracejit.optimize.layout import Layout, parts

METHODS = [
    "Nelder-Mead", "Powell", "CG", "BFGS", "Newton-CG", "L-BFGS-B", "TNC", "COBYLA", "COBYQA", "SLSQP", "trust-constr", "dogleg",
    "trust-ncg", "trust-exact", "trust-krylov",
]  # fmt: skip
START = [1.2, 1.1]


def rosenbrock(x: Any) -> Any:
    return (10 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def double(*values: float) -> Any:
    return T.tensor(values, dtype=T.float64)


@pytest.mark.parametrize("method", METHODS)
def test_each_method_finds_the_minimum_that_it_finds_with_derivatives_on_paper(method: str) -> None:
    def value(x: Any) -> float:
        return float(10 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2)

    def gradient(x: Any) -> Any:
        return np.array([-40 * x[0] * (x[1] - x[0] ** 2) - 2 * (1 - x[0]), 20 * (x[1] - x[0] ** 2)])

    def hessian(x: Any) -> Any:
        return np.array([[120 * x[0] ** 2 - 40 * x[1] + 2, -40 * x[0]], [-40 * x[0], 20]])

    seen: list[Any] = []
    options = {"maxfun": 2000} if method == "TNC" else {"maxiter": 2000}
    found = minimize(rosenbrock, double(*START), method, callback=seen.append, options=options, quiet=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of derivatives that the method does not take
        theirs = scipy_optimize.minimize(value, START, method=method, jac=gradient, hess=hessian, options=options)
    assert found.success == theirs.success and found.x.dtype is T.float64
    # What has no derivatives takes other steps after another rounding.
    wide = 1e-3 if method in ("Nelder-Mead", "Powell", "COBYLA", "COBYQA") else 1e-6
    assert np.allclose(found.x.numpy(), theirs.x, atol=wide) and found.fun == pytest.approx(theirs.fun, abs=wide)
    assert abs(found.nfev - theirs.nfev) <= (1 if wide == 1e-6 else theirs.nfev)
    assert [s.nit for s in seen] == list(range(1, len(seen) + 1)) and seen[-1].fun == pytest.approx(rosenbrock(seen[-1].x).item())
    if found.jac is not None:
        assert np.allclose(found.jac.numpy(), gradient(found.x.numpy()), atol=1e-6)


def test_a_structure_comes_back_as_it_was_given() -> None:
    def f(p: Any) -> Any:
        return ((p["w"][0] - 2) ** 2).sum() + (p["w"][1] + p["b"] - 1) ** 2 + p["b"] ** 2

    start = {"w": [T.zeros(2, 3, dtype=T.float64), T.zeros((), dtype=T.float32)], "b": T.ones((), dtype=T.float64)}
    found = minimize(f, start)
    assert list(found.x) == ["w", "b"] and isinstance(found.x["w"], list)
    assert [x.dtype for x in (*found.x["w"], found.x["b"])] == [T.float64, T.float32, T.float64]
    assert T.allclose(found.x["w"][0], T.full((2, 3), 2.0, dtype=T.float64), atol=1e-5)
    assert found.x["w"][1].item() == pytest.approx(1, abs=1e-3) and found.x["b"].item() == pytest.approx(0, abs=1e-3)
    assert found.jac["w"][0].shape == (2, 3) and start["w"][0].sum() == 0  # what was given is not changed


@settings(max_examples=25, deadline=None)
@given(
    st.recursive(
        st.lists(st.integers(0, 3), max_size=3),
        lambda inner: st.lists(inner, min_size=1, max_size=3) | st.tuples(inner),
        max_leaves=5,
    )
)
def test_a_vector_and_its_structure_are_the_same_numbers(shapes: Any) -> None:
    def random_tree(x: Any) -> Any:
        if isinstance(x, list) and all(isinstance(i, int) for i in x):
            return T.rand(*x, dtype=T.float64) if x else T.rand((), dtype=T.float64)
        return type(x)(random_tree(i) for i in x)

    tree = {"a": random_tree(shapes), "b": T.zeros(1, dtype=T.float64)}
    layout = Layout(tree, "test")
    vector = layout.vector(tree)
    assert np.array_equal(layout.vector(layout.tree(vector)), vector) and vector.shape == (layout.size,)
    assert [tuple(p.shape) for p in parts(layout, T.from_numpy(vector))] == list(layout.shapes)


def test_parameters_of_a_module_are_minimized_and_written_back() -> None:
    T.manual_seed(0)
    x = T.randn(40, 3)
    y = x @ T.tensor([1.0, -2.0, 0.5]) + 0.25
    model = nn.Linear(3, 1)
    weight = model.weight
    found = minimize(lambda m, x, y: ((m(x)[:, 0] - y) ** 2).mean(), model, "L-BFGS-B", args=(x, y))
    assert found.x is model and model.weight is weight and weight.requires_grad and weight.grad is None
    assert np.allclose(weight.detach().numpy(), [[1, -2, 0.5]], atol=1e-2) and list(found.jac) == ["weight", "bias"]


def test_frozen_parameters_stay_as_they_are() -> None:
    model = nn.Linear(2, 1).double()
    model.weight.requires_grad_(False)
    before = model.weight.clone()
    minimize(lambda m: (m(T.ones(1, 2, dtype=T.float64)) - 5).square().sum(), model)
    assert T.equal(model.weight, before) and model(T.ones(1, 2, dtype=T.float64)).item() == pytest.approx(5)


def test_a_module_is_as_before_when_an_exception_ends_the_search() -> None:
    model = nn.Linear(2, 1).double()
    before = [p.detach().clone() for p in model.parameters()]
    during: list[bool] = []

    def stop(intermediate_result: Any) -> None:
        during.append(T.equal(intermediate_result.x.weight, before[0]))
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        minimize(lambda m: (m(T.ones(1, 2, dtype=T.float64)) - 5).square().sum(), model, callback=stop)
    assert during == [False] and all(T.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))


@pytest.mark.parametrize("method", ["BFGS", "L-BFGS-B", "TNC", "COBYLA", "SLSQP"])
def test_a_callback_stops_the_search(method: str) -> None:
    seen: list[Any] = []

    def stop(step: Any) -> None:
        seen.append(step)
        if step.nit == 2:
            raise StopIteration

    found = minimize(rosenbrock, double(*START), method, callback=stop)
    assert len(seen) == 2 and not found.success and T.equal(found.x, seen[-1].x)


def test_functions_of_one_source_are_compiled_once() -> None:
    def objective(data: Any) -> Any:
        return lambda x: ((x - data) ** 2).sum()

    f = objective(double(1, 2))
    run = derivatives.compiled(derivatives.value_and_gradient, f)
    for data in (double(1, 2), double(-3, 5), double(0.5, 0)):
        assert np.allclose(minimize(objective(data), double(0, 0)).x.numpy(), data.numpy(), atol=1e-5)
    assert run.stats.traces == 1 and run.stats.compiled_calls > 3


def test_functions_and_their_data_are_not_kept_alive() -> None:
    def used() -> list[Any]:
        data = double(1, 2)

        def f(x: Any) -> Any:
            return ((x - data) ** 2).sum()

        minimize(f, double(0, 0))
        return [weakref.ref(f), weakref.ref(data)]

    seen = used()
    gc.collect()
    assert [r() for r in seen] == [None, None]


def test_what_is_not_finite_is_stepped_back_from() -> None:
    def f(x: Any) -> Any:  # NaN below 0, where a step against the gradient goes
        return (100 * x - 3 * T.log(x)).sum()

    for method in ("BFGS", "L-BFGS-B", "CG", "SLSQP", "trust-ncg", "TNC"):
        found = minimize(f, double(0.5, 0.3), method)
        assert found.success and np.allclose(found.x.numpy(), 0.03, atol=1e-4), (method, found)
        assert "not finite at" in found.message, method


def test_a_search_that_finds_nothing_finite_fails() -> None:
    found = minimize(lambda x: T.where(x == 2, x, T.nan).sum(), double(2.0), "Nelder-Mead")
    assert found.fun == 2.0 and found.x.item() == 2.0 and "not finite at" in found.message
    unhelpful = lambda fun, x0, **options: scipy_optimize.OptimizeResult(x=np.array([-1.0]), fun=0.0, success=True)
    assert not minimize(lambda x: T.log(x).sum(), double(2.0), unhelpful).success


WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "no tensor": (lambda: minimize(rosenbrock, [1.0, 2.0]), TypeError, r"params\[0\] to be a floating-point Tensor, got float"),
    "integers": (lambda: minimize(rosenbrock, {"a": T.arange(3)}), TypeError, r"params\['a'\].*got a Tensor of dtype .*int64"),
    "nothing": (lambda: minimize(rosenbrock, ()), ValueError, "at least one number"),
    "a module without parameters": (lambda: minimize(rosenbrock, nn.ReLU()), ValueError, "no parameter that requires a gradient"),
    "several numbers": (lambda: minimize(lambda x: x, double(1, 2)), TypeError, r"one element, got shape \(2,\)"),
    "a float": (lambda: minimize(lambda x: 1.0, double(1, 2)), TypeError, "one element, got float"),
    "no graph": (lambda: minimize(lambda x: x.detach().sum(), double(1, 2)), RuntimeError, "does not depend on params"),
    "NaN": (lambda: minimize(lambda x: T.log(x).sum(), double(-1, 2)), ValueError, "f is nan at the first point"),
    "an infinite gradient": (
        lambda: minimize(lambda p: T.sqrt(p["a"]).sum() + p["b"].sum(), {"b": double(1), "a": double(0, 1)}),
        ValueError,
        r"gradient is not finite for params\['a'\]",
    ),
    "args": (lambda: minimize(rosenbrock, double(1, 2), args=[1]), TypeError, "args to be a tuple, got list"),
    "a method": (lambda: minimize(rosenbrock, double(1, 2), "Newton"), ValueError, "Unknown solver"),
    "second derivatives": (
        lambda: minimize(lambda x: (x**1.5).sum() + ((x - 1) ** 2).sum(), double(0.0, 1.0), "Newton-CG"),
        FloatingPointError,
        "is not finite at a point",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_say_what_was_wrong(case: str) -> None:
    call, kind, message = WRONG[case]
    with pytest.raises(kind, match=message):
        call()


def test_a_function_that_is_not_one_is_warned_of() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1)).double()
    x = T.ones(10, 4, dtype=T.float64)

    def f(m: Any) -> Any:
        return (m(x) - 1).square().mean()

    with pytest.warns(RuntimeWarning, match=r"for the same parameters.*eval\(\) first"):
        minimize(f, model, options={"maxiter": 2})
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        assert minimize(f, model.eval()).fun < 1e-8


def test_effects_of_the_function_happen_in_each_evaluation() -> None:
    seen: list[float] = []

    def f(x: Any) -> Any:
        value = ((x - 1) ** 2).sum()
        seen.append(value.item())
        return value

    found = minimize(f, double(3, 4))
    assert len(seen) == found.nfev + 2 and seen[0] == 13 and min(seen) == found.fun


def test_an_exception_of_the_function_passes_through() -> None:
    def f(x: Any) -> Any:
        if (x < 0.5).any():
            raise ArithmeticError("too small")
        return (x * x).sum()

    with pytest.raises(ArithmeticError, match="too small"):
        minimize(f, double(3, 4))


def test_branches_on_values_are_followed() -> None:
    def f(x: Any) -> Any:
        return ((x - 1) ** 2).sum() if x[0] > 0 else (x**2).sum() + 1 - 2 * x.sum() + 1

    assert np.allclose(minimize(f, double(-4, 3)).x.numpy(), 1, atol=1e-5)


def test_a_compiled_function_that_minimizes_gives_what_the_eager_one_gives() -> None:
    def f(c: Any) -> Any:
        return minimize(lambda x: ((x - c) ** 2).sum(), T.zeros(2, dtype=T.float64)).x * 2

    compiled = T.compile(f)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it runs eagerly, and says so
        for c in (double(1, 2), double(3, 4), double(5, 6)):
            assert T.equal(compiled(c), f(c))
