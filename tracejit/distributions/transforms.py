"""Transforms of random numbers: invertible functions that know the logarithm of the determinant of their Jacobian.

A transform maps `domain` to `codomain`; the event_dim of these constraints says how many dimensions one argument and one value have, and
log_abs_det_jacobian(x, y) has one number for each argument.  With cache_size=1 a transform remembers its last argument and value, so
inv(y) of a value it has just given is the argument itself, to the last digit, and not a logarithm of an exponential.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Number
from typing import Any

from tracejit.core import dtypes
from tracejit.core.number_info import finfo
from tracejit.core.shapes import broadcast_shapes
from tracejit.distributions import constraints
from tracejit.distributions.constraints import Constraint
from tracejit.distributions.distribution import broadcast
from tracejit.distributions.independent import summed
from tracejit.distributions.utils import tril_matrix_to_vec, vec_to_tril_matrix
from tracejit.functional import logsigmoid, pad, softplus
from tracejit.functions import arange, cat, eye, stack
from tracejit.linalg import cholesky
from tracejit.tensor import Tensor

__all__ = [
    "AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform", "CorrCholeskyTransform", "CumulativeDistributionTransform",
    "ExpTransform", "IndependentTransform", "LowerCholeskyTransform", "PositiveDefiniteTransform", "PowerTransform", "ReshapeTransform",
    "SigmoidTransform", "SoftmaxTransform", "SoftplusTransform", "StackTransform", "StickBreakingTransform", "TanhTransform", "Transform",
    "identity_transform",
]  # fmt: skip


class Transform:
    """Base class: subclasses define domain, codomain, _call(x), _inverse(y), log_abs_det_jacobian(x, y), and where they are monotonic
    `sign`, 1 or -1.  bijective: whether each value has one argument."""

    domain: Any = constraints.dependent
    codomain: Any = constraints.dependent
    bijective: Any = False

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ValueError("cache_size must be 0 or 1")
        self._cache_size = cache_size
        self._cached_x_y: tuple[Any, Any] = (None, None)
        super().__init__()  # of a Module, in classes that are both

    @property
    def inv(self) -> Transform:
        """The inverse transform."""
        return _InverseTransform(self)

    @property
    def sign(self) -> Any:
        """1 where values rise with arguments, -1 where they fall.  Raises NotImplementedError for what is not monotonic."""
        raise NotImplementedError(f"{type(self).__name__}.sign: the transform is not monotonic")

    def with_cache(self, cache_size: int = 1) -> Transform:
        """The transform with a cache of this size."""
        if self._cache_size == cache_size:
            return self
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy._cache_size, copy._cached_x_y = cache_size, (None, None)
        return copy

    def __call__(self, x: Any) -> Any:
        if self._cache_size == 0:
            return self._call(x)
        known, value = self._cached_x_y
        if x is not known:
            value = self._call(x)
            self._cached_x_y = (x, value)
        return value

    def _inv_call(self, y: Any) -> Any:
        if self._cache_size == 0:
            return self._inverse(y)
        argument, known = self._cached_x_y
        if y is not known:
            argument = self._inverse(y)
            self._cached_x_y = (argument, y)
        return argument

    def _call(self, x: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__}._call()")

    def _inverse(self, y: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__}._inverse()")

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """log |det dy/dx| at x, whose value is y."""
        raise NotImplementedError(f"{type(self).__name__}.log_abs_det_jacobian()")

    def forward_shape(self, shape: Any) -> Any:
        """The shape of values of arguments of a shape."""
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        """The shape of arguments of values of a shape."""
        return shape

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _InverseTransform(Transform):
    """The inverse of a transform, which keeps the cache for both."""

    def __init__(self, transform: Transform) -> None:
        super().__init__(transform._cache_size)
        self._inv = transform

    @property
    def domain(self) -> Any:  # type: ignore[override]
        return self._inv.codomain

    @property
    def codomain(self) -> Any:  # type: ignore[override]
        return self._inv.domain

    @property
    def bijective(self) -> Any:  # type: ignore[override]
        return self._inv.bijective

    @property
    def sign(self) -> Any:
        return self._inv.sign

    @property
    def inv(self) -> Transform:
        return self._inv

    def with_cache(self, cache_size: int = 1) -> Transform:
        return self._inv.with_cache(cache_size).inv

    def __call__(self, x: Any) -> Any:
        return self._inv._inv_call(x)

    def _inv_call(self, y: Any) -> Any:
        return self._inv(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return -self._inv.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Any) -> Any:
        return self._inv.inverse_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self._inv.forward_shape(shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _InverseTransform) and self._inv == other._inv

    __hash__ = Transform.__hash__

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._inv!r})"


def _widened(constraint: Constraint, event_dim: int) -> Constraint:
    more = event_dim - constraint.event_dim
    return constraints.independent(constraint, more) if more > 0 else constraint


class ComposeTransform(Transform):
    """Transforms one after another, the first of `parts` first."""

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = [part.with_cache(cache_size) for part in parts] if cache_size else list(parts)

    @property
    def domain(self) -> Any:  # type: ignore[override]
        if not self.parts:
            return constraints.real
        event_dim = self.parts[-1].codomain.event_dim
        for part in reversed(self.parts):
            event_dim = max(event_dim + part.domain.event_dim - part.codomain.event_dim, part.domain.event_dim)
        return _widened(self.parts[0].domain, event_dim)

    @property
    def codomain(self) -> Any:  # type: ignore[override]
        if not self.parts:
            return constraints.real
        event_dim = self.parts[0].domain.event_dim
        for part in self.parts:
            event_dim = max(event_dim + part.codomain.event_dim - part.domain.event_dim, part.codomain.event_dim)
        return _widened(self.parts[-1].codomain, event_dim)

    @property
    def bijective(self) -> Any:  # type: ignore[override]
        return all(part.bijective for part in self.parts)

    @property
    def sign(self) -> Any:
        sign: Any = 1
        for part in self.parts:
            sign = sign * part.sign
        return sign

    @property
    def inv(self) -> Transform:
        return ComposeTransform([part.inv for part in reversed(self.parts)])

    def with_cache(self, cache_size: int = 1) -> Transform:
        return self if self._cache_size == cache_size else ComposeTransform(self.parts, cache_size)

    def __call__(self, x: Any) -> Any:
        for part in self.parts:
            x = part(x)
        return x

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        if not self.parts:
            return x * 0
        event_dim, total, last = self.domain.event_dim, 0, len(self.parts) - 1
        for i, part in enumerate(self.parts):
            value = y if i == last else part(x)
            total = total + summed(part.log_abs_det_jacobian(x, value), event_dim - part.domain.event_dim)
            event_dim += part.codomain.event_dim - part.domain.event_dim
            x = value
        return total

    def forward_shape(self, shape: Any) -> Any:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    __hash__ = Transform.__hash__

    def __repr__(self) -> str:
        return f"{type(self).__name__}(\n    " + ",\n    ".join([repr(part) for part in self.parts]) + "\n)"


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """A transform whose last reinterpreted_batch_ndims dimensions belong to one event: its Jacobian is summed over them."""

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.base_transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    def with_cache(self, cache_size: int = 1) -> Transform:
        if self._cache_size == cache_size:
            return self
        return IndependentTransform(self.base_transform, self.reinterpreted_batch_ndims, cache_size)

    @property
    def domain(self) -> Any:  # type: ignore[override]
        return constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims)

    @property
    def codomain(self) -> Any:  # type: ignore[override]
        return constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims)

    @property
    def bijective(self) -> Any:  # type: ignore[override]
        return self.base_transform.bijective

    @property
    def sign(self) -> Any:
        return self.base_transform.sign

    def _check(self, x: Any, constraint: Any) -> None:
        if x.dim() < constraint.event_dim:
            raise ValueError(f"Too few dimensions on input: expected {constraint.event_dim} or more, got {x.dim()}")

    def _call(self, x: Any) -> Any:
        self._check(x, self.domain)
        return self.base_transform(x)

    def _inverse(self, y: Any) -> Any:
        self._check(y, self.codomain)
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return summed(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Any) -> Any:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self.base_transform.inverse_shape(shape)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, IndependentTransform)
            and self.base_transform == other.base_transform
            and self.reinterpreted_batch_ndims == other.reinterpreted_batch_ndims
        )

    __hash__ = Transform.__hash__

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_transform!r}, {self.reinterpreted_batch_ndims})"


class ReshapeTransform(Transform):
    """Events of shape in_shape as events of shape out_shape.  Raises ValueError unless they have as many elements."""

    bijective = True

    def __init__(self, in_shape: Sequence[int], out_shape: Sequence[int], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.in_shape, self.out_shape = tuple(in_shape), tuple(out_shape)
        if math.prod(self.in_shape) != math.prod(self.out_shape):
            raise ValueError(f"in_shape, out_shape have different numbers of elements: {self.in_shape}, {self.out_shape}")

    @property
    def domain(self) -> Any:  # type: ignore[override]
        return constraints.independent(constraints.real, len(self.in_shape))

    @property
    def codomain(self) -> Any:  # type: ignore[override]
        return constraints.independent(constraints.real, len(self.out_shape))

    def _call(self, x: Any) -> Any:
        return x.reshape((*x.shape[: x.ndim - len(self.in_shape)], *self.out_shape))

    def _inverse(self, y: Any) -> Any:
        return y.reshape((*y.shape[: y.ndim - len(self.out_shape)], *self.in_shape))

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return x.new_zeros(tuple(x.shape[: x.ndim - len(self.in_shape)]))

    def forward_shape(self, shape: Any) -> Any:
        return _exchanged(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Any) -> Any:
        return _exchanged(shape, self.out_shape, self.in_shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReshapeTransform) and (self.in_shape, self.out_shape) == (other.in_shape, other.out_shape)

    __hash__ = Transform.__hash__


def _exchanged(shape: Any, end: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    """A shape with another end.  Raises ValueError if it has not the first."""
    cut = len(shape) - len(end)
    if cut < 0 or tuple(shape[cut:]) != end:
        raise ValueError(f"Shape mismatch: expected {tuple(shape)} to end with {end}")
    return (*shape[:cut], *other)


class _Plain(Transform):
    """A transform without parameters: all of one type are equal."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    __hash__ = Transform.__hash__


