"""The inverse gamma distribution."""

from __future__ import annotations

from typing import Any, ClassVar

from tracejit.distributions import constraints
from tracejit.distributions.distribution import broadcast
from tracejit.distributions.gamma import Gamma
from tracejit.distributions.transformed_distribution import TransformedDistribution
from tracejit.distributions.transforms import PowerTransform
from tracejit.functions import where

__all__ = ["InverseGamma"]


class InverseGamma(TransformedDistribution):
    """1 / x of gamma numbers x of shape `concentration` and a rate."""

    arg_constraints: ClassVar = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.positive

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast(concentration, rate)
        base = Gamma(self.concentration, self.rate, validate_args)
        super().__init__(base, PowerTransform(-self.rate.new_ones(())), validate_args)

    @property
    def mean(self) -> Any:
        return where(self.concentration > 1, self.rate / (self.concentration - 1), float("inf"))

    @property
    def mode(self) -> Any:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Any:
        a = self.concentration
        return where(a > 2, self.rate**2 / ((a - 1) ** 2 * (a - 2)), float("inf"))

    def entropy(self) -> Any:
        a = self.concentration
        return a + self.rate.log() + a.lgamma() - (1 + a) * a.digamma()
