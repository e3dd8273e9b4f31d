"""The process that `networks.py` starts for one column of one row: its first call, and what a step adds to memory.

Run as `python -m benchmarks.networks_child COLUMN NETWORK THREADS [tiny]`; prints one line of JSON.

Memory is the resident set of the process, since that is what all libraries have in common: counters of one library's allocator
know nothing of another's, and `getrusage`'s ru_maxrss cannot be set back, so that the first call, in which compilers run, would hide
all later ones.  Linux keeps a high-water mark (VmHWM in /proc/self/status), which writing 5 to /proc/self/clear_refs sets to what
is resident now (proc(5)).

* *Before*: the network and its data are there and no step has run. A step of a tiny network of the same kind has run, so that compilers
  and libraries are loaded.
* *Peak*: the high-water mark of a step after the first ones, less what was resident before. So it has gradients, the optimizer's state,
  what the library keeps from step to step (temporary memory, programs, what compiling leaves behind) and what it allocates in a step.
* *Kept*: what of that is there between two steps.

The parent sets glibc's allocator to give back each block of 64 KB and more when it is freed (MALLOC_MMAP_THRESHOLD_), for all columns
alike: else what is resident depends on the order in which blocks of the heap became free. Times are measured elsewhere.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.network_models import Network, Sizes, select
from benchmarks.network_sides import limit_threads, make_side
from tracejit.config import override

__all__ = ["WARM", "main", "memory_of", "settled", "status_bytes"]

WARM = 4  # steps before the one whose peak is measured: recording, compiling, side traces
MEASURED = 2

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def status_bytes(field: str) -> int:
    """A field of /proc/self/status, such as VmRSS or VmHWM."""
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(field + ":"))
    return int(line.split()[1]) * 1024


def settled() -> int:
    """Resident bytes once garbage is collected and free memory given back to the system."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    return status_bytes("VmRSS")


def memory_of(step: Callable[[], object], before: int) -> tuple[int, int]:
    """(peak, kept) of steps, in bytes above `before`."""
    kept = settled() - before
    _CLEAR.write_text("5")
    for _ in range(MEASURED):
        step()
    return status_bytes("VmHWM") - before, kept


def _start_up(column: str, network: Network, sizes: Sizes) -> None:
    side = make_side(column, network, sizes)
    for _ in range(2):
        assert side is not None
        side.run()


def main() -> None:
    """Prints {"first_call": seconds, "peak": bytes, "kept": bytes, "losses": of all steps}; null for figures that the system has not."""
    column, name, threads, *tiny = sys.argv[1:]
    (network,) = select([name])
    limit_threads(int(threads), column)
    with override(cache=False, compile_wait=math.inf):
        _start_up(column, network, network.tiny)
        side = make_side(column, network, network.tiny if tiny else network.sizes)
        assert side is not None
        has_marks = _CLEAR.exists()
        before = settled() if has_marks else 0
        start = time.perf_counter()
        returned = side.run()
        first_call = time.perf_counter() - start
        losses = [float(side.results(returned)[0])]
        for _ in range(WARM - 1):
            losses.append(float(side.results(side.run())[0]))
        del returned
        peak, kept = memory_of(side.run, before) if has_marks else (None, None)
    print(json.dumps({"first_call": first_call, "peak": peak, "kept": kept, "losses": losses}))


if __name__ == "__main__":
    main()