class _Rising(_Plain):
    bijective = True

    @property
    def sign(self) -> Any:
        return 1


class ExpTransform(_Rising):
    """y = exp(x)."""

    domain, codomain = constraints.real, constraints.positive

    def _call(self, x: Any) -> Any:
        return x.exp()

    def _inverse(self, y: Any) -> Any:
        return y.log()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return x


class SigmoidTransform(_Rising):
    """y = 1 / (1 + exp(-x)), kept from 0 and 1."""

    domain, codomain = constraints.real, constraints.unit_interval

    def _call(self, x: Any) -> Any:
        return _within_unit(x.sigmoid())

    def _inverse(self, y: Any) -> Any:
        y = _within_unit(y)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return -softplus(-x) - softplus(x)


def _within_unit(p: Any) -> Any:
    """Probabilities that are neither 0 nor 1."""
    return p.clamp(finfo(p.dtype).tiny, 1 - dtypes.EPSILON[p.dtype])


class TanhTransform(_Rising):
    """y = tanh(x).  Use cache_size=1 where values are inverted: near -1 and 1 the inverse has few digits."""

    domain, codomain = constraints.real, constraints.interval(-1.0, 1.0)

    def _call(self, x: Any) -> Any:
        return x.tanh()

    def _inverse(self, y: Any) -> Any:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return 2.0 * (math.log(2.0) - x - softplus(-2.0 * x))  # log(1 - tanh(x)**2), which cancels for large x


