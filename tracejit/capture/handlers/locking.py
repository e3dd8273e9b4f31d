"""Locks from outside that the function acquires and releases: `with lock: total += loss.item()`.

An entry acquires a lock where the function does, between the guards before it and those after it.  It releases the lock in the
order of the effects, or earlier if it does not serve the call or something is raised.  So the lock is held from the function's
reads to its stores, as in the function, only longer.  A lock acquired after one was released stops the recording: the entry would
hold both at once, which the function never does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracejit.capture.defects import isolated_context
from tracejit.capture.handlers.base import CallHandler, Handlers
from tracejit.capture.handlers.effects import EpilogueExpressions, FunctionCall
from tracejit.capture.policies import LOCKS, bound_to, is_a
from tracejit.capture.recording.journal import Variable
from tracejit.replay.ir import And, Evaluate, Name, Statement

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder

__all__ = ["LockHandlers", "release"]

_ACQUIRING = frozenset({"acquire", "__enter__"})
_RELEASING = frozenset({"release", "__exit__"})


def release(held: list[Any], lock: Any) -> None:
    """Release one of the locks that an entry holds."""
    held.remove(lock)
    lock.release()


@dataclass(slots=True)
class Release:
    """The effect of releasing a lock."""

    lock: Any
    value: Any = None

    def statement(self, values: EpilogueExpressions) -> Statement:
        return Evaluate(Name("release").call(Name("held"), values.source(self.lock)))


class LockHandlers(Handlers):
    """Acquires and releases locks.  acquired: the locks that the entry acquires, each as often as it does."""

    _has_released = Variable(False)

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        journal = recorder.journal
        self.acquired: list[Any] = journal.list()

    def standard_call(self, function: Any) -> CallHandler | None:
        """The handler of a method that acquires or releases a lock; else None."""
        if is_a(bound_to(function), LOCKS) and function.__name__ in (*_ACQUIRING, *_RELEASING):
            return self._call_method
        return None

    def _call_method(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A call of a bound method of a lock."""
        lock, name = bound_to(function), function.__name__
        if name in _ACQUIRING and (arguments or keywords):
            self.recorder.stop("impure_call", f"{name}() of a lock, with arguments,")
        if self.recorder.stopped or not self._may_record(lock):
            return self.recorder.run(function, arguments, keywords)
        return self.take(lock) if name in _ACQUIRING else self.give_back(lock)

    def _may_record(self, lock: Any) -> bool:
        """Whether a use of `lock` can be recorded.  The recording stops for a lock that is not from outside."""
        recorder = self.recorder
        if not recorder.is_outside(lock):
            recorder.stop("impure_call", "a lock that the call has made")
        return not recorder.stopped

    def take(self, lock: Any) -> bool:
        """lock.acquire(), which may wait.  Values read before it are guarded again after it."""
        recorder = self.recorder
        if self._has_released:
            recorder.stop("impure_call", "a lock, taken after one has been given back,")
        if recorder.effects.content_guarded or recorder.contents.ends:
            recorder.stop("impure_call", "a lock, taken after the content of a container from outside was read,")
        if any(type(effect) is FunctionCall for effect in recorder.effects.in_order):
            recorder.stop("impure_call", "a lock, taken after a call that is made when the program has run,")
        result: bool = recorder.perform(lock.acquire)
        if not recorder.stopped:
            self.acquired.append(lock)
            source = recorder.sources[id(lock)]
            recorder.prologue.append(Evaluate(Name("held").method("append", And((source.method("acquire"), source)))))
            recorder.read_again()
        return result

    def give_back(self, lock: Any) -> None:
        """lock.release(), of a lock that the call has acquired."""
        recorder = self.recorder
        if sum(held is lock for held in self.acquired) <= sum(
            type(effect) is Release and effect.lock is lock for effect in recorder.effects.in_order
        ):
            recorder.stop("impure_call", "a lock, given back that was taken outside,")
        recorder.perform(lock.release)
        self._has_released = True
        recorder.effects.note_call(Release(lock), "Lock.release")

    def entered(self, manager: Any) -> Any:
        """The context manager to enter in place of a lock; None for other objects."""
        if is_a(manager, LOCKS) and self._may_record(manager):
            return _EnteredLock(self.recorder, manager)
        return None

    def check_locks(self) -> None:
        """Stop the recording unless it releases each lock that it acquires."""
        if len(self.acquired) != sum(type(effect) is Release for effect in self.recorder.effects.in_order):
            self.recorder.stop("impure_call", "a lock that is held when the call is over")


@isolated_context
class _EnteredLock:
    """Acquires and releases a lock for a `with` statement."""

    __slots__ = ("_lock", "_recorder")

    def __init__(self, recorder: Recorder, lock: Any) -> None:
        self._recorder = recorder
        self._lock = lock

    @property
    def manager(self) -> Any:
        return self._lock

    def __enter__(self) -> bool:
        recorder = self._recorder
        return bool(self._lock.acquire()) if recorder.stopped else recorder.locking.take(self._lock)

    def __exit__(self, *exception: Any) -> None:
        recorder = self._recorder
        recorder.note_caught(exception[1])
        if recorder.stopped:
            self._lock.release()
        else:
            recorder.locking.give_back(self._lock)
