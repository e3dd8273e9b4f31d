"""The generalised Pareto distribution."""

from __future__ import annotations

from typing import Any, ClassVar

from tracejit.distributions import constraints
from tracejit.distributions.distribution import Distribution, broadcast
from tracejit.functions import rand, where

__all__ = ["GeneralizedPareto"]


class GeneralizedPareto(Distribution):
    """Numbers above `loc` with survival function (1 + concentration * z) ** (-1 / concentration) of z = (x - loc) / scale; exp(-z) for a
    concentration of 0."""

    arg_constraints: ClassVar = {"loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real}
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale, self.concentration = broadcast(loc, scale, concentration)
        super().__init__(tuple(self.loc.shape), (), validate_args)

    @property
    def support(self) -> Any:  # type: ignore[override]
        bounded = self.concentration < 0
        end = self.loc - self.scale / where(bounded, self.concentration, -1.0)
        return constraints.interval(self.loc, where(bounded, end, float("inf")))

    def _shape_or(self, other: float) -> tuple[Any, Any]:
        """Where the concentration is 0; the concentration elsewhere, `other` there."""
        zero = self.concentration.abs() <= 1e-8
        return zero, where(zero, other, self.concentration)

    @property
    def mean(self) -> Any:
        finite = self.concentration < 1
        return where(finite, self.loc + self.scale / (1 - where(finite, self.concentration, 0.5)), float("nan"))

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        finite = self.concentration < 0.5
        c = where(finite, self.concentration, 0.25)
        return where(finite, self.scale**2 / ((1 - c) ** 2 * (1 - 2 * c)), float("nan"))

    def rsample(self, sample_shape: Any = ()) -> Any:
        return self.icdf(rand(tuple(self._extended_shape(sample_shape)), dtype=self.loc.dtype))

    def log_survival_function(self, value: Any) -> Any:
        """The logarithm of the probability of numbers above `value`."""
        self._validate_sample(value)
        z = (value - self.loc) / self.scale
        zero, c = self._shape_or(1.0)
        return where(zero, -z, -(c * z).log1p() / c)

    def log_prob(self, value: Any) -> Any:
        return self.log_survival_function(value) * (1 + self.concentration) - self.scale.log()

    def log_cdf(self, value: Any) -> Any:
        """The logarithm of cdf()."""
        return (-self.log_survival_function(value).exp()).log1p()

    def cdf(self, value: Any) -> Any:
        return -self.log_survival_function(value).expm1()

    def icdf(self, value: Any) -> Any:
        zero, c = self._shape_or(1.0)
        rest = (-value).log1p()
        return self.loc + self.scale * where(zero, -rest, (-c * rest).expm1() / c)

    def entropy(self) -> Any:
        return self.scale.log() + self.concentration + 1
