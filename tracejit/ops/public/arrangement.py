"""Public functions that rearrange, repeat, join and split tensors: compositions of the movement primitives."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from tracejit.core import dtypes
from tracejit.core.devices import require_cpu
from tracejit.core.numbers import settled
from tracejit.core.precision import in_float32
from tracejit.core.shapes import integer, normalise_dim, product, size_range
from tracejit.core.symbolic import concretise_sizes
from tracejit.ops import indexing
from tracejit.ops.creation import arange, full
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.ops.elementwise.comparison import where
from tracejit.ops.movement import copies, views
from tracejit.ops.public.derive import public
from tracejit.ops.public.movement import cat, diagonal, expand, flip, permute, reshape, shape_of, split, stack, transpose
from tracejit.ops.public.reduce import sum_
from tracejit.ops.scan import cumsum
from tracejit.ops.sorting import searchsorted


@public(aliases=("moveaxis",))
def movedim(input: Any, source: int | Sequence[int], destination: int | Sequence[int]) -> Any:
    """Dimensions moved to other positions, the rest kept in order (a view)."""
    source, destination = settled(source), settled(destination)
    sources = (source,) if isinstance(source, int) else tuple(source)
    targets = (destination,) if isinstance(destination, int) else tuple(destination)
    if len(sources) != len(targets):
        raise RuntimeError(f"movedim(): source and destination must have equal lengths, got {len(sources)} and {len(targets)}")
    sources = tuple(normalise_dim("movedim", d, input.ndim) for d in sources)
    targets = tuple(normalise_dim("movedim", d, input.ndim) for d in targets)
    if len(set(sources)) != len(sources) or len(set(targets)) != len(targets):
        raise RuntimeError(f"movedim(): repeated dimension in source {source} or destination {destination}")
    if not input.ndim:
        return views.permute(input, dims=())
    rest = iter(d for d in range(input.ndim) if d not in sources)
    position = dict(zip(targets, sources, strict=True))
    return views.permute(input, dims=tuple(position[d] if d in position else next(rest) for d in range(input.ndim)))


@public()
def ravel(input: Any) -> Any:
    """All elements in one dimension: a view of a tensor in row-major order, a copy of others."""
    return reshape(input if input.is_contiguous() else copies.clone(input), -1)


@public()
def unflatten(input: Any, dim: int, sizes: Sequence[int]) -> Any:
    """One dimension as several, whose sizes multiply to its own; one of them may be -1."""
    at = normalise_dim("unflatten", dim, input.ndim)
    known = product(s for s in sizes if s != -1)
    size = input._sizes[at]
    if sum(s == -1 for s in sizes) > 1 or (size != known if -1 not in sizes else known == 0 or size % known):
        raise RuntimeError(f"unflatten(): sizes {list(sizes)} don't multiply up to the size {size} of dimension {at}")
    filled = tuple(size // known if s == -1 else s for s in sizes)
    return views.reshape(input, shape=(*input._sizes[:at], *filled, *input._sizes[at + 1 :]))


@public(function=False)
def expand_as(input: Any, other: Any) -> Any:
    """Broadcast to the shape of `other` without copying."""
    return expand(input, *other.shape)


@public(function=False)
def view_as(input: Any, other: Any) -> Any:
    """The same memory under the shape of `other`."""
    return input.view(*other.shape)


@public(function=False)
def reshape_as(input: Any, other: Any) -> Any:
    """The same elements under the shape of `other`."""
    return reshape(input, *other.shape)


@public(function=False)
def repeat(input: Any, *repeats: Any) -> Any:
    """The tensor copied `repeats[d]` times along each dimension d; missing leading dimensions are added."""
    if not repeats:
        raise TypeError('repeat() missing 1 required positional arguments: "repeats"')
    counts = shape_of("repeat", repeats)
    lead = len(counts) - input.ndim
    if lead < 0:
        raise RuntimeError(
            f"repeat(): number of dimensions of repeat dims {len(counts)} can not be smaller than that of the tensor, {input.ndim}"
        )
    if any(n < 0 for n in counts):
        raise RuntimeError(f"repeat(): repeats must not be negative, got {list(counts)}")
    shape = (1,) * lead + input._sizes
    spread = tuple(s for n, size in zip(counts, shape, strict=True) for s in (n, size))
    single = views.reshape(input, shape=tuple(s for size in shape for s in (1, size)))
    return views.reshape(
        copies.clone(views.expand(single, shape=spread)), shape=tuple(n * s for n, s in zip(counts, shape, strict=True))
    )


@public()
def tile(input: Any, *dims: Any) -> Any:
    """The tensor copied dims[d] times along each of the last dimensions."""
    counts = shape_of("tile", dims)
    return repeat(input, (1,) * (input.ndim - len(counts)) + counts)


@public()
def repeat_interleave(input: Any, repeats: Any, dim: int | None = None, *, output_size: int | None = None) -> Any:
    """Each element (or slice along `dim`) `repeats` times in a row; `repeats` is a number or a tensor with one number per slice."""
    if dim is None:
        input, dim = reshape(input, -1), 0
    at = normalise_dim("repeat_interleave", dim, input.ndim)
    size = input._sizes[at]
    repeats = settled(repeats)
    if not hasattr(repeats, "tolist"):
        repeats = integer("repeat_interleave", "repeats", repeats)
        inner = views.reshape(input, shape=(*input._sizes[: at + 1], 1, *input._sizes[at + 1 :]))
        spread = views.expand(inner, shape=(*input._sizes[: at + 1], repeats, *input._sizes[at + 1 :]))
        return views.reshape(copies.clone(spread), shape=(*input._sizes[:at], size * repeats, *input._sizes[at + 1 :]))
    counts = [int(n) for n in repeats.tolist()] if repeats.ndim else [int(repeats)]
    counts = counts * size if len(counts) == 1 else counts
    if len(counts) != size:
        raise RuntimeError(
            f"repeat_interleave(): repeats must have as many elements as dimension {at} has, {size}; got {len(counts)}"
        )
    return indexing.index_select(input, indexing.constant_index([i for i, n in enumerate(counts) for _ in range(n)]), dim=at)


@public()
def roll(input: Any, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Any:
    """Elements moved by `shifts` along `dims`, coming in again at the other end; without `dims`, in the flattened tensor."""
    shifts, dims = settled(shifts), settled(dims)
    moves = (shifts,) if isinstance(shifts, int) else tuple(shifts)
    if dims is None or (not isinstance(dims, int) and not len(dims)):
        if len(moves) != 1:
            raise RuntimeError(f"roll(): without dims, shifts must be one number, got {list(moves)}")
        return roll(input, moves[0], 0) if input.ndim == 1 else reshape(roll(reshape(input, -1), moves[0], 0), input._sizes)
    along = (dims,) if isinstance(dims, int) else tuple(dims)
    if len(along) != len(moves):
        raise RuntimeError(f"roll(): shifts and dimensions must align, got {len(moves)} shifts and {len(along)} dims")
    out = input
    for shift, d in zip(moves, along, strict=True):
        at = normalise_dim("roll", d, input.ndim)
        size = out.shape[at]
        start = (size - shift if shift > 0 else -shift) if -size < shift < size else -shift % size if size else 0
        if start:
            out = copies.roll(out, dim=at, start=start)
    return copies.clone(input) if out is input else out


_ZEROS = (False, 0, 0.0)  # of bools, integers, floating-point numbers


def _triangle(name: str, input: Any, diagonal: int, upper: bool) -> Any:
    if input.ndim < 2:
        raise RuntimeError(f"{name}(): input tensor must have at least 2 dimensions, got {input.ndim}")
    diagonal = settled(diagonal)
    rows, columns = input._sizes[-2:]
    row = views.reshape(arange(0, 1, length=rows, dtype=dtypes.int64), shape=(rows, 1))
    column = arange(-diagonal, 1, length=columns, dtype=dtypes.int64)
    return where(column >= row if upper else column <= row, input, _ZEROS[input.dtype.category])


@public(in_place=True)
def tril(input: Any, diagonal: int = 0) -> Any:
    """The lower triangle of the last two dimensions, up to `diagonal`; zeros elsewhere."""
    return _triangle("tril", input, diagonal, False)


@public(in_place=True)
def triu(input: Any, diagonal: int = 0) -> Any:
    """The upper triangle of the last two dimensions, from `diagonal` on; zeros elsewhere."""
    return _triangle("triu", input, diagonal, True)


def triangle_positions(rows: int, columns: int, offset: int, upper: bool) -> tuple[Any, Any]:
    """(rows, columns) of the elements of a triangle of a matrix, row after row, as int64 vectors: those up to the diagonal `offset`, or,
    for `upper`, those from it on.  How many there are is computed of sizes, which row each is in is looked up."""
    below = _elements_below(rows, columns, offset - upper)
    count = rows * columns - below if upper else below
    ends = arange(offset + (not upper), 1, length=rows, dtype=dtypes.int64).clamp(0, columns)  # of the lower triangle's rows
    lengths = columns - ends if upper else ends
    totals = cumsum(lengths, dim=0)
    number = arange(0, 1, length=count, dtype=dtypes.int64)
    row = searchsorted(totals, number, right=True)
    column = number - indexing.index_select(totals - lengths - ends if upper else totals - lengths, row, dim=0)
    return row, column


def _elements_below(rows: int, columns: int, offset: int) -> int:
    """How many elements a matrix has up to the diagonal `offset`."""
    begin = min(max(-offset, 0), rows)  # rows before have none
    full = min(max(columns - offset, begin), rows)  # rows from here on are whole
    return (full - begin) * (2 * offset + begin + full + 1) // 2 + (rows - full) * columns


def _triangle_indices(name: str, row: int, col: int, offset: int, upper: bool, dtype: dtypes.DType | None, device: Any) -> Any:
    require_cpu(name, device)
    rows, columns = integer(name, "row", row), integer(name, "col", col)
    for what, n in (("row", rows), ("col", columns)):
        if n < 0:
            raise RuntimeError(f"{name}(): {what} must be non-negative, got {n}")
    dtype = dtypes.int64 if dtype is None else dtype
    if dtype not in (dtypes.int32, dtypes.int64):
        raise RuntimeError(f"{name}(): expected dtype int32 or int64, got {dtype.name}")
    positions = stack(triangle_positions(rows, columns, integer(name, "offset", offset), upper))
    return positions if dtype is dtypes.int64 else cast(positions, dtype=dtype)


@public(method=False)
def tril_indices(row: int, col: int, offset: int = 0, *, dtype: dtypes.DType | None = None, device: Any = None) -> Any:
    """The rows and the columns of the lower triangle of a (row, col) matrix, up to the diagonal `offset`: (2, n), row after row, int64
    unless `dtype` is given.

    Raises RuntimeError for negative sizes and other dtypes than int32 and int64."""
    return _triangle_indices("tril_indices", row, col, offset, False, dtype, device)


@public(method=False)
def triu_indices(row: int, col: int, offset: int = 0, *, dtype: dtypes.DType | None = None, device: Any = None) -> Any:
    """The rows and the columns of the upper triangle of a (row, col) matrix, from the diagonal `offset` on: (2, n), row after row, int64
    unless `dtype` is given.

    Raises RuntimeError for negative sizes and other dtypes than int32 and int64."""
    return _triangle_indices("triu_indices", row, col, offset, True, dtype, device)


@public()
def diag_embed(input: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    """Matrices over dim1 and dim2 with the last dimension of `input` on the diagonal `offset`, zeros elsewhere."""
    rank = input.ndim + 1
    a, b = normalise_dim("diag_embed", dim1, rank), normalise_dim("diag_embed", dim2, rank)
    if a == b:
        raise RuntimeError(f"diag_embed(): dim1 and dim2 must differ, got {dim1} and {dim2}")
    size = input._sizes[-1] + abs(offset)
    rest = iter(input._sizes[:-1])
    shape = tuple(size if d in (a, b) else next(rest) for d in range(rank))
    if a > b:
        a, b, offset = b, a, -offset
    zeros = full(0, shape=shape, dtype=input.dtype)
    return views.diagonal_scatter(zeros, input, offset=offset, dim1=a, dim2=b)


@public()
def diag(input: Any, diagonal: int = 0) -> Any:
    """A vector as the diagonal of a matrix, or the diagonal of a matrix."""
    if input.ndim == 1:
        return diag_embed(input, diagonal)
    if input.ndim != 2:
        raise RuntimeError(f"diag(): expected a 1-D or 2-D tensor, got {input.ndim} dimensions")
    return copies.clone(views.diagonal(input, offset=diagonal, dim1=0, dim2=1))


@public()
def diagflat(input: Any, offset: int = 0) -> Any:
    """All elements as the diagonal of a matrix."""
    return diag_embed(reshape(input, -1), offset)


@public()
@in_float32
def trace(input: Any) -> Any:
    """Sum of the diagonal of a matrix."""
    if input.ndim != 2:
        raise RuntimeError(f"trace(): expected a matrix, but got tensor with dim {input.ndim}")
    return sum_(diagonal(input))


@public()
def fliplr(input: Any) -> Any:
    """The second dimension in reverse order."""
    if input.ndim < 2:
        raise RuntimeError(f"fliplr(): expected at least 2 dimensions, got {input.ndim}")
    return flip(input, 1)


@public()
def flipud(input: Any) -> Any:
    """The first dimension in reverse order."""
    if input.ndim < 1:
        raise RuntimeError("flipud(): expected at least 1 dimension, got 0")
    return flip(input, 0)


@public()
def rot90(input: Any, k: int = 1, dims: Sequence[int] = (0, 1)) -> Any:
    """Rotated by k times 90 degrees in the plane of two dimensions, from the first towards the second."""
    a, b = dims
    k = integer("rot90", "k", k) % 4
    if k == 0:
        return copies.clone(input)
    if k == 2:
        return flip(input, a, b)
    return transpose(flip(input, b), a, b) if k == 1 else flip(transpose(input, a, b), b)


@public(method=False)
def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Any, ...]:
    """Vectors spread over the grid that they span; "xy" swaps the first two dimensions."""
    if len(tensors) == 1 and isinstance(tensors[0], tuple | list):
        tensors = tuple(tensors[0])
    if indexing not in ("ij", "xy"):
        raise RuntimeError(f"meshgrid(): indexing must be one of 'xy' or 'ij', got {indexing!r}")
    xs = [reshape(x, -1) for x in tensors]
    swap = indexing == "xy" and len(xs) > 1
    if swap:
        xs[0], xs[1] = xs[1], xs[0]
    shape = tuple(x.shape[0] for x in xs)
    rank = len(xs)
    out = [
        views.expand(views.reshape(x, shape=tuple(x.shape[0] if d == i else 1 for d in range(rank))), shape=shape)
        for i, x in enumerate(xs)
    ]
    if swap:
        out[0], out[1] = out[1], out[0]
    return tuple(out)


def _at_least(n: int, x: Any) -> Any:
    if x.ndim >= n:
        return x
    if n == 3:
        shape = {0: (1, 1, 1), 1: (1, *x.shape, 1), 2: (*x.shape, 1)}[x.ndim]
    else:
        shape = (1,) * (n - x.ndim) + x._sizes
    return reshape(x, shape)


def _at_least_of(n: int) -> Any:
    def at_least(*tensors: Any) -> Any:
        if len(tensors) == 1:
            first = tensors[0]
            return tuple(_at_least(n, x) for x in first) if isinstance(first, tuple | list) else _at_least(n, first)
        return tuple(_at_least(n, x) for x in tensors)

    at_least.__name__ = f"atleast_{n}d"
    at_least.__doc__ = f"Each tensor with dimensions of size 1 added until it has {n}."
    return public(method=False)(at_least)


for _n in (1, 2, 3):
    _at_least_of(_n)


@public(method=False, aliases=("row_stack",))
def vstack(tensors: Any) -> Any:
    """Tensors one below the other, vectors being rows."""
    return cat([_at_least(2, x) for x in tensors], 0)


@public(method=False)
def hstack(tensors: Any) -> Any:
    """Tensors side by side; vectors are joined."""
    xs = [_at_least(1, x) for x in tensors]
    return cat(xs, 0 if xs[0].ndim == 1 else 1)


@public(method=False)
def dstack(tensors: Any) -> Any:
    """Tensors joined along the third dimension."""
    return cat([_at_least(3, x) for x in tensors], 2)


@public(method=False)
def column_stack(tensors: Any) -> Any:
    """Tensors side by side, vectors being columns."""
    return hstack([reshape(x, (-1, 1)) if x.ndim <= 1 else x for x in tensors])


@public()
def tensor_split(input: Any, indices_or_sections: Any, dim: int = 0) -> tuple[Any, ...]:
    """Views of pieces along `dim`: n pieces of sizes that differ by at most 1, or pieces that end at the indices given."""
    at = normalise_dim("tensor_split", dim, input.ndim)
    size = input._sizes[at]
    indices_or_sections = settled(indices_or_sections)
    if isinstance(indices_or_sections, int) or getattr(indices_or_sections, "ndim", 1) == 0:
        n = int(indices_or_sections)
        if n <= 0:
            raise RuntimeError(f"tensor_split(): number of sections must be larger than 0, got {n}")
        return split(input, [(size + n - 1 - i) // n for i in range(n)], at)
    given = indices_or_sections.tolist() if hasattr(indices_or_sections, "tolist") else list(indices_or_sections)
    bounds = [0, *(min(max(i + size if i < 0 else i, 0), size) for i in given), size]
    return tuple(views.slice_(input, dim=at, start=a, stop=max(a, b), step=1) for a, b in itertools.pairwise(bounds))


@public()
def unfold(input: Any, dimension: int, size: int, step: int) -> Any:
    """All windows of `size` elements along a dimension, `step` apart, as a new last dimension (a view that cannot be written to)."""
    at = normalise_dim("unfold", dimension, input.ndim)
    length = input._sizes[at] if input.ndim else 1
    if step < 1 or not 0 <= size <= length:
        raise RuntimeError(f"unfold(): size {size} must be between 0 and the dimension's size {length}, and step {step} positive")
    if not input.ndim:
        return views.slice_(reshape(input, 1), dim=0, start=0, stop=size, step=1)
    return views.unfold(input, dim=at, size=size, step=step, dilation=1)


@public()
def as_strided(input: Any, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Any:
    """The view with the element at `storage_offset + sum of index * stride` in each position, of the elements of a contiguous tensor.

    storage_offset counts as `input.storage_offset()` does, and is that by default.  The view is made of slices, reshapes and windows, so
    gradients of elements in several positions are summed.  Raises RuntimeError for a tensor
    that is not contiguous, and for positions outside of its elements."""
    size, stride = [int(n) for n in size], [int(n) for n in stride]
    if len(size) != len(stride):
        raise RuntimeError(f"as_strided(): mismatch in length of strides and shape, got {len(stride)} and {len(size)}")
    if min(size, default=0) < 0 or min(stride, default=0) < 0:
        raise RuntimeError(f"as_strided(): sizes and strides must not be negative, got size={size}, stride={stride}")
    if not input.is_contiguous():
        raise RuntimeError(
            "as_strided(): expected a contiguous tensor, whose elements are one after the other; call contiguous() first"
        )
    first = 0 if storage_offset is None else int(storage_offset) - input.storage_offset()
    count = product(input._sizes)
    out = reshape(input, -1)
    if 0 in size:
        return reshape(views.slice_(out, dim=0, start=0, stop=0, step=1), *size)
    last = first + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if first < 0 or last >= count:
        raise RuntimeError(
            f"as_strided(): size={size}, stride={stride} and storage_offset={storage_offset} reach elements {first} to {last} of {count}"
        )
    out = views.slice_(out, dim=0, start=first, stop=count, step=1)
    moving = sorted((d for d in range(len(size)) if size[d] > 1 and stride[d]), key=lambda d: -stride[d])
    for i, d in enumerate(moving):
        n, step, at = size[d], stride[d], out.ndim - 1
        rest = 1 + sum((size[e] - 1) * stride[e] for e in moving[i + 1 :])
        if rest == 1:
            out = views.slice_(out, dim=at, start=0, stop=(n - 1) * step + 1, step=step)
            break
        if rest <= step and out.shape[at] >= n * step:  # nothing lies over itself: rows of `step` elements
            out = views.slice_(out, dim=at, start=0, stop=n * step, step=1)
            out = views.slice_(reshape(out, *out.shape[:at], n, step), dim=at + 1, start=0, stop=rest, step=1)
        else:
            out = views.slice_(out, dim=at, start=0, stop=(n - 1) * step + rest, step=1)
            out = unfold(out, at, rest, step)
    else:
        out = views.slice_(out, dim=out.ndim - 1, start=0, stop=1, step=1)
        out = reshape(out, *out.shape[:-1])
    order = [moving.index(d) for d in range(len(size)) if d in moving]
    out = reshape(views.permute(out, dims=tuple(order)), *[n if d in moving else 1 for d, n in enumerate(size)])
    return out if out._sizes == tuple(size) else out.expand(size)


@public(method=False)
def block_diag(*tensors: Any) -> Any:
    """Matrices along the diagonal of a matrix, zeros elsewhere."""
    xs = [_at_least(2, x) for x in tensors]
    width = sum(x.shape[1] for x in xs)
    rows, left = [], 0
    for x in xs:
        rows.append(copies.pad(x, 0, low=(0, left), high=(0, width - left - x.shape[1])))
        left += x.shape[1]
    return cat(rows, 0)


@public()
def kron(input: Any, other: Any) -> Any:
    """Kronecker product."""
    rank = max(input.ndim, other.ndim)
    a = reshape(input, (1,) * (rank - input.ndim) + input._sizes)
    b = reshape(other, (1,) * (rank - other.ndim) + other._sizes)
    left = reshape(a, tuple(s for size in a.shape for s in (size, 1)))
    right = reshape(b, tuple(s for size in b.shape for s in (1, size)))
    return reshape(left * right, tuple(p * q for p, q in zip(a.shape, b.shape, strict=True)))


@public(aliases=("adjoint",))
def matrix_transpose(input: Any) -> Any:
    """The last two dimensions swapped (a view)."""
    return permute(input, (*range(input.ndim - 2), input.ndim - 1, input.ndim - 2))


@public(method=False)
def cartesian_prod(*tensors: Any) -> Any:
    """All combinations of one element of each vector, as rows; a single vector as it is."""
    for x in tensors:
        if x.ndim != 1:
            raise RuntimeError(f"cartesian_prod(): expected vectors, got shape {list(x.shape)}")
    if len(tensors) == 1:
        return tensors[0]
    columns = [reshape(x, -1, 1) for x in meshgrid(*tensors)]
    return cat(columns, 1)


@public(method=False)
def combinations(input: Any, r: int = 2, with_replacement: bool = False) -> Any:
    """All combinations of r elements of a vector, as rows, in the order of itertools."""
    if input.ndim != 1:
        raise RuntimeError(f"combinations(): expected a vector, got shape {list(input._sizes)}")
    if r < 0:
        raise RuntimeError(f"combinations(): expected a non-negative number of elements, got {r}")
    if r == 0:
        return full(0, shape=(0,), dtype=input.dtype)
    if r == 2:
        positions = triangle_positions(input._sizes[0], input._sizes[0], 0 if with_replacement else 1, upper=True)
        return stack([indexing.index_select(input, at, dim=0) for at in positions], 1)
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(choose(size_range(0, input._sizes[0]), concretise_sizes(r)))
    picked = indexing.constant_index([i for row in rows for i in row])
    return reshape(indexing.index_select(input, picked, dim=0), len(rows), r)
