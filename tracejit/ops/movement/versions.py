"""Contents changed behind the back of the gradient: what a write under no_grad to a tensor that requires grad becomes in a pure graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.core.aval import Aval
from tracejit.ops.declare import NONE, elementwise

__all__ = ["replace_data"]


def _rule(previous: Aval, value: Aval) -> Aval:
    return previous


@elementwise(lambda b, previous, value: value, promotion=NONE, rule=_rule)
def replace_data(previous: Any, value: Any) -> Any:
    """The contents of `value` in the place of `previous`: gradients flow on to `previous` unchanged and none to `value`."""
    return np.array(value)


@replace_data.vjp()
def _(c: Any, g: Any) -> Any:
    return g, None
