"""Where parameters and values of distributions lie: each constraint's check(value) says of each event whether it does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracejit.core.number_info import finfo
from tracejit.functions import all as all_of
from tracejit.functions import cat as cat_of
from tracejit.functions import logical_and
from tracejit.functions import stack as stack_of
from tracejit.linalg import eigvalsh

__all__ = [
    "Constraint", "boolean", "cat", "corr_cholesky", "dependent", "dependent_property", "greater_than", "greater_than_eq",
    "half_open_interval", "independent", "integer_interval", "interval", "is_dependent", "less_than", "lower_cholesky", "lower_triangular",
    "multinomial", "nonnegative", "nonnegative_integer", "one_hot", "positive", "positive_definite", "positive_integer",
    "positive_semidefinite", "real", "real_vector", "simplex", "square", "stack", "symmetric", "unit_interval",
]  # fmt: skip


class Constraint:
    """Base class.  is_discrete: values are isolated; event_dim: how many dimensions one value has."""

    is_discrete = False
    event_dim = 0

    def check(self, value: Any) -> Any:
        """Whether each event of `value` lies within."""
        raise NotImplementedError(f"{type(self).__name__}.check()")

    def __repr__(self) -> str:
        return type(self).__name__.removeprefix("_") + "()"


class _Dependent(Constraint):
    """Depends on other values, so it is not checked by itself.

    is_discrete and event_dim may be given where they are known all the same: `dependent(is_discrete=False, event_dim=1)`.  Asking for one
    that was not given raises NotImplementedError."""

    def __init__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> None:
        self._is_discrete, self._event_dim = is_discrete, event_dim

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return bool(self._statically("is_discrete", self._is_discrete))

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        return int(self._statically("event_dim", self._event_dim))

    @staticmethod
    def _statically(name: str, value: Any) -> Any:
        if value is NotImplemented:
            raise NotImplementedError(f".{name} cannot be determined statically")
        return value

    def __call__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> _Dependent:
        return _Dependent(
            is_discrete=self._is_discrete if is_discrete is NotImplemented else is_discrete,
            event_dim=self._event_dim if event_dim is NotImplemented else event_dim,
        )

    def check(self, value: Any) -> Any:
        raise ValueError("Cannot determine validity of dependent constraint")


class dependent_property(property, _Dependent):  # noqa: N801  (PyTorch's name)
    """A property of a distribution that gives a constraint; of the class, it is a dependent one.

    A decorator, plain or with arguments: `@dependent_property(is_discrete=False, event_dim=0)`."""

    def __init__(self, fn: Any = None, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> None:
        property.__init__(self, fn)
        _Dependent.__init__(self, is_discrete=is_discrete, event_dim=event_dim)

    def __call__(self, fn: Any) -> dependent_property:  # type: ignore[override]
        return dependent_property(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


def is_dependent(constraint: Any) -> bool:
    """Whether a constraint depends on other values."""
    return isinstance(constraint, _Dependent)


class _Boolean(Constraint):
    is_discrete = True

    def check(self, value: Any) -> Any:
        return (value == 0) | (value == 1)


class _OneHot(Constraint):
    is_discrete, event_dim = True, 1

    def check(self, value: Any) -> Any:
        return all_of((value == 0) | (value == 1), -1) & (value.sum(-1) == 1)


class _Real(Constraint):
    def check(self, value: Any) -> Any:
        return value == value


class _Bounded(Constraint):
    """Numbers beside bounds, which are numbers or tensors."""

    def __repr__(self) -> str:
        bounds = ", ".join([f"{name}={value}" for name, value in vars(self).items()])
        return f"{type(self).__name__.removeprefix('_')}({bounds})"


class _GreaterThan(_Bounded):
    """Above a bound."""

    def __init__(self, lower_bound: Any) -> None:
        self.lower_bound = lower_bound

    def check(self, value: Any) -> Any:
        return value > self.lower_bound


class _GreaterThanEq(_GreaterThan):
    """At least a bound."""

    def check(self, value: Any) -> Any:
        return value >= self.lower_bound


class _LessThan(_Bounded):
    """Below a bound."""

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Any) -> Any:
        return value < self.upper_bound


class _Interval(_Bounded):
    """From one bound to another, which belong to it."""

    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        self.lower_bound, self.upper_bound = lower_bound, upper_bound

    def check(self, value: Any) -> Any:
        return logical_and(value >= self.lower_bound, value <= self.upper_bound)


class _HalfOpenInterval(_Interval):
    """From one bound, which belongs to it, to another, which does not."""

    def check(self, value: Any) -> Any:
        return logical_and(value >= self.lower_bound, value < self.upper_bound)


class _IntegerInterval(_Interval):
    """The integers from one bound to another."""

    is_discrete = True

    def check(self, value: Any) -> Any:
        return logical_and(super().check(value), value % 1 == 0)


class _IntegerGreaterThan(_GreaterThanEq):
    """The integers from a bound on."""

    is_discrete = True

    def check(self, value: Any) -> Any:
        return logical_and(super().check(value), value % 1 == 0)


class _Simplex(Constraint):
    event_dim = 1

    def check(self, value: Any) -> Any:
        return all_of(value >= 0, -1) & ((value.sum(-1) - 1).abs() < 1e-6)


class _IndependentConstraint(Constraint):
    """Some dimensions of a constraint belong to one event."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        self.base_constraint, self.reinterpreted_batch_ndims = base_constraint, reinterpreted_batch_ndims

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        return self.base_constraint.event_dim + self.reinterpreted_batch_ndims

    def check(self, value: Any) -> Any:
        out = self.base_constraint.check(value)
        for _ in range(self.reinterpreted_batch_ndims):
            out = all_of(out, -1)
        return out


