"""Activation functions and other functions of one element, of several primitives each.

Where a formula overflows on one side of a kink, the argument is masked before the function as well as after it, so that the gradient of the
unused side is 0 and not 0 * inf.  At a kink the gradient is the one PyTorch takes.
"""

from __future__ import annotations

import math
from typing import Any

from tracejit.ops.elementwise.comparison import minimum, where
from tracejit.ops.elementwise.mathematics import abs_, exp, expm1, log, log1p
from tracejit.ops.elementwise.mathematics import sigmoid as logistic
from tracejit.ops.elementwise.rounding import isnan, trunc
from tracejit.ops.elementwise.special import erf
from tracejit.ops.elementwise.trigonometry import tanh
from tracejit.ops.fused import fused
from tracejit.ops.samples import Samples, cases, floats

__all__ = [
    "angle", "binary_entropy", "celu", "divide_add", "elu", "fmax", "fmin", "frac", "gelu", "gelu_tanh", "hardshrink", "hardsigmoid",
    "hardswish", "hardtanh", "huber", "leaky_relu", "lerp_far", "lerp_near", "logistic_loss", "logsigmoid",
    "margin_ranking", "mish", "multiply_add", "nan_to_num", "poisson", "selu", "silu", "smooth_l1", "soft_margin", "softplus",
    "softshrink", "softsign", "squared_difference", "tanhshrink", "threshold",
]  # fmt: skip

_FEW = 4096
"""Elements of which NumPy goes twice over all of them as fast as a kernel is called."""
_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946
_SQRT_HALF = math.sqrt(0.5)
_SQRT_TWO_OVER_PI = math.sqrt(2.0 / math.pi)


def _of(*numbers: float, tensors: int = 1) -> Samples:
    """Samples of tensors of one shape, no two of which have an element in common, and numbers."""
    shapes = ((5,), (2, 3), ())
    return cases(
        *[
            (*[floats(*shape, high=2.0 + 0.3 * i, seed=7 * i + k) for i in range(tensors)], *numbers)
            for k, shape in enumerate(shapes)
        ]
    )


@fused(1, _of(-0.8, 1.1))
def hardtanh(x: Any, least: float, most: float) -> Any:
    """x limited to [least, most]; the gradient at the limits is 0."""
    return where.of(x <= least, least, where.of(x >= most, most, x))


@fused(1, _of(0.2))
def leaky_relu(x: Any, slope: float) -> Any:
    """x where positive, slope * x elsewhere."""
    return where.of(x > 0, x, x * slope)


@fused(1, _of(0.7))
def elu(x: Any, alpha: float) -> Any:
    """x where positive, alpha * (exp(x) - 1) elsewhere."""
    positive = x > 0  # so that NaN takes the curve, and keeps its gradient NaN
    return where.of(positive, x, expm1.of(where.of(positive, 0.0, x)) * alpha)


@fused(1, _of())
def selu(x: Any) -> Any:
    """The self-normalising scaled elu of Klambauer et al. (2017), https://arxiv.org/abs/1706.02515."""
    positive = x > 0
    return where.of(positive, x * _SELU_SCALE, expm1.of(where.of(positive, 0.0, x)) * (_SELU_ALPHA * _SELU_SCALE))


@fused(1, _of(0.7))
def celu(x: Any, alpha: float) -> Any:
    """x where positive, alpha * (exp(x / alpha) - 1) elsewhere."""
    positive = x > 0
    return where.of(positive, x, expm1.of(where.of(positive, 0.0, x) / alpha) * alpha)


@fused(1, _of())
def gelu(x: Any) -> Any:
    """x times the normal distribution function of x."""
    return x * 0.5 * (erf.of(x * _SQRT_HALF) + 1.0)


@fused(1, _of())
def gelu_tanh(x: Any) -> Any:
    """x times an approximation of the normal distribution function of x: Hendrycks and Gimpel (2016), https://arxiv.org/abs/1606.08415."""
    return x * 0.5 * (tanh.of((x + x * x * x * 0.044715) * _SQRT_TWO_OVER_PI) + 1.0)


