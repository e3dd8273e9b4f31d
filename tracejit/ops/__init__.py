"""The primitives.  Importing this package fills `core.op.REGISTRY`."""

from tracejit.ops import (
    composites,
    creation,
    decompositions,
    elementwise,
    failures,
    fourier,
    indexing,
    linalg,
    movement,
    pseudoinverse,
    random,
    reduce,
    scan,
    scattering,
    sorting,
    triangular_factors,
)

__all__ = [
    "composites",
    "creation",
    "decompositions",
    "elementwise",
    "failures",
    "fourier",
    "indexing",
    "linalg",
    "movement",
    "pseudoinverse",
    "random",
    "reduce",
    "scan",
    "scattering",
    "sorting",
    "triangular_factors",
]
