"""The categorical distribution, as numbers and as one-hot vectors."""

from __future__ import annotations

from typing import Any, ClassVar

from tracejit.autograd.grad_mode import no_grad
from tracejit.core import dtypes
from tracejit.distributions import constraints
from tracejit.distributions.distribution import Distribution, probabilities_and_logits, tiny
from tracejit.functional import one_hot
from tracejit.functions import arange, broadcast_tensors, multinomial

__all__ = ["Categorical", "FromCategorical", "OneHotCategorical", "OneHotCategoricalStraightThrough"]


class Categorical(Distribution):
    """0 ... k - 1 with probabilities in proportion to `probs` (or to exp(logits)), whose last dimension has k elements."""

    arg_constraints: ClassVar = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        given, other = probabilities_and_logits("Categorical", probs, logits)
        parameter: Any = given if given is not None else other
        if parameter.ndim < 1:
            raise ValueError(f"`{'probs' if given is not None else 'logits'}` parameter must be at least one-dimensional.")
        if given is not None:
            self.__dict__["probs"] = given / given.sum(-1, keepdim=True)
        else:
            self.__dict__["logits"] = parameter - parameter.logsumexp(-1, keepdim=True)
        self._num_events = parameter.shape[-1]
        super().__init__(parameter.shape[:-1], validate_args=validate_args)

    def __getattr__(self, name: str) -> Any:
        """The one of probs and logits that was not given."""
        if name == "probs" and "logits" in self.__dict__:
            return self.__dict__["logits"].softmax(-1)
        if name == "logits" and "probs" in self.__dict__:
            probs = self.__dict__["probs"]
            return probs.clamp(tiny(probs), 1 - tiny(probs)).log()
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        shape = (*batch_shape, self._num_events)
        name = "probs" if "probs" in self.__dict__ else "logits"
        return type(self)(**{name: self.__dict__[name].expand(shape)}, validate_args=False)

    @property
    def support(self) -> Any:  # type: ignore[override]
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter."""
        return self.probs.shape

    @property
    def mean(self) -> Any:
        return self.probs.new_full(tuple(self.batch_shape), float("nan"))

    @property
    def mode(self) -> Any:
        return self.probs.argmax(-1)

    @property
    def variance(self) -> Any:
        return self.probs.new_full(tuple(self.batch_shape), float("nan"))

    @no_grad()
    def sample(self, sample_shape: Any = ()) -> Any:
        count = 1
        for size in sample_shape:
            count *= size
        rows = self.probs.reshape(-1, self._num_events)
        if not count or not rows.shape[0]:
            return arange(0).reshape((*sample_shape, *self.batch_shape))
        return multinomial(rows, count, True).T.reshape((*sample_shape, *self.batch_shape))

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        positions, logits = broadcast_tensors(value.to(dtypes.int64).unsqueeze(-1), self.logits)
        return logits.gather(-1, positions[..., :1]).squeeze(-1)

    def entropy(self) -> Any:
        logits = self.logits.clamp(min=-3.4e38)
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Any:
        values = arange(self._num_events).reshape((-1, *([1] * len(self.batch_shape))))
        return values.expand((-1, *self.batch_shape)) if expand else values


class FromCategorical(Distribution):
    """A distribution of vectors with an element for each category of a categorical distribution, whose parameters it has."""

    arg_constraints: ClassVar = {"probs": constraints.simplex, "logits": constraints.real_vector}

    def __init__(self, probs: Any, logits: Any, validate_args: bool | None) -> None:
        self._categorical = Categorical(probs, logits, validate_args)
        super().__init__(self._categorical.batch_shape, (self._categorical._num_events,), validate_args)

    @property
    def probs(self) -> Any:
        """The probabilities of the categories."""
        return self._categorical.probs

    @property
    def logits(self) -> Any:
        """Their logarithms."""
        return self._categorical.logits

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter."""
        return self._categorical.param_shape


class OneHotCategorical(FromCategorical):
    """One-hot vectors of the draws of Categorical."""

    support = constraints.one_hot
    has_enumerate_support = True

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        super().__init__(probs, logits, validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return type(self)(logits=self.logits.expand((*batch_shape, *self.event_shape)), validate_args=False)

    @property
    def mean(self) -> Any:
        return self.probs

    @property
    def mode(self) -> Any:
        return one_hot(self.probs.argmax(-1), self.event_shape[0]).to(self.probs.dtype)

    @property
    def variance(self) -> Any:
        return self.probs * (1 - self.probs)

    @no_grad()
    def sample(self, sample_shape: Any = ()) -> Any:
        return one_hot(self._categorical.sample(sample_shape), self.event_shape[0]).to(self.probs.dtype)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self) -> Any:
        return self._categorical.entropy()


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """OneHotCategorical whose draws have the gradients of their probabilities.

    Bengio, Léonard and Courville (2013), https://arxiv.org/abs/1308.3432."""

    has_rsample = True

    def rsample(self, sample_shape: Any = ()) -> Any:
        return self.sample(sample_shape) + (self.probs - self.probs.detach())
