"""Posteriors that samplers are measured and tested on: eight schools, a logistic regression, a hierarchical model.

Each has the density as a Model of tracejit, the same model for PyMC, and the exact posterior means of some
parameters, or None where only a long run could tell.  The means of the schools and of the hierarchical model are
integrals over one or two scales, since given these everything else is normal: Gelman et al., Bayesian Data Analysis,
3rd edition, section 5.4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from scipy import integrate, stats

import tracejit
from tracejit import inference
from tracejit.distributions import HalfCauchy, HalfNormal, Normal, constraints
from tracejit.nn.functional import softplus

__all__ = ["POSTERIORS", "Posterior"]

EFFECTS: Final = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
ERRORS: Final = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])


@dataclass(frozen=True)
class Posterior:
    """name; `model()` of tracejit; `pymc(pymc)` the same model of PyMC; `means()` exact posterior means, None if they
    are not known."""

    name: str
    model: Callable[[], inference.Model]
    pymc: Callable[[Any], Any]
    means: Callable[[], dict[str, Any] | None]


# ---- eight schools (Rubin 1981), not centred


def _schools() -> inference.Model:
    effects, errors = tracejit.from_numpy(EFFECTS), tracejit.from_numpy(ERRORS)

    def log_density(p: Any) -> Any:
        theta = p["mu"] + p["tau"] * p["z"]
        prior = Normal(0.0, 5.0).log_prob(p["mu"]) + HalfCauchy(5.0).log_prob(p["tau"]) + Normal(0.0, 1.0).log_prob(p["z"]).sum()
        return prior + Normal(theta, errors).log_prob(effects).sum()

    parameters: dict[str, Any] = {
        "mu": (),
        "tau": inference.Parameter((), constraints.positive),
        "z": inference.Parameter((8,), dims=("school",)),
    }
    return inference.Model(log_density, parameters, coords={"school": list("ABCDEFGH")})


def _schools_pymc(pymc: Any) -> Any:
    with pymc.Model() as model:
        mu, tau, z = pymc.Normal("mu", 0, 5), pymc.HalfCauchy("tau", 5), pymc.Normal("z", 0, 1, shape=8)
        pymc.Normal("y", mu + tau * z, ERRORS, observed=EFFECTS)
    return model


def _schools_means() -> dict[str, Any]:
    """By integration over tau: mu given tau is normal, and z given both."""

    def of_tau(tau: float) -> tuple[float, float]:
        """(density of tau and the data, mean of mu given tau)."""
        variances = ERRORS**2 + tau**2
        precision = np.sum(1 / variances) + 1 / 25
        mean = np.sum(EFFECTS / variances) / precision
        value = np.sum(stats.norm.logpdf(EFFECTS, 0, np.sqrt(variances))) + 0.5 * mean**2 * precision - 0.5 * np.log(precision)
        return float(np.exp(value + stats.halfcauchy.logpdf(tau, scale=5))), float(mean)

    def integral(f: Callable[[float, float], float]) -> float:
        total = [integrate.quad(lambda tau: of_tau(tau)[0] * f(tau, of_tau(tau)[1]), *ends)[0] for ends in ((0, 20), (20, 400))]
        return float(sum(total))

    whole = integral(lambda tau, mean: 1.0)
    return {"mu": integral(lambda tau, mean: mean) / whole, "tau": integral(lambda tau, mean: tau) / whole}


# ---- logistic regression, 200 rows and 10 columns


def _logistic_data() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(3)
    x = random.standard_normal((200, 10))
    return x, (random.random(200) < 1 / (1 + np.exp(-x @ random.standard_normal(10)))).astype(np.float64)


def _logistic() -> inference.Model:
    x, outcomes = map(tracejit.from_numpy, _logistic_data())

    def log_density(p: Any) -> Any:
        logits = x @ p["coefficients"] + p["intercept"]
        prior = Normal(0.0, 2.5).log_prob(p["coefficients"]).sum() + Normal(0.0, 2.5).log_prob(p["intercept"])
        return prior + (outcomes * logits - softplus(logits)).sum()

    return inference.Model(log_density, {"intercept": (), "coefficients": (10,)})


def _logistic_pymc(pymc: Any) -> Any:
    x, outcomes = _logistic_data()
    with pymc.Model() as model:
        intercept, coefficients = pymc.Normal("intercept", 0, 2.5), pymc.Normal("coefficients", 0, 2.5, shape=10)
        pymc.Bernoulli("y", logit_p=x @ coefficients + intercept, observed=outcomes)
    return model


# ---- a hierarchical model: 20 groups of 5 observations


def _groups() -> np.ndarray:
    random = np.random.default_rng(4)
    return 1.0 + 0.7 * random.standard_normal((20, 1)) + random.standard_normal((20, 5))


def _hierarchical() -> inference.Model:
    observed = tracejit.from_numpy(_groups())

    def log_density(p: Any) -> Any:
        level = p["mu"] + p["between"] * p["z"]
        prior = (
            Normal(0.0, 3.0).log_prob(p["mu"]) + HalfNormal(2.0).log_prob(p["between"]) + HalfNormal(2.0).log_prob(p["within"])
        )
        return prior + Normal(0.0, 1.0).log_prob(p["z"]).sum() + Normal(level[:, None], p["within"]).log_prob(observed).sum()

    positive = inference.Parameter((), constraints.positive)
    return inference.Model(log_density, {"mu": (), "between": positive, "within": positive, "z": (20,)})


def _hierarchical_pymc(pymc: Any) -> Any:
    with pymc.Model() as model:
        mu, between, within = pymc.Normal("mu", 0, 3), pymc.HalfNormal("between", 2), pymc.HalfNormal("within", 2)
        z = pymc.Normal("z", 0, 1, shape=20)
        pymc.Normal("y", (mu + between * z)[:, None], within, observed=_groups())
    return model


def _hierarchical_means() -> dict[str, Any]:
    """By integration over the two scales, on a grid: all else is normal given these."""
    observed = _groups()
    means, squares = observed.mean(1), float(((observed - observed.mean(1, keepdims=True)) ** 2).sum())
    groups, each = observed.shape
    between, within = np.meshgrid(np.linspace(1e-3, 3, 600), np.linspace(0.5, 2, 600), indexing="ij")
    variances = between**2 + within**2 / each
    precision = groups / variances + 1 / 9
    mean = means.sum() / variances / precision
    value = -groups * (each - 1) * np.log(within) - squares / (2 * within**2) - groups / 2 * np.log(variances)
    value += -(means**2).sum() / (2 * variances) + 0.5 * mean**2 * precision - 0.5 * np.log(precision)
    value -= (between**2 + within**2) / 8
    weight = np.exp(value - value.max())
    weight /= weight.sum()
    return {
        "mu": float((weight * mean).sum()),
        "between": float((weight * between).sum()),
        "within": float((weight * within).sum()),
    }


POSTERIORS: Final = (
    Posterior("schools", _schools, _schools_pymc, _schools_means),
    Posterior("logistic", _logistic, _logistic_pymc, lambda: None),
    Posterior("hierarchical", _hierarchical, _hierarchical_pymc, _hierarchical_means),
)
