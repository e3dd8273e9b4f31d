"""The first elements in order along a dimension, with their positions."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.core.aval import Aval
from tracejit.ops.creation import full
from tracejit.ops.declare import composite
from tracejit.ops.indexing import gather, scatter_add
from tracejit.ops.movement.views import detach
from tracejit.ops.samples import cases, floats, integers
from tracejit.ops.sorting import first_sorted

__all__ = ["leading"]


def _rule(x: Aval, dim: int, count: int, descending: bool) -> tuple[Aval, Aval]:
    positions = first_sorted.infer(x, dim=dim, count=count, descending=descending)
    return Aval(positions.shape, x.dtype), positions


def _expansion(x: Any, dim: int, count: int, descending: bool) -> tuple[Any, Any]:
    positions = first_sorted.of(x, dim=dim, count=count, descending=descending)
    return gather.of(x, positions, dim=dim), positions


@composite(
    _rule,
    _expansion,
    multiple=True,
    traits=("moves",),
    samples=cases(
        (floats(5), {"dim": 0, "count": 2, "descending": True}),
        (floats(2, 3).T, {"dim": 1, "count": 2, "descending": False}),
        (integers(3, 4), {"dim": 1, "count": 4, "descending": True}),
    ),
)
def leading(x: Any, dim: int, count: int, descending: bool) -> tuple[Any, Any]:
    """(the elements, their positions) of the first `count` in stable order along `dim`.  NaN counts as the largest."""
    positions = first_sorted.evaluate(x, dim, count, descending)
    return x[positions] if x.ndim == 1 else np.take_along_axis(x, positions, dim), positions


leading.named("TopkBackward0")


@leading.vjp(saves="out1")
def _(c: Any, g: Any, g_positions: Any) -> Any:
    if g is None:
        return None
    x, positions = c.avals[0], detach.of(c.outputs[1])  # positions have no gradient, though an operation that has one gives them
    return scatter_add.of(full.beside(g, 0.0, shape=x.shape, dtype=x.dtype), positions, g, dim=c.attributes["dim"])
