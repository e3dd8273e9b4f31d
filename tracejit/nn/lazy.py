"""Layers that find the size of their input at their first call, and are ordinary layers from then on.

Until then their parameters are UninitializedParameters; the same objects get shape and contents at the first call, so an optimizer
may hold them already.
"""

from __future__ import annotations

from typing import Any, ClassVar

from tracejit.nn.convolutions import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from tracejit.nn.layers import Linear
from tracejit.nn.module import Module
from tracejit.nn.normalisation import BatchNorm1d, BatchNorm2d, BatchNorm3d, InstanceNorm1d, InstanceNorm2d, InstanceNorm3d
from tracejit.nn.parameter import Parameter, UninitializedParameter
from tracejit.ops.public.keywords import require_tensors

__all__ = [
    "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "LazyConv1d", "LazyConv2d", "LazyConv3d", "LazyConvTranspose1d",
    "LazyConvTranspose2d", "LazyConvTranspose3d", "LazyInstanceNorm1d", "LazyInstanceNorm2d", "LazyInstanceNorm3d", "LazyLinear",
]  # fmt: skip


class _Lazy(Module):
    """A layer whose first argument, the size of dimension `_dim` of the input (counted from the end), is left out."""

    cls_to_become: ClassVar[Any]
    _spatial: ClassVar[int] = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.cls_to_become.__init__(self, 0, *args, **kwargs)
        self._arguments = (args, kwargs)
        for name, parameter in self._own_parameters():
            self.__dict__[name] = UninitializedParameter(dtype=parameter.dtype)

    def has_uninitialized_params(self) -> bool:
        """Whether the size of the input is not known yet."""
        return any(isinstance(p, UninitializedParameter) for p in self.parameters())

    def _input_size(self, input: Any) -> int:
        """The size that was left out: of the last dimension, or of the channels before the spatial ones."""
        size: int = input.shape[-1 - self._spatial]
        return size

    def initialize_parameters(self, input: Any) -> None:
        """Become the layer that fits `input`."""
        require_tensors(type(self).__name__, input=input)
        args, kwargs = self._arguments
        fitting = self.cls_to_become(self._input_size(input), *args, **kwargs)
        waiting = {name: p for name, p in self._own_parameters() if isinstance(p, UninitializedParameter)}
        loaded = {name: p for name, p in self._own_parameters() if type(p) is Parameter}
        dtypes = {p.dtype for p in (*waiting.values(), *loaded.values())}
        if len(dtypes) == 1:
            fitting.to(dtypes.pop())
        for name, parameter in waiting.items():
            parameter.take(fitting.__dict__[name])
        kept = {**waiting, **loaded, "training": self.training}
        del self.__dict__["_arguments"]
        self.__dict__.update({**fitting.__dict__, **kept})
        self.__class__ = self.cls_to_become

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.initialize_parameters(args[0] if args else kwargs["input"])
        return Module.__call__(self, *args, **kwargs)


class LazyLinear(_Lazy, Linear):
    """Linear(in_features, ...) without in_features."""

    cls_to_become = Linear


class LazyConv1d(_Lazy, Conv1d):
    """Conv1d(in_channels, ...) without in_channels."""

    cls_to_become = Conv1d
    _spatial = 1


class LazyConv2d(_Lazy, Conv2d):
    """Conv2d(in_channels, ...) without in_channels."""

    cls_to_become = Conv2d
    _spatial = 2


class LazyConv3d(_Lazy, Conv3d):
    """Conv3d(in_channels, ...) without in_channels."""

    cls_to_become = Conv3d
    _spatial = 3


class LazyConvTranspose1d(_Lazy, ConvTranspose1d):
    """ConvTranspose1d(in_channels, ...) without in_channels."""

    cls_to_become = ConvTranspose1d
    _spatial = 1


class LazyConvTranspose2d(_Lazy, ConvTranspose2d):
    """ConvTranspose2d(in_channels, ...) without in_channels."""

    cls_to_become = ConvTranspose2d
    _spatial = 2


class LazyConvTranspose3d(_Lazy, ConvTranspose3d):
    """ConvTranspose3d(in_channels, ...) without in_channels."""

    cls_to_become = ConvTranspose3d
    _spatial = 3


class _LazyNorm(_Lazy):
    """A normalisation whose channels are dimension 1.  As in PyTorch all of them have parameters and running statistics by default."""

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def _input_size(self, input: Any) -> int:
        size: int = input.shape[1]
        return size


class LazyBatchNorm1d(_LazyNorm, BatchNorm1d):
    """BatchNorm1d(num_features, ...) without num_features."""

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNorm, BatchNorm2d):
    """BatchNorm2d(num_features, ...) without num_features."""

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyNorm, BatchNorm3d):
    """BatchNorm3d(num_features, ...) without num_features."""

    cls_to_become = BatchNorm3d


class LazyInstanceNorm1d(_LazyNorm, InstanceNorm1d):
    """InstanceNorm1d(num_features, ...) without num_features."""

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyNorm, InstanceNorm2d):
    """InstanceNorm2d(num_features, ...) without num_features."""

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyNorm, InstanceNorm3d):
    """InstanceNorm3d(num_features, ...) without num_features."""

    cls_to_become = InstanceNorm3d