class SoftplusTransform(_Rising):
    """y = log(1 + exp(x))."""

    domain, codomain = constraints.real, constraints.positive

    def _call(self, x: Any) -> Any:
        return softplus(x)

    def _inverse(self, y: Any) -> Any:
        return (-(-y).expm1()).log() + y

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return -softplus(-x)


class AbsTransform(_Plain):
    """y = |x|; the inverse is the argument that is not negative."""

    domain, codomain = constraints.real, constraints.positive

    def _call(self, x: Any) -> Any:
        return x.abs()

    def _inverse(self, y: Any) -> Any:
        return y


class SoftmaxTransform(_Plain):
    """Vectors as probabilities in proportion to exp(x); the inverse, one of many, is the logarithm."""

    domain, codomain = constraints.real_vector, constraints.simplex

    def _call(self, x: Any) -> Any:
        return x.softmax(-1)

    def _inverse(self, y: Any) -> Any:
        return y.log()


class StickBreakingTransform(_Plain):
    """Vectors of k numbers as k + 1 probabilities: each says, by a sigmoid, how much it takes of what the ones before have left.

    x = 0 gives equal probabilities.  Stan Reference Manual, "Unit simplex"."""

    domain, codomain = constraints.real_vector, constraints.simplex
    bijective = True

    def _shifted(self, x: Any) -> Any:
        return x - arange(x.shape[-1], 0, -1, dtype=x.dtype).log()

    def _call(self, x: Any) -> Any:
        share = self._shifted(x).sigmoid()
        left = (1 - share).cumprod(-1)
        return pad(share, [0, 1], value=1.0) * pad(left, [1, 0], value=1.0)

    def _inverse(self, y: Any) -> Any:
        taken = y[..., :-1]
        left = (1 - taken.cumsum(-1)).clamp(min=finfo(y.dtype).tiny)
        return taken.log() - left.log() + arange(taken.shape[-1], 0, -1, dtype=y.dtype).log()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        shifted = self._shifted(x)
        return (-shifted + logsigmoid(shifted) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: Any) -> Any:
        return (*shape[:-1], shape[-1] - 1)


