"""Fisher and Snedecor's F distribution."""

from __future__ import annotations

from typing import Any, ClassVar

from tracejit.distributions import constraints
from tracejit.distributions.distribution import Distribution, broadcast
from tracejit.distributions.gamma import Gamma
from tracejit.functions import where

__all__ = ["FisherSnedecor"]


class FisherSnedecor(Distribution):
    """Quotients of two chi-squared numbers, each divided by its degrees of freedom, df1 and df2."""

    arg_constraints: ClassVar = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = broadcast(df1, df2)
        super().__init__(tuple(self.df1.shape), (), validate_args)

    @property
    def mean(self) -> Any:
        return where(self.df2 > 2, self.df2 / (self.df2 - 2), float("nan"))

    @property
    def mode(self) -> Any:
        return where(self.df1 > 2, (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2), float("nan"))

    @property
    def variance(self) -> Any:
        a, b = self.df1, self.df2
        return where(b > 4, 2 * b**2 * (a + b - 2) / (a * (b - 2) ** 2 * (b - 4)), float("nan"))

    def rsample(self, sample_shape: Any = ()) -> Any:
        above, below = (Gamma(df / 2, df / 2, validate_args=False).rsample(sample_shape) for df in (self.df1, self.df2))
        return above / below

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        a, b, ratio = self.df1 / 2, self.df2 / 2, self.df1 / self.df2
        constant = (a + b).lgamma() - a.lgamma() - b.lgamma() + a * ratio.log()
        return constant + (a - 1) * value.log() - (a + b) * (ratio * value).log1p()
