"""The Cauchy distribution."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from tracejit.distributions import constraints
from tracejit.distributions.distribution import Distribution, broadcast
from tracejit.functions import empty

__all__ = ["Cauchy"]


class Cauchy(Distribution):
    """Numbers around `loc`, half of them within `scale` of it: the quotients of two normal numbers.  There is no mean."""

    arg_constraints: ClassVar = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> Any:
        return self.loc.new_full(tuple(self.batch_shape), float("nan"))

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        return self.loc.new_full(tuple(self.batch_shape), float("inf"))

    def rsample(self, sample_shape: Any = ()) -> Any:
        return self.loc + empty(self._extended_shape(sample_shape), dtype=self.loc.dtype).cauchy_() * self.scale

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        return -math.log(math.pi) - self.scale.log() - (((value - self.loc) / self.scale) ** 2).log1p()

    def cdf(self, value: Any) -> Any:
        self._validate_sample(value)
        return ((value - self.loc) / self.scale).atan() / math.pi + 0.5

    def icdf(self, value: Any) -> Any:
        return (math.pi * (value - 0.5)).tan() * self.scale + self.loc

    def entropy(self) -> Any:
        return math.log(4 * math.pi) + self.scale.log()
