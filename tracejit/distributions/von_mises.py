"""The von Mises distribution: normal on the circle."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from tracejit.autograd.grad_mode import no_grad
from tracejit.distributions import constraints
from tracejit.distributions.distribution import Distribution, broadcast
from tracejit.functions import rand, where, zeros
from tracejit.special import i0e, i1e

__all__ = ["VonMises"]


class VonMises(Distribution):
    """Angles in [-pi, pi) around `loc`, in radians, with density exp(concentration * cos(x - loc)) up to a constant.

    mean and mode are loc; variance is the circular one, 1 - I1(concentration) / I0(concentration)."""

    arg_constraints: ClassVar = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.concentration = broadcast(loc, concentration)
        super().__init__(tuple(self.loc.shape), (), validate_args)

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        return 1 - i1e(self.concentration) / i0e(self.concentration)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        log_bessel = i0e(self.concentration).log() + self.concentration
        return self.concentration * (value - self.loc).cos() - math.log(2 * math.pi) - log_bessel

    @no_grad()
    def sample(self, sample_shape: Any = ()) -> Any:
        """Draws, by rejection from a wrapped Cauchy distribution (Best and Fisher, Efficient simulation of the von Mises distribution,
        1979): at least two of three proposals are accepted, so 100 of them leave none out."""
        shape = tuple(self._extended_shape(sample_shape))
        concentration = self.concentration.double().expand(shape)
        tau = 1 + (1 + 4 * concentration**2).sqrt()
        rho = (tau - (2 * tau).sqrt()) / (2 * concentration)
        r = where(concentration < 1e-5, 1 / concentration + concentration, (1 + rho**2) / (2 * rho))
        angle, missing = zeros(shape, dtype=r.dtype), zeros(shape, dtype=r.dtype) == 0
        for _ in range(100):
            u = rand((3, *shape), dtype=r.dtype)
            z = (math.pi * u[0]).cos()
            cosine = ((1 + r * z) / (r + z)).clamp(-1, 1)
            c = concentration * (r - cosine)
            accepted = (c * (2 - c) > u[1]) | ((c / u[1]).log() + 1 - c >= 0)
            angle = where(missing & accepted, (u[2] - 0.5).sign() * cosine.acos(), angle)
            missing = missing & ~accepted
            if not bool(missing.any()):
                break
        turned = (angle + self.loc.double() + math.pi) % (2 * math.pi) - math.pi
        return turned.to(self.loc.dtype)
