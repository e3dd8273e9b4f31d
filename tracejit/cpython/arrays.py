"""Where NumPy's public array struct (PyArrayObject_fields) keeps what, and where tuples and bytes keep their contents.

Every program reads these, on any build of CPython; `unknown_layout` compares them with what live objects say before the first one is made.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Final

import numpy as np

__all__ = [
    "ALIGNED", "BYTES", "DATA", "DESCR", "DIMENSIONS", "FLAGS", "ND", "STRIDES", "TUPLE_ITEMS", "WRITEABLE", "unknown_layout",
]  # fmt: skip

HEADER: Final = object.__basicsize__  # PyObject_HEAD: 16 bytes, more in some builds
TUPLE_ITEMS: Final = tuple.__basicsize__
BYTES: Final = bytes.__basicsize__ - 1
DATA, ND, DIMENSIONS, STRIDES, DESCR, FLAGS = (HEADER + 8 * i for i in (0, 1, 2, 3, 5, 6))
ALIGNED, WRITEABLE = 0x0100, 0x0400


@cache
def unknown_layout() -> str:
    """What speaks against machine code that reads arrays, by comparison with what NumPy says of one in a live tuple; empty if nothing
    does."""
    array = np.zeros((3, 5), dtype=np.float32)[:, 1:4]
    key = bytes(range(8))
    holder = (None, array)

    def word(address: int, kind: type[ctypes.c_int64] | type[ctypes.c_int32] = ctypes.c_int64) -> int:
        return int(kind.from_address(address).value)

    def words(address: int) -> tuple[int, int]:
        return word(address), word(address + 8)

    base = id(array)
    seen = {
        "tuple item": (word(id(holder) + TUPLE_ITEMS + 8), base),
        "bytes": (word(id(key) + BYTES), int.from_bytes(key, sys.byteorder)),
        "data": (word(base + DATA), array.__array_interface__["data"][0]),
        "nd": (word(base + ND, ctypes.c_int32), array.ndim),
        "dimensions": (words(word(base + DIMENSIONS)), array.shape),
        "strides": (words(word(base + STRIDES)), array.strides),
        "descr": (word(base + DESCR), id(np.dtype(np.float32))),
        "flags": (word(base + FLAGS, ctypes.c_int32) & (ALIGNED | WRITEABLE), ALIGNED | WRITEABLE),
    }
    wrong = [f"{name}: read {read}, expected {expected}" for name, (read, expected) in seen.items() if read != expected]
    if not wrong:
        return ""
    return f"the memory layout of tuples, bytes or NumPy {np.__version__} arrays is not the known one ({'; '.join(wrong)})"
