"""Gathers and scatters: reading and writing at positions given by integer tensors.

NumPy assigns and adds more than PyTorch allows: shapes that broadcast, dtypes that it converts.  Shape rules refuse that, so evaluations
ask them first.  They check positions in a copy of their own, and use that: NumPy checks all positions before it uses them, so if another
thread wrote to them in between, it would read or write outside its arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracejit.core.aval import UNKNOWN, Aval
from tracejit.core.dtypes import FROM_NUMPY, int64
from tracejit.core.kernels import repaying
from tracejit.core.op import Kind
from tracejit.core.shapes import Dim, broadcast_shapes, product, require_broadcast
from tracejit.core.symbolic import concretise_sizes
from tracejit.core.unbroadcast import sum_to
from tracejit.ops.creation import ArrayConstant, constant, full
from tracejit.ops.declare import custom, require_one_dtype
from tracejit.ops.movement.copies import pad
from tracejit.ops.movement.views import select
from tracejit.ops.samples import cases, floats, integers

__all__ = ["gather", "index_add", "index_select", "occurrences", "row_indices", "scatter", "scatter_add"]


def constant_index(positions: list[Any]) -> Any:
    """An int64 (or bool mask as positions) index tensor made from a list in a key."""
    array = np.asarray(concretise_sizes(positions)) if positions else np.zeros(0, np.int64)
    if array.dtype == np.bool_:
        (array,) = array.ravel().nonzero()
    if array.dtype.kind not in "iu":
        raise IndexError(f"lists used as indices must hold integers or bools, got {positions!r}")
    return constant(array=ArrayConstant(array.astype(np.int64)))


def constant_key(array: np.ndarray[Any, Any]) -> Any:
    """What an array in a key stands for: a number, positions (int64), or a mask, which bytes are too, as in PyTorch.

    Raises IndexError for numbers that are no integers."""
    kind = array.dtype.kind
    if kind == "f" and array.size and (np.trunc(array) == array).all():
        array, kind = array.astype(np.int64), "i"
    if kind not in "biu" and array.size:
        raise IndexError(f"arrays used as indices must hold integers or bools, got dtype {array.dtype}")
    if not array.ndim:
        return array.item()
    mask = array.dtype in (np.bool_, np.uint8)
    return constant(array=ArrayConstant(np.array(array, np.bool_ if mask else np.int64, order="C")))


def constant_value(values: Any) -> Any:
    """What is assigned to items, given as an array or a nested sequence of numbers, as a tensor of its own dtype."""
    array = np.array(concretise_sizes(values), order="C")
    if array.dtype.kind not in "biuf":
        raise TypeError(f"can't assign a {values.__class__.__name__} of {array.dtype} to items of a tensor")
    if array.dtype not in FROM_NUMPY:
        array = array.astype(np.float64 if array.dtype.kind == "f" else np.int64)
    return constant(array=ArrayConstant(array.view(FROM_NUMPY[array.dtype].numpy)))


@custom(
    Kind.OPAQUE,
    lambda x: Aval((UNKNOWN, x.ndim), int64),
    traits=("dynamic shape", "not differentiable", "quiet"),
    samples=cases((integers(4),), (integers(2, 3).T,), (integers(0, 2),)),
)
def nonzero(x: Any) -> Any:
    """Positions of nonzero elements, int64, of shape (count, ndim), in row-major order."""
    return np.stack(x.nonzero(), 1) if x.ndim else np.zeros((int(bool(x)), 0), np.int64)


@custom(
    Kind.OPAQUE,
    lambda inside: Aval((UNKNOWN,), int64),
    traits=("dynamic shape", "not differentiable", "quiet"),
    samples=cases((integers(5, high=2).astype(bool),), (np.zeros(3, bool),)),
)
def row_indices(inside: Any) -> Any:
    """Positions where a vector of bools is true, int64: in recordings, of rows whose number nothing has looked at yet."""
    return inside.nonzero()[0]


@custom(
    Kind.OPAQUE,
    lambda x, minlength: Aval((UNKNOWN,), int64),
    traits=("dynamic shape", "raises", "not differentiable"),
    samples=cases((integers(5, high=4), {"minlength": 0}), (integers(0), {"minlength": 3})),
)
def occurrences(x: Any, minlength: int) -> Any:
    """How often each of 0, 1, ... up to the greatest occurs in a vector of integers; at least minlength numbers.  Raises RuntimeError for
    negative integers."""
    own = np.array(x, np.int64)
    if own.size and np.minimum.reduce(own) < 0:
        raise RuntimeError("bincount(): only supports 1-d non-negative integral inputs")
    return np.bincount(own, minlength=minlength)


def nonzero_tuple(mask: Any) -> tuple[Any, ...]:
    """One vector of positions per dimension of `mask`."""
    positions = nonzero(mask)
    return tuple(select(positions, i, dim=1) for i in range(mask.ndim))


def _key(ndim: int, dims: tuple[int, ...], indices: tuple[Any, ...]) -> tuple[Any, ...]:
    key: list[Any] = [slice(None)] * ndim
    for d, i in zip(dims, indices, strict=True):
        key[d] = i
    return tuple(key)


def _wrap(name: str, x: Any, dims: tuple[int, ...], indices: tuple[Any, ...]) -> tuple[Any, ...]:
    """The positions in `indices`, of which negative ones count from the end, in memory that nobody else knows."""
    own = tuple([np.array(i) for i in indices])
    for d, i in zip(dims, own, strict=True):
        size = x.shape[d]
        if i.size and (i.min() < -size or i.max() >= size):
            bad = i[(i < -size) | (i >= size)].flat[0]
            raise IndexError(f"{name}(): index {bad} is out of bounds for dimension {d} with size {size}")
    return own


def _selected(x: Any, indices: tuple[Any, ...], dims: tuple[int, ...]) -> tuple[Dim, ...]:
    """The shape of what `indices` select."""
    block = broadcast_shapes("index", *(i.shape for i in indices))
    rest = [s for d, s in enumerate(x.shape) if d not in dims]
    adjacent = dims == tuple(range(dims[0], dims[0] + len(dims)))
    at = dims[0] if adjacent else 0
    return (*rest[:at], *block, *rest[at:])


def _index_rule(x: Aval, *indices: Aval, dims: tuple[int, ...]) -> Aval:
    return Aval(_selected(x, indices, dims), x.dtype)


def _index_element(b: Any, at: Any, x: Any, *indices: Any, dims: tuple[int, ...]) -> Any:
    rank = max(len(i.shape) for i in indices)
    start = dims[0] if dims == tuple(range(dims[0], dims[0] + len(dims))) else 0
    block, rest = at[start : start + rank], iter((*at[:start], *at[start + rank :]))
    own = {}
    for d, i in zip(dims, indices, strict=True):
        broadcast = zip(block[rank - len(i.shape) :], i.shape, strict=True)
        own[d] = b.position(i[[0 if s == 1 else p for p, s in broadcast]], x.shape[d], wraps=True)
    return x[[own[d] if d in own else next(rest) for d in range(len(x.shape))]]


def _has_rank(x: Aval, *indices: Any, **attributes: Any) -> bool:
    return x.ndim > 0


@custom(
    Kind.GATHER,
    _index_rule,
    element=_index_element,
    where=_has_rank,
    traits=("raises",),
    samples=cases(
        (floats(4), integers(3, low=-4), {"dims": (0,)}),
        (floats(2, 3, 2).T, integers(2, 1), integers(3, low=-2, high=2), {"dims": (1, 2)}),
        (floats(3, 2, 3), integers(2), integers(2, seed=1), {"dims": (0, 2)}), (floats(3, 2), integers(0), {"dims": (0,)}),
    ),
)  # fmt: skip
def index(x: Any, *indices: Any, dims: tuple[int, ...]) -> Any:
    """Advanced indexing: integer tensors, broadcast together, index the dimensions `dims` (negative positions count from the end); the
    other dimensions are kept whole.  The broadcast block stands where the indexed dimensions were if they are adjacent, else first."""
    return x[_key(x.ndim, dims, _wrap("index", x, dims, indices))]


@index.vjp(saves="1:")
def _(c: Any, g: Any) -> Any:
    x, n = c.avals[0], len(c.inputs)
    zeros = full.beside(g, 0.0, shape=x.shape, dtype=x.dtype)
    return (index_put.of(zeros, g, *c.inputs[1:], dims=c.attributes["dims"], accumulate=True), *(None,) * (n - 1))


def _index_put_rule(base: Aval, value: Aval, *indices: Aval, dims: tuple[int, ...], accumulate: bool) -> Aval:
    require_one_dtype("index_put", base, value)
    require_broadcast("index_put", value.shape, _selected(base, indices, dims))
    return base


@custom(
    Kind.SCATTER,
    _index_put_rule,
    region=index,
    traits=("raises",),
    samples=cases(
        (floats(4), floats(3, seed=1), np.array([2, -4, 1]), {"dims": (0,), "accumulate": False}),
        (floats(2, 3).T, floats(2, seed=1), np.array([[1, 1], [0, 2]]), {"dims": (0,), "accumulate": True}),
        (floats(3, 2), floats(seed=1), np.array([0, 2]), np.array([1, 1]), {"dims": (0, 1), "accumulate": False}),
    ),
)
def index_put(base: Any, value: Any, *indices: Any, dims: tuple[int, ...], accumulate: bool) -> Any:
    """A copy of `base` with base[..., indices, ...] = value, or += value for `accumulate`; of equal positions the last one wins."""
    _index_put_rule(base, value, *indices, dims=dims, accumulate=accumulate)
    out = np.array(base, order="C")
    key = _key(out.ndim, dims, _wrap("index_put", out, dims, indices))
    if accumulate:
        np.add.at(out, key, value)
    else:
        out[key] = value
    return out


@index_put.vjp(saves="2:")
def _(c: Any, g: Any) -> Any:
    indices, dims = c.inputs[2:], c.attributes["dims"]
    gbase = gvalue = None
    if c.needs[0]:
        zero = full.beside(g, 0.0, shape=(), dtype=c.avals[0].dtype)
        gbase = g if c.attributes["accumulate"] else index_put.of(g, zero, *indices, dims=dims, accumulate=False)
    if c.needs[1]:
        gvalue = sum_to(index.of(g, *indices, dims=dims), c.avals[1].shape)
    return (gbase, gvalue, *(None,) * len(indices))


_INT64 = np.dtype(np.int64)


def in_range(name: str, index: Any, size: int) -> Any:
    """The positions in `index`, in memory that nobody else knows."""
    own = np.array(index, order="C")
    unsigned = own.view(np.uint64) if own.dtype is _INT64 else own  # beyond any size where it is negative
    if own.size and (np.maximum.reduce(unsigned, None) >= size or (unsigned is own and np.minimum.reduce(own, None) < 0)):
        bad = own[(own < 0) | (own >= size)].flat[0]
        raise IndexError(f"{name}(): index {bad} is out of range for a dimension of size {size}; expected 0 <= index < {size}")
    return own


def along(index: Any, dim: int) -> tuple[Any, ...]:
    """An open mesh that addresses, for each element of `index`, its own position but along `dim`."""
    n = index.ndim
    if n == 1:
        return (index,)
    mesh = [np.arange(s).reshape([s if k == d else 1 for k in range(n)]) for d, s in enumerate(index.shape)]
    mesh[dim] = index
    return tuple(mesh)


def _moved_elements(form: str, x: Any, index: Any, y: Any, dim: int) -> bool:
    """Have a kernel read elements of `x` at the positions `index` along `dim` into `y`, or write or add those of `y` there.  False where
    NumPy is to do it, or to say which position is out of range: then `x`, or what is read, is undefined."""
    if index.dtype is not _INT64 or y.shape != index.shape or x.dtype.itemsize < 4 or x.dtype.kind == "c":
        return False
    run = repaying(form, FROM_NUMPY[x.dtype], 5.0 + 0.01 * index.size)
    if run is None or (*x.shape[:dim], index.shape[dim], *x.shape[dim + 1 :]) != index.shape:
        return False
    count, size, width, outer = index.shape[dim], x.shape[dim], product(x.shape[dim + 1 :]), product(x.shape[:dim])
    return not run(x, np.ascontiguousarray(index), y, outer, count, width, size, width * size, width * count)


def _index_select_element(b: Any, at: Any, x: Any, index: Any, dim: int) -> Any:
    after = dim + len(index.shape)
    return x[(*at[:dim], b.position(index[at[dim:after]], x.shape[dim]), *at[after:])]


@custom(
    Kind.GATHER,
    lambda x, index, dim: Aval(x.shape[:dim] + index.shape + x.shape[dim + 1 :], x.dtype),
    element=_index_select_element,
    traits=("raises",),
    samples=cases(
        (floats(4), integers(6, high=4), {"dim": 0}),
        (floats(2, 3).T, integers(2, 2, high=2), {"dim": 1}),
        (floats(3, 2), integers(0), {"dim": 0}),
    ),
)
def index_select(x: Any, index: Any, dim: int) -> Any:
    """Slices of `x` along `dim` at the positions in `index`, whose shape replaces that dimension.  Raises IndexError outside [0, size)."""
    return x.take(in_range("index_select", index, x.shape[dim]), axis=dim)


index_select.named(lambda node: "IndexSelectBackward0" if len(node.meta[1][0]) == 1 else "EmbeddingBackward0")


@index_select.vjp(saves="1")
def _(c: Any, g: Any) -> Any:
    x = c.avals[0]
    return index_add.of(full.beside(g, 0.0, shape=x.shape, dtype=x.dtype), c.inputs[1], g, dim=c.attributes["dim"]), None


def _index_add_rule(base: Aval, index: Aval, src: Aval, dim: int) -> Aval:
    require_one_dtype("index_add", base, src)
    region = base.shape[:dim] + index.shape + base.shape[dim + 1 :]
    if src.shape != region:
        raise RuntimeError(
            f"index_add(): expected source to have the shape of the slices that index names, {list(region)}, got {list(src.shape)}"
        )
    return base


@custom(
    Kind.SCATTER,
    _index_add_rule,
    region=index_select,
    source=2,
    traits=("raises", "adds"),
    samples=cases(
        (floats(4), integers(3, high=4), floats(3, seed=1), {"dim": 0}),
        (floats(2, 3).T, integers(2, 2, high=2), floats(3, 2, 2, seed=1), {"dim": 1}),
    ),
)
def index_add(base: Any, index: Any, src: Any, dim: int) -> Any:
    """A copy of `base` to which the slices of `src` are added at the positions in `index` along `dim` (the inverse of index_select)."""
    _index_add_rule(base, index, src, dim)
    out, size = np.array(base, order="C"), base.shape[dim]
    run = repaying("added slices", FROM_NUMPY[out.dtype], 5.0 + 0.01 * src.size) if out.dtype.itemsize > 2 else None
    if run is not None and index.dtype is _INT64:
        count, width, outer = index.size, product(base.shape[dim + 1 :]), product(base.shape[:dim])
        positions, values = np.ascontiguousarray(index), np.ascontiguousarray(src)
        if not run(out, positions, values, outer, count, width, size, width * size, width * count):
            return out
        out = np.array(base, order="C")
    np.add.at(out, (slice(None),) * dim + (in_range("index_add", index, size),), src)
    return out


@index_add.vjp(saves="1")
def _(c: Any, g: Any) -> Any:
    return (
        g if c.needs[0] else None,
        None,
        index_select.of(g, c.inputs[1], dim=c.attributes["dim"]) if c.needs[2] else None,
    )


def _require_no_larger(name: str, index: Aval, other: Aval, dim: int | None, what: str) -> None:
    """Raise RuntimeError unless `index` has the rank of `other` and is not larger, but along `dim`."""
    sizes = zip(index.shape, other.shape, strict=False)
    if index.ndim != other.ndim or any(d != dim and s > t for d, (s, t) in enumerate(sizes)):  # along `dim` nothing is asked
        apart = "" if dim is None else f" apart from dimension {dim}"
        raise RuntimeError(
            f"{name}(): expected index, of shape {list(index.shape)}, to be no larger than {what}, {list(other.shape)}{apart}"
        )


def _gather_rule(x: Aval, index: Aval, dim: int) -> Aval:
    if x.ndim:
        _require_no_larger("gather", index, x, dim, "self")
    return Aval(index.shape, x.dtype)


@custom(
    Kind.GATHER,
    _gather_rule,
    element=lambda b, at, x, index, dim: x[(*at[:dim], b.position(index[at], x.shape[dim]), *at[dim + 1 :])],
    where=_has_rank,
    traits=("raises",),
    samples=cases(
        (floats(4), integers(6, high=4), {"dim": 0}), (floats(2, 3).T, integers(3, 4, high=2), {"dim": 1}),
        (floats(3, 2), integers(1, 2), {"dim": 0}),
        (floats(), integers(high=1), {"dim": 0}), (floats(3, 2), integers(0, 2), {"dim": 0}),
    ),
)  # fmt: skip
def gather(x: Any, index: Any, dim: int) -> Any:
    """out[i][j][k] = x[i][index[i][j][k]][k] for dim=1, and likewise for others.  Raises IndexError outside [0, size)."""
    if x.ndim == 0:
        return np.broadcast_to(x, in_range("gather", index, 1).shape).copy()
    _require_no_larger("gather", index, x, dim, "self")
    out = np.empty(index.shape, x.dtype)
    if _moved_elements("read elements", np.ascontiguousarray(x), index, out, dim):
        return out
    return x[along(in_range("gather", index, x.shape[dim]), dim)]


@gather.vjp(saves="1")
def _(c: Any, g: Any) -> Any:
    x = c.avals[0]
    return scatter_add.of(full.beside(g, 0.0, shape=x.shape, dtype=x.dtype), c.inputs[1], g, dim=c.attributes["dim"]), None


def scatter_rule(base: Aval, index: Aval, src: Aval, dim: int, name: str = "scatter") -> Aval:
    require_one_dtype(name, base, src)
    if base.ndim:
        _require_no_larger(name, index, src, None, "src")
        _require_no_larger(name, index, base, dim, "self")
    return base


def _one_hot(base: Any, index: Any, src: Any, dim: int) -> bool:
    """One position per line along `dim`: a comparison with the coordinate."""
    line = (*base.shape[:dim], 1, *base.shape[dim + 1 :])
    return isinstance(src, Aval) and base.ndim > 0 and line == index.shape == src.shape


def _where_hot(change: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """An element of a copy in which those at the positions of `index` are changed."""

    def element(b: Any, at: Any, base: Any, index: Any, src: Any, dim: int) -> Any:
        line = (*at[:dim], 0, *at[dim + 1 :])
        position = b.coordinate(b.position(index[line], base.shape[dim]))
        before, there = base[at], src[line]
        return b.select(b.eq(b.coordinate(at[dim]), position), change(before, there), before)

    return element


@custom(
    Kind.SCATTER,
    scatter_rule,
    element=_where_hot(lambda before, there: before + there),
    where=_one_hot,
    region=gather,
    source=2,
    traits=("raises", "adds"),
    samples=cases(
        (floats(4), integers(3, high=4), floats(3, seed=1), {"dim": 0}),
        (floats(2, 3).T, integers(3, 4, high=2), floats(3, 4, seed=1), {"dim": 1}),
        (floats(3, 2), integers(1, 2), floats(2, 3, seed=1), {"dim": 0}), (floats(), integers(high=1), floats(seed=1), {"dim": 0}),
        (floats(2, 3).T, np.array([[1], [0], [1]]), floats(3, 1, seed=1), {"dim": 1}),
    ),
)  # fmt: skip
def scatter_add(base: Any, index: Any, src: Any, dim: int) -> Any:
    """A copy of `base` with base[i][index[i][j]] += src[i][j] for dim=1.  Raises IndexError outside [0, size)."""
    scatter_rule(base, index, src, dim, "scatter_add")
    out = np.array(base, order="C")
    if out.ndim == 0:
        in_range("scatter_add", index, 1)
        return out + np.sum(src, dtype=out.dtype)
    if _moved_elements("added elements", out, index, np.ascontiguousarray(src), dim):
        return out
    np.copyto(out, base)
    own = in_range("scatter_add", index, base.shape[dim])
    np.add.at(out, along(own, dim), src[tuple(slice(0, s) for s in own.shape)])
    return out


@scatter_add.vjp(saves="1")
def _(c: Any, g: Any) -> Any:
    gsrc = None
    if c.needs[2]:
        gsrc = gather.of(g, c.inputs[1], dim=c.attributes["dim"])
        gsrc = embed(gsrc, c.avals[2].shape)
    return g if c.needs[0] else None, None, gsrc


def embed(g: Any, shape: tuple[int, ...]) -> Any:
    """Zeros of `shape` with `g` in the low corner: src may be larger than index, the rest of it is not used."""
    if g.shape == shape:
        return g
    return pad.of(g, 0.0, low=(0,) * len(shape), high=tuple(s - t for s, t in zip(shape, g.shape, strict=True)))


@custom(
    Kind.SCATTER,
    scatter_rule,
    element=_where_hot(lambda before, there: there),
    where=_one_hot,
    region=gather,
    source=2,
    traits=("raises", "quiet"),
    samples=cases(
        (floats(4), np.array([3, 0, 1]), floats(3, seed=1), {"dim": 0}),
        (floats(2, 3).T, np.array([[1], [0], [1]]), floats(3, 1, seed=1), {"dim": 1}),
        (floats(3, 2), np.array([[0, 2]]), floats(2, 3, seed=1), {"dim": 0}), (floats(), np.array(0), floats(seed=1), {"dim": 0}),
    ),
)  # fmt: skip
def scatter(base: Any, index: Any, src: Any, dim: int) -> Any:
    """A copy of `base` with base[i][index[i][j]] = src[i][j] for dim=1; of equal positions the last one wins."""
    scatter_rule(base, index, src, dim)
    out = np.array(base, order="C")
    if out.ndim == 0:
        in_range("scatter", index, 1)
        return np.array(src, dtype=out.dtype).reshape(-1)[-1:].reshape(()) if np.size(src) else out
    if _moved_elements("written elements", out, index, np.ascontiguousarray(src), dim):
        return out
    np.copyto(out, base)
    own = in_range("scatter", index, base.shape[dim])
    out[along(own, dim)] = src[tuple(slice(0, s) for s in own.shape)]
    return out


@scatter.vjp(saves="1")
def _(c: Any, g: Any) -> Any:
    index, dim = c.inputs[1], c.attributes["dim"]
    gbase = gsrc = None
    if c.needs[0]:
        gbase = scatter.of(g, index, full.beside(g, 0.0, shape=index.shape, dtype=c.avals[0].dtype), dim=dim)
    if c.needs[2]:
        gsrc = embed(gather.of(g, index, dim=dim), c.avals[2].shape)
    return gbase, None, gsrc
