"""The machine code of the pool of threads (thread_pool.py says what it promises), as LLVM text, and the layout of its memory.

`text(with_threads)` depends on the system and the processor only.  The memory is the symbol POOL, BYTES long and zero at first but for the
C library's lock and conditions, which must be initialised.  This module knows text and offsets.
"""

from __future__ import annotations

import platform
import signal
from dataclasses import dataclass
from typing import Final

__all__ = ["BYTES", "FIELDS", "FUNCTIONS", "IDLE", "LOCK", "MOST", "PARALLEL", "POOL", "WORK", "text"]

PARALLEL: Final = "tracejit_parallel"
POOL: Final = "tracejit_pool"
BYTES: Final = 1024
MOST: Final = 0xFFFF  # threads; the fields of the state word have 16 bits
FAN: Final = 2  # sleeping workers that a thread wakes when it begins a job
SPINS: Final = 200  # looks at a word before a thread sleeps until it changes, each about a third of a microsecond

FUNCTIONS: Final = (
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

LOCK: Final = 512  # offsets of what the C library owns; each has at least twice the room that it takes on any system
WORK: Final = 640
IDLE: Final = 768

# The pool's memory.  What different threads write to lies on different cache lines.
FIELDS: Final = {
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


def _field(name: str) -> str:
    return f"getelementptr (i8, ptr @{POOL}, i64 {FIELDS[name]})"


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


def text(with_threads: bool) -> str:
    """The pool, or without threads the same symbol running chunks one after the other."""
    if not with_threads:
        return _ONE_BY_ONE + _WITHOUT_THREADS
    processor = _PROCESSORS.get(platform.machine().lower(), _Processor())
    lock, work, idle = (f"getelementptr (i8, ptr @{POOL}, i64 {offset})" for offset in (LOCK, WORK, IDLE))
    threads, workers, busy, state, following = map(_field, ("threads", "workers", "busy", "state", "next"))
    function, arguments, count, word, left, sleepers = map(
        _field, ("function", "arguments", "count", "control", "exit", "sleepers")
    )
    return f"""
@{POOL} = external global i8
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

; Wake sleeping workers for the open job, {FAN} at most: each of them wakes as many, so that the caller need not wake all.
define internal void @rouse(i64 %wanted) {{
entry:
  %asleep = load atomic i64, ptr {sleepers} seq_cst, align 8
  %possible = call i64 @llvm.smin.i64(i64 %asleep, i64 %wanted)
  %number = call i64 @llvm.smin.i64(i64 %possible, i64 {FAN})
  %any = icmp sgt i64 %number, 0
  br i1 %any, label %lock, label %done
lock:
  %locked = call i32 @pthread_mutex_lock(ptr {lock})
  br label %signal
signal:
  %n = phi i64 [ %number, %lock ], [ %fewer, %signal ]
  %signalled = call i32 @pthread_cond_signal(ptr {work})
  %fewer = sub i64 %n, 1
  %again = icmp sgt i64 %fewer, 0
  br i1 %again, label %signal, label %unlock
unlock:
  %unlocked = call i32 @pthread_mutex_unlock(ptr {lock})
  br label %done
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
  %positions = lshr i64 %inside, 16
  %left.positions = and i64 %positions, {MOST}
  call void @rouse(i64 %left.positions)
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
  call void @rouse(i64 %helpers)
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
