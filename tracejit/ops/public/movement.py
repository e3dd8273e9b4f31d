"""Public functions that move elements, and conversions of dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracejit.core import dtypes
from tracejit.core.devices import device as Device
from tracejit.core.devices import require_cpu
from tracejit.core.interpreter import state
from tracejit.core.interrupts import is_foreign
from tracejit.core.naming import package_name
from tracejit.core.numbers import settled
from tracejit.core.promotion import common_dtype
from tracejit.core.shapes import broadcast_shapes, integer, largest, normalise_dim, normalise_dims, position, product, size_range
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.ops.movement import copies, views
from tracejit.ops.public.derive import public

Shape = tuple[int, ...]


def shape_of(name: str, sizes: tuple[Any, ...]) -> Shape:
    """Sizes given as f(2, 3) or f((2, 3)).  Raises TypeError for anything but integers."""
    if len(sizes) == 1:
        first = sizes[0]
        if type(first) is int:
            return sizes
        if isinstance(first, tuple | list):
            sizes = tuple(first)
    return tuple([s if type(s) is int else integer(name, "size", s) for s in sizes])


def _infer(name: str, shape: Shape, size: int) -> Shape:
    """Replace one -1 by what makes the sizes multiply to `size`."""
    at, rest = -1, 1
    for i, s in enumerate(shape):
        if s == -1 and at < 0:
            at = i
        elif s < 0:
            raise RuntimeError(
                f"{name}(): invalid shape {list(shape)}: at most one size may be -1, the others must not be negative"
            )
        else:
            rest = s * rest
    if at >= 0:
        if rest == 0 or size % rest:
            raise RuntimeError(f"{name}(): shape {list(shape)} is invalid for a tensor of {size} elements")
        return (*shape[:at], size // rest, *shape[at + 1 :])
    if rest != size:
        raise RuntimeError(f"{name}(): shape {list(shape)} is invalid for a tensor of {size} elements; it would need {rest}")
    return shape


@public()
def reshape(input: Any, *shape: Any) -> Any:
    """The same elements under another shape (one size may be -1): a view where the layout allows it, else a copy."""
    before = input._sizes
    target = _infer("reshape", shape_of("reshape", shape), product(before))
    if target != before and not input.is_viewable(target):
        input = copies.clone(input)
    return state.top.bind(views.reshape, (input,), {"shape": target})


@public(function=False)
def view(input: Any, *shape: Any) -> Any:
    """The same memory under another shape.  Raises RuntimeError where a copy would be needed."""
    if len(shape) == 1 and isinstance(shape[0], dtypes.DType | type):
        return to(input, shape[0]) if shape[0] is input.dtype else input.view_as_dtype(dtypes.as_dtype(shape[0], "view"))
    target = _infer("view", shape_of("view", shape), product(input._sizes))
    if not input.is_viewable(target):
        raise RuntimeError(
            f"view(): size {list(target)} is not compatible with the tensor's size {list(input._sizes)} and stride "
            f"{list(input.stride())}; use reshape()"
        )
    return state.top.bind(views.reshape, (input,), {"shape": target})


@public()
def flatten(input: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    """Dimensions start_dim ... end_dim as one."""
    if not input.ndim:
        return reshape(input, 1)
    first, last = normalise_dim("flatten", start_dim, input.ndim), normalise_dim("flatten", end_dim, input.ndim)
    if first > last:
        raise RuntimeError(f"flatten(): start_dim {start_dim} comes after end_dim {end_dim}")
    if first == last:
        return input
    shape = input._sizes
    return reshape(input, (*shape[:first], product(shape[first : last + 1]), *shape[last + 1 :]))


@public()
def permute(input: Any, *order: Any, dims: Any = None) -> Any:
    """Dimensions in another order (a view): permute(1, 0) or permute((1, 0)).  Raises RuntimeError unless each is named once."""
    dims = order if dims is None else (dims,)
    order = shape_of("permute", dims)
    if len(order) != input.ndim:
        raise RuntimeError(f"permute(): got {len(order)} dims {list(order)} for a tensor of {input.ndim} dimensions")
    order = tuple(normalise_dim("permute", d, input.ndim) for d in order)
    if len(set(order)) != len(order):
        raise RuntimeError(f"permute(): dims {list(order)} repeat a dimension")
    return state.top.bind(views.permute, (input,), {"dims": order})


@public(aliases=("swapaxes", "swapdims"))
def transpose(input: Any, dim0: int, dim1: int) -> Any:
    """Two dimensions swapped (a view)."""
    order = list(range(input.ndim))
    a, b = normalise_dim("transpose", dim0, input.ndim), normalise_dim("transpose", dim1, input.ndim)
    if not order:
        return state.top.bind(views.permute, (input,), {"dims": ()})
    order[a], order[b] = order[b], order[a]
    return state.top.bind(views.permute, (input,), {"dims": tuple(order)})


@public()
def t(input: Any) -> Any:
    """The transpose of a tensor of at most two dimensions (a view).  Raises RuntimeError for more."""
    if input.ndim > 2:
        raise RuntimeError(f"t(): expected at most 2 dimensions, got {input.ndim}; use transpose(dim0, dim1) or .mT")
    return transpose(input, 0, 1) if input.ndim == 2 else views.reshape(input, shape=input._sizes)


@public()
def unsqueeze(input: Any, dim: int) -> Any:
    """A dimension of size 1 inserted at `dim` (a view)."""
    at = normalise_dim("unsqueeze", dim, input.ndim + 1)
    return state.top.bind(views.reshape, (input,), {"shape": (*input._sizes[:at], 1, *input._sizes[at:])})


@public()
def squeeze(input: Any, dim: int | Sequence[int] | None = None) -> Any:
    """Dimensions of size 1 removed: all, or those of `dim` (a view)."""
    dim = settled(dim)
    dims = normalise_dims("squeeze", dim if isinstance(dim, int) or dim is None else tuple(dim), input.ndim)
    if dim is not None and not isinstance(dim, int) and not len(dim):
        dims = ()
    return state.top.bind(
        views.reshape, (input,), {"shape": tuple(s for i, s in enumerate(input._sizes) if s != 1 or i not in dims)}
    )


@public(function=False)
def expand(input: Any, *sizes: Any) -> Any:
    """Broadcast to `sizes` without copying; -1 keeps a size.  Raises RuntimeError where a size other than 1 would change."""
    target, shape = shape_of("expand", sizes), input._sizes
    lead = len(target) - len(shape)
    if lead < 0:
        raise RuntimeError(f"expand(): {list(target)} has fewer dimensions than the tensor, whose shape is {list(shape)}")
    out = []
    for i, s in enumerate(target):
        own = 1 if i < lead else shape[i - lead]
        if s == -1 and i >= lead:
            s = own
        elif s < 0 or (own not in (1, s)):
            raise RuntimeError(
                f"expand(): the size {s} at dimension {i} must match the existing size {own} of shape {list(shape)}"
            )
        out.append(s)
    return state.top.bind(views.expand, (input,), {"shape": tuple(out)})


@public()
def broadcast_to(input: Any, size: Any) -> Any:
    """Broadcast to `size` without copying."""
    return expand(input, *shape_of("broadcast_to", (size,)))


@public(method=False)
def broadcast_tensors(*tensors: Any) -> list[Any]:
    """The tensors expanded to their common shape."""
    shape = broadcast_shapes("broadcast_tensors", *(x.shape for x in tensors))
    return [views.expand(x, shape=shape) for x in tensors]


def _tensors(name: str, tensors: Any) -> tuple[tuple[Any, ...], list[int]]:
    """Tensors that are to be joined, in their common dtype, and how many dimensions they have."""
    if not isinstance(tensors, (tuple, list)):
        raise TypeError(f"{name}(): expected a tuple or list of Tensors, got {tensors.__class__.__name__}")
    if not tensors:
        raise (ValueError if name == "cat" else RuntimeError)(f"{name}(): expected a non-empty list of Tensors")
    try:
        arrays: Any = [x._array for x in tensors]
        given: list[Any] = [a.dtype for a in arrays]
        is_tensor = True
    except AttributeError as error:  # of what is no tensor, or is one without contents
        if is_foreign(error):
            raise
        arrays, given = tensors, [getattr(x, "dtype", None) for x in tensors]
        is_tensor = type(given[0]) is dtypes.DType
    if is_tensor and given.count(given[0]) == len(given):
        return tuple(tensors), [a.ndim for a in arrays]
    for i, x in enumerate(tensors):
        if not hasattr(x, "ndim"):
            raise TypeError(f"{name}(): expected Tensor as element {i} of tensors, but got {x.__class__.__name__}; use tensor()")
    target = common_dtype(tuple(tensors))
    return tuple([x if x.dtype is target else cast(x, dtype=target) for x in tensors]), [x.ndim for x in tensors]


@public(method=False, aliases=("concat", "concatenate"))
def cat(tensors: Any, dim: int = 0) -> Any:
    """Tensors joined along `dim`; all other sizes must be equal.  Raises RuntimeError otherwise."""
    xs, ranks = _tensors("cat", tensors)
    rank = ranks[0]
    if ranks.count(rank) != len(ranks):  # empty vectors go with tensors of any rank
        xs = tuple([x for x in xs if x.shape != (0,)])
        rank = xs[0].ndim
    if not rank:
        raise RuntimeError("cat(): zero-dimensional tensors cannot be concatenated; use stack()")
    return state.top.bind(copies.cat, xs, {"dim": normalise_dim("cat", dim, rank)})


@public(method=False)
def stack(tensors: Any, dim: int = 0) -> Any:
    """Tensors of one shape along a new dimension `dim` of the result: n of shape (a, b) give (n, a, b) for dim=0.

    Raises RuntimeError for an empty list and for different shapes, IndexError for a dimension out of range."""
    xs, ranks = _tensors("stack", tensors)
    return state.top.bind(copies.stack, xs, {"dim": normalise_dim("stack", dim, ranks[0] + 1)})


@public("detach", method=False)
def detached(input: Any) -> Any:
    """The same memory as a tensor that has no history and wants no gradient."""
    return views.detach(input)


@public()
def narrow(input: Any, dim: int, start: int, length: int) -> Any:
    """`length` elements of `dim` from `start` on (a view).  Raises RuntimeError outside the dimension."""
    if not input.ndim:
        raise RuntimeError("narrow(): cannot be applied to a 0-dim tensor")
    at = normalise_dim("narrow", dim, input.ndim)
    size = input._sizes[at]
    length = integer("narrow", "length", length)
    if type(start) is not int and (part := state.top.varying_slice(input, at, start, None, length)) is not None:
        return views.dynamic_slice(input, part[0], dim=at, length=part[1])
    start = integer("narrow", "start", start)
    begin = start + (size if start < 0 else 0)
    if not (0 <= begin <= size and 0 <= length <= size - begin):
        raise RuntimeError(f"narrow(): start {start} and length {length} exceed the dimension's size {size}")
    return state.top.bind(views.slice_, (input,), {"dim": at, "start": begin, "stop": begin + length, "step": 1})


@public()
def select(input: Any, dim: int, index: int) -> Any:
    """The slice at `index` of `dim` (a view).  Raises IndexError out of range."""
    if input.ndim == 0:
        raise IndexError("select(): cannot be applied to a 0-dim tensor")
    at = normalise_dim("select", dim, input.ndim)
    index = position("select", index)
    size = input._sizes[at]
    if not 0 <= index < size:
        if not -size <= index < 0:
            raise IndexError(f"select(): index {index} is out of range for dimension {at} of size {size}")
        index += size
    return state.top.bind(views.select, (input, index), {"dim": at})


@public(aliases=("unsafe_split",))
def split(input: Any, split_size_or_sections: int | Sequence[int], dim: int = 0) -> tuple[Any, ...]:
    """Views of consecutive pieces along `dim`: of one size (the last may be smaller), or of the sizes listed."""
    at = normalise_dim("split", dim, input.ndim)
    size, pieces = input._sizes[at], settled(split_size_or_sections)
    if not isinstance(pieces, tuple | list):
        piece = integer("split", "split_size", pieces)
        if piece < 0 or (piece == 0 and size):
            raise RuntimeError(f"split(): split_size must be positive, got {piece}")
        whole = int((size - 1) // piece) if size else 0
        sections = [*[piece] * whole, size - piece * whole]
    else:
        sections = [integer("split", "split_sizes", s) for s in pieces]
        if sum(sections) != size or any(s < 0 for s in sections):
            raise RuntimeError(f"split(): sections {sections} must be non-negative and sum to the size {size} of dimension {at}")
    out, start, bind = [], 0, state.top.bind
    for s in sections:
        out.append(bind(views.slice_, (input,), {"dim": at, "start": start, "stop": start + s, "step": 1}))
        start += s
    return tuple(out)


@public(aliases=("unsafe_chunk",))
def chunk(input: Any, chunks: int, dim: int = 0) -> tuple[Any, ...]:
    """Views of at most `chunks` pieces of equal size along `dim`."""
    chunks = integer("chunk", "chunks", chunks)
    if chunks <= 0:
        raise RuntimeError(f"chunk(): chunks must be positive, got {chunks}")
    size = input._sizes[normalise_dim("chunk", dim, input.ndim)]
    return split(input, largest((1, -(-size // chunks))), dim)


@public()
def unbind(input: Any, dim: int = 0) -> tuple[Any, ...]:
    """The slices along `dim`, without that dimension (views)."""
    if input.ndim == 0:
        raise IndexError("unbind(): dimension specified as 0 but tensor has no dimensions")
    at = normalise_dim("unbind", dim, input.ndim)
    bind = state.top.bind
    return tuple([bind(views.select, (input, i), {"dim": at}) for i in size_range(0, input._sizes[at])])


@public()
def flip(input: Any, *along: Any, dims: Any = None) -> Any:
    """A copy with the elements along `dims` in reverse order."""
    chosen = tuple(normalise_dim("flip", d, input.ndim) for d in shape_of("flip", along if dims is None else (dims,)))
    if len(set(chosen)) != len(chosen):
        raise RuntimeError(f"flip(): dims {list(chosen)} repeat a dimension")
    return copies.flip(input, dims=chosen)


@public()
def diagonal(input: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """The diagonal over two dimensions, which becomes the last one (a view)."""
    a, b = normalise_dim("diagonal", dim1, input.ndim), normalise_dim("diagonal", dim2, input.ndim)
    if a == b:
        raise RuntimeError(f"diagonal(): dim1 and dim2 must differ, got {dim1} and {dim2}")
    return views.diagonal(input, offset=integer("diagonal", "offset", offset), dim1=a, dim2=b)


@public(function=False)
def to(
    input: Any,
    *where: Any,
    dtype: Any = None,
    other: Any = None,
    non_blocking: bool = False,
    copy: bool = False,
    device: Any = None,
    memory_format: Any = None,
) -> Any:
    """to(dtype), to(device), to(device, dtype), to(other): the tensor in another dtype; itself where nothing changes and `copy` is false.

    The only device is "cpu"; Python's float, int and bool stand for dtypes.  `non_blocking` and `memory_format` change no value.
     Raises TypeError for what is no dtype, device or tensor."""
    for x in where[:1]:
        if isinstance(x, str | Device | int):
            device, where = x, where[1:]
        elif x is None:
            where = where[1:]
    if where and not isinstance(where[0], bool | None):
        target = where[0]
        is_like = type(target) is not dtypes.DType and hasattr(target, "dtype") and not isinstance(target, type)
        dtype, where = target.dtype if is_like else target, where[1:]
    if len(where) > 2 or not all(isinstance(x, bool | None) for x in where):
        raise TypeError(f"to(): expected a dtype, a device or a Tensor, then non_blocking and copy, got {where!r}")
    if len(where) == 2:
        copy = where[1]
    require_cpu("to", device)
    if other is not None:
        dtype = other.dtype
    if dtype is not None:
        dtype = dtypes.as_dtype(dtype, "to")
    if dtype is None or dtype is input.dtype:
        return copies.clone(input) if copy else input
    return cast(input, dtype=dtype)


@public("type", function=False)
def type_(input: Any, dtype: Any = None, non_blocking: bool = False) -> Any:
    """The tensor in another dtype, given as one or by its older name, "FloatTensor"; without one, the older name of its own dtype."""
    if dtype is None:
        return f"{package_name()}." + next(name for name, kind in dtypes.LEGACY.items() if kind is input.dtype)
    if isinstance(dtype, str):
        package, _, name = dtype.rpartition(".")
        if package not in ("torch", "tracejit", "") or name not in dtypes.LEGACY:
            raise ValueError(f"type(): invalid type {dtype!r}; expected one such as 'tracejit.FloatTensor'")
        dtype = dtypes.LEGACY[name]
    return to(input, getattr(dtype, "dtype", dtype))


@public(function=False)
def cpu(input: Any, memory_format: Any = None) -> Any:
    """The tensor itself, which is on the CPU."""
    return input


@public(function=False)
def cuda(input: Any, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Any:
    """Raises AssertionError: tracejit computes on the CPU only."""
    require_cpu("cuda", "cuda" if device is None else device)
    raise AssertionError(f"cuda(): device {device!r} is not a CUDA device")


def _conversion(name: str, dtype: dtypes.DType) -> None:
    def convert(input: Any) -> Any:
        return input if input.dtype is dtype else state.top.bind(cast, (input,), {"dtype": dtype})

    convert.__name__ = name
    convert.__doc__ = f"The tensor as {dtype.name}; itself if it is that already."
    public(name, function=False)(convert)


for _name, _dtype in (
    ("half", dtypes.float16), ("bfloat16", dtypes.bfloat16), ("float", dtypes.float32), ("double", dtypes.float64),
    ("long", dtypes.int64), ("int", dtypes.int32), ("short", dtypes.int16),
    ("char", dtypes.int8), ("byte", dtypes.uint8), ("bool", dtypes.bool_),
):  # fmt: skip
    _conversion(_name, _dtype)


@public(function=False)
def contiguous(input: Any, memory_format: Any = None) -> Any:
    """The tensor itself if its elements lie in row-major order, else a copy that does."""
    return input if input.is_contiguous() else copies.clone(input)


@public(function=False)
def type_as(input: Any, other: Any) -> Any:
    """The tensor in the dtype of `other`."""
    return to(input, other.dtype)
