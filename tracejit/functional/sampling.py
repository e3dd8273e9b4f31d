"""Sampling: of images at given positions (affine_grid, grid_sample), and of categories (gumbel_softmax)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracejit.core.dtypes import int64
from tracejit.core.precision import in_float32, rounds_once
from tracejit.core.shapes import normalise_dim, product
from tracejit.core.symbolic import concretise_sizes
from tracejit.ops import indexing
from tracejit.ops import reduce as primitives
from tracejit.ops.creation import ArrayConstant, arange, constant, full
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.ops.elementwise.comparison import where
from tracejit.ops.elementwise.mathematics import abs_, log
from tracejit.ops.elementwise.rounding import floor
from tracejit.ops.linalg import matmul
from tracejit.ops.movement.views import detach, permute, reshape, select
from tracejit.ops.public.elementwise import round_
from tracejit.ops.public.keywords import of_tensors
from tracejit.ops.public.movement import transpose
from tracejit.ops.public.random import rand
from tracejit.ops.public.softmax import softmax

__all__ = ["affine_grid", "grid_sample", "gumbel_softmax"]


@of_tensors
@rounds_once
def gumbel_softmax(logits: Any, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Any:
    """softmax((logits + Gumbel noise) / tau) along `dim`; with `hard` one-hot in value, with the gradient of the soft one."""
    tiny = sys.float_info.min if logits.dtype.name == "float64" else 2.0**-126
    uniform = rand(logits._sizes, dtype=logits.dtype)
    noise = -log(-log(where(uniform == 0, tiny, uniform)))
    soft = softmax((logits + noise) / tau, dim)
    if not hard:
        return soft
    at = normalise_dim("gumbel_softmax", dim, soft.ndim)
    best = primitives.argmax(detach(soft), dim=at, keepdim=True)
    ones = full(1, shape=best._sizes, dtype=soft.dtype)
    one_hot = indexing.scatter(full(0, shape=soft._sizes, dtype=soft.dtype), best, ones, dim=at)
    return one_hot - detach(soft) + soft


@of_tensors
def affine_grid(theta: Any, size: Sequence[int], align_corners: bool | None = None) -> Any:
    """The positions (N, H, W, 2) that the affine maps theta (N, 2, 3) send an image of `size` (N, C, H, W) to; or (N, D, H, W, 3) for three
    dimensions, theta (N, 3, 4).  Raises ValueError for other shapes."""
    rank = len(size) - 2
    if rank not in (2, 3) or theta._sizes != (size[0], rank, rank + 1):
        raise ValueError(
            f"affine_grid(): expected theta of shape (N, 2, 3) for size (N, C, H, W), or (N, 3, 4) for (N, C, D, H, W), got "
            f"{list(theta.shape)} and {list(size)}"
        )
    axes = []
    for n in map(concretise_sizes, size[2:]):
        line = np.linspace(-1.0, 1.0, n) if n > 1 else np.zeros(1)
        axes.append(line if align_corners else line * (n - 1) / n)
    positions = np.stack(
        [*reversed(np.meshgrid(*axes, indexing="ij")), np.ones([line.size for line in axes])], -1
    )  # the last dimension first
    base = constant(array=ArrayConstant(np.ascontiguousarray(positions.reshape(1, -1, rank + 1).astype(theta.dtype.numpy))))
    return reshape(matmul(base, permute(theta, dims=(0, 2, 1))), shape=(size[0], *size[2:], rank))


def _unnormalised(offset: Any, size: int, align_corners: bool) -> Any:
    """Positions in elements, of coordinates between -1 and 1."""
    return (offset + 1.0) * ((size - 1) / 2.0) if align_corners else ((offset + 1.0) * size - 1.0) / 2.0


def _reflected(x: Any, low: float, high: float) -> Any:
    """Positions outside [low, high] folded back."""
    span = high - low
    if span == 0:
        return x * 0.0
    away = abs_(x - low)
    flips = floor(away / span)
    rest = away - flips * span
    return where(flips % 2 == 0, rest + low, (span + low) - rest)


def _inside(x: Any, size: int, mode: str, align_corners: bool) -> Any:
    """Positions moved into the image as the padding mode says."""
    if mode == "reflection":
        x = _reflected(x, 0.0, size - 1.0) if align_corners else _reflected(x, -0.5, size - 0.5)
    return x if mode == "zeros" else x.clamp(0, size - 1)


@of_tensors
@in_float32
def grid_sample(
    input: Any, grid: Any, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Any:
    """`input` (N, C, H, W) at the positions grid (N, h, w, 2), or (N, C, D, H, W) at (N, d, h, w, 3); -1 and 1 are the borders.

    mode: "bilinear" or "nearest".  padding_mode: "zeros", "border" or "reflection".  Raises ValueError for other modes and shapes."""
    rank = input.ndim - 2
    if mode not in ("bilinear", "nearest") or padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(f"grid_sample(): mode {mode!r} with padding_mode {padding_mode!r} is not supported")
    if rank not in (2, 3) or grid.ndim != rank + 2 or grid.shape[-1] != rank or grid.shape[0] != input._sizes[0]:
        raise ValueError(f"grid_sample(): input of shape {list(input._sizes)} and grid {list(grid.shape)} do not fit together")
    sizes, batch, channels = tuple(input._sizes[2:]), input._sizes[0], input._sizes[1]
    inner = tuple(grid.shape[1:-1])
    at = []
    for i in range(rank):  # the last coordinate of the grid is that of the first spatial dimension
        x = reshape(select(grid, rank - 1 - i, dim=grid.ndim - 1), shape=(batch, product(inner)))
        at.append(_inside(_unnormalised(x, sizes[i], bool(align_corners)), sizes[i], padding_mode, bool(align_corners)))
    flat = transpose(input.reshape(batch, channels, product(sizes)), 1, 2).reshape(batch * product(sizes), channels)
    first = reshape(arange(0, product(sizes), length=batch, dtype=int64), shape=(batch, 1))
    total = None
    for corner in range(1 if mode == "nearest" else 1 << rank):
        offset: Any = first
        weight: Any = None
        known: Any = None
        for i, x in enumerate(at):
            low = round_(detach(x)) if mode == "nearest" else floor(detach(x))
            upper = bool(corner >> i & 1)
            position = low + 1.0 if upper else low
            if mode == "bilinear":
                share = x - low if upper else low + 1.0 - x
                weight = share if weight is None else weight * share
            ok = (position >= 0) & (position <= sizes[i] - 1)
            known = ok if known is None else known & ok
            step = product(sizes[i + 1 :])
            offset = offset + cast(where(ok, position, 0.0), dtype=int64) * step
        rows = indexing.index_select(flat, offset, dim=0)
        rows = where(known.unsqueeze(-1), rows, 0.0)
        if weight is not None:
            rows = rows * where(known, weight, 0.0).unsqueeze(-1)
        total = rows if total is None else total + rows
    assert total is not None
    return transpose(total, 1, 2).reshape(batch, channels, *inner).contiguous()
