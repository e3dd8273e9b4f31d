"""Room for the library's own calls where the program has set a low recursion limit, or is deep in recursion.

What another library does once for the whole process (an import) would be left half done by a RecursionError, and a recording has frames
between the program's, which an eager call has not.  `room(frames)` raises the limit, for all threads, while it lasts, where there is too
little.
"""

from __future__ import annotations

import os
import sys
import threading
from types import FrameType

from tracejit.core.interrupts import covers_its_entry
from tracejit.core.locks import lock_held_over_forks

__all__ = ["frames_left", "room"]

_lock = lock_held_over_forks()
_rooms: dict[room, int] = {}  # those that there are -> the limits that they need
_limits = [0, 0]  # what the limit was before, what it was raised to


def frames_left() -> int:
    """How many more frames the calling thread may have before a RecursionError, roughly."""
    depth = 0
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        depth += 1
        frame = frame.f_back
    return sys.getrecursionlimit() - depth


class room:  # noqa: N801  (a context manager)
    """`with room(frames):` there is room for so many more frames in this thread.  For one use."""

    __slots__ = ("_frames", "_thread")

    def __init__(self, frames: int) -> None:
        self._frames = frames

    def __enter__(self) -> None:
        missing = self._frames - frames_left()
        if missing > 0:
            with _lock:
                now = sys.getrecursionlimit()
                if not _rooms:
                    _limits[0] = now
                self._thread = threading.get_ident()
                _rooms[self] = now + missing
                _limits[1] = now + missing
                sys.setrecursionlimit(now + missing)

    @covers_its_entry
    def __exit__(self, *exception: object) -> None:
        try:
            del exception
        finally:
            if self in _rooms:
                _ended(self)


def _ended(one: room) -> None:
    with _lock:
        del _rooms[one]
        before, raised = _limits
        if not _rooms and sys.getrecursionlimit() == raised:  # else the program has set another one
            sys.setrecursionlimit(before)


def _forked() -> None:
    """A child has no other threads."""
    for one in [one for one in _rooms if one._thread != threading.get_ident()]:
        _ended(one)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
