"""The normal distribution of vectors whose covariance is a diagonal and a matrix of low rank."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from tracejit.core.shapes import broadcast_shapes
from tracejit.distributions import constraints
from tracejit.distributions.distribution import Distribution
from tracejit.distributions.multivariate_normal import half_log_det
from tracejit.functions import eye, randn
from tracejit.linalg import cholesky, solve_triangular
from tracejit.tensor import as_tensor

__all__ = ["LowRankMultivariateNormal"]


class LowRankMultivariateNormal(Distribution):
    """Normal vectors with mean `loc`, (*, n), and covariance cov_factor @ cov_factor.mT + diag(cov_diag), (*, n, rank) and (*, n).

    Densities take a Cholesky factor of (rank, rank) alone: inverse and determinant of the covariance W W' + D are those of
    C = I + W' D^-1 W by Woodbury's identity and Sylvester's.  Raises ValueError for shapes that do not fit."""

    arg_constraints: ClassVar = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, loc: Any, cov_factor: Any, cov_diag: Any, validate_args: bool | None = None) -> None:
        loc = as_tensor(loc)
        if loc.ndim < 1:
            raise ValueError("loc must be at least one-dimensional.")
        size = loc.shape[-1]
        if cov_factor.ndim < 2:
            raise ValueError("cov_factor must be at least two-dimensional, with optional leading batch dimensions")
        if cov_factor.shape[-2] != size:
            raise ValueError(f"cov_factor must be a batch of matrices with shape {size} x m, got {tuple(cov_factor.shape)}")
        if cov_diag.shape[-1] != size:
            raise ValueError(f"cov_diag must be a batch of vectors with shape {size}, got {tuple(cov_diag.shape)}")
        try:
            batch = broadcast_shapes(
                "LowRankMultivariateNormal", tuple(loc.shape[:-1]), tuple(cov_factor.shape[:-2]), tuple(cov_diag.shape[:-1])
            )
        except RuntimeError:
            raise ValueError(
                f"Incompatible batch shapes: loc {loc.shape}, cov_factor {cov_factor.shape}, cov_diag {cov_diag.shape}"
            ) from None
        self.loc, self.cov_diag = loc.expand((*batch, size)), cov_diag.expand((*batch, size))
        self.cov_factor = cov_factor.expand((*batch, *cov_factor.shape[-2:]))
        super().__init__(batch, (size,), validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        size, rank = self.cov_factor.shape[-2:]
        return LowRankMultivariateNormal(
            self.loc.expand((*batch_shape, size)),
            self.cov_factor.expand((*batch_shape, size, rank)),
            self.cov_diag.expand((*batch_shape, size)),
            validate_args=False,
        )

    def _capacitance(self) -> tuple[Any, Any]:
        """W' D^-1, and the Cholesky factor of C."""
        weighted = self.cov_factor.mT / self.cov_diag.unsqueeze(-2)
        rank = self.cov_factor.shape[-1]
        return weighted, cholesky(weighted @ self.cov_factor + eye(rank, dtype=self.loc.dtype))

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        return (self.cov_factor**2).sum(-1) + self.cov_diag

    @property
    def covariance_matrix(self) -> Any:
        """cov_factor @ cov_factor.mT + diag(cov_diag)."""
        return self.cov_factor @ self.cov_factor.mT + self.cov_diag.diag_embed()

    @property
    def scale_tril(self) -> Any:
        """The Cholesky factor of the covariance, by way of a matrix whose eigenvalues are at least 1."""
        root = self.cov_diag.sqrt().unsqueeze(-1)
        scaled = self.cov_factor / root
        return root * cholesky(scaled @ scaled.mT + eye(self.loc.shape[-1], dtype=self.loc.dtype))

    @property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance."""
        weighted, factor = self._capacitance()
        part = solve_triangular(factor, weighted, upper=False)
        return self.cov_diag.reciprocal().diag_embed() - part.mT @ part

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        common = randn((*shape[:-1], self.cov_factor.shape[-1]), dtype=self.loc.dtype)
        own = randn(shape, dtype=self.loc.dtype)
        return self.loc + (self.cov_factor @ common.unsqueeze(-1)).squeeze(-1) + self.cov_diag.sqrt() * own

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        difference = value - self.loc
        weighted, factor = self._capacitance()
        projected = weighted @ difference.unsqueeze(-1)
        batch = (*projected.shape[:-2], *factor.shape[-2:])
        explained = (solve_triangular(factor.expand(batch), projected, upper=False) ** 2).sum((-2, -1))
        distance = (difference**2 / self.cov_diag).sum(-1) - explained
        return -0.5 * (self.event_shape[0] * math.log(2 * math.pi) + distance) - self._half_log_det(factor)

    def _half_log_det(self, factor: Any) -> Any:
        return half_log_det(factor) + 0.5 * self.cov_diag.log().sum(-1)

    def entropy(self) -> Any:
        return 0.5 * self.event_shape[0] * (1.0 + math.log(2 * math.pi)) + self._half_log_det(self._capacitance()[1])
