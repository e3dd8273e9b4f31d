"""Locks of the process that survive a fork.

A forked child has only the thread that forked.  What another thread was doing stays half done there, and a lock that it held stays locked
for ever.  So a fork waits for whoever holds one of these locks; or, where that may take long, the child has a lock of its own.

It must not know what is locked.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

__all__ = ["Turn", "hold_over_forks", "lock_held_over_forks"]

_FORKS = hasattr(os, "register_at_fork")


def lock_held_over_forks() -> threading.RLock:
    """A lock for the whole life of the process, which the thread that has it may take again.  A fork waits until it is free, so the child
    finds what it protects whole.

    Threads must take several such locks in the opposite order of their making: a fork does."""
    lock = threading.RLock()
    hold_over_forks(lock.acquire, lock.release)
    return lock


def hold_over_forks(acquire: Callable[[], object], release: Callable[[], object]) -> None:
    """The same for a lock that was made elsewhere and lives as long."""
    if _FORKS:
        os.register_at_fork(before=acquire, after_in_parent=release, after_in_child=release)


class Turn:
    """What one thread at a time may do, and nobody waits for.  For the whole life of the process: in a forked child nobody has it, unless
    the thread that forked did."""

    __slots__ = ("_lock", "_owner")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0
        if _FORKS:
            os.register_at_fork(after_in_child=self._forked)

    def take(self) -> bool:
        """Whether it is this thread's turn now; if so it must `give_back`."""
        if not self._lock.acquire(blocking=False):
            return False
        self._owner = threading.get_ident()
        return True

    def give_back(self) -> None:
        """Let others have their turn."""
        self._owner = 0
        self._lock.release()

    def _forked(self) -> None:
        if self._owner != threading.get_ident():
            self._lock = threading.Lock()
