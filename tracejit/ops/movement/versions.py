"""What a write to a tensor that requires grad becomes in a pure graph: contents that change behind the back of the gradient (a write
under no_grad), and contents of a view whose new value takes the gradient (any other write)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.core.aval import Aval
from tracejit.ops.creation import zero_gradient
from tracejit.ops.declare import NONE, elementwise, require_one_dtype
from tracejit.ops.movement.copies import clone
from tracejit.ops.samples import cases, floats

__all__ = ["overwrite", "replace_data"]


def _rule(previous: Aval, value: Aval) -> Aval:
    require_one_dtype("overwrite", previous, value)
    return previous


# By design the vjp is not the derivative of the evaluation, hence the trait.
@elementwise(
    lambda b, previous, value: value,
    promotion=NONE,
    rule=_rule,
    simpler=lambda s, previous, value: s(clone, value),
    traits=("straight through", "moves"),
    samples=cases((floats(4), floats(4, seed=1)), (floats(2, 3).T, floats(3, 2, seed=1))),
)
def replace_data(previous: Any, value: Any) -> Any:
    """The contents of `value` in the place of `previous`: gradients flow on to `previous` unchanged and none to `value`."""
    return np.array(value)


@replace_data.vjp()
def _(c: Any, g: Any) -> Any:
    return g, None


@elementwise(
    lambda b, previous, value: value,
    promotion=NONE,
    rule=_rule,
    simpler=lambda s, previous, value: s(clone, value),
    traits=("moves",),
    samples=cases((floats(4), floats(4, seed=1)), (floats(2, 3).T, floats(3, 2, seed=1))),
)
def overwrite(previous: Any, value: Any) -> Any:
    """The contents of `value` in the place of `previous`, whose gradient is zero: it is there, as for a slice that was written to."""
    return np.array(value)


@overwrite.vjp()
def _(c: Any, g: Any) -> Any:
    return zero_gradient(c, g, 0) if c.needs[0] else None, g
