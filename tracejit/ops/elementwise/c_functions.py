"""Functions of the C library, by their names there: what Python's module `math` comes to, bit for bit.

They are for what Python computes of numbers that have left tensors; those of tensors are exponents.py and others.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tracejit.core.aval import Aval
from tracejit.core.dtypes import float64
from tracejit.core.shapes import broadcast_shapes
from tracejit.ops.declare import NONE, elementwise
from tracejit.ops.samples import unary

__all__ = ["c_function"]


def _doubles(*avals: Any, name: str) -> Aval:
    if not all(isinstance(aval, Aval) and aval.dtype is float64 for aval in avals):
        raise RuntimeError(f"c_function(): {name} of C is computed in float64, got {', '.join(map(str, avals))}")
    return Aval(broadcast_shapes("c_function", *(aval.shape for aval in avals)), float64)


@elementwise(
    lambda b, *xs, name: b.libm(name, *xs),
    promotion=NONE, rule=_doubles, samples=unary(0.1, 0.9, name="log"), traits=("not differentiable",),
)  # fmt: skip
def c_function(*xs: Any, name: str) -> Any:
    """A function of float64, elementwise; where Python raises, what C gives."""
    arrays = np.broadcast_arrays(*xs)
    values = [_value(name, row) for row in zip(*(a.ravel().tolist() for a in arrays), strict=True)]
    return np.array(values, np.float64).reshape(arrays[0].shape)


def _value(name: str, given: tuple[float, ...]) -> float:
    try:
        return float(getattr(math, name)(*given))
    except OverflowError:
        return math.inf
    except ValueError:
        return -math.inf if name.startswith("log") and given[0] == (-1 if name == "log1p" else 0) else math.nan
