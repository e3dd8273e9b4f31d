"""Primitives whose output element depends on one element of each operand."""

from tracejit.ops.elementwise import arithmetic, bitwise, comparison, mathematics, rounding, special, trigonometry

__all__ = ["arithmetic", "bitwise", "comparison", "mathematics", "rounding", "special", "trigonometry"]
