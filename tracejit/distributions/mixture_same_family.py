"""Mixtures of distributions of one family."""

from __future__ import annotations

from typing import Any, ClassVar

from tracejit.autograd.grad_mode import no_grad
from tracejit.distributions import constraints
from tracejit.distributions.categorical import Categorical
from tracejit.distributions.distribution import Distribution

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Distribution):
    """Draws of the component that a Categorical mixture_distribution has drawn; components are the last batch dimension of
    component_distribution.

    Raises ValueError for distributions of other kinds, and where batch shapes or numbers of components differ."""

    arg_constraints: ClassVar = {}

    def __init__(self, mixture_distribution: Any, component_distribution: Any, validate_args: bool | None = None) -> None:
        self._mixture_distribution, self._component_distribution = mixture_distribution, component_distribution
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(" The Mixture distribution needs to be an instance of tracejit.distributions.Categorical")
        if not isinstance(component_distribution, Distribution):
            raise ValueError("The Component distribution need to be an instance of tracejit.distributions.Distribution")
        batch = tuple(component_distribution.batch_shape)
        for own, other in zip(reversed(mixture_distribution.batch_shape), reversed(batch[:-1]), strict=False):
            if own != 1 and other != 1 and own != other:
                raise ValueError(
                    f"`mixture_distribution.batch_shape` ({tuple(mixture_distribution.batch_shape)}) is not compatible with "
                    f"`component_distribution.batch_shape` ({batch})"
                )
        if mixture_distribution.probs.shape[-1] != batch[-1]:
            raise ValueError(
                f"`mixture_distribution component` ({mixture_distribution.probs.shape[-1]}) does not equal "
                f"`component_distribution.batch_shape[-1]` ({batch[-1]})"
            )
        super().__init__(batch[:-1], component_distribution.event_shape, validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        shape, count = tuple(batch_shape), self._component_distribution.batch_shape[-1]
        components = self._component_distribution.expand((*shape, count))
        return MixtureSameFamily(self._mixture_distribution.expand(shape), components, validate_args=False)

    @property
    def mixture_distribution(self) -> Any:
        """The distribution of the number of the component."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Any:
        """The components."""
        return self._component_distribution

    @property
    def support(self) -> Any:  # type: ignore[override]
        return constraints._OfMixture(self._component_distribution.support)

    def _shares(self) -> Any:
        """The probabilities of the components, with a dimension for each of an event."""
        probs = self._mixture_distribution.probs
        return probs.reshape((*probs.shape, *[1] * len(self.event_shape)))

    def _at_components(self) -> int:
        """The dimension of the components in (*batch, k, *event)."""
        return -1 - len(self.event_shape)

    def _for_each(self, x: Any) -> Any:
        return x.unsqueeze(self._at_components())

    @property
    def mean(self) -> Any:
        return (self._shares() * self._component_distribution.mean).sum(self._at_components())

    @property
    def variance(self) -> Any:
        shares, means = self._shares(), self._component_distribution.mean
        within = shares * self._component_distribution.variance
        between = shares * (means - self._for_each(self.mean)) ** 2
        return (within + between).sum(self._at_components())

    @no_grad()
    def sample(self, sample_shape: Any = ()) -> Any:
        chosen = self._mixture_distribution.sample(sample_shape)
        drawn = self._component_distribution.sample(sample_shape)
        at = drawn.ndim + self._at_components()
        positions = chosen.reshape((*chosen.shape, *[1] * (drawn.ndim - chosen.ndim)))
        return drawn.gather(at, positions.expand((*drawn.shape[:at], 1, *drawn.shape[at + 1 :]))).squeeze(at)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        parts = self._component_distribution.log_prob(self._for_each(value))
        return (parts + self._mixture_distribution.logits.log_softmax(-1)).logsumexp(-1)

    def cdf(self, value: Any) -> Any:
        parts = self._component_distribution.cdf(self._for_each(value))
        return (parts * self._mixture_distribution.probs).sum(-1)

    def __repr__(self) -> str:
        return f"MixtureSameFamily(\n  {self._mixture_distribution},\n  {self._component_distribution})"
