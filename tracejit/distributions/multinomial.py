"""The multinomial distribution."""

from __future__ import annotations

from typing import Any

from tracejit.autograd.grad_mode import no_grad
from tracejit.distributions import constraints
from tracejit.distributions.categorical import FromCategorical
from tracejit.distributions.discrete import Binomial
from tracejit.functional import one_hot
from tracejit.functions import arange, broadcast_tensors

__all__ = ["Multinomial"]


class Multinomial(FromCategorical):
    """How often each of k categories is drawn in total_count draws of Categorical; probs (or logits) as there."""

    def __init__(self, total_count: int = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        super().__init__(probs, logits, validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        logits = self.logits.expand((*batch_shape, *self.event_shape))
        return Multinomial(self.total_count, logits=logits, validate_args=False)

    @property
    def support(self) -> Any:  # type: ignore[override]
        return constraints.multinomial(self.total_count)

    @property
    def mean(self) -> Any:
        return self.probs * self.total_count

    @property
    def variance(self) -> Any:
        return self.total_count * self.probs * (1 - self.probs)

    @no_grad()
    def sample(self, sample_shape: Any = ()) -> Any:
        drawn = self._categorical.sample((self.total_count, *sample_shape))
        return one_hot(drawn, self.event_shape[0]).sum(0).to(self.probs.dtype)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        logits, value = broadcast_tensors(self.logits, value)
        logits = logits.masked_fill((value == 0) & (logits == -float("inf")), 0.0)
        return (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1) + (logits * value).sum(-1)

    def entropy(self) -> Any:
        """-E log p: that of the draws in their order, less what the mean number of orders says; each count is binomial."""
        n = self.total_count
        counts = arange(1, n + 1, dtype=self.probs.dtype).reshape(-1, *[1] * self.probs.ndim)
        weights = Binomial(n, probs=self.probs, validate_args=False).log_prob(counts).exp()
        orders = (weights * (counts + 1).lgamma()).sum((0, -1))
        return n * self._categorical.entropy() - (self.probs.new_tensor(float(n)) + 1).lgamma() + orders
