"""Student's t distribution."""  # noqa: N999  (the name of PyTorch's file)

from __future__ import annotations

import math
from typing import Any, ClassVar

from tracejit.distributions import constraints
from tracejit.distributions.distribution import Distribution, broadcast
from tracejit.distributions.gamma import Chi2
from tracejit.functions import randn, where

__all__ = ["StudentT"]


class StudentT(Distribution):
    """loc + scale * x / sqrt(v / df) of a standard normal x and a v of the chi-squared distribution of `df` degrees of freedom."""

    arg_constraints: ClassVar = {"df": constraints.positive, "loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None) -> None:
        self.df, self.loc, self.scale = broadcast(df, loc, scale)
        super().__init__(self.df.shape, validate_args=validate_args)

    @property
    def mean(self) -> Any:
        return where(self.df > 1, self.loc, math.nan)

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        finite = self.scale**2 * self.df / where(self.df > 2, self.df - 2, 1.0)
        return where(self.df > 2, finite, where(self.df > 1, math.inf, math.nan))

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        squares = Chi2(self.df, validate_args=False).rsample(sample_shape)
        return self.loc + self.scale * randn(shape, dtype=self.df.dtype) * (squares / self.df).rsqrt()

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        half = 0.5 * (self.df + 1)
        norm = self.scale.log() + 0.5 * (self.df * math.pi).log() + (0.5 * self.df).lgamma() - half.lgamma()
        return -half * (((value - self.loc) / self.scale) ** 2 / self.df).log1p() - norm

    def entropy(self) -> Any:
        half = 0.5 * (self.df + 1)
        log_beta = (0.5 * self.df).lgamma() + 0.5 * math.log(math.pi) - half.lgamma()
        return self.scale.log() + half * (half.digamma() - (0.5 * self.df).digamma()) + 0.5 * self.df.log() + log_beta
