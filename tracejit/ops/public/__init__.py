"""PyTorch's functions over the primitives.  Importing this package fills the tables of `derive`."""

from tracejit.ops.public import creation, elementwise, indexing, linalg, movement, reduce, softmax
from tracejit.ops.public.derive import FUNCTIONS, IN_PLACE, METHODS

__all__ = ["FUNCTIONS", "IN_PLACE", "METHODS", "creation", "elementwise", "indexing", "linalg", "movement", "reduce", "softmax"]
