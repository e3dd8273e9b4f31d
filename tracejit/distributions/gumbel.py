"""The Gumbel distribution."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from tracejit.core.number_info import finfo
from tracejit.distributions import constraints
from tracejit.distributions.distribution import broadcast, tiny
from tracejit.distributions.transformed_distribution import TransformedDistribution
from tracejit.distributions.transforms import AffineTransform, ExpTransform
from tracejit.distributions.uniform import Uniform

__all__ = ["EULER", "Gumbel"]

EULER = 0.57721566490153286060
"""Euler's constant: the mean of the standard Gumbel distribution."""


class Gumbel(TransformedDistribution):
    """loc - scale * log(-log(u)) of uniform u: the distribution of the greatest of many numbers."""

    arg_constraints: ClassVar = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast(loc, scale)
        low = self.loc.detach() * 0 + finfo(self.loc.dtype).tiny
        uniform = Uniform(low, low * 0 + (1 - tiny(self.loc)), validate_args)
        minus_log = [ExpTransform().inv, AffineTransform(0, -1)]
        super().__init__(uniform, [*minus_log, ExpTransform().inv, AffineTransform(self.loc, -self.scale)], validate_args)

    @property
    def mean(self) -> Any:
        return self.loc + self.scale * EULER

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def stddev(self) -> Any:
        return math.pi / math.sqrt(6) * self.scale

    @property
    def variance(self) -> Any:
        return math.pi**2 / 6 * self.scale**2

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        y = (self.loc - value) / self.scale
        return y - y.exp() - self.scale.log()

    def entropy(self) -> Any:
        return self.scale.log() + (1 + EULER)
