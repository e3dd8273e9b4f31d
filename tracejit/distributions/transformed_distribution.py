"""Distributions of what transforms make of the draws of another."""

from __future__ import annotations

from typing import Any

from tracejit.autograd.grad_mode import no_grad
from tracejit.distributions import constraints
from tracejit.distributions.distribution import Distribution
from tracejit.distributions.independent import Independent, summed
from tracejit.distributions.transforms import ComposeTransform, Transform

__all__ = ["TransformedDistribution"]


class TransformedDistribution(Distribution):
    """What `transforms`, one or a list of which the first comes first, make of the draws of base_distribution.

    Raises ValueError for other lists, and where a draw has fewer dimensions than an argument of the transforms."""

    def __init__(self, base_distribution: Any, transforms: Any, validate_args: bool | None = None) -> None:
        self.transforms = [transforms] if isinstance(transforms, Transform) else transforms
        if not isinstance(self.transforms, list) or not all(isinstance(t, Transform) for t in self.transforms):
            raise ValueError(f"transforms must be a Transform or a list of Transforms, but was {transforms}")
        base, transform = base_distribution, ComposeTransform(self.transforms)
        shape, own = (*base.batch_shape, *base.event_shape), len(base.event_shape)
        taken, given = transform.domain.event_dim, transform.codomain.event_dim
        if len(shape) < taken:
            raise ValueError(f"base_distribution needs to have shape with size at least {taken}, but got {shape}.")
        after = tuple(transform.forward_shape(shape))
        before = tuple(transform.inverse_shape(after))
        if before != shape:
            base = base.expand(before[: len(before) - own])
        self.base_dist = Independent(base, taken - own) if taken > own else base
        cut = len(after) - given - max(own - taken, 0)
        super().__init__(after[:cut], after[cut:], validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        if self.arg_constraints:
            return super().expand(batch_shape)
        shape = tuple(ComposeTransform(self.transforms).inverse_shape((*batch_shape, *self.event_shape)))
        base = self.base_dist.expand(shape[: len(shape) - len(self.base_dist.event_shape)])
        return TransformedDistribution(base, self.transforms, validate_args=False)

    def _parameters(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.arg_constraints}

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return bool(self.base_dist.has_rsample)

    @property
    def support(self) -> Any:  # type: ignore[override]
        if not self.transforms:
            return self.base_dist.support
        support = self.transforms[-1].codomain
        more = len(self.event_shape) - support.event_dim
        return constraints.independent(support, more) if more > 0 else support

    def _transformed(self, x: Any) -> Any:
        for transform in self.transforms:
            x = transform(x)
        return x

    def _inverted(self, value: Any) -> Any:
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        return value

    @no_grad()
    def sample(self, sample_shape: Any = ()) -> Any:
        return self._transformed(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Any = ()) -> Any:
        return self._transformed(self.base_dist.rsample(sample_shape))

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        event_dim, total = len(self.event_shape), 0.0
        for transform in reversed(self.transforms):
            x = transform.inv(value)
            taken = transform.domain.event_dim
            event_dim += taken - transform.codomain.event_dim
            total = total - summed(transform.log_abs_det_jacobian(x, value), event_dim - taken)
            value = x
        return total + summed(self.base_dist.log_prob(value), event_dim - len(self.base_dist.event_shape))

    def _turned(self, probability: Any) -> Any:
        """1 - a probability where the transforms turn the order of numbers round."""
        sign = ComposeTransform(self.transforms).sign
        return probability if isinstance(sign, int) and sign == 1 else sign * (probability - 0.5) + 0.5

    def cdf(self, value: Any) -> Any:
        self._validate_sample(value)
        return self._turned(self.base_dist.cdf(self._inverted(value)))

    def icdf(self, value: Any) -> Any:
        return self._transformed(self.base_dist.icdf(self._turned(value)))