@fused(1, _of())
def silu(x: Any) -> Any:
    """x * sigmoid(x), also known as swish."""
    return x * logistic.of(x)


def _softplus(x: Any, beta: float, threshold: float) -> Any:
    scaled = x * beta
    linear = scaled > threshold
    return where.of(linear, x, log1p.of(exp.of(where.of(linear, 0.0, scaled))) / beta)


@fused(1, _of(1.5, 1.0))
def softplus(x: Any, beta: float, threshold: float) -> Any:
    """log(1 + exp(beta * x)) / beta; x itself where beta * x > threshold."""
    return _softplus(x, beta, threshold)


@fused(1, _of())
def mish(x: Any) -> Any:
    """x * tanh(softplus(x))."""
    return x * tanh.of(_softplus(x, 1.0, 20.0))


@fused(1, _of())
def softsign(x: Any) -> Any:
    """x / (1 + |x|)."""
    return x / (abs_.of(x) + 1)


@fused(1, _of())
def logsigmoid(x: Any) -> Any:
    """log(sigmoid(x)), which neither overflows nor loses accuracy."""
    return minimum.of(x, 0.0) - log1p.of(exp.of(-abs_.of(x)))


def _six(x: Any) -> Any:
    """min(max(x + 3, 0), 6)."""
    y = x + 3.0
    return where.of(y <= 0.0, 0.0, where.of(y >= 6.0, 6.0, y))


@fused(1, _of())
def hardsigmoid(x: Any) -> Any:
    """min(max(x + 3, 0), 6) / 6."""
    return _six(x) / 6.0


@fused(1, _of())
def hardswish(x: Any) -> Any:
    """x * min(max(x + 3, 0), 6) / 6."""
    return x * _six(x) / 6.0


@fused(1, _of(0.4))
def softshrink(x: Any, lambd: float) -> Any:
    """x moved towards 0 by lambd, and 0 where |x| <= lambd."""
    return where.of(x > lambd, x - lambd, where.of(x < -lambd, x + lambd, x * 0.0))


@fused(1, _of(0.4))
def hardshrink(x: Any, lambd: float) -> Any:
    """0 where |x| <= lambd, x elsewhere."""
    return where.of((x >= -lambd) & (x <= lambd), 0.0, x)


@fused(1, _of(), least=_FEW)
def tanhshrink(x: Any) -> Any:
    """x - tanh(x)."""
    return x - tanh.of(x)


@fused(1, _of(0.2, -1.5))
def threshold(x: Any, threshold: float, value: float) -> Any:
    """x where it is above `threshold`, `value` elsewhere."""
    return where.of(x <= threshold, value, x)


@fused(2, _of(tensors=2), least=_FEW)
def squared_difference(x: Any, y: Any) -> Any:
    """(x - y) ** 2."""
    difference = x - y
    return difference * difference


@fused(2, _of(0.8, tensors=2))
def smooth_l1(x: Any, y: Any, beta: float) -> Any:
    """0.5 * d ** 2 / beta where d = |x - y| < beta, d - 0.5 * beta elsewhere."""
    size = abs_.of(x - y)
    near = size < beta
    square = where.of(near, size, 0.0)  # whose derivative is 0, and not NaN, where the difference is infinite
    return where.of(near, square * square * 0.5 / beta, size - beta * 0.5)


@fused(2, _of(0.8, tensors=2))
def huber(x: Any, y: Any, delta: float) -> Any:
    """0.5 * d ** 2 where d = |x - y| <= delta, delta * (d - 0.5 * delta) elsewhere."""
    size = abs_.of(x - y)
    near = size <= delta
    square = where.of(near, size, 0.0)  # whose derivative is 0, and not NaN, where the difference is infinite
    return where.of(near, square * square * 0.5, (size - delta * 0.5) * delta)


