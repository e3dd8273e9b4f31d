"""Divergences between distributions of different families, from moments.

The divergence of q from p is -H(p) - E log q(x), and log q(x) is made of few functions of x: x and x**2 (normal), x (exponential), x and
log x (gamma, Pareto), log x and log(1 - x) (beta), x and exp(-x / b) (Gumbel).  So a rule for q is written once, for each p whose means of
these functions are known; where p has values that q has not, the divergence is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tracejit.distributions.beta import Beta
from tracejit.distributions.exponential import Exponential
from tracejit.distributions.gamma import Gamma
from tracejit.distributions.gumbel import EULER, Gumbel
from tracejit.distributions.kl import register_kl
from tracejit.distributions.laplace import Laplace
from tracejit.distributions.normal import Normal
from tracejit.distributions.pareto import Pareto
from tracejit.distributions.uniform import Uniform
from tracejit.functions import where

__all__ = ["MEAN_EXPONENTIAL", "MEAN_LOG"]

_REAL: tuple[type, ...] = (Normal, Laplace, Gumbel)
_POSITIVE: tuple[type, ...] = (Exponential, Gamma, Pareto)


def _log_of_pareto(p: Any) -> Any:
    return p.scale.log() + p.alpha.reciprocal()


def _log_of_uniform(p: Any) -> Any:
    """NaN where `low` is negative."""
    return (p.high.xlogy(p.high) - p.low.xlogy(p.low)) / (p.high - p.low) - 1


MEAN_LOG: dict[type, Callable[[Any], Any]] = {
    Beta: lambda p: p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma(),
    Exponential: lambda p: -EULER - p.rate.log(),
    Gamma: lambda p: p.concentration.digamma() - p.rate.log(),
    Pareto: _log_of_pareto,
    Uniform: _log_of_uniform,
}
"""Family -> E log x."""

MEAN_EXPONENTIAL: dict[type, Callable[[Any, Any], Any]] = {
    Exponential: lambda p, t: p.rate / (p.rate + t),
    Gamma: lambda p, t: (1 + t / p.rate) ** -p.concentration,
    Gumbel: lambda p, t: (-t * p.loc).exp() * (1 + t * p.scale).lgamma().exp(),
    Normal: lambda p, t: (-t * p.loc + (t * p.scale) ** 2 / 2).exp(),
    Uniform: lambda p, t: ((-t * p.low).exp() - (-t * p.high).exp()) / (t * (p.high - p.low)),
}
"""Family -> E exp(-t x)."""


def _register(families: tuple[type, ...], q: type, mean_log: Callable[[Any, Any], Any]) -> None:
    """Rules for pairs of which `mean_log` says E log q(x), -infinity or NaN where p has values that q has not."""
    for family in families:

        def rule(p: Any, q: Any) -> Any:
            divergence = -p.entropy() - mean_log(p, q)
            return where(divergence.isnan(), math.inf, divergence)

        register_kl(family, q)(rule)


def _register_infinite(families: tuple[type, ...], q: type) -> None:
    for family in families:

        @register_kl(family, q)
        def rule(p: Any, q: Any) -> Any:
            return p.mean.new_full(tuple(p.batch_shape), math.inf)


def _of(means: dict[type, Callable[..., Any]], p: Any) -> Callable[..., Any]:
    """What a table says of the family of p, or of the one that it is derived from."""
    return next(means[kind] for kind in type(p).__mro__ if kind in means)


def _log(p: Any) -> Any:
    return _of(MEAN_LOG, p)(p)


def _under_normal(p: Any, q: Any) -> Any:
    variance = q.scale**2
    return -((p.mean - q.loc) ** 2 + p.variance) / (2 * variance) - 0.5 * (2 * math.pi * variance).log()


def _under_exponential(p: Any, q: Any) -> Any:
    return _where_positive(p, q.rate.log() - q.rate * p.mean)


def _under_gamma(p: Any, q: Any) -> Any:
    a = q.concentration
    return _where_positive(p, a * q.rate.log() - a.lgamma() + (a - 1) * _log(p) - q.rate * p.mean)


def _under_gumbel(p: Any, q: Any) -> Any:
    t = q.scale.reciprocal()
    return -q.scale.log() - (p.mean - q.loc) * t - (t * q.loc).exp() * _of(MEAN_EXPONENTIAL, p)(p, t)


def _under_pareto(p: Any, q: Any) -> Any:
    return where(p.low < q.scale, -math.inf, q.alpha.log() + q.alpha * q.scale.log() - (q.alpha + 1) * _log(p))


def _under_beta(p: Any, q: Any) -> Any:
    a, b = q.concentration1, q.concentration0
    mirrored = Uniform(1 - p.high, 1 - p.low, validate_args=False)
    density = (a - 1) * _log(p) + (b - 1) * _log(mirrored) + (a + b).lgamma() - a.lgamma() - b.lgamma()
    return where((p.low < 0) | (p.high > 1), -math.inf, density)


def _under_uniform(p: Any, q: Any) -> Any:
    return where((q.low > 0) | (q.high < 1), -math.inf, -(q.high - q.low).log())


def _where_positive(p: Any, value: Any) -> Any:
    """-infinity for a uniform distribution with negative numbers."""
    return where(p.low < 0, -math.inf, value) if isinstance(p, Uniform) else value


_register((Beta, Exponential, Gamma, Gumbel, Laplace, Pareto, Uniform), Normal, _under_normal)
_register((Beta, Gamma, Pareto, Uniform), Exponential, _under_exponential)
_register((Beta, Exponential, Pareto, Uniform), Gamma, _under_gamma)
_register((Exponential, Gamma, Gumbel, Normal, Uniform), Gumbel, _under_gumbel)
_register((Uniform,), Pareto, _under_pareto)
_register((Uniform,), Beta, _under_beta)
_register((Beta,), Uniform, _under_uniform)
_register_infinite(_REAL, Exponential)
_register_infinite(_REAL, Gamma)
_register_infinite((Beta, Exponential, Gamma, *_REAL), Pareto)
_register_infinite((*_POSITIVE, *_REAL), Beta)
_register_infinite((*_POSITIVE, *_REAL), Uniform)


@register_kl(Normal, Laplace)
def _normal_laplace(p: Any, q: Any) -> Any:
    """E |x - loc| is the mean of a folded normal distribution."""
    standard = (p.loc - q.loc) / p.scale
    distance = p.scale * math.sqrt(2 / math.pi) * (-0.5 * standard**2).exp() + (p.loc - q.loc) * (standard / math.sqrt(2)).erf()
    return -p.entropy() + (2 * q.scale).log() + distance / q.scale
