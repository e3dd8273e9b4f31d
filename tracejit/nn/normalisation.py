"""Normalisations as modules: of layers, groups, batches, instances, by root mean square, across channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracejit import functional as F
from tracejit.core.dtypes import DType
from tracejit.nn import init
from tracejit.nn.module import Module
from tracejit.nn.parameter import Parameter
from tracejit.ops.public.creation import ones, zeros
from tracejit.ops.public.keywords import require_tensors
from tracejit.tensor import tensor

__all__ = [
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "CrossMapLRN2d", "GroupNorm", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d",
    "LayerNorm", "LocalResponseNorm", "RMSNorm", "SyncBatchNorm",
]  # fmt: skip


class LayerNorm(Module):
    """Zero mean and unit variance over the trailing dimensions `normalized_shape` (a number or sizes), then * weight + bias.

    eps is added to the variance (divided by the number of elements).  weight (ones) and bias (zeros) have that shape; both
    None with elementwise_affine=False, bias with bias=False.  The output has the input's shape.  Raises RuntimeError for other
    trailing sizes."""

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.register_parameter(
            "weight", Parameter(ones(self.normalized_shape, device=device, dtype=dtype)) if elementwise_affine else None
        )
        self.register_parameter(
            "bias", Parameter(zeros(self.normalized_shape, device=device, dtype=dtype)) if elementwise_affine and bias else None
        )

    def reset_parameters(self) -> None:
        """Weight one, bias zero."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Any) -> Any:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """input / sqrt(mean(input ** 2) + eps) over the trailing dimensions `normalized_shape`, then * weight."""

    weight: Parameter | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.register_parameter(
            "weight", Parameter(ones(self.normalized_shape, device=device, dtype=dtype)) if elementwise_affine else None
        )

    def reset_parameters(self) -> None:
        """Weight one."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, input: Any) -> Any:
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(Module):
    """Zero mean and unit variance within each of num_groups groups of channels of (N, num_channels, *), then * weight + bias by
    channel.

    weight (ones) and bias (zeros), (num_channels,), are None with affine=False.  Raises ValueError unless num_groups divides
    num_channels, RuntimeError for another number of channels."""

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(f"GroupNorm: num_channels ({num_channels}) must be divisible by num_groups ({num_groups})")
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        self.register_parameter("weight", Parameter(ones(num_channels, device=device, dtype=dtype)) if affine else None)
        self.register_parameter("bias", Parameter(zeros(num_channels, device=device, dtype=dtype)) if affine and bias else None)

    def reset_parameters(self) -> None:
        """Weight one, bias zero."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Any) -> Any:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, bias={self.bias is not None}"


class _RunningNorm(Module):
    """What batch and instance normalisation share: weight and bias by channel, running statistics as buffers."""

    _ranks: tuple[int, ...] = ()
    running_mean: Any
    running_var: Any
    num_batches_tracked: Any

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        num_features: int,
        eps: float,
        momentum: float | None,
        affine: bool,
        track_running_stats: bool,
        device: Any,
        dtype: DType | None,
        bias: bool,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        self.register_parameter("weight", Parameter(ones(num_features, device=device, dtype=dtype)) if affine else None)
        self.register_parameter("bias", Parameter(zeros(num_features, device=device, dtype=dtype)) if affine and bias else None)
        self.register_buffer("running_mean", zeros(num_features, device=device, dtype=dtype) if track_running_stats else None)
        self.register_buffer("running_var", ones(num_features, device=device, dtype=dtype) if track_running_stats else None)
        self.register_buffer("num_batches_tracked", tensor(0) if track_running_stats else None)

    def reset_running_stats(self) -> None:
        """Forget the batches seen."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Weight one, bias zero, no batches seen."""
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def _check_input(self, input: Any) -> None:
        require_tensors(type(self).__name__, input=input)
        if input.dim() not in self._ranks:
            raise ValueError(f"expected {' or '.join(f'{r}D' for r in self._ranks)} input (got {input.dim()}D input)")

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_RunningNorm):
    """Zero mean and unit variance of each channel: of the batch in training, running ones in evaluation."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def forward(self, input: Any) -> Any:
        self._check_input(input)
        factor = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats:
            self.num_batches_tracked.copy_(self.num_batches_tracked + 1)
            if self.momentum is None:  # the plain average of all batches
                factor = 1.0 / self.num_batches_tracked.item()
        by_batch = self.training or self.running_mean is None
        running = (self.running_mean, self.running_var) if not self.training or self.track_running_stats else (None, None)
        return F.batch_norm(input, running[0], running[1], self.weight, self.bias, by_batch, factor, self.eps)


class BatchNorm1d(_BatchNorm):
    """Batch normalisation of (N, C) or (N, C, L) inputs; arguments, sizes and errors are as those of BatchNorm2d."""

    _ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of (N, C, H, W) inputs: each of the num_features channels C gets zero mean and unit variance.

    In training they are those of the batch, which also move running_mean and running_var by the share `momentum` (None: the
    mean of all batches so far); in evaluation, or with track_running_stats=False never, the running ones are used.  eps is
    added to the variance.  affine: * weight + bias by channel, ones and zeros at first.  The output has the input's shape.

    Raises ValueError for another number of dimensions and, in training, for a single value per channel; RuntimeError for
    another number of channels."""

    _ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """Batch normalisation of (N, C, D, H, W) inputs; arguments, sizes and errors are as those of BatchNorm2d."""

    _ranks = (5,)


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation of (N, C, *) inputs over the batches of all processes, which is this one: BatchNorm1d, 2d and 3d in one.

    process_group: None, as there are no process groups.  Raises ValueError for inputs of fewer than two dimensions, RuntimeError for a
    process group."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        if process_group is not None:
            raise RuntimeError(f"SyncBatchNorm(): there are no process groups in tracejit, got {process_group!r}; leave it out")
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = None

    def _check_input(self, input: Any) -> None:
        require_tensors(type(self).__name__, input=input)
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")
        if input.shape[1] == 0:
            raise ValueError("SyncBatchNorm number of input channels should be non-zero")

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """The module with a SyncBatchNorm, which has the same parameters and buffers, in the place of each BatchNorm in it.

        A BatchNorm itself is not changed; any other module is, and is what is given back."""
        out = module
        if isinstance(module, _BatchNorm):
            out = cls(
                module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats, process_group,
                bias=module.bias is not None,
            )  # fmt: skip
            for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked", "training"):
                setattr(out, name, getattr(module, name))
        for name, child in module.named_children():
            setattr(out, name, cls.convert_sync_batchnorm(child, process_group))
        return out


