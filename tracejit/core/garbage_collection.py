"""Python's garbage collector, held back for a while.

What a collection runs (finalizers, callbacks of weak references, `gc.callbacks`) is the program's code, and comes wherever the library
happens to make an object.  `with collection_paused() as hold: hold.begin()` keeps it from the middle of what it is no part of, in all
threads; it is on again, if it was, when the last block is left or has called `end()`.

Who asks `gc.isenabled()` meanwhile is told that it is off; so blocks are short, and call no code of the program that may ask.  A forked
child has not got the blocks of other threads.
"""

from __future__ import annotations

import gc
import os
from _thread import get_ident
from collections import defaultdict

from tracejit.core.interrupts import covers_its_entry

__all__ = ["collection_paused"]


class _Holds:
    """count: blocks that hold the collector back now; of: those of a thread; to_resume: whether it was on before them."""

    __slots__ = ("count", "of", "to_resume")

    def __init__(self) -> None:
        self.count = 0
        self.of: defaultdict[int, int] = defaultdict(int)
        self.to_resume = False


_holds = _Holds()


class collection_paused:  # noqa: N801  (a context manager)
    """See the module.  Assignments in a row, without a call, are one step for signals and for other threads; and a call that follows them
    is made."""

    __slots__ = ("_begun", "_thread")

    def __init__(self) -> None:
        self._begun = False
        self._thread = get_ident()

    def __enter__(self) -> collection_paused:
        return self

    def begin(self) -> None:
        """From now on nothing is collected.  Called once."""
        self._begun = True
        _holds.count += 1
        _holds.of[self._thread] += 1
        if gc.isenabled():
            _holds.to_resume = True
            gc.disable()

    def end(self) -> None:
        """What leaving the block does, earlier."""
        if self._begun:
            self._begun = False
            _holds.count -= 1
            _holds.of[self._thread] -= 1
        if not _holds.count and _holds.to_resume:
            _holds.to_resume = False
            gc.enable()

    @covers_its_entry
    def __exit__(self, *exception: object) -> None:
        try:
            del exception
        finally:
            if self._begun:
                self._begun = False
                _holds.count -= 1
                _holds.of[self._thread] -= 1
            if not _holds.count and _holds.to_resume:
                _holds.to_resume = False
                gc.enable()


def _forked() -> None:
    thread = get_ident()
    own = _holds.of[thread]
    _holds.of.clear()
    _holds.of[thread] = _holds.count = own
    if not own and _holds.to_resume:
        _holds.to_resume = False
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
