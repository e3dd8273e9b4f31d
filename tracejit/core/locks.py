"""Locks of the process that survive a fork.

A forked child has only the thread that forked.  What another thread was doing stays half done there, and a lock that it held stays locked
for ever.  So a fork waits for whoever holds one of these locks; or, where that may take long, the child has a lock of its own.

A fork takes such locks in the opposite order of their making.  Who holds one of these may log, or import what makes a logger: the lock of
`logging` is made before all of them.

It must not know what is locked.
"""

from __future__ import annotations

import logging  # noqa: F401  (its lock is made)
import os
import threading
import weakref
from collections.abc import Callable

__all__ = ["Ticket", "Turn", "hold_over_forks", "lock_held_over_forks"]

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


class Ticket:
    """What a thread has to show for its turn.  `over = True` ends it: an assignment, so that nothing can come in between where it is the
    first thing in a `finally`."""

    __slots__ = ("__weakref__", "over", "thread")

    def __init__(self) -> None:
        self.over = False
        self.thread = threading.get_ident()


class Turn:
    """What one thread at a time may do, and nobody waits for.  For the whole life of the process: in a forked child nobody has it, unless
    the thread that forked did; and who has died has it no more.

    `take` may be interrupted anywhere, so a caller has made the ticket, and ends it in any case:

        ticket = Ticket()
        try:
            if turn.take(ticket):
                ...
        finally:
            ticket.over = True
    """

    __slots__ = ("_holder",)

    def __init__(self) -> None:
        self._holder: weakref.ref[Ticket] | None = None
        if _FORKS:
            os.register_at_fork(after_in_child=self._forked)

    def take(self, ticket: Ticket) -> bool:
        """Whether it is the turn of this ticket now."""
        mine = weakref.ref(ticket)
        before = self._holder
        holder = None if before is None else before()
        if holder is not None and not holder.over:
            return False
        if self._holder is before:  # with the next line one step: there is no call between them, so no other thread either
            self._holder = mine
            return True
        return False

    def _forked(self) -> None:
        holder = None if self._holder is None else self._holder()
        if holder is not None and holder.thread != threading.get_ident():
            self._holder = None