class AffineTransform(Transform):
    """y = loc + scale * x, of numbers or tensors; event_dim: how many dimensions one x has."""

    bijective = True

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim

    @property
    def event_dim(self) -> int:
        """How many dimensions one argument has."""
        return self._event_dim

    @property
    def domain(self) -> Any:  # type: ignore[override]
        return _widened(constraints.real, self._event_dim)

    @property
    def codomain(self) -> Any:  # type: ignore[override]
        return _widened(constraints.real, self._event_dim)

    @property
    def sign(self) -> Any:
        if isinstance(self.scale, Tensor):
            return self.scale.sign()
        return (self.scale > 0) - (self.scale < 0)

    def _call(self, x: Any) -> Any:
        return self.loc + self.scale * x

    def _inverse(self, y: Any) -> Any:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        slope = self.scale.abs().log() if isinstance(self.scale, Tensor) else math.log(abs(self.scale))
        return summed(x * 0 + slope, self._event_dim)

    def forward_shape(self, shape: Any) -> Any:
        parts = [tuple(v.shape) for v in (self.loc, self.scale) if isinstance(v, Tensor)]
        return broadcast_shapes("AffineTransform", tuple(shape), *parts)

    def inverse_shape(self, shape: Any) -> Any:
        return self.forward_shape(shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AffineTransform) and _same(self.loc, other.loc) and _same(self.scale, other.scale)

    __hash__ = Transform.__hash__


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Number) and isinstance(b, Number):
        return a == b
    return bool((a == b).all())


