"""Third-party modules that are imported when they are first used.

Numba takes longer to import than everything else together, and a process whose programs are all in the disk cache never needs it.
`lazy_module("numba")` stands for the module until one of its attributes is asked for.  For modules of other projects only: the
modules of this one import each other at the top.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

__all__ = ["lazy_module"]


class _LazyModule(ModuleType):
    """A module that is imported by its first attribute access."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


def lazy_module(name: str) -> Any:
    """The module `name`, imported when an attribute of it is first asked for; ImportError then, if there is none."""
    return _LazyModule(name)
