"""The half-normal distribution."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from tracejit.distributions import constraints
from tracejit.distributions.folded import Folded
from tracejit.distributions.normal import Normal

__all__ = ["HalfNormal"]


class HalfNormal(Folded):
    """Absolute values of normal numbers with mean 0 and standard deviation `scale`."""

    arg_constraints: ClassVar = {"scale": constraints.positive}

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Normal(0, scale, validate_args), validate_args)

    @property
    def mean(self) -> Any:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Any:
        return self.scale**2 * (1 - 2 / math.pi)
