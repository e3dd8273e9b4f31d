"""The continuous Bernoulli distribution."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from tracejit.distributions import constraints
from tracejit.distributions.distribution import broadcast, probabilities_and_logits
from tracejit.distributions.exp_family import ExponentialFamily
from tracejit.distributions.utils import clamp_probs, logits_to_probs, probs_to_logits
from tracejit.functional import binary_cross_entropy_with_logits
from tracejit.functions import rand, where

__all__ = ["ContinuousBernoulli"]


class ContinuousBernoulli(ExponentialFamily):
    """Numbers x from 0 to 1 with density in proportion to probs ** x * (1 - probs) ** (1 - x); given are `probs` or `logits`.

    lims: between these probabilities, where the closed forms divide 0 by 0, their Taylor series around 1/2 are used.
    Loaiza-Ganem and Cunningham, The continuous Bernoulli, 2019."""

    arg_constraints: ClassVar = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(
        self, probs: Any = None, logits: Any = None, lims: tuple[float, float] = (0.499, 0.501), validate_args: bool | None = None
    ) -> None:
        given = probabilities_and_logits("ContinuousBernoulli", probs, logits)
        self._lims = lims
        if given[0] is not None:
            self.probs = given[0]
            super().__init__(tuple(self.probs.shape), (), validate_args)
            self.probs = clamp_probs(self.probs)
            self.logits = probs_to_logits(self.probs, is_binary=True)
        else:
            self.logits = given[1]
            super().__init__(tuple(self.logits.shape), (), validate_args)
            self.probs = clamp_probs(logits_to_probs(self.logits, is_binary=True))
        self._given = "probs" if given[0] is not None else "logits"

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        value = getattr(self, self._given).expand(tuple(batch_shape))
        return ContinuousBernoulli(**{self._given: value}, lims=self._lims, validate_args=False)

    def _apart(self) -> tuple[Any, Any, Any]:
        """Where the closed forms hold; the probabilities there, and one at which they can be computed elsewhere; probs - 1/2."""
        apart = (self.probs <= self._lims[0]) | (self.probs > self._lims[1])
        return apart, where(apart, self.probs, self._lims[0]), self.probs - 0.5

    def _log_constant(self) -> Any:
        """The logarithm of what the density is divided by: 2 atanh(1 - 2 probs) / (1 - 2 probs)."""
        apart, p, x = self._apart()
        closed = ((-p).log1p() - p.log()).abs().log() - (1 - 2 * p).abs().log()
        return where(apart, closed, math.log(2.0) + (4 / 3 + 104 / 45 * x**2) * x**2)

    @property
    def mean(self) -> Any:
        apart, p, x = self._apart()
        return where(apart, p / (2 * p - 1) + 1 / ((-p).log1p() - p.log()), 0.5 + (1 / 3 + 16 / 45 * x**2) * x)

    @property
    def variance(self) -> Any:
        apart, p, x = self._apart()
        closed = p * (p - 1) / (1 - 2 * p) ** 2 + 1 / ((-p).log1p() - p.log()) ** 2
        return where(apart, closed, 1 / 12 - (1 / 15 - 128 / 945 * x**2) * x**2)

    @property
    def stddev(self) -> Any:
        return self.variance.sqrt()

    @property
    def param_shape(self) -> Any:
        """The shape of the parameters."""
        return self.probs.shape

    def rsample(self, sample_shape: Any = ()) -> Any:
        return self.icdf(rand(tuple(self._extended_shape(sample_shape)), dtype=self.probs.dtype))

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        logits, value = broadcast(self.logits, value)
        return self._log_constant() - binary_cross_entropy_with_logits(logits, value, reduction="none")

    def cdf(self, value: Any) -> Any:
        self._validate_sample(value)
        apart, p, _ = self._apart()
        closed = (p**value * (1 - p) ** (1 - value) + p - 1) / (2 * p - 1)
        inside = where(apart, closed, value)
        return where(value <= 0, 0.0, where(value >= 1, 1.0, inside))

    def icdf(self, value: Any) -> Any:
        apart, p, _ = self._apart()
        return where(apart, ((value * (2 * p - 1) - p).log1p() - (-p).log1p()) / (p.log() - (-p).log1p()), value)

    def entropy(self) -> Any:
        return -self.mean * self.logits - (-self.probs).log1p() - self._log_constant()
