"""A pool of threads for the chunks of one nest at a time, in machine code.

`tracejit_parallel(function, arguments, count)` calls `i64 function(ptr arguments, i64 k)` for every chunk k < count, on this thread
and on workers, and returns when all are done: 0, or the status of the lowest chunk whose status was not 0.  A program calls it by its
symbol (`symbols()`); what the chunks are is the program's business (divide.py), and does not depend on the number of threads.

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
import platform
import signal
import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from tracejit.codegen import machine_code, object_cache
from tracejit.config import config

__all__ = ["PARALLEL", "get_num_threads", "set_num_threads", "supported", "symbols"]

PARALLEL: Final = "tracejit_parallel"
MOST: Final = 0xFFFF  # threads; the fields of the state word have 16 bits
SPINS: Final = 200  # looks at a word before a thread sleeps until it changes, each about a third of a microsecond

_POOL: Final = "tracejit_pool"
_BYTES: Final = 1024
_LOCK: Final = 512  # offsets of what the C library owns; each has at least twice the room that it takes on any system
_WORK: Final = 640
_IDLE: Final = 768
_FUNCTIONS: Final = (
    "pthread_cond_signal",
    "pthread_cond_wait",
    "pthread_create",
    "pthread_detach",
    "pthread_mutex_lock",
    "pthread_mutex_unlock",
    "pthread_sigmask",
    "sched_yield",
    "sigfillset",
)

# The pool's memory.  What different threads write to lies on different cache lines.
_LAYOUT: Final = {
    "threads": 0,  # how many may work on a job, the caller included
    "workers": 8,  # how many were made
    "busy": 64,  # 1 while some caller uses the pool
    "state": 128,
    "next": 192,  # the first chunk that nobody has taken
    "function": 256,
    "arguments": 264,
    "count": 272,
    "control": 280,  # the caller's floating-point control word
    "exit": 320,  # (chunk << 32 | status) of the lowest chunk with a status, or -1
    "sleepers": 384,  # workers that must be woken
}

_memory = (ctypes.c_char * (_BYTES + 64))()
_base = -(-ctypes.addressof(_memory) // 64) * 64  # no field crosses a cache line
_threads = ctypes.c_int64.from_address(_base + _LAYOUT["threads"])
_making = threading.Lock()


@cache
def _library() -> dict[str, int] | None:
    """Addresses of the C functions, or None where one is missing."""
    if os.name != "posix":
        return None
    process = ctypes.CDLL(None)
    try:
        functions = {name: getattr(process, name) for name in (*_FUNCTIONS, "pthread_mutex_init", "pthread_cond_init")}
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
    """How many threads compute one large nest, the calling one included; 1 where the system has no POSIX threads.

    Until `set_num_threads` is called: TRACEJIT_NUM_THREADS, else OMP_NUM_THREADS, else the number of processor cores that the process
    may use.  Matrix products have BLAS' own threads."""
    if not supported():
        return 1
    if _threads.value == 0:
        _threads.value = min(_default(), MOST)
    return _threads.value


def set_num_threads(number: int) -> None:
    """Compute large nests with this many threads from now on.  Results do not depend on it.

    Raises RuntimeError for what is no positive integer."""
    if isinstance(number, bool) or not hasattr(type(number), "__index__"):
        raise RuntimeError(f"set_num_threads expects an int, but got {type(number).__name__}")
    if number.__index__() <= 0:
        raise RuntimeError("set_num_threads expects a positive integer")
    if supported():
        _threads.value = min(number.__index__(), MOST)


# --- memory


def _reset() -> None:
    """An empty pool: no workers, no job, nobody waiting.  The number of threads stays."""
    library = _library()
    if library is None:
        return
    threads = _threads.value
    ctypes.memset(_base, 0, _BYTES)
    for name, offset in (("pthread_mutex_init", _LOCK), ("pthread_cond_init", _WORK), ("pthread_cond_init", _IDLE)):
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


def _field(name: str) -> str:
    return f"getelementptr (i8, ptr @{_POOL}, i64 {_LAYOUT[name]})"


@dataclass(frozen=True, slots=True)
class _Processor:
    """LLVM text that depends on the processor: what to do between two looks at a word, and bodies of `i64 read()` and `void write(i64 %v)`
    of the floating-point control word."""

    declarations: str = ""
    pause: str = ""
    read: str = "ret i64 0"
    write: str = "ret void"


