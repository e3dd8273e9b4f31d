"""Public indexing: x[key], gathers and scatters.

A key is split into its basic part (ints, slices, None, Ellipsis: views) and its advanced part (integer tensors, masks, lists:
copies).  Masks become positions through `nonzero`, whose shape depends on data.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.core import dtypes
from tracejit.core.aval import Aval
from tracejit.core.interpreter import state
from tracejit.core.interrupts import is_foreign
from tracejit.core.numbers import plain_number, settled
from tracejit.core.recorded_number import RecordedNumber
from tracejit.core.shapes import broadcast_shapes, normalise_dim, product, slice_of
from tracejit.ops import indexing
from tracejit.ops.creation import full
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.ops.elementwise.comparison import where
from tracejit.ops.movement import copies, views
from tracejit.ops.public.derive import public
from tracejit.ops.public.elementwise import scaled
from tracejit.ops.public.movement import reshape


def is_tensor(x: Any) -> bool:
    """Whether a key item is a tensor (real or abstract)."""
    return hasattr(x, "dtype") and hasattr(x, "ndim") and not isinstance(x, np.generic | np.ndarray)


def aval_of(x: Any) -> Aval:
    """Shape and dtype of a tensor (real or abstract)."""
    return Aval(x._sizes, x.dtype)


def _expand_ellipsis(key: tuple[Any, ...], ndim: int) -> tuple[Any, ...]:
    used = sum(
        0
        if k is None or k is Ellipsis or isinstance(k, bool | np.bool_)
        else (k.ndim if is_tensor(k) and k.dtype is dtypes.bool_ else 1)
        for k in key
    )
    if used > ndim:
        raise IndexError(f"too many indices for tensor of dimension {ndim}: got {used}")
    positions = [i for i, k in enumerate(key) if k is Ellipsis]
    if len(positions) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    fill = (slice(None),) * (ndim - used)
    if positions:
        i = positions[0]
        return key[:i] + fill + key[i + 1 :]
    return key + fill


def split_key(x: Any, key: Any) -> tuple[Any, list[tuple[int, Any]]]:
    """(view by the basic part, [(dimension of the view, index tensor), ...])."""
    items = key if isinstance(key, tuple) else (key,)
    if not _PLAIN_ITEMS.issuperset(map(type, items)):
        items = tuple(map(_item, items))
    if len(items) > x.ndim or not _ONE_DIMENSION.issuperset(map(type, items)):
        items = _expand_ellipsis(items, x.ndim)
    dim = 0
    advanced: list[tuple[int, Any]] = []
    for k in items:
        if isinstance(k, slice):
            if k != _ALL:
                x = _slice(x, k, dim)
            dim += 1
        elif k is None:
            x = views.reshape(x, shape=(*x.shape[:dim], 1, *x.shape[dim:]))
            dim += 1
        elif isinstance(k, bool | np.bool_):
            x = views.reshape(x, shape=(*x.shape[:dim], 1, *x.shape[dim:]))
            advanced.append((dim, indexing.constant_index([0] if k else [])))
            dim += 1
        elif is_tensor(k):
            if k.dtype is dtypes.bool_ and k.ndim == 0:  # a mask of no dimensions: one is put in front of what it masks
                x = views.reshape(x, shape=(*x.shape[:dim], 1, *x.shape[dim:]))
                advanced.append((dim, indexing.nonzero_tuple(views.reshape(k, shape=(1,)))[0]))
                dim += 1
            elif k.dtype is dtypes.bool_:
                if k.shape != x.shape[dim : dim + k.ndim]:
                    raise IndexError(
                        f"the shape of the mask {list(k.shape)} at dimension {dim} does not match the indexed tensor's {list(x.shape)}"
                    )
                for position in indexing.nonzero_tuple(k):
                    advanced.append((dim, position))
                    dim += 1
            elif k.dtype not in _INDEX_DTYPES:
                raise IndexError(f"tensors used as indices must be long, int, byte or bool tensors, got {k.dtype.name}")
            elif k.ndim == 0:
                x = _select(x, k.item(), dim)
            else:
                advanced.append((dim, k))
                dim += 1
        elif isinstance(k, list | tuple | range):
            advanced.append((dim, indexing.constant_index(list(k))))
            dim += 1
        else:
            x = _select(x, _position(k), dim)
    return x, advanced


def _slice(x: Any, key: slice, dim: int) -> Any:
    if type(key.start) not in _PLAIN_BOUNDS and (part := state.top.varying_slice(x, dim, key.start, key.stop)) is not None:
        x = views.dynamic_slice(x, part[0], dim=dim, length=part[1])
        if key.step is None or key.step == 1:
            return x
        key = slice(None, None, key.step)
    start, stop, step = slice_of(key, x._sizes[dim])
    if step < 1:
        raise ValueError(f"slice step must be positive, got {key.step}; use flip() for a reversed copy")
    stop = start if start > stop else stop
    return state.top.bind(views.slice_, (x,), {"dim": dim, "start": start, "stop": stop, "step": step})


def _position(k: Any) -> int:
    """The position that an index stands for.  Raises TypeError for what is no integer; a number that is being recorded says so itself."""
    if type(k) is int or (isinstance(k, RecordedNumber) and k.__class__ is int):
        return settled(k)  # type: ignore[no-any-return]
    try:
        return k.__index__()  # type: ignore[no-any-return]
    except (AttributeError, TypeError) as error:
        if is_foreign(error):
            raise
        raise _no_index(k) from None


_ALL = slice(None)
_PLAIN_BOUNDS = (int, type(None))
_PLAIN_ITEMS = frozenset((int, slice, type(None), type(Ellipsis)))
_ONE_DIMENSION = frozenset((int, slice))
"""Kinds of items that each stand for a dimension: behind the last of them the others are whole."""
_INDEX_DTYPES = (dtypes.bool_, dtypes.int32, dtypes.int64)


def _no_index(k: Any) -> Exception:
    kind = IndexError if isinstance(k, float) or plain_number(k) is not None else TypeError
    return kind(
        f"indices must be integers, slices, None, Ellipsis, lists, arrays or tensors, got {k!r} of type {k.__class__.__name__}"
    )


def _item(k: Any) -> Any:
    """An item of a key with NumPy's numbers and arrays, and bytes used as masks, as what they stand for."""
    kind = type(k)
    if kind is int or kind is slice or k is None or k is Ellipsis:
        return k
    if isinstance(k, np.ndarray):
        return indexing.constant_key(k)
    if isinstance(k, np.generic):
        return settled(k)
    if is_tensor(k) and k.dtype is dtypes.uint8:
        return k != 0
    return k


