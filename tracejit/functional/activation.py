"""Activation functions.

Formulas of one element stand in ops/composites/pointwise.py.
"""

from __future__ import annotations

from typing import Any

from tracejit.core.interpreter import state
from tracejit.core.numbers import settled
from tracejit.core.precision import rounds_once
from tracejit.core.shapes import normalise_dim
from tracejit.functional.support import in_place_or_new
from tracejit.ops.composites import pointwise
from tracejit.ops.elementwise import mathematics
from tracejit.ops.elementwise.comparison import where
from tracejit.ops.elementwise.trigonometry import tanh as hyperbolic_tangent
from tracejit.ops.fused import Fused
from tracejit.ops.movement.views import slice_
from tracejit.ops.public import softmax as softmaxes
from tracejit.ops.public.activation import hardshrink, prelu
from tracejit.ops.public.keywords import of_tensors
from tracejit.ops.public.random import rand

__all__ = [
    "celu", "celu_", "elu", "elu_", "gelu", "glu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "hardtanh_", "leaky_relu",
    "leaky_relu_", "log_softmax", "logsigmoid", "mish", "prelu", "relu", "relu6", "relu_", "rrelu", "rrelu_", "selu", "selu_", "sigmoid",
    "silu", "softmax", "softmin", "softplus", "softshrink", "softsign", "tanh", "tanhshrink", "threshold", "threshold_",
]  # fmt: skip


def _applied(function: Fused, inplace: bool, input: Any, *numbers: Any) -> Any:
    """function(input, *numbers), or `input` overwritten with it: then it is made step by step where a gradient is wanted, since a fused
    function saves its input."""
    if not inplace:
        return function(input, *numbers)
    steps = state.grad_enabled and input.requires_grad
    return input.copy_(function.body(input, *numbers) if steps else function(input, *numbers))


def relu(input: Any, inplace: bool = False) -> Any:
    """max(input, 0)."""
    return in_place_or_new(input, mathematics.relu(input), inplace)


@of_tensors
def relu6(input: Any, inplace: bool = False) -> Any:
    """min(max(input, 0), 6)."""
    return hardtanh(input, 0, 6, inplace)


def sigmoid(input: Any) -> Any:
    """1 / (1 + exp(-input))."""
    return mathematics.sigmoid(input)


def tanh(input: Any) -> Any:
    """The hyperbolic tangent."""
    return hyperbolic_tangent(input)


