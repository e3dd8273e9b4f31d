"""Whose a frame is, the library's or the program's: by where the package stands, never by the name of a directory.

A checkout, or the directory of a program, may be called as the package is.  It must not know what asks.
"""

from __future__ import annotations

import os.path
import sys
from types import CodeType, FrameType
from typing import Final

__all__ = ["CAPTURE", "PACKAGE", "PACKAGE_NAME", "is_own_code", "is_own_frame", "level_of_program", "own_file", "own_folder"]

# As code objects name it (in a program frozen by PyInstaller files have other paths), with the separator at its end, as all folders here.
PACKAGE: Final = os.path.join(os.path.dirname(os.path.dirname(sys._getframe().f_code.co_filename)), "")
PACKAGE_NAME: Final = __name__.partition(".")[0]
_GENERATED: Final = ("<tracejit ", "<nest ", "<numba ")


def own_folder(*parts: str) -> str:
    """A folder of the package."""
    return os.path.join(PACKAGE, *parts, "")


def own_file(*parts: str) -> str:
    """A file of the package."""
    return os.path.join(PACKAGE, *parts)


def is_own_code(code: CodeType) -> bool:
    """Whether code stands in a file of the package."""
    return code.co_filename.startswith(PACKAGE)


def is_own_frame(frame: FrameType) -> bool:
    """Whether a frame is the library's: its code is in a file of the package, or generated for it, as methods of dataclasses are."""
    filename = frame.f_code.co_filename
    if filename.startswith("<"):
        return filename.startswith(_GENERATED) or str(frame.f_globals.get("__name__")).partition(".")[0] == PACKAGE_NAME
    return filename.startswith(PACKAGE)


def level_of_program() -> int:
    """The `stacklevel` with which the caller's warnings.warn names the innermost line of the program."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and is_own_frame(frame):
        frame, level = frame.f_back, level + 1
    return level


CAPTURE = own_folder("capture")
