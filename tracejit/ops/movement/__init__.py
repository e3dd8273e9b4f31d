"""Primitives that move elements: views, copies, writes.

Must not know: what is in the elements; how nests read through a view (that follows from the rule `Op.element` of its block).
Start reading: views.py, then versions.py (`write` and what functionalisation makes of it).
"""

from tracejit.ops.movement import copies, versions, views

__all__ = ["copies", "versions", "views"]
