"""SciPy's special functions, found as C functions: machine code calls what SciPy's ufuncs call for each element, so bits are equal.

They are those of `scipy.special.cython_special` (https://docs.scipy.org/doc/scipy/reference/special.cython_special.html), of float64; the
ufuncs compute float32 in float64, too, but where there is a function of float32 (`erfinv`).  Expressions call them as `libm` functions
whose names begin with `PREFIX`.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final, NamedTuple

from tracejit.core import dtypes
from tracejit.core.capsules import capsule_address, capsule_name
from tracejit.core.dtypes import DType
from tracejit.core.lazy import lazy_module

__all__ = ["MODULE", "OF_FLOAT32", "PREFIX", "CythonFunction", "cython_function"]

MODULE: Final = "scipy.special.cython_special"
PREFIX: Final = "scipy_"
OF_FLOAT32: Final = frozenset({"erfinv"})
"""Functions that have a form of their own for float32."""

_special = lazy_module(MODULE)


class CythonFunction(NamedTuple):
    """name: what the module has it under.  Behind its numbers it takes an int, which says nothing to functions of modules."""

    name: str
    address: int


@cache
def cython_function(name: str, dtype: DType, arity: int) -> CythonFunction:
    """A function of so many numbers, by its name with `PREFIX`.  Raises ValueError where SciPy has none for this dtype."""
    plain, kind = name.removeprefix(PREFIX), "float" if dtype is dtypes.float32 else "double"
    taken = ", ".join([*[kind] * arity, "int __pyx_skip_dispatch"])
    signature = f"{kind} ({taken})".encode()
    pattern = re.compile(rf"(__pyx_fuse_(\d+_)?\d+)?{plain}")  # those for several types have one form for each
    for own, capsule in _special.__pyx_capi__.items():
        if pattern.fullmatch(own) and capsule_name(capsule) == signature:
            return CythonFunction(own, capsule_address(capsule))
    raise ValueError(f"{MODULE} has no function {plain!r} of {arity} numbers of {dtype.name}")
