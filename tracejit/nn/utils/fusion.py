"""Batch normalisation in evaluation, which is an affine map of each channel, put into the layer before it."""

from __future__ import annotations

import copy
from typing import Any

from tracejit.functions import rsqrt, zeros_like
from tracejit.nn.parameter import Parameter

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A copy of a convolution that computes bn(conv(x)) by itself; transpose: it is a transposed one.

    Raises AssertionError unless both are in evaluation, and where `bn` has no running statistics."""
    fused = _copy(conv, bn)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, transpose
    )
    return fused


def fuse_conv_bn_weights(
    conv_w: Any, conv_b: Any, bn_rm: Any, bn_rv: Any, bn_eps: float, bn_w: Any, bn_b: Any, transpose: bool = False
) -> tuple[Parameter, Parameter]:
    """Weight and bias of such a convolution; biases, and the weight of the normalisation, may be None."""
    sizes = [1] * (conv_w.ndim - 2)
    return _fused(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, [1, -1, *sizes] if transpose else [-1, 1, *sizes])


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A copy of a Linear that computes bn(linear(x)) by itself.

    Raises AssertionError unless both are in evaluation, where `bn` has no running statistics, and unless it has one feature or as many as
    the Linear gives."""
    fused = _copy(linear, bn)
    if bn.num_features not in (1, linear.out_features):
        raise AssertionError(
            "To fuse, linear.out_features == bn.num_features or bn.num_features == 1, "
            f"got linear.out_features={linear.out_features} and bn.num_features={bn.num_features}"
        )
    fused.weight, fused.bias = fuse_linear_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    )
    return fused


def fuse_linear_bn_weights(
    linear_w: Any, linear_b: Any, bn_rm: Any, bn_rv: Any, bn_eps: float, bn_w: Any, bn_b: Any
) -> tuple[Parameter, Parameter]:
    """Weight and bias of such a Linear; biases, and the weight of the normalisation, may be None."""
    return _fused(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, [-1, 1])


def _copy(layer: Any, bn: Any) -> Any:
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("bn.running_mean and bn.running_var must not be None")
    return copy.deepcopy(layer)


def _fused(
    weight: Any, bias: Any, mean: Any, variance: Any, eps: float, factor: Any, shift: Any, shape: list[int]
) -> tuple[Parameter, Parameter]:
    """The normalisation is y = slope * x + (shift - slope * mean) of each channel; `shape` is that of the slope beside the weight."""
    slope = rsqrt(variance + eps)
    if factor is not None:
        slope = slope * factor
    before = zeros_like(mean) if bias is None else bias
    after = (before - mean) * slope
    if shift is not None:
        after = after + shift
    return (
        Parameter((weight * slope.reshape(shape)).to(weight.dtype), weight.requires_grad),
        Parameter(after.to(weight.dtype if bias is None else bias.dtype), before.requires_grad),
    )
