"""Frames: the memory that one running call of a program owns.

A frame is a table of int64 slots (lowering/steps.py), one of them with the address of an arena (llvm/arena.py).  Frames of a program live
on a free list; a call takes one (`list.pop`), fills in what is its own, and gives it back (`list.append`).  Both are atomic, so threads
and re-entrant calls each have a frame, and nobody waits.  The arena's address and the addresses of constants are filled in once, when a
frame is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracejit.llvm.arena import Arena

__all__ = ["Frame", "pointer"]


def pointer(array: np.ndarray[Any, Any]) -> int:
    """The address of an array's first element."""
    address: int = array.__array_interface__["data"][0]
    return address


class Frame:
    """One table, and the arena that it refers to.  `integers` and `floats` are the table's slots seen as int64 and as float64."""

    __slots__ = ("address", "arena", "floats", "integers", "table")

    def __init__(
        self,
        template: np.ndarray[Any, Any],
        arena: Arena,
        arena_slot: int,
        arena_bytes: int,
        constants: Sequence[tuple[int, np.ndarray[Any, Any]]],
    ) -> None:
        self.table = np.array(template, np.int64)
        self.address = pointer(self.table)
        self.table[arena_slot], self.arena = arena.place(arena_bytes)
        for slot, array in constants:
            self.table[slot] = pointer(array)
        self.integers: memoryview = self.table.data
        self.floats: memoryview = self.table.view(np.float64).data
