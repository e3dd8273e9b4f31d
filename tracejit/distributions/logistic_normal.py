"""The logistic normal distribution."""

from __future__ import annotations

from typing import Any, ClassVar

from tracejit.distributions import constraints
from tracejit.distributions.normal import Normal
from tracejit.distributions.transformed_distribution import TransformedDistribution
from tracejit.distributions.transforms import StickBreakingTransform

__all__ = ["LogisticNormal"]


class LogisticNormal(TransformedDistribution):
    """Probabilities of k + 1 categories that StickBreakingTransform makes of k normal numbers, with `loc` and `scale`, (*, k)."""

    arg_constraints: ClassVar = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.simplex

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args)
        super().__init__(base if base.batch_shape else base.expand((1,)), StickBreakingTransform(), validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        shape = (*batch_shape, self.loc.shape[-1])
        return LogisticNormal(self.loc.expand(shape), self.scale.expand(shape), validate_args=False)

    @property
    def loc(self) -> Any:
        """The means of the normal numbers."""
        return self.base_dist.base_dist.loc

    @property
    def scale(self) -> Any:
        """Their standard deviations."""
        return self.base_dist.base_dist.scale
