"""Convolutions and pooling as modules."""

from __future__ import annotations

import math
from typing import Any

from tracejit import functional as F
from tracejit.core.dtypes import DType
from tracejit.nn import init
from tracejit.nn.module import Module
from tracejit.nn.parameter import Parameter
from tracejit.ops.public.creation import empty

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveMaxPool2d", "AvgPool1d", "AvgPool2d", "Conv1d", "Conv2d", "Conv3d",
    "ConvTranspose1d", "ConvTranspose2d", "MaxPool1d", "MaxPool2d", "PixelShuffle", "Upsample",
]  # fmt: skip

Sizes = int | tuple[int, ...]


def _each(value: Any, rank: int) -> Any:
    """One number per spatial dimension; text ("same", "valid") stays."""
    return value if isinstance(value, str) else (value,) * rank if isinstance(value, int) else tuple(value)


class _Convolution(Module):
    """What all convolutions share: weight and bias drawn from U(-k, k), k = 1 / sqrt(inputs of one output), as PyTorch does."""

    _rank = 0
    _transposed = False
    output_padding: Any = 0

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Any = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        if groups <= 0 or in_channels % groups or out_channels % groups:
            raise ValueError(
                f"in_channels ({in_channels}) and out_channels ({out_channels}) must be divisible by groups ({groups})"
            )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = _each(kernel_size, self._rank)
        self.stride = _each(stride, self._rank)
        self.padding = _each(padding, self._rank)
        self.dilation = _each(dilation, self._rank)
        self.groups = groups
        channels = (in_channels, out_channels // groups) if self._transposed else (out_channels, in_channels // groups)
        self.weight = Parameter(empty(*channels, *self.kernel_size, dtype=dtype))
        self.bias = Parameter(empty(out_channels, dtype=dtype)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        fan_in, _ = init.fans(self.weight)
        if self.bias is not None and fan_in:
            bound = 1 / math.sqrt(fan_in)
            init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        if isinstance(self.padding, str) or any(self.padding):
            text += f", padding={self.padding}"
        if any(d != 1 for d in self.dilation):
            text += f", dilation={self.dilation}"
        if self._transposed and any(self.output_padding):
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        return text if self.bias is not None else text + ", bias=False"


class Conv1d(_Convolution):
    """Convolution of (N, C, L) inputs."""

    _rank = 1

    def forward(self, input: Any) -> Any:
        return F.conv1d(input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class Conv2d(_Convolution):
    """Convolution of (N, C, H, W) inputs."""

    _rank = 2

    def forward(self, input: Any) -> Any:
        return F.conv2d(input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class Conv3d(_Convolution):
    """Convolution of (N, C, D, H, W) inputs."""

    _rank = 3

    def forward(self, input: Any) -> Any:
        return F.conv3d(input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class _TransposedConvolution(_Convolution):
    """The gradient of a convolution with respect to its input, as a layer."""

    _transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, dtype)
        self.output_padding = _each(output_padding, self._rank)


class ConvTranspose1d(_TransposedConvolution):
    """Transposed convolution of (N, C, L) inputs."""

    _rank = 1

    def forward(self, input: Any) -> Any:
        return F.conv_transpose1d(
            input, self.weight, self.bias, self.stride, self.padding, self.output_padding, self.groups, self.dilation
        )


class ConvTranspose2d(_TransposedConvolution):
    """Transposed convolution of (N, C, H, W) inputs."""

    _rank = 2

    def forward(self, input: Any) -> Any:
        return F.conv_transpose2d(
            input, self.weight, self.bias, self.stride, self.padding, self.output_padding, self.groups, self.dilation
        )


class _MaxPool(Module):
    """The largest element of each window."""

    def __init__(
        self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, dilation: Sizes = 1, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.ceil_mode = ceil_mode

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, dilation={self.dilation}, "
            f"ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPool):
    """The largest element of each window of (N, C, L) inputs."""

    def forward(self, input: Any) -> Any:
        return F.max_pool1d(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode)


class MaxPool2d(_MaxPool):
    """The largest element of each window of (N, C, H, W) inputs."""

    def forward(self, input: Any) -> Any:
        return F.max_pool2d(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode)


class _AvgPool(Module):
    """The mean of each window."""

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPool):
    """The mean of each window of (N, C, L) inputs."""

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        step = kernel_size if stride is None else stride
        super().__init__(_each(kernel_size, 1), _each(step, 1), _each(padding, 1), ceil_mode, count_include_pad)

    def forward(self, input: Any) -> Any:
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class AvgPool2d(_AvgPool):
    """The mean of each window of (N, C, H, W) inputs."""

    def forward(self, input: Any) -> Any:
        return F.avg_pool2d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class _AdaptivePool(Module):
    """Pooling to a given size."""

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptivePool):
    """Means over output_size bins of (N, C, L) inputs."""

    def forward(self, input: Any) -> Any:
        return F.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(_AdaptivePool):
    """Means over output_size bins of (N, C, H, W) inputs."""

    def forward(self, input: Any) -> Any:
        return F.adaptive_avg_pool2d(input, self.output_size)


class AdaptiveMaxPool2d(_AdaptivePool):
    """The largest element of each of output_size bins of (N, C, H, W) inputs."""

    def forward(self, input: Any) -> Any:
        return F.adaptive_max_pool2d(input, self.output_size)


class PixelShuffle(Module):
    """(N, C * r * r, H, W) as (N, C, H * r, W * r) with r = upscale_factor."""

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Any) -> Any:
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class Upsample(Module):
    """Resizes the spatial dimensions; see functional.interpolate."""

    def __init__(
        self, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None
    ) -> None:
        super().__init__()
        self.size = size
        self.scale_factor = (
            tuple(map(float, scale_factor)) if isinstance(scale_factor, tuple) else scale_factor and float(scale_factor)
        )
        self.mode = mode
        self.align_corners = align_corners

    def forward(self, input: Any) -> Any:
        return F.interpolate(input, self.size, self.scale_factor, self.mode, self.align_corners)

    def extra_repr(self) -> str:
        what = f"scale_factor={self.scale_factor!r}" if self.scale_factor is not None else f"size={self.size!r}"
        return f"{what}, mode={self.mode!r}"
