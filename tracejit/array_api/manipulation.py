"""The standard's functions that move, join and repeat elements."""

from __future__ import annotations

from typing import Any

from tracejit import functions as F
from tracejit.array_api.promotion import promoted


def broadcast_arrays(*arrays: Any) -> list[Any]:
    """The arrays expanded to their common shape."""
    return list(F.broadcast_tensors(*arrays))


def broadcast_to(x: Any, /, shape: tuple[int, ...]) -> Any:
    """The array expanded to a shape."""
    return F.broadcast_to(x, shape)


def concat(arrays: Any, /, *, axis: int | None = 0) -> Any:
    """Arrays joined along an axis; flattened ones for None."""
    xs = promoted("concat", *arrays)
    return F.cat([F.reshape(x, -1) for x in xs], 0) if axis is None else F.cat(list(xs), axis)


def expand_dims(x: Any, /, axis: int) -> Any:
    """An axis of size 1 inserted.  Raises IndexError outside [-ndim - 1, ndim]."""
    return F.unsqueeze(x, axis)


def flip(x: Any, /, *, axis: Any = None) -> Any:
    """Elements along the axes in reverse order, by default all."""
    dims = tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
    return F.flip(x, dims)


def moveaxis(x: Any, source: Any, destination: Any, /) -> Any:
    """Axes moved to other positions."""
    return F.movedim(x, source, destination)


def permute_dims(x: Any, /, axes: tuple[int, ...]) -> Any:
    """Axes in another order."""
    return F.permute(x, axes)


def repeat(x: Any, repeats: Any, /, *, axis: int | None = None) -> Any:
    """Each element several times in a row."""
    return F.repeat_interleave(x, repeats, axis)


def reshape(x: Any, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Any:
    """The same elements under another shape; a copy if asked for.  Raises ValueError where copy=False needs one."""
    if copy is False:
        try:
            return x.view(*shape)
        except RuntimeError as error:
            raise ValueError(f"reshape(): copy=False, but a copy is needed: {error}") from None
    out = F.reshape(x, tuple(shape))
    return F.clone(out) if copy else out


def roll(x: Any, /, shift: Any, *, axis: Any = None) -> Any:
    """Elements moved along axes, coming in again at the other end; in the flattened array for None."""
    if axis is not None and isinstance(shift, int) and not isinstance(axis, int):
        shift = (shift,) * len(axis)
    return F.roll(x, shift, axis)


def squeeze(x: Any, /, axis: Any) -> Any:
    """Axes of size 1 removed.  Raises ValueError for one of another size."""
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    for d in axes:
        if not -x.ndim <= d < x.ndim:
            raise IndexError(f"squeeze(): axis {d} is out of range for an array of {x.ndim} axes")
        if x.shape[d] != 1:
            raise ValueError(f"squeeze(): axis {d} has size {x.shape[d]}, expected 1")
    return F.squeeze(x, axes)


def stack(arrays: Any, /, *, axis: int = 0) -> Any:
    """Arrays of one shape along a new axis."""
    return F.stack(list(promoted("stack", *arrays)), axis)


def tile(x: Any, repetitions: tuple[int, ...], /) -> Any:
    """The array copied along its axes."""
    return F.tile(x, repetitions)


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
    """The slices along an axis, without it."""
    return F.unbind(x, axis)  # type: ignore[no-any-return]