_X86: Final = _Processor(
    "declare void @llvm.x86.sse.stmxcsr(ptr)\ndeclare void @llvm.x86.sse.ldmxcsr(ptr)\ndeclare void @llvm.x86.sse2.pause()",
    "call void @llvm.x86.sse2.pause()",
    "%w = alloca i64\nstore i64 0, ptr %w\ncall void @llvm.x86.sse.stmxcsr(ptr %w)\n%v = load i64, ptr %w\nret i64 %v",
    "%w = alloca i64\nstore i64 %v, ptr %w\ncall void @llvm.x86.sse.ldmxcsr(ptr %w)\nret void",
)
_ARM: Final = _Processor(
    "declare i64 @llvm.aarch64.get.fpcr()\ndeclare void @llvm.aarch64.set.fpcr(i64)\ndeclare void @llvm.aarch64.hint(i32)",
    "call void @llvm.aarch64.hint(i32 1)",  # yield
    "%v = call i64 @llvm.aarch64.get.fpcr()\nret i64 %v",
    "call void @llvm.aarch64.set.fpcr(i64 %v)\nret void",
)
_PROCESSORS: Final = {"x86_64": _X86, "amd64": _X86, "aarch64": _ARM, "arm64": _ARM}

_ONE_BY_ONE: Final = """
define internal i64 @one_by_one(ptr %function, ptr %arguments, i64 %count) {
entry:
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %chunk, label %done
chunk:
  %k = phi i64 [ 0, %entry ], [ %following, %advance ]
  %status = call i64 %function(ptr %arguments, i64 %k)
  %fine = icmp eq i64 %status, 0
  br i1 %fine, label %advance, label %stop
advance:
  %following = add i64 %k, 1
  %more = icmp slt i64 %following, %count
  br i1 %more, label %chunk, label %done
stop:
  ret i64 %status
done:
  ret i64 0
}
"""

_WITHOUT_THREADS: Final = f"""
define i64 @{PARALLEL}(ptr %function, ptr %arguments, i64 %count) {{
  %status = call i64 @one_by_one(ptr %function, ptr %arguments, i64 %count)
  ret i64 %status
}}
"""


