"""The negative binomial distribution."""

from __future__ import annotations

from typing import Any, ClassVar

from tracejit.autograd.grad_mode import no_grad
from tracejit.distributions import constraints
from tracejit.distributions.bernoulli import FromProbsOrLogits
from tracejit.distributions.discrete import Poisson
from tracejit.distributions.distribution import broadcast
from tracejit.distributions.gamma import Gamma
from tracejit.functional import logsigmoid
from tracejit.functions import where

__all__ = ["NegativeBinomial"]


class NegativeBinomial(FromProbsOrLogits):
    """How many trials of probability `probs` succeed before total_count of them have failed; total_count need not be whole."""

    arg_constraints: ClassVar = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer

    def __init__(self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        parameter = self._hold(probs, logits)
        self.total_count, parameter = broadcast(total_count, parameter)
        self.__dict__["probs" if "probs" in self.__dict__ else "logits"] = parameter
        super().__init__(parameter.shape, validate_args=validate_args)

    @property
    def mean(self) -> Any:
        return self.total_count * self.logits.exp()

    @property
    def mode(self) -> Any:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    @property
    def variance(self) -> Any:
        return self.mean / (-self.logits).sigmoid()

    @no_grad()
    def sample(self, sample_shape: Any = ()) -> Any:
        rate = Gamma(self.total_count, (-self.logits).exp(), validate_args=False).sample(sample_shape)
        return Poisson(rate, validate_args=False).sample()

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        total = self.total_count
        ways = (total + value).lgamma() - (1.0 + value).lgamma() - total.lgamma()
        ways = where(total + value == 0, 0.0, ways)
        return total * logsigmoid(-self.logits) + value * logsigmoid(self.logits) + ways