class _InstanceNorm(_RunningNorm):
    """Zero mean and unit variance of each channel of each sample."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def forward(self, input: Any) -> Any:
        self._check_input(input)
        unbatched = input.dim() == self._ranks[0]
        channels = input.shape[0 if unbatched else 1]
        if channels != self.num_features and self.affine:
            raise ValueError(
                f"expected input's size at dim={int(not unbatched)} to match num_features ({self.num_features}), but got: {channels}"
            )
        out = F.instance_norm(
            input.unsqueeze(0) if unbatched else input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            0.0 if self.momentum is None else self.momentum,
            self.eps,
        )
        return out.squeeze(0) if unbatched else out


class InstanceNorm1d(_InstanceNorm):
    """Instance normalisation of (N, C, L) or (C, L) inputs."""

    _ranks = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Instance normalisation of (N, C, H, W) or (C, H, W) inputs."""

    _ranks = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Instance normalisation of (N, C, D, H, W) or (C, D, H, W) inputs."""

    _ranks = (4, 5)


class LocalResponseNorm(Module):
    """input / (k + alpha * mean of squares over `size` neighbouring channels) ** beta."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Any) -> Any:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(LocalResponseNorm):
    """LocalResponseNorm of (N, C, H, W) inputs, under its older name."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__(size, alpha, beta, k)
