"""Pooling as modules."""

from __future__ import annotations

from typing import Any

from tracejit import functional as F
from tracejit.nn.convolutions import Sizes, each
from tracejit.nn.module import Module

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "AdaptiveMaxPool3d",
    "AvgPool1d", "AvgPool2d", "AvgPool3d", "FractionalMaxPool2d", "FractionalMaxPool3d", "LPPool1d", "LPPool2d", "LPPool3d",
    "MaxPool1d", "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d",
]  # fmt: skip


class _MaxPool(Module):
    """The largest element of each window; with return_indices also where it was."""

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, dilation={self.dilation}, "
            f"ceil_mode={self.ceil_mode}"
        )


def _of_max(layer: Any) -> tuple[Any, ...]:
    return layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.ceil_mode, layer.return_indices


class MaxPool1d(_MaxPool):
    """The largest element of each window of (N, C, L) or (C, L) inputs; arguments, sizes and errors are as those of MaxPool2d."""

    def forward(self, input: Any) -> Any:
        return F.max_pool1d(input, *_of_max(self))


class MaxPool2d(_MaxPool):
    """The largest element of each window of (N, C, H, W) or (C, H, W) inputs.

    kernel_size, stride (kernel_size by default), padding (by -inf, at most half a window) and dilation: a number, or one for
    each spatial dimension.  A size becomes floor((size + 2 * padding - dilation * (kernel_size - 1) - 1) / stride) + 1, with
    ceil_mode rounded up.  return_indices: (output, int64 positions in the flattened spatial dimensions), which MaxUnpool2d
    takes.  Raises RuntimeError for inputs of other dimensions or smaller than a window, and for too much padding."""

    def forward(self, input: Any) -> Any:
        return F.max_pool2d(input, *_of_max(self))


class MaxPool3d(_MaxPool):
    """The largest element of each window of (N, C, D, H, W) or (C, D, H, W) inputs; arguments, sizes and errors are as those of
    MaxPool2d."""

    def forward(self, input: Any) -> Any:
        return F.max_pool3d(input, *_of_max(self))


class _MaxUnpool(Module):
    """Puts what a max pooling found back at its positions; zeros elsewhere."""

    _rank = 0

    def __init__(self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0) -> None:
        super().__init__()
        self.kernel_size = each(kernel_size, self._rank)
        self.stride = each(kernel_size if stride is None else stride, self._rank)
        self.padding = each(padding, self._rank)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpool):
    """The inverse of MaxPool1d, as far as there is one."""

    _rank = 1

    def forward(self, input: Any, indices: Any, output_size: Any = None) -> Any:
        return F.max_unpool1d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool2d(_MaxUnpool):
    """The inverse of MaxPool2d, as far as there is one."""

    _rank = 2

    def forward(self, input: Any, indices: Any, output_size: Any = None) -> Any:
        return F.max_unpool2d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool3d(_MaxUnpool):
    """The inverse of MaxPool3d, as far as there is one."""

    _rank = 3

    def forward(self, input: Any, indices: Any, output_size: Any = None) -> Any:
        return F.max_unpool3d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class _AvgPool(Module):
    """The mean of each window."""

    divisor_override: int | None

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


def _of_avg(layer: Any) -> tuple[Any, ...]:
    return layer.kernel_size, layer.stride, layer.padding, layer.ceil_mode, layer.count_include_pad, layer.divisor_override


class AvgPool1d(_AvgPool):
    """The mean of each window of (N, C, L) or (C, L) inputs; sizes and errors are as those of AvgPool2d."""

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        step = kernel_size if stride is None else stride
        super().__init__(each(kernel_size, 1), each(step, 1), each(padding, 1), ceil_mode, count_include_pad)

    def forward(self, input: Any) -> Any:
        return F.avg_pool1d(input, *_of_avg(self))


class AvgPool2d(_AvgPool):
    """The mean of each window of (N, C, H, W) or (C, H, W) inputs.

    kernel_size, stride (kernel_size by default) and padding (zeros): a number, or one for each spatial dimension.  A size
    becomes floor((size + 2 * padding - kernel_size) / stride) + 1, with ceil_mode rounded up.  count_include_pad: the zeros
    count in the mean.  divisor_override: sums are divided by this instead.  Raises RuntimeError for inputs of other dimensions
    or smaller than a window."""

    def forward(self, input: Any) -> Any:
        return F.avg_pool2d(input, *_of_avg(self))


