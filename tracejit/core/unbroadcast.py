"""What undoes a broadcast in a derivative: an operand that was repeated has the sum of what its copies receive.

Rules, the tape and the passes that differentiate graphs all need it, on arrays, Tensors and tracers alike.
"""

from __future__ import annotations

from typing import Any

from tracejit.core.op import REGISTRY
from tracejit.core.shapes import same

__all__ = ["sum_to"]


def sum_to(g: Any, shape: tuple[int, ...]) -> Any:
    """The cotangent `g` of an operand of `shape`, summed to that."""
    if same(g.shape, shape):
        return g
    lead = len(g.shape) - len(shape)
    dims = tuple(range(lead)) + tuple(i + lead for i, s in enumerate(shape) if s == 1 and g.shape[i + lead] != 1)
    if dims:
        g = REGISTRY["sum"].of(g, dims=dims, keepdim=True)
    return REGISTRY["reshape"].of(g, shape=shape) if lead else g
