"""The half-Cauchy distribution."""

from __future__ import annotations

from typing import Any, ClassVar

from tracejit.distributions import constraints
from tracejit.distributions.cauchy import Cauchy
from tracejit.distributions.folded import Folded

__all__ = ["HalfCauchy"]


class HalfCauchy(Folded):
    """Absolute values of Cauchy numbers around 0; they have neither mean nor variance."""

    arg_constraints: ClassVar = {"scale": constraints.positive}

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Cauchy(0, scale, validate_args), validate_args)

    @property
    def mean(self) -> Any:
        return self.scale.new_full(tuple(self.batch_shape), float("inf"))

    @property
    def variance(self) -> Any:
        return self.base_dist.variance
