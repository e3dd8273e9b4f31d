"""A pool of threads for the chunks of one nest or product at a time, in machine code.

`tracejit_parallel(function, arguments, count)` calls `i64 function(ptr arguments, i64 k)` for every chunk k < count, on this thread
and on workers, and returns when all are done: 0, or the status of the lowest chunk whose status was not 0.  A program calls it by its
symbol (`symbols()`); what the chunks are is the caller's business (divide.py, products.py), and does not depend on the number of threads.

Workers are threads of the C library that never touch Python, so they need no GIL: the caller keeps it, if it has it.  They are made
when they are first needed.  Chunks are taken one by one with an atomic counter.  A caller never waits for the pool, nor for a worker
to wake up: if another thread is using the pool it runs its chunks itself; if workers come late it has done their chunks meanwhile.
It waits only for workers in the middle of a chunk.  Between jobs workers watch for the next one for some microseconds, then sleep.

One word says what workers may do: how many are in the job (bits 0-15), how many may still enter (16-31), and whether it is open
(32).  A worker enters by compare-and-swap and only then reads the job, which therefore does not change while anyone is in it.

* A forked child has none of its parent's other threads: its pool starts empty, whatever was going on in the parent's.
* Workers take over the caller's floating-point control word for a job: rounding and the treatment of subnormal numbers are a
  thread's own.
* Signals are blocked in workers, so they reach the threads that Python knows.
* The code is never unloaded: a worker may be in it until the process is gone.

Where the system has no POSIX threads, the symbol runs the chunks one after the other, and the number of threads is 1.
This module knows no programs.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import threading
from functools import cache
from pathlib import Path

from tracejit.config import config
from tracejit.core import thread_share
from tracejit.cpython.c_api import never_free
from tracejit.llvm import thread_pool_code
from tracejit.llvm.thread_pool_code import BYTES, FIELDS, FUNCTIONS, IDLE, LOCK, MOST, PARALLEL, POOL, WORK
from tracejit.native import machine_code, object_cache

__all__ = ["PARALLEL", "get_num_threads", "memory", "set_num_threads", "supported", "symbols"]

_memory = (ctypes.c_char * (BYTES + 64))()
_base = -(-ctypes.addressof(_memory) // 64) * 64  # no field crosses a cache line
_threads = ctypes.c_int64.from_address(_base + FIELDS["threads"])
_making = threading.Lock()


@cache
def _library() -> dict[str, int] | None:
    """Addresses of the C functions, or None where one is missing."""
    if os.name != "posix":
        return None
    process = ctypes.CDLL(None)
    try:
        functions = {name: getattr(process, name) for name in (*FUNCTIONS, "pthread_mutex_init", "pthread_cond_init")}
    except AttributeError:
        return None
    return {name: int(ctypes.cast(f, ctypes.c_void_p).value or 0) for name, f in functions.items()}


def supported() -> bool:
    """Whether this system has the threads that the pool is made of."""
    return _library() is not None


# --- how many threads


def _cores() -> int:
    """Processor cores that this process may run on; hardware threads of one core count once where the system tells."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    allowed = os.sched_getaffinity(0)
    try:
        siblings = {Path(f"/sys/devices/system/cpu/cpu{n}/topology/thread_siblings_list").read_text() for n in allowed}
    except OSError:
        return len(allowed)
    return len(siblings)


def _default() -> int:
    """TRACEJIT_NUM_THREADS, else OMP_NUM_THREADS (its first number, as OpenMP's runtimes read it), else the number of cores."""
    if config.num_threads:
        return config.num_threads
    wanted = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(wanted) if wanted.isdecimal() and int(wanted) > 0 else _cores()


def get_num_threads() -> int:
    """How many threads compute one large nest or product, the calling one included; 1 where the system has no POSIX threads.

    Until `set_num_threads` is called: TRACEJIT_NUM_THREADS, else OMP_NUM_THREADS, else the number of processor cores that the process
    may use."""
    if not supported():
        return 1
    if _threads.value == 0:
        _threads.value = min(_default(), MOST)
    return _threads.value


def set_num_threads(number: int) -> None:
    """Compute large nests and products with this many threads from now on, eager ones, too.  Results do not depend on it.

    Raises RuntimeError for what is no positive integer."""
    if isinstance(number, bool) or not hasattr(type(number), "__index__"):
        raise RuntimeError(f"set_num_threads expects an int, but got {type(number).__name__}")
    if number.__index__() <= 0:
        raise RuntimeError("set_num_threads expects a positive integer")
    thread_share.chosen[0] = True
    _set(number.__index__())


def _set(number: int) -> None:
    if supported():
        _threads.value = min(number, MOST)


thread_share.install(_cores, _set)


# --- memory


def _reset() -> None:
    """An empty pool: no workers, no job, nobody waiting.  The number of threads stays."""
    library = _library()
    if library is None:
        return
    threads = _threads.value
    ctypes.memset(_base, 0, BYTES)
    for name, offset in (("pthread_mutex_init", LOCK), ("pthread_cond_init", WORK), ("pthread_cond_init", IDLE)):
        ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(library[name])(_base + offset, None)
    _threads.value = threads


def _reset_in_child() -> None:
    global _making
    _making = threading.Lock()  # its owner may have been a thread that the child does not have
    _reset()


if supported():
    _reset()
    os.register_at_fork(after_in_child=_reset_in_child)


# --- machine code


@cache
def _linked() -> int:
    """The address of PARALLEL."""
    text = thread_pool_code.text(supported())
    imports = {name: address for name, address in (_library() or {}).items() if name in FUNCTIONS}
    imports |= {POOL: _base} if supported() else {}
    key = hashlib.sha256(f"{machine_code.identity()}\n{text}".encode()).hexdigest()
    (address, owner), _ = object_cache.load_or_make(
        key, lambda object_code: machine_code.link(object_code, imports, PARALLEL), lambda: machine_code.assemble(text)
    )
    for immortal in (owner, _memory):  # workers outlive what Python forgets when it ends
        never_free(immortal)
    return address


def memory() -> int:
    """The address of the pool's memory, whose layout is FIELDS."""
    return _base


def symbols() -> dict[str, int]:
    """The name under which programs call the pool, and its address."""
    get_num_threads()  # settles the number of threads, which machine code reads
    with _making:
        return {PARALLEL: _linked()}
