"""Writing a file so that there is either the old content or the new one under its name, whatever happens in between."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

__all__ = ["whole_file", "written"]


def written(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write a file: there is the old content or the new one, never a part.  Returns its path, with links followed.  Raises OSError."""
    target = Path(os.path.realpath(path))
    with whole_file(target) as file:
        file.write(content)
    return target


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
