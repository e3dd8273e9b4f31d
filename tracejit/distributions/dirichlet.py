"""The Dirichlet distribution."""

from __future__ import annotations

from typing import Any, ClassVar

from tracejit.distributions import constraints
from tracejit.distributions.distribution import broadcast
from tracejit.distributions.exp_family import ExponentialFamily
from tracejit.distributions.gamma import standard_gamma

__all__ = ["Dirichlet"]


class Dirichlet(ExponentialFamily):
    """Probabilities of k categories; the last dimension of `concentration` has k elements."""

    arg_constraints: ClassVar = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, concentration: Any, validate_args: bool | None = None) -> None:
        (self.concentration,) = broadcast(concentration)
        if self.concentration.ndim < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        super().__init__(self.concentration.shape[:-1], self.concentration.shape[-1:], validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return Dirichlet(self.concentration.expand((*batch_shape, *self.event_shape)), validate_args=False)

    @property
    def mean(self) -> Any:
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self) -> Any:
        above = (self.concentration - 1).clamp(min=0.0)
        return above / above.sum(-1, True)

    @property
    def variance(self) -> Any:
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total**2 * (total + 1))

    def rsample(self, sample_shape: Any = ()) -> Any:
        parts = standard_gamma(self.concentration, self._extended_shape(sample_shape))
        return parts / parts.sum(-1, True)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        a = self.concentration
        return (a - 1.0).xlogy(value).sum(-1) + a.sum(-1).lgamma() - a.lgamma().sum(-1)

    def entropy(self) -> Any:
        a, total = self.concentration, self.concentration.sum(-1)
        k = a.shape[-1]
        return a.lgamma().sum(-1) - total.lgamma() - (k - total) * total.digamma() - ((a - 1.0) * a.digamma()).sum(-1)