@of_tensors
def hardtanh(input: Any, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Any:
    """`input` limited to [min_val, max_val]; the gradient at the limits is 0.  Raises ValueError if min_val > max_val."""
    if min_val > max_val:
        raise ValueError(f"hardtanh(): min_val must not exceed max_val, got {min_val} and {max_val}")
    if not input.dtype.is_floating_point:
        min_val, max_val = int(min_val), int(max_val)
    return _applied(pointwise.hardtanh, inplace, input, min_val, max_val)


@of_tensors
@rounds_once
def leaky_relu(input: Any, negative_slope: float = 0.01, inplace: bool = False) -> Any:
    """input where positive, negative_slope * input elsewhere."""
    return _applied(pointwise.leaky_relu, inplace, input, negative_slope)


@of_tensors
@rounds_once
def elu(input: Any, alpha: float = 1.0, inplace: bool = False) -> Any:
    """input where positive, alpha * (exp(input) - 1) elsewhere."""
    return _applied(pointwise.elu, inplace, input, alpha)


@of_tensors
@rounds_once
def selu(input: Any, inplace: bool = False) -> Any:
    """The self-normalising scaled elu of Klambauer et al. (2017), https://arxiv.org/abs/1706.02515."""
    return _applied(pointwise.selu, inplace, input)


@of_tensors
@rounds_once
def celu(input: Any, alpha: float = 1.0, inplace: bool = False) -> Any:
    """input where positive, alpha * (exp(input / alpha) - 1) elsewhere.  Raises RuntimeError for alpha == 0."""
    if alpha == 0:
        raise RuntimeError("celu(): alpha must not be 0")
    return _applied(pointwise.celu, inplace, input, alpha)


@of_tensors
@rounds_once
def gelu(input: Any, approximate: str = "none") -> Any:
    """input times the normal distribution function of input, exactly ("none", by erf) or by the "tanh" approximation.

    Hendrycks and Gimpel (2016), https://arxiv.org/abs/1606.08415.  Raises RuntimeError for any other `approximate`."""
    if approximate == "none":
        return pointwise.gelu(input)
    if approximate == "tanh":
        return pointwise.gelu_tanh(input)
    raise RuntimeError(f"gelu(): approximate must be 'none' or 'tanh', got {approximate!r}")


@of_tensors
@rounds_once
def silu(input: Any, inplace: bool = False) -> Any:
    """input * sigmoid(input), also known as swish."""
    return _applied(pointwise.silu, inplace, input)


@of_tensors
@rounds_once
def mish(input: Any, inplace: bool = False) -> Any:
    """input * tanh(softplus(input))."""
    return _applied(pointwise.mish, inplace, input)


@of_tensors
@rounds_once
def softplus(input: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    """log(1 + exp(beta * input)) / beta; input itself where beta * input > threshold."""
    return pointwise.softplus(input, beta, threshold)


@of_tensors
@rounds_once
def softsign(input: Any) -> Any:
    """input / (1 + |input|)."""
    return pointwise.softsign(input)


@of_tensors
@rounds_once
def logsigmoid(input: Any) -> Any:
    """log(sigmoid(input)), which neither overflows nor loses accuracy."""
    return pointwise.logsigmoid(input)


@of_tensors
@rounds_once
def hardsigmoid(input: Any, inplace: bool = False) -> Any:
    """min(max(input + 3, 0), 6) / 6."""
    return _applied(pointwise.hardsigmoid, inplace, input)


@of_tensors
@rounds_once
def hardswish(input: Any, inplace: bool = False) -> Any:
    """input * min(max(input + 3, 0), 6) / 6."""
    return _applied(pointwise.hardswish, inplace, input)


@of_tensors
@rounds_once
def softshrink(input: Any, lambd: float = 0.5) -> Any:
    """input moved towards 0 by lambd, and 0 where |input| <= lambd.  Raises RuntimeError for negative lambd."""
    lambd = settled(lambd)
    if lambd < 0:
        raise RuntimeError(f"softshrink(): lambd must be greater or equal to 0, got {lambd}")
    return pointwise.softshrink(input, lambd)


@of_tensors
@rounds_once
def tanhshrink(input: Any) -> Any:
    """input - tanh(input)."""
    return pointwise.tanhshrink(input)


@of_tensors
def threshold(input: Any, threshold: float, value: float, inplace: bool = False) -> Any:
    """input where it is above `threshold`, `value` elsewhere."""
    return _applied(pointwise.threshold, inplace, input, threshold, value)


@of_tensors
@rounds_once
def glu(input: Any, dim: int = -1) -> Any:
    """The first half of `input` along `dim` times the sigmoid of the second.  Raises RuntimeError for an odd size."""
    if input.ndim == 0:
        raise RuntimeError("glu(): does not support 0-dimensional tensors")
    at = normalise_dim("glu", dim, input.ndim)
    size = input._sizes[at]
    if size % 2:
        raise RuntimeError(f"glu(): halving dimension must be even, but dimension {at} has size {size}")
    half = size // 2
    first, second = slice_(input, dim=at, start=0, stop=half, step=1), slice_(input, dim=at, start=half, stop=size, step=1)
    return first * mathematics.sigmoid(second)


def _along(input: Any, dim: int | None) -> int:
    """The dimension meant by None, as in old programs: the second one of matrices and images, otherwise the first."""
    return dim if dim is not None else 0 if input.ndim in (0, 1, 3) else 1


@of_tensors
def softmax(input: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    """exp(input) / sum(exp(input)) along `dim`, computed in `dtype` if given."""
    return softmaxes.softmax(input, _along(input, dim), dtype=dtype)


@of_tensors
def log_softmax(input: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    """log(softmax(input)) along `dim`."""
    return softmaxes.log_softmax(input, _along(input, dim), dtype=dtype)


@of_tensors
def softmin(input: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    """softmax(-input) along `dim`."""
    return softmax(-input, dim, dtype=dtype)


@of_tensors
def rrelu(input: Any, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False, inplace: bool = False) -> Any:
    """input where positive, slope * input elsewhere; slopes drawn from U(lower, upper) in training, their mean otherwise."""
    lower, upper = settled(lower), settled(upper)
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    slope = rand(input._sizes, dtype=input.dtype) * (upper - lower) + lower
    return in_place_or_new(input, where(input > 0, input, input * slope), inplace)


@of_tensors
def relu_(input: Any) -> Any:
    """relu in place."""
    return relu(input, inplace=True)


@of_tensors
def selu_(input: Any) -> Any:
    """selu in place."""
    return selu(input, inplace=True)


@of_tensors
def elu_(input: Any, alpha: float = 1.0) -> Any:
    """elu in place."""
    return elu(input, alpha, inplace=True)


@of_tensors
def celu_(input: Any, alpha: float = 1.0) -> Any:
    """celu in place."""
    return celu(input, alpha, inplace=True)


@of_tensors
def leaky_relu_(input: Any, negative_slope: float = 0.01) -> Any:
    """leaky_relu in place."""
    return leaky_relu(input, negative_slope, inplace=True)


@of_tensors
def hardtanh_(input: Any, min_val: float = -1.0, max_val: float = 1.0) -> Any:
    """hardtanh in place."""
    return hardtanh(input, min_val, max_val, inplace=True)


@of_tensors
def threshold_(input: Any, threshold: float, value: float) -> Any:
    """threshold in place."""
    return _applied(pointwise.threshold, True, input, threshold, value)


@of_tensors
def rrelu_(input: Any, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False) -> Any:
    """rrelu in place."""
    return rrelu(input, lower, upper, training, inplace=True)