def _numbers(values: Any) -> Any:
    """Nested sequences with numbers in the place of tensors."""
    if isinstance(values, list | tuple):
        return [_numbers(v) for v in values]
    return values.tolist() if is_tensor(values) else values


def _several(key: Any) -> Any:
    """A key that is a list as PyTorch reads it: as a tuple if it holds sequences, slices, None or tensors, else as one index."""
    kinds = (list, tuple, slice, range, np.ndarray)
    several = any(isinstance(k, kinds) or k is None or k is Ellipsis or is_tensor(k) for k in key)
    return tuple(key) if several and len(key) < 32 else key


def _select(x: Any, index: int, dim: int) -> Any:
    size = x._sizes[dim]
    if not 0 <= index < size:  # each comparison is asked of later calls, too, where the program computes the index
        if not -size <= index < 0:
            raise IndexError(f"index {index} is out of bounds for dimension {dim} with size {size}")
        index += size
    return state.top.bind(views.select, (x, index), {"dim": dim})


def getitem(x: Any, key: Any) -> Any:
    """x[key]: a view for a basic key, a copy where tensors, arrays, masks or lists take part."""
    kind = type(key)
    if kind is int and x.ndim:
        return _select(x, key, 0)
    if kind is slice and x.ndim:
        return _slice(x, key, 0)
    if kind is list:
        key = _several(key)
    if (
        x.ndim == 0
        and key not in ((), Ellipsis, None)
        and not isinstance(key, tuple)
        and not is_tensor(key)
        and not isinstance(key, bool | np.bool_)
    ):
        raise IndexError("invalid index of a 0-dim tensor; use tensor.item() to get a Python number")
    out, advanced = split_key(x, key)
    if advanced:
        return indexing.index(out, *(i for _, i in advanced), dims=tuple(d for d, _ in advanced))
    return (
        views.slice_(out, dim=0, start=0, stop=out.shape[0], step=1)
        if out is x and x.ndim
        else (views.reshape(x, shape=()) if out is x else out)
    )


