"""Initial values of parameters.  Every function fills its tensor in place, without autograd, and returns it.

Xavier: Glorot and Bengio (2010).  Kaiming: He et al. (2015), https://arxiv.org/abs/1502.01852.  Orthogonal: Saxe et al. (2013),
https://arxiv.org/abs/1312.6120.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tracejit.autograd.grad_mode import no_grad
from tracejit.core.dtypes import float64
from tracejit.ops.elementwise.special import erfinv
from tracejit.ops.public.creation import eye
from tracejit.ops.public.linear_algebra import qr
from tracejit.ops.public.random import rand, randn, randperm
from tracejit.tensor import tensor as make_tensor

__all__ = [
    "calculate_gain", "constant", "constant_", "dirac", "dirac_", "eye_", "kaiming_normal", "kaiming_normal_", "kaiming_uniform",
    "kaiming_uniform_", "normal", "normal_", "ones_", "orthogonal", "orthogonal_", "sparse", "sparse_", "trunc_normal_", "uniform",
    "uniform_", "xavier_normal", "xavier_normal_", "xavier_uniform", "xavier_uniform_", "zeros_",
]  # fmt: skip

_LINEAR = ("linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "sigmoid")


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The recommended gain for a nonlinearity; `param` is the slope of "leaky_relu", by default 0.01.

    Raises ValueError for unknown names."""
    if nonlinearity in _LINEAR:
        return 1
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, int | float):
            raise ValueError(f"negative_slope {param} not a valid number")
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity == "selu":
        return 3.0 / 4
    raise ValueError(f"Unsupported nonlinearity {nonlinearity}")


def _fill(tensor: Any, values: Any) -> Any:
    with no_grad():
        return tensor.copy_(values)


def uniform_(tensor: Any, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Any:
    """Fill with numbers from U(a, b)."""
    return _fill(tensor, rand(tuple(tensor.shape), generator=generator, dtype=tensor.dtype) * (b - a) + a)


def normal_(tensor: Any, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Any:
    """Fill with numbers from N(mean, std ** 2)."""
    return _fill(tensor, randn(tuple(tensor.shape), generator=generator, dtype=tensor.dtype) * std + mean)


def trunc_normal_(
    tensor: Any, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, generator: Any = None
) -> Any:
    """Fill with numbers from N(mean, std ** 2) within [a, b], by the inverse of the distribution function."""
    low, high = (0.5 * (1.0 + math.erf((limit - mean) / std / math.sqrt(2.0))) for limit in (a, b))
    uniform = rand(tuple(tensor.shape), generator=generator, dtype=float64) * (2.0 * (high - low)) + (2.0 * low - 1.0)
    return _fill(tensor, (erfinv(uniform) * (std * math.sqrt(2.0)) + mean).clamp(a, b))


def constant_(tensor: Any, val: float) -> Any:
    """Fill with one number."""
    with no_grad():
        return tensor.fill_(val)


def zeros_(tensor: Any) -> Any:
    """Fill with 0."""
    return constant_(tensor, 0.0)


def ones_(tensor: Any) -> Any:
    """Fill with 1."""
    return constant_(tensor, 1.0)


def eye_(tensor: Any) -> Any:
    """Fill a matrix with the identity.  Raises ValueError for any other number of dimensions."""
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    return _fill(tensor, eye(tensor.shape[0], tensor.shape[1], dtype=tensor.dtype))


def dirac_(tensor: Any, groups: int = 1) -> Any:
    """Fill a convolution's weight (out, in, ...) so that it copies as many channels as it can, in each group.

    Raises ValueError for shapes that no convolution has."""
    if not 3 <= tensor.ndim <= 5:
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    if tensor.shape[0] % groups:
        raise ValueError("dim 0 must be divisible by groups")
    values = np.zeros(tuple(tensor.shape), tensor.dtype.numpy)
    per_group = tensor.shape[0] // groups
    centre = tuple(size // 2 for size in tensor.shape[2:])
    for group in range(groups):
        for channel in range(min(per_group, tensor.shape[1])):
            values[(group * per_group + channel, channel, *centre)] = 1
    return _fill(tensor, make_tensor(values))


def fans(tensor: Any) -> tuple[int, int]:
    """(fan in, fan out) of a weight (out, in, ...).  Raises ValueError below two dimensions."""
    if tensor.ndim < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def xavier_uniform_(tensor: Any, gain: float = 1.0, generator: Any = None) -> Any:
    """Fill from U(-a, a) with a = gain * sqrt(6 / (fan in + fan out))."""
    bound = math.sqrt(3.0) * (gain * math.sqrt(2.0 / float(sum(fans(tensor)))))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Any, gain: float = 1.0, generator: Any = None) -> Any:
    """Fill from N(0, s ** 2) with s = gain * sqrt(2 / (fan in + fan out))."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / float(sum(fans(tensor)))), generator)


def _kaiming_std(tensor: Any, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    return calculate_gain(nonlinearity, a) / math.sqrt(fans(tensor)[mode == "fan_out"])


def kaiming_uniform_(
    tensor: Any, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Any:
    """Fill from U(-b, b) with b = gain * sqrt(3 / fan), where gain = calculate_gain(nonlinearity, a); nothing to do for no elements."""
    if 0 in tensor.shape:
        return tensor
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Any, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Any:
    """Fill from N(0, s ** 2) with s = gain / sqrt(fan), where gain = calculate_gain(nonlinearity, a); nothing to do for no elements."""
    if 0 in tensor.shape:
        return tensor
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def orthogonal_(tensor: Any, gain: float = 1, generator: Any = None) -> Any:
    """Fill with gain times a random (semi-)orthogonal matrix of dimension 0 by all others.  Raises ValueError below two dimensions."""
    if tensor.ndim < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0:
        return tensor
    rows = tensor.shape[0]
    columns = tensor.numel() // rows
    flat = randn((rows, columns), generator=generator, dtype=tensor.dtype)
    q, r = qr(flat.mT if rows < columns else flat)
    q = q * r.diagonal().sign()  # makes the decomposition unique, hence the distribution uniform
    return _fill(tensor, (q.mT if rows < columns else q).reshape(tuple(tensor.shape)) * gain)


def sparse_(tensor: Any, sparsity: float, std: float = 0.01, generator: Any = None) -> Any:
    """Fill a matrix from N(0, std ** 2), then set the fraction `sparsity` of each column to 0.

    Raises ValueError for any other number of dimensions."""
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    normal_(tensor, 0.0, std, generator)
    for column in range(columns):
        chosen = randperm(rows, generator=generator)[:zeros]
        with no_grad():
            tensor[chosen, column] = 0
    return tensor


_calculate_fan_in_and_fan_out = fans


def _calculate_correct_fan(tensor: Any, mode: str) -> int:
    return fans(tensor)[mode.lower() == "fan_out"]


# The names without underscore are older ones of the same functions.
uniform, normal, constant = uniform_, normal_, constant_
dirac, orthogonal, sparse = dirac_, orthogonal_, sparse_
xavier_uniform, xavier_normal, kaiming_uniform, kaiming_normal = (
    xavier_uniform_,
    xavier_normal_,
    kaiming_uniform_,
    kaiming_normal_,
)
