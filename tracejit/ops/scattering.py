"""The scatter that multiplies or chooses: what meets at a position is combined by a product or an extreme."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tracejit.core.op import Kind
from tracejit.ops import indexing
from tracejit.ops.creation import full
from tracejit.ops.declare import custom
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.ops.elementwise.comparison import logical_and, where
from tracejit.ops.movement.views import slice_
from tracejit.ops.samples import cases, floats, integers

__all__ = ["scatter_reduce"]

_COMBINATIONS: Final[dict[str, np.ufunc]] = {"prod": np.multiply, "amax": np.maximum, "amin": np.minimum}


def _rule(base: Any, index: Any, src: Any, dim: int, reduce: str) -> Any:
    return indexing.scatter_rule(base, index, src, dim, "scatter_reduce")


@custom(
    Kind.OPAQUE,
    _rule,
    traits=("raises",),
    samples=cases(
        *(
            case
            for way in _COMBINATIONS
            for case in (
                (floats(4), integers(3, high=4), floats(3, seed=1), {"dim": 0, "reduce": way}),
                (floats(2, 3).T, integers(3, 4, high=2), floats(3, 4, seed=1), {"dim": 1, "reduce": way}),
                (floats(3, 2), integers(1, 2), floats(2, 3, seed=1), {"dim": 0, "reduce": way}),
            )
        )
    ),
)
def scatter_reduce(base: Any, index: Any, src: Any, dim: int, reduce: str) -> Any:
    """A copy of `base` with base[i][index[i][j]] combined with src[i][j] for dim=1 by `reduce`: "prod", "amax" or "amin".

    Raises IndexError for positions outside [0, size)."""
    indexing.scatter_rule(base, index, src, dim, "scatter_reduce")
    out = np.array(base, order="C")
    own = indexing.in_range("scatter_reduce", index, base.shape[dim])
    _COMBINATIONS[reduce].at(out, indexing.along(own, dim), src[tuple(slice(0, s) for s in own.shape)])
    return out


@scatter_reduce.vjp(saves="0 1 2 out")
def _(c: Any, g: Any) -> Any:
    (base, index, src), (out,), dim = c.inputs, c.outputs, c.attributes["dim"]
    for d, size in enumerate(index.shape):  # the rest of src is not used
        src = src if src.shape[d] == size else slice_.of(src, dim=d, start=0, stop=size, step=1)
    rule = _product if c.attributes["reduce"] == "prod" else _extreme
    gbase, gsrc = rule(c, base, index, src, out, g, dim)
    return gbase if c.needs[0] else None, None, indexing.embed(gsrc, c.avals[2].shape) if c.needs[2] else None


def _extreme(c: Any, base: Any, index: Any, src: Any, out: Any, g: Any, dim: int) -> tuple[Any, Any]:
    """Divided evenly among all that are equal to the extreme."""
    dtype = c.avals[0].dtype
    kept, chosen = base == out, src == indexing.gather.of(out, index, dim=dim)
    count = indexing.scatter_add.of(cast.of(kept, dtype=dtype), index, cast.of(chosen, dtype=dtype), dim=dim)
    share = g / where.of(count == 0.0, 1.0, count)  # NaN equals nothing
    return where.of(kept, share, 0.0), where.of(chosen, indexing.gather.of(share, index, dim=dim), 0.0)


def _product(c: Any, base: Any, index: Any, src: Any, out: Any, g: Any, dim: int) -> tuple[Any, Any]:
    """The product of the other factors: a quotient, but where the factor itself is the only zero."""
    dtype = c.avals[0].dtype
    zero = base == 0.0
    others = scatter_reduce.of(where.of(zero, 1.0, base), index, src, dim=dim, reduce="prod")
    gbase = g * others / where.of(zero, 1.0, base)
    none = src == 0.0
    counts = full.beside(g, 0.0, shape=c.avals[0].shape, dtype=dtype)
    count = indexing.scatter_add.of(counts, index, cast.of(none, dtype=dtype), dim=dim)
    only = logical_and.of(none, indexing.gather.of(count, index, dim=dim) == 1.0)
    rest = scatter_reduce.of(base, index, where.of(only, 1.0, src), dim=dim, reduce="prod")
    quotient = indexing.gather.of(g * out, index, dim=dim) / where.of(none, 1.0, src)
    return gbase, where.of(only, indexing.gather.of(g * rest, index, dim=dim), quotient)