def setitem(x: Any, key: Any, value: Any, write: Any, replace: Any) -> None:
    """x[key] = value; `write(target, value)` changes memory to what was computed from it, `replace(target, value)` to something else."""
    if isinstance(key, np.ndarray):
        key = indexing.constant_key(key)
    elif type(key) is list:
        key = _several(key)
    if isinstance(value, np.ndarray | list | tuple):
        value = indexing.constant_value(_numbers(value))
    if is_tensor(key) and key.dtype is dtypes.bool_ and key.shape == x.shape and (not is_tensor(value) or value.ndim == 0):
        return write(x, where(key, value, x))
    target, advanced = split_key(x, key)
    if advanced:
        indices, dims = tuple(i for _, i in advanced), tuple(d for d, _ in advanced)
        if not is_tensor(value):
            value = full(value, shape=(), dtype=x.dtype)
        elif value.dtype is not x.dtype:
            value = cast(value, dtype=x.dtype)
        if value.ndim > 1:
            value = _without_leading_ones(value, target.ndim - len(dims) + max(i.ndim for i in indices))
        return write(target, indexing.index_put(target, value, *indices, dims=dims, accumulate=False))
    return replace(target, _without_leading_ones(value, target.ndim) if is_tensor(value) else value)


def _without_leading_ones(value: Any, rank: int) -> Any:
    """A value that is assigned to what has `rank` dimensions: as in NumPy, more of them do not matter if they are of size 1."""
    more = value.ndim - rank
    if more <= 0 or any(s != 1 for s in value.shape[:more]):
        return value
    return views.reshape(value, shape=tuple(value.shape[more:]))


