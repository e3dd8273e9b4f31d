"""`Distribution`: the base of all distributions.

A distribution holds tensors of parameters, broadcast to `batch_shape`; one draw has `event_shape`.  sample() is outside the
graph; rsample() is a function of parameters and of draws that do not depend on them, so gradients reach the parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from tracejit.autograd.grad_mode import no_grad
from tracejit.core import dtypes
from tracejit.distributions.constraints import Constraint, _Dependent
from tracejit.functions import all as all_of
from tracejit.functions import broadcast_tensors
from tracejit.tensor import Size, Tensor, tensor

__all__ = ["Distribution", "broadcast", "probabilities_and_logits", "tiny"]


def tiny(like: Tensor) -> float:
    """The least step from 1 in the dtype of a tensor: what probabilities keep from 0 and 1."""
    return dtypes.EPSILON[like.dtype]


def broadcast(*values: Any) -> list[Tensor]:
    """Numbers and tensors as tensors of one shape; numbers take the dtype of the tensors."""
    kinds = [v.dtype for v in values if isinstance(v, Tensor) and v.dtype.is_floating_point]
    dtype = kinds[0] if kinds else dtypes.default_dtype()
    made = [v if isinstance(v, Tensor) else tensor(v, dtype=dtype) for v in values]
    made = [v if v.dtype.is_floating_point else v.to(dtype) for v in made]
    return list(broadcast_tensors(*made))


class Distribution:
    """Base class: subclasses define sample() or rsample(), log_prob() and what else they know, and expand()."""

    has_rsample = False
    has_enumerate_support = False
    arg_constraints: ClassVar[Mapping[str, Constraint]] = {}
    support: Any = None
    _validate_args = True

    def __init__(
        self, batch_shape: tuple[int, ...] = (), event_shape: tuple[int, ...] = (), validate_args: bool | None = None
    ) -> None:
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            for name, constraint in self.arg_constraints.items():
                if name in self.__dict__ and not isinstance(constraint, _Dependent):
                    value = self.__dict__[name]
                    if not bool(all_of(constraint.check(value))):
                        raise ValueError(
                            f"Expected parameter {name} ({value.__class__.__name__} of shape {tuple(value.shape)}) of distribution "
                            f"{type(self).__name__} to satisfy the constraint {constraint!r}, but found invalid values:\n{value}"
                        )
        super().__init__()  # of a Module, in classes that are both

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether arguments are checked where nothing else is said."""
        if value not in (True, False):
            raise ValueError(f"set_default_validate_args(): expected True or False, got {value}")
        Distribution._validate_args = value

    @property
    def batch_shape(self) -> Size:
        """The shape of the parameters."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one draw."""
        return self._event_shape

    @property
    def mean(self) -> Any:
        """The mean."""
        raise NotImplementedError(f"{type(self).__name__}.mean")

    @property
    def mode(self) -> Any:
        """The most likely value."""
        raise NotImplementedError(f"{type(self).__name__}.mode")

    @property
    def variance(self) -> Any:
        """The variance."""
        raise NotImplementedError(f"{type(self).__name__}.variance")

    @property
    def stddev(self) -> Any:
        """The standard deviation."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Any = ()) -> Any:
        """Draws of shape sample_shape + batch_shape + event_shape, outside the graph."""
        with no_grad():
            return self.rsample(sample_shape)

    def sample_n(self, n: int) -> Any:
        """n draws."""
        return self.sample((n,))

    def rsample(self, sample_shape: Any = ()) -> Any:
        """Draws through which gradients reach the parameters.  Raises NotImplementedError where there are none."""
        raise NotImplementedError(f"{type(self).__name__}.rsample(): its draws have no derivative; use sample()")

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the density, or of the probability, of `value`."""
        raise NotImplementedError(f"{type(self).__name__}.log_prob()")

    def cdf(self, value: Any) -> Any:
        """The distribution function at `value`."""
        raise NotImplementedError(f"{type(self).__name__}.cdf()")

    def icdf(self, value: Any) -> Any:
        """The inverse of cdf()."""
        raise NotImplementedError(f"{type(self).__name__}.icdf()")

    def entropy(self) -> Any:
        """The entropy."""
        raise NotImplementedError(f"{type(self).__name__}.entropy()")

    def perplexity(self) -> Any:
        """exp of the entropy."""
        return self.entropy().exp()

    def enumerate_support(self, expand: bool = True) -> Any:
        """All values that a discrete distribution has."""
        raise NotImplementedError(f"{type(self).__name__}.enumerate_support()")

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The distribution with its parameters expanded to a batch shape."""
        shape = tuple(batch_shape)
        return type(self)(**{name: value.expand(shape) for name, value in self._parameters().items()}, validate_args=False)

    def _parameters(self) -> dict[str, Any]:
        """The arguments that make this distribution; each has the batch shape."""
        return {name: self.__dict__[name] for name in self.arg_constraints if name in self.__dict__}

    def _extended_shape(self, sample_shape: Any = ()) -> Size:
        return Size((*sample_shape, *self._batch_shape, *self._event_shape))

    def _validate_sample(self, value: Any) -> None:
        """Raises ValueError for what this distribution cannot have drawn."""
        if not self._validate_args:
            return
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        event = len(self._event_shape)
        if event and tuple(value.shape[value.ndim - event :]) != tuple(self._event_shape):
            raise ValueError(
                f"The right-most size of value must match event_shape: {tuple(value.shape)} vs {tuple(self._event_shape)}."
            )
        for i, j in zip(reversed(value.shape), reversed((*self._batch_shape, *self._event_shape)), strict=False):
            if i != 1 and j != 1 and i != j:
                raise ValueError(
                    f"Value is not broadcastable with batch_shape+event_shape: {tuple(value.shape)} vs "
                    f"{(*self._batch_shape, *self._event_shape)}."
                )
        if self.support is not None and not bool(all_of(self.support.check(value))):
            raise ValueError(
                f"Expected value argument (Tensor of shape {tuple(value.shape)}) to be within the support ({self.support!r}) of the "
                f"distribution {self!r}, but found invalid values:\n{value}"
            )

    def __repr__(self) -> str:
        shown = {name: self.__dict__[name] for name in self.arg_constraints if name in self.__dict__}
        members = [f"{name}: {value if value.numel() == 1 else value.shape}" for name, value in shown.items()]
        return f"{type(self).__name__}({', '.join(members)})"


def probabilities_and_logits(name: str, probs: Any, logits: Any) -> tuple[Tensor | None, Tensor | None]:
    """The one of two that was given.  Raises ValueError unless it is exactly one."""
    if (probs is None) == (logits is None):
        raise ValueError(f"{name}: either `probs` or `logits` must be specified, but not both.")
    return (None, broadcast(logits)[0]) if probs is None else (broadcast(probs)[0], None)
