"""Numbers of successes and of trials: Poisson, geometric and binomial."""

from __future__ import annotations

from typing import Any, ClassVar

from tracejit.autograd.grad_mode import no_grad
from tracejit.distributions import constraints
from tracejit.distributions.bernoulli import FromProbsOrLogits
from tracejit.distributions.distribution import Distribution, broadcast, tiny
from tracejit.functional import logsigmoid
from tracejit.functions import bernoulli, broadcast_tensors, poisson, rand

__all__ = ["Binomial", "Geometric", "Poisson"]


class Poisson(Distribution):
    """How many events of a given rate there are in a unit of time."""

    arg_constraints: ClassVar = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    @property
    def mean(self) -> Any:
        return self.rate

    @property
    def mode(self) -> Any:
        return self.rate.floor()

    @property
    def variance(self) -> Any:
        return self.rate

    @no_grad()
    def sample(self, sample_shape: Any = ()) -> Any:
        return poisson(self.rate.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        rate, value = broadcast_tensors(self.rate, value)
        return value.xlogy(rate) - rate - (value + 1).lgamma()


class Geometric(FromProbsOrLogits):
    """How many trials of probability `probs` fail before the first success: 0, 1, ..."""

    arg_constraints: ClassVar = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.nonnegative_integer

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        super().__init__(self._hold(probs, logits).shape, validate_args=validate_args)

    @property
    def mean(self) -> Any:
        return 1.0 / self.probs - 1.0

    @property
    def mode(self) -> Any:
        return self.probs * 0

    @property
    def variance(self) -> Any:
        return (1.0 / self.probs - 1.0) / self.probs

    @no_grad()
    def sample(self, sample_shape: Any = ()) -> Any:
        probs = self.probs.expand(self._extended_shape(sample_shape))
        u = rand(tuple(probs.shape), dtype=probs.dtype) + tiny(probs) / 4
        return (u.log() / (-probs).log1p()).floor()

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        value, probs = broadcast_tensors(value, self.probs)
        safe = probs.masked_fill((probs == 1) & (value == 0), 0)
        return value * (-safe).log1p() + self.probs.log()

    def entropy(self) -> Any:
        p = self.probs
        return -(p.xlogy(p) + (1 - p).xlogy(1 - p)) / p


class Binomial(FromProbsOrLogits):
    """How many of total_count trials of probability `probs` succeed."""

    arg_constraints: ClassVar = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }

    def __init__(self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        parameter = self._hold(probs, logits)
        self.total_count, parameter = broadcast(total_count, parameter)
        self.__dict__["probs" if "probs" in self.__dict__ else "logits"] = parameter
        super().__init__(parameter.shape, validate_args=validate_args)

    @property
    def support(self) -> Any:  # type: ignore[override]
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Any:
        return self.total_count * self.probs

    @property
    def mode(self) -> Any:
        return ((self.total_count + 1) * self.probs).floor().minimum(self.total_count)

    @property
    def variance(self) -> Any:
        return self.total_count * self.probs * (1 - self.probs)

    @no_grad()
    def sample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        counts, probs = self.total_count.expand(shape), self.probs.expand(shape)
        trials = int(self.total_count.max().item()) if self.total_count.numel() else 0
        successes = probs * 0
        for i in range(trials):
            successes = successes + bernoulli(probs) * (counts > i)
        return successes

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        n, logits = self.total_count, self.logits
        ways = (n + 1).lgamma() - (value + 1).lgamma() - (n - value + 1).lgamma()
        return ways + value * logits + n * logsigmoid(-logits)
