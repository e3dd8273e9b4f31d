"""Views: outputs that share the memory of their input, and the copies that undo them.

A view that can be written to has an inverse that puts a changed view back into its base: another view of the same kind (`undone`: the
inverse permutation, a reshape), or a copy of the base that has it in its `region` (`slice_scatter`, `select_scatter`,
`dynamic_slice_scatter`, `diagonal_scatter`).  It serves as the vjp and for functionalising writes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tracejit.core.aval import Aval
from tracejit.core.dtypes import from_numpy_dtype, int64
from tracejit.core.op import Kind, Op
from tracejit.core.shapes import contiguous, equal_runs, product, require_broadcast, reshaped_strides
from tracejit.core.unbroadcast import sum_to
from tracejit.ops.creation import full
from tracejit.ops.declare import custom, require_one_dtype, view
from tracejit.ops.samples import Samples, cases, floats, integers

__all__ = [
    "detach", "diagonal", "diagonal_scatter", "dynamic_slice", "dynamic_slice_scatter", "expand", "fold", "permute", "reshape",
    "scatter_of", "select", "select_scatter", "slice_", "slice_scatter", "unfold",
]  # fmt: skip

Shape = tuple[int, ...]


def _latest(s: Any, x: Any, shape: Shape) -> Any:
    """Of several in a row the last one counts."""
    return s(s.op, *x.operands, shape=shape) if x.op is s.op and not s.same(x) else x


def _reshaped(b: Any, at: Any, x: Any, shape: Shape) -> Any:
    if 0 in x.shape:
        return x[(0,) * len(x.shape)]
    found: list[Any] = []
    for dims, new in equal_runs(x.shape, shape) or ():
        whole: Any = 0
        for d, step in zip(new, contiguous([shape[d] for d in new]), strict=True):
            whole = whole + at[d] * step
        split: list[Any] = []
        for d in reversed(dims):
            if d == dims[0] or all(x.shape[e] == 1 for e in range(dims[0], d)):
                rest, whole = whole, 0
            else:
                whole, rest = b.divmod(whole, x.shape[d])
            split.append(rest)
        found += reversed(split)
    return x[found]


def _reshape_rule(x: Aval, shape: Shape) -> Aval:
    if product(x.shape) != product(shape):
        raise RuntimeError(f"reshape(): a tensor of shape {list(x.shape)} has not as many elements as shape {list(shape)}")
    return Aval(shape, x.dtype)


@view(
    _reshape_rule,
    _reshaped,
    strides=reshaped_strides,
    undone=lambda before, shape: {"shape": before},
    simpler=_latest,
    traits=("reshapes",),
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


def inverse(dims: Shape) -> Shape:
    """The permutation that undoes another one."""
    return tuple(dims.index(i) for i in range(len(dims)))


@view(
    lambda x, dims: Aval(tuple(x.shape[d] for d in dims), x.dtype),
    lambda b, at, x, dims: x[[at[d] for d in inverse(dims)]],
    undone=lambda before, dims: {"dims": inverse(dims)},
    traits=("permutes",),
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


@permute.simplified
def _(s: Any, x: Any, dims: Shape) -> Any:
    if dims == tuple(range(len(dims))):
        return x
    return s(permute, *x.operands, dims=tuple(x.attributes["dims"][d] for d in dims)) if x.op is permute else None


def _expand_rule(x: Aval, shape: Shape) -> Aval:
    require_broadcast("expand", x.shape, shape)
    return Aval(shape, x.dtype)


@view(
    _expand_rule,
    lambda b, at, x, shape: x[at[len(shape) - len(x.shape) :]],
    undone=lambda before, shape: {"shape": before} if before == shape else None,
    simpler=_latest,
    traits=("broadcasts",),
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


@view(
    _slice_rule,
    lambda b, at, x, dim, start, stop, step: x[(*at[:dim], at[dim] * step + start, *at[dim + 1 :])],
    simpler=lambda s, x, dim, start, stop, step: x if start == 0 and step == 1 else None,
    name="slice",
    traits=("positions",),
    samples=_slices(),
)
def slice_(x: Any, dim: int, start: int, stop: int, step: int) -> Any:
    """Elements start, start + step, ... below stop along `dim`; 0 <= start <= stop <= size, step >= 1."""
    return x[(slice(None),) * dim + (slice(start, stop, step),)] if dim else x[start:stop:step]


def scatter_of(region: Op, samples: Samples, element: Callable[..., Any] | None = None, title: str | None = None) -> Op:
    """The inverse of a view that is a part of its base: scatter(base, value, ...) is a copy of `base` in which the part is `value`.  It is
    the adjoint of the view, and of it the view is one.  title: what errors call it, if not by its name."""
    name = f"{region.name}_scatter"
    title = title or name

    def rule(base: Aval, value: Aval, *operands: Any, **attributes: Any) -> Aval:
        require_one_dtype(title, base, value)
        part = region.infer(base, *operands, **attributes).shape
        if tuple(value.shape) != part:
            raise RuntimeError(
                f"{title}(): expected src to have the shape of the slice of self, {list(part)}, got {list(value.shape)}"
            )
        return base

    @custom(Kind.MOVEMENT, rule, name=name, samples=samples, region=region, element=element)
    def scatter(base: Any, value: Any, *operands: Any, **attributes: Any) -> Any:
        """A copy of `base` in which a part has the contents of `value`."""
        out = np.array(base)
        region.evaluate(out, *operands, **attributes)[...] = value
        return out

    @scatter.vjp(saves="2:")
    def _(c: Any, g: Any) -> Any:
        numbers = c.inputs[2:]
        zeros = full.beside(g, 0.0, shape=c.avals[1].shape, dtype=c.avals[1].dtype)
        gbase = scatter.of(g, zeros, *numbers, **c.attributes) if c.needs[0] else None
        return gbase, region.of(g, *numbers, **c.attributes) if c.needs[1] else None, *(None for _ in numbers)

    @region.vjp(saves="1:")
    def _(c: Any, g: Any) -> Any:
        x, numbers = c.avals[0], c.inputs[1:]
        return scatter.of(full.beside(g, 0.0, shape=x.shape, dtype=x.dtype), g, *numbers, **c.attributes), *(
            None for _ in numbers
        )

    return scatter


slice_scatter = scatter_of(
    slice_,
    cases(
        (floats(7), floats(3, seed=1), {"dim": 0, "start": 1, "stop": 6, "step": 2}),
        (floats(2, 4).T, floats(2, 2, seed=1), {"dim": 0, "start": 1, "stop": 3, "step": 1}),
    ),
)


def _require_position(name: str, index: Any) -> None:
    if isinstance(index, Aval) and (index.shape or index.dtype is not int64):
        raise RuntimeError(f"{name}(): expected a number or a tensor int64 without dimensions, got {index}")


def _select_rule(x: Aval, index: Any, dim: int) -> Aval:
    _require_position("select", index)
    return Aval(x.shape[:dim] + x.shape[dim + 1 :], x.dtype)


def _position(b: Any, index: Any, size: int) -> Any:
    """The position that a view is given, as a number, or as a tensor where the program itself computes it."""
    return b.position(index[()] if hasattr(index, "shape") else index, size)


@view(
    _select_rule,
    lambda b, at, x, index, dim: x[(*at[:dim], _position(b, index, x.shape[dim]), *at[dim:])],
    traits=("one position", "position operand"),
    samples=cases(
        (floats(4), 2, {"dim": 0}),
        (floats(2, 3).T, 1, {"dim": 1}),
        (floats(0, 2), 1, {"dim": 1}),
        (floats(3, 2), integers(high=3), {"dim": 0}),
    ),
)
def select(x: Any, index: Any, dim: int) -> Any:
    """The slice at `index` (0 <= index < size) of `dim`, without that dimension.  index: a number, or a tensor int64 without dimensions."""
    return x[(slice(None),) * dim + (operator.index(index), ...)] if dim else x[operator.index(index), ...]


def _selected(b: Any, at: Any, base: Any, value: Any, index: Any, dim: int) -> Any:
    position = b.coordinate(_position(b, index, base.shape[dim]))
    before, there = base[at], value[(*at[:dim], *at[dim + 1 :])]
    return b.select(b.eq(b.coordinate(at[dim]), position), there, before)


select_scatter = scatter_of(
    select,
    cases(
        (floats(4), floats(), 2, {"dim": 0}),
        (floats(2, 3).T, floats(3, seed=1), 1, {"dim": 1}),
        (floats(3, 2), floats(2, seed=1), integers(high=3), {"dim": 0}),
    ),
    element=_selected,
)


def _dynamic_slice_rule(x: Aval, start: Any, dim: int, length: int) -> Aval:
    _require_position("dynamic_slice", start)
    if not 1 <= length <= x.shape[dim]:
        raise RuntimeError(
            f"dynamic_slice(): expected a length from 1 to {x.shape[dim]}, the size of dimension {dim}, got {length}"
        )
    return Aval((*x.shape[:dim], length, *x.shape[dim + 1 :]), x.dtype)


def _first(b: Any, start: Any, size: int, length: int) -> Any:
    """The position in a dimension of the first of `length` elements, all of which are in it."""
    return _position(b, start, size - length + 1)


@view(
    _dynamic_slice_rule,
    lambda b, at, x, start, dim, length: x[(*at[:dim], at[dim] + _first(b, start, x.shape[dim], length), *at[dim + 1 :])],
    traits=("position operand",),
    samples=cases(
        (floats(7), 2, {"dim": 0, "length": 3}),
        (floats(2, 4).T, 1, {"dim": 0, "length": 2}),
        (floats(3, 2), 0, {"dim": 1, "length": 2}),
        (floats(2, 5), integers(high=4), {"dim": 1, "length": 2}),
        (floats(1, 3), integers(high=1), {"dim": 0, "length": 1}),
    ),
)
def dynamic_slice(x: Any, start: Any, dim: int, length: int) -> Any:
    """Elements start, start + 1, ..., start + length - 1 along `dim`; 0 <= start <= size - length, length >= 1.  start: a number, or a
    tensor int64 without dimensions.  It is `slice` with its position as an operand, so that a recording holds for every position."""
    first = operator.index(start)
    return x[(slice(None),) * dim + (slice(first, first + length),)]


dynamic_slice.named("SliceBackward0")


def _put_at(b: Any, at: Any, base: Any, value: Any, start: Any, dim: int, length: int) -> Any:
    first = _first(b, start, base.shape[dim], length)
    outside, there = b.bounded(at[dim] + first * -1, length)
    return b.select(outside, base[at], value[(*at[:dim], there, *at[dim + 1 :])])


dynamic_slice_scatter = scatter_of(
    dynamic_slice,
    cases(
        (floats(7), floats(3, seed=1), 2, {"dim": 0, "length": 3}),
        (floats(2, 4).T, floats(2, 2, seed=1), 1, {"dim": 0, "length": 2}),
        (floats(2, 5), floats(2, 2, seed=1), integers(high=4), {"dim": 1, "length": 2}),
        (floats(1, 3), floats(1, 3, seed=1), integers(high=1), {"dim": 0, "length": 1}),
    ),
    element=_put_at,
    title="slice_scatter",
)


def _diagonal_rule(x: Aval, offset: int, dim1: int, dim2: int) -> Aval:
    rows, columns = x.shape[dim1], x.shape[dim2]
    length = max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))
    return Aval((*(s for i, s in enumerate(x.shape) if i not in (dim1, dim2)), length), x.dtype)


def _diagonal_element(b: Any, at: Any, x: Any, offset: int, dim1: int, dim2: int) -> Any:
    rest, last = iter(at[:-1]), at[-1]
    there = {dim1: last + max(-offset, 0), dim2: last + max(offset, 0)}
    return x[[there[d] if d in there else next(rest) for d in range(len(x.shape))]]


@view(
    _diagonal_rule,
    _diagonal_element,
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


diagonal_scatter = scatter_of(
    diagonal,
    cases(
        (floats(3, 4), floats(3, seed=1), {"offset": 1, "dim1": 0, "dim2": 1}),
        (floats(2, 3, 4), floats(3, 2, seed=1), {"offset": -1, "dim1": 2, "dim2": 0}),
    ),
)


def _unfold_rule(x: Aval, dim: int, size: int, step: int, dilation: int) -> Aval:
    count = (x.shape[dim] - dilation * (size - 1) - 1) // step + 1 if size else x.shape[dim] // step + 1
    return Aval((*x.shape[:dim], count, *x.shape[dim + 1 :], size), x.dtype)


@view(
    _unfold_rule,
    lambda b, at, x, dim, size, step, dilation: x[(*at[:dim], at[dim] * step + at[-1] * dilation, *at[dim + 1 : -1])],
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
                f"fold(): {shape[dim]} windows of {size} elements reach over {reach} positions of dimension {dim}; expected at most its "
                f"length, {length}"
            )
        shape[dim] = length
    return Aval(tuple(shape), x.dtype)


@custom(
    Kind.SCATTER,
    _fold_rule,
    nest="windows",
    samples=cases(
        (floats(3, 3), {"dims": (0,), "lengths": (7,), "steps": (2,), "dilations": (1,)}),
        (floats(2, 2, 3).T, {"dims": (0,), "lengths": (6,), "steps": (1,), "dilations": (2,)}),
        (floats(2, 3, 2, 3, 2), {"dims": (1, 2), "lengths": (7, 5), "steps": (1, 2), "dilations": (2, 1)}),
    ),
)  # fmt: skip
def fold(x: Any, dims: Shape, lengths: Shape, steps: Shape, dilations: Shape) -> Any:
    """The adjoint of unfold, for several dimensions at once: windows added up at their positions in dimensions of size `lengths`.  The
    windows' elements are the last dimensions, in the order of `dims`."""
    rank = x.ndim - len(dims)
    out = np.zeros(_fold_rule(Aval(x.shape, from_numpy_dtype(x.dtype)), dims, lengths, steps, dilations).shape, x.dtype)
    if 0 in x.shape:
        return out
    for at in np.ndindex(x.shape[rank:]):
        position = [slice(None)] * rank
        for dim, k, step, dilation in zip(dims, at, steps, dilations, strict=True):
            position[dim] = slice(k * dilation, k * dilation + step * (x.shape[dim] - 1) + 1, step)
        out[tuple(position)] += x[(..., *at)]
    return out


@fold.simplified
def _(s: Any, x: Any, **outer: Shape) -> Any:
    """Windows over one dimension whose elements are added up after those over another one: both at once."""
    return s(fold, *x.operands, **{key: outer[key] + inner for key, inner in x.attributes.items()}) if x.op is fold else None


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


@view(
    lambda x: x,
    lambda b, at, x: x[at],
    undone=lambda before: {},
    simpler=lambda s, x: x,
    samples=cases((floats(3),), (floats(2, 3).T,)),
    traits=("not differentiable",),
)
def detach(x: Any) -> Any:
    """The same memory, outside the graph of gradients."""
    return x[...]
