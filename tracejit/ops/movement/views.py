"""Views: outputs that share the memory of their input, and the copies that undo them.

Every view has an inverse that puts a changed view back into its base (`slice_scatter`, `select_scatter`,
`diagonal_scatter`, the inverse permutation, a reshape); it serves as the vjp and for functionalising writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tracejit.core.aval import Aval
from tracejit.core.dtypes import from_numpy_dtype
from tracejit.core.op import Kind
from tracejit.core.unbroadcast import sum_to
from tracejit.ops.creation import full
from tracejit.ops.declare import custom, require_numbers, require_one_dtype, view
from tracejit.ops.samples import Samples, cases, floats

__all__ = [
    "detach", "diagonal", "diagonal_scatter", "expand", "fold", "permute", "reshape", "select", "select_scatter", "slice_", "slice_scatter",
    "unfold",
]  # fmt: skip

Shape = tuple[int, ...]


@view(
    lambda x, shape: Aval(shape, x.dtype),
    samples=cases(
        (floats(6), {"shape": (2, 3)}),
        (floats(2, 3), {"shape": (3, 1, 2)}),
        (floats(), {"shape": (1, 1)}),
        (floats(0, 2), {"shape": (4, 0)}),
    ),
)
def reshape(x: Any, shape: Shape) -> Any:
    """The same elements in row-major order under another shape of the same size."""
    return x.reshape(shape)


def _reshape_name(node: Any) -> str:
    """One dimension of size 1 more or fewer is unsqueeze's or squeeze's doing; anything else a view's."""
    before, after = tuple(node.meta[0][0]), tuple(node.out_meta[0])
    if any(after == (*before[:i], 1, *before[i:]) for i in range(len(after))) and len(after) == len(before) + 1:
        return "UnsqueezeBackward0"
    if any(before == (*after[:i], 1, *after[i:]) for i in range(len(before))) and len(before) == len(after) + 1:
        return "SqueezeBackward1"
    return "ViewBackward0"


reshape.named(_reshape_name)


@reshape.vjp()
def _(c: Any, g: Any) -> Any:
    return reshape.of(g, shape=c.avals[0].shape)


@view(
    lambda x, dims: Aval(tuple(x.shape[d] for d in dims), x.dtype),
    samples=cases(
        (floats(2, 3), {"dims": (1, 0)}),
        (floats(2, 3, 2).T, {"dims": (2, 0, 1)}),
        (floats(), {"dims": ()}),
        (floats(0, 2), {"dims": (1, 0)}),
    ),
)
def permute(x: Any, dims: Shape) -> Any:
    """Dimensions in another order."""
    return x.transpose(dims)


def _permute_name(node: Any) -> str:
    dims = node.attributes["dims"]
    if dims == (1, 0):
        return "TBackward0"
    return "TransposeBackward0" if sum(i != d for i, d in enumerate(dims)) == 2 else "PermuteBackward0"


permute.named(_permute_name)


@permute.vjp()
def _(c: Any, g: Any) -> Any:
    dims = c.attributes["dims"]
    return permute.of(g, dims=tuple(dims.index(i) for i in range(len(dims))))


@view(
    lambda x, shape: Aval(shape, x.dtype),
    samples=cases(
        (floats(3), {"shape": (2, 3)}),
        (floats(1, 3).T, {"shape": (3, 2)}),
        (floats(), {"shape": (2, 2)}),
        (floats(1), {"shape": (0,)}),
    ),
)
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


@expand.vjp()
def _(c: Any, g: Any) -> Any:
    return sum_to(g, c.avals[0].shape)


