"""Continuous vectors in place of the one-hot vectors of the categorical distribution."""

from __future__ import annotations

from typing import Any, ClassVar

from tracejit.distributions import constraints
from tracejit.distributions.categorical import FromCategorical
from tracejit.distributions.distribution import tiny
from tracejit.distributions.relaxed_bernoulli import Relaxed
from tracejit.distributions.transforms import ExpTransform
from tracejit.functions import broadcast_tensors, rand
from tracejit.tensor import as_tensor

__all__ = ["ExpRelaxedCategorical", "RelaxedOneHotCategorical"]


class ExpRelaxedCategorical(FromCategorical):
    """Logarithms of the draws of RelaxedOneHotCategorical: log_softmax((logits + Gumbel numbers) / temperature).

    Maddison, Mnih and Teh (2017), https://arxiv.org/abs/1611.00712."""

    support = constraints.real_vector
    has_rsample = True

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self.temperature = temperature
        super().__init__(probs, logits, validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        logits = self.logits.expand((*batch_shape, *self.event_shape))
        return ExpRelaxedCategorical(self.temperature, logits=logits, validate_args=False)

    def rsample(self, sample_shape: Any = ()) -> Any:
        epsilon = tiny(self.logits)
        u = rand(self._extended_shape(sample_shape), dtype=self.logits.dtype).clamp(epsilon, 1 - epsilon)
        return ((self.logits - (-u.log()).log()) / self.temperature).log_softmax(-1)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        k = self.event_shape[0]
        logits, value = broadcast_tensors(self.logits, value)
        temperature = as_tensor(self.temperature, dtype=logits.dtype)
        norm = (temperature * 0 + k).lgamma() + (k - 1) * temperature.log()
        return (logits - value * temperature).log_softmax(-1).sum(-1) + norm


class RelaxedOneHotCategorical(Relaxed):
    """Probabilities, near one-hot vectors for small temperatures: a categorical distribution whose draws have gradients.

    Maddison, Mnih and Teh (2017), https://arxiv.org/abs/1611.00712; Jang, Gu and Poole (2017), https://arxiv.org/abs/1611.01144."""

    arg_constraints: ClassVar = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.simplex

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        super().__init__(ExpRelaxedCategorical(temperature, probs, logits, validate_args), ExpTransform(), validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        logits = self.logits.expand((*batch_shape, *self.event_shape))
        return RelaxedOneHotCategorical(self.temperature, logits=logits, validate_args=False)
