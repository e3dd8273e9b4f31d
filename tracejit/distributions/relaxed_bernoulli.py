"""Continuous numbers in place of those of the Bernoulli distribution."""

from __future__ import annotations

from typing import Any, ClassVar

from tracejit.distributions import constraints
from tracejit.distributions.discrete import _FromProbsOrLogits
from tracejit.distributions.distribution import tiny
from tracejit.distributions.transformed_distribution import TransformedDistribution
from tracejit.distributions.transforms import SigmoidTransform
from tracejit.functional import logsigmoid
from tracejit.functions import broadcast_tensors, rand
from tracejit.tensor import as_tensor

__all__ = ["LogitRelaxedBernoulli", "RelaxedBernoulli"]


class LogitRelaxedBernoulli(_FromProbsOrLogits):
    """(logits + a logistic number) / temperature: the logit of RelaxedBernoulli.

    Maddison, Mnih and Teh (2017), https://arxiv.org/abs/1611.00712."""

    arg_constraints: ClassVar = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.real
    has_rsample = True

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self.temperature = temperature
        super().__init__(self._hold(probs, logits).shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        name = "probs" if "probs" in self.__dict__ else "logits"
        return LogitRelaxedBernoulli(
            self.temperature, **{name: self.__dict__[name].expand(tuple(batch_shape))}, validate_args=False
        )

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter."""
        return self.batch_shape

    def rsample(self, sample_shape: Any = ()) -> Any:
        logits, epsilon = self.logits, tiny(self.logits)
        u = rand(self._extended_shape(sample_shape), dtype=logits.dtype).clamp(epsilon, 1 - epsilon)
        return (u.log() - (-u).log1p() + logits) / self.temperature

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        logits, value = broadcast_tensors(self.logits, value)
        distance = logits - value * self.temperature
        return as_tensor(self.temperature, dtype=logits.dtype).log() + distance + 2 * logsigmoid(-distance)


class RelaxedBernoulli(TransformedDistribution):
    """Numbers between 0 and 1, near both ends for small temperatures: a Bernoulli distribution whose draws have gradients.

    Maddison, Mnih and Teh (2017), https://arxiv.org/abs/1611.00712; Jang, Gu and Poole (2017), https://arxiv.org/abs/1611.01144."""

    arg_constraints: ClassVar = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    base_dist: Any

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        super().__init__(LogitRelaxedBernoulli(temperature, probs, logits, validate_args), SigmoidTransform(), validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        logits = self.logits.expand(tuple(batch_shape))
        return RelaxedBernoulli(self.temperature, logits=logits, validate_args=False)

    @property
    def temperature(self) -> Any:
        """The temperature."""
        return self.base_dist.temperature

    @property
    def probs(self) -> Any:
        """The probability of 1."""
        return self.base_dist.probs

    @property
    def logits(self) -> Any:
        """Its logit."""
        return self.base_dist.logits
