"""Files: read as a whole, and written so that there is either the old content or the new one, whatever happens in between."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tracejit.core.whole_file import whole_file

__all__ = ["FileFormatError", "read", "write"]


class FileFormatError(RuntimeError):
    """A file is not what it should be: of another format, cut off, contradicting itself, or asking for more than its format may
    hold."""


def read(source: Any) -> bytes:
    """All of a file: a path, or an object with read()."""
    if hasattr(source, "read"):
        content = source.read()
        if not isinstance(content, bytes):
            raise TypeError("load(): expected a file opened in binary mode")
        return content
    return Path(source).read_bytes()


def write(target: Any, content: bytes) -> None:
    """Write a file: a path, whose content is replaced at once and not before all is on the disk, or an object with write()."""
    if hasattr(target, "write"):
        target.write(content)
        return
    path = Path(os.path.realpath(target))
    if path.exists() and not path.is_file():
        if path.is_dir():
            raise IsADirectoryError(f"{target}: is a directory")
        path.write_bytes(content)  # a pipe or a device: nothing there to keep
        return
    with whole_file(path) as file:
        file.write(content)
