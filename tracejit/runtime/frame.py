"""Frames: the memory that one running call of a program owns.

A frame is a table of int64 slots (lowering/steps.py) with its arena.  Frames of a program live on a free list; a call takes one
(`list.pop`), fills in what is its own, and gives it back (`list.append`).  Both are atomic, so threads and re-entrant calls each have a
frame, and nobody waits.  The arena's address and the addresses of constants are filled in once, when a frame is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracejit.lowering.memory import ALIGNMENT

__all__ = ["Frame", "pointer"]


def pointer(array: np.ndarray[Any, Any]) -> int:
    """The address of an array's first element."""
    address: int = array.__array_interface__["data"][0]
    return address


class Frame:
    """One table and its arena.  `integers` and `floats` are the table's slots seen as int64 and as float64."""

    __slots__ = ("address", "arena", "arena_address", "floats", "integers", "table")

    def __init__(
        self,
        template: np.ndarray[Any, Any],
        arena_slot: int,
        arena_bytes: int,
        constants: Sequence[tuple[int, np.ndarray[Any, Any]]],
    ) -> None:
        self.table = np.array(template, np.int64)
        self.address = pointer(self.table)
        self.arena = np.empty(arena_bytes + ALIGNMENT, np.uint8)
        self.arena_address = -(-pointer(self.arena) // ALIGNMENT) * ALIGNMENT
        self.table[arena_slot] = self.arena_address
        for slot, array in constants:
            self.table[slot] = pointer(array)
        self.integers: memoryview = self.table.data
        self.floats: memoryview = self.table.view(np.float64).data
