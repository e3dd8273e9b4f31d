"""Work that nothing may interrupt: done in a thread of its own, while the thread that wants it waits.

In the main thread CPython runs signal handlers between any two instructions, and what they raise is raised there.  In the middle of
compiling that would leave objects of other libraries half made, and a handler's exception could not be told from one of the work.  So
such work runs in a thread that has no handlers, and `run_uninterrupted` waits for it; what interrupts the waiting is raised by
`run_uninterrupted`, what the work raised is in its answer.  Work that was given up goes on to its end, and nobody learns of it.

A process that ends drops what still goes on: none of it may run on when other libraries have begun to tear themselves down.  Work may come
to its end within `_GRACE`; then its thread meets SystemExit, in its Python code wherever it is (PyThreadState_SetAsyncExc), and between
two stretches of machine code where it asks (`leave_where_the_process_ends`).  The process waits until it has.

`start_work` waits for a time, and what takes longer goes on in the background.  While something does, what is begun waits for its turn
there and nobody waits for it: a call that leads to many works is held up by one of them.  It has the priority of the program: where that
was lower, programs beside other busy processes came twice to three times as late, and calls took as long meanwhile.  Of works
for which several threads have waited one at a time goes on from there, in the order in which they came to the background.  While many wait
for their turn nobody should add to them (`is_crowded`).  When the process ends none begins.  A forked child has not got
the threads: what was in the background is lost there.

While somebody waits nothing is collected (core/garbage_collection.py), so that finalizers do not run in a thread that the program does not
know; in the background they may.  The thread is unknown to `threading`: no hooks for tracing or profiling are set in it.  It ends with
the work, so a process that is about to fork has no more threads than the program made, but for the background.

Work has room for its calls, whatever recursion limit the program has set (core/recursion.py).

Work inside such work, and where no thread can be started (a process that ends), is done at once.  It must not know what the work is.
"""

from __future__ import annotations

import _thread
import atexit
import math
import os
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from tracejit.core.garbage_collection import collection_paused
from tracejit.core.interrupts import covers_its_entry, is_foreign, raise_in_thread
from tracejit.core.recursion import room

__all__ = [
    "Outcome",
    "Work",
    "begin_next",
    "is_crowded",
    "leave_where_the_process_ends",
    "run_uninterrupted",
    "start_work",
    "uninterrupted_result",
]

T = TypeVar("T")
_ROUND: Final = 0.1  # seconds between two looks for what does not wake a thread that waits: exceptions that other threads send
_MOST_BEHIND: Final = 32  # works that wait for their turn
_GRACE = 0.1  # seconds in which a work may come to its end when the process does
_SOON: Final = 1e-3  # seconds until a thread begins
_FRAMES: Final = 900  # that work may have, whatever the program has set: about what there are by default
_STACK: Final = 8 << 20  # bytes at least: as much as a main thread has


class Outcome(Generic[T]):
    """What came of some work: `value`, or `error`."""

    __slots__ = ("error", "value")

    value: T

    def __init__(self, action: Callable[[], T]) -> None:
        self.error: BaseException | None = None
        try:
            self.value = action()
        except BaseException as error:  # its traceback begins further in: it must not lead to what it is part of
            self.error = error.with_traceback(None if error.__traceback__ is None else error.__traceback__.tb_next)

    def result(self) -> T:
        """The value.  Raises the error, if there is one."""
        error = self.error
        if error is not None:
            try:
                raise error
            finally:
                del error, self  # a traceback that leads to itself
        return self.value


