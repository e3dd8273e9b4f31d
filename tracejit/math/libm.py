"""The C library's mathematics, found once: addresses for machine code, Python callables for the reference meaning.

Both renderings call the same function, so what is left to libm is bit-equal between them.  Names are C's double names; the float
forms have the suffix f.  Names that begin with `scipy_functions.PREFIX` are SciPy's.  This module knows no expressions.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

import numpy as np

from tracejit.core import dtypes
from tracejit.core.dtypes import DType
from tracejit.math.scipy_functions import PREFIX, cython_function

__all__ = ["address", "call", "fma", "further_arguments", "library_name", "symbol"]

_LIBRARIES: Final = {"linux": "libm.so.6", "darwin": "libSystem.dylib", "win32": "ucrtbase.dll"}


def library_name() -> str | None:
    """What the dynamic linker knows the library by; None for the process itself."""
    return _LIBRARIES.get(sys.platform)


def further_arguments(name: str) -> tuple[int, ...]:
    """What a function takes behind its numbers, each an int of C."""
    return (0,) if name.startswith(PREFIX) else ()


def symbol(name: str, dtype: DType) -> str:
    """The name of the function for float32 or float64."""
    return name + "f" if dtype is dtypes.float32 else name


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(library_name())


@cache
def _function(name: str, dtype: DType, arity: int) -> Any:
    kind = ctypes.c_float if dtype is dtypes.float32 else ctypes.c_double
    if name.startswith(PREFIX):
        return ctypes.CFUNCTYPE(kind, *[kind] * arity, ctypes.c_int)(cython_function(name, dtype, arity).address)
    try:
        function = getattr(_library(), symbol(name, dtype))
    except AttributeError:
        raise ValueError(f"the C mathematics library of this system has no function {symbol(name, dtype)!r}") from None
    function.restype = kind
    function.argtypes = [kind] * arity
    return function


def address(name: str, dtype: DType, arity: int) -> int:
    """The address of a function of `arity` arguments of float32 or float64.  Raises ValueError where libm lacks it."""
    return int(ctypes.cast(_function(name, dtype, arity), ctypes.c_void_p).value or 0)


def _map(function: Callable[..., float], operands: Sequence[Any], further: tuple[int, ...]) -> Any:
    """Apply a C function to NumPy scalars or arrays that broadcast.  further: what it takes behind them."""
    if all(np.ndim(o) == 0 for o in operands):
        return operands[0].dtype.type(function(*map(float, operands), *further))
    arrays = np.broadcast_arrays(*operands)
    values = [function(*row, *further) for row in zip(*(a.ravel().tolist() for a in arrays), strict=True)]
    return np.array(values, dtype=arrays[0].dtype).reshape(arrays[0].shape)


def call(name: str, *operands: Any) -> Any:
    """libm's function on NumPy scalars or arrays of one floating-point dtype."""
    dtype = dtypes.from_numpy_dtype(operands[0].dtype)
    return _map(_function(name, dtype, len(operands)), operands, further_arguments(name))


def fma(x: Any, y: Any, z: Any) -> Any:
    """x * y + z rounded once, which C guarantees.  float32: the product is exact in float64, and the sum is rounded to odd there
    (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008), so that the second rounding does no harm."""
    if x.dtype != np.float32:
        return call("fma", x, y, z)
    with np.errstate(all="ignore"):
        product, addend = np.float64(x) * np.float64(y), np.float64(z)
        total = product + addend
        virtual = total - product
        error = (product - (total - virtual)) + (addend - virtual)
        bits = np.asarray(total).view(np.int64)
        # An inexact even sum moves one unit towards its error; the other of its two neighbours is odd already.
        inexact_even = np.isfinite(total) & (error != 0) & ((bits & 1) == 0)
        towards = np.where((error > 0) == (total > 0), 1, -1)
        odd = np.where(inexact_even, bits + towards, bits).view(np.float64)
        return odd.astype(np.float32)[()]
