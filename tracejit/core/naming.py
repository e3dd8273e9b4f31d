"""What the package is called in the texts of dtypes, sizes, layouts and types: by its name, or by the name that `compat` gives it.

A program that compares or prints `str(x.dtype)` under that name gets the text that it was written for.
"""

from __future__ import annotations

__all__ = ["call_package", "package_name"]

_OWN = "tracejit"
_name = [_OWN]


def package_name() -> str:
    """The name that stands in texts."""
    return _name[0]


def call_package(name: str | None) -> None:
    """Use this name from now on; None for the package's own."""
    _name[0] = _OWN if name is None else name
