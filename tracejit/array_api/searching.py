"""The standard's functions that search, sort, take and find what is unique."""

from __future__ import annotations

from typing import Any, NamedTuple

from tracejit import functions as F
from tracejit.array_api.promotion import promoted


class UniqueAll(NamedTuple):
    """What unique_all() gives."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """What unique_counts() gives."""

    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """What unique_inverse() gives."""

    values: Any
    inverse_indices: Any


def argsort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """Positions that sort the array along an axis."""
    return F.argsort(x, axis, descending, stable)


def sort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """The elements in order along an axis."""
    return F.sort(x, axis, descending, stable).values


def nonzero(x: Any, /) -> tuple[Any, ...]:
    """Positions of nonzero elements, a vector for each axis.  Raises ValueError for an array without axes."""
    if not x.ndim:
        raise ValueError("nonzero(): expected an array with axes, got one without")
    return F.nonzero(x, as_tuple=True)  # type: ignore[no-any-return]


def searchsorted(x1: Any, x2: Any, /, *, side: str = "left", sorter: Any = None) -> Any:
    """Where each element of x2 would be inserted into the sorted vector x1."""
    ordered, values = promoted("searchsorted", x1, x2)
    return F.searchsorted(ordered, values, side=side, sorter=sorter)


def take(x: Any, indices: Any, /, *, axis: int | None = None) -> Any:
    """Slices at positions along an axis; negative ones count from the end."""
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"take(): an axis is needed for an array of {x.ndim} axes")
        axis = 0
    size = x.shape[axis]
    return F.index_select(x, axis, F.where(F.lt(indices, 0), indices + size, indices))


def take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Any:
    """Elements at positions along an axis, both arrays broadcast in the others."""
    return F.take_along_dim(x, indices, axis)


def unique_all(x: Any, /) -> UniqueAll:
    """(the different elements in order, where each occurs first, which of them each element is, how often each occurs)."""
    values, inverse, counts = F.unique(x, return_inverse=True, return_counts=True)
    order = F.argsort(F.reshape(inverse, (-1,)), stable=True)
    first = F.cumsum(counts, 0) - counts
    return UniqueAll(values, order[first], inverse, counts)


def unique_counts(x: Any, /) -> UniqueCounts:
    """(the different elements in order, how often each occurs)."""
    return UniqueCounts(*F.unique(x, return_counts=True))


def unique_inverse(x: Any, /) -> UniqueInverse:
    """(the different elements in order, which of them each element is)."""
    return UniqueInverse(*F.unique(x, return_inverse=True))


def unique_values(x: Any, /) -> Any:
    """The different elements in order."""
    return F.unique(x)


def where(condition: Any, x1: Any, x2: Any, /) -> Any:
    """Elements of x1 where the condition holds, of x2 elsewhere."""
    return F.where(condition, *promoted("where", x1, x2))
