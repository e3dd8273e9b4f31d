"""The LKJ distribution of correlations, by their Cholesky factors."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from tracejit.autograd.grad_mode import no_grad
from tracejit.distributions import constraints
from tracejit.distributions.beta import Beta
from tracejit.distributions.distribution import Distribution, broadcast
from tracejit.functional import pad
from tracejit.functions import arange, eye, randn

__all__ = ["LKJCholesky"]


class LKJCholesky(Distribution):
    """Cholesky factors of (dim, dim) matrices of correlations with density det(matrix) ** (concentration - 1) up to a constant.

    Lewandowski, Kurowicka, Joe, Generating random correlation matrices based on vines and extended onion method, 2009.  Rows are
    independent: row i has a squared length below the diagonal with distribution Beta(i / 2, concentration + (dim - 1 - i) / 2), in a
    direction without preference.  Raises ValueError for dim < 2."""

    arg_constraints: ClassVar = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None) -> None:
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        (self.concentration,) = broadcast(concentration)
        super().__init__(tuple(self.concentration.shape), (dim, dim), validate_args)

    def _rows(self) -> tuple[Any, Any]:
        """i / 2 of the rows but the first, and the second parameter of Beta for each, (*, dim - 1)."""
        i = arange(1, self.dim, dtype=self.concentration.dtype)
        return i / 2, self.concentration.unsqueeze(-1) + (self.dim - 1 - i) / 2

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return LKJCholesky(self.dim, self.concentration.expand(tuple(batch_shape)), validate_args=False)

    @no_grad()
    def sample(self, sample_shape: Any = ()) -> Any:
        half, other = self._rows()
        squared = Beta(half.expand(other.shape), other, validate_args=False).sample(sample_shape).unsqueeze(-1)
        direction = randn(self._extended_shape(sample_shape), dtype=squared.dtype).tril(-1)[..., 1:, :]
        below = direction / (direction**2).sum(-1, keepdim=True).sqrt() * squared.sqrt()
        diagonal = pad((1 - squared.squeeze(-1)).clamp(min=0).sqrt(), [1, 0], value=1.0)
        return pad(below, [0, 0, 1, 0]) + eye(self.dim, dtype=squared.dtype) * diagonal.unsqueeze(-1)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        half, other = self._rows()
        logarithms = value.diagonal(dim1=-2, dim2=-1)[..., 1:].log()
        density = (2 * other - 2) * logarithms + (half + other).lgamma() - other.lgamma() - half * math.log(math.pi)
        return density.sum(-1)
