"""Primitives whose output element depends on one element of each operand."""

from tracejit.ops.elementwise import arithmetic, comparison, mathematics

__all__ = ["arithmetic", "comparison", "mathematics"]
