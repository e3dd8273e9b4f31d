"""Probability distributions: draws, densities, entropies and divergences, with gradients.

Must not know: modules of networks, the compiler.
Start reading: distribution.py (the base class), then normal.py.
"""

from tracejit.distributions import (
    bernoulli,
    beta,
    binomial,
    categorical,
    cauchy,
    chi2,
    constraint_registry,
    constraints,
    continuous_bernoulli,
    dirichlet,
    distribution,
    exp_family,
    exponential,
    fishersnedecor,
    gamma,
    generalized_pareto,
    geometric,
    gumbel,
    half_cauchy,
    half_normal,
    independent,
    inverse_gamma,
    kl,
    kl_moments,
    kumaraswamy,
    laplace,
    lkj_cholesky,
    log_normal,
    logistic_normal,
    lowrank_multivariate_normal,
    mixture_same_family,
    multinomial,
    multivariate_normal,
    negative_binomial,
    normal,
    one_hot_categorical,
    pareto,
    poisson,
    relaxed_bernoulli,
    relaxed_categorical,
    studentT,
    transformed_distribution,
    transforms,
    uniform,
    utils,
    von_mises,
    weibull,
    wishart,
)
from tracejit.distributions.bernoulli import Bernoulli
from tracejit.distributions.beta import Beta
from tracejit.distributions.categorical import Categorical, OneHotCategorical, OneHotCategoricalStraightThrough
from tracejit.distributions.cauchy import Cauchy
from tracejit.distributions.constraint_registry import biject_to, transform_to
from tracejit.distributions.continuous_bernoulli import ContinuousBernoulli
from tracejit.distributions.dirichlet import Dirichlet
from tracejit.distributions.discrete import Binomial, Geometric, Poisson
from tracejit.distributions.distribution import Distribution
from tracejit.distributions.exp_family import ExponentialFamily
from tracejit.distributions.exponential import Exponential
from tracejit.distributions.fishersnedecor import FisherSnedecor
from tracejit.distributions.gamma import Chi2, Gamma
from tracejit.distributions.generalized_pareto import GeneralizedPareto
from tracejit.distributions.gumbel import Gumbel
from tracejit.distributions.half_cauchy import HalfCauchy
from tracejit.distributions.half_normal import HalfNormal
from tracejit.distributions.independent import Independent
from tracejit.distributions.inverse_gamma import InverseGamma
from tracejit.distributions.kl import kl_divergence, register_kl
from tracejit.distributions.kumaraswamy import Kumaraswamy
from tracejit.distributions.laplace import Laplace
from tracejit.distributions.lkj_cholesky import LKJCholesky
from tracejit.distributions.log_normal import LogNormal
from tracejit.distributions.logistic_normal import LogisticNormal
from tracejit.distributions.lowrank_multivariate_normal import LowRankMultivariateNormal
from tracejit.distributions.mixture_same_family import MixtureSameFamily
from tracejit.distributions.multinomial import Multinomial
from tracejit.distributions.multivariate_normal import MultivariateNormal
from tracejit.distributions.negative_binomial import NegativeBinomial
from tracejit.distributions.normal import Normal
from tracejit.distributions.pareto import Pareto
from tracejit.distributions.relaxed_bernoulli import RelaxedBernoulli
from tracejit.distributions.relaxed_categorical import RelaxedOneHotCategorical
from tracejit.distributions.studentT import StudentT
from tracejit.distributions.transformed_distribution import TransformedDistribution
from tracejit.distributions.transforms import (
    AbsTransform,
    AffineTransform,
    CatTransform,
    ComposeTransform,
    CorrCholeskyTransform,
    CumulativeDistributionTransform,
    ExpTransform,
    IndependentTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    PowerTransform,
    ReshapeTransform,
    SigmoidTransform,
    SoftmaxTransform,
    SoftplusTransform,
    StackTransform,
    StickBreakingTransform,
    TanhTransform,
    Transform,
    identity_transform,
)  # fmt: skip
from tracejit.distributions.uniform import Uniform
from tracejit.distributions.von_mises import VonMises
from tracejit.distributions.weibull import Weibull
from tracejit.distributions.wishart import Wishart

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "Bernoulli",
    "Beta",
    "Binomial",
    "CatTransform",
    "Categorical",
    "Cauchy",
    "Chi2",
    "ComposeTransform",
    "ContinuousBernoulli",
    "CorrCholeskyTransform",
    "CumulativeDistributionTransform",
    "Dirichlet",
    "Distribution",
    "ExpTransform",
    "Exponential",
    "ExponentialFamily",
    "FisherSnedecor",
    "Gamma",
    "GeneralizedPareto",
    "Geometric",
    "Gumbel",
    "HalfCauchy",
    "HalfNormal",
    "Independent",
    "IndependentTransform",
    "InverseGamma",
    "Kumaraswamy",
    "LKJCholesky",
    "Laplace",
    "LogNormal",
    "LogisticNormal",
    "LowRankMultivariateNormal",
    "LowerCholeskyTransform",
    "MixtureSameFamily",
    "Multinomial",
    "MultivariateNormal",
    "NegativeBinomial",
    "Normal",
    "OneHotCategorical",
    "OneHotCategoricalStraightThrough",
    "Pareto",
    "Poisson",
    "PositiveDefiniteTransform",
    "PowerTransform",
    "RelaxedBernoulli",
    "RelaxedOneHotCategorical",
    "ReshapeTransform",
    "SigmoidTransform",
    "SoftmaxTransform",
    "SoftplusTransform",
    "StackTransform",
    "StickBreakingTransform",
    "StudentT",
    "TanhTransform",
    "Transform",
    "TransformedDistribution",
    "Uniform",
    "VonMises",
    "Weibull",
    "Wishart",
    "bernoulli",
    "beta",
    "biject_to",
    "binomial",
    "categorical",
    "cauchy",
    "chi2",
    "constraint_registry",
    "constraints",
    "continuous_bernoulli",
    "dirichlet",
    "distribution",
    "exp_family",
    "exponential",
    "fishersnedecor",
    "gamma",
    "generalized_pareto",
    "geometric",
    "gumbel",
    "half_cauchy",
    "half_normal",
    "identity_transform",
    "independent",
    "inverse_gamma",
    "kl",
    "kl_divergence",
    "kumaraswamy",
    "laplace",
    "lkj_cholesky",
    "log_normal",
    "logistic_normal",
    "lowrank_multivariate_normal",
    "mixture_same_family",
    "multinomial",
    "multivariate_normal",
    "negative_binomial",
    "normal",
    "one_hot_categorical",
    "pareto",
    "poisson",
    "register_kl",
    "relaxed_bernoulli",
    "relaxed_categorical",
    "studentT",
    "transform_to",
    "transformed_distribution",
    "transforms",
    "uniform",
    "utils",
    "von_mises",
    "weibull",
    "wishart",
]  # fmt: skip
