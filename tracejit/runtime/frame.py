"""Frames: the memory that one running call of a program owns.

A frame is a table of int64 slots (lowering/steps.py), one of them with the address of an arena (llvm/arena.py).  Frames of a program live
on a free list; a call takes one (`list.pop`), fills in what is its own, and gives it back (`list.append`).  Both are atomic, so threads
and re-entrant calls each have a frame, and nobody waits.  The arena's address and the addresses of constants are filled in once, when a
frame is made.

Behind the table is the *mark* of a frame that belongs to machine code (cpython/functions.py): MARK words that tell whose call was the last
one to run in it.  Whoever reads the frame's arena after the program has left, in the same call, finds its own call there, or somebody
else's; then the arena is not what it was, and there is nothing in it for the reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracejit.llvm.arena import Arena
from tracejit.replay.ir import MARK

__all__ = ["Frame", "pointer"]


def pointer(array: np.ndarray[Any, Any]) -> int:
    """The address of an array's first element."""
    address: int = array.__array_interface__["data"][0]
    return address


class Frame:
    """One table, and the arena that it refers to.  `integers` and `floats` are the table's slots seen as int64 and as float64; `mark` is
    the address of its mark."""

    __slots__ = ("_slot", "address", "arena", "floats", "integers", "mark", "table")

    def __init__(
        self,
        template: np.ndarray[Any, Any],
        arena: Arena,
        arena_slot: int,
        arena_bytes: int,
        constants: Sequence[tuple[int, np.ndarray[Any, Any]]],
    ) -> None:
        self.table = np.zeros(len(template) + MARK, np.int64)
        self.table[: len(template)] = template
        self.address = pointer(self.table)
        self.mark = self.address + 8 * len(template)
        self._slot = arena_slot
        self.move(arena, arena_bytes)
        for slot, array in constants:
            self.table[slot] = pointer(array)
        self.integers: memoryview = self.table.data
        self.floats: memoryview = self.table.view(np.float64).data

    def move(self, arena: Arena, nbytes: int) -> None:
        """From now on its program has its temporary memory there.  Not while it runs."""
        self.table[self._slot], self.arena = arena.allocate(nbytes)

    def temporary(self, nbytes: int) -> np.ndarray[Any, Any]:
        """So many bytes of its temporary memory, from its beginning."""
        begin = int(self.table[self._slot]) - pointer(self.arena)
        return self.arena[begin : begin + nbytes]
