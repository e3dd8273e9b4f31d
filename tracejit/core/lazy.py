"""Third-party modules that are imported when they are first used.

Numba takes longer to import than everything else together, and a process whose programs are all in the disk cache never needs it.
`lazy_module("numba")` stands for the module, which is imported when one of its attributes is asked for or set.  For modules of other
projects only: the modules of this one import each other at the top.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

__all__ = ["lazy_module"]


class _LazyModule(ModuleType):
    """A module that is imported when an attribute is first asked for or set; it has none of its own."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(importlib.import_module(self.__name__), name, value)


def lazy_module(name: str) -> Any:
    """The module `name`, imported when an attribute of it is first asked for or set; ImportError then, if there is none."""
    return _LazyModule(name)