class Work(Generic[T]):
    """Something that a thread does.  Once it is finished the thread has nothing of it any more."""

    __slots__ = (
        "_action", "_awakened", "_depth", "_forks", "_lock", "_thread", "answer", "behind", "finished", "waiting", "when_lost",
    )  # fmt: skip

    def __init__(self, action: Callable[[], T], when_lost: Callable[[], None] | None = None) -> None:
        self._action: Callable[[], T] | None = action
        self.when_lost = when_lost  # called in a forked child
        self._awakened = _thread.allocate_lock()
        self._awakened.acquire()
        self._lock = _thread.allocate_lock()  # of what is known of its thread
        self._thread: int | None = None
        self._depth = 0  # of the work inside work that it has got to
        self._forks = _forks[0]
        self.answer: Outcome[T] | BaseException | None = None
        self.behind = False  # whether it is in the background
        self.finished = False
        self.waiting: int | None = None  # the thread that has it begun, while it waits

    def do(self) -> _thread.LockType | None:
        """What a thread has begun for; of several one does it, and tells those who wait by what it gets."""
        action, self._action = self._action, None
        if action is None:
            return None
        _current.work = self
        _running.add(self)
        self._thread = threading.get_ident()
        with room(_FRAMES):
            self.answer = Outcome(action)
            del action
        _current.work = None
        return self.close()

    def close(self) -> _thread.LockType | None:
        """It is finished; and what to release when the thread has nothing of it any more, if nobody else does."""
        with self._lock:  # whoever has a thread meet something has one that is alive
            if self.finished:
                return None
            self.finished, self.when_lost = True, None
        if self in _behind:
            _behind.remove(self)
            begin_next()
        _running.discard(self)
        return self._awakened

    def do_in_this_thread(self, action: Callable[[], T]) -> None:
        """No other thread does it."""
        self.answer, self._action, self.finished = Outcome(action), None, True
        self._awakened.release()

    @property
    def is_lost(self) -> bool:
        """Whether this is a child of the process in which its thread was."""
        return not self.finished and self._forks != _forks[0]

    def wait(self, seconds: float = _ROUND) -> bool:
        """Whether it is finished, in a while at the latest.  Signal handlers run meanwhile."""
        if self.behind:
            begin_next()
        if not self._awakened.acquire(timeout=max(0.0, min(seconds, _ROUND))):
            return self.finished and self._forks != _forks[0]  # the thread was about to say so
        self._awakened.release()  # others may wait, too
        return True

    def wait_until(self, deadline: float) -> bool:
        """Whether it is over, at that time of `time.monotonic` at the latest: finished, or lost."""
        while not self.wait(deadline - time.monotonic()) and not self.is_lost:
            if time.monotonic() >= deadline:
                return False
        return True

    def outcome(self) -> Outcome[T]:
        """What came of it, once it is finished.  Raises what the thread met that is not the work's."""
        assert self.answer is not None
        if not isinstance(self.answer, Outcome):
            raise self.answer
        return self.answer

    def begin(self) -> bool:
        """Have a thread do it: whether one does.  A process that ends knows of works whose threads have begun."""
        if not _start(self):
            return False
        while self._thread is None and not self.finished and not self.is_lost:
            if self._awakened.acquire(timeout=_SOON):
                self._awakened.release()
        return True

    @property
    def has_begun(self) -> bool:
        """Whether a thread does it, or has."""
        return self._action is None

    def abandon(self) -> None:
        """Nobody waits for it any more."""
        with self._lock:
            self.waiting = None
            if not self.finished and not self.behind:
                _behind.append(self)
                self.behind = True

    def enter_inner_work(self) -> None:
        """Its thread is about to do work inside it: in the background, when its turn has come."""
        self._depth += 1
        while self.behind and self._depth == 1:  # deeper inside it may hold locks that others want before their turn is over
            if _ending[0]:
                raise SystemExit
            ahead = next((other for other in list(_behind) if not other.finished), self)
            if ahead is self:
                return
            ahead.wait()

    def interrupt_thread(self) -> None:
        """Its thread, if it is still at it, meets SystemExit when it executes Python code next."""
        with self._lock:  # so it has not come to its end, and the thread is no other work's
            if not self.finished and self._thread is not None:
                raise_in_thread(self._thread, SystemExit)

    def exit_inner_work(self) -> None:
        """The work inside it is done."""
        self._depth -= 1


class _CurrentWork(threading.local):
    """The work that a thread does for others."""

    work: Work[Any] | None = None


