"""Primitives that order elements.  All are evaluated on the host, and none is differentiable: values follow positions through `gather`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.core.aval import Aval
from tracejit.core.dtypes import int64
from tracejit.core.op import Kind
from tracejit.ops.declare import custom
from tracejit.ops.samples import cases, floats

__all__ = ["argsort", "searchsorted"]


@custom(
    Kind.OPAQUE,
    lambda x, dim, descending: Aval(x.shape, int64),
    samples=cases(
        (floats(5), {"dim": 0, "descending": False}),
        (floats(2, 3).T, {"dim": 1, "descending": True}),
        (floats(0, 2), {"dim": 0, "descending": False}),
    ),
    traits=("not differentiable",),
)
def argsort(x: Any, dim: int, descending: bool) -> Any:
    """Positions that put the elements along `dim` in order.  Equal elements keep their order; NaN counts as the largest."""
    if not descending:
        return x.argsort(axis=dim, kind="stable")
    return np.flip(x.shape[dim] - 1 - np.flip(x, dim).argsort(axis=dim, kind="stable"), dim).copy()


@custom(
    Kind.OPAQUE,
    lambda boundaries, values, right: Aval(values.shape, int64),
    samples=cases((np.arange(4.0), floats(2, 3).T, {"right": False}), (np.arange(4.0), np.arange(3.0), {"right": True})),
    traits=("not differentiable",),
)
def searchsorted(boundaries: Any, values: Any, right: bool) -> Any:
    """Where each value would be inserted into `boundaries`, which are sorted along their last dimension; after its equals if `right`."""
    side: Any = "right" if right else "left"
    if boundaries.ndim == 1:
        return boundaries.searchsorted(values, side)
    found = np.empty(values.shape, np.int64)
    for place in np.ndindex(values.shape[:-1]):
        found[place] = boundaries[place].searchsorted(values[place], side)
    return found
