"""core/uninterrupted.py: work in a thread of its own, and what interrupts those who wait for it."""

from __future__ import annotations

import gc
import math
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tracejit.config import config
from tracejit.core import uninterrupted as module
from tracejit.core.uninterrupted import Work, run_uninterrupted, start_work, uninterrupted_result
from tracejit.native import object_cache


class Stop(Exception):
    """What a handler raises."""


@contextmanager
def alarm_after(seconds: float, handler: Any) -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def stop(number: int, frame: Any) -> None:
    raise Stop


def test_the_answer_has_what_came_of_the_work() -> None:
    assert run_uninterrupted(lambda: 6 * 7).value == 42 and uninterrupted_result(lambda: 6 * 7) == 42
    work = run_uninterrupted(lambda: 1 // 0)
    assert type(work.error) is ZeroDivisionError
    with pytest.raises(ZeroDivisionError) as caught:
        uninterrupted_result(lambda: 1 // 0)
    assert caught.traceback[-1].name == "<lambda>"


def test_it_is_done_in_another_thread_which_ends_with_it_and_which_nobody_knows() -> None:
    seen: list[Any] = []

    def look() -> None:
        seen.append((threading.get_ident(), sys.getprofile(), sys.gettrace(), threading.active_count()))

    threading.setprofile(lambda *_: seen.append("profile"))
    threading.settrace(lambda *_: seen.append("trace"))
    try:
        run_uninterrupted(look)
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]
        threading.settrace(None)  # type: ignore[arg-type]
    [(ident, profile, trace, threads)] = seen
    assert ident != threading.get_ident() and profile is trace is None and threads == threading.active_count()
    for _ in range(100):
        if ident not in sys._current_frames():
            break
        time.sleep(0.01)
    assert ident not in sys._current_frames() and not module._running


def test_work_inside_work_is_done_at_once() -> None:
    inner, outer = uninterrupted_result(lambda: (uninterrupted_result(threading.get_ident), threading.get_ident()))
    assert inner == outer != threading.get_ident()


def test_the_exception_of_a_handler_is_raised_at_once_and_the_work_goes_on() -> None:
    done = threading.Event()

    def slow() -> str:
        time.sleep(0.5)
        done.set()
        return "done"

    started = time.perf_counter()
    with alarm_after(0.05, stop), pytest.raises(Stop):
        run_uninterrupted(slow)
    assert time.perf_counter() - started < 0.4 and not done.is_set() and gc.isenabled()
    assert done.wait(5)


def test_a_handler_that_raises_nothing_runs_while_the_work_goes_on_and_may_have_work_of_its_own() -> None:
    seen: list[Any] = []
    with alarm_after(0.05, lambda *_: seen.append((threading.get_ident(), uninterrupted_result(threading.get_ident)))):
        other = uninterrupted_result(lambda: time.sleep(0.2) or threading.get_ident())
    assert seen[0][0] == threading.get_ident() and len({other, *seen[0]}) == 3


def test_an_exception_of_the_work_is_no_interrupt_even_if_handlers_raise_such_too() -> None:
    def fail() -> None:
        time.sleep(0.05)
        raise Stop

    assert type(run_uninterrupted(fail).error) is Stop


def test_nothing_is_collected_meanwhile() -> None:
    class Finalised:
        def __del__(self) -> None:
            where.append(threading.get_ident())

    where: list[int] = []
    garbage: Any = Finalised()
    garbage.own = garbage
    gone = weakref.ref(garbage)
    del garbage
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        run_uninterrupted(lambda: [[[]] for _ in range(1000)])
        assert not where or where == [threading.get_ident()]
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    assert where == [threading.get_ident()] and gone() is None and gc.isenabled()


def test_work_is_done_here_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    namespace: dict[str, Any] = {"__name__": "_thread"}  # the error is not the program's
    exec('def start_new_thread(*_): raise RuntimeError("can\'t start new thread")', namespace)
    monkeypatch.setattr(module._thread, "start_new_thread", namespace["start_new_thread"])
    assert uninterrupted_result(threading.get_ident) == threading.get_ident()
    assert type(run_uninterrupted(lambda: 1 // 0).error) is ZeroDivisionError


def test_the_size_of_stacks_is_as_the_program_has_set_it() -> None:
    before = threading.stack_size(64 << 10)
    try:

        def deep(n: int) -> int:
            return n if n == 0 else max(map(deep, [n - 1]))  # each level takes C stack

        assert uninterrupted_result(lambda: deep(200)) == 0
        assert threading.stack_size() == 64 << 10
    finally:
        threading.stack_size(before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_the_child_of_a_handler_that_forks_does_the_work_itself() -> None:
    children: list[int] = []

    def fork(number: int, frame: Any) -> None:
        children.append(os.fork())

    parent = os.getpid()
    try:
        with alarm_after(0.05, fork):
            found = uninterrupted_result(lambda: time.sleep(0.3) or os.getpid())
        right = found == os.getpid()
    finally:
        if os.getpid() != parent:
            os._exit(0 if right else 1)
    assert right and os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0


def ended(*works: Work[Any]) -> list[Any]:
    """What came of them."""
    for work in works:
        assert work.wait_until(time.monotonic() + 30)
    return [work.outcome().result() for work in works]


def test_work_that_takes_longer_than_somebody_waits_goes_on_in_the_background() -> None:
    going = threading.Event()
    work = start_work(lambda: going.wait(30), 0.0)
    assert work.behind and not work.finished and gc.isenabled()
    going.set()
    assert ended(work) == [True] and not module._behind
    soon = start_work(lambda: 1, 30.0)
    assert soon.finished and not soon.behind


def test_what_work_in_the_background_raises_is_in_its_answer() -> None:
    going = threading.Event()
    work = start_work(lambda: going.wait(30) and 1 // 0, 0.0)
    going.set()
    with pytest.raises(ZeroDivisionError):
        ended(work)
    assert type(work.outcome().error) is ZeroDivisionError


def test_one_at_a_time_goes_on_inside_its_work_in_the_order_of_their_coming() -> None:
    begins, going, order = threading.Event(), threading.Event(), []

    def work(name: str) -> None:
        begins.wait(30)
        uninterrupted_result(lambda: (going.wait(30), order.append(name)))
        uninterrupted_result(lambda: order.append(name))

    works = [start_work(lambda name=name: work(name), 0.0) for name in "abc"]
    begins.set()
    assert uninterrupted_result(lambda: uninterrupted_result(lambda: "at once")) == "at once"  # who is waited for needs no turn
    going.set()
    ended(*works)
    assert order == list("aabbcc")


def test_what_is_begun_while_something_is_in_the_background_waits_for_its_turn_and_nobody_waits_for_it() -> None:
    going, order = threading.Event(), []
    first = start_work(lambda: (going.wait(30), order.append(0)), 0.0)
    before = time.monotonic()
    others = [start_work(lambda i=i: order.append(i), 10.0) for i in (1, 2, 3)]
    assert time.monotonic() - before < 5 and not any(work.has_begun for work in others)
    assert uninterrupted_result(lambda: order.append("at once")) is None
    going.set()
    ended(first, *others)
    assert order == ["at once", 0, 1, 2, 3] and not module._behind
    assert start_work(lambda: 1, 30.0).finished


def test_the_background_goes_on_with_what_an_interrupt_has_kept_from_beginning() -> None:
    kept = Work(lambda: 1)
    kept.behind = True
    module._behind.append(kept)
    assert ended(kept, start_work(lambda: 2, 1.0)) == [1, 2]


def test_a_work_that_no_thread_could_be_had_for_begins_when_somebody_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    going = threading.Event()
    first = start_work(lambda: going.wait(30), 0.0)
    second = start_work(lambda: 2, 0.0)
    monkeypatch.setattr(module, "_start", lambda work: False)
    going.set()
    ended(first)
    assert not second.has_begun and not second.wait(0.0)
    monkeypatch.undo()
    assert ended(second) == [2] and not module._behind


def test_of_several_threads_that_begin_one_does_the_work() -> None:
    times = []
    work = Work(lambda: times.append(1))
    assert work.begin() and work.begin() and ended(work) == [None]
    time.sleep(0.05)
    assert times == [1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_is_told_what_is_lost_in_it() -> None:
    going, lost = threading.Event(), []
    works = [start_work(lambda: going.wait(30), 0.0, lambda i=i: lost.append(i)) for i in (1, 2)]
    child = os.fork()
    if child == 0:
        os._exit(0 if lost == [1, 2] else 1)
    going.set()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0 and ended(*works) == [True, True] and not lost


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_work_in_the_background_is_lost_in_a_forked_child_which_can_have_other_work() -> None:
    going = threading.Event()
    work = start_work(lambda: going.wait(30), 0.0)
    child = os.fork()
    if child == 0:
        try:
            fine = work.is_lost and work.wait_until(time.monotonic() + 30) and not module._behind
            os._exit(0 if fine and uninterrupted_result(lambda: uninterrupted_result(os.getpid)) == os.getpid() else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    going.set()
    assert not work.is_lost and ended(work) == [True]


SCRIPT = """
import signal, sys, time
from tracejit.core import uninterrupted as module

ends_soon = sys.argv[1] == "done"
module._GRACE = 30.0 if ends_soon else 0.0
def stop(*_): raise LookupError
def work():
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        while not (ends_soon and module._ending[0]):
            time.sleep(0.001)
        print("done", flush=True)
    except SystemExit:
        print("over", flush=True)
        raise
signal.signal(signal.SIGALRM, stop)
try:
    module.run_uninterrupted(work)
except LookupError:
    print("ends", flush=True)
"""


@pytest.mark.parametrize("outcome", ["done", "over"])
def test_a_process_that_ends_waits_for_what_soon_comes_to_its_end_and_drops_the_rest(outcome: str) -> None:
    said = subprocess.run([sys.executable, "-c", SCRIPT, outcome], capture_output=True, text=True, timeout=60)
    assert (said.returncode, said.stdout.split(), said.stderr) == (0, ["ends", outcome], "")


KEEPING = """
import os, sys, threading, time
from tracejit.core import uninterrupted
from tracejit.native import object_cache

ends_soon = sys.argv[1] == "whole"
uninterrupted._GRACE = 30.0 if ends_soon else 0.0
write, half = os.write, threading.Event()
def slowly(descriptor, data):
    if not half.is_set():
        written = write(descriptor, data[: len(data) // 2])
        half.set()
        return written
    while not (ends_soon and uninterrupted._ending[0]):
        time.sleep(0.001)
    return write(descriptor, data)
os.write = slowly
uninterrupted.start_work(lambda: object_cache.keep("ab" * 32, bytes(5000)), 0.0)
assert half.wait(30)
print(os.listdir(object_cache.directory())[0].partition(".")[2], flush=True)
"""


@pytest.mark.skipif(not object_cache._SUPPORTED, reason="this system has no cache")
@pytest.mark.parametrize(("outcome", "kept"), [("whole", bytes(5000)), ("gone", None)])
def test_what_the_end_of_a_process_finds_half_written_to_the_cache_is_completed_or_removed(
    outcome: str, kept: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {**os.environ, "TRACEJIT_CACHE_DIR": str(tmp_path), "TRACEJIT_CACHE": "1"}
    said = subprocess.run([sys.executable, "-c", KEEPING, outcome], capture_output=True, text=True, timeout=60, env=environment)
    assert (said.returncode, said.stdout.split(), said.stderr) == (0, ["tmp"], "")
    assert len(list(tmp_path.iterdir())) == (kept is not None)
    monkeypatch.setattr(config, "cache_dir", str(tmp_path))
    monkeypatch.setattr(config, "cache", True)
    assert object_cache.take("ab" * 32) == kept


STUBBORN = """
import atexit, time
from tracejit.core.uninterrupted import start_work, leave_where_the_process_ends

leave_where_the_process_ends()  # nothing ends
def work():
    while True:
        try:
            [sum(range(1000)) for _ in range(100)]
        except SystemExit:
            if time.perf_counter() - START > 0.6:
                leave_where_the_process_ends()
start_work(work, 0.05)
START = time.perf_counter()
"""


def test_work_that_takes_no_notice_of_the_end_meets_it_again() -> None:
    said = subprocess.run([sys.executable, "-c", STUBBORN], capture_output=True, text=True, timeout=60)
    assert (said.returncode, said.stdout, said.stderr) == (0, "", "")


ENDING = """
import atexit, signal, threading
from tracejit.core import uninterrupted as module
from tracejit.core.uninterrupted import start_work, uninterrupted_result

module._GRACE = 30.0
going = threading.Event()
def work():
    going.wait(30)
    print("outside", flush=True)
    uninterrupted_result(lambda: print("inside", flush=True))
start_work(work, 0.0)
signal.signal(signal.SIGALRM, lambda *_: going.set())
atexit.register(signal.setitimer, signal.ITIMER_REAL, 0.1)
"""


def test_a_process_that_ends_waits_for_the_background_which_gets_no_further_than_to_work_inside_its_work() -> None:
    said = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, timeout=60)
    assert (said.returncode, said.stdout.split(), said.stderr) == (0, ["outside"], "")


class Thing:
    """Something to hold on to."""


def test_nothing_of_a_work_is_with_its_thread_once_somebody_knows_that_it_is_finished() -> None:
    before = sys.getswitchinterval()
    try:
        sys.setswitchinterval(1e-6)  # threads that end are in the middle of it
        for _ in range(300):
            thing, made = Thing(), Thing()
            known = weakref.ref(thing), weakref.ref(made)
            work = start_work(lambda thing=thing, made=made: (thing, made), math.inf, lambda thing=thing: None)  # type: ignore[misc]
            assert work.finished
            del thing, made, work
            assert [reference() for reference in known] == [None, None]
    finally:
        sys.setswitchinterval(before)


def test_what_has_begun_and_what_has_not_take_turns_in_the_order_in_which_they_came_to_the_background() -> None:
    going, come = threading.Event(), threading.Event()
    log: list[str] = []

    def first() -> None:
        going.wait(30)
        log.append("first")

    def last() -> None:
        come.wait(30)
        uninterrupted_result(lambda: log.append("last"))  # waits for its turn

    others: list[Work[Any]] = []
    thread = threading.Thread(target=lambda: others.append(start_work(last, 0.5)))
    thread.start()  # it waits while the others come to the background
    while len(module._running) < 1:
        time.sleep(0.001)
    works = [start_work(first, 0.0), start_work(lambda: log.append("second"), 0.0)]
    thread.join()
    come.set()
    time.sleep(0.05)
    going.set()
    ended(*works, *others)
    assert log == ["first", "second", "last"] and not module._behind


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_is_told_of_work_for_which_another_thread_of_its_parent_waits() -> None:
    going, lost = threading.Event(), list[int]()
    thread = threading.Thread(target=start_work, args=(lambda: going.wait(30), 30.0, lambda: lost.append(1)))
    thread.start()
    while not module._running:
        time.sleep(0.001)
    child = os.fork()
    if not child:
        os._exit(len(lost))
    going.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1 and not lost
