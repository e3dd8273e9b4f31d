"""Padding as modules: constants, reflections, repeated edges, circular continuation."""

from __future__ import annotations

from typing import Any

from tracejit import functional as F
from tracejit.nn.module import Module
from tracejit.ops.public.keywords import require_tensors

__all__ = [
    "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d", "ReflectionPad1d",
    "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d", "ReplicationPad3d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
]  # fmt: skip

Pairs = int | tuple[int, ...]


class _Pad(Module):
    """Padding of the last `_rank` dimensions, (before, after) of the last one first; a single number holds everywhere."""

    _rank = 0
    _mode = "constant"
    padding: tuple[int, ...]

    def __init__(self, padding: Pairs) -> None:
        super().__init__()
        self.padding = (padding,) * (2 * self._rank) if isinstance(padding, int) else tuple(padding)

    def forward(self, input: Any) -> Any:
        ranks = (self._rank + 1, self._rank + 2)
        require_tensors("pad", input=input)
        if self._mode != "constant" and input.dim() not in ranks:
            raise ValueError(f"expected {ranks[0]}D or {ranks[1]}D input (got {input.dim()}D input)")
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_Pad):
    """Padding with a number."""

    def __init__(self, padding: Pairs, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Any) -> Any:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad):
    """Pads the last dimension with `value`."""

    _rank = 1


class ConstantPad2d(_ConstantPad):
    """Pads the last two dimensions with `value`."""

    _rank = 2


class ConstantPad3d(_ConstantPad):
    """Pads the last three dimensions with `value`."""

    _rank = 3


class ZeroPad1d(_Pad):
    """Pads the last dimension with zeros."""

    _rank = 1


class ZeroPad2d(_Pad):
    """Pads the last two dimensions with zeros."""

    _rank = 2


class ZeroPad3d(_Pad):
    """Pads the last three dimensions with zeros."""

    _rank = 3


class ReflectionPad1d(_Pad):
    """Continues (N, C, L) inputs by their reflection, the edge not repeated."""

    _rank = 1
    _mode = "reflect"


class ReflectionPad2d(_Pad):
    """Continues (N, C, H, W) inputs by their reflection, the edge not repeated."""

    _rank = 2
    _mode = "reflect"


class ReflectionPad3d(_Pad):
    """Continues (N, C, D, H, W) inputs by their reflection, the edge not repeated."""

    _rank = 3
    _mode = "reflect"


class ReplicationPad1d(_Pad):
    """Repeats the edges of (N, C, L) inputs."""

    _rank = 1
    _mode = "replicate"


class ReplicationPad2d(_Pad):
    """Repeats the edges of (N, C, H, W) inputs."""

    _rank = 2
    _mode = "replicate"


class ReplicationPad3d(_Pad):
    """Repeats the edges of (N, C, D, H, W) inputs."""

    _rank = 3
    _mode = "replicate"


class CircularPad1d(_Pad):
    """Continues (N, C, L) inputs periodically."""

    _rank = 1
    _mode = "circular"


class CircularPad2d(_Pad):
    """Continues (N, C, H, W) inputs periodically."""

    _rank = 2
    _mode = "circular"


class CircularPad3d(_Pad):
    """Continues (N, C, D, H, W) inputs periodically."""

    _rank = 3
    _mode = "circular"
