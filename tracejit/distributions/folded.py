"""Absolute values of numbers whose density is symmetric around 0."""

from __future__ import annotations

import math
from typing import Any

from tracejit.distributions import constraints
from tracejit.distributions.transformed_distribution import TransformedDistribution
from tracejit.distributions.transforms import AbsTransform
from tracejit.functions import where

__all__ = ["Folded"]


class Folded(TransformedDistribution):
    """|x| of a symmetric distribution with a `scale`: twice its density at 0 and above.  Subclasses know their mean and variance."""

    support = constraints.nonnegative
    base_dist: Any

    def __init__(self, symmetric: Any, validate_args: bool | None) -> None:
        super().__init__(symmetric, AbsTransform(), validate_args)

    @property
    def scale(self) -> Any:
        """The scale of the distribution that is folded."""
        return self.base_dist.scale

    @property
    def mode(self) -> Any:
        return self.scale * 0

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        return where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -math.inf)

    def cdf(self, value: Any) -> Any:
        self._validate_sample(value)
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, value: Any) -> Any:
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self) -> Any:
        return self.base_dist.entropy() - math.log(2)
