"""The gamma distribution, and chi-squared as one of its kind.

A draw is the quantile of a uniform number, so its derivative by the parameters is that of the quantile function."""

from __future__ import annotations

from typing import Any, ClassVar

from tracejit.distributions import constraints
from tracejit.distributions.distribution import broadcast, tiny
from tracejit.distributions.exp_family import ExponentialFamily
from tracejit.functions import rand
from tracejit.ops.elementwise.incomplete import gamma_quantile, gammainc
from tracejit.tensor import Tensor

__all__ = ["Chi2", "Gamma", "standard_gamma"]


def standard_gamma(concentration: Tensor, shape: tuple[int, ...]) -> Any:
    """Draws of the gamma distribution of rate 1, none of them 0."""
    u = rand(tuple(shape), dtype=concentration.dtype) + tiny(concentration) / 4
    return gamma_quantile(concentration.expand(tuple(shape)), u).clamp(min=1e-38)


def standard_gamma_of(concentration: Tensor, generator: Any = None) -> Any:
    """Draws of the gamma distribution of rate 1, one for each concentration; gradients reach these.

    Raises NotImplementedError for a generator of the caller's."""
    if generator is not None:
        raise NotImplementedError("_standard_gamma(): no generator is taken; use manual_seed()")
    return standard_gamma(concentration, tuple(concentration.shape))


class Gamma(ExponentialFamily):
    """Gamma numbers of shape `concentration` and a rate."""

    arg_constraints: ClassVar = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast(concentration, rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    @property
    def mean(self) -> Any:
        return self.concentration / self.rate

    @property
    def mode(self) -> Any:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Any:
        return self.concentration / self.rate**2

    def rsample(self, sample_shape: Any = ()) -> Any:
        return standard_gamma(self.concentration, self._extended_shape(sample_shape)) / self.rate

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        return (
            self.concentration.xlogy(self.rate)
            + (self.concentration - 1).xlogy(value)
            - self.rate * value
            - self.concentration.lgamma()
        )

    def cdf(self, value: Any) -> Any:
        self._validate_sample(value)
        return gammainc(self.concentration, self.rate * value)

    def entropy(self) -> Any:
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1.0 - a) * a.digamma()


class Chi2(Gamma):
    """The sum of the squares of `df` standard normal numbers."""

    arg_constraints: ClassVar = {"df": constraints.positive}

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        (self.df,) = broadcast(df)
        super().__init__(0.5 * self.df, 0.5, validate_args=validate_args)
