"""Reading words of memory, at addresses that are right and at addresses that may be wrong.

A self-test follows a pointer before it knows that it is one.  `CheckedMemory` reads through a file of the system's where there is one
(/proc/self/mem of Linux): what is no address raises Unreadable there, where a plain read would end the process.  Elsewhere it reads
plainly, and says so (`is_safe`): then only layouts that the tests run on are tried.
"""

from __future__ import annotations

import ctypes
import os
import sys
from types import TracebackType
from typing import Final

__all__ = ["CheckedMemory", "Unreadable", "word"]

_MEMORY: Final = "/proc/self/mem"


class Unreadable(Exception):
    """There is no memory at an address."""


def word(address: int) -> int:
    """The int64 at an address, which must be one."""
    return ctypes.c_int64.from_address(address).value


class CheckedMemory:
    """A context in which any number may be read from as if it was an address."""

    __slots__ = ("_file",)

    def __init__(self) -> None:
        try:
            self._file = os.open(_MEMORY, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except OSError:
            self._file = -1
        if self._file >= 0 and not self._reads():  # some sandboxes have the file and let nobody read it
            os.close(self._file)
            self._file = -1

    def _reads(self) -> bool:
        """Whether the file has what is in memory."""
        known = ctypes.c_int64(0x5EED)
        try:
            return self.word(ctypes.addressof(known)) == known.value
        except Unreadable:
            return False

    @property
    def is_safe(self) -> bool:
        """Whether a wrong address raises Unreadable."""
        return self._file >= 0

    def bytes(self, address: int, size: int) -> bytes:
        """So many bytes from an address on.  Raises Unreadable."""
        if self._file < 0:
            return ctypes.string_at(address, size)
        try:
            found = os.pread(self._file, size, address)
        except (OSError, OverflowError, ValueError):
            found = b""
        if len(found) != size:
            raise Unreadable(f"{size} bytes at {address:#x}")
        return found

    def word(self, address: int) -> int:
        """The int64 at an address.  Raises Unreadable."""
        return int.from_bytes(self.bytes(address, 8), sys.byteorder, signed=True)

    def __enter__(self) -> CheckedMemory:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._file >= 0:
            os.close(self._file)
