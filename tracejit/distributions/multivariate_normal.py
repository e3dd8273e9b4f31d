"""The normal distribution of vectors."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from tracejit.core.shapes import broadcast_shapes
from tracejit.distributions import constraints
from tracejit.distributions.distribution import Distribution
from tracejit.functions import eye, randn
from tracejit.linalg import cholesky, inv, solve_triangular
from tracejit.tensor import as_tensor

__all__ = ["MultivariateNormal"]


class MultivariateNormal(Distribution):
    """Normal vectors with mean `loc` and a covariance: as such, as its inverse, or as its Cholesky factor."""

    arg_constraints: ClassVar = {
        "loc": constraints.real_vector, "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite, "scale_tril": constraints.lower_cholesky,
    }  # fmt: skip
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        loc: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        loc = as_tensor(loc)
        if loc.ndim < 1:
            raise ValueError("loc must be at least one-dimensional.")
        matrices = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix, "scale_tril": scale_tril}
        given = {name: matrix for name, matrix in matrices.items() if matrix is not None}
        if len(given) != 1:
            raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        ((name, matrix),) = given.items()
        if matrix.ndim < 2:
            raise ValueError(f"{name} must be at least two-dimensional, with optional leading batch dimensions")
        batch = broadcast_shapes("MultivariateNormal", tuple(matrix.shape[:-2]), tuple(loc.shape[:-1]))
        size = loc.shape[-1]
        self.loc = loc.expand((*batch, size))
        self.__dict__[name] = matrix.expand((*batch, size, size))
        super().__init__(batch, (size,), validate_args)
        if name == "scale_tril":
            self._factor = self.__dict__[name]
        elif name == "covariance_matrix":
            self._factor = cholesky(self.__dict__[name])
        else:
            reversed_factor = cholesky(self.__dict__[name].flip((-2, -1)))
            upper = reversed_factor.flip((-2, -1)).mT
            self._factor = solve_triangular(upper, eye(size, dtype=loc.dtype), upper=False)

    def __getattr__(self, name: str) -> Any:
        """Those of the three matrices that were not given."""
        factor = self.__dict__.get("_factor")
        if factor is not None and name == "scale_tril":
            return factor
        if factor is not None and name == "covariance_matrix":
            return factor @ factor.mT
        if factor is not None and name == "precision_matrix":
            return inv(factor @ factor.mT)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        size = self.event_shape[0]
        factor = self._factor.expand((*batch_shape, size, size))
        return MultivariateNormal(self.loc.expand((*batch_shape, size)), scale_tril=factor, validate_args=False)

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        return (self._factor**2).sum(-1)

    def rsample(self, sample_shape: Any = ()) -> Any:
        drawn = randn(self._extended_shape(sample_shape), dtype=self.loc.dtype)
        return self.loc + (self._factor @ drawn.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        distance = squared_distance(self._factor, value - self.loc)
        return -0.5 * (self.event_shape[0] * math.log(2 * math.pi) + distance) - half_log_det(self._factor)

    def entropy(self) -> Any:
        return 0.5 * self.event_shape[0] * (1.0 + math.log(2 * math.pi)) + half_log_det(self._factor)


def half_log_det(factor: Any) -> Any:
    """Half the logarithm of the determinant of a matrix with this Cholesky factor."""
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def squared_distance(factor: Any, difference: Any) -> Any:
    """Mahalanobis's: of vectors, in the metric of the covariance with this Cholesky factor."""
    batch = broadcast_shapes("log_prob", tuple(factor.shape[:-2]), tuple(difference.shape[:-1]))
    size = factor.shape[-1]
    whole, vectors = factor.expand((*batch, size, size)), difference.expand((*batch, size)).unsqueeze(-1)
    return (solve_triangular(whole, vectors, upper=False) ** 2).sum((-2, -1))
