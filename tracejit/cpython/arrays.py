"""Where NumPy's public array struct (PyArrayObject_fields) keeps what, and where tuples and bytes keep their contents.

Every program reads these, on any build of CPython; `unknown_layout` compares them with what live objects say before the first one is made.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Final

import numpy as np

from tracejit.cpython import layouts
from tracejit.cpython.builtin_functions import ONE
from tracejit.cpython.memory_reads import CheckedMemory, Unreadable

__all__ = [
    "ALIGNED", "BYTES", "DATA", "DESCR", "DIMENSIONS", "FLAGS", "HEADER", "ND", "STRIDES", "TUPLE_ITEMS", "WRITEABLE", "unknown_layout",
]  # fmt: skip

HEADER: Final = object.__basicsize__  # PyObject_HEAD: 16 bytes, more in some builds
TUPLE_ITEMS: Final = tuple.__basicsize__
BYTES: Final = bytes.__basicsize__ - 1
DATA, ND, DIMENSIONS, STRIDES, DESCR, FLAGS = (HEADER + 8 * i for i in (0, 1, 2, 3, 5, 6))
ALIGNED, WRITEABLE = 0x0100, 0x0400


@cache
def unknown_layout() -> str:
    """What speaks against machine code that reads arrays and is called from Python, by comparison with what NumPy and Python say of objects
    that live; empty if nothing does."""
    version = layouts.build()
    if version.implementation != "cpython":
        return f"the memory of {version.text}'s objects is not known, only that of CPython's"
    array = np.zeros((3, 5), dtype=np.float32)[:, 1:4]
    key = bytes(range(8))
    holder = (None, array)
    with CheckedMemory() as peek:
        if not peek.is_safe and version.version not in layouts.TESTED:
            return f"where {version.text} keeps tuples and arrays cannot be tried without risk on this system"

        word = peek.word

        def half(address: int) -> int:
            return int.from_bytes(peek.bytes(address, 4), sys.byteorder, signed=True)

        def words(address: int) -> tuple[int, int]:
            return word(address), word(address + 8)

        def method(address: int) -> tuple[bytes, int]:
            definition = word(address + HEADER)
            return peek.bytes(word(definition), 4), half(definition + 16)

        base = id(array)
        expected: dict[str, tuple[Callable[[], object], object]] = {
            "tuple item": (lambda: word(id(holder) + TUPLE_ITEMS + 8), base),
            "bytes": (lambda: word(id(key) + BYTES), int.from_bytes(key, sys.byteorder)),
            "data": (lambda: word(base + DATA), array.__array_interface__["data"][0]),
            "nd": (lambda: half(base + ND), array.ndim),
            "dimensions": (lambda: words(word(base + DIMENSIONS)), array.shape),
            "strides": (lambda: words(word(base + STRIDES)), array.strides),
            "descr": (lambda: word(base + DESCR), id(np.dtype(np.float32))),
            "flags": (lambda: half(base + FLAGS) & (ALIGNED | WRITEABLE), ALIGNED | WRITEABLE),
            "PyMethodDef": (lambda: method(id(len)), (b"len\0", ONE)),
        }
        wrong = []
        for name, (read, value) in expected.items():
            try:
                found = read()
            except Unreadable as error:
                found = f"nothing ({error})"
            if found != value:
                wrong.append(f"{name}: read {found}, expected {value}")
    if not wrong:
        return ""
    return f"the memory layout of functions, tuples, bytes or NumPy {np.__version__} arrays is not the known one ({'; '.join(wrong)})"