_current = _CurrentWork()
_running: set[Work[Any]] = set()
_behind: list[Work[Any]] = []  # in the background, in the order of their turns
_forks = [0]
_ending = [False]


@covers_its_entry
def _live(given: list[Work[Any]]) -> None:
    """The whole life of a thread, which takes from the list what it does: CPython keeps the list until the thread is gone."""
    try:
        awakened = given[0].do()
    except BaseException as error:  # CPython may take a thread that begins for the one that has started it
        given[0].answer = error
        awakened = given[0].close()
    given.clear()
    if awakened is not None:
        awakened.release()


def _start(work: Work[Any]) -> bool:
    """Whether a thread does it now."""
    size = _thread.stack_size()
    try:
        _thread.stack_size(max(size, _STACK))
        _thread.start_new_thread(_live, ([work],))
    except RuntimeError as error:
        if is_foreign(error):
            raise
        return False  # the system has no more threads, or the process is about to end
    finally:
        _thread.stack_size(size)
    return True


def begin_next() -> None:
    """What has waited longest for its turn in the background begins, if it has not; others that have begun wait for it inside their work.
    It is asked again where there was no thread."""
    ahead = next((work for work in list(_behind) if not work.finished), None)
    if ahead is not None and not _ending[0] and not ahead.has_begun:
        ahead.begin()


def leave_where_the_process_ends() -> None:
    """Between two stretches of work that nothing interrupts.  Raises SystemExit in a thread that does work, when the process ends."""
    if _ending[0] and _current.work is not None:
        raise SystemExit


def is_crowded() -> bool:
    """Whether so much waits in the background that nobody should add to it."""
    return len(_behind) >= _MOST_BEHIND


def start_work(action: Callable[[], T], seconds: float, when_lost: Callable[[], None] | None = None) -> Work[T]:
    """Have `action` done, and wait so long for it: the work, finished or in the background.  Raises what interrupts the waiting, never what
    the action raised: that is in the answer.  when_lost: called in a forked child that has not got its thread, unless
    it goes on waiting there: then it does the work."""
    work = Work(action, when_lost)
    if (outer := _current.work) is not None:
        outer.enter_inner_work()
        try:
            work.do_in_this_thread(action)
        finally:
            outer.exit_inner_work()
        return work
    if _behind and seconds < math.inf:
        work.behind = True
        _behind.append(work)
        begin_next()
        return work
    deadline = time.monotonic() + seconds
    work.waiting = threading.get_ident()
    with collection_paused() as hold:
        hold.begin()
        if not work.begin():
            work.do_in_this_thread(action)
        elif not work.wait_until(deadline):
            work.abandon()
        elif work.is_lost:  # a signal handler has forked, and this is the child: it has no other threads
            work = Work(action)
            work.do_in_this_thread(action)
    return work


def run_uninterrupted(action: Callable[[], T]) -> Outcome[T]:
    """Have `action` done, and wait for it.  Raises what interrupts the waiting, never what the action raised: that is in the answer."""
    return start_work(action, math.inf).outcome()


def uninterrupted_result(action: Callable[[], T]) -> T:
    """The value of `action`, done aside.  Raises what it raised, too."""
    return run_uninterrupted(action).result()


def _forked() -> None:
    _forks[0] += 1
    _current.work = None
    known = dict.fromkeys([*_behind, *_running])
    _running.clear()
    _behind.clear()
    lost = [work for work in known if not work.finished and work.waiting != threading.get_ident()]
    for work in lost:
        if work.when_lost is not None:
            work.when_lost()


def _finish() -> None:
    """Code that other libraries run when the process is gone must not meet work that was given up."""
    _ending[0] = True
    deadline = time.monotonic() + _GRACE
    for work in list(_running):
        work.wait_until(deadline)
    for work in list(_running):
        work.interrupt_thread()
    for work in list(_running):
        while not work.wait() and not work.finished:
            work.interrupt_thread()  # it may have met it where Python takes no notice, as in a finalizer


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
atexit.register(_finish)
