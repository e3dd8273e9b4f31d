"""Probability distributions: draws, densities, entropies and divergences, with gradients."""

from tracejit.distributions import (
    bernoulli,
    beta,
    binomial,
    categorical,
    chi2,
    constraints,
    dirichlet,
    distribution,
    exponential,
    gamma,
    geometric,
    independent,
    kl,
    laplace,
    multivariate_normal,
    normal,
    one_hot_categorical,
    poisson,
    uniform,
)
from tracejit.distributions.bernoulli import Bernoulli
from tracejit.distributions.beta import Beta
from tracejit.distributions.categorical import Categorical, OneHotCategorical
from tracejit.distributions.dirichlet import Dirichlet
from tracejit.distributions.discrete import Binomial, Geometric, Poisson
from tracejit.distributions.distribution import Distribution
from tracejit.distributions.exponential import Exponential
from tracejit.distributions.gamma import Chi2, Gamma
from tracejit.distributions.independent import Independent
from tracejit.distributions.kl import kl_divergence, register_kl
from tracejit.distributions.laplace import Laplace
from tracejit.distributions.multivariate_normal import MultivariateNormal
from tracejit.distributions.normal import Normal
from tracejit.distributions.uniform import Uniform

__all__ = [
    "Bernoulli", "Beta", "Binomial", "Categorical", "Chi2", "Dirichlet", "Distribution", "Exponential", "Gamma", "Geometric", "Independent",
    "Laplace", "MultivariateNormal", "Normal", "OneHotCategorical", "Poisson", "Uniform", "bernoulli", "beta", "binomial", "categorical",
    "chi2", "constraints", "dirichlet", "distribution", "exponential", "gamma", "geometric", "independent", "kl", "kl_divergence",
    "laplace", "multivariate_normal", "normal", "one_hot_categorical", "poisson", "register_kl", "uniform",
]  # fmt: skip
