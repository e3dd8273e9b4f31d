"""Convolutions as modules."""

from __future__ import annotations

import math
from typing import Any

from tracejit import functional as F
from tracejit.core.dtypes import DType
from tracejit.nn import init
from tracejit.nn.module import Module
from tracejit.nn.parameter import Parameter
from tracejit.ops.public.creation import empty

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]

Sizes = int | tuple[int, ...]
_MODES = {"zeros": "constant", "reflect": "reflect", "replicate": "replicate", "circular": "circular"}


def each(value: Any, rank: int) -> Any:
    """One number per spatial dimension; text ("same", "valid") stays."""
    return value if isinstance(value, str) else (value,) * rank if isinstance(value, int) else tuple(value)


class _Convolution(Module):
    """What all convolutions share: weight and bias drawn from U(-k, k), k = 1 / sqrt(inputs of one output), as PyTorch does."""

    _rank = 0
    _transposed = False
    output_padding: tuple[int, ...]
    weight: Any
    bias: Any

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes,
        padding: Any,
        dilation: Sizes,
        output_padding: Sizes,
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any,
        dtype: DType | None,
    ) -> None:
        super().__init__()
        if groups <= 0:
            raise ValueError("groups must be a positive integer")
        if in_channels % groups:
            raise ValueError("in_channels must be divisible by groups")
        if out_channels % groups:
            raise ValueError("out_channels must be divisible by groups")
        if isinstance(padding, str) and padding not in ("same", "valid"):
            raise ValueError(f"Invalid padding string {padding!r}, should be one of 'same', 'valid'")
        if padding == "same" and any(s != 1 for s in each(stride, self._rank)):
            raise ValueError("padding='same' is not supported for strided convolutions")
        if padding_mode not in _MODES:
            raise ValueError(f"padding_mode must be one of {sorted(_MODES)}, but got padding_mode='{padding_mode}'")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = each(kernel_size, self._rank)
        self.stride = each(stride, self._rank)
        self.padding = each(padding, self._rank)
        self.dilation = each(dilation, self._rank)
        self.transposed = self._transposed
        self.output_padding = each(output_padding, self._rank)
        self.groups = groups
        self.padding_mode = padding_mode
        channels = (in_channels, out_channels // groups) if self._transposed else (out_channels, in_channels // groups)
        self.weight = Parameter(empty(*channels, *self.kernel_size, device=device, dtype=dtype))
        self.register_parameter("bias", Parameter(empty(out_channels, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        fan_in, _ = init.fans(self.weight)
        if self.bias is not None and fan_in:
            bound = 1 / math.sqrt(fan_in)
            init.uniform_(self.bias, -bound, bound)

    def _edges(self) -> list[int]:
        """The padding as functional.pad takes it: (before, after), the last dimension first."""
        sizes: list[int] = []
        for i in reversed(range(self._rank)):
            if self.padding == "same":
                total = self.dilation[i] * (self.kernel_size[i] - 1)
                sizes += [total // 2, total - total // 2]
            else:
                sizes += [0, 0] if self.padding == "valid" else [self.padding[i]] * 2
        return sizes

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        if isinstance(self.padding, str) or any(self.padding):
            text += f", padding={self.padding}"
        if any(d != 1 for d in self.dilation):
            text += f", dilation={self.dilation}"
        if any(self.output_padding):
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        return text if self.padding_mode == "zeros" else f"{text}, padding_mode={self.padding_mode}"


class _ForwardConvolution(_Convolution):
    """A convolution whose edges may be continued in four ways."""

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
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, 0, groups, bias, padding_mode, device, dtype
        )

    def forward(self, input: Any) -> Any:
        return self._conv_forward(input, self.weight, self.bias)

    def _conv_forward(self, input: Any, weight: Any, bias: Any) -> Any:
        """The convolution by another weight and bias: PyTorch's name, which programs override and call."""
        raise NotImplementedError


def _convolved(layer: Any, convolve: Any, input: Any, weight: Any, bias: Any) -> Any:
    if layer.padding_mode == "zeros":
        return convolve(input, weight, bias, layer.stride, layer.padding, layer.dilation, layer.groups)
    wider = F.pad(input, layer._edges(), _MODES[layer.padding_mode])
    return convolve(wider, weight, bias, layer.stride, 0, layer.dilation, layer.groups)


class Conv1d(_ForwardConvolution):
    """Convolution of (N, C, L) or (C, L) inputs; arguments, sizes and errors are as those of Conv2d."""

    _rank = 1

    def _conv_forward(self, input: Any, weight: Any, bias: Any) -> Any:
        return _convolved(self, F.conv1d, input, weight, bias)


class Conv2d(_ForwardConvolution):
    """Convolution: (N, in_channels, H, W) or (in_channels, H, W) gives the same with out_channels, and in each spatial dimension
    floor((size + 2 * padding - dilation * (kernel_size - 1) - 1) / stride) + 1.

    kernel_size, stride, padding, dilation: a number, or one for each spatial dimension; padding also "valid" (none) or "same"
    (as large an output, for stride 1).  padding_mode: "zeros", "reflect", "replicate" or "circular".  groups: the channels are
    convolved in as many groups, each by itself.  weight (out_channels, in_channels / groups, *kernel_size) and bias
    (out_channels,) are drawn from U(-k, k), k = 1 / sqrt(in_channels / groups * the kernel's elements).

    Raises ValueError for channels that groups do not divide and an unknown padding or padding_mode, RuntimeError for inputs of
    another number of channels, another dtype than the weight's, or smaller than the kernel."""

    _rank = 2

    def _conv_forward(self, input: Any, weight: Any, bias: Any) -> Any:
        return _convolved(self, F.conv2d, input, weight, bias)


class Conv3d(_ForwardConvolution):
    """Convolution of (N, C, D, H, W) or (C, D, H, W) inputs; arguments, sizes and errors are as those of Conv2d."""

    _rank = 3

    def _conv_forward(self, input: Any, weight: Any, bias: Any) -> Any:
        return _convolved(self, F.conv3d, input, weight, bias)


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
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            output_padding,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def _output_padding(self, input: Any, output_size: Any) -> tuple[int, ...]:
        """The output padding that leads to `output_size`, one size per spatial dimension or for all dimensions of the output.

        Raises ValueError where none does."""
        if output_size is None:
            return self.output_padding
        rank, given = self._rank, list(output_size)
        if len(given) == input.dim():
            given = given[-rank:]
        if len(given) != rank:
            raise ValueError(
                f"{type(self).__name__}: for {input.dim()}D input, output_size must have {rank} or {input.dim()} elements, got {len(given)}"
            )
        least = [
            (input.shape[i - rank] - 1) * self.stride[i] - 2 * self.padding[i] + self.dilation[i] * (self.kernel_size[i] - 1) + 1
            for i in range(rank)
        ]
        most = [least[i] + self.stride[i] - 1 for i in range(rank)]
        if any(not low <= size <= high for low, size, high in zip(least, given, most, strict=True)):
            raise ValueError(
                f"requested an output size of {given}, but valid sizes range from {least} to {most} (for an input of "
                f"{list(input.shape[-rank:])})"
            )
        return tuple([size - low for size, low in zip(given, least, strict=True)])

    def _convolved(self, convolve: Any, input: Any, output_size: Any) -> Any:
        extra = self._output_padding(input, output_size)
        return convolve(input, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation)


class ConvTranspose1d(_TransposedConvolution):
    """Transposed convolution of (N, C, L) or (C, L) inputs; arguments, sizes and errors are as those of ConvTranspose2d."""

    _rank = 1

    def forward(self, input: Any, output_size: Any = None) -> Any:
        return self._convolved(F.conv_transpose1d, input, output_size)


class ConvTranspose2d(_TransposedConvolution):
    """Transposed convolution, the gradient of Conv2d by its input: (N, in_channels, H, W) or (in_channels, H, W) gives the same
    with out_channels, and in each spatial dimension (size - 1) * stride - 2 * padding + dilation * (kernel_size - 1) +
    output_padding + 1.

    output_padding: elements added at one side of the output, to choose among the sizes that a stride maps to one; forward()
    also takes `output_size`.  weight (in_channels, out_channels / groups, *kernel_size), bias (out_channels,).  padding_mode
    must be "zeros".  Raises ValueError for channels that groups do not divide, RuntimeError for inputs that do not fit."""

    _rank = 2

    def forward(self, input: Any, output_size: Any = None) -> Any:
        return self._convolved(F.conv_transpose2d, input, output_size)


class ConvTranspose3d(_TransposedConvolution):
    """Transposed convolution of (N, C, D, H, W) or (C, D, H, W) inputs; arguments, sizes and errors are as those of
    ConvTranspose2d."""

    _rank = 3

    def forward(self, input: Any, output_size: Any = None) -> Any:
        return self._convolved(F.conv_transpose3d, input, output_size)
