"""The Weibull distribution."""

from __future__ import annotations

from typing import Any, ClassVar

from tracejit.distributions import constraints
from tracejit.distributions.distribution import broadcast
from tracejit.distributions.exponential import Exponential
from tracejit.distributions.gumbel import EULER
from tracejit.distributions.transformed_distribution import TransformedDistribution
from tracejit.distributions.transforms import AffineTransform, PowerTransform
from tracejit.functions import ones_like

__all__ = ["Weibull"]


class Weibull(TransformedDistribution):
    """scale * x ** (1 / concentration) of exponential x of rate 1."""

    arg_constraints: ClassVar = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = broadcast(scale, concentration)
        base = Exponential(ones_like(self.scale.detach()), validate_args)
        power = PowerTransform(self.concentration.reciprocal())
        super().__init__(base, [power, AffineTransform(0, self.scale)], validate_args)

    def _moment(self, order: int) -> Any:
        """The mean of (x / scale) ** order."""
        return (1 + order / self.concentration).lgamma().exp()

    @property
    def mean(self) -> Any:
        return self.scale * self._moment(1)

    @property
    def mode(self) -> Any:
        return self.scale * ((self.concentration - 1) / self.concentration) ** self.concentration.reciprocal()

    @property
    def variance(self) -> Any:
        return self.scale**2 * (self._moment(2) - self._moment(1) ** 2)

    def entropy(self) -> Any:
        return EULER * (1 - self.concentration.reciprocal()) + (self.scale / self.concentration).log() + 1
