"""Primitives that move elements: views, copies, writes."""

from tracejit.ops.movement import copies, views

__all__ = ["copies", "views"]
