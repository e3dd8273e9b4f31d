"""The one error for names that PyTorch has and this library has not: it says so, and names the nearest."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable
from typing import Any, Final, NoReturn

__all__ = ["ABSENT_NAMES", "absent", "missing_names", "nearest"]

_COMPLEX = (
    "tracejit has no complex numbers: keep real and imaginary parts in two tensors, as the functions of fft take and give them"
)
_SPARSE = "tensors are dense: use a dense tensor, or index_add() and scatter_add() along lists of indices"
ABSENT_NAMES: Final = {
    **dict.fromkeys(("eig", "eigvals", "istft"), _COMPLEX),
    **dict.fromkeys(("sparse_compressed_tensor", "sparse_coo_tensor", "sparse_csr_tensor", "to_sparse"), _SPARSE),
    **dict.fromkeys(
        ("jagged", "nested_tensor"), "all rows of a tensor are of one size: pad them, and give their lengths or a mask"
    ),
}
"""What is not here for a reason of principle, by the last part of PyTorch's name: why, and what to use."""


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
        why = ABSENT_NAMES.get(name) or nearest(name, vars(sys.modules[module]))
        raise AttributeError(f"module {module!r} has no attribute {name!r}: {why}")

    return missing


class _AbsentClass(type):
    """The type of classes that only have a name: nothing is an instance, and making one raises `error` with `message`."""

    message: str
    error: type[Exception]

    def __instancecheck__(cls, instance: Any) -> bool:
        return False

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise cls.error(cls.message)

    def __getitem__(cls, item: Any) -> Any:
        return cls  # in annotations

    def __getattr__(cls, name: str) -> Any:
        raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}: {cls.message}")


def absent(module: str, name: str, message: str, error: type[Exception] = NotImplementedError) -> Any:
    """What programs can import under a name of PyTorch's and not use: calling it raises `error`, which says what to do instead.

    A class, of which nothing is an instance, for a name that begins with a capital letter; else a function."""
    doc = f"Raises {error.__name__}: {message}"
    if name.lstrip("_")[:1].isupper():
        return _AbsentClass(name, (), {"__module__": module, "__doc__": doc, "message": message, "error": error})

    def function(*args: Any, **kwargs: Any) -> NoReturn:
        raise error(message)

    function.__name__ = function.__qualname__ = name
    function.__module__, function.__doc__ = module, doc
    return function
