"""The Bernoulli distribution."""

from __future__ import annotations

from typing import Any, ClassVar

from tracejit.autograd.grad_mode import no_grad
from tracejit.distributions import constraints
from tracejit.distributions.distribution import Distribution, probabilities_and_logits, tiny
from tracejit.distributions.exp_family import ExponentialFamily
from tracejit.functional import binary_cross_entropy_with_logits
from tracejit.functions import arange, bernoulli, broadcast_tensors

__all__ = ["Bernoulli", "FromProbsOrLogits"]


class FromProbsOrLogits(Distribution):
    """Holds one of probs and logits, log(probs / (1 - probs)); the other is computed when it is asked for."""

    def _hold(self, probs: Any, logits: Any) -> Any:
        given, other = probabilities_and_logits(type(self).__name__, probs, logits)
        self.__dict__.update({"probs": given} if given is not None else {"logits": other})
        return given if given is not None else other

    def __getattr__(self, name: str) -> Any:
        """The one of probs and logits that was not given."""
        if name == "probs" and "logits" in self.__dict__:
            return self.__dict__["logits"].sigmoid()
        if name == "logits" and "probs" in self.__dict__:
            probs = self.__dict__["probs"]
            p = probs.clamp(tiny(probs), 1 - tiny(probs))
            return p.log() - (-p).log1p()
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter."""
        return self.batch_shape


class Bernoulli(FromProbsOrLogits, ExponentialFamily):
    """1 with probability `probs` (or sigmoid(logits)), else 0."""

    arg_constraints: ClassVar = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.boolean
    has_enumerate_support = True

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        super().__init__(self._hold(probs, logits).shape, validate_args=validate_args)

    @property
    def mean(self) -> Any:
        return self.probs

    @property
    def mode(self) -> Any:
        out = (self.probs >= 0.5).to(self.probs.dtype)
        return out.masked_fill(self.probs == 0.5, float("nan"))

    @property
    def variance(self) -> Any:
        return self.probs * (1 - self.probs)

    @no_grad()
    def sample(self, sample_shape: Any = ()) -> Any:
        return bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        logits, value = broadcast_tensors(self.logits, value)
        return -binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Any:
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Any:
        values = arange(2, dtype=self.probs.dtype).reshape((-1, *([1] * len(self.batch_shape))))
        return values.expand((2, *self.batch_shape)) if expand else values
