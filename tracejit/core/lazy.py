"""Modules that are imported when they are first used.

Numba takes longer to import than everything else together, and a process whose programs are all in the disk cache never needs it.
`lazy_module("numba")` stands for the module, which is imported when one of its attributes is asked for or set.  For modules of other
projects, and those of the standard library that import much (urllib.request: TLS, mail); the modules of this one import each other at
the top, but for one whose classes are subclasses of Numba's (ffi/numba_function.py).
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

from tracejit.core.uninterrupted import uninterrupted_result

__all__ = ["lazy_module"]


class _LazyModule(ModuleType):
    """A module that is imported when an attribute is first asked for or set; it has none of its own."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_imported(self.__name__), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(_imported(self.__name__), name, value)


def _imported(name: str) -> ModuleType:
    """The module.  It is imported aside: an interrupt, or too deep a recursion, would leave it half made."""
    if name in sys.modules:
        return importlib.import_module(name)
    return uninterrupted_result(lambda: importlib.import_module(name))


def lazy_module(name: str) -> Any:
    """The module `name`, imported when an attribute of it is first asked for or set; ImportError then, if there is none."""
    return _LazyModule(name)
