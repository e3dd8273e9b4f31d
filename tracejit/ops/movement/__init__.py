"""Primitives that move elements: views, copies, writes."""

from tracejit.ops.movement import copies, versions, views

__all__ = ["copies", "versions", "views"]
