"""Where the library's own code stands in the file system: how frames of it are told from the program's."""

from __future__ import annotations

import os.path

__all__ = ["CAPTURE", "PACKAGE", "own_file", "own_folder"]

PACKAGE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")  # with the separator at its end, as all folders here


def own_folder(*parts: str) -> str:
    """A folder of the package."""
    return os.path.join(PACKAGE, *parts, "")


def own_file(*parts: str) -> str:
    """A file of the package."""
    return os.path.join(PACKAGE, *parts)


CAPTURE = own_folder("capture")
