"""Primitives whose output element depends on one element of each operand."""

from tracejit.ops.elementwise import (
    arithmetic,
    bessel,
    bitwise,
    c_functions,
    comparison,
    exponents,
    incomplete,
    logarithmic,
    mathematics,
    orthogonal,
    rounding,
    special,
    trigonometry,
)

__all__ = [
    "arithmetic",
    "bessel",
    "bitwise",
    "c_functions",
    "comparison",
    "exponents",
    "incomplete",
    "logarithmic",
    "mathematics",
    "orthogonal",
    "rounding",
    "special",
    "trigonometry",
]
