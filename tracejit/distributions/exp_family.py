"""Exponential families: distributions with density exp(t(x) . theta - A(theta) + k(x))."""

from __future__ import annotations

from typing import Any

from tracejit.autograd import grad
from tracejit.autograd.grad_mode import enable_grad
from tracejit.distributions.distribution import Distribution

__all__ = ["ExponentialFamily"]


class ExponentialFamily(Distribution):
    """Base class: a subclass that defines the natural parameters theta, the log normaliser A and the mean of the carrier measure k has an
    entropy, A(theta) - theta . grad A(theta) - E[k(x)] (Nielsen and Nock, Entropies and cross-entropies of exponential families, 2010)."""

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        raise NotImplementedError(f"{type(self).__name__}._natural_params")

    def _log_normalizer(self, *natural_params: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__}._log_normalizer()")

    @property
    def _mean_carrier_measure(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__}._mean_carrier_measure")

    def entropy(self) -> Any:
        with enable_grad():
            parameters = [p if p.requires_grad else p.detach().requires_grad_() for p in self._natural_params]
            normaliser = self._log_normalizer(*parameters)
            slopes = grad(normaliser.sum(), parameters, create_graph=True)
        out = normaliser - self._mean_carrier_measure
        for parameter, slope in zip(parameters, slopes, strict=True):
            out = out - (parameter * slope).reshape((*self._batch_shape, -1)).sum(-1)
        return out
