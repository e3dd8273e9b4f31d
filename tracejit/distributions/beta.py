"""The beta distribution."""

from __future__ import annotations

from typing import Any, ClassVar

from tracejit.distributions import constraints
from tracejit.distributions.dirichlet import Dirichlet
from tracejit.distributions.distribution import broadcast
from tracejit.distributions.exp_family import ExponentialFamily
from tracejit.functions import stack

__all__ = ["Beta"]


class Beta(ExponentialFamily):
    """Numbers in [0, 1]: the first of two probabilities of the Dirichlet distribution."""

    arg_constraints: ClassVar = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        self.concentration1, self.concentration0 = broadcast(concentration1, concentration0)
        super().__init__(self.concentration1.shape, validate_args=validate_args)
        self._dirichlet = Dirichlet(stack([self.concentration1, self.concentration0], -1), validate_args=False)

    @property
    def mean(self) -> Any:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Any:
        return self._dirichlet.mode[..., 0]

    @property
    def variance(self) -> Any:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total**2 * (total + 1))

    def rsample(self, sample_shape: Any = ()) -> Any:
        return self._dirichlet.rsample(sample_shape).select(-1, 0)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        return self._dirichlet.log_prob(stack([value, 1.0 - value], -1))

    def entropy(self) -> Any:
        return self._dirichlet.entropy()
