"""Files: read as a whole, and written so that there is either the old content or the new one, whatever happens in between."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

__all__ = ["FileFormatError", "read", "whole_file", "write"]


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


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which gets its name, in the place of what had it, once all is on the disk; nothing of it stays if the block raises.

    Its permissions are those of what it replaces, else what the umask leaves."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.part")
    try:
        with open(beside, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            os.chmod(beside, stat.S_IMODE(path.stat().st_mode))
        os.replace(beside, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            beside.unlink()
