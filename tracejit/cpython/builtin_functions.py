"""Built-in functions of Python around machine code."""

from __future__ import annotations

import ctypes
from typing import Any, Final

__all__ = ["FASTCALL", "KEYWORDS", "ONE", "builtin_function"]

FASTCALL: Final = 0x0080  # METH_FASTCALL
KEYWORDS: Final = 0x0002  # METH_KEYWORDS
ONE: Final = 0x0008  # METH_O


class _MethodDefinition(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (("name", ctypes.c_char_p), ("method", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


def builtin_function(name: str, address: int, flags: int, own: Any) -> Any:
    """A built-in function around machine code that is called with the tuple `own` as `self`, which must own that code."""
    definition = _MethodDefinition(name.encode(), address, flags, None)
    create = ctypes.pythonapi.PyCFunction_NewEx
    create.restype, create.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    return create(ctypes.addressof(definition), (*own, definition), None)