def _slice_rule(x: Aval, dim: int, start: int, stop: int, step: int) -> Aval:
    return Aval((*x.shape[:dim], max(0, -((start - stop) // step)), *x.shape[dim + 1 :]), x.dtype)


def _slices() -> Samples:
    return cases(
        (floats(7), {"dim": 0, "start": 1, "stop": 6, "step": 2}), (floats(2, 4).T, {"dim": 0, "start": 1, "stop": 3, "step": 1}),
        (floats(3, 2), {"dim": 1, "start": 2, "stop": 2, "step": 1}),
    )  # fmt: skip


@view(_slice_rule, name="slice", samples=_slices())
def slice_(x: Any, dim: int, start: int, stop: int, step: int) -> Any:
    """Elements start, start + step, ... below stop along `dim`; 0 <= start <= stop <= size, step >= 1."""
    return x[(slice(None),) * dim + (slice(start, stop, step),)]


@slice_.vjp()
def _(c: Any, g: Any) -> Any:
    x = c.avals[0]
    return slice_scatter.of(full.beside(g, 0.0, shape=x.shape, dtype=x.dtype), g, **c.attributes)


def _into(name: str, region: Callable[..., Aval]) -> Callable[..., Aval]:
    """The shape rule of the inverse of a view: `value` is what the view `region` of `base` holds then."""

    def rule(base: Aval, value: Aval, *operands: Any, **attributes: Any) -> Aval:
        require_one_dtype(name, base, value)
        part = region(base, *operands, **attributes).shape
        if tuple(value.shape) != part:
            raise RuntimeError(
                f"{name}(): expected src to have the shape of the slice of self, {list(part)}, got {list(value.shape)}"
            )
        return base

    return rule


@custom(
    Kind.MOVEMENT,
    _into("slice_scatter", _slice_rule),
    samples=cases(
        (floats(7), floats(3, seed=1), {"dim": 0, "start": 1, "stop": 6, "step": 2}),
        (floats(2, 4).T, floats(2, 2, seed=1), {"dim": 0, "start": 1, "stop": 3, "step": 1}),
    ),
)
def slice_scatter(base: Any, value: Any, dim: int, start: int, stop: int, step: int) -> Any:
    """A copy of `base` in which the slice has the contents of `value`."""
    out = np.array(base)
    out[(slice(None),) * dim + (slice(start, stop, step),)] = value
    return out


@slice_scatter.vjp()
def _(c: Any, g: Any) -> Any:
    zeros = full.beside(g, 0.0, shape=c.avals[1].shape, dtype=c.avals[1].dtype)
    return slice_scatter.of(g, zeros, **c.attributes) if c.needs[0] else None, slice_.of(g, **c.attributes) if c.needs[
        1
    ] else None


def _select_rule(x: Aval, index: Any, dim: int) -> Aval:
    require_numbers("select", index)
    return Aval(x.shape[:dim] + x.shape[dim + 1 :], x.dtype)


@view(
    _select_rule,
    samples=cases((floats(4), 2, {"dim": 0}), (floats(2, 3).T, 1, {"dim": 1}), (floats(0, 2), 1, {"dim": 1})),
)
def select(x: Any, index: int, dim: int) -> Any:
    """The slice at `index` (0 <= index < size) of `dim`, without that dimension."""
    return x[(slice(None),) * dim + (index, ...)]


@select.vjp()
def _(c: Any, g: Any) -> Any:
    x = c.avals[0]
    return select_scatter.of(full.beside(g, 0.0, shape=x.shape, dtype=x.dtype), g, c.inputs[1], dim=c.attributes["dim"]), None


@custom(
    Kind.MOVEMENT,
    _into("select_scatter", _select_rule),
    samples=cases((floats(4), floats(), 2, {"dim": 0}), (floats(2, 3).T, floats(3, seed=1), 1, {"dim": 1})),
)
def select_scatter(base: Any, value: Any, index: int, dim: int) -> Any:
    """A copy of `base` in which the slice at `index` of `dim` has the contents of `value`."""
    out = np.array(base)
    out[(slice(None),) * dim + (index,)] = value
    return out


@select_scatter.vjp()
def _(c: Any, g: Any) -> Any:
    index, dim = c.inputs[2], c.attributes["dim"]
    zeros = full.beside(g, 0.0, shape=c.avals[1].shape, dtype=c.avals[1].dtype)
    return (
        select_scatter.of(g, zeros, index, dim=dim) if c.needs[0] else None,
        select.of(g, index, dim=dim) if c.needs[1] else None,
        None,
    )


def _diagonal_rule(x: Aval, offset: int, dim1: int, dim2: int) -> Aval:
    rows, columns = x.shape[dim1], x.shape[dim2]
    length = max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))
    return Aval((*(s for i, s in enumerate(x.shape) if i not in (dim1, dim2)), length), x.dtype)


@view(
    _diagonal_rule,
    samples=cases(
        (floats(3, 4), {"offset": 1, "dim1": 0, "dim2": 1}), (floats(2, 3, 4), {"offset": -1, "dim1": 2, "dim2": 0}),
        (floats(2, 2).T, {"offset": 2, "dim1": 0, "dim2": 1}),
    ),
)  # fmt: skip
def diagonal(x: Any, offset: int, dim1: int, dim2: int) -> Any:
    """The diagonal over two dimensions, which becomes the last one."""
    out = np.diagonal(x, offset, dim1, dim2)
    if x.flags.writeable:
        out.flags.writeable = True  # np.diagonal returns a read-only view
    return out


@diagonal.vjp()
def _(c: Any, g: Any) -> Any:
    x = c.avals[0]
    return diagonal_scatter.of(full.beside(g, 0.0, shape=x.shape, dtype=x.dtype), g, **c.attributes)


@custom(
    Kind.MOVEMENT,
    _into("diagonal_scatter", _diagonal_rule),
    samples=cases(
        (floats(3, 4), floats(3, seed=1), {"offset": 1, "dim1": 0, "dim2": 1}),
        (floats(2, 3, 4), floats(3, 2, seed=1), {"offset": -1, "dim1": 2, "dim2": 0}),
    ),
)
def diagonal_scatter(base: Any, value: Any, offset: int, dim1: int, dim2: int) -> Any:
    """A copy of `base` with the contents of `value` on its diagonal."""
    out = np.array(base)
    diagonal.evaluate(out, offset, dim1, dim2)[...] = value
    return out


@diagonal_scatter.vjp()
def _(c: Any, g: Any) -> Any:
    zeros = full.beside(g, 0.0, shape=c.avals[1].shape, dtype=c.avals[1].dtype)
    return diagonal_scatter.of(g, zeros, **c.attributes) if c.needs[0] else None, diagonal.of(g, **c.attributes) if c.needs[
        1
    ] else None


def _unfold_rule(x: Aval, dim: int, size: int, step: int, dilation: int) -> Aval:
    count = (x.shape[dim] - dilation * (size - 1) - 1) // step + 1 if size else x.shape[dim] // step + 1
    return Aval((*x.shape[:dim], count, *x.shape[dim + 1 :], size), x.dtype)


@view(
    _unfold_rule,
    samples=cases(
        (floats(7), {"dim": 0, "size": 3, "step": 2, "dilation": 1}), (floats(2, 6).T, {"dim": 0, "size": 2, "step": 1, "dilation": 3}),
        (floats(2, 5, 3), {"dim": 1, "size": 5, "step": 1, "dilation": 1}),
    ),
)  # fmt: skip
def unfold(x: Any, dim: int, size: int, step: int, dilation: int) -> Any:
    """Windows of `size` elements of `dim`, `dilation` apart; windows begin `step` apart.  The windows' elements are a new last dimension.
    They may share memory, so the result cannot be written to."""
    shape = _unfold_rule(Aval(x.shape, from_numpy_dtype(x.dtype)), dim, size, step, dilation).shape
    stride = x.strides[dim]
    return as_strided(x, shape, (*x.strides[:dim], stride * step, *x.strides[dim + 1 :], stride * dilation))


@unfold.vjp()
def _(c: Any, g: Any) -> Any:
    attributes = c.attributes
    dim = attributes["dim"]
    length, step, dilation = c.avals[0].shape[dim], attributes["step"], attributes["dilation"]
    return fold.of(g, dims=(dim,), lengths=(length,), steps=(step,), dilations=(dilation,))


def _fold_rule(x: Aval, dims: Shape, lengths: Shape, steps: Shape, dilations: Shape) -> Aval:
    sizes = x.shape[x.ndim - len(dims) :]
    shape = list(x.shape[: x.ndim - len(dims)])
    for dim, size, length, step, dilation in zip(dims, sizes, lengths, steps, dilations, strict=True):
        reach = (shape[dim] - 1) * step + (size - 1) * dilation + 1 if shape[dim] and size else 0
        if reach > length:
            raise ValueError(
                f"fold(): {shape[dim]} windows of {size} elements reach over {reach} places of dimension {dim}; expected at most its "
                f"length, {length}"
            )
        shape[dim] = length
    return Aval(tuple(shape), x.dtype)


@custom(
    Kind.SCATTER,
    _fold_rule,
    samples=cases(
        (floats(3, 3), {"dims": (0,), "lengths": (7,), "steps": (2,), "dilations": (1,)}),
        (floats(2, 2, 3).T, {"dims": (0,), "lengths": (6,), "steps": (1,), "dilations": (2,)}),
        (floats(2, 3, 2, 3, 2), {"dims": (1, 2), "lengths": (7, 5), "steps": (1, 2), "dilations": (2, 1)}),
    ),
)  # fmt: skip
def fold(x: Any, dims: Shape, lengths: Shape, steps: Shape, dilations: Shape) -> Any:
    """The adjoint of unfold, for several dimensions at once: windows added up at their places in dimensions of size `lengths`.  The
    windows' elements are the last dimensions, in the order of `dims`."""
    rank = x.ndim - len(dims)
    out = np.zeros(_fold_rule(Aval(x.shape, from_numpy_dtype(x.dtype)), dims, lengths, steps, dilations).shape, x.dtype)
    if 0 in x.shape:
        return out
    for at in np.ndindex(x.shape[rank:]):
        place = [slice(None)] * rank
        for dim, k, step, dilation in zip(dims, at, steps, dilations, strict=True):
            place[dim] = slice(k * dilation, k * dilation + step * (x.shape[dim] - 1) + 1, step)
        out[tuple(place)] += x[(..., *at)]
    return out


@fold.vjp()
def _(c: Any, g: Any) -> Any:
    shape, a = c.avals[0].shape, c.attributes
    sizes = shape[len(shape) - len(a["dims"]) :]
    for dim, size, step, dilation in zip(a["dims"], sizes, a["steps"], a["dilations"], strict=True):
        count = shape[dim]
        stop = (count - 1) * step + dilation * (size - 1) + 1 if count else 0
        if stop < g.shape[dim]:  # elements beyond the last window, where another would fit
            g = slice_.of(g, dim=dim, start=0, stop=stop, step=1)
        g = unfold.of(g, dim=dim, size=size, step=step, dilation=dilation)
    return g


@view(lambda x: x, samples=cases((floats(3),), (floats(2, 3).T,)), traits=("not differentiable",))
def detach(x: Any) -> Any:
    """The same memory, outside the graph of gradients."""
    return x[...]
