"""Samplers of other packages draw from densities of tracejit: means are those of the exact posterior, within Monte Carlo error."""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from typing import Any

import numpy as np
import pytest

import tracejit
from benchmarks.posteriors import POSTERIORS
from tracejit.inference import Draws, Model, Parameter, nutpie, sample

OF_NAME = {posterior.name: posterior for posterior in POSTERIORS}
GRADIENT_BASED = ("nutpie", "walnutpie")


def installed(*packages: str) -> None:
    for package in packages:
        pytest.importorskip(package)


def is_near(draws: Draws, name: str, expected: float) -> bool:
    """Whether the mean is within five Monte Carlo errors, which are estimated by means of 10 batches of each chain."""
    chains = draws[name]
    batches = chains[:, : chains.shape[1] // 10 * 10].reshape(chains.shape[0] * 10, -1).mean(1)
    return bool(abs(chains.mean() - expected) < 5 * batches.std(ddof=1) / np.sqrt(len(batches)))


@pytest.mark.parametrize("posterior", ["schools", "hierarchical"])
@pytest.mark.parametrize("sampler", GRADIENT_BASED)
def test_means_are_those_of_the_posterior(sampler: str, posterior: str) -> None:
    installed(sampler)
    found = sample(OF_NAME[posterior].model(), sampler, draws=1500, tune=800, seed=11, quiet=True)
    assert (found.chains, found.draws, found.sampler) == (4, 1500, sampler)
    expected = OF_NAME[posterior].means()
    assert expected
    assert {name: is_near(found, name, mean) for name, mean in expected.items()} == dict.fromkeys(expected, True)


def test_samplers_agree_on_a_logistic_regression() -> None:
    installed(*GRADIENT_BASED)
    one, other = (sample(OF_NAME["logistic"].model(), name, draws=1000, tune=500, seed=5, quiet=True) for name in GRADIENT_BASED)
    np.testing.assert_allclose(one["coefficients"].mean((0, 1)), other["coefficients"].mean((0, 1)), atol=0.08)
    assert one["coefficients"].shape == (4, 1000, 10)


def normal() -> Model:
    return Model(
        lambda p: -0.5 * ((p["x"] - 1) ** 2 / 4).sum(), {"x": Parameter((2,), dims=("side",))}, coords={"side": ["left", "right"]}
    )


def test_emcee_draws_without_gradients() -> None:
    installed("emcee")
    found = sample(normal(), "emcee", draws=400, tune=200, chains=12, seed=2, quiet=True)
    assert found["x"].shape == (12, 400, 2)
    np.testing.assert_allclose(found["x"].mean((0, 1)), 1, atol=0.5)
    np.testing.assert_allclose(found["x"].std((0, 1)), 2, atol=0.5)


def test_blackjax_draws_through_a_callback() -> None:
    installed("blackjax")
    found = sample(normal(), "blackjax", draws=300, tune=200, chains=1, seed=2)
    assert found["x"].shape == (1, 300, 2)
    assert found["x"].dtype == np.float64
    np.testing.assert_allclose(found["x"].mean((0, 1)), 1, atol=0.7)
    assert not found.statistics["diverging"].any()


@pytest.mark.parametrize("sampler", ["nutpie", "walnutpie", "emcee"])
def test_the_same_seed_gives_the_same_draws(sampler: str) -> None:
    installed(sampler)
    chains = 8 if sampler == "emcee" else 2
    first, second, third = (
        sample(normal(), sampler, draws=50, tune=50, chains=chains, seed=seed, quiet=True)["x"] for seed in (1, 1, 2)
    )
    assert np.array_equal(first, second)
    assert not np.array_equal(first, third)


def test_arviz_has_the_names_of_dimensions() -> None:
    installed("nutpie", "arviz")
    found = sample(normal(), draws=50, tune=50, chains=2, seed=1, quiet=True)
    posterior = found.to_arviz().posterior
    assert dict(posterior.sizes) == {"chain": 2, "draw": 50, "side": 2}
    assert list(posterior.coords["side"].values) == ["left", "right"]
    assert np.array_equal(posterior["x"].values, found["x"])
    assert found.statistics["diverging"].shape == (2, 50)


def test_a_compiled_model_is_sampled_again() -> None:
    installed("nutpie")
    library = importlib.import_module("nutpie")
    compiled = nutpie.compiled_model(Model(lambda p: -(p["x"] * p["x"]).sum() / 2, {"x": (3,)}))
    traces = [library.sample(compiled, draws=30, tune=30, chains=2, seed=1, progress_bar=False) for _ in range(2)]
    first, second = (trace.posterior["x"].values for trace in traces)
    assert first.shape == (2, 30, 3)
    assert np.array_equal(first, second)


def test_a_density_that_needs_python_is_sampled_with_a_warning_that_says_why() -> None:
    installed("nutpie")
    counted = []

    def log_density(p: Any) -> Any:
        counted.append(1)
        return -0.5 * (p["x"] ** 2).sum()

    with pytest.warns(UserWarning, match="calls the log-density in Python, one chain at a time: .* counted|needs Python"):
        found = sample(Model(log_density, {"x": (2,)}), draws=50, tune=50, chains=1, seed=1, quiet=True)
    assert found["x"].shape == (1, 50, 2)
    assert len(counted) > 50


def test_the_c_door_needs_no_python_call() -> None:
    installed("nutpie")
    model = normal()
    compiled = nutpie.compiled_model(model)
    before = model.compiled.stats.calls
    with warnings.catch_warnings():
        warnings.simplefilter("error", tracejit.compiler.PerformanceWarning)
        trace = importlib.import_module("nutpie").sample(compiled, draws=100, tune=100, chains=2, seed=1, progress_bar=False)
    assert trace.posterior["x"].shape == (2, 100, 2)
    assert model.compiled.stats.calls - before <= 4  # initial positions


def cut_off(p: Any) -> Any:
    if p["x"] > 1.0:
        raise ArithmeticError("too large")
    return -0.5 * p["x"] ** 2


def test_nutpie_rejects_positions_where_the_density_raises_and_a_warning_says_so() -> None:
    installed("nutpie")
    with pytest.warns(RuntimeWarning, match=r"raised at some positions, which were rejected; the first error: .*too large"):
        found = sample(Model(cut_off, {"x": ()}), draws=300, tune=100, chains=2, seed=4, quiet=True)
    assert found["x"].max() <= 1


def test_nutpie_needs_a_draw_to_tune() -> None:
    installed("nutpie")
    with pytest.raises(ValueError, match="at least 1 draw to tune, got tune=0"):
        sample(normal(), tune=0)


def test_emcee_rejects_positions_where_the_density_raises_or_is_not_a_number() -> None:
    installed("emcee")
    found = sample(Model(cut_off, {"x": ()}), "emcee", draws=100, tune=20, chains=4, seed=4, quiet=True)
    assert found["x"].max() <= 1
    assert Model(lambda p: p["x"].log(), {"x": ()}).log_densities([[-1.0], [1.0]]).tolist() == [-np.inf, 0]


def test_walnutpie_raises_what_the_density_raises() -> None:
    installed("walnutpie")
    with pytest.raises(ArithmeticError, match="too large"):
        sample(Model(cut_off, {"x": ()}), "walnutpie", draws=300, tune=100, chains=2, seed=4, quiet=True)


@pytest.mark.skipif(importlib.util.find_spec("nutpie") is not None, reason="nutpie is installed")
def test_a_package_that_is_not_installed_is_named() -> None:
    with pytest.raises(ImportError, match="nutpie"):
        sample(normal())