@fused(2, _of(tensors=2))
def logistic_loss(x: Any, y: Any) -> Any:
    """-(y * log(sigmoid(x)) + (1 - y) * log(1 - sigmoid(x))), stable for x of any size."""
    return (1.0 - y) * x - (minimum.of(x, 0.0) - log1p.of(exp.of(-abs_.of(x))))


def _bounded_log(x: Any, logarithm: Any, elsewhere: float) -> Any:
    """logarithm(x), at least -100; the gradient of the bound is 0.  elsewhere: any x for which it is more."""
    low = logarithm.of(x) <= -100.0
    return where.of(low, -100.0, logarithm.of(where.of(low, elsewhere, x)))


@fused(2, cases((floats(5, low=0.1, high=0.9), floats(5, low=0.1, high=0.9, seed=7))))
def binary_entropy(x: Any, y: Any) -> Any:
    """-(y * log(x) + (1 - y) * log(1 - x)); each logarithm is at least -100."""
    return (y - 1.0) * _bounded_log(-x, log1p, -0.5) - y * _bounded_log(x, log, 0.5)


@fused(2, _of(tensors=2))
def soft_margin(x: Any, y: Any) -> Any:
    """log(1 + exp(-y * x))."""
    return log1p.of(exp.of(-y * x))


@fused(2, _of(tensors=2))
def poisson(x: Any, y: Any) -> Any:
    """exp(x) - y * x."""
    return exp.of(x) - y * x


@fused(3, _of(0.3, tensors=3))
def margin_ranking(x: Any, y: Any, target: Any, margin: float) -> Any:
    """max(0, -target * (x - y) + margin); the derivative of that maximum is 1 at 0."""
    excess = -target * (x - y) + margin
    return where.of(excess < 0, 0.0, excess)


@fused(3, _of(tensors=3), saves=(1, 2), least=_FEW)
def multiply_add(x: Any, y: Any, z: Any) -> Any:
    """x + y * z."""
    return x + y * z


@fused(3, cases((floats(5), floats(5, seed=7), floats(5, low=0.5, high=2.0, seed=3))), saves=(1, 2), least=_FEW)
def divide_add(x: Any, y: Any, z: Any) -> Any:
    """x + y / z."""
    return x + y / z


@fused(2, _of(0.3, tensors=2), saves=(), least=_FEW)
def lerp_near(x: Any, y: Any, weight: float) -> Any:
    """x + (y - x) * weight: exactly x where that is 0."""
    return x + (y - x) * weight


@fused(2, _of(0.7, tensors=2), saves=(), least=_FEW)
def lerp_far(x: Any, y: Any, weight: float) -> Any:
    """y - (y - x) * (1 - weight): exactly y where that is 1."""
    return y - (y - x) * (1.0 - weight)


@fused(1, _of(), saves=(), least=_FEW)
def frac(x: Any) -> Any:
    """The fractional part, with the sign of x."""
    return x - trunc.of(x)


@fused(1, _of(0.5, 1.0, -1.0))
def nan_to_num(x: Any, nan: float, posinf: float, neginf: float) -> Any:
    """x with numbers in the place of NaN, infinity and minus infinity."""
    out = where.of(isnan.of(x), nan, x)
    out = where.of(x == math.inf, posinf, out)
    return where.of(x == -math.inf, neginf, out)


@fused(1, _of())
def angle(x: Any) -> Any:
    """The angle of x in the complex plane: pi if it is negative, 0 if not, NaN for NaN."""
    return where.of(isnan.of(x), x, where.of(x < 0, math.pi, x * 0.0))


@fused(2, _of(tensors=2))
def fmax(x: Any, y: Any) -> Any:
    """The larger of both; the number where the other one is NaN."""
    return where.of((x >= y) | isnan.of(y), x, y)


@fused(2, _of(tensors=2))
def fmin(x: Any, y: Any) -> Any:
    """The smaller of both; the number where the other one is NaN."""
    return where.of((x <= y) | isnan.of(y), x, y)
