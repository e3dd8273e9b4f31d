"""Memory that the process keeps between operations.

Eager mode makes an array for each result and drops it soon after.  glibc's malloc gives memory that is freed at the end of its heap back
to the system, and asks for it again with the next array, page by page, which costs more than most operations on it.  It stops doing so
for blocks of a size that it has once seen freed, up to 32 MB (`M_MMAP_THRESHOLD` in mallopt(3)).  So one such block is asked for and
freed, never touched: at most twice its size then stays with the process.  Other allocators take no notice.

Must not know what the memory is for.
"""

from __future__ import annotations

import numpy as np

__all__ = ["keep_freed_memory"]

_LARGEST = 32 * 2**20 - 2**14  # with malloc's own words and a page's rounding still within what moves its threshold


def keep_freed_memory() -> None:
    """Let the allocator keep what is freed for the next array."""
    np.empty(_LARGEST, np.uint8)
