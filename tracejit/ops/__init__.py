"""The primitives, a block each: evaluation by NumPy, shape rule, vjp, scalar lowering, samples.  Importing this package fills
`core.op.REGISTRY`.  Functions under PyTorch's names, which are written with primitives, are in public/; primitives that stand
for several others, with a faster body, in composites/.

Broadcasting is implicit in elementwise primitives; all other shapes match exactly, and public functions see to it.  Every
in-place form is a pure primitive followed by `write`.  No pass and no builder of nests asks for the name of a primitive
(tests/test_operations_own_their_rules.py).

What programs register with `library.custom_op("my::name", ...)` is found here as `ops.my.name`.

Must not know: tensors, the tape, graphs, the compiler.  Rules work on whatever they are given: arrays, tensors or tracers.
Start reading: elementwise/arithmetic.py (short blocks), declare.py (the decorators), ../core/op.py (what each part of a block
means).
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
