"""pad: constant, reflected, replicated and circular borders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracejit.core.precision import in_float32
from tracejit.core.shapes import integer, largest, size_range
from tracejit.ops import indexing
from tracejit.ops.movement import copies, views
from tracejit.ops.public.keywords import of_tensors

__all__ = ["pad"]


@of_tensors
def pad(input: Any, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Any:
    """`input` with pad = (before, after) elements at the last dimension, (before, after) at the one before it, and so on.

    mode: "constant" (`value`, 0 by default; negative sizes crop), "reflect", "replicate" or "circular".  Raises RuntimeError for sizes that
    do not fit, NotImplementedError for other modes."""
    sizes = tuple([integer("pad", "pad", p) for p in pad])
    if len(sizes) % 2 or len(sizes) > 2 * input.ndim:
        raise RuntimeError(
            f"pad(): expected an even number of sizes, at most {2 * input.ndim} for shape {list(input._sizes)}, got {list(sizes)}"
        )
    pairs = [(sizes[i], sizes[i + 1]) for i in range(0, len(sizes), 2)]
    if mode == "constant":
        return _constant(input, pairs, 0.0 if value is None else value.item() if hasattr(value, "item") else value)
    if mode not in ("reflect", "replicate", "circular"):
        raise NotImplementedError(f"pad(): unknown mode {mode!r}; expected 'constant', 'reflect', 'replicate' or 'circular'")
    if value is not None and value != 0:
        raise ValueError(f"pad(): mode {mode!r} takes no value, got {value}")
    return (_repeated if mode == "circular" else _repeated_in_float32)(input, pairs, mode)


def _repeated(input: Any, pairs: list[tuple[int, int]], mode: str) -> Any:
    out = input
    for i, (before, after) in enumerate(pairs):
        if before or after:
            dim = input.ndim - 1 - i
            size = input._sizes[dim]
            _check_fits(mode, size, before, after)
            if min(before, after) < 0:
                out = indexing.index_select(out, indexing.constant_index(_positions(mode, size, before, after)), dim=dim)
            else:
                out = copies.cat(*_with_borders(out, mode, dim, before, after), dim=dim)
    return out


def _with_borders(x: Any, mode: str, dim: int, before: int, after: int) -> list[Any]:
    """What is put together along `dim`: whatever size that has, the same operations make it."""
    size = x.shape[dim]

    def part(start: int, stop: int) -> Any:
        return views.slice_(x, dim=dim, start=start, stop=stop, step=1)

    def repeated(position: int, times: int) -> Any:
        return views.expand(part(position, position + 1), shape=(*x.shape[:dim], times, *x.shape[dim + 1 :]))

    if mode == "replicate":
        borders = repeated(0, before), repeated(size - 1, after)
    elif mode == "circular":
        borders = part(size - before, size), part(0, after)
    else:
        borders = copies.flip(part(1, before + 1), dims=(dim,)), copies.flip(part(size - 1 - after, size - 1), dims=(dim,))
    return [*([borders[0]] if before else []), x, *([borders[1]] if after else [])]


_repeated_in_float32 = in_float32(_repeated)


def _constant(x: Any, pairs: list[tuple[int, int]], value: float) -> Any:
    low, high = [0] * x.ndim, [0] * x.ndim
    for i, (before, after) in enumerate(pairs):
        dim = x.ndim - 1 - i
        size = x.shape[dim]
        if size + before + after < 0:
            raise RuntimeError(f"pad(): the padding ({before}, {after}) of dimension {dim} of size {size} leaves a negative size")
        if before < 0 or after < 0:
            start, stop = max(0, -before), size + min(0, after)
            x = views.slice_(x, dim=dim, start=min(start, size), stop=max(stop, min(start, size)), step=1)
        low[dim], high[dim] = largest((0, before)), largest((0, after))
    if not x.dtype.is_floating_point:
        try:
            value = int(value)
        except (OverflowError, ValueError):
            if any(low) or any(high):
                raise
            value = 0  # nothing is put there
    return copies.pad(x, value, low=tuple(low), high=tuple(high))


def _check_fits(mode: str, size: int, before: int, after: int) -> None:
    """Raises RuntimeError where a dimension has not so many elements to repeat, or to take away."""
    limit = {"reflect": size - 1, "circular": size, "replicate": max(before, after)}[mode]
    if max(before, after) > limit or size == 0 or size + before + after < 0:
        raise RuntimeError(
            f"pad(): the padding ({before}, {after}) is too large for mode {mode!r} and a dimension of size {size}"
        )


def _positions(mode: str, size: int, before: int, after: int) -> list[int]:
    """For each element of the padded dimension, where it comes from."""
    positions = size_range(-before, size + after)
    if mode == "replicate":
        return [min(max(p, 0), size - 1) for p in positions]
    if mode == "circular":  # negative sizes crop first
        start, kept = max(0, -before), size + min(0, before) + min(0, after)
        return [start + p % kept for p in size_range(-max(before, 0), kept + max(after, 0))]
    return [-p if p < 0 else 2 * (size - 1) - p if p >= size else p for p in positions]
