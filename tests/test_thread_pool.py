"""Tests of the pool of threads: chunks, statuses, callers at once, forks, signals, the end of the process, systems without threads."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracejit
from tracejit.llvm import thread_pool, thread_pool_code
from tracejit.native import machine_code

needs_threads = pytest.mark.skipif(not thread_pool.supported(), reason="this system has no POSIX threads")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork") or not thread_pool.supported(), reason="this system has no fork")
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
WORD = ctypes.c_int64

# Chunk k adds 1 to word 1 + k of the block, after as many microseconds as word 0 says, and notes its thread in word 101 + k.
COUNTING = """
declare i32 @usleep(i32)
declare ptr @pthread_self()
define i64 @chunk(ptr %block, i64 %k) {
entry:
  %wait = load i64, ptr %block
  %some = icmp ne i64 %wait, 0
  br i1 %some, label %sleep, label %count
sleep:
  %short = trunc i64 %wait to i32
  %ignored = call i32 @usleep(i32 %short)
  br label %count
count:
  %at = add i64 %k, 1
  %position = getelementptr i64, ptr %block, i64 %at
  %old = load i64, ptr %position
  %new = add i64 %old, 1
  store i64 %new, ptr %position
  %self = call ptr @pthread_self()
  %who = getelementptr i64, ptr %position, i64 100
  store ptr %self, ptr %who
  ret i64 0
}
"""


def linked(text: str, imports: dict[str, int] | None = None, symbol: str = "chunk") -> tuple[int, Any]:
    return machine_code.link(machine_code.assemble(text), imports or {}, symbol)


@pytest.fixture(scope="module")
def counting() -> tuple[int, Any]:
    return linked(COUNTING)


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = tracejit.get_num_threads()
    yield
    tracejit.set_num_threads(before)


def parallel() -> Any:
    """The pool's function; ctypes lets go of the GIL while it runs."""
    return ctypes.CFUNCTYPE(WORD, ctypes.c_void_p, ctypes.c_void_p, WORD)(thread_pool.symbols()[thread_pool.PARALLEL])


def run(function: int, count: int, wait: int = 0) -> np.ndarray:
    """A block after a run of so many chunks."""
    block = np.zeros(201, np.int64)
    block[0] = wait
    assert parallel()(function, block.ctypes.data, count) == 0
    return block


def in_a_new_process(code: str, **environment: str) -> str:
    """What a process prints that runs `code`; it must end by itself, and well."""
    given = {**os.environ, "PYTHONPATH": str(Path(tracejit.__file__).parent.parent), **environment}
    with tempfile.TemporaryDirectory() as directory:
        script = Path(directory, "script.py")  # compiled functions need a source
        script.write_text(code)
        done = subprocess.run([sys.executable, str(script)], env=given, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout.strip()


# --- how many threads


def test_the_number_of_threads_is_what_was_set() -> None:
    tracejit.set_num_threads(3)
    assert tracejit.get_num_threads() == (3 if thread_pool.supported() else 1)
    tracejit.set_num_threads(np.int64(2))  # type: ignore[arg-type]
    assert tracejit.get_num_threads() == (2 if thread_pool.supported() else 1)


@pytest.mark.parametrize("wrong", [0, -1])
def test_a_number_of_threads_that_is_not_positive_is_refused(wrong: int) -> None:
    with pytest.raises(RuntimeError, match="set_num_threads expects a positive integer"):
        tracejit.set_num_threads(wrong)


@pytest.mark.parametrize("wrong", [2.0, "2", True, None])
def test_a_number_of_threads_that_is_no_integer_is_refused(wrong: Any) -> None:
    with pytest.raises(RuntimeError, match=f"set_num_threads expects an int, but got {type(wrong).__name__}"):
        tracejit.set_num_threads(wrong)


PRINT_THREADS = "import tracejit; print(tracejit.get_num_threads())"


@needs_threads
def test_the_environment_says_how_many_threads_there_are() -> None:
    assert in_a_new_process(PRINT_THREADS, TRACEJIT_NUM_THREADS="5", OMP_NUM_THREADS="4") == "5"
    assert in_a_new_process(PRINT_THREADS, TRACEJIT_NUM_THREADS="0", OMP_NUM_THREADS="4,2") == "4"


@needs_threads
@linux_only
def test_without_settings_there_is_a_thread_for_each_core_that_the_process_may_use() -> None:
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))});" + PRINT_THREADS
    assert in_a_new_process(code, TRACEJIT_NUM_THREADS="0", OMP_NUM_THREADS="") == "1"


def test_hardware_threads_of_one_core_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    siblings = {"cpu0": "0,2", "cpu1": "1,3", "cpu2": "0,2", "cpu3": "1,3"}
    monkeypatch.setattr(Path, "read_text", lambda self: siblings[self.parts[-3]])
    assert thread_pool._cores() == 2

    def missing(self: Path) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)
    assert thread_pool._cores() == 4