def _text() -> str:
    """The pool as LLVM text, which depends on the system and the processor only."""
    if not supported():
        return _ONE_BY_ONE + _WITHOUT_THREADS
    processor = _PROCESSORS.get(platform.machine().lower(), _Processor())
    lock, work, idle = (f"getelementptr (i8, ptr @{_POOL}, i64 {offset})" for offset in (_LOCK, _WORK, _IDLE))
    threads, workers, busy, state, following = map(_field, ("threads", "workers", "busy", "state", "next"))
    function, arguments, count, word, left, sleepers = map(
        _field, ("function", "arguments", "count", "control", "exit", "sleepers")
    )
    return f"""
@{_POOL} = external global i8
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @sched_yield()
declare i64 @llvm.smin.i64(i64, i64)
{processor.declarations}
{_ONE_BY_ONE}
define internal i64 @read_control() {{
{processor.read}
}}
define internal void @write_control(i64 %v) {{
{processor.write}
}}

; Between two looks at a word: let others run, and be gentle to the other hardware thread of this core.
define internal void @breathe() {{
  {processor.pause}
  {processor.pause}
  {processor.pause}
  {processor.pause}
  %ignored = call i32 @sched_yield()
  ret void
}}

; Chunks of the open job until none is left.
define internal void @take() {{
entry:
  %function = load ptr, ptr {function}
  %arguments = load ptr, ptr {arguments}
  %count = load i64, ptr {count}
  br label %look
look:
  %k = atomicrmw add ptr {following}, i64 1 monotonic
  %more = icmp slt i64 %k, %count
  br i1 %more, label %chunk, label %done
chunk:
  %status = call i64 %function(ptr %arguments, i64 %k)
  %fine = icmp eq i64 %status, 0
  br i1 %fine, label %look, label %exited
exited:
  %high = shl i64 %k, 32
  %key = or i64 %high, %status
  %ignored = atomicrmw umin ptr {left}, i64 %key monotonic
  br label %look
done:
  ret void
}}

define internal ptr @worker(ptr %nothing) {{
entry:
  br label %idle
idle:
  br label %watch
watch:
  %round = phi i64 [ 0, %idle ], [ %next.round, %wait ]
  %seen = load atomic i64, ptr {state} acquire, align 8
  %wanted = lshr i64 %seen, 16
  %open = icmp ugt i64 %wanted, {0x10000}
  br i1 %open, label %enter, label %wait
wait:
  call void @breathe()
  %next.round = add i64 %round, 1
  %awake = icmp ult i64 %next.round, {SPINS}
  br i1 %awake, label %watch, label %sleep
enter:
  %inside = sub i64 %seen, {0x10000 - 1}
  %swap = cmpxchg ptr {state}, i64 %seen, i64 %inside acquire monotonic
  %entered = extractvalue {{ i64, i1 }} %swap, 1
  br i1 %entered, label %work, label %idle
work:
  %control = load i64, ptr {word}
  call void @write_control(i64 %control)
  call void @take()
  %before = atomicrmw sub ptr {state}, i64 1 seq_cst
  %closed.and.last = icmp eq i64 %before, 1
  br i1 %closed.and.last, label %tell, label %idle
tell:
  %t1 = call i32 @pthread_mutex_lock(ptr {lock})
  %t2 = call i32 @pthread_cond_signal(ptr {idle})
  %t3 = call i32 @pthread_mutex_unlock(ptr {lock})
  br label %idle
sleep:
  %s1 = call i32 @pthread_mutex_lock(ptr {lock})
  %s2 = atomicrmw add ptr {sleepers}, i64 1 seq_cst
  br label %check
check:
  %now = load atomic i64, ptr {state} seq_cst, align 8
  %now.wanted = lshr i64 %now, 16
  %now.open = icmp ugt i64 %now.wanted, {0x10000}
  br i1 %now.open, label %wake, label %block
block:
  %s3 = call i32 @pthread_cond_wait(ptr {work}, ptr {lock})
  br label %check
wake:
  %s4 = atomicrmw sub ptr {sleepers}, i64 1 seq_cst
  %s5 = call i32 @pthread_mutex_unlock(ptr {lock})
  br label %idle
}}

; Make workers until there are so many; returns how many there are.  Only the caller that uses the pool gets here.
define internal i64 @grow(i64 %wanted) {{
entry:
  %thread = alloca [16 x i8], align 8
  %all = alloca [256 x i8], align 8
  %before = alloca [256 x i8], align 8
  %filled = call i32 @sigfillset(ptr %all)
  %masked = call i32 @pthread_sigmask(i32 {int(getattr(signal, "SIG_SETMASK", 0))}, ptr %all, ptr %before)
  br label %look
look:
  %have = load i64, ptr {workers}
  %enough = icmp sge i64 %have, %wanted
  br i1 %enough, label %done, label %make
make:
  %error = call i32 @pthread_create(ptr %thread, ptr null, ptr @worker, ptr null)
  %made = icmp eq i32 %error, 0
  br i1 %made, label %count, label %refused
count:
  %id = load ptr, ptr %thread
  %detached = call i32 @pthread_detach(ptr %id)
  %more = add i64 %have, 1
  store i64 %more, ptr {workers}
  br label %look
refused:
  %available = add i64 %have, 1
  store atomic i64 %available, ptr {threads} monotonic, align 8
  br label %done
done:
  %restored = call i32 @pthread_sigmask(i32 {int(getattr(signal, "SIG_SETMASK", 0))}, ptr %before, ptr null)
  ret i64 %have
}}

define i64 @{PARALLEL}(ptr %function, ptr %arguments, i64 %count) {{
entry:
  %threads = load atomic i64, ptr {threads} monotonic, align 8
  %others = sub i64 %threads, 1
  %chunks = sub i64 %count, 1
  %useful = call i64 @llvm.smin.i64(i64 %others, i64 %chunks)
  %several = icmp sgt i64 %useful, 0
  br i1 %several, label %try, label %alone
try:
  %swap = cmpxchg ptr {busy}, i64 0, i64 1 acquire monotonic
  %mine = extractvalue {{ i64, i1 }} %swap, 1
  br i1 %mine, label %prepare, label %alone
alone:
  %status = call i64 @one_by_one(ptr %function, ptr %arguments, i64 %count)
  ret i64 %status
prepare:
  %have = load i64, ptr {workers}
  %missing = icmp slt i64 %have, %useful
  br i1 %missing, label %make, label %publish
make:
  %grown = call i64 @grow(i64 %useful)
  br label %publish
publish:
  %present = phi i64 [ %have, %prepare ], [ %grown, %make ]
  %helpers = call i64 @llvm.smin.i64(i64 %present, i64 %useful)
  %control = call i64 @read_control()
  store ptr %function, ptr {function}
  store ptr %arguments, ptr {arguments}
  store i64 %count, ptr {count}
  store i64 %control, ptr {word}
  store i64 -1, ptr {left}
  store atomic i64 0, ptr {following} monotonic, align 8
  %shifted = shl i64 %helpers, 16
  %open = or i64 %shifted, {1 << 32}
  %ignored = atomicrmw xchg ptr {state}, i64 %open seq_cst
  %asleep = load atomic i64, ptr {sleepers} seq_cst, align 8
  %rouse = call i64 @llvm.smin.i64(i64 %asleep, i64 %helpers)
  %any = icmp sgt i64 %rouse, 0
  br i1 %any, label %lock, label %work
lock:
  %l1 = call i32 @pthread_mutex_lock(ptr {lock})
  br label %signal
signal:
  %n = phi i64 [ %rouse, %lock ], [ %fewer, %signal ]
  %l2 = call i32 @pthread_cond_signal(ptr {work})
  %fewer = sub i64 %n, 1
  %again = icmp sgt i64 %fewer, 0
  br i1 %again, label %signal, label %unlock
unlock:
  %l3 = call i32 @pthread_mutex_unlock(ptr {lock})
  br label %work
work:
  call void @take()
  %before = atomicrmw and ptr {state}, i64 {MOST} seq_cst
  %inside = and i64 %before, {MOST}
  %empty = icmp eq i64 %inside, 0
  br i1 %empty, label %finish, label %watch
watch:
  %round = phi i64 [ 0, %work ], [ %next.round, %wait ]
  %seen = load atomic i64, ptr {state} acquire, align 8
  %out = icmp eq i64 %seen, 0
  br i1 %out, label %finish, label %wait
wait:
  call void @breathe()
  %next.round = add i64 %round, 1
  %awake = icmp ult i64 %next.round, {SPINS}
  br i1 %awake, label %watch, label %sleep
sleep:
  %w1 = call i32 @pthread_mutex_lock(ptr {lock})
  br label %check
check:
  %now = load atomic i64, ptr {state} seq_cst, align 8
  %gone = icmp eq i64 %now, 0
  br i1 %gone, label %wake, label %block
block:
  %w2 = call i32 @pthread_cond_wait(ptr {idle}, ptr {lock})
  br label %check
wake:
  %w3 = call i32 @pthread_mutex_unlock(ptr {lock})
  br label %finish
finish:
  %lowest = load atomic i64, ptr {left} monotonic, align 8
  %none = icmp eq i64 %lowest, -1
  %low = and i64 %lowest, {0xFFFFFFFF}
  %result = select i1 %none, i64 0, i64 %low
  store atomic i64 0, ptr {busy} release, align 8
  ret i64 %result
}}
"""


@cache
def _linked() -> int:
    """The address of PARALLEL."""
    text = _text()
    imports = {name: address for name, address in (_library() or {}).items() if name in _FUNCTIONS}
    imports |= {_POOL: _base} if supported() else {}
    key = hashlib.sha256(f"{machine_code.identity()}\n{text}".encode()).hexdigest()
    kept = object_cache.take(key)
    if kept is not None:
        try:
            address, owner = machine_code.link(kept, imports, PARALLEL)
        except RuntimeError as error:
            object_cache.discard(key, str(error))
            kept = None
    if kept is None:
        object_code = machine_code.assemble(text)
        object_cache.keep(key, object_code)
        address, owner = machine_code.link(object_code, imports, PARALLEL)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner))  # workers outlive what Python forgets when it ends
    return address


def symbols() -> dict[str, int]:
    """The name under which programs call the pool, and its address."""
    get_num_threads()  # settles the number of threads, which machine code reads
    with _making:
        return {PARALLEL: _linked()}
