"""Derivatives of functions that are known at positions of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracejit.core.shapes import normalise_dim
from tracejit.ops.movement.copies import cat
from tracejit.ops.movement.views import reshape, slice_
from tracejit.ops.public.derive import public

__all__ = ["gradient"]


@public(method=False)
def gradient(input: Any, *, spacing: Any = None, dim: int | Sequence[int] | None = None, edge_order: int = 1) -> list[Any]:
    """The derivatives along each dimension of `dim` (of all), of the shape of `input`: from the neighbours on both sides, to second order.

    spacing: the distance of positions, 1 by default, or for each dimension its own, or a vector of the positions themselves.  edge_order:
    1 or 2, the order at both ends.  Raises RuntimeError for other orders, for fewer positions than edge_order + 1, and for another number
    of spacings."""
    if edge_order not in (1, 2):
        raise RuntimeError(f"gradient(): expected edge_order to be 1 or 2, got {edge_order}")
    given = range(input.ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
    dims = [normalise_dim("gradient", d, input.ndim) for d in given]
    spacing = 1 if spacing is None else spacing
    spacings = list(spacing) if isinstance(spacing, tuple | list) else [spacing] * len(dims)
    if len(spacings) != len(dims):
        raise RuntimeError(f"gradient(): expected spacing to be a number or {len(dims)} of them, got {len(spacings)}")
    for d in dims:
        if input._sizes[d] <= edge_order:
            raise RuntimeError(f"gradient(): expected each dimension size to be at least {edge_order + 1}, got {input._sizes[d]}")
    return [_along(input, d, positions, edge_order) for d, positions in zip(dims, spacings, strict=True)]


def _along(f: Any, dim: int, spacing: Any, edge_order: int) -> Any:
    """The derivative is that of the parabola through a position and its neighbours: a mean of the slopes on both sides."""
    n = f.shape[dim]
    steps = _steps(spacing, n, dim, f.ndim)
    slopes = (_part(f, dim, 1, n) - _part(f, dim, 0, n - 1)) / steps
    first, last = _part(slopes, dim, 0, 1), _part(slopes, dim, n - 2, n - 1)
    if n == 2:
        return cat(first, last, dim=dim)
    before, after = _part(slopes, dim, 0, n - 2), _part(slopes, dim, 1, n - 1)
    share: Any = 0.5
    if steps is not spacing:  # of the step on the left in both
        left, right = _part(steps, dim, 0, n - 2), _part(steps, dim, 1, n - 1)
        share = left / (left + right)
    inner = before + (after - before) * share
    if edge_order == 2:
        share_first = share if steps is spacing else _part(share, dim, 0, 1)
        share_last = share if steps is spacing else 1 - _part(share, dim, n - 3, n - 2)
        first = first + (first - _part(slopes, dim, 1, 2)) * share_first
        last = last + (last - _part(slopes, dim, n - 3, n - 2)) * share_last
    return cat(first, inner, last, dim=dim)


def _steps(spacing: Any, n: int, dim: int, rank: int) -> Any:
    """The distances of n positions: a number as it is, or those of a vector of positions, along `dim`."""
    if not (hasattr(spacing, "ndim") and spacing.ndim):
        return spacing
    if spacing.ndim != 1 or spacing.shape[0] != n:
        raise RuntimeError(f"gradient(): expected {n} positions along dimension {dim}, got shape {list(spacing.shape)}")
    distances = _part(spacing, 0, 1, n) - _part(spacing, 0, 0, n - 1)
    return reshape(distances, shape=tuple([n - 1 if d == dim else 1 for d in range(rank)]))


def _part(x: Any, dim: int, start: int, stop: int) -> Any:
    return slice_(x, dim=dim, start=start, stop=stop, step=1)
