"""The Dim API: the only door through which shape rules, vjps and attributes compare and combine sizes.

Every question about sizes is asked here (`equal`, `product`, `quotient`, `broadcast`).  Sizes are integers, and where a recording stands
for more sizes than its own they are symbolic ones (symbolic.py), which answer in the same way and note what the answer relied on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

from tracejit.core.numbers import settled
from tracejit.core.recorded_number import RecordedNumber
from tracejit.core.symbolic import SymInt, active, has_symbols, python_type, without_symbols

__all__ = [
    "Dim",
    "broadcast",
    "broadcast_shapes",
    "contiguous",
    "element_strides",
    "equal",
    "equal_runs",
    "filled_strides",
    "fills_memory",
    "float_product",
    "integer",
    "largest",
    "log1p",
    "memory_order",
    "normalise_dim",
    "normalise_dims",
    "operand",
    "position",
    "product",
    "quotient",
    "reshaped_strides",
    "root",
    "rounded_down",
    "rounded_up",
    "same",
    "size_range",
    "slice_of",
]

Dim = int


def equal(a: Dim, b: Dim) -> bool:
    """Whether two sizes are the same."""
    return a == b


def same(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    """Whether two shapes are the same.  Tuples of other lengths would be compared element by element first."""
    return len(a) == len(b) and all(map(equal, a, b))


def memory_order(shape: Sequence[Dim], strides: Sequence[int]) -> tuple[int, ...] | None:
    """The dimensions, outermost in memory first, of an array that fills its memory; None for one with gaps or elements that coincide.

    Strides are in elements.  Dimensions of one element, and all of an empty array, lie wherever the plain order has them."""
    plain = tuple(range(len(shape)))
    if product(shape) == 0:
        return plain
    order = sorted((d for d in plain if shape[d] != 1), key=lambda d: -strides[d])
    step = 1
    for d in reversed(order):
        if strides[d] != step:
            return None
        step *= shape[d]
    if order == sorted(order):
        return plain
    return tuple(order + [d for d in plain if shape[d] == 1])


def contiguous(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """Row-major strides in elements."""
    strides, n = [], 1
    for s in reversed(shape):
        strides.append(n)
        n *= max(s, 1)
    return tuple(reversed(strides))


def element_strides(array: Any) -> tuple[int, ...]:
    """The strides of a NumPy array, in elements."""
    return tuple([s // array.itemsize for s in array.strides])


def filled_strides(shape: tuple[int, ...], strides: tuple[int, ...], symbolic: tuple[int, ...]) -> tuple[int, ...] | None:
    """The strides of an array that fills its memory, in whatever order of its dimensions, those of one element among them; None for
    another one.  symbolic: the sizes of which they are computed."""
    if strides == contiguous(shape):
        return contiguous(symbolic)
    found, step, now = list(strides), 1, 1
    for d in sorted(range(len(shape)), key=lambda d: (strides[d], shape[d])):
        if strides[d] != now:
            return None
        found[d], step, now = step, step * symbolic[d], now * shape[d]
    return tuple(found)


def fills_memory(array: Any) -> bool:
    """Whether a NumPy array fills its memory, in whatever order of its dimensions: then its shape and that order tell its strides."""
    return filled_strides(array.shape, element_strides(array), array.shape) is not None


def equal_runs(before: Sequence[Dim], after: Sequence[Dim]) -> list[tuple[range, range]] | None:
    """Cut a reshape into the smallest pairs of dimension ranges with equal products; None if an empty tensor has none."""
    runs = []
    i = j = 0
    while i < len(before) or j < len(after):
        i0, j0, p, q = i, j, 1, 1
        if i < len(before):
            p, i = before[i], i + 1
        if j < len(after):
            q, j = after[j], j + 1
        while p != q:
            if p < q and i < len(before):
                p, i = p * before[i], i + 1
            elif j < len(after):
                q, j = q * after[j], j + 1
            elif i < len(before):
                p, i = p * before[i], i + 1
            else:
                return None
        runs.append((range(i0, i), range(j0, j)))
    return runs


def reshaped_strides(before: Sequence[Dim], strides: Sequence[int], after: Sequence[Dim]) -> tuple[int, ...] | None:
    """The strides of a reshaped view; None where the memory does not allow one."""
    found: list[int] = []
    for dims, new in equal_runs(before, after) or ():
        kept = [d for d in dims if before[d] != 1]
        if any(strides[d] != strides[e] * before[e] for d, e in pairwise(kept)):
            return None
        unit = strides[kept[-1]] if kept else 1
        found.extend(s * unit for s in contiguous([after[d] for d in new]))
    return tuple(found)


def product(sizes: Iterable[Dim]) -> Dim:
    """The product of sizes; 1 for none."""
    n = 1
    for s in sizes:
        n *= s
    return n


def float_product(sizes: Iterable[Dim]) -> float:
    """The product of sizes as a float: what a mean divides by."""
    return product(sizes) * 1.0


def largest(sizes: Sequence[Dim]) -> Dim:
    """The largest size; where some are symbolic, without a question which one that is."""
    for n in sizes:
        if type(n) is not int and active(n):
            return n.env.compute("max", *sizes)  # type: ignore[attr-defined, no-any-return]
    return max(sizes)


def _applied(function: Callable[[float], Any], x: float) -> Any:
    return x.env.compute(function.__name__, x) if active(x) else function(x)  # type: ignore[attr-defined]


def rounded_down(x: float) -> Dim:
    """floor(x); of a number that is computed of symbolic sizes, without a question which one that is."""
    return _applied(math.floor, x)  # type: ignore[no-any-return]


def rounded_up(x: float) -> Dim:
    """ceil(x), likewise."""
    return _applied(math.ceil, x)  # type: ignore[no-any-return]


def root(x: float) -> float:
    """The square root; of a number that is computed of symbolic sizes, without a question which one that is."""
    return _applied(math.sqrt, x)  # type: ignore[no-any-return]


def log1p(x: float) -> float:
    """log(1 + x), likewise."""
    return _applied(math.log1p, x)  # type: ignore[no-any-return]


def quotient(a: Dim, b: Dim) -> Dim:
    """`a / b`, which must be exact.  Raises ValueError otherwise."""
    if b == 0 or a % b:
        raise ValueError(f"size {a} is not a multiple of {b}")
    return a // b


def broadcast(a: Dim, b: Dim) -> Dim | None:
    """The size that two sizes broadcast to; None where they do not."""
    if a == b or b == 1:
        return a
    return b if a == 1 else None


def broadcast_shapes(operation: str, *shapes: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """The shape that `shapes` broadcast to.  Raises RuntimeError, as PyTorch does, naming the operation and the dimension."""
    first = shapes[0]
    for shape in shapes[1:]:
        if not same(shape, first):
            break
    else:
        return first
    rank = max(map(len, shapes))
    out = [1] * rank
    for shape in shapes:
        for i in range(1, len(shape) + 1):
            size = broadcast(out[-i], shape[-i])
            if size is None:
                raise RuntimeError(
                    f"{operation}(): shapes {' and '.join(str(list(s)) for s in shapes)} cannot be broadcast together: "
                    f"at dimension {rank - i} the sizes are {out[-i]} and {shape[-i]}; they must be equal or one of them 1"
                )
            out[-i] = size
    return tuple(out)


def require_broadcast(operation: str, shape: tuple[Dim, ...], target: tuple[Dim, ...]) -> None:
    """Raise RuntimeError unless `shape` broadcasts to `target`.  Of symbolic sizes that asks, and so notes, which ones are equal."""
    lead = len(target) - len(shape)
    if lead < 0 or not all(s == t or s == 1 for s, t in zip(shape, target[lead:], strict=True)):
        raise RuntimeError(f"{operation}(): a tensor of shape {list(shape)} does not broadcast to shape {list(target)}")


def integer(operation: str, argument: str, value: Any) -> int:
    """The int that an argument stands for: an integer of Python or NumPy, or what has `__index__`, as a tensor of one integer has.
    Raises TypeError for anything else, bools and floats among it."""
    if type(value) is int:
        return value
    number = value.as_size() if isinstance(value, RecordedNumber) else None
    number = settled(value) if number is None else number
    if type(number) is int or type(number) is SymInt:
        return number  # type: ignore[no-any-return]
    if isinstance(number, bool | float) or not hasattr(type(value), "__index__"):
        raise TypeError(f"{operation}(): {argument} must be an integer, got {value!r} of type {value.__class__.__name__}")
    return value.__index__()  # type: ignore[no-any-return]


def operand(operation: str, argument: str, value: Any) -> int:
    """`integer` of what is computed with: one that is being recorded stays what it is, and may be another one in later calls."""
    if type(value) is int or (isinstance(value, RecordedNumber) and value.__class__ is int):
        return settled(value)  # type: ignore[no-any-return]
    return integer(operation, argument, value)


def position(operation: str, value: Any) -> int:
    """`operand` of an index."""
    return operand(operation, "index", value)


def size_range(start: Dim, stop: Dim, step: Dim = 1) -> Iterable[Dim]:
    """range(start, stop, step) of sizes: how many steps there are is a relation of symbolic ones, which `range` itself would not note.
    Raises TypeError for floats, as `range` does."""
    numbers = (start, stop, step)
    if not has_symbols(numbers):
        return range(start, stop, step)
    if any(python_type(n) is not int for n in numbers):
        return range(*map(without_symbols, numbers))  # for its error
    return [start + i * step for i in range(int(-((start - stop) // step)))]


_BOUNDS = (int, type(None))


def slice_of(key: slice, size: Dim) -> tuple[Dim, Dim, int]:
    """(start, stop, step) of a slice of a dimension: what `slice.indices` says, of symbolic sizes as well."""
    if type(size) is int and type(key.start) in _BOUNDS and type(key.stop) in _BOUNDS and type(key.step) in _BOUNDS:
        return key.indices(size)
    parts, is_plain = (key.start, key.stop, key.step), not has_symbols((size, key))
    if is_plain and not any(isinstance(part, RecordedNumber) for part in parts):
        return key.indices(size)
    if any(isinstance(part, float) or not (part is None or hasattr(type(part), "__index__")) for part in parts):
        raise TypeError("slice indices must be integers or None or have an __index__ method")
    if is_plain:
        return key.indices(size)
    step = 1 if key.step is None else int(key.step) if type(key.step) is bool else integer("slice", "step", key.step)
    if step < 1:
        return slice(key.start, key.stop, int(step)).indices(size)  # for its error, and for who refuses it
    ends = []
    for end, default in ((key.start, 0), (key.stop, size)):
        end = default if end is None else int(end) if type(end) is bool else integer("slice", "bound", end)
        if end < 0:
            end = max(end + size, 0)
        ends.append(min(end, size))
    return ends[0], ends[1], step


def normalise_dim(operation: str, dim: int, ndim: int) -> int:
    """A dimension in [0, ndim).  Raises IndexError, as PyTorch does, when it is out of range."""
    if type(dim) is not int:
        dim = int(integer(operation, "dim", dim))  # what a dimension is decides all else
    if 0 <= dim < ndim:
        return dim
    rank = max(ndim, 1)
    if not -rank <= dim < rank:
        raise IndexError(
            f"{operation}(): dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {dim})"
        )
    return dim % rank


def normalise_dims(operation: str, dim: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Sorted distinct dimensions; all of them for None or an empty sequence."""
    if dim is None:
        return tuple(range(ndim))
    if isinstance(dim, int) or isinstance(dim := settled(dim), int):
        return (normalise_dim(operation, dim, ndim),) if ndim else (normalise_dim(operation, dim, 0),)[:0]
    if not isinstance(dim, tuple | list):
        return normalise_dims(operation, integer(operation, "dim", dim), ndim)
    if not dim:
        return tuple(range(ndim))
    dims = [normalise_dim(operation, d, ndim) for d in dim]
    if len(set(dims)) != len(dims):
        raise RuntimeError(f"{operation}(): dim {tuple(dim)} names a dimension twice")
    return tuple(sorted(dims)) if ndim else ()