class _Multinomial(Constraint):
    """Counts of categories, of which there are no more than a number together."""

    is_discrete, event_dim = True, 1

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Any) -> Any:
        return all_of(value >= 0, -1) & (value.sum(-1) <= self.upper_bound)


class _OfMixture(Constraint):
    """In the supports of all components, which are the last batch dimension of another constraint."""

    def __init__(self, base: Constraint) -> None:
        self.base_constraint = base
        self.is_discrete, self.event_dim = base.is_discrete, base.event_dim

    def check(self, value: Any) -> Any:
        return all_of(self.base_constraint.check(value.unsqueeze(-1 - self.event_dim)), -1)


class _Square(Constraint):
    """Square matrices."""

    event_dim = 2

    def check(self, value: Any) -> Any:
        return _of_matrices(value == value) & (value.shape[-1] == value.shape[-2])


class _Symmetric(_Square):
    """Symmetric matrices, up to rounding."""

    def check(self, value: Any) -> Any:
        square = super().check(value)
        if value.shape[-1] != value.shape[-2]:
            return square
        return square & _of_matrices((value - value.mT).abs() <= 1e-6 + 1e-5 * value.abs())


class _PositiveSemidefinite(_Symmetric):
    """Symmetric matrices without negative eigenvalues."""

    def check(self, value: Any) -> Any:
        symmetric = super().check(value)
        return symmetric & (eigvalsh(value.detach())[..., 0] >= 0) if bool(all_of(symmetric)) else symmetric


class _PositiveDefinite(_Symmetric):
    """Symmetric matrices with positive eigenvalues."""

    def check(self, value: Any) -> Any:
        symmetric = super().check(value)
        return symmetric & (eigvalsh(value.detach())[..., 0] > 0) if bool(all_of(symmetric)) else symmetric


class _LowerTriangular(_Square):
    """Square matrices with zeros above the diagonal."""

    def check(self, value: Any) -> Any:
        return super().check(value) & _of_matrices(value.tril() == value)


class _LowerCholesky(_LowerTriangular):
    """Lower triangular matrices with a positive diagonal."""

    def check(self, value: Any) -> Any:
        return super().check(value) & all_of(value.diagonal(dim1=-2, dim2=-1) > 0, -1)


class _CorrCholesky(_LowerCholesky):
    """Cholesky factors of matrices of correlations: the rows have length 1, up to rounding."""

    def check(self, value: Any) -> Any:
        rounding = finfo(value.dtype).eps * value.shape[-1] * 10
        return super().check(value) & all_of(((value.detach() ** 2).sum(-1).sqrt() - 1).abs() <= rounding, -1)


def _of_matrices(elements: Any) -> Any:
    """Whether all elements of each matrix are true."""
    return all_of(all_of(elements, -1), -1)


class _Cat(Constraint):
    """Constraints of parts along a dimension, of `lengths` elements each (1 by default): what cat() of values satisfies."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None) -> None:
        self.cseq, self.dim = list(cseq), dim
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.cseq):
            raise AssertionError(f"lengths ({len(self.lengths)}) must match cseq ({len(self.cseq)})")

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return any(c.is_discrete for c in self.cseq)

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        return max(c.event_dim for c in self.cseq)

    def check(self, value: Any) -> Any:
        parts = value.split(self.lengths, self.dim)
        return cat_of([c.check(part) for c, part in zip(self.cseq, parts, strict=True)], self.dim)


class _Stack(Constraint):
    """Constraints of the positions along a dimension: what stack() of values satisfies."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        self.cseq, self.dim = list(cseq), dim

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return any(c.is_discrete for c in self.cseq)

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        event_dim = max(c.event_dim for c in self.cseq)
        return event_dim + 1 if self.dim + event_dim < 0 else event_dim

    def check(self, value: Any) -> Any:
        return stack_of([c.check(part) for c, part in zip(self.cseq, value.unbind(self.dim), strict=True)], self.dim)


greater_than, greater_than_eq, less_than = _GreaterThan, _GreaterThanEq, _LessThan
interval, half_open_interval, integer_interval = _Interval, _HalfOpenInterval, _IntegerInterval
independent, multinomial, cat, stack = _IndependentConstraint, _Multinomial, _Cat, _Stack
boolean, dependent, one_hot, simplex = _Boolean(), _Dependent(), _OneHot(), _Simplex()
real = _Real()
real_vector = independent(real, 1)
positive, nonnegative, unit_interval = greater_than(0.0), greater_than_eq(0.0), interval(0.0, 1.0)
nonnegative_integer, positive_integer = _IntegerGreaterThan(0), _IntegerGreaterThan(1)
square, symmetric = _Square(), _Symmetric()
lower_triangular, lower_cholesky, corr_cholesky = _LowerTriangular(), _LowerCholesky(), _CorrCholesky()
positive_semidefinite, positive_definite = _PositiveSemidefinite(), _PositiveDefinite()
