"""Normalisation by mean and variance: of the channels of a batch, and of trailing dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.core import kernels
from tracejit.core.aval import Aval
from tracejit.core.shapes import float_product
from tracejit.core.unbroadcast import sum_to
from tracejit.ops.composites.rows import dotted, summed
from tracejit.ops.declare import composite
from tracejit.ops.elementwise.mathematics import rsqrt
from tracejit.ops.movement.views import reshape
from tracejit.ops.reduce import sum_
from tracejit.ops.samples import cases, floats

__all__ = ["batch_norm", "layer_norm"]

Dims = tuple[int, ...]


def _moments(x: Any, dims: Dims) -> tuple[Any, Any, Any]:
    """(x - its mean, the mean, the biased variance) over `dims`, kept as dimensions of size 1; in two passes."""
    count = float_product(x.shape[d] for d in dims)
    mean = sum_.of(x, dims=dims, keepdim=True) / count
    deviation = x - mean
    return deviation, mean, sum_.of(deviation * deviation, dims=dims, keepdim=True) / count


def _affine(x: Any, weight: Any, bias: Any) -> Any:
    if weight is not None:
        x = x * weight
    return x if bias is None else x + bias


def _normalised(x: Any, weight: Any, bias: Any, dims: Dims, eps: float) -> tuple[Any, Any, Any]:
    """Few passes for NumPy: (normalised, mean, variance)."""
    count = float_product(x.shape[d] for d in dims)
    mean = summed(x, dims) / count
    out = x - mean
    variance = dotted(out, out, dims) / count
    factor = np.true_divide(1.0, np.sqrt(variance + eps))
    if weight is not None and weight.shape == factor.shape:
        out *= factor * weight
    else:
        out *= factor
        if weight is not None:
            out *= weight
    if bias is not None:
        out += bias
    return out, mean, variance


def _gradients(c: Any, dims: Dims, weight: Any, g: Any, g_mean: Any, g_variance: Any) -> tuple[Any, Any, Any]:
    """(gradient of x, of the weights as they broadcast, of the addend as it broadcasts), given those of the three outputs."""
    x, (_, mean, variance) = c.inputs[0], c.outputs
    count = float_product(x.shape[d] for d in dims)
    deviation = x - mean
    gx = g_weight = None
    if g is not None:
        factor = rsqrt.of(variance + c.attributes["eps"])
        normal = deviation * factor
        if c.needs[1]:
            g_weight = g * normal
        if c.needs[0]:
            inner = g if weight is None else g * weight
            total = sum_.of(inner, dims=dims, keepdim=True) / count
            share = sum_.of(inner * normal, dims=dims, keepdim=True) / count
            if isinstance(normal, np.ndarray):
                normal *= share
                np.subtract(inner, normal, out=normal)
                normal -= total
                normal *= factor
                gx = normal
            else:
                gx = (inner - normal * share - total) * factor
    if c.needs[0] and g_mean is not None:
        part = g_mean / count
        gx = part + x * 0.0 if gx is None else gx + part
    if c.needs[0] and g_variance is not None:
        part = g_variance * (2.0 / count) * deviation
        gx = part if gx is None else gx + part
    return gx, g_weight, g


def _channel_gradients(c: Any, dims: Dims, weight: Any, g: Any) -> tuple[Any, Any, Any]:
    """`batch_norm`'s on arrays: its parameters' gradients are the sums that the input's needs."""
    x, (_, mean, variance) = c.inputs[0], c.outputs
    g_bias = summed(g, dims)
    gx: Any = None
    g_weight: Any = None
    if c.needs[0] or c.needs[1]:
        factor = rsqrt.of(variance + c.attributes["eps"])
        normal = x - mean
        normal *= factor
        g_weight = dotted(normal, g, dims)
        if c.needs[0]:
            count = float_product(x.shape[d] for d in dims)
            normal *= g_weight / count
            gx = np.subtract(g, normal, out=normal)
            gx -= g_bias / count
            gx *= factor if weight is None else factor * weight
    return gx, g_weight.reshape(-1) if c.needs[1] else None, g_bias.reshape(-1) if c.needs[2] else None


def _channels(vector: Any, ndim: int) -> Any:
    """A vector of channels as something that broadcasts along dimension 1."""
    return None if vector is None else reshape.of(vector, shape=(1, vector.shape[0], *(1,) * (ndim - 2)))


def _over_batch(ndim: int) -> Dims:
    return (0, *range(2, ndim))


def _batch_rule(x: Aval, weight: Aval | None, bias: Aval | None, eps: float) -> tuple[Aval, Aval, Aval]:
    statistic = Aval(tuple(s if d == 1 else 1 for d, s in enumerate(x.shape)), x.dtype)
    return x, statistic, statistic


def _batch_expansion(x: Any, weight: Any, bias: Any, eps: float) -> tuple[Any, Any, Any]:
    ndim = len(x.shape)
    deviation, mean, variance = _moments(x, _over_batch(ndim))
    return _affine(deviation * rsqrt.of(variance + eps), _channels(weight, ndim), _channels(bias, ndim)), mean, variance


@composite(
    _batch_rule,
    _batch_expansion,
    name="native_batch_norm",
    multiple=True,
    samples=cases(
        (floats(4, 3), floats(3, seed=1), floats(3, seed=2)), (floats(2, 3, 4), None, None),
        (floats(3, 2, 2, 2).T, floats(2, seed=1), None),
        eps=1e-3,
    ),
)  # fmt: skip
def batch_norm(x: Any, weight: Any, bias: Any, eps: float) -> tuple[Any, Any, Any]:
    """(x with zero mean and unit variance in each channel, * weight + bias; the means; the biased variances): statistics broadcast to x."""
    return _normalised(x, _channels(weight, x.ndim), _channels(bias, x.ndim), _over_batch(x.ndim), eps)


