"""Rows from statistics and finance: logistic regression and Black-Scholes option prices, with gradients through autograd.

Small products and elementary functions: what samplers and pricing loops call many thousand times.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import ndtr

from benchmarks.workload import Side, Transform, Workload, as_arrays

__all__ = ["INTEREST", "OPTION_COUNTS", "ROWS", "logistic_inputs", "option_inputs"]

OPTION_COUNTS = (100, 1_000_000)
INTEREST = 0.03


def logistic_inputs() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Observations (500, 20), outcomes 0 or 1 (500,), coefficients (20,)."""
    random = np.random.default_rng(5)
    x = random.standard_normal((500, 20)).astype(np.float32)
    coefficients = random.standard_normal(20).astype(np.float32)
    outcomes = (random.random(500) < 1 / (1 + np.exp(-x @ coefficients))).astype(np.float32)
    return x, outcomes, 0.5 * coefficients


def _logistic(framework: Any, transform: Transform) -> Side:
    x, outcomes, start = (framework.tensor(array) for array in logistic_inputs())
    coefficients = start.requires_grad_()
    softplus = framework.nn.functional.softplus

    @transform
    def log_density(coefficients: Any) -> Any:
        logits = x @ coefficients
        value = (outcomes * logits - softplus(logits)).sum() - 0.5 * (coefficients * coefficients).sum()
        return value.detach(), *framework.autograd.grad(value, coefficients)

    return Side(lambda: log_density(coefficients), as_arrays, log_density)


def _logistic_numpy() -> Side:
    x, outcomes, coefficients = logistic_inputs()

    def log_density() -> list[Any]:
        logits = x @ coefficients
        e = np.exp(-np.abs(logits))
        softplus = np.maximum(logits, 0) + np.log1p(e)
        value = outcomes @ logits - softplus.sum() - np.float32(0.5) * (coefficients @ coefficients)
        probability = np.where(logits >= 0, 1, e) / (1 + e)
        return [value, (outcomes - probability) @ x - coefficients]

    return Side(log_density, lambda results: [np.asarray(r) for r in results])


def _logistic_products() -> Callable[[], object]:
    x, outcomes, coefficients = logistic_inputs()
    return lambda: (np.matmul(x, coefficients), np.matmul(outcomes, x))


def option_inputs(n: int) -> list[np.ndarray]:
    """Spot prices, strikes, years to expiry and volatilities of n call options."""
    random = np.random.default_rng(6)
    ranges = ((80, 120), (80, 120), (0.1, 2), (0.1, 0.5))
    return [random.uniform(low, high, n).astype(np.float32) for low, high in ranges]


def _options(n: int) -> Workload:
    def build(framework: Any, transform: Transform) -> Side:
        spot, strike, years, volatility = (framework.tensor(array) for array in option_inputs(n))
        spot.requires_grad_()
        volatility.requires_grad_()

        def normal(d: Any) -> Any:
            return 0.5 * (1 + framework.erf(d * 0.7071067811865476))

        @transform
        def price_delta_vega(spot: Any, strike: Any, years: Any, volatility: Any) -> Any:
            deviation = volatility * framework.sqrt(years)
            d1 = (framework.log(spot / strike) + (INTEREST + 0.5 * volatility * volatility) * years) / deviation
            price = spot * normal(d1) - strike * framework.exp(-INTEREST * years) * normal(d1 - deviation)
            return price.detach(), *framework.autograd.grad(price.sum(), (spot, volatility))

        return Side(lambda: price_delta_vega(spot, strike, years, volatility), as_arrays, price_delta_vega)

    def numpy() -> Side:
        spot, strike, years, volatility = option_inputs(n)

        def price_delta_vega() -> list[np.ndarray]:
            root = np.sqrt(years)
            deviation = volatility * root
            d1 = (np.log(spot / strike) + (np.float32(INTEREST) + np.float32(0.5) * volatility * volatility) * years) / deviation
            delta = ndtr(d1)
            price = spot * delta - strike * np.exp(np.float32(-INTEREST) * years) * ndtr(d1 - deviation)
            return [price, delta, spot * root * np.float32((2 * np.pi) ** -0.5) * np.exp(np.float32(-0.5) * d1 * d1)]

        return Side(price_delta_vega, list)

    return Workload(
        name=f"black_scholes_{n}",
        title=f"Black-Scholes and two greeks, n={n:,}",
        inside="price of n call options; delta and vega by autograd.grad",
        build=build,
        numpy=numpy,
        peer_tolerance=1e-4,
    )


ROWS = (
    Workload(
        name="logistic",
        title="logistic regression, 500x20",
        inside="log-density with a normal prior, and autograd.grad for the coefficients",
        build=_logistic,
        products=_logistic_products,
        numpy=_logistic_numpy,
        peer_tolerance=1e-4,
    ),
    *(_options(n) for n in OPTION_COUNTS),
)
