"""Python's garbage collector, held back for a while.

What a collection runs (finalizers, callbacks of weak references, `gc.callbacks`) is the program's code, and comes wherever the library
happens to make an object.  `with held_back() as hold: hold.begin()` keeps it from the middle of what it is no part of, in all threads; it
is on again, if it was, when the last block is left or has called `end()`.

Who asks `gc.isenabled()` meanwhile is told that it is off; so blocks are short, and call no code of the program that may ask.
"""

from __future__ import annotations

import gc

from tracejit.core.interrupts import covers_its_entry

__all__ = ["held_back"]


class _Holds:
    """count: blocks that hold the collector back now; to_resume: whether it was on before them."""

    __slots__ = ("count", "to_resume")

    def __init__(self) -> None:
        self.count = 0
        self.to_resume = False


_holds = _Holds()


class held_back:  # noqa: N801  (a context manager)
    """See the module.  Assignments in a row, without a call, are one step for signals and for other threads; and a call that follows them
    is made."""

    __slots__ = ("_begun",)

    def __init__(self) -> None:
        self._begun = False

    def __enter__(self) -> held_back:
        return self

    def begin(self) -> None:
        """From now on nothing is collected.  Called once."""
        self._begun = True
        _holds.count += 1
        if gc.isenabled():
            _holds.to_resume = True
            gc.disable()

    def end(self) -> None:
        """What leaving the block does, earlier."""
        if self._begun:
            self._begun = False
            _holds.count -= 1
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
            if not _holds.count and _holds.to_resume:
                _holds.to_resume = False
                gc.enable()
