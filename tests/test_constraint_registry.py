"""biject_to and transform_to: unconstrained numbers into what a constraint allows, as torch's do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracejit
from tracejit.distributions import biject_to, constraints, transform_to, transforms

# constraint, shape of an unconstrained value
CASES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "real": (lambda c, t: c.real, (3,)),
    "real vectors": (lambda c, t: c.real_vector, (2, 3)),
    "positive": (lambda c, t: c.positive, (3,)),
    "nonnegative": (lambda c, t: c.nonnegative, (3,)),
    "above a tensor": (lambda c, t: c.greater_than(t.tensor([1.0, -2.0, 0.0]).double()), (3,)),
    "at least": (lambda c, t: c.greater_than_eq(2.0), (3,)),
    "below": (lambda c, t: c.less_than(-1.0), (3,)),
    "unit interval": (lambda c, t: c.unit_interval, (3,)),
    "interval": (lambda c, t: c.interval(-1.0, 3.0), (3,)),
    "half open interval": (lambda c, t: c.half_open_interval(0.0, 2.0), (3,)),
    "simplex": (lambda c, t: c.simplex, (2, 3)),
    "correlations": (lambda c, t: c.corr_cholesky, (2, 6)),
    "lower cholesky": (lambda c, t: c.lower_cholesky, (2, 3, 3)),
    "positive definite": (lambda c, t: c.positive_definite, (2, 3, 3)),
    "positive semidefinite": (lambda c, t: c.positive_semidefinite, (3, 3)),
    "positive vectors": (lambda c, t: c.independent(c.positive, 1), (2, 3)),
    "parts": (lambda c, t: c.cat([c.positive, c.interval(0.0, 4.0)], -1, [1, 2]), (2, 3)),
    "positions": (lambda c, t: c.stack([c.positive, c.real, c.unit_interval], -1), (2, 3)),
}
NOT_BIJECTIVE = ("lower cholesky", "positive definite", "positive semidefinite")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("registry", ["biject_to", "transform_to"])
def test_values_meet_the_constraint_and_are_those_of_torch(name: str, registry: str) -> None:
    torch, found = pytest.importorskip("torch"), []
    make, shape = CASES[name]
    for library in (tracejit, torch):
        constraint = make(library.distributions.constraints, library)
        if registry == "biject_to" and name in NOT_BIJECTIVE:
            with pytest.raises(NotImplementedError, match="Cannot transform"):
                library.distributions.biject_to(constraint)
            continue
        transform = getattr(library.distributions, registry)(constraint)
        x = library.tensor(np.random.default_rng(1).normal(size=shape), requires_grad=True)
        y = transform(x)
        assert bool(constraint.check(y).all()) and transform.codomain.event_dim == constraint.event_dim
        numbers = [y, transform.inv(y)]
        if registry == "biject_to":
            assert transform.bijective
            numbers.append(transform.log_abs_det_jacobian(x, y))
        sum((part * library.arange(1.0, part.numel() + 1).reshape(part.shape)).sum() for part in numbers[::2]).backward()
        found.append([part.detach().numpy() for part in (*numbers, x.grad)])
    for ours, theirs in zip(*found, strict=True) if found else ():
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-9)


def test_programs_register_constraints_of_their_own() -> None:
    class Even(constraints.Constraint):
        def __init__(self, step: float) -> None:
            self.step = step

    registry = type(transform_to)()

    @registry.register(Even)
    def make(constraint: Even) -> transforms.Transform:
        return transforms.AffineTransform(0.0, constraint.step)

    assert registry(Even(2.0))(tracejit.tensor(3.0)).item() == 6.0
    registry.register(constraints.real, lambda c: transforms.TanhTransform())
    assert registry(constraints.real) == transforms.TanhTransform() != biject_to(constraints.real)
    with pytest.raises(NotImplementedError, match="Cannot transform Even"):
        transform_to(Even(1.0))
    with pytest.raises(TypeError, match="Constraint subclass or instance"):
        registry.register(int, make)


def test_a_property_of_a_class_is_a_dependent_constraint_and_of_an_instance_its_own() -> None:
    class Uniform(tracejit.distributions.Distribution):
        def __init__(self, high: float) -> None:
            self.high = high

        @constraints.dependent_property(is_discrete=False, event_dim=0)
        def support(self) -> Any:
            return constraints.interval(0.0, self.high)

        @constraints.dependent_property
        def other(self) -> Any:
            return constraints.positive

    assert constraints.is_dependent(Uniform.support) and not constraints.is_dependent(Uniform(2.0).support)
    assert (
        Uniform.support.event_dim == 0 and Uniform(2.0).support.upper_bound == 2.0 and Uniform(1.0).other is constraints.positive
    )
    with pytest.raises(NotImplementedError, match="event_dim cannot be determined statically"):
        _ = Uniform.other.event_dim
    assert constraints.dependent(is_discrete=True, event_dim=2).event_dim == 2


CHECKED: dict[str, Any] = {
    "lower_triangular": [[[1.0, 0.0], [2.0, -1.0]], [[1.0, 1.0], [0.0, 1.0]]],
    "lower_cholesky": [[[1.0, 0.0], [2.0, 1.0]], [[1.0, 0.0], [2.0, -1.0]]],
    "corr_cholesky": [[[1.0, 0.0], [0.6, 0.8]], [[1.0, 0.0], [0.6, 0.6]]],
    "symmetric": [[[1.0, 2.0], [2.0, 1.0]], [[1.0, 2.0], [0.0, 1.0]]],
    "positive_definite": [[[2.0, 1.0], [1.0, 2.0]], [[1.0, 2.0], [2.0, 1.0]]],
    "positive_semidefinite": [[[2.0, 1.0], [1.0, 2.0]], [[1.0, 2.0], [2.0, 1.0]]],
}


@pytest.mark.parametrize("name", CHECKED)
def test_constraints_of_matrices_say_which_meet_them(name: str) -> None:
    torch, values = pytest.importorskip("torch"), CHECKED[name]
    for value in (values, values[0], values[1]):
        ours = getattr(constraints, name).check(tracejit.tensor(value))
        assert ours.tolist() == getattr(torch.distributions.constraints, name).check(torch.tensor(value)).tolist()
