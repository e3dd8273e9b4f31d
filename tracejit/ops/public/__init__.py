"""PyTorch's functions over the primitives.  Importing this package fills the tables of `derive`."""

from tracejit.ops.public import (
    arrangement,
    convolution,
    creation,
    einsum,
    elementwise,
    indexing,
    linalg,
    linear_algebra,
    movement,
    norms,
    pooling,
    random,
    reduce,
    sampling,
    softmax,
    sorting,
)  # fmt: skip
from tracejit.ops.public.derive import FUNCTIONS, IN_PLACE, METHODS

__all__ = [
    "FUNCTIONS", "IN_PLACE", "METHODS", "arrangement", "convolution", "creation", "einsum", "elementwise", "indexing", "linalg",
    "linear_algebra", "movement", "norms", "pooling", "random", "reduce", "sampling", "softmax", "sorting",
]  # fmt: skip
