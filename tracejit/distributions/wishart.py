"""The Wishart distribution of positive definite matrices."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from tracejit.core.shapes import broadcast_shapes
from tracejit.distributions import constraints
from tracejit.distributions.distribution import broadcast
from tracejit.distributions.exp_family import ExponentialFamily
from tracejit.distributions.gamma import Chi2
from tracejit.distributions.multivariate_normal import MultivariateNormal, half_log_det
from tracejit.functions import arange, randn
from tracejit.linalg import solve_triangular
from tracejit.special import multigammaln

__all__ = ["Wishart"]


class Wishart(ExponentialFamily):
    """Sums of the outer products of df normal vectors of size n with a covariance, (*, n, n): given as such, as its inverse, or as its
    Cholesky factor.  df need not be whole.

    Draws are by Bartlett's decomposition.  Raises ValueError unless df > n - 1 and exactly one matrix is given."""

    arg_constraints: ClassVar = {
        "covariance_matrix": constraints.positive_definite, "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky, "df": constraints.greater_than(0),
    }  # fmt: skip
    support = constraints.positive_definite
    has_rsample = True

    def __init__(
        self,
        df: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        given = next((m for m in (covariance_matrix, precision_matrix, scale_tril) if m is not None), None)
        if given is None or sum(m is not None for m in (covariance_matrix, precision_matrix, scale_tril)) != 1:
            raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        if given.ndim < 2:
            raise ValueError("scale_tril must be at least two-dimensional, with optional leading batch dimensions")
        size = given.shape[-1]
        self.df, corner = broadcast(df, given[..., 0, 0])
        batch = tuple(corner.shape)
        self._normal = MultivariateNormal(
            given.new_zeros((*batch, size)), covariance_matrix, precision_matrix, scale_tril, validate_args=validate_args
        )
        if not bool((self.df > size - 1).all()):
            raise ValueError(f"Value of df={self.df} expected to be greater than ndim - 1 = {size - 1}.")
        super().__init__(batch, (size, size), validate_args)

    def __getattr__(self, name: str) -> Any:
        """The three matrices, those of the normal vectors."""
        if name in ("covariance_matrix", "precision_matrix", "scale_tril") and "_normal" in self.__dict__:
            return getattr(self._normal, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        factor = self.scale_tril.expand((*batch_shape, *self.event_shape))
        return Wishart(self.df.expand(tuple(batch_shape)), scale_tril=factor, validate_args=False)

    @property
    def mean(self) -> Any:
        return self.df[..., None, None] * self.covariance_matrix

    @property
    def mode(self) -> Any:
        factor = self.df - self.event_shape[-1] - 1
        return factor.where(factor > 0, float("nan"))[..., None, None] * self.covariance_matrix

    @property
    def variance(self) -> Any:
        v = self.covariance_matrix
        diagonal = v.diagonal(dim1=-2, dim2=-1)
        return self.df[..., None, None] * (v**2 + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    def _rows(self) -> Any:
        """df less the number of the row, (*, n)."""
        return self.df.unsqueeze(-1) - arange(self.event_shape[-1], dtype=self.df.dtype)

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = tuple(self._extended_shape(sample_shape))
        diagonal = Chi2(self._rows(), validate_args=False).rsample(sample_shape).sqrt()
        factor = self.scale_tril @ (randn(shape, dtype=self.df.dtype).tril(-1) + diagonal.diag_embed())
        return factor @ factor.mT

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        n, factor = self.event_shape[-1], self.scale_tril
        whole = (*broadcast_shapes("log_prob", tuple(value.shape[:-2]), tuple(factor.shape[:-2])), n, n)
        once = solve_triangular(factor.expand(whole), value.expand(whole), upper=False)
        twice = solve_triangular(factor.expand(whole).mT, once, upper=True)
        trace = twice.diagonal(dim1=-2, dim2=-1).sum(-1)
        constant = self.df * (half_log_det(factor) + n / 2 * math.log(2)) + multigammaln(self.df / 2, n)
        return (self.df - n - 1) / 2 * value.logdet() - trace / 2 - constant

    def entropy(self) -> Any:
        n = self.event_shape[-1]
        digammas = (self._rows() / 2).digamma().sum(-1)
        scale = (n + 1) * (half_log_det(self.scale_tril) + n / 2 * math.log(2))
        return scale + multigammaln(self.df / 2, n) - (self.df - n - 1) / 2 * digammas + n * self.df / 2