class PowerTransform(Transform):
    """y = x ** exponent, of positive x."""

    domain, codomain = constraints.positive, constraints.positive
    bijective = True

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        (self.exponent,) = broadcast(exponent)

    @property
    def sign(self) -> Any:
        return self.exponent.sign()

    def _call(self, x: Any) -> Any:
        return x.pow(self.exponent)

    def _inverse(self, y: Any) -> Any:
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape: Any) -> Any:
        return broadcast_shapes("PowerTransform", tuple(shape), tuple(self.exponent.shape))

    def inverse_shape(self, shape: Any) -> Any:
        return self.forward_shape(shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PowerTransform) and _same(self.exponent, other.exponent)

    __hash__ = Transform.__hash__


class LowerCholeskyTransform(_Plain):
    """Square matrices as lower triangular ones with a positive diagonal: that of y is exp of that of x."""

    domain, codomain = constraints.independent(constraints.real, 2), constraints.lower_cholesky

    def _call(self, x: Any) -> Any:
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y: Any) -> Any:
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(_Plain):
    """Square matrices as positive definite ones: y is the matrix whose Cholesky factor LowerCholeskyTransform gives."""

    domain, codomain = constraints.independent(constraints.real, 2), constraints.positive_definite

    def _call(self, x: Any) -> Any:
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y: Any) -> Any:
        return LowerCholeskyTransform().inv(cholesky(y))


