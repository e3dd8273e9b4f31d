"""The primitives.  Importing this package fills `core.op.REGISTRY`."""

from tracejit.ops import creation, elementwise, indexing, linalg, movement, reduce

__all__ = ["creation", "elementwise", "indexing", "linalg", "movement", "reduce"]
