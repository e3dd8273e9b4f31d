"""How many threads one process computes with, where several processes share the cores of a machine.

llvm/thread_pool.py, which has the threads, installs itself here.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from tracejit.config import config

__all__ = ["chosen", "install", "share"]

chosen = [False]
"""Whether the program has called set_num_threads()."""

_pool: list[tuple[Callable[[], int], Callable[[int], None]]] = []


def install(cores: Callable[[], int], set_number: Callable[[int], None]) -> None:
    """Install what counts the cores that this process may use, and what sets the number of threads."""
    _pool[:] = [(cores, set_number)]


def share(processes: int) -> int | None:
    """Compute with this process's share of its cores, which so many processes use, at least one; returns the number of threads.

    None, and nothing is set: a number was chosen, by set_num_threads(), TRACEJIT_NUM_THREADS or OMP_NUM_THREADS."""
    if chosen[0] or config.num_threads or os.environ.get("OMP_NUM_THREADS", "").strip():
        return None
    ((cores, set_number),) = _pool
    number = max(1, cores() // processes)
    set_number(number)
    return number
