"""Primitives whose output element depends on one element of each operand.

Must not know: how elements are stored, which loops run over them.
Start reading: arithmetic.py, then trigonometry.py for functions that machine code has a definition of.
"""

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
