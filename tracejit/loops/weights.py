"""What the operations of expressions cost, in units of an addition: the one table behind all decisions about cost.

The numbers decide only what is computed twice, what is kept and how loops are cut; a wrong number costs time, never correctness.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tracejit.loops.expressions import ELEMENTARY, Apply, Expr, topological

__all__ = ["total_weight"]

_WEIGHTS: Final = {
    "div": 8,
    "div_where": 2,
    "sqrt": 12,
    "floor_divide": 6,
    "remainder": 6,
    "fmod": 20,
    "pow": 40,
    "libm": 60,
    **dict.fromkeys(ELEMENTARY, 12),
}


def total_weight(roots: Iterable[Expr]) -> int:
    """The weight of everything below `roots`, what they share counted once."""
    return sum(_WEIGHTS.get(e.operation, 1) for e in topological(roots) if isinstance(e, Apply))