@public()
def gather(input: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Any:
    """out[i][j][k] = input[i][index[i][j][k]][k] for dim=1, and likewise.  Raises IndexError for positions outside [0, size).

    Gradients are dense, whatever sparse_grad says."""
    index = _integer("gather", index)
    _same_rank("gather", input, index)
    at = normalise_dim("gather", dim, input.ndim)
    if input.ndim and not index.ndim:
        return views.reshape(indexing.gather(input, views.reshape(index, shape=(1,)), dim=at), shape=())
    if index.ndim != input.ndim and 0 in index.shape:  # PyTorch lets an empty index have any rank
        return views.reshape(views.slice_(reshape(input, -1), dim=0, start=0, stop=0, step=1), shape=index._sizes)
    return indexing.gather(input, index, dim=at)


@public(in_place=True)
def scatter_add(input: Any, dim: int, index: Any, src: Any) -> Any:
    """A copy of `input` with input[i][index[i][j]] += src[i][j] for dim=1.  Raises IndexError for positions outside [0, size)."""
    index = _integer("scatter_add", index)
    _same_rank("scatter_add", input, index)
    if index.ndim != input.ndim and 0 in index.shape:
        return copies.clone(input)
    at = normalise_dim("scatter_add", dim, input.ndim)
    return indexing.scatter_add(input, *_of_one_rank(input, index, src), dim=at)


@public(in_place=True)
def scatter(input: Any, dim: int, index: Any, src: Any = None, *, value: Any = None, reduce: str | None = None) -> Any:
    """A copy of `input` with input[i][index[i][j]] = src[i][j] (or a number) for dim=1; added instead for reduce="add"."""
    if reduce not in (None, "add"):
        raise NotImplementedError(f"scatter(): reduce={reduce!r} is not supported; use 'add'")
    index = _integer("scatter", index)
    _same_rank("scatter", input, index)
    if index.ndim != input.ndim and 0 in index.shape:
        return copies.clone(input)
    source = value if src is None else src
    if source is None:
        raise TypeError("scatter(): expected src, a tensor or a number, or value, got neither")
    if not is_tensor(source):
        source = full(source, shape=index._sizes, dtype=input.dtype)
    write = indexing.scatter if reduce is None else indexing.scatter_add
    return write(input, *_of_one_rank(input, index, source), dim=normalise_dim("scatter", dim, input.ndim))


def _of_one_rank(input: Any, *others: Any) -> tuple[Any, ...]:
    """Tensors beside one that has dimensions: what has none counts as a vector of one element."""
    return tuple([views.reshape(x, shape=(1,)) if input.ndim and not x.ndim else x for x in others])


@public()
def take_along_dim(input: Any, indices: Any, dim: int | None = None) -> Any:
    """Elements of `input` at `indices` along `dim`, both broadcast in the other dimensions; without `dim`, of the flattened tensor."""
    indices = _integer("take_along_dim", indices)
    if dim is None:
        return indexing.gather(reshape(input, -1), reshape(indices, -1), dim=0)
    if input.ndim != indices.ndim:
        raise RuntimeError(
            f"take_along_dim(): input and indices should have the same number of dimensions, got {input.ndim} and {indices.ndim}"
        )
    at = normalise_dim("take_along_dim", dim, input.ndim)
    own, wanted = input._sizes, indices._sizes
    common = broadcast_shapes("take_along_dim", own[:at] + own[at + 1 :], wanted[:at] + wanted[at + 1 :])
    x = views.expand(input, shape=(*common[:at], own[at], *common[at:]))
    positions = views.expand(indices, shape=(*common[:at], wanted[at], *common[at:]))
    return indexing.gather(x, where(positions < 0, positions + own[at], positions), dim=at)


@public()
def take(input: Any, index: Any) -> Any:
    """Elements at positions of the flattened tensor, in the shape of `index`."""
    index = _integer("take", index)
    return indexing.index(reshape(input, -1), index, dims=(0,))


@public()
def masked_select(input: Any, mask: Any) -> Any:
    """The elements where the bool `mask` holds, both broadcast, in one dimension."""
    if mask.dtype is not dtypes.bool_:
        raise RuntimeError(f"masked_select(): expected a bool mask, got {mask.dtype.name}")
    shape = broadcast_shapes("masked_select", input._sizes, mask._sizes)
    if not shape:
        input, mask, shape = views.reshape(input, shape=(1,)), views.reshape(mask, shape=(1,)), (1,)
    positions = indexing.nonzero_tuple(views.expand(mask, shape=shape))
    return indexing.index(views.expand(input, shape=shape), *positions, dims=tuple(range(len(shape))))


@public()
def nonzero(input: Any, *, as_tuple: bool = False) -> Any:
    """Positions of nonzero elements: a matrix with one row per element, or one vector per dimension."""
    x = views.detach(input)
    if as_tuple:
        return indexing.nonzero_tuple(x if x.ndim else views.reshape(x, shape=(1,)))
    return indexing.nonzero(x)


@public()
def argwhere(input: Any) -> Any:
    """Positions of nonzero elements, one row per element."""
    return nonzero(input)


@public(in_place=True)
def index_put(input: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    """A copy of `input` with input[indices] = values, or += for `accumulate`."""
    target, advanced = split_key(input, tuple(slice(None) if i is None else i for i in indices))
    dims = tuple(d for d, _ in advanced)
    return indexing.index_put(target, values, *(i for _, i in advanced), dims=dims, accumulate=bool(accumulate))


@public(in_place=True)
def index_fill(input: Any, dim: int, index: Any, value: Any) -> Any:
    """A copy of `input` with the slices at `index` along `dim` set to a number."""
    index = _integer("index_fill", index)
    at = normalise_dim("index_fill", dim, input.ndim)
    if index.ndim > 1:
        raise RuntimeError(f"index_fill(): index must be a vector or a number, got shape {list(index.shape)}")
    if is_tensor(value) and value.ndim:
        raise RuntimeError(f"index_fill(): value must have no dimensions, got shape {list(value.shape)}")
    number = cast(value, dtype=input.dtype) if is_tensor(value) else full(value, shape=(), dtype=input.dtype)
    size = input._sizes[at] if input.ndim else 1
    none, one = full(False, shape=(size,), dtype=dtypes.bool_), full(True, shape=(), dtype=dtypes.bool_)
    # Each slice once, so that a position that is named twice has the number's gradient once.
    chosen = indexing.index_put(none, one, reshape(index, -1), dims=(0,), accumulate=False)
    return where(views.reshape(chosen, shape=(size, *[1] * (input.ndim - at - 1)) if input.ndim else ()), number, input)


@public(in_place=True)
def index_copy(input: Any, dim: int, index: Any, source: Any) -> Any:
    """A copy of `input` with the slices at `index` along `dim` replaced by those of `source`."""
    index = _integer("index_copy", index)
    at = normalise_dim("index_copy", dim, input.ndim)
    if source.dtype is not input.dtype:
        raise RuntimeError(f"index_copy(): expected source of dtype {input.dtype.name}, got {source.dtype.name}")
    if not input.ndim:
        return views.reshape(index_copy(reshape(input, -1), 0, reshape(index, -1), reshape(source, -1)), shape=())
    region = (*input._sizes[:at], *(index.shape or (1,)), *input._sizes[at + 1 :])
    if source.ndim and source._sizes != region:
        raise IndexError(f"index_copy(): expected source of shape {list(region)}, got {list(source.shape)}")
    return indexing.index_put(input, source, reshape(index, -1), dims=(at,), accumulate=False)


def put_back(into: Any, input: Any, src: Any, *operands: Any, **attributes: Any) -> Any:
    """`input` with `src`, converted to its dtype, in the place of a view.  Raises RuntimeError for another shape than the view's."""
    if src.dtype is not input.dtype:
        src = cast(src, dtype=input.dtype)
    into.infer(aval_of(input), aval_of(src), *operands, **attributes)
    return into(input, src, *operands, **attributes)


@public()
def select_scatter(input: Any, src: Any, dim: int, index: int) -> Any:
    """A copy of `input` with the slice at `index` of `dim` replaced by `src`."""
    at = normalise_dim("select_scatter", dim, input.ndim)
    if is_tensor(index):
        index = int(index)
    size = input._sizes[at]
    if not -size <= index < size:
        raise IndexError(f"select_scatter(): index {index} is out of range for dimension {at} of size {size}")
    return put_back(views.select_scatter, input, src, index % size, dim=at)


@public()
def slice_scatter(input: Any, src: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    """A copy of `input` with the slice start:end:step of `dim` replaced by `src`."""
    if not input.ndim:
        raise IndexError("slice_scatter(): cannot be applied to a 0-dim tensor")
    at = normalise_dim("slice_scatter", dim, input.ndim)
    if step < 1:
        raise RuntimeError(f"slice_scatter(): step must be positive, got {step}")
    if step == 1 and type(start) not in _PLAIN_BOUNDS and (part := state.top.varying_slice(input, at, start, end)) is not None:
        return put_back(views.dynamic_slice_scatter, input, src, part[0], dim=at, length=part[1])
    begin, stop, step = slice_of(slice(start, end, step), input._sizes[at])
    return put_back(views.slice_scatter, input, src, dim=at, start=begin, stop=max(stop, begin), step=step)


@public()
def diagonal_scatter(input: Any, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """A copy of `input` with a diagonal replaced by `src`."""
    a, b = normalise_dim("diagonal_scatter", dim1, input.ndim), normalise_dim("diagonal_scatter", dim2, input.ndim)
    return put_back(views.diagonal_scatter, input, src, offset=offset, dim1=a, dim2=b)


@public(in_place=True)
def masked_scatter(input: Any, mask: Any, source: Any) -> Any:
    """A copy of `input` with the elements where `mask` holds replaced by the first elements of `source`, in order."""
    if mask.dtype is not dtypes.bool_:
        raise RuntimeError(f"masked_scatter(): expected a bool mask, got {mask.dtype.name}")
    if source.dtype is not input.dtype:
        raise RuntimeError(f"masked_scatter(): expected source of dtype {input.dtype.name}, got {source.dtype.name}")
    shape = broadcast_shapes("masked_scatter", input._sizes, mask._sizes)
    if not shape:
        return views.reshape(masked_scatter(views.reshape(input, shape=(1,)), views.reshape(mask, shape=(1,)), source), shape=())
    positions = indexing.nonzero_tuple(views.expand(mask, shape=shape))
    count, given = positions[0].shape[0], product(source.shape)
    if count > given:
        raise RuntimeError(f"masked_scatter(): source has {given} elements, the mask {count} positions for them")
    values = views.slice_(reshape(source, -1), dim=0, start=0, stop=count, step=1)
    return indexing.index_put(
        views.expand(input, shape=shape), values, *positions, dims=tuple(range(len(shape))), accumulate=False
    )


@public()
def index_select(input: Any, dim: int, index: Any) -> Any:
    """Slices of `input` along `dim` at the positions in the 1-D `index`."""
    index = _integer("index_select", index)
    if index.ndim > 1:
        raise IndexError(f"index_select(): index must be a vector, got shape {list(index.shape)}")
    if input.ndim == 0:
        return views.reshape(indexing.index_select(views.reshape(input, shape=(1,)), index, dim=0), shape=())
    at = normalise_dim("index_select", dim, input.ndim)
    return indexing.index_select(input, views.reshape(index, shape=(1,)) if index.ndim == 0 else index, dim=at)


@public(in_place=True)
def index_add(input: Any, dim: int, index: Any, source: Any, *, alpha: float = 1) -> Any:
    """A copy of `input` with alpha * source[i] added to its slice index[i] along `dim`."""
    index = _integer("index_add", index)
    at = normalise_dim("index_add", dim, input.ndim)
    source = scaled("index_add", input, source, alpha)
    if input.ndim == 0 and (source.ndim or index.shape not in ((), (1,))):
        raise RuntimeError(f"index_add(): source of shape {list(source.shape)} must match self, which has no dimensions")
    if input.ndim == 0:
        one = (1,)
        flat = indexing.index_add(
            views.reshape(input, shape=one), views.reshape(index, shape=one), views.reshape(source, shape=one), dim=0
        )
        return views.reshape(flat, shape=())
    if index.ndim > 1:
        raise IndexError(f"index_add(): index must be a vector, got shape {list(index.shape)}")
    return indexing.index_add(input, views.reshape(index, shape=(1,)) if index.ndim == 0 else index, source, dim=at)


def _integer(name: str, index: Any) -> Any:
    """The index, in int64.  Raises TypeError or RuntimeError for what is not a tensor of integers."""
    if getattr(index, "dtype", None) is dtypes.int64:  # a dtype that only tensors have
        return index
    if not is_tensor(index):
        raise TypeError(f"{name}(): expected index to be a Tensor, got {index.__class__.__name__}")
    if index.dtype.category != dtypes.INTEGER:
        raise RuntimeError(f"{name}(): expected index to be an int64 tensor, got {index.dtype.name}; convert it with .long()")
    return cast(index, dtype=dtypes.int64)


def _same_rank(name: str, input: Any, index: Any) -> None:
    if max(1, index.ndim) != max(1, input.ndim) and 0 not in index.shape:
        raise RuntimeError(f"{name}(): index must have as many dimensions as input, got {index.ndim} and {input.ndim}")


@public(method=False)
def unravel_index(indices: Any, shape: Any) -> tuple[Any, ...]:
    """The coordinates, one tensor for each dimension, of positions in a row-major tensor of `shape`.

    Raises TypeError for positions that are no integers, ValueError for a negative size."""
    if indices.dtype.category != dtypes.int64.category:
        raise TypeError(f"unravel_index(): expected 'indices' to be integer dtype, but got {indices.dtype}")
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    if any(size < 0 for size in sizes):
        raise ValueError(f"unravel_index(): 'shape' cannot have negative values, but got {sizes}")
    found, rest = [], indices
    for size in reversed(sizes):
        found.append(rest % size)
        rest = rest // size
    return tuple(reversed(found))
