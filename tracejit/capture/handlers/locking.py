"""Locks from outside that the program takes and gives back: `with lock: total += loss.item()`.

An entry takes a lock where the program does, between the guards before and those after it, and gives it back in the order of the
effects; or as soon as it does not serve the call, or something is raised.  Between the program's reads and its stores nobody else comes,
as in the program; it is only held longer.  So a lock that is taken when another one, or the same, has been given back already is no part
of a recording: the entry would hold both at once, which the program never does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracejit.capture.defects import guarded_context
from tracejit.capture.handlers.base import Handler, Handlers
from tracejit.capture.handlers.effects import EpilogueExpressions, FunctionCall
from tracejit.capture.policies import LOCKS, bound_to, is_a
from tracejit.capture.recording.journal import Variable
from tracejit.replay.ir import And, Evaluate, Name, Statement

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder

__all__ = ["LockHandlers", "release"]

_TAKING = frozenset({"acquire", "__enter__"})
_GIVING = frozenset({"release", "__exit__"})


def release(held: list[Any], lock: Any) -> None:
    """Give back one of the locks that an entry holds."""
    held.remove(lock)
    lock.release()


@dataclass(slots=True)
class Release:
    """A lock is given back."""

    lock: Any
    value: Any = None

    def statement(self, values: EpilogueExpressions) -> Statement:
        return Evaluate(Name("release").call(Name("held"), values.source(self.lock)))


class LockHandlers(Handlers):
    """What becomes of locks."""

    _given_back = Variable(False)

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        journal = recorder.journal
        self.taken: list[Any] = journal.list()  # locks that the entry takes, once for each time

    def standard_call(self, function: Any) -> Handler | None:
        """The handler of a method of a lock."""
        if is_a(bound_to(function), LOCKS) and function.__name__ in (*_TAKING, *_GIVING):
            return self._of_lock
        return None

    def _of_lock(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A method of a lock."""
        lock, name = bound_to(function), function.__name__
        if name in _TAKING and (arguments or keywords):
            self.recorder.stop("impure_call", f"{name}() of a lock, with arguments,")
        if self.recorder.stopped or not self._is_known_lock(lock):
            return self.recorder.run(function, arguments, keywords)
        return self.take(lock) if name in _TAKING else self.give_back(lock)

    def _is_known_lock(self, lock: Any) -> bool:
        recorder = self.recorder
        if not recorder.is_outside(lock):
            recorder.stop("impure_call", "a lock that the call has made")
        return not recorder.stopped

    def take(self, lock: Any) -> bool:
        """lock.acquire(), which may wait."""
        recorder = self.recorder
        if self._given_back:
            recorder.stop("impure_call", "a lock, taken after one has been given back,")
        if recorder.effects.content_known or recorder.contents.ends:
            recorder.stop("impure_call", "a lock, taken after the content of a container from outside was read,")
        if any(type(effect) is FunctionCall for effect in recorder.effects.in_order):
            recorder.stop("impure_call", "a lock, taken after a call that is made when the program has run,")
        taken: bool = recorder.perform(lock.acquire)
        if not recorder.stopped:
            self.taken.append(lock)
            source = recorder.sources[id(lock)]
            recorder.prologue.append(Evaluate(Name("held").method("append", And((source.method("acquire"), source)))))
            recorder.read_again()
        return taken

    def give_back(self, lock: Any) -> None:
        """lock.release(), which raises where it is not taken."""
        recorder = self.recorder
        if sum(held is lock for held in self.taken) <= sum(
            type(effect) is Release and effect.lock is lock for effect in recorder.effects.in_order
        ):
            recorder.stop("impure_call", "a lock, given back that was taken outside,")
        recorder.perform(lock.release)
        self._given_back = True
        recorder.effects.note_call(Release(lock), "Lock.release")

    def entered(self, manager: Any) -> Any:
        """What enters and leaves a lock that is known; None for others."""
        if is_a(manager, LOCKS) and self._is_known_lock(manager):
            return _EnteredLock(self.recorder, manager)
        return None

    def check_locks(self) -> None:
        """What the entry takes it has to give back."""
        if len(self.taken) != sum(type(effect) is Release for effect in self.recorder.effects.in_order):
            self.recorder.stop("impure_call", "a lock that is held when the call is over")


@guarded_context
class _EnteredLock:
    """A with statement about a lock."""

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
        recorder.caught(exception[1])
        if recorder.stopped:
            self._lock.release()
        else:
            recorder.locking.give_back(self._lock)
