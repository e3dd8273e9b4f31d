"""The primitives.  Importing this package fills `core.op.REGISTRY`."""

from tracejit.ops import creation, decompositions, elementwise, indexing, linalg, movement, random, reduce, scan, sorting

__all__ = ["creation", "decompositions", "elementwise", "indexing", "linalg", "movement", "random", "reduce", "scan", "sorting"]
