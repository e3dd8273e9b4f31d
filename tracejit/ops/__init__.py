"""The primitives.  Importing this package fills `core.op.REGISTRY`.

What programs register with `library.custom_op("my::name", ...)` is found here as `ops.my.name`.
"""

from typing import Any

from tracejit.core.missing import missing_names
from tracejit.core.namespaces import existing_namespace
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


def __getattr__(name: str) -> Any:
    found = existing_namespace(name)
    return missing_names(__name__)(name) if found is None else found
