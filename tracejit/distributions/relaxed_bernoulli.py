"""Continuous numbers in place of those of the Bernoulli distribution."""

from __future__ import annotations

from typing import Any, ClassVar

from tracejit.distributions import constraints
from tracejit.distributions.bernoulli import FromProbsOrLogits
from tracejit.distributions.distribution import tiny
from tracejit.distributions.transformed_distribution import TransformedDistribution
from tracejit.distributions.transforms import SigmoidTransform
from tracejit.functional import logsigmoid
from tracejit.functions import broadcast_tensors, rand
from tracejit.tensor import as_tensor

__all__ = ["LogitRelaxedBernoulli", "Relaxed", "RelaxedBernoulli"]


class LogitRelaxedBernoulli(FromProbsOrLogits):
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

    def rsample(self, sample_shape: Any = ()) -> Any:
        logits, epsilon = self.logits, tiny(self.logits)
        u = rand(self._extended_shape(sample_shape), dtype=logits.dtype).clamp(epsilon, 1 - epsilon)
        return (u.log() - (-u).log1p() + logits) / self.temperature

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        logits, value = broadcast_tensors(self.logits, value)
        distance = logits - value * self.temperature
        return as_tensor(self.temperature, dtype=logits.dtype).log() + distance + 2 * logsigmoid(-distance)


class Relaxed(TransformedDistribution):
    """What a transform makes of a continuous distribution that stands for a discrete one; it has the parameters of that."""

    base_dist: Any

    @property
    def temperature(self) -> Any:
        """The temperature."""
        return self.base_dist.temperature

    @property
    def probs(self) -> Any:
        """The probability of 1, or those of the categories."""
        return self.base_dist.probs

    @property
    def logits(self) -> Any:
        """Its logit, or their logarithms."""
        return self.base_dist.logits


class RelaxedBernoulli(Relaxed):
    """Numbers between 0 and 1, near both ends for small temperatures: a Bernoulli distribution whose draws have gradients.

    Maddison, Mnih and Teh (2017), https://arxiv.org/abs/1611.00712; Jang, Gu and Poole (2017), https://arxiv.org/abs/1611.01144."""

    arg_constraints: ClassVar = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        super().__init__(LogitRelaxedBernoulli(temperature, probs, logits, validate_args), SigmoidTransform(), validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        logits = self.logits.expand(tuple(batch_shape))
        return RelaxedBernoulli(self.temperature, logits=logits, validate_args=False)
