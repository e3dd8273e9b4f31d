"""Pointers in capsules: how modules of C give their functions to others (https://docs.python.org/3/c-api/capsule.html).

Capsules are of the stable part of Python's C interface: nothing here depends on the interpreter's version."""

from __future__ import annotations

import ctypes
from typing import Any

__all__ = ["capsule_address", "capsule_name"]


def capsule_name(capsule: Any) -> bytes | None:
    """The name of a capsule, if it has one: Cython's say there what the function takes and returns."""
    get_name = ctypes.pythonapi.PyCapsule_GetName
    get_name.restype, get_name.argtypes = ctypes.c_char_p, (ctypes.py_object,)
    name: bytes | None = get_name(capsule)
    return name


def capsule_address(capsule: Any) -> int:
    """The pointer that a capsule holds."""
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return int(get_pointer(capsule, capsule_name(capsule)))
