"""The temporary memory of programs that have it in common.

Machine code holds the GIL until it is done and runs no Python, so no two programs of a process are ever in the middle of a run, and
nothing in an arena outlives one.  A function that has met many sizes would else have as many arenas, and a call find its own out of the
caches.

An arena that grows is at another address.  Frames made before keep the address that they know, so it grows by doubling: all memory together
are at most as large again as the last one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.lowering.memory import ALIGNMENT

__all__ = ["Arena"]


class Arena:
    """Memory that is as large as the largest program so far wanted it."""

    __slots__ = ("_memory",)

    def __init__(self) -> None:
        self._memory: np.ndarray[Any, Any] = np.empty(0, np.uint8)

    def allocate(self, nbytes: int) -> tuple[int, np.ndarray[Any, Any]]:
        """The address of so many bytes, aligned, and what keeps them alive."""
        memory = self._memory
        if memory.size < nbytes + ALIGNMENT:
            memory = self._memory = np.empty(max(nbytes, 2 * memory.size) + ALIGNMENT, np.uint8)
        return -(-memory.__array_interface__["data"][0] // ALIGNMENT) * ALIGNMENT, memory
