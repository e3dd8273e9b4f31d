"""The one error for names that PyTorch has and this library has not: it says so, and names the nearest."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["missing_names", "nearest"]


def nearest(name: str, names: Any) -> str:
    """A sentence about what there is instead of `name`."""
    found = difflib.get_close_matches(name, [n for n in names if not n.startswith("_")], n=3, cutoff=0.6)
    return f"the nearest names are {', '.join(found)}" if found else "nothing here has a name like it"


def missing_names(module: str) -> Callable[[str], Any]:
    """The `__getattr__` of a module: raises AttributeError for a name that it has not."""

    def missing(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        raise AttributeError(f"module {module!r} has no attribute {name!r}: {nearest(name, vars(sys.modules[module]))}")

    return missing
