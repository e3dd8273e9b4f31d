"""Log-densities over named parameters (tracejit/inference/model.py), and what samplers return (draws.py)."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import tracejit
from tracejit.distributions import Dirichlet, Gamma, Normal, constraints
from tracejit.inference import Draws, Model, Parameter, sample

DOUBLE = ctypes.POINTER(ctypes.c_double)


def gamma_and_normal() -> Model:
    def log_density(p: Any) -> Any:
        return (
            Gamma(*tracejit.tensor([2.0, 3.0], dtype=tracejit.float64)).log_prob(p["rate"])
            + Normal(0.0, p["rate"]).log_prob(p["x"]).sum()
        )

    return Model(log_density, {"rate": Parameter((), constraints.positive), "x": (3,)})


def test_the_density_of_unconstrained_numbers_has_the_jacobian() -> None:
    model = gamma_and_normal()
    assert model.dimension == 4
    position = np.array([0.3, 1.0, -0.5, 2.0])
    rate = np.exp(0.3)
    expected = stats.gamma.logpdf(rate, 2, scale=1 / 3) + stats.norm.logpdf(position[1:], 0, rate).sum() + 0.3
    value, gradient = model.evaluate(position)
    assert value == pytest.approx(expected, rel=1e-12)
    steps = 1e-6 * np.eye(4)
    slopes = [(model.evaluate(position + h)[0] - model.evaluate(position - h)[0]) / 2e-6 for h in steps]
    np.testing.assert_allclose(gradient, slopes, rtol=1e-6)


def test_a_density_over_a_simplex_integrates_to_one() -> None:
    model = Model(
        lambda p: Dirichlet(tracejit.tensor([2.0, 3.0], dtype=tracejit.float64)).log_prob(p["w"]),
        {"w": Parameter((2,), constraints.simplex)},
    )
    assert model.dimension == 1
    grid = np.linspace(-15, 15, 4001)
    assert np.trapezoid(np.exp(model.log_densities(grid[:, None])), grid) == pytest.approx(1, abs=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-3, 3), min_size=10, max_size=10))
def test_unconstrain_is_the_inverse_of_constrain(numbers: list[float]) -> None:
    parameters = {
        "a": Parameter((2, 2)),
        "b": Parameter((2,), constraints.positive),
        "c": Parameter((), constraints.interval(-1.0, 2.0)),
        "d": Parameter((4,), constraints.simplex),
    }
    model = Model(lambda p: p["a"].sum(), parameters)
    position = np.array(numbers)
    values = model.constrain(position)
    assert {name: value.shape for name, value in values.items()} == {"a": (2, 2), "b": (2,), "c": (), "d": (4,)}
    assert np.all(values["b"] > 0) and -1 < values["c"] < 2 and values["d"].sum() == pytest.approx(1)
    np.testing.assert_allclose(model.unconstrain(values), position, atol=1e-6)


def test_positions_of_many_chains_are_constrained_at_once() -> None:
    model = gamma_and_normal()
    positions = np.random.default_rng(0).normal(size=(2, 5, 4))
    values = model.constrain(positions)
    assert values["rate"].shape == (2, 5)
    assert values["x"].shape == (2, 5, 3)
    assert np.array_equal(values["x"][1, 3], model.constrain(positions[1, 3])["x"])


def test_the_c_function_gives_what_evaluate_gives() -> None:
    model = gamma_and_normal()
    function = model.c_log_density()
    x, gradient, value = np.array([0.1, 1.0, 2.0, -1.0]), np.empty(4), np.empty(1)
    assert function.ctypes(4, *(a.ctypes.data_as(DOUBLE) for a in (x, gradient, value)), None) == 0
    expected = model.evaluate(x)
    assert value[0] == expected[0]
    assert np.array_equal(gradient, expected[1])
    assert function.ctypes(3, *(a.ctypes.data_as(DOUBLE) for a in (x, gradient, value)), None) == 1
    expand, values = model.c_expand(), np.empty(4)
    assert expand.ctypes(4, 4, x.ctypes.data_as(DOUBLE), values.ctypes.data_as(DOUBLE), None) == 0
    assert values.tolist() == [np.exp(0.1), 1, 2, -1]


def test_a_density_over_a_simplex_is_a_c_function() -> None:
    weights = tracejit.tensor([2.0, 3.0, 4.0], dtype=tracejit.float64)
    model = Model(lambda p: Dirichlet(weights).log_prob(p["w"]), {"w": Parameter((3,), constraints.simplex)})
    function, x, gradient, value = model.c_log_density(), np.array([0.3, -0.8]), np.empty(2), np.empty(1)
    assert function.ctypes(2, *(a.ctypes.data_as(DOUBLE) for a in (x, gradient, value)), None) == 0
    expected = model.evaluate(x)
    assert value[0] == expected[0]
    assert np.array_equal(gradient, expected[1])


def test_a_branch_that_is_not_compiled_is_served_by_python() -> None:
    def log_density(p: Any) -> Any:
        x = p["x"]
        return -x if x > 0 else -x * x

    function = Model(log_density, {"x": ()}).c_log_density()
    gradient, value = np.empty(1), np.empty(1)
    for x in (2.0, -3.0):
        position = np.array([x])
        assert function.ctypes(1, *(a.ctypes.data_as(DOUBLE) for a in (position, gradient, value)), None) == 0
        assert (value[0], gradient[0]) == ((-x, -1) if x > 0 else (-x * x, -2 * x))
    assert not function.errors


def test_initial_positions_have_finite_densities_and_follow_the_seed() -> None:
    def log_density(p: Any) -> Any:
        return tracejit.log(p["x"]).sum()  # not a number below zero

    model = Model(log_density, {"x": (2,)})
    positions = model.initial_positions(5, 3)
    assert positions.shape == (5, 2)
    assert np.isfinite(model.log_densities(positions)).all()
    assert np.array_equal(positions, model.initial_positions(5, 3))
    with pytest.raises(RuntimeError, match="not finite at 100 positions"):
        Model(lambda p: p["x"] * float("nan"), {"x": ()}).initial_positions(1, 0)


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda: Model(lambda p: p, {}), ValueError, "at least one name"),
        (lambda: Model(lambda p: p, {"x": Parameter((2,), dims=("a", "b"))}), ValueError, "dims must name 1 dimensions"),
        (
            lambda: Model(lambda p: p, {"x": Parameter((2,), dims=("a",))}, coords={"a": [1, 2, 3]}),
            ValueError,
            "has size 2, .* 3 labels",
        ),
        (lambda: Model(lambda p: p["x"], {"x": (2,)}).evaluate(np.zeros(2)), ValueError, r"without dimensions .* shape \[2\]"),
        (lambda: Model(lambda p: 1.0, {"x": (2,)}).evaluate(np.zeros(2)), ValueError, "got float"),
        (lambda: gamma_and_normal().evaluate(np.zeros(3)), ValueError, r"last dimension of 4, got shape \(3,\)"),
        (lambda: gamma_and_normal().unconstrain({"rate": 1.0}), KeyError, "x"),
        (
            lambda: gamma_and_normal().unconstrain({"rate": 1.0, "x": np.zeros(2)}),
            ValueError,
            r"'x' must have shape \[3\], got \[2\]",
        ),
        (lambda: gamma_and_normal().unconstrain({"rate": -1.0, "x": np.zeros(3)}), ValueError, "'rate' must satisfy"),
        (lambda: gamma_and_normal().unconstrain({"speed": 1.0}), ValueError, r"unknown parameters \['speed'\]"),
        (lambda: sample(gamma_and_normal(), "stan"), ValueError, "must be one of nutpie, walnutpie, emcee, blackjax, got 'stan'"),
        (lambda: sample(gamma_and_normal(), draws=0), ValueError, "draws must be at least 1, got 0"),
        (lambda: sample(gamma_and_normal(), tune=-1), ValueError, "tune must be at least 0, got -1"),
        (lambda: sample(gamma_and_normal(), "emcee", chains=6), ValueError, "at least 8 walkers"),
    ],
)
def test_what_cannot_be_is_refused_with_what_was_expected(make: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        make()


def test_draws_are_a_mapping_of_names_to_arrays() -> None:
    draws = Draws({"x": np.zeros((2, 5, 3)), "y": np.ones((2, 5))}, "a sampler")
    assert list(draws) == ["x", "y"]
    assert (draws.chains, draws.draws, len(draws)) == (2, 5, 2)
    assert draws["y"].shape == (2, 5)
    assert repr(draws) == "<Draws of a sampler: 2 chains of 5 draws; x: [3], y: []>"