@batch_norm.vjp(saves=("0 1 out1 out2", "0 out1 out2", ""))
def _(c: Any, g: Any, g_mean: Any, g_variance: Any) -> Any:
    shape = c.avals[0].shape
    dims, weight = _over_batch(len(shape)), c.inputs[1]
    if isinstance(g, np.ndarray) and g_mean is None and g_variance is None:
        return _channel_gradients(c, dims, _channels(weight, len(shape)), g)
    if c.needs[0] or c.needs[1]:
        gx, g_weight, g_bias = _gradients(c, dims, _channels(weight, len(shape)), g, g_mean, g_variance)
    else:
        gx, g_weight, g_bias = None, None, g

    def per_channel(x: Any, need: bool) -> Any:
        return sum_.of(x, dims=dims, keepdim=False) if need and x is not None else None

    return gx, per_channel(g_weight, c.needs[1]), per_channel(g_bias, c.needs[2])


def _layer_rule(x: Aval, weight: Aval | None, bias: Aval | None, dims: Dims, eps: float) -> tuple[Aval, Aval, Aval]:
    statistic = Aval(tuple(1 if d in dims else s for d, s in enumerate(x.shape)), x.dtype)
    return x, statistic, statistic


def _layer_expansion(x: Any, weight: Any, bias: Any, dims: Dims, eps: float) -> tuple[Any, Any, Any]:
    deviation, mean, variance = _moments(x, dims)
    return _affine(deviation * rsqrt.of(variance + eps), weight, bias), mean, variance


@composite(
    _layer_rule,
    _layer_expansion,
    name="native_layer_norm",
    multiple=True,
    samples=cases(
        (floats(4, 3), floats(3, seed=1), floats(3, seed=2), {"dims": (1,)}), (floats(2, 3, 4), None, None, {"dims": (1, 2)}),
        (floats(3, 2, 2).T, floats(2, 3, seed=1), None, {"dims": (1, 2)}),
        eps=1e-3,
    ),
)  # fmt: skip
def layer_norm(x: Any, weight: Any, bias: Any, dims: Dims, eps: float) -> tuple[Any, Any, Any]:
    """(x with zero mean and unit variance over the last dimensions `dims`, * weight + bias; the means; the biased variances)."""
    found = _standardised_rows(x, weight, bias, dims, eps)
    return _normalised(x, weight, bias, dims, eps) if found is None else found


def _is_row_of(x: Any, parameter: Any, dims: Dims) -> bool:
    """Whether a parameter has an element for each of a row of `x`, side by side."""
    flags = parameter.flags
    return parameter.shape == x.shape[dims[0] :] and parameter.dtype is x.dtype and flags.c_contiguous and flags.aligned


def _standardised_rows(x: Any, weight: Any, bias: Any, dims: Dims, eps: float) -> tuple[Any, Any, Any] | None:
    """The same by a kernel; None where the operands are not contiguous."""
    form, more = "standardised rows", []
    for name, parameter in (("weight", weight), ("bias", bias)):
        if parameter is not None:
            if not _is_row_of(x, parameter, dims):
                return None
            form += f", {name}"
            more.append(parameter)
    run = kernels.floating(form, x) if x.size and dims == tuple(range(dims[0], x.ndim)) else None
    if run is None:
        return None
    out, shape = np.empty(x.shape, x.dtype), (*x.shape[: dims[0]], *(1,) * len(dims))
    mean, variance = np.empty(shape, x.dtype), np.empty(shape, x.dtype)
    run(out, mean, variance, x, np.array(eps, np.float64), *more, mean.size, x.size // mean.size)
    return out, mean, variance


def _gradient_of_rows(c: Any, g: Any) -> Any:
    """The gradient of x by a kernel; None where the operands are no contiguous arrays."""
    x, weight = c.inputs[:2]
    if not (isinstance(g, np.ndarray) and g.flags.aligned and (weight is None or _is_row_of(x, weight, c.attributes["dims"]))):
        return None
    run = kernels.floating("gradient of standardised rows" + (", weight" if weight is not None else ""), x) if x.size else None
    if run is None:
        return None
    _, mean, variance = c.outputs
    out, more = np.empty(x.shape, x.dtype), () if weight is None else (weight,)
    eps = np.array(c.attributes["eps"], np.float64)
    run(out, np.ascontiguousarray(g), x, mean, variance, eps, *more, mean.size, x.size // mean.size)
    return out


@layer_norm.vjp(saves=("0 1 out1 out2", "0 out1 out2", ""))
def _(c: Any, g: Any, g_mean: Any, g_variance: Any) -> Any:
    gx = _gradient_of_rows(c, g) if c.needs[0] and not c.needs[1] and g_mean is None and g_variance is None else None
    if gx is not None:
        g_weight, g_bias = None, g
    elif c.needs[0] or c.needs[1]:
        gx, g_weight, g_bias = _gradients(c, c.attributes["dims"], c.inputs[1], g, g_mean, g_variance)
    else:
        gx, g_weight, g_bias = None, None, g
    return (
        gx,
        sum_to(g_weight, c.avals[1].shape) if c.needs[1] and g_weight is not None else None,
        sum_to(g_bias, c.avals[2].shape) if c.needs[2] and g_bias is not None else None,
    )