class AvgPool3d(_AvgPool):
    """The mean of each window of (N, C, D, H, W) or (C, D, H, W) inputs; arguments, sizes and errors are as those of AvgPool2d."""

    def forward(self, input: Any) -> Any:
        return F.avg_pool3d(input, *_of_avg(self))


class _LPPool(Module):
    """(sum of x ** norm_type) ** (1 / norm_type) over each window."""

    def __init__(self, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def extra_repr(self) -> str:
        return f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, ceil_mode={self.ceil_mode}"


def _of_lp(layer: Any) -> tuple[Any, ...]:
    return float(layer.norm_type), layer.kernel_size, layer.stride, layer.ceil_mode


class LPPool1d(_LPPool):
    """Power means of (N, C, L) inputs."""

    def forward(self, input: Any) -> Any:
        return F.lp_pool1d(input, *_of_lp(self))


class LPPool2d(_LPPool):
    """Power means of (N, C, H, W) inputs."""

    def forward(self, input: Any) -> Any:
        return F.lp_pool2d(input, *_of_lp(self))


class LPPool3d(_LPPool):
    """Power means of (N, C, D, H, W) inputs."""

    def forward(self, input: Any) -> Any:
        return F.lp_pool3d(input, *_of_lp(self))


class _AdaptiveAvgPool(Module):
    """Means over as many bins as output_size says."""

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """Means over output_size bins of (N, C, L) or (C, L) inputs; arguments, sizes and errors are as those of AdaptiveAvgPool2d."""

    def forward(self, input: Any) -> Any:
        return F.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """Means over output_size bins of (N, C, H, W) or (C, H, W) inputs, whatever their size.

    output_size: a number, or one for each spatial dimension, None keeping the size.  Bin i goes from floor(i * size / bins) to
    ceil((i + 1) * size / bins)."""

    def forward(self, input: Any) -> Any:
        return F.adaptive_avg_pool2d(input, self.output_size)


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """Means over output_size bins of (N, C, D, H, W) or (C, D, H, W) inputs; arguments, sizes and errors are as those of
    AdaptiveAvgPool2d."""

    def forward(self, input: Any) -> Any:
        return F.adaptive_avg_pool3d(input, self.output_size)


class _AdaptiveMaxPool(Module):
    """The largest element of each of as many bins as output_size says."""

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """The largest element of each of output_size bins of (N, C, L) inputs."""

    def forward(self, input: Any) -> Any:
        return F.adaptive_max_pool1d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """The largest element of each of output_size bins of (N, C, H, W) inputs."""

    def forward(self, input: Any) -> Any:
        return F.adaptive_max_pool2d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """The largest element of each of output_size bins of (N, C, D, H, W) inputs."""

    def forward(self, input: Any) -> Any:
        return F.adaptive_max_pool3d(input, self.output_size, self.return_indices)


class _FractionalMaxPool(Module):
    """The largest element of each of output_size windows that begin at random positions; with return_indices also where it was."""

    _random_samples: Any

    def __init__(
        self,
        kernel_size: Sizes,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Any = None,
    ) -> None:
        super().__init__()
        if output_size is None and output_ratio is None:
            raise ValueError(f"{type(self).__name__} requires specifying either an output size, or a pooling ratio")
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        rank = 2 if isinstance(self, FractionalMaxPool2d) else 3
        self.kernel_size = each(kernel_size, rank)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else each(output_size, rank)
        self.output_ratio = (output_ratio,) * rank if isinstance(output_ratio, float) else output_ratio
        if self.output_ratio is not None and not all(0 < r < 1 for r in self.output_ratio):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")

    def _options(self) -> tuple[Any, ...]:
        return self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples


class FractionalMaxPool2d(_FractionalMaxPool):
    """fractional_max_pool2d() as a module."""

    def forward(self, input: Any) -> Any:
        return F.fractional_max_pool2d(input, *self._options())


class FractionalMaxPool3d(_FractionalMaxPool):
    """fractional_max_pool3d() as a module."""

    def forward(self, input: Any) -> Any:
        return F.fractional_max_pool3d(input, *self._options())
