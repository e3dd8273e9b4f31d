"""The programs that survive processes, for people: where they are, how many, what they did for this process.

`TRACEJIT_CACHE=0` switches the cache off, `TRACEJIT_CACHE_DIR` puts it elsewhere, `TRACEJIT_CACHE_SIZE` (MiB) bounds it.  How it works and
whom it trusts is told in native/object_cache.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from tracejit.config import config
from tracejit.llvm import driver
from tracejit.native import object_cache

__all__ = ["CacheInfo", "clear", "info"]


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """directory: where files are ("" if there is none); problem: why they are not used ("" if they are); files and size: programs
    kept there by all processes, and their bytes, of at most `limit`.

    In this process: compiled by LLVM; hits (found in files) and misses; stored; refused (files that were not what they should be,
    removed); evicted for lack of room; failed (reads and writes that were not possible)."""

    directory: str
    problem: str
    files: int
    size: int
    limit: int
    compiled: int
    hits: int
    misses: int
    stored: int
    refused: int
    evicted: int
    failed: int


def info() -> CacheInfo:
    """The state of the cache and what it did for this process."""
    problem, kept, counts = "", object_cache.Files(0, 0), object_cache.counts
    try:
        kept = object_cache.files()
    except (OSError, object_cache.Doubt) as error:
        problem = str(error)
    if not config.cache:
        problem = "switched off (TRACEJIT_CACHE=0)"
    return CacheInfo(
        directory=str(object_cache.directory() or ""),
        problem=problem,
        files=kept.count,
        size=kept.size,
        limit=object_cache.limit_bytes(),
        compiled=driver.compilations(),
        hits=counts.hits,
        misses=counts.misses,
        stored=counts.stored,
        refused=counts.refused,
        evicted=counts.evicted,
        failed=counts.failed,
    )


def clear() -> int:
    """Remove the files of all programs; programs of running processes stay.  Returns how many programs were removed.

    Raises RuntimeError if the directory cannot be used, or is not safe to use."""
    try:
        return object_cache.clear()
    except (OSError, object_cache.Doubt) as error:
        raise RuntimeError(f"cache.clear(): nothing was removed: {error}; see TRACEJIT_CACHE_DIR") from error
