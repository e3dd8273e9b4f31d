"""Transforms of unconstrained numbers into values that satisfy a constraint, by the constraint: `transform_to` and `biject_to`.

Both are registries, to which a program adds constraints of its own.  biject_to gives bijections, with a Jacobian; transform_to what is
cheap and stable, which need not be one to one.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Number
from typing import Any

from tracejit.distributions import constraints, transforms
from tracejit.distributions.constraints import Constraint
from tracejit.distributions.transforms import Transform

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]


class ConstraintRegistry:
    """Functions that make a transform of a constraint, by the type of the constraint."""

    def __init__(self) -> None:
        self._registry: dict[type[Constraint], Callable[[Any], Transform]] = {}

    def register(self, constraint: Any, factory: Any = None) -> Any:
        """Set what `factory(constraint)` is for a class of constraints, or for that of an instance; a decorator without `factory`.

        Raises TypeError for what is no constraint."""
        if factory is None:
            return lambda function: self.register(constraint, function)
        kind = type(constraint) if isinstance(constraint, Constraint) else constraint
        if not (isinstance(kind, type) and issubclass(kind, Constraint)):
            raise TypeError(f"Expected constraint to be either a Constraint subclass or instance, but got {constraint}")
        self._registry[kind] = factory
        return factory

    def __call__(self, constraint: Constraint) -> Transform:
        """The transform into a constraint.  Raises NotImplementedError for one that is not registered."""
        factory = self._registry.get(type(constraint))
        if factory is None:
            raise NotImplementedError(f"Cannot transform {type(constraint).__name__} constraints")
        return factory(constraint)


biject_to, transform_to = ConstraintRegistry(), ConstraintRegistry()


def _register(
    factory: Callable[[Any], Transform], *kinds: Any, to: tuple[ConstraintRegistry, ...] = (biject_to, transform_to)
) -> None:
    for registry in to:
        for kind in kinds:
            registry.register(kind, factory)


def _affine(first: Transform, loc: Any, scale: Any) -> Transform:
    return transforms.ComposeTransform([first, transforms.AffineTransform(loc, scale)])


def _interval(constraint: Any) -> Transform:
    low, high = constraint.lower_bound, constraint.upper_bound
    if isinstance(low, Number) and isinstance(high, Number) and (low, high) == (0, 1):
        return transforms.SigmoidTransform()
    return _affine(transforms.SigmoidTransform(), low, high - low)


_register(lambda c: transforms.identity_transform, constraints.real)
_register(lambda c: _affine(transforms.ExpTransform(), c.lower_bound, 1), constraints.greater_than, constraints.greater_than_eq)
_register(lambda c: _affine(transforms.ExpTransform(), c.upper_bound, -1), constraints.less_than)
_register(_interval, constraints.interval, constraints.half_open_interval)
_register(lambda c: transforms.StickBreakingTransform(), constraints.simplex, to=(biject_to,))
_register(lambda c: transforms.SoftmaxTransform(), constraints.simplex, to=(transform_to,))
_register(lambda c: transforms.CorrCholeskyTransform(), constraints.corr_cholesky)
_register(lambda c: transforms.LowerCholeskyTransform(), constraints.lower_cholesky, to=(transform_to,))
_register(
    lambda c: transforms.PositiveDefiniteTransform(),
    constraints.positive_definite,
    constraints.positive_semidefinite,
    to=(transform_to,),
)
for _registry in (biject_to, transform_to):
    _register(
        lambda c, to=_registry: transforms.IndependentTransform(to(c.base_constraint), c.reinterpreted_batch_ndims),  # type: ignore[misc]
        constraints.independent,
        to=(_registry,),
    )
    _register(
        lambda c, to=_registry: transforms.CatTransform([to(part) for part in c.cseq], c.dim, c.lengths),  # type: ignore[misc]
        constraints.cat,
        to=(_registry,),
    )
    _register(
        lambda c, to=_registry: transforms.StackTransform([to(part) for part in c.cseq], c.dim),  # type: ignore[misc]
        constraints.stack,
        to=(_registry,),
    )
