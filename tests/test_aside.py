"""core/aside.py: work in a thread of its own, and what interrupts those who wait for it."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tracejit.core import aside as module
from tracejit.core.aside import aside, done_aside


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
    assert aside(lambda: 6 * 7).value == 42 and done_aside(lambda: 6 * 7) == 42
    work = aside(lambda: 1 // 0)
    assert type(work.error) is ZeroDivisionError
    with pytest.raises(ZeroDivisionError) as caught:
        done_aside(lambda: 1 // 0)
    assert caught.traceback[-1].name == "<lambda>"


def test_it_is_done_in_another_thread_which_ends_with_it_and_which_nobody_knows() -> None:
    seen: list[Any] = []

    def look() -> None:
        seen.append((threading.get_ident(), sys.getprofile(), sys.gettrace(), threading.active_count()))

    threading.setprofile(lambda *_: seen.append("profile"))
    threading.settrace(lambda *_: seen.append("trace"))
    try:
        aside(look)
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
    inner, outer = done_aside(lambda: (done_aside(threading.get_ident), threading.get_ident()))
    assert inner == outer != threading.get_ident()


def test_the_exception_of_a_handler_is_raised_at_once_and_the_work_goes_on() -> None:
    done = threading.Event()

    def slow() -> str:
        time.sleep(0.5)
        done.set()
        return "done"

    started = time.perf_counter()
    with alarm_after(0.05, stop), pytest.raises(Stop):
        aside(slow)
    assert time.perf_counter() - started < 0.4 and not done.is_set() and gc.isenabled()
    assert done.wait(5)


def test_a_handler_that_raises_nothing_runs_while_the_work_goes_on_and_may_have_work_of_its_own() -> None:
    seen: list[Any] = []
    with alarm_after(0.05, lambda *_: seen.append((threading.get_ident(), done_aside(threading.get_ident)))):
        other = done_aside(lambda: time.sleep(0.2) or threading.get_ident())
    assert seen[0][0] == threading.get_ident() and len({other, *seen[0]}) == 3


def test_an_exception_of_the_work_is_no_interrupt_even_if_handlers_raise_such_too() -> None:
    def fail() -> None:
        time.sleep(0.05)
        raise Stop

    assert type(aside(fail).error) is Stop


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
        aside(lambda: [[[]] for _ in range(1000)])
        assert not where or where == [threading.get_ident()]
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    assert where == [threading.get_ident()] and gone() is None and gc.isenabled()


def test_work_is_done_here_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    namespace: dict[str, Any] = {"__name__": "_thread"}  # the error is not the program's
    exec('def start_new_thread(*_): raise RuntimeError("can\'t start new thread")', namespace)
    monkeypatch.setattr(module._thread, "start_new_thread", namespace["start_new_thread"])
    assert done_aside(threading.get_ident) == threading.get_ident()
    assert type(aside(lambda: 1 // 0).error) is ZeroDivisionError


def test_the_size_of_stacks_is_as_the_program_has_set_it() -> None:
    before = threading.stack_size(64 << 10)
    try:

        def deep(n: int) -> int:
            return n if n == 0 else max(map(deep, [n - 1]))  # each level takes C stack

        assert done_aside(lambda: deep(200)) == 0
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
            found = done_aside(lambda: time.sleep(0.3) or os.getpid())
        right = found == os.getpid()
    finally:
        if os.getpid() != parent:
            os._exit(0 if right else 1)
    assert right and os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0


SCRIPT = """
import signal, sys, time
from tracejit.core.aside import aside

def stop(*_): raise LookupError
signal.signal(signal.SIGALRM, stop)
signal.setitimer(signal.ITIMER_REAL, 0.05)
try:
    aside(lambda: (time.sleep(0.5), print("done", flush=True)))
except LookupError:
    print("ends", flush=True)
"""


def test_a_process_that_ends_waits_for_work_that_was_given_up() -> None:
    said = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60)
    assert (said.returncode, said.stdout.split(), said.stderr) == (0, ["ends", "done"], "")
