"""Replacing what an object of C code refers to: an item of a tuple, the function of a `map`, what `itertools.accumulate` has added up.

Such an object shows no way to do so, but it lies in memory as its type says: words behind the header, some of them references.  The
garbage collector tells which references there are; a word is replaced only where the two agree.  `unsupported` tries it on living
objects first.
"""

from __future__ import annotations

import ctypes
import gc
from functools import cache
from typing import Any, Final

from tracejit.cpython import layouts
from tracejit.cpython.memory_reads import CheckedMemory, Unreadable

__all__ = ["replace_referent", "unsupported"]

_HEADER: Final = object.__basicsize__
_WORD: Final = ctypes.sizeof(ctypes.c_void_p)


@cache
def unsupported() -> str:
    """What speaks against it on this interpreter; empty if nothing does."""
    found = layouts.build()
    if found.implementation != "cpython" or found.free_threaded:  # where other threads may read the words meanwhile
        return f"references of objects of {'a free-threaded build of ' if found.free_threaded else ''}{found.text} cannot be replaced"
    old, new = object(), object()
    owner = (old, None, old)
    with CheckedMemory() as peek:
        try:
            words = [peek.word(id(owner) + offset) for offset in range(_HEADER, object.__sizeof__(owner), _WORD)]
        except Unreadable:
            words = []
    if words[-3:] != [id(old), id(None), id(old)] or not _replace(owner, old, new) or owner != (new, None, new):
        return f"references of objects of this build of {found.text} lie elsewhere"
    return ""


def replace_referent(owner: Any, old: Any, new: Any) -> bool:
    """Have `owner` refer to `new` wherever it refers to `old`; False, and nothing has changed, where its memory is not as expected.

    Whoever has `owner` sees the change, so `new` must be what `old` stands for: equal to it, with the same hash."""
    return not unsupported() and _replace(owner, old, new)


def _replace(owner: Any, old: Any, new: Any) -> bool:
    cls = type(owner)
    if cls.__itemsize__ and not issubclass(cls, tuple):  # a generator, for one: its memory does not tell how long it is
        return False
    count = sum(x is old for x in gc.get_referents(owner))
    words = (ctypes.c_void_p * ((object.__sizeof__(owner) - _HEADER) // _WORD)).from_address(id(owner) + _HEADER)
    positions = [k for k, word in enumerate(words) if word == id(old)]
    if not positions or len(positions) != count:
        return False
    for position in positions:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(new))
        words[position] = id(new)
    for _ in positions:
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(old))
    return True
