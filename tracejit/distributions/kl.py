"""Kullback and Leibler's divergence between two distributions, by their types."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

from tracejit.distributions.bernoulli import Bernoulli
from tracejit.distributions.beta import Beta
from tracejit.distributions.categorical import Categorical, OneHotCategorical
from tracejit.distributions.cauchy import Cauchy
from tracejit.distributions.dirichlet import Dirichlet
from tracejit.distributions.discrete import Binomial, Geometric, Poisson
from tracejit.distributions.distribution import Distribution
from tracejit.distributions.exponential import Exponential
from tracejit.distributions.gamma import Gamma
from tracejit.distributions.half_normal import HalfNormal
from tracejit.distributions.independent import Independent, summed
from tracejit.distributions.laplace import Laplace
from tracejit.distributions.multivariate_normal import MultivariateNormal, half_log_det, squared_distance
from tracejit.distributions.normal import Normal
from tracejit.distributions.pareto import Pareto
from tracejit.distributions.transformed_distribution import TransformedDistribution
from tracejit.distributions.uniform import Uniform
from tracejit.functional import softplus
from tracejit.functions import where
from tracejit.linalg import solve_triangular

__all__ = ["kl_divergence", "register_kl"]

_Rule = TypeVar("_Rule", bound=Callable[[Any, Any], Any])
_RULES: dict[tuple[type, type], Callable[[Any, Any], Any]] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[_Rule], _Rule]:
    """Decorate a function (p, q) that is the divergence between distributions of two types, or of types derived from them."""
    for kind in (type_p, type_q):
        if not isinstance(kind, type):  # programs have distributions that are not derived from Distribution
            raise TypeError(f"Expected type_p and type_q to be classes of distributions but got {kind}")

    def register(rule: _Rule) -> _Rule:
        _RULES[type_p, type_q] = rule
        return rule

    return register


def kl_divergence(p: Distribution, q: Distribution) -> Any:
    """The divergence of `q` from `p`: the mean under p of log p - log q.  Raises NotImplementedError for types without a rule."""
    for kind_p in type(p).__mro__:
        for kind_q in type(q).__mro__:
            rule = _RULES.get((kind_p, kind_q))
            if rule is not None:
                return rule(p, q)
    raise NotImplementedError(f"No KL(p || q) is implemented for p type {p.__class__.__name__} and q type {q.__class__.__name__}")


@register_kl(Normal, Normal)
def _normal(p: Any, q: Any) -> Any:
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale) ** 2 - 1 - ratio.log())


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Any, q: Any) -> Any:
    first = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    second = (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))
    first = where(p.probs == 0, 0.0, where(q.probs == 0, math.inf, first))
    return first + where(p.probs == 1, 0.0, where(q.probs == 1, math.inf, second))


@register_kl(Categorical, Categorical)
def _categorical(p: Any, q: Any) -> Any:
    terms = p.probs * (p.logits - q.logits)
    terms = where((q.probs == 0).expand_as(terms), math.inf, terms)
    return where((p.probs == 0).expand_as(terms), 0.0, terms).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p: Any, q: Any) -> Any:
    return _categorical(p._categorical, q._categorical)


@register_kl(Uniform, Uniform)
def _uniform(p: Any, q: Any) -> Any:
    within = (q.low <= p.low) & (q.high >= p.high)
    return where(within, ((q.high - q.low) / (p.high - p.low)).log(), math.inf)


@register_kl(Exponential, Exponential)
def _exponential(p: Any, q: Any) -> Any:
    ratio = q.rate / p.rate
    return -ratio.log() + ratio - 1


@register_kl(Laplace, Laplace)
def _laplace(p: Any, q: Any) -> Any:
    ratio, distance = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + distance / q.scale + ratio * (-distance / p.scale).exp() - 1


@register_kl(Gamma, Gamma)
def _gamma(p: Any, q: Any) -> Any:
    a, b = p.concentration, q.concentration
    return b * (p.rate / q.rate).log() + b.lgamma() - a.lgamma() + (a - b) * a.digamma() + (q.rate - p.rate) * (a / p.rate)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Any, q: Any) -> Any:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    terms = (a.lgamma() - b.lgamma()).sum(-1)
    slope = a.digamma() - total.digamma().unsqueeze(-1)
    return total.lgamma() - b.sum(-1).lgamma() - terms + ((a - b) * slope).sum(-1)


@register_kl(Beta, Beta)
def _beta(p: Any, q: Any) -> Any:
    return _dirichlet(p._dirichlet, q._dirichlet)


@register_kl(Poisson, Poisson)
def _poisson(p: Any, q: Any) -> Any:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Geometric, Geometric)
def _geometric(p: Any, q: Any) -> Any:
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(Binomial, Binomial)
def _binomial(p: Any, q: Any) -> Any:
    """Raises NotImplementedError where `q` has more trials: there is no formula."""
    if bool((p.total_count < q.total_count).any()):
        raise NotImplementedError("KL between Binomials where q.total_count > p.total_count is not implemented")
    terms = p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    return where(p.total_count > q.total_count, math.inf, p.total_count * terms)


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Any, q: Any) -> Any:
    """Chyzak and Nielsen (2019), https://arxiv.org/abs/1905.10965."""
    return ((p.scale + q.scale) ** 2 + (p.loc - q.loc) ** 2).log() - (4 * p.scale * q.scale).log()


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: Any, q: Any) -> Any:
    return _normal(p.base_dist, q.base_dist)


@register_kl(Pareto, Pareto)
def _pareto(p: Any, q: Any) -> Any:
    ratio = q.alpha / p.alpha
    divergence = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return where(p.scale < q.scale, math.inf, divergence)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: Any, q: Any) -> Any:
    """That of what was transformed.  Raises NotImplementedError for other transforms."""
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError("No KL(p || q) for distributions transformed by different transforms")
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate_normal(p: Any, q: Any) -> Any:
    if p.event_shape != q.event_shape:
        raise ValueError("KL-divergence between two Multivariate Normals with different event shapes cannot be computed")
    size = p.event_shape[0]
    shape = (*(p.loc + q.loc).shape[:-1], size, size)
    spread = solve_triangular(q._factor.expand(shape), p._factor.expand(shape), upper=False) ** 2
    logs = half_log_det(q._factor) - half_log_det(p._factor)
    return logs + 0.5 * (spread.sum((-2, -1)) + squared_distance(q._factor, q.loc - p.loc) - size)


@register_kl(Independent, Independent)
def _independent(p: Any, q: Any) -> Any:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("No KL(p || q) for Independent distributions with different reinterpreted_batch_ndims")
    return summed(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)
