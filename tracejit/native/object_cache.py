"""Object code of programs in files, so that a later process need not compile them again.

A file is named by the hash of all that its content depends on (the driver makes it) and holds a header and the bytes.  Nothing in it is
interpreted before it is known to be whole and to be what its name says: format, key, length and SHA-256 of the bytes are compared first.

Whose files are read: only those of a directory that belongs to this user, that no one else can write to, and that is no symbolic link; the
same for each file.  A directory that does not exist is made with mode 0700.  Files appear whole: they are written under another name
and renamed.  When all of them exceed the limit, those that were used longest ago go; only some stores look, so small files may exceed it a
little for a while.

The cache is never needed: whatever is in doubt or fails is counted, told where TRACEJIT_DEBUG >= 1, and the program is compiled.
Systems without owners and directory descriptors (Windows) have no cache.  This module knows bytes and names, not what they mean.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from tracejit.config import config
from tracejit.core.interrupts import is_foreign

__all__ = [
    "SUFFIX",
    "Counts",
    "Doubt",
    "Files",
    "clear",
    "counts",
    "directory",
    "discard",
    "files",
    "keep",
    "limit_bytes",
    "load_or_make",
    "take",
]

Loaded = TypeVar("Loaded")

SUFFIX: Final = ".tracejit"
FORMAT: Final = 1

_TEMPORARY: Final = ".tmp"
_LOOKING: Final = 32  # one store in so many looks at all files: their number makes that slow
_ABANDONED: Final = 3600.0  # seconds after which a temporary file's writer is taken for dead
_HEADER: Final = struct.Struct("<8sI32sQ32s")  # magic, format, key, length and SHA-256 of the bytes that follow
_MAGIC: Final = b"tracejit"
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_SUPPORTED: Final = hasattr(os, "geteuid") and hasattr(os, "O_NOFOLLOW") and {os.open, os.unlink, os.rename} <= os.supports_dir_fd


class Doubt(Exception):
    """Why a directory or a file is not used."""


@dataclass(slots=True)
class Counts:
    """What happened in this process.  refused: files that were not what they should be; failed: reads and writes that the system
    refused, and directories that are not used."""

    hits: int = 0
    misses: int = 0
    stored: int = 0
    refused: int = 0
    evicted: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Files:
    """The files of the cache: how many, and how long together."""

    count: int
    size: int


counts: Final = Counts()


def _report(message: str) -> None:
    """Tell people who asked for messages."""
    if config.debug >= 1:
        print(f"tracejit: program cache: {message}", file=sys.stderr)


def directory() -> Path | None:
    """Where files are, or None: TRACEJIT_CACHE_DIR, else tracejit/ under XDG_CACHE_HOME or ~/.cache."""
    if config.cache_dir:
        return Path(os.path.abspath(os.path.expanduser(config.cache_dir)))
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the XDG specification: relative paths are ignored
        base = os.path.expanduser(os.path.join("~", ".cache"))
    return Path(base, "tracejit") if os.path.isabs(base) else None  # no home


def limit_bytes() -> int:
    """Bytes that all files may have together (TRACEJIT_CACHE_SIZE, in MiB)."""
    return config.cache_size << 20


def _check(status: os.stat_result, what: str) -> None:
    if status.st_uid != os.geteuid():
        raise Doubt(f"{what} belongs to user {status.st_uid}, not to {os.geteuid()}")
    if status.st_mode & _OTHERS_WRITE:
        raise Doubt(f"{what} can be written to by others (mode {stat.S_IMODE(status.st_mode):o})")


@contextmanager
def _opened(create: bool) -> Iterator[int]:
    """A descriptor of the directory, which what follows refers to: the one that was checked, whatever happens to its name.

    Raises Doubt, FileNotFoundError (only if not create), OSError."""
    path = directory()
    if not _SUPPORTED or path is None:
        raise Doubt("no home directory" if _SUPPORTED else "this system has no owners of files")
    if create and not path.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _check(os.fstat(descriptor), f"directory {path}")
        yield descriptor
    finally:
        os.close(descriptor)


def _read(at: int, key: str) -> bytes:
    """The bytes kept under a key.  Raises Doubt, OSError."""
    descriptor = os.open(key + SUFFIX, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise Doubt("it is no regular file")
        _check(status, "it")
        if not _HEADER.size <= status.st_size <= _HEADER.size + limit_bytes():
            raise Doubt(f"it has {status.st_size} bytes")
        with open(descriptor, "rb", closefd=False) as file:
            header, content = file.read(_HEADER.size), file.read(limit_bytes())
        if header != _header(key, content):
            raise Doubt("its content is damaged or another program's")
        with contextlib.suppress(OSError):  # a file system that cannot be written to: then nothing is evicted from it either
            os.utime(descriptor)
    finally:
        os.close(descriptor)
    return content


def _header(key: str, content: bytes) -> bytes:
    return _HEADER.pack(_MAGIC, FORMAT, bytes.fromhex(key), len(content), hashlib.sha256(content).digest())


def take(key: str) -> bytes | None:
    """The bytes that were kept under a key (64 hexadecimal digits), or None."""
    if not config.cache:
        return None
    try:
        with _opened(create=False) as at:
            try:
                content = _read(at, key)
            except Doubt as doubt:
                counts.refused += 1
                _report(f"{key[:16]} is not used: {doubt}")
                os.unlink(key + SUFFIX, dir_fd=at)
                return None
    except FileNotFoundError:
        counts.misses += 1
        return None
    except (OSError, Doubt) as error:
        if is_foreign(error):
            raise
        counts.failed += 1
        _report(f"not read: {error}")
        return None
    counts.hits += 1
    return content


def keep(key: str, content: bytes) -> None:
    """Keep bytes under a key for later processes, if that is possible; make room for them."""
    if not config.cache:
        return
    if _HEADER.size + len(content) > limit_bytes():
        _report(f"{key[:16]} is not kept: its {len(content)} bytes are more than all files may have")
        return
    try:
        with _opened(create=True) as at:
            _write(at, key, _header(key, content) + content)
            counts.stored += 1
            # Which stores look is said by the key: no state that processes would have to share.  Large ones look themselves.
            if int(key[:8], 16) % _LOOKING == 0 or len(content) > limit_bytes() // (4 * _LOOKING):
                _evict(at)
    except (OSError, Doubt) as error:
        if is_foreign(error):
            raise
        counts.failed += 1
        _report(f"{key[:16]} is not kept: {error}")


def _write(at: int, key: str, data: bytes) -> None:
    temporary = f"{key[:16]}-{os.getpid()}-{os.urandom(4).hex()}{_TEMPORARY}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600, dir_fd=at)
    try:
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(descriptor, left) :]
        finally:
            os.close(descriptor)
        os.replace(temporary, key + SUFFIX, src_dir_fd=at, dst_dir_fd=at)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is the one to tell of; the file will be evicted as abandoned
            os.unlink(temporary, dir_fd=at)
        raise


def _listed(at: int, suffix: str) -> list[tuple[float, int, str]]:
    """(time of last use, size, name) of the files, the one used longest ago first.  Files that go meanwhile are left out."""
    found = []
    with os.scandir(at) as entries:
        for entry in entries:
            if entry.name.endswith(suffix):
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    found.append((status.st_mtime, status.st_size, entry.name))
    return sorted(found)


def _remove(at: int, name: str) -> bool:
    try:
        os.unlink(name, dir_fd=at)
    except FileNotFoundError:  # another process was faster
        return False
    return True


def _evict(at: int) -> None:
    """Remove what was used longest ago until the rest is within the limit, and what killed processes left behind."""
    now = time.time()
    for modified, _, name in _listed(at, _TEMPORARY):
        if abs(now - modified) > _ABANDONED:
            _remove(at, name)
    listed = _listed(at, SUFFIX)
    excess = sum(size for _, size, _ in listed) - limit_bytes()
    for _, size, name in listed:
        if excess <= 0:
            break
        counts.evicted += _remove(at, name)
        excess -= size


def discard(key: str, reason: str) -> None:
    """Whole bytes that could not be used after all: count them as refused and remove them."""
    counts.hits -= 1
    counts.refused += 1
    _report(f"{key[:16]} is not used: {reason}")
    with contextlib.suppress(OSError, Doubt), _opened(create=False) as at:  # the next process will meet and refuse it again
        _remove(at, key + SUFFIX)


def load_or_make(key: str, load: Callable[[bytes], Loaded], make: Callable[[], bytes]) -> tuple[Loaded, bool]:
    """`load` of the bytes that were kept under a key, or else of those that `make` returns, which are then kept; and whether it made them.

    Kept bytes for which `load` raises RuntimeError are discarded; what it raises for those just made is raised, and what `make` raises."""
    kept = take(key)
    if kept is not None:
        try:
            return load(kept), False
        except RuntimeError as error:
            if is_foreign(error):
                raise
            discard(key, str(error))
    made = make()
    keep(key, made)
    return load(made), True


def files() -> Files:
    """What is kept now.  Raises OSError or Doubt where the directory cannot be used."""
    try:
        with _opened(create=False) as at:
            listed = _listed(at, SUFFIX)
    except FileNotFoundError:
        return Files(0, 0)
    return Files(len(listed), sum(size for _, size, _ in listed))


def clear() -> int:
    """Remove all files, also those that are being written.  Returns how many programs went.

    Raises OSError or Doubt where the directory cannot be used."""
    try:
        with _opened(create=False) as at:
            for _, _, name in _listed(at, _TEMPORARY):
                _remove(at, name)
            return sum(_remove(at, name) for _, _, name in _listed(at, SUFFIX))
    except FileNotFoundError:
        return 0
