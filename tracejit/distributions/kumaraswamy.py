"""The Kumaraswamy distribution."""

from __future__ import annotations

from typing import Any, ClassVar

from tracejit.distributions import constraints
from tracejit.distributions.distribution import broadcast
from tracejit.distributions.gumbel import EULER
from tracejit.distributions.transformed_distribution import TransformedDistribution
from tracejit.distributions.transforms import AffineTransform, PowerTransform
from tracejit.distributions.uniform import Uniform
from tracejit.functions import ones_like, where, zeros_like

__all__ = ["Kumaraswamy"]


class Kumaraswamy(TransformedDistribution):
    """Numbers between 0 and 1 with distribution function 1 - (1 - x ** concentration1) ** concentration0."""

    arg_constraints: ClassVar = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        self.concentration1, self.concentration0 = broadcast(concentration1, concentration0)
        zero = zeros_like(self.concentration0.detach())
        transforms = [
            PowerTransform(self.concentration0.reciprocal()),
            AffineTransform(1.0, -1.0),
            PowerTransform(self.concentration1.reciprocal()),
        ]
        super().__init__(Uniform(zero, ones_like(zero), validate_args), transforms, validate_args)

    def _moment(self, order: int) -> Any:
        """The mean of x ** order: concentration0 * B(1 + order / concentration1, concentration0)."""
        a, b = 1 + order / self.concentration1, self.concentration0
        return b * (a.lgamma() + b.lgamma() - (a + b).lgamma()).exp()

    @property
    def mean(self) -> Any:
        return self._moment(1)

    @property
    def variance(self) -> Any:
        return self._moment(2) - self._moment(1) ** 2

    @property
    def mode(self) -> Any:
        """Where the density is greatest; NaN where a concentration is below 1."""
        a, b = self.concentration1, self.concentration0
        return where((a < 1) | (b < 1), float("nan"), ((a - 1) / (a * b - 1)) ** a.reciprocal())

    def entropy(self) -> Any:
        a, b = self.concentration1, self.concentration0
        return 1 - b.reciprocal() + (1 - a.reciprocal()) * ((b + 1).digamma() + EULER) - a.log() - b.log()
