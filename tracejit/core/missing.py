"""The one error for names that PyTorch has and this library has not: it says so, and names the nearest."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["missing_names", "nearest"]


def nearest(name: str, names: Any) -> str:
    """A sentence about what there is instead of `name`: what a slip of the fingers makes of it, or what it is the beginning of."""
    public = [n for n in names if not n.startswith("_")]
    slips = max(1, len(name) // 4)
    found = [n for n in difflib.get_close_matches(name, public, n=10, cutoff=0.6) if _edits(name.lower(), n.lower()) <= slips]
    found += sorted(n for n in public if len(name) > 3 and n.startswith(name) and n not in found)
    return f"the nearest names are {', '.join(found[:3])}" if found else "nothing here has a name like it"


def _edits(a: str, b: str) -> int:
    """How many letters are put in, left out, replaced, or swapped with the next one, to make one name of the other (optimal string
    alignment: Boytsov, Indexing methods for approximate dictionary searching, 2011)."""
    rows = [list(range(len(b) + 1))]
    for i, x in enumerate(a):
        row = [i + 1]
        for j, y in enumerate(b):
            row.append(min(rows[i][j + 1] + 1, row[j] + 1, rows[i][j] + (x != y)))
            if i and j and x == b[j - 1] and y == a[i - 1]:
                row[-1] = min(row[-1], rows[i - 1][j - 1] + 1)
        rows.append(row)
    return rows[-1][-1]


def missing_names(module: str) -> Callable[[str], Any]:
    """The `__getattr__` of a module: raises AttributeError for a name that it has not."""

    def missing(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        raise AttributeError(f"module {module!r} has no attribute {name!r}: {nearest(name, vars(sys.modules[module]))}")

    return missing