def test_compiled_functions_leave_the_number_of_threads_to_eager_code() -> None:
    @tracejit.compile
    def change(x: Any) -> Any:
        tracejit.set_num_threads(2)
        return x * tracejit.get_num_threads()

    for _ in range(3):
        tracejit.set_num_threads(1)
        change(tracejit.ones(2))
        assert tracejit.get_num_threads() == (2 if thread_pool.supported() else 1)


# --- chunks


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_every_chunk_runs_once(counting: tuple[int, Any], threads: int) -> None:
    tracejit.set_num_threads(threads)
    for count in (0, 1, 2, 3, 100):
        for _ in range(50):
            block = run(counting[0], count)
            assert block[1 : 1 + count].tolist() == [1] * count and not block[1 + count : 101].any()


@needs_threads
def test_workers_take_chunks_and_the_caller_too(counting: tuple[int, Any]) -> None:
    tracejit.set_num_threads(3)
    assert len(set(run(counting[0], 30, wait=2000)[101:131].tolist())) == 3
    tracejit.set_num_threads(2)
    assert len(set(run(counting[0], 20, wait=2000)[101:121].tolist())) == 2
    tracejit.set_num_threads(1)
    assert len(set(run(counting[0], 20)[101:121].tolist())) == 1


def test_the_status_is_that_of_the_lowest_chunk_that_has_one() -> None:
    text = """
    define i64 @chunk(ptr %block, i64 %k) {
      %late = icmp sge i64 %k, 37
      %status = select i1 %late, i64 %k, i64 0
      ret i64 %status
    }"""
    address, _owner = linked(text)
    for threads in (1, 2, 3):
        tracejit.set_num_threads(threads)
        for _ in range(200):
            assert parallel()(address, None, 100) == 37
            assert parallel()(address, None, 30) == 0


def test_a_chunk_that_uses_the_pool_itself_runs_alone() -> None:
    text = f"""
    declare i64 @{thread_pool.PARALLEL}(ptr, ptr, i64)
    define internal i64 @inner(ptr %block, i64 %k) {{
      %ignored = atomicrmw add ptr %block, i64 1 monotonic
      ret i64 0
    }}
    define i64 @chunk(ptr %block, i64 %k) {{
      %status = call i64 @{thread_pool.PARALLEL}(ptr @inner, ptr %block, i64 10)
      ret i64 %status
    }}"""
    address, _owner = linked(text, thread_pool.symbols())
    tracejit.set_num_threads(3)
    block = np.zeros(1, np.int64)
    for _ in range(100):
        assert parallel()(address, block.ctypes.data, 20) == 0
    assert block[0] == 20_000


def test_python_threads_use_the_pool_at_the_same_time(counting: tuple[int, Any]) -> None:
    tracejit.set_num_threads(3)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(300):
                assert run(counting[0], 9)[1:10].tolist() == [1] * 9
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for w in workers:
        w.start()
    for n in range(200):
        tracejit.set_num_threads(1 + n % 4)  # while the pool is in use
    for w in workers:
        w.join()
    assert not failures


@needs_threads
def test_workers_compute_under_the_callers_floating_point_control_word() -> None:
    processor = thread_pool_code._PROCESSORS.get(os.uname().machine.lower())
    if processor is None:
        pytest.skip("the control word of this processor is not known")
    other = 0x9F80 if "sse" in processor.declarations else 1 << 24  # flush to zero
    text = f"""
    {processor.declarations}
    declare i32 @usleep(i32)
    declare i64 @{thread_pool.PARALLEL}(ptr, ptr, i64)
    define internal i64 @read_control() noinline {{
    {processor.read}
    }}
    define internal void @write_control(i64 %v) noinline {{
    {processor.write}
    }}
    define internal i64 @inner(ptr %block, i64 %k) {{
      %ignored = call i32 @usleep(i32 1000)
      %control = call i64 @read_control()
      %position = getelementptr i64, ptr %block, i64 %k
      store i64 %control, ptr %position
      ret i64 0
    }}
    define i64 @chunk(ptr %block) {{
      %before = call i64 @read_control()
      call void @write_control(i64 {other})
      %status = call i64 @{thread_pool.PARALLEL}(ptr @inner, ptr %block, i64 20)
      call void @write_control(i64 %before)
      ret i64 %status
    }}"""
    address, _owner = linked(text, thread_pool.symbols())
    tracejit.set_num_threads(3)
    block = np.zeros(20, np.int64)
    assert ctypes.CFUNCTYPE(WORD, ctypes.c_void_p)(address)(block.ctypes.data) == 0
    assert set(block.tolist()) == {other}


# --- the process


