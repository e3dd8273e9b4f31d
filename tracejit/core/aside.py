"""Work that nothing may interrupt: done in a thread of its own, while the thread that wants it waits.

In the main thread CPython runs signal handlers between any two instructions, and what they raise is raised there.  In the middle of
compiling that would leave objects of other libraries half made, and a handler's exception could not be told from one of the work.  So
such work runs in a thread that has no handlers, and `aside` waits for it; what interrupts the waiting is raised by `aside`, what the
work raised is in its answer.  Work that was given up goes on to its end, and nobody learns of it; a process that ends waits for it.

While somebody waits nothing is collected (core/collection.py), so that finalizers do not run in a thread that the program does not
know.  The thread is unknown to `threading`: no hooks for tracing or profiling are set in it.  It ends with the work, so a process that is
about to fork has no more threads than the program made.

Work inside such work, and where no thread can be started (a process that ends), is done at once.  It must not know what the work is.
"""

from __future__ import annotations

import _thread
import atexit
import os
import threading
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from tracejit.core.collection import held_back
from tracejit.core.interrupts import covers_its_entry, is_foreign

__all__ = ["Answer", "aside", "done_aside"]

T = TypeVar("T")
_ROUND: Final = 0.1  # seconds between two looks for what does not wake a thread that waits: exceptions that other threads send
_STACK: Final = 8 << 20  # bytes at least: as much as a main thread has


class Answer(Generic[T]):
    """What came of some work: `value`, or `error`."""

    __slots__ = ("error", "value")

    value: T

    def __init__(self, action: Callable[[], T]) -> None:
        self.error: BaseException | None = None
        try:
            self.value = action()
        except BaseException as error:  # its traceback begins further in: it must not lead to what it is part of
            self.error = error.with_traceback(None if error.__traceback__ is None else error.__traceback__.tb_next)


class _Work(Generic[T]):
    """Something that a thread does.  Once it is finished the thread has nothing of it any more."""

    __slots__ = ("_action", "_awakened", "answer", "finished")

    def __init__(self, action: Callable[[], T]) -> None:
        self._action: Callable[[], T] | None = action
        self._awakened = _thread.allocate_lock()
        self._awakened.acquire()
        self.answer: Answer[T] | BaseException | None = None
        self.finished = False

    @covers_its_entry
    def run(self) -> None:
        """The thread's whole life."""
        try:
            _place.inside = True
            _running.add(self)
            action, self._action = self._action, None
            assert action is not None
            self.answer = Answer(action)
            del action
        except BaseException as error:  # CPython may take a thread that begins for the one that has started it
            self.answer = error
        finally:
            self.finished = True
            self._awakened.release()
            _running.discard(self)

    def wait(self) -> bool:
        """Whether it is finished, in a while at the latest.  Signal handlers run meanwhile."""
        if not self.finished:
            self._awakened.acquire(timeout=_ROUND)
        return self.finished


class _Place(threading.local):
    """Whether a thread does work that others wait for."""

    inside = False


_place = _Place()
_running: set[_Work[Any]] = set()
_forks = [0]


def _start(work: _Work[Any]) -> bool:
    """Whether a thread does it now."""
    size = _thread.stack_size()
    try:
        _thread.stack_size(max(size, _STACK))
        _thread.start_new_thread(work.run, ())
    except RuntimeError as error:
        if is_foreign(error):
            raise
        return False  # the system has no more threads, or the process is about to end
    finally:
        _thread.stack_size(size)
    return True


def aside(action: Callable[[], T]) -> Answer[T]:
    """Have `action` done, and wait for it.  Raises what interrupts the waiting, never what the action raised: that is in the answer."""
    if _place.inside:
        return Answer(action)
    forks = _forks[0]
    with held_back() as hold:
        hold.begin()
        work = _Work(action)
        if not _start(work):
            return Answer(action)
        while not work.wait():
            if forks != _forks[0]:  # a signal handler has forked, and this is the child: it has no other threads
                return Answer(action)
    answer, work.answer = work.answer, None
    if not isinstance(answer, Answer):
        assert answer is not None
        raise answer
    return answer


def done_aside(action: Callable[[], T]) -> T:
    """The value of `action`, done aside.  Raises what it raised, too."""
    answer = aside(action)
    error, answer.error = answer.error, None
    if error is not None:
        try:
            raise error
        finally:
            del error  # a traceback that leads to itself
    return answer.value


def _forked() -> None:
    _forks[0] += 1
    _place.inside = False
    _running.clear()


def _finish() -> None:
    """Code that other libraries run when the process is gone must not meet work that was given up."""
    for work in list(_running):
        while not work.wait():
            continue


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
atexit.register(_finish)
