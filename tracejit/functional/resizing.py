"""Rearrangements of images: interpolate, unfold into patches and back, pixel_shuffle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracejit.core.dtypes import float64, int64
from tracejit.core.numbers import settled
from tracejit.core.precision import rounds_once
from tracejit.core.shapes import product, rounded_down
from tracejit.ops import indexing
from tracejit.ops.creation import arange
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.ops.elementwise.rounding import floor
from tracejit.ops.movement import views
from tracejit.ops.movement.copies import clone
from tracejit.ops.movement.views import permute
from tracejit.ops.public.convolution import padded, per_dimension, windows
from tracejit.ops.public.keywords import of_tensors
from tracejit.ops.public.pooling import adaptive_avg_pool

__all__ = [
    "channel_shuffle", "fold", "interpolate", "pixel_shuffle", "pixel_unshuffle", "unfold", "upsample", "upsample_bilinear",
    "upsample_nearest",
]  # fmt: skip

_SMOOTH = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}
"""Modes that weigh neighbours, and for how many dimensions they are."""
_BEND = -0.75
_EXACT = (1, 2, 4, 8, 16, 32, 64)
"""Factors whose inverse is a floating-point number, so that each element is repeated so many times."""


@of_tensors
@rounds_once
def interpolate(
    input: Any,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Any:
    """Resize the spatial dimensions of (N, C, L), (N, C, H, W) or (N, C, D, H, W) to `size` or by scale_factor.

    mode: "nearest", "nearest-exact", "area" (means of nearly equal parts), "linear", "bilinear", "trilinear" for one, two, three
    dimensions, or "bicubic" for two (Keys, 1981, with -0.75).  align_corners, of the linear modes and "bicubic": the corner elements, not
    their corners, keep their positions.  antialias, of "bilinear" and "bicubic": in a smaller image each element is a mean of
    all that fall to it, weighted as Pillow's resize() does (Keys' cubic with -0.5).

    Raises ValueError for wrong combinations, NotImplementedError for other modes."""
    rank = input.ndim - 2
    if rank not in (1, 2, 3):
        raise NotImplementedError(
            f"interpolate(): only 3D, 4D and 5D input is supported, got {input.ndim}D of shape {list(input._sizes)}"
        )
    if mode not in ("nearest", "nearest-exact", "area") and _SMOOTH.get(mode) != rank:
        raise NotImplementedError(f"interpolate(): mode {mode!r} does not exist for an input of shape {list(input._sizes)}")
    if align_corners is not None and mode not in _SMOOTH:
        raise ValueError(f"interpolate(): align_corners applies to the linear modes and 'bicubic' only, not to {mode!r}")
    if (size is None) == (scale_factor is None):
        raise ValueError("interpolate(): exactly one of size and scale_factor should be defined")
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ValueError(
            "interpolate(): Anti-alias option is restricted to bilinear and bicubic modes and requires a 4-D tensor as input"
        )
    spatial = tuple(input._sizes[2:])
    size, scale_factor = settled(size), settled(scale_factor)
    repeats = [0] * rank  # of elements, where no position is rounded
    if size is not None:
        target = (size,) * rank if isinstance(size, int) else tuple(size)
        steps = tuple(n / t if t else 0.0 for n, t in zip(spatial, target, strict=False))
    else:
        factors = (scale_factor,) * rank if isinstance(scale_factor, int | float) else tuple(scale_factor)  # type: ignore[arg-type]
        target = tuple(n * int(f) if f == int(f) else rounded_down(n * f) for n, f in zip(spatial, factors, strict=True))
        repeats = [int(f) if f in _EXACT else 0 for f in factors]
        steps = tuple(n / t if recompute_scale_factor and t else 1 / f for n, t, f in zip(spatial, target, factors, strict=True))
    if len(target) != rank or min(target) < 1:
        raise ValueError(f"interpolate(): expected a positive size for each of {rank} spatial dimensions, got {list(target)}")
    if mode == "area":
        return adaptive_avg_pool("interpolate", rank, input, target)
    out = input
    for i in range(rank):
        if antialias:
            step = (spatial[i] - 1) / (target[i] - 1) if align_corners and target[i] > 1 else 0.0 if align_corners else steps[i]
            out = _averaged(out, i + 2, target[i], step, mode == "bicubic")
        elif mode in _SMOOTH:
            smooth = _cubic if mode == "bicubic" else _linear
            out = smooth(out, i + 2, target[i], steps[i], bool(align_corners))
        elif repeats[i]:
            out = _each_repeated(out, i + 2, repeats[i])
        else:
            at = arange(0.5 if mode == "nearest-exact" else 0.0, 1.0, length=target[i], dtype=float64) * steps[i]
            out = indexing.index_select(out, _positions(at, spatial[i]), dim=i + 2)
    return out


def _each_repeated(x: Any, dim: int, times: int) -> Any:
    """Each element so many times."""
    shape = x._sizes
    spread = x.unsqueeze(dim + 1).expand(*shape[: dim + 1], times, *shape[dim + 1 :])
    return spread.reshape(*shape[:dim], shape[dim] * times, *shape[dim + 1 :])


def _averaged(x: Any, dim: int, target: int, step: float, cubic: bool) -> Any:
    """Means of the elements around each position along one dimension: a product with a matrix of weights."""
    size = x.shape[dim]
    width = max(step, 1.0)
    reach = (2.0 if cubic else 1.0) * width
    weights = np.zeros((target, size))
    for i in range(target):
        centre = step * (i + 0.5)
        first = max(int(centre - reach + 0.5), 0)
        last = min(int(centre + reach + 0.5), size)
        distance = np.abs((np.arange(first, last) - centre + 0.5) / width)
        weight = np.where(distance < 1, 1 - distance, 0.0)
        if cubic:
            near = (1.5 * distance - 2.5) * distance * distance + 1.0
            far = -0.5 * (((distance - 5.0) * distance + 8.0) * distance - 4.0)
            weight = np.where(distance < 1, near, np.where(distance < 2, far, 0.0))
        weights[i, first:last] = weight / weight.sum()
    matrix = cast(indexing.constant_value(weights), dtype=x.dtype)
    return (x.transpose(dim, -1) @ matrix.transpose(0, 1)).transpose(dim, -1)


def _linear(x: Any, dim: int, target: int, step: float, align_corners: bool) -> Any:
    """Linear interpolation along one dimension."""
    size = x.shape[dim]
    source = _source(size, target, step, align_corners).clamp(0.0)
    low = _positions(source, size)
    weight = views.reshape(cast(source - low, dtype=x.dtype), shape=(target, *(1,) * (x.ndim - 1 - dim)))
    first, second = (indexing.index_select(x, positions, dim=dim) for positions in (low, (low + 1).clamp(max=size - 1)))
    return first * (1 - weight) + second * weight


def _cubic(x: Any, dim: int, target: int, step: float, align_corners: bool) -> Any:
    """Cubic convolution of four elements along one dimension, beyond whose ends its last elements go on."""
    size = x.shape[dim]
    source = _source(size, target, step, align_corners)
    low = floor(source)
    after = source - low
    total = None
    for k, weight in enumerate((_outer(after + 1.0), _inner(after), _inner(1.0 - after), _outer(2.0 - after))):
        part = indexing.index_select(x, cast(low + (k - 1.0), dtype=int64).clamp(0, size - 1), dim=dim)
        part = part * views.reshape(cast(weight, dtype=x.dtype), shape=(target, *(1,) * (x.ndim - 1 - dim)))
        total = part if total is None else total + part
    return total


def _inner(distance: Any) -> Any:
    """The weight of an element at a distance of at most 1."""
    return ((_BEND + 2.0) * distance - (_BEND + 3.0)) * distance * distance + 1.0


def _outer(distance: Any) -> Any:
    """The weight of an element at a distance between 1 and 2."""
    return ((distance - 5.0) * distance + 8.0) * distance * _BEND - 4.0 * _BEND


def _source(size: int, target: int, step: float, align_corners: bool) -> Any:
    """Where the elements of a resized dimension lie in the dimension of that size."""
    if align_corners:
        return arange(0.0, 1.0, length=target, dtype=float64) * ((size - 1) / (target - 1) if target > 1 else 0.0)
    return arange(0.5, 1.0, length=target, dtype=float64) * step - 0.5


def _positions(source: Any, size: int) -> Any:
    """The elements, of so many, in which positions that are not negative lie."""
    return cast(source, dtype=int64).clamp(max=size - 1)


@of_tensors
def unfold(input: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    """The patches of an (N, C, H, W) or (C, H, W) input as columns: (N, C * kh * kw, number of patches).

    Raises RuntimeError for other ranks."""
    if input.ndim not in (3, 4):
        raise RuntimeError(f"unfold(): expected an input of 3 or 4 dimensions, got shape {list(input._sizes)}")
    size, spread, border, step = (
        per_dimension("unfold", what, value, 2)
        for what, value in (("kernel_size", kernel_size), ("dilation", dilation), ("padding", padding), ("stride", stride))
    )
    images = input.reshape(1, *input._sizes) if input.ndim == 3 else input
    patches = windows(padded(images, border, border, 0.0), 2, size, step, spread)
    batch, channels, rows, columns = patches.shape[:4]
    out = permute(patches, dims=(0, 1, 4, 5, 2, 3)).reshape(batch, channels * product(size), rows * columns)
    return out if input.ndim == 4 else out.reshape(tuple(out.shape[1:]))


@of_tensors
def fold(input: Any, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    """The adjoint of unfold: columns (N, C * kh * kw, number of patches), or without N, added up at their positions in (N, C,
    *output_size).

    Raises RuntimeError for sizes that do not fit."""
    if input.ndim not in (2, 3):
        raise RuntimeError(f"fold(): expected an input of 2 or 3 dimensions, got shape {list(input._sizes)}")
    target, size, spread, border, step = (
        per_dimension("fold", what, value, 2)
        for what, value in (
            ("output_size", output_size), ("kernel_size", kernel_size), ("dilation", dilation), ("padding", padding), ("stride", stride),
        )
    )  # fmt: skip
    columns = input.reshape(1, *input._sizes) if input.ndim == 2 else input
    wide = tuple(n + 2 * p for n, p in zip(target, border, strict=True))
    positions = tuple((n - d * (k - 1) - 1) // s + 1 for n, k, d, s in zip(wide, size, spread, step, strict=True))
    area = product(size)
    if columns.shape[1] % area or min(positions) < 1 or columns.shape[2] != product(positions):
        raise RuntimeError(
            f"fold(): expected an input of shape (N, C * {area}, {product(positions)}) for output_size {list(target)} and kernel_size "
            f"{list(size)}, got {list(input._sizes)}"
        )
    batch, channels = columns.shape[0], columns.shape[1] // area
    patches = permute(columns.reshape(batch, channels, *size, *positions), dims=(0, 1, 4, 5, 2, 3))
    out = views.fold(patches, dims=(2, 3), lengths=wide, steps=step, dilations=spread)
    for i in range(2):
        if border[i]:
            out = views.slice_(out, dim=2 + i, start=border[i], stop=border[i] + target[i], step=1)
    return out if input.ndim == 3 else out.reshape(tuple(out.shape[1:]))


@of_tensors
def channel_shuffle(input: Any, groups: int) -> Any:
    """The channels (dimension 1), thought of as (groups, n), in the order (n, groups).

    Raises RuntimeError where the channels are no multiple of groups."""
    if input.ndim < 3 or groups < 1 or input._sizes[1] % groups:
        raise RuntimeError(
            f"channel_shuffle(): expected (N, C, ...) with C divisible by groups, {groups}, got shape {list(input._sizes)}"
        )
    batch, channels, *rest = input._sizes
    parts = input.reshape(batch, groups, channels // groups, *rest)
    return permute(parts, dims=(0, 2, 1, *range(3, parts.ndim))).reshape(input._sizes)


@of_tensors
def upsample(
    input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None
) -> Any:
    """interpolate, under its older name."""
    return interpolate(input, size, scale_factor, mode, align_corners)


@of_tensors
def upsample_nearest(input: Any, size: Any = None, scale_factor: Any = None) -> Any:
    """interpolate with mode "nearest"."""
    return interpolate(input, size, scale_factor, "nearest")


@of_tensors
def upsample_bilinear(input: Any, size: Any = None, scale_factor: Any = None) -> Any:
    """interpolate with mode "bilinear" and align_corners."""
    return interpolate(input, size, scale_factor, "bilinear", True)


@of_tensors
def pixel_shuffle(input: Any, upscale_factor: int) -> Any:
    """(*, C * r * r, H, W) as (*, C, H * r, W * r) with r = upscale_factor.

    Raises RuntimeError where the channels are no multiple of r * r."""
    r = upscale_factor
    if input.ndim < 3 or r < 1 or input._sizes[-3] % (r * r):
        raise RuntimeError(f"pixel_shuffle(): expected a number of channels divisible by {r * r}, got shape {list(input._sizes)}")
    if r == 1:
        return clone(input)  # of which the rest would give a view
    *lead, channels, height, width = input._sizes
    n = len(lead)
    blocks = input.reshape(*lead, channels // (r * r), r, r, height, width)
    return permute(blocks, dims=(*range(n + 1), n + 3, n + 1, n + 4, n + 2)).reshape(
        *lead, channels // (r * r), height * r, width * r
    )


@of_tensors
def pixel_unshuffle(input: Any, downscale_factor: int) -> Any:
    """(*, C, H * r, W * r) as (*, C * r * r, H, W) with r = downscale_factor: the inverse of pixel_shuffle."""
    r = downscale_factor
    if input.ndim < 3 or r < 1 or input._sizes[-2] % r or input._sizes[-1] % r:
        raise RuntimeError(f"pixel_unshuffle(): expected height and width divisible by {r}, got shape {list(input._sizes)}")
    if r == 1:
        return clone(input)  # of which the rest would give a view
    *lead, channels, height, width = input._sizes
    n = len(lead)
    blocks = input.reshape(*lead, channels, height // r, r, width // r, r)
    return permute(blocks, dims=(*range(n + 1), n + 2, n + 4, n + 1, n + 3)).reshape(
        *lead, channels * r * r, height // r, width // r
    )