class CorrCholeskyTransform(_Plain):
    """Vectors of n * (n - 1) / 2 numbers as Cholesky factors of (n, n) matrices of correlations.

    In row i, tanh(x) says of each column before the diagonal what share of the length that the ones before have left it takes; the
    diagonal takes the rest.  Stan Reference Manual, "Cholesky factors of correlation matrices".  The Jacobian is that of what is below
    the diagonal."""

    domain, codomain = constraints.real_vector, constraints.corr_cholesky
    bijective = True

    def _call(self, x: Any) -> Any:
        eps = finfo(x.dtype).eps
        share = vec_to_tril_matrix(x.tanh().clamp(-1 + eps, 1 - eps), diag=-1)
        left = pad((1 - share**2).sqrt().cumprod(-1)[..., :-1], [1, 0], value=1.0)
        return (share + eye(share.shape[-1], dtype=x.dtype)) * left

    def _left(self, y: Any) -> Any:
        """The squared length that the columns before have left for each element below the diagonal, row by row."""
        return tril_matrix_to_vec(pad(1 - (y * y).cumsum(-1)[..., :-1], [1, 0], value=1.0), diag=-1)

    def _inverse(self, y: Any) -> Any:
        return (tril_matrix_to_vec(y, diag=-1) / self._left(y).sqrt()).atanh()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return (0.5 * self._left(y).log() + TanhTransform().log_abs_det_jacobian(x, y)).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        size = round((0.25 + 2 * shape[-1]) ** 0.5 + 0.5)
        if size * (size - 1) // 2 != shape[-1]:
            raise ValueError(f"Input is not a flattened lower-diagonal number: {shape[-1]} is not n * (n - 1) / 2")
        return (*shape[:-1], size, size)

    def inverse_shape(self, shape: Any) -> Any:
        if len(shape) < 2 or shape[-2] != shape[-1]:
            raise ValueError(f"Input is not square: {tuple(shape)}")
        return (*shape[:-2], shape[-1] * (shape[-1] - 1) // 2)


class CumulativeDistributionTransform(Transform):
    """y is the distribution function of `distribution` at x: of its draws, uniform numbers."""

    bijective = True
    codomain = constraints.unit_interval

    def __init__(self, distribution: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.distribution = distribution

    @property
    def sign(self) -> Any:
        return 1

    @property
    def domain(self) -> Any:  # type: ignore[override]
        return self.distribution.support

    def _call(self, x: Any) -> Any:
        return self.distribution.cdf(x)

    def _inverse(self, y: Any) -> Any:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return self.distribution.log_prob(x)


class _PartByPart(Transform):
    """Transforms of parts of their arguments along a dimension."""

    def __init__(self, tseq: Sequence[Transform], dim: int, cache_size: int) -> None:
        super().__init__(cache_size)
        if not all(isinstance(part, Transform) for part in tseq):
            raise AssertionError("All elements of tseq must be Transform instances")
        self.transforms = [part.with_cache(cache_size) for part in tseq] if cache_size else list(tseq)
        self.dim = dim

    @property
    def bijective(self) -> Any:  # type: ignore[override]
        return all(part.bijective for part in self.transforms)

    def _parts(self, x: Any) -> Sequence[Any]:
        raise NotImplementedError

    def _joined(self, parts: Sequence[Any]) -> Any:
        raise NotImplementedError

    def _call(self, x: Any) -> Any:
        return self._joined([part(piece) for part, piece in zip(self.transforms, self._parts(x), strict=True)])

    def _inverse(self, y: Any) -> Any:
        return self._joined([part.inv(piece) for part, piece in zip(self.transforms, self._parts(y), strict=True)])


class CatTransform(_PartByPart):
    """Transforms of `lengths` positions each (1 by default) along `dim`, as cat() joins them."""

    def __init__(
        self, tseq: Sequence[Transform], dim: int = 0, lengths: Sequence[int] | None = None, cache_size: int = 0
    ) -> None:
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise AssertionError(f"lengths ({len(self.lengths)}) must match transforms ({len(self.transforms)})")

    @property
    def event_dim(self) -> int:
        """How many dimensions one argument has: the most that one of the transforms takes."""
        return max(part.domain.event_dim for part in self.transforms)

    @property
    def length(self) -> int:
        """How many positions there are along `dim`."""
        return sum(self.lengths)

    @property
    def domain(self) -> Any:  # type: ignore[override]
        return constraints.cat([part.domain for part in self.transforms], self.dim, self.lengths)

    @property
    def codomain(self) -> Any:  # type: ignore[override]
        return constraints.cat([part.codomain for part in self.transforms], self.dim, self.lengths)

    def _parts(self, x: Any) -> Sequence[Any]:
        if x.shape[self.dim] != self.length:
            raise AssertionError(f"the size along dim {self.dim}, {x.shape[self.dim]}, must equal length {self.length}")
        return list(x.split(self.lengths, self.dim))

    def _joined(self, parts: Sequence[Any]) -> Any:
        return cat(parts, self.dim)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        logarithms = [
            summed(part.log_abs_det_jacobian(a, b), self.event_dim - part.domain.event_dim)
            for part, a, b in zip(self.transforms, self._parts(x), self._parts(y), strict=True)
        ]
        from_end = (self.dim if self.dim < 0 else self.dim - x.dim()) + self.event_dim
        return cat(logarithms, from_end) if from_end < 0 else sum(logarithms)


class StackTransform(_PartByPart):
    """A transform for each position along `dim`, as stack() joins them."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(tseq, dim, cache_size)

    @property
    def domain(self) -> Any:  # type: ignore[override]
        return constraints.stack([part.domain for part in self.transforms], self.dim)

    @property
    def codomain(self) -> Any:  # type: ignore[override]
        return constraints.stack([part.codomain for part in self.transforms], self.dim)

    def _parts(self, x: Any) -> Sequence[Any]:
        if x.shape[self.dim] != len(self.transforms):
            raise AssertionError(
                f"the size along dim {self.dim}, {x.shape[self.dim]}, must equal the number of transforms, {len(self.transforms)}"
            )
        return list(x.unbind(self.dim))

    def _joined(self, parts: Sequence[Any]) -> Any:
        return stack(parts, self.dim)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        pairs = zip(self.transforms, self._parts(x), self._parts(y), strict=True)
        return stack([part.log_abs_det_jacobian(a, b) for part, a, b in pairs], self.dim)
