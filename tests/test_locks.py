"""core/locks.py: a fork leaves no lock behind that nobody will open."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

import tracejit as tj
from tracejit.core.interpreter import Interpreter, pushed, pushed_anywhere
from tracejit.core.locks import Ticket, Turn, lock_held_over_forks
from tracejit.llvm import driver
from tracejit.native import machine_code

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


def in_child(check: Callable[[], Any]) -> bool:
    """Whether `check()` is true in a forked child."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if check() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def is_free(lock: Any) -> bool:
    """Whether another thread could take it."""
    found: list[bool] = []

    def take() -> None:
        found.append(lock.acquire(blocking=False))
        if found[0]:
            lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return found[0]


class Holder:
    """A thread that does something in the middle of which it waits."""

    def __init__(self, enter: Callable[[], Any], leave: Callable[[], Any]) -> None:
        self.ready, self.go_on = threading.Event(), threading.Event()

        def run() -> None:
            enter()
            self.ready.set()
            self.go_on.wait()
            leave()

        self.thread = threading.Thread(target=run)
        self.thread.start()
        self.ready.wait()

    def end(self) -> None:
        self.go_on.set()
        self.thread.join()


LOCK, TURN = lock_held_over_forks(), Turn()


def test_a_fork_waits_for_the_lock_and_leaves_it_free_on_both_sides() -> None:
    holder = Holder(LOCK.acquire, LOCK.release)
    timer = threading.Timer(0.1, holder.go_on.set)
    timer.start()
    assert in_child(lambda: not holder.thread.is_alive() and is_free(LOCK))
    assert holder.go_on.is_set() and is_free(LOCK)
    holder.end()


def test_the_thread_that_has_the_lock_may_fork() -> None:
    with LOCK:
        assert in_child(lambda: not is_free(LOCK) and LOCK.release() is None and is_free(LOCK))
    assert is_free(LOCK)


@pytest.mark.parametrize("lock", [driver._lock, machine_code._lock, machine_code._llvm._lock])
def test_locks_of_the_compiler_are_held_over_forks(lock: Any) -> None:
    holder = Holder(lock.acquire, lock.release)
    timer = threading.Timer(0.1, holder.go_on.set)
    timer.start()
    assert in_child(lambda: is_free(lock))
    holder.end()


def taken(turn: Turn) -> bool:
    """Whether somebody has it."""
    ticket = Ticket()
    try:
        return not turn.take(ticket)
    finally:
        ticket.over = True


def holding(turn: Turn) -> Holder:
    """A thread that has its turn."""
    tickets: list[Ticket] = []

    def enter() -> None:
        tickets.append(Ticket())
        assert turn.take(tickets[0])

    def leave() -> None:
        tickets[0].over = True

    return Holder(enter, leave)


def test_one_thread_at_a_time_has_its_turn_and_nobody_waits() -> None:
    holder = holding(TURN)
    assert taken(TURN)
    holder.end()
    assert not taken(TURN)
    mine = Ticket()
    assert TURN.take(mine) and taken(TURN)
    mine.over = True
    assert not taken(TURN)


def test_who_has_died_has_his_turn_no_more() -> None:
    mine = Ticket()
    assert TURN.take(mine)
    del mine
    assert not taken(TURN)


def test_in_a_child_nobody_has_the_turn_of_a_thread_that_is_not_there() -> None:
    holder = holding(TURN)
    assert in_child(lambda: not taken(TURN))
    holder.end()


def test_the_thread_that_forks_keeps_its_turn() -> None:
    mine = Ticket()
    assert TURN.take(mine)

    def check() -> bool:
        before = taken(TURN)
        mine.over = True
        return before and not taken(TURN)

    assert in_child(check) and taken(TURN)
    mine.over = True


def test_a_child_records_although_a_thread_of_its_parent_was_recording() -> None:
    reached, go_on = threading.Event(), threading.Event()

    def slow(x: Any) -> Any:
        reached.set()
        go_on.wait()
        return x + 1

    thread = threading.Thread(target=tj.compile(slow), args=(tj.ones(2),))
    thread.start()
    reached.wait()

    def records() -> bool:
        f = tj.compile(lambda x: x * 3 - 1)
        return [f(tj.ones(2)).tolist() for _ in range(3)] == [[2.0, 2.0]] * 3 and f.stats.compiled_calls == 2

    try:
        assert in_child(records)
    finally:
        go_on.set()
        thread.join()


def test_a_child_does_not_count_what_other_threads_have_pushed() -> None:
    stack: list[Any] = []

    def enter() -> None:
        stack.append(pushed(Interpreter()))
        stack[0].__enter__()

    holder = Holder(enter, lambda: stack[0].__exit__(None, None, None))
    try:
        assert pushed_anywhere[0] == 1 and in_child(lambda: pushed_anywhere[0] == 0)
    finally:
        holder.end()
    assert pushed_anywhere[0] == 0


FORKING = """
import os, threading, time
from tracejit.llvm.driver import _lock
import logging

taken = threading.Event()
def work():
    with _lock:
        taken.set()
        time.sleep(0.3)
        logging.getLogger("a name that is new")
thread = threading.Thread(target=work)
thread.start()
taken.wait()
child = os.fork()
if child == 0:
    os._exit(0)
thread.join()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_who_holds_a_lock_over_a_fork_may_log() -> None:
    said = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=30)
    assert (said.returncode, said.stdout) == (0, "0\n"), said.stderr
