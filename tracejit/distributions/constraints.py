"""Where parameters and values of distributions lie: each constraint's check(value) says of each event whether it does."""

from __future__ import annotations

from typing import Any

from tracejit.functions import all as all_of
from tracejit.functions import logical_and
from tracejit.linalg import eigvalsh

__all__ = [
    "Constraint", "boolean", "dependent", "greater_than", "greater_than_eq", "half_open_interval", "independent", "integer_interval",
    "interval", "less_than", "lower_cholesky", "multinomial", "nonnegative", "nonnegative_integer", "one_hot", "positive",
    "positive_definite", "positive_integer", "real", "real_vector", "simplex", "square", "symmetric", "unit_interval",
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
    """Depends on other values, so it is not checked by itself."""

    def check(self, value: Any) -> Any:
        raise ValueError("Cannot determine validity of dependent constraint")


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


class _Between(Constraint):
    """Between two bounds, which are numbers or tensors; each belongs to it or not."""

    def __init__(self, low: Any, high: Any, low_belongs: bool = True, high_belongs: bool = True, whole: bool = False) -> None:
        self.lower_bound, self.upper_bound = low, high
        self._low_belongs, self._high_belongs = low_belongs, high_belongs
        self.is_discrete = whole

    def check(self, value: Any) -> Any:
        above = value >= self.lower_bound if self._low_belongs else value > self.lower_bound
        below = value <= self.upper_bound if self._high_belongs else value < self.upper_bound
        out = logical_and(above, below)
        return logical_and(out, value % 1 == 0) if self.is_discrete else out

    def __repr__(self) -> str:
        return f"Interval(lower_bound={self.lower_bound}, upper_bound={self.upper_bound})"


class _Simplex(Constraint):
    event_dim = 1

    def check(self, value: Any) -> Any:
        return all_of(value >= 0, -1) & ((value.sum(-1) - 1).abs() < 1e-6)


class _Independent(Constraint):
    """Some dimensions of a constraint belong to one event."""

    def __init__(self, base: Constraint, count: int) -> None:
        self.base_constraint, self.reinterpreted_batch_ndims = base, count
        self.is_discrete, self.event_dim = base.is_discrete, base.event_dim + count

    def check(self, value: Any) -> Any:
        out = self.base_constraint.check(value)
        for _ in range(self.reinterpreted_batch_ndims):
            out = all_of(out, -1)
        return out


class _Multinomial(Constraint):
    """Counts of categories, of which there are no more than a number together."""

    is_discrete, event_dim = True, 1

    def __init__(self, count: int) -> None:
        self.upper_bound = count

    def check(self, value: Any) -> Any:
        return all_of(value >= 0, -1) & (value.sum(-1) <= self.upper_bound)


class _OfMixture(Constraint):
    """In the supports of all components, which are the last batch dimension of another constraint."""

    def __init__(self, base: Constraint) -> None:
        self.base_constraint = base
        self.is_discrete, self.event_dim = base.is_discrete, base.event_dim

    def check(self, value: Any) -> Any:
        return all_of(self.base_constraint.check(value.unsqueeze(-1 - self.event_dim)), -1)


class _Matrix(Constraint):
    """Square matrices of some kind."""

    event_dim = 2

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def check(self, value: Any) -> Any:
        square_shape = value.shape[-1] == value.shape[-2]
        ok = all_of(all_of(value == value, -1), -1)
        if not square_shape:
            return ok & False
        if self.kind == "lower_cholesky":
            below = all_of(all_of(value.tril() == value, -1), -1)
            return below & all_of(value.diagonal(dim1=-2, dim2=-1) > 0, -1)
        if self.kind in ("symmetric", "positive_definite"):
            ok = ok & all_of(all_of((value - value.mT).abs() <= 1e-6 + 1e-5 * value.abs(), -1), -1)
        if self.kind == "positive_definite":
            ok = ok & (eigvalsh(value.detach())[..., 0] > 0)
        return ok

    def __repr__(self) -> str:
        return f"Matrix({self.kind})"


_INF = float("inf")
boolean, dependent, one_hot, simplex = _Boolean(), _Dependent(), _OneHot(), _Simplex()
real = _Real()
positive = _Between(0.0, _INF, low_belongs=False)
nonnegative = _Between(0.0, _INF)
unit_interval = _Between(0.0, 1.0)
nonnegative_integer, positive_integer = _Between(0, _INF, whole=True), _Between(1, _INF, whole=True)
square, symmetric = _Matrix("square"), _Matrix("symmetric")
lower_cholesky, positive_definite = _Matrix("lower_cholesky"), _Matrix("positive_definite")


def independent(base: Constraint, count: int) -> Constraint:
    """A constraint whose last `count` batch dimensions belong to one event."""
    return _Independent(base, count)


real_vector = independent(real, 1)


def interval(low: Any, high: Any) -> Constraint:
    """From `low` to `high`, which belong to it."""
    return _Between(low, high)


def half_open_interval(low: Any, high: Any) -> Constraint:
    """From `low`, which belongs to it, to `high`, which does not."""
    return _Between(low, high, high_belongs=False)


def integer_interval(low: Any, high: Any) -> Constraint:
    """The integers from `low` to `high`."""
    return _Between(low, high, whole=True)


def greater_than(low: Any) -> Constraint:
    """Above `low`."""
    return _Between(low, _INF, low_belongs=False)


def greater_than_eq(low: Any) -> Constraint:
    """At least `low`."""
    return _Between(low, _INF)


def multinomial(count: int) -> Constraint:
    """Vectors of counts whose sum is at most `count`."""
    return _Multinomial(count)


def less_than(high: Any) -> Constraint:
    """Below `high`."""
    return _Between(-_INF, high, high_belongs=False)