def in_child(work: Any, seconds: float = 30.0) -> None:
    """Run `work` in a forked child, which must succeed in time."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            assert os.waitstatus_to_exitcode(status) == 0
            return
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    pytest.fail("the child hangs")


@needs_fork
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_makes_threads_of_its_own(counting: tuple[int, Any]) -> None:
    tracejit.set_num_threads(2)
    run(counting[0], 20, wait=1000)

    def work() -> None:
        assert tracejit.get_num_threads() == 2
        assert len(set(run(counting[0], 20, wait=2000)[101:121].tolist())) == 2
        in_child(lambda: run(counting[0], 20))

    in_child(work)
    assert len(set(run(counting[0], 20, wait=2000)[101:121].tolist())) == 2  # the parent's still work


@needs_fork
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_while_another_thread_is_in_the_pool_does_no_harm(counting: tuple[int, Any]) -> None:
    tracejit.set_num_threads(3)
    stop = threading.Event()
    failures: list[BaseException] = []

    def busy() -> None:
        while not stop.is_set():
            try:
                assert run(counting[0], 40, wait=500)[1:41].tolist() == [1] * 40
            except BaseException as error:
                failures.append(error)
                return

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        for _ in range(10):
            in_child(lambda: run(counting[0], 20, wait=100))
    finally:
        stop.set()
        thread.join()
    assert not failures


USE = """
import numpy as np, threading, time, tracejit
tracejit.set_num_threads(3)
@tracejit.compile
def f(x):
    return (x.tanh() * x.exp()).sum()
x = tracejit.tensor(np.linspace(0, 1, 300_000, dtype=np.float32))
for _ in range(5):
    f(x)
assert "chunks" in f.explain(verbose=True)
"""


def test_a_process_ends_right_after_a_call() -> None:
    for _ in range(3):
        assert in_a_new_process(USE + "f(x); print('done')") == "done"


def test_a_process_ends_while_daemon_threads_call() -> None:
    code = """
def forever():
    while True:
        f(x)
for _ in range(3):
    threading.Thread(target=forever, daemon=True).start()
time.sleep(0.2)
print("done")
"""
    assert in_a_new_process(USE + code) == "done"


def test_calls_at_exit_still_work() -> None:
    assert in_a_new_process("import atexit\n" + USE + "atexit.register(lambda: print(round(f(x).item())))").isdecimal()


@needs_threads
@linux_only
def test_workers_leave_signals_to_python_s_threads() -> None:
    code = """
import os
tasks = [t for t in os.listdir("/proc/self/task") if int(t) != os.getpid()]
blocked = [line.split()[1] for t in tasks for line in open(f"/proc/self/task/{t}/status") if line.startswith("SigBlk")]
print(sum(int(b, 16) >> 1 & 1 for b in blocked) >= 2)  # bit 1: SIGINT
"""
    assert in_a_new_process(USE + code, OPENBLAS_NUM_THREADS="1") == "True"


def test_without_posix_threads_one_thread_runs_all_chunks(counting: tuple[int, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_pool, "_library", lambda: None)
    assert tracejit.get_num_threads() == 1
    tracejit.set_num_threads(4)
    assert tracejit.get_num_threads() == 1
    address, _owner = linked(thread_pool_code.text(False), symbol=thread_pool.PARALLEL)
    block = np.zeros(201, np.int64)
    assert ctypes.CFUNCTYPE(WORD, ctypes.c_void_p, ctypes.c_void_p, WORD)(address)(counting[0], block.ctypes.data, 50) == 0
    assert block[1:51].tolist() == [1] * 50 and len(set(block[101:151].tolist())) == 1


@needs_threads
def test_where_the_system_refuses_threads_the_pool_has_those_that_it_got(counting: tuple[int, Any]) -> None:
    refuse, _owner = linked("define i32 @refuse(ptr %a, ptr %b, ptr %c, ptr %d) {\nret i32 11\n}", symbol="refuse")
    memory = np.zeros(thread_pool_code.BYTES + 64, np.uint8)
    base = -(-memory.ctypes.data // 64) * 64
    words = memory[base - memory.ctypes.data :][: thread_pool_code.BYTES].view(np.int64)
    words[thread_pool_code.FIELDS["threads"] // 8] = 4
    imports = {"pthread_create": refuse, thread_pool_code.POOL: base}
    address, _pool = linked(thread_pool_code.text(True), imports, thread_pool.PARALLEL)
    block = np.zeros(201, np.int64)
    assert ctypes.CFUNCTYPE(WORD, ctypes.c_void_p, ctypes.c_void_p, WORD)(address)(counting[0], block.ctypes.data, 50) == 0
    assert block[1:51].tolist() == [1] * 50
    assert words[thread_pool_code.FIELDS["threads"] // 8] == 1
