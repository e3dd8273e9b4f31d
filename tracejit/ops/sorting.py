"""Primitives that order elements.  None is differentiable: values follow positions through `gather`.

Those of kind ORDER are machine code where few elements are ordered (lowering/special.py); all others are evaluated on the host."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tracejit.core.aval import UNKNOWN, Aval
from tracejit.core.dtypes import int64
from tracejit.core.op import Kind
from tracejit.ops.declare import custom
from tracejit.ops.samples import bools, cases, floats, integers

__all__ = ["argsort", "distinct", "distinct_positions", "first_sorted", "order_of_keys", "runs", "searchsorted"]


@custom(
    Kind.ORDER,
    lambda x, dim, descending: Aval(x.shape, int64),
    samples=cases(
        (floats(5), {"dim": 0, "descending": False}),
        (floats(2, 3).T, {"dim": 1, "descending": True}),
        (floats(0, 2), {"dim": 0, "descending": False}),
    ),
    traits=("moves", "not differentiable"),
)
def argsort(x: Any, dim: int, descending: bool) -> Any:
    """Positions that put the elements along `dim` in order.  Equal elements keep their order; NaN counts as the largest."""
    return _order(_comparable(x), dim, descending, x.shape[dim])


def _comparable(x: Any) -> Any:
    """The same in a dtype that NumPy orders with NaN last: it compares numbers of bfloat16 without regard to NaN."""
    return x.astype(np.float32) if x.dtype.kind == "V" else x


def _order(x: Any, dim: int, descending: bool, count: int) -> Any:
    """The first `count` positions of it."""
    size, before = x.shape[dim], (slice(None),) * dim
    if not descending:
        order = _ascending(x, dim)
        return order if count == size else order[(*before, slice(count))].copy()
    order = _ascending(x[(*before, slice(None, None, -1))], dim)
    last = order[(*before, slice(None, None if count == size else size - 1 - count, -1))]
    return np.subtract(np.asarray(size - 1), last, order="C")  # NumPy takes longer for a number of Python's


_MANY = 1024  # elements from which an order that is not stable takes much less time


def _ascending(x: Any, dim: int) -> Any:
    """Positions in stable ascending order: of many elements those in any ascending order, in which equal ones are put in place."""
    if x.ndim == 1 and len(x) >= _MANY:
        order = x.argsort()
        values = x[order]
        equal = values[1:] == values[:-1]
        ties = np.count_nonzero(equal)
        if values[-2] == values[-2] and ties * _FEW_TIES < len(x):
            if ties:
                _settle(order, equal)
            return order
    return x.argsort(axis=dim, kind="stable")


_FEW_TIES = 8  # with one in so many elements, or more, the stable order takes no longer


def _settle(order: Any, equal: Any) -> None:
    """Put positions of equal elements, each of which `equal` says to be the one before it, in ascending order."""
    runs = np.zeros(len(order), np.bool_)
    runs[1:] = equal
    number = np.cumsum(~runs)
    runs[:-1] |= equal
    (positions,) = runs.nonzero()
    order[positions] = order[positions][np.lexsort((order[positions], number[positions]))]


_FEW_KEYS = 64  # are sorted with their positions in no more time


@custom(
    Kind.OPAQUE,
    lambda keys: Aval(keys.shape, int64),
    samples=cases((np.array([7, 1 << 62, 3, 5 << 40, 1]),), (np.arange(100, 0, -1) << 55,), (integers(80),), (integers(0),)),
    traits=("moves", "not differentiable"),
)
def order_of_keys(keys: Any) -> Any:
    """argsort of a vector of int64 numbers in [0, 2**63) that hardly ever agree in their upper bits, as random ones.

    Where these differ, numbers with their positions in place of the lower bits are in the same order, and NumPy sorts numbers in a fraction
    of the time that it takes for positions."""
    count = len(keys)
    if count < _FEW_KEYS:
        return keys.argsort(kind="stable")
    bits = (count - 1).bit_length()
    packed = keys & -(1 << bits)
    packed |= np.arange(count)
    packed.sort()
    upper = packed >> bits
    if (upper[1:] == upper[:-1]).any():
        return argsort.evaluate(keys, 0, False)
    packed &= (1 << bits) - 1
    return packed


@custom(
    Kind.OPAQUE,
    lambda x: Aval((UNKNOWN,), x.dtype),
    samples=cases((integers(6, high=3),), (floats(2, 3).T,), (bools(4),), (integers(0),)),
    traits=("dynamic shape", "moves", "not differentiable"),
)
def distinct(x: Any) -> Any:
    """The different elements in ascending order; every NaN is another one, and comes last.  Of two equal zeros it is the one that x has
    first."""
    flat = x.reshape(-1)
    values = np.sort(_comparable(flat)).astype(x.dtype, copy=False)
    if len(values) < 2:
        return values
    starts = np.empty(len(values), np.bool_)
    starts[0] = True
    np.not_equal(values[1:], values[:-1], out=starts[1:])
    found = values[starts]
    if x.dtype.kind in "fV" and len(zero := (found == 0).nonzero()[0]):
        found[zero] = flat[(flat == 0).argmax()]
    return found


_with_positions = partial(
    custom,
    Kind.OPAQUE,
    lambda x: (Aval((UNKNOWN,), x.dtype), Aval(x.shape, int64), Aval((UNKNOWN,), int64)),
    samples=cases((integers(6, high=3),), (floats(2, 3).T,), (bools(4),), (integers(0),)),
    traits=("dynamic shape", "moves", "not differentiable"),
    multiple=True,
)


@_with_positions()
def runs(x: Any) -> tuple[Any, Any, Any]:
    """(an element of each run of equal ones, the position of each element's run, how long each is), in row-major order."""
    flat = x.reshape(-1)
    starts = np.ones(len(flat), np.bool_)
    np.not_equal(flat[1:], flat[:-1], out=starts[1:])
    (first,) = starts.nonzero()
    numbers: Any = np.cumsum(starts)
    numbers -= 1
    lengths = np.empty_like(first)
    np.subtract(first[1:], first[:-1], out=lengths[:-1])
    lengths[-1:] = len(flat) - first[-1:]
    return flat[first], numbers.reshape(x.shape), lengths


@_with_positions()
def distinct_positions(x: Any) -> tuple[Any, Any, Any]:
    """(what `distinct` gives, the position of each element in it, how often each of it occurs)."""
    flat = x.reshape(-1)
    order = _ascending(_comparable(flat), 0)
    found, numbers, counts = runs.evaluate(flat[order])
    positions = np.empty(len(flat), np.int64)
    positions[order] = numbers
    return found, positions.reshape(x.shape), counts


def _first_rule(x: Aval, dim: int, count: int, descending: bool) -> Aval:
    return Aval((*x.shape[:dim], count, *x.shape[dim + 1 :]), int64)


_FEW_OF = 4  # up to one in so many elements it pays to find those that are to be sorted
_LONG = 256  # elements, below which sorting them all takes no longer


@custom(
    Kind.ORDER,
    _first_rule,
    samples=cases(
        (floats(5), {"dim": 0, "count": 2, "descending": True}),
        (floats(2, 3).T, {"dim": 1, "count": 1, "descending": False}),
        (floats(3, 300), {"dim": 1, "count": 5, "descending": True}),
        (integers(300, 2), {"dim": 0, "count": 20, "descending": False}),
        (floats(4, 2), {"dim": 0, "count": 0, "descending": False}),
    ),
    traits=("moves", "not differentiable"),
)
def first_sorted(x: Any, dim: int, count: int, descending: bool) -> Any:
    """The first `count` positions of argsort along `dim`."""
    x, size = _comparable(x), x.shape[dim]
    if size < _LONG or count * _FEW_OF > size or not count:
        return _order(x, dim, descending, count)
    if x.ndim == 1:
        return _first_of(x, count, descending)
    out = np.empty((*x.shape[:dim], count, *x.shape[dim + 1 :]), np.int64)  # lies as it does for smaller sizes
    rows, positions = np.moveaxis(x, dim, -1), np.moveaxis(out, dim, -1)
    for position in np.ndindex(rows.shape[:-1]):
        positions[position] = _first_of(rows[position], count, descending)
    return out


def _first_of(row: Any, count: int, descending: bool) -> Any:
    """The same of a row: the elements up to the last value that is among them, sorted; of those that equal it as many as there is room
    for, the first ones."""
    last = len(row) - count if descending else count - 1
    divided = row.copy()
    divided.partition(last)
    limit = divided[last]
    (positions,) = (row >= limit if descending else row <= limit).nonzero()
    greatest = np.maximum.reduce(divided[last:]) if descending else limit
    if len(positions) < count or greatest != greatest:  # NaN is among them
        return _order(row, 0, descending, count)
    return positions[_order(row[positions], 0, descending, count)]  # stable: of equal elements the first ones come first


@custom(
    Kind.OPAQUE,
    lambda boundaries, values, right: Aval(values.shape, int64),
    samples=cases((np.arange(4.0), floats(2, 3).T, {"right": False}), (np.arange(4.0), np.arange(3.0), {"right": True})),
    traits=("not differentiable", "quiet"),
)
def searchsorted(boundaries: Any, values: Any, right: bool) -> Any:
    """Where each value would be inserted into `boundaries`, which are sorted along their last dimension; after its equals if `right`."""
    side: Any = "right" if right else "left"
    if boundaries.ndim == 1:
        return boundaries.searchsorted(values, side)
    found = np.empty(values.shape, np.int64)
    for position in np.ndindex(values.shape[:-1]):
        found[position] = boundaries[position].searchsorted(values[position], side)
    return found
