"""Views: outputs that share the memory of their input, and the copies that undo them.

Every view has an inverse that puts a changed view back into its base (`slice_scatter`, `select_scatter`,
`diagonal_scatter`, the inverse permutation, a reshape); it serves as the vjp and for functionalising writes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tracejit.core.aval import Aval
from tracejit.core.op import Kind
from tracejit.ops.creation import full
from tracejit.ops.declare import custom, view

__all__ = ["detach", "diagonal", "diagonal_scatter", "expand", "permute", "reshape", "select", "select_scatter", "slice_", "slice_scatter"]

Shape = tuple[int, ...]


@view(lambda x, shape: Aval(shape, x.dtype))
def reshape(x: Any, shape: Shape) -> Any:
    """The same elements in row-major order under another shape of the same size."""
    return x.reshape(shape)


@reshape.vjp()
def _(c: Any, g: Any) -> Any:
    return reshape(g, shape=c.avals[0].shape)


@view(lambda x, dims: Aval(tuple(x.shape[d] for d in dims), x.dtype))
def permute(x: Any, dims: Shape) -> Any:
    """Dimensions in another order."""
    return x.transpose(dims)


@permute.vjp()
def _(c: Any, g: Any) -> Any:
    dims = c.attributes["dims"]
    return permute(g, dims=tuple(dims.index(i) for i in range(len(dims))))


@view(lambda x, shape: Aval(shape, x.dtype))
def expand(x: Any, shape: Shape) -> Any:
    """Broadcast to `shape` without copying; the result cannot be written to."""
    x = np.asarray(x)
    lead = len(shape) - x.ndim
    strides = (0,) * lead
    if x.ndim:
        strides += tuple([0 if s == 1 and t != 1 else st for s, t, st in zip(x.shape, shape[lead:], x.strides, strict=True)])
    if x.flags.c_contiguous and x.size:
        return np.ndarray(shape, x.dtype, x, 0, strides)  # ten times faster than as_strided
    return as_strided(x, shape, strides)


def _slice_rule(x: Aval, dim: int, start: int, stop: int, step: int) -> Aval:
    return Aval((*x.shape[:dim], max(0, -((start - stop) // step)), *x.shape[dim + 1 :]), x.dtype)


@view(_slice_rule, name="slice")
def slice_(x: Any, dim: int, start: int, stop: int, step: int) -> Any:
    """Elements start, start + step, ... below stop along `dim`; 0 <= start <= stop <= size, step >= 1."""
    return x[(slice(None),) * dim + (slice(start, stop, step),)]


@slice_.vjp()
def _(c: Any, g: Any) -> Any:
    x = c.avals[0]
    return slice_scatter(full(0.0, shape=x.shape, dtype=x.dtype), g, **c.attributes)


@custom(Kind.MOVEMENT, lambda base, value, **attributes: base)
def slice_scatter(base: Any, value: Any, dim: int, start: int, stop: int, step: int) -> Any:
    """A copy of `base` in which the slice has the contents of `value`."""
    out = np.array(base)
    out[(slice(None),) * dim + (slice(start, stop, step),)] = value
    return out


@slice_scatter.vjp()
def _(c: Any, g: Any) -> Any:
    zeros = full(0.0, shape=c.avals[1].shape, dtype=c.avals[1].dtype)
    return slice_scatter(g, zeros, **c.attributes) if c.needs[0] else None, slice_(g, **c.attributes) if c.needs[1] else None


@view(lambda x, index, dim: Aval(x.shape[:dim] + x.shape[dim + 1 :], x.dtype))
def select(x: Any, index: int, dim: int) -> Any:
    """The slice at `index` (0 <= index < size) of `dim`, without that dimension."""
    return x[(slice(None),) * dim + (index, ...)]


@select.vjp()
def _(c: Any, g: Any) -> Any:
    x = c.avals[0]
    return select_scatter(full(0.0, shape=x.shape, dtype=x.dtype), g, c.inputs[1], dim=c.attributes["dim"]), None


@custom(Kind.MOVEMENT, lambda base, value, index, **attributes: base)
def select_scatter(base: Any, value: Any, index: int, dim: int) -> Any:
    """A copy of `base` in which the slice at `index` of `dim` has the contents of `value`."""
    out = np.array(base)
    out[(slice(None),) * dim + (index,)] = value
    return out


@select_scatter.vjp()
def _(c: Any, g: Any) -> Any:
    index, dim = c.inputs[2], c.attributes["dim"]
    zeros = full(0.0, shape=c.avals[1].shape, dtype=c.avals[1].dtype)
    return select_scatter(g, zeros, index, dim=dim) if c.needs[0] else None, select(g, index, dim=dim) if c.needs[1] else None, None


def _diagonal_rule(x: Aval, offset: int, dim1: int, dim2: int) -> Aval:
    rows, columns = x.shape[dim1], x.shape[dim2]
    length = max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))
    return Aval((*(s for i, s in enumerate(x.shape) if i not in (dim1, dim2)), length), x.dtype)


@view(_diagonal_rule)
def diagonal(x: Any, offset: int, dim1: int, dim2: int) -> Any:
    """The diagonal over two dimensions, which becomes the last one."""
    out = np.diagonal(x, offset, dim1, dim2)
    if x.flags.writeable:
        out.flags.writeable = True  # np.diagonal returns a read-only view
    return out


@diagonal.vjp()
def _(c: Any, g: Any) -> Any:
    x = c.avals[0]
    return diagonal_scatter(full(0.0, shape=x.shape, dtype=x.dtype), g, **c.attributes)


@custom(Kind.MOVEMENT, lambda base, value, **attributes: base)
def diagonal_scatter(base: Any, value: Any, offset: int, dim1: int, dim2: int) -> Any:
    """A copy of `base` with the contents of `value` on its diagonal."""
    out = np.array(base)
    diagonal.evaluate(out, offset, dim1, dim2)[...] = value
    return out


@diagonal_scatter.vjp()
def _(c: Any, g: Any) -> Any:
    zeros = full(0.0, shape=c.avals[1].shape, dtype=c.avals[1].dtype)
    return diagonal_scatter(g, zeros, **c.attributes) if c.needs[0] else None, diagonal(g, **c.attributes) if c.needs[1] else None


@view(lambda x: x)
def detach(x: Any) -> Any:
    """The same memory, outside the graph of gradients."""
    return x[...]
