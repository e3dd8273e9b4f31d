"""The accounts of a compiled function: what its paths gain, what trying and recording them costs, and the waits that follow from
that.

Gains and costs are counts, never seconds, so that it does not depend on luck which calls are compiled.  The unit is half of the
time that eager mode needs at least to call one operation, 0.7 us.  Trying a path in vain costs about as much, and so does
getting as far as that.

* Paths.  A call that a path serves gains two units for each recorded operation, and one for every 4,096 elements that only
  eager mode processes: it processes the elements of each operation, a program those of fused operations once (recorded_path.py).
  A call that the first path does not serve costs one for itself, one for each path tried in vain (two if its entry is Python), for a
  program that was left by an exit, as much as the elements that it processes, and, if no path serves it, 4 more, or 16 where paths are
  looked up by sizes.  Recorded calls are not counted.
* Windows.  A *window* is `WINDOW` calls that the first path did not serve.  The loss of a window is a debt, which later windows
  may pay back.  If a function with a debt has as many paths as it may have, it drops those that served nothing (after one loss,
  the next time after two ...).  It records the next path when the last one has served a call.  If the debt remains, the function
  rests for `FIRST_WAIT` calls, then for four times as many, and so on, until there were as many windows in a row without debt as
  losses.
* Recordings.  After `config.max_failures` failed recordings in a row the next one comes `FIRST_WAIT` calls later, then twice as
  many.  After `_ERRORS` recordings in a row that ended in an error it comes 8 calls later, then twice as many.  A function
  without paths rests meanwhile.
* What recordings owe.  A recording and its program take as long as 80 eager calls or more: some 0.3 ms for each operation, and
  for `_FIXED` more.  The unit here is one operation.  A recording owes `_FIXED` and its operations, at most `_MOST`.  A call that its
  path serves pays an eighth of `_FIXED` and half of the operations, so paths that come back have soon paid.  Besides, calls that any
  paths serve pay the oldest debts: 8 calls, and one for every 8 operations.  An instance of another recording owes an eighth, which
  one call pays.  If `_LIMIT` is owed (by 16 small recordings, or 4 large ones), the next recording comes `FIRST_WAIT` calls later,
  then twice as many, or as soon as less is owed.  If `_WASTEFUL` recordings owe half of it, or fewer more than all of it, the
  function runs in pieces if it can (pieces.py).  `_LIMIT` is owed at once if a recording shows that later calls take other paths,
  and the function cannot run in pieces (`discourage`).
* Pieces.  A call of a piece (pieces.py) is short, so recordings that serve none weigh more.  After `_VAIN` recordings of a piece in
  a row between which no path has served a call, the next one comes `_VAIN_WAIT` calls later, then twice as many.
  To call a piece costs about as much as one operation, which is `_CALL_OF_PIECE`.  A piece whose calls gain less rests for
  `FIRST_WAIT` calls, then for four times as many, and so on.
* Room.  If there is no room for another path, unused paths are searched for after a number of calls (`is_search_early`), which
  doubles whenever some were dropped; sooner for a path for other sizes that pays with one call.
* Code.  Functions that are created and compiled for each call (a lambda in a loop) are treated as one: if functions of the same
  code object in a row that have served no call owe `_FRUITLESS`, which are 32 small ones, the next one is recorded only when it
  has been called `FIRST_WAIT` times.

A call of a resting function goes from machine code to the function itself (cpython/dispatcher.py), which decrements
`resting_calls`; so this also counts such calls.  The accounts must not know what a path does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from types import CodeType, FunctionType, MethodType
from typing import Any, Final, NamedTuple

from tracejit.compiled.recorded_path import FIRST_WAIT, RecordedPath
from tracejit.config import config
from tracejit.core.weak_table import WeakTable

__all__ = ["WINDOW", "Accounts", "forget_code"]

WINDOW: Final = 64
_ERRORS: Final = 8
_WASTEFUL: Final = 8
_FIXED: Final = 256  # operations; some 0.07 s
_MOST: Final = 1024
_LIMIT: Final = 4096
_MUCH: Final = 1536
_FRUITLESS: Final = 8192
_VAIN: Final = 4
_VAIN_WAIT: Final = 16
_MOST_DOUBLINGS: Final = 20
_CALL_OF_PIECE: Final = 2
_CALLS_TO_REVIEW: Final = 16


class _Debt(NamedTuple):
    """What a recording owes.  counter: of its path, first the served calls.  cost: what it owed at first.  pay: of a call that its
    path serves.  calls: how many that any paths serve pay all of it."""

    counter: list[int]
    cost: int
    pay: int
    calls: int

    @property
    def owed(self) -> int:
        """What it owes now."""
        return max(0, self.cost - self.pay * self.counter[0])


class Accounts:
    """The accounts of one compiled function.  Threads may lose each other's increments, and nothing else."""

    __slots__ = (
        "_calls_for_room", "_calls_to_earn", "_calls_to_wait", "_code", "_cost", "_debt", "_debts", "_drops", "_errors", "_failures",
        "_gained", "_granted", "_has_checked_code", "_has_recorded", "_in_debt", "_losses", "_on_trial",
        "_paying_calls_for_room", "_retired_gain", "_reviewed", "_search_factor", "_served", "_served_before", "_useless_reviews",
        "_vain", "_window_calls", "_windows_without_debt", "is_piece", "resting_calls", "waited_calls", "window",
    )  # fmt: skip

    def __init__(self, function: Any, is_piece: bool = False) -> None:
        self._code, self.is_piece = _code(function), is_piece
        self._has_checked_code = False
        self._has_recorded = False
        self.resting_calls = ctypes.c_int64(0)
        """Number of calls that still go to the function directly; machine code decrements it."""
        self._granted = 0
        self.clear()

    def clear(self) -> None:
        """Reset to the state before the first call."""
        self.resting_calls.value = self._granted = 0
        self._window_calls = self._cost = 0  # of the current window
        self._gained = self._retired_gain = 0  # total gain: when the window began; of dropped paths
        self._debt = 0  # the losses of earlier windows that later ones have not paid back
        self._reviewed = 0, 0  # calls that paths of a piece have served, and their gain, at the last review
        self._useless_reviews = 0  # reviews in a row after which it has rested
        self._losses = self._windows_without_debt = 0  # windows that ended with a debt; windows in a row since then without one
        self._drops = 0  # how often paths were dropped after a loss
        self.window = (
            WINDOW  # calls of a window: WINDOW, or the number of paths if that is more, since closing it reads all of them
        )
        self._in_debt = False  # whether the last window ended with a debt
        self._on_trial: RecordedPath | None = None  # the last path that was recorded with a debt
        self._failures = self._errors = 0  # recordings in a row that failed; that ended in an error
        self._debts: list[_Debt] = []  # of recordings, the oldest first
        self._served = 0  # served calls that have paid old debts, or found none
        self._served_before = 0  # calls that paths had served at the last recording
        self._vain = 0  # recordings in a row between which none has served a call
        self._calls_to_wait = 0  # unserved calls before the next recording
        self._calls_to_earn = 0  # the same, while too much is owed
        self.waited_calls = 0
        """Unserved calls since the last path that were too early to be recorded."""
        self._calls_for_room = 0  # calls since the last search for unused paths that could not be recorded for lack of room
        self._paying_calls_for_room = 0  # those among them whose paths would have paid with one call
        self._search_factor = 1  # factor of the number of calls before a search; doubled when paths were dropped

    # -- calls that rest
    @property
    def direct_calls(self) -> int:
        """Number of calls so far that went to the function directly."""
        return self._granted - self.resting_calls.value

    @property
    def is_resting(self) -> bool:
        """Whether the next call goes to the function directly."""
        return self.resting_calls.value > 0

    def rest(self, calls: int) -> None:
        """Let the next `calls` calls go to the function directly."""
        self._granted += calls - self.resting_calls.value
        self.resting_calls.value = calls

    def take_resting_call(self) -> bool:
        """Count a call that machine code has not counted; returns whether it goes to the function directly."""
        if self.resting_calls.value <= 0:
            return False
        self.resting_calls.value -= 1
        return True

    # -- paths
    def charge(self, cost: int, calls: int = 1) -> bool:
        """Charge for calls that the first path did not serve.  cost: of the paths that each of them has tried in vain.
        Returns whether the window is over."""
        self._window_calls += calls
        self._cost += calls * (cost + 1)
        return self._window_calls >= self.window

    def close_window(self, paths: Iterable[RecordedPath]) -> bool:
        """End the window and begin the next one.  Returns whether there is a debt."""
        total = self._retired_gain + sum([path.gain for path in paths])
        self._debt = max(0, self._debt + self._cost - (total - self._gained))
        self._window_calls = self._cost = 0
        self._gained = total
        self._on_trial = None
        self._in_debt = self._debt > 0
        if self._debt:
            self._losses += 1
            self._windows_without_debt = 0
        else:
            self._windows_without_debt += 1
            if self._windows_without_debt >= self._losses:
                self._losses = 0
        return self._debt > 0

    def may_drop(self) -> bool:
        """Whether paths may be dropped after a loss to record others: each time needs one more loss, since recording has its
        price."""
        return self._losses > self._drops

    def note_drop(self) -> None:
        """Note that paths were dropped after a loss.  The next ones begin without debt."""
        self._drops += 1
        self._debt = 0
        self.note_search(True)

    def retire(self, path: RecordedPath) -> None:
        """Note that a path is dropped; its gain still counts."""
        self._retired_gain += path.gain

    def rest_after_loss(self) -> int:
        """The number of calls for which the function has to rest after a loss, which settle the debt."""
        if self._losses < 2:
            return 0
        self._debt = 0
        return FIRST_WAIT << min(2 * (self._losses - 2), _MOST_DOUBLINGS)

    def review_piece(self, paths: Sequence[RecordedPath]) -> int:
        """The number of calls for which a piece has to rest, since calling it has cost more than its paths have gained since the last
        review."""
        calls = sum([path.uses for path in paths]) - self._reviewed[0]
        if 0 <= calls < _CALLS_TO_REVIEW:
            return 0
        gain = sum([path.gain for path in paths]) - self._reviewed[1]
        self._reviewed = self._reviewed[0] + calls, self._reviewed[1] + gain
        is_useless = 0 <= gain < _CALL_OF_PIECE * calls  # counts are less than before if paths were dropped
        self._useless_reviews = self._useless_reviews + 1 if is_useless else 0
        return FIRST_WAIT << min(2 * (self._useless_reviews - 1), _MOST_DOUBLINGS) if is_useless else 0

    # -- recordings
    def wait_for_code(self) -> int:
        """The number of calls for which the first recording has to wait, since paths of other functions with the same code served
        none.  Further calls give 0."""
        if self._has_checked_code:
            return 0
        self._has_checked_code = True
        history = None if self._code is None else _histories.get(self._code)
        if history is None:
            return 0
        if history.last is not None:
            history.fruitless = 0 if history.last.counter[0] else history.fruitless + history.last.owed
            history.last = None
        return FIRST_WAIT if history.fruitless >= _FRUITLESS else 0

    def is_first_wait_for_code(self) -> bool:
        """Whether this is the first function of its code that has to wait."""
        history = None if self._code is None else _histories.get(self._code)
        if history is None or history.has_waited:
            return False
        history.has_waited = True
        return True

    def end_wait(self) -> None:
        """Cancel the wait before the next recording: the function rests for these calls instead."""
        self._calls_to_wait = 0

    def must_wait(self) -> bool:
        """Whether it is too early to record this call.  Counts it."""
        if self._on_trial is not None and not self._on_trial.uses:
            return True
        if self._calls_to_earn > 0 and self.is_discouraged:
            self._calls_to_earn -= 1
        elif self._calls_to_wait > 0:
            self._calls_to_wait -= 1
        else:
            return False
        self.waited_calls += 1
        return True

    def is_search_early(self, pays: bool) -> bool:
        """Whether it is too early to search for unused paths.  Counts a call for whose path there is no room.

        pays: whether the path would pay with one call."""
        if pays:
            self._paying_calls_for_room += 1
            return self._paying_calls_for_room < FIRST_WAIT
        self._calls_for_room += 1
        return self._calls_for_room < FIRST_WAIT * config.max_entries * self._search_factor

    def note_search(self, dropped: bool, pays: bool = False) -> None:
        """Note a search for unused paths.  dropped: whether there were any.  pays: whether it was for a path that pays with one
        call."""
        self._paying_calls_for_room = 0
        if not pays:
            self._calls_for_room = 0
            self._search_factor *= 2 if dropped else 1

    def note_recording(self, path: RecordedPath, served: int, is_instance: bool) -> None:
        """Note a new path.  served: the number of calls that the other paths have served so far.  is_instance: whether it was
        made without a recorded call."""
        self._failures = self._errors = self._calls_to_wait = self.waited_calls = 0
        self._settle(served)
        cost = min(_FIXED + path.operations, _MOST)
        operations = cost - _FIXED
        owed, pay, calls = (cost // 8, cost, 1) if is_instance else (cost, _FIXED // 8 + operations // 2, 8 + operations // 8)
        self._debts.append(_Debt(path.executable.counter, owed, pay, calls))
        beyond = (self._owed - _LIMIT) // cost
        self._calls_to_earn = 0 if beyond < 0 else FIRST_WAIT << min(beyond, _MOST_DOUBLINGS)
        self._vain = self._vain + 1 if served == self._served_before and not is_instance else 1
        self._served_before = served
        if self.is_piece and self._vain >= _VAIN:
            self._calls_to_wait = _VAIN_WAIT << min(self._vain - _VAIN, _MOST_DOUBLINGS)
        if self._in_debt:
            self._on_trial = path
        if self._code is not None and not self._has_recorded:
            history = _histories.get(self._code)
            if history is None:
                history = _histories[self._code] = _CodeHistory()
            history.last = self._debts[-1]
        self._has_recorded = True

    def _settle(self, served: int) -> None:
        """Remove the debts that are paid, and the oldest ones for which enough calls have been served since the last time."""
        self._debts = [debt for debt in self._debts if debt.owed]
        self._served = min(self._served, served)
        while self._debts and served - self._served >= self._debts[0].calls:
            self._served += self._debts.pop(0).calls
        if not self._debts:
            self._served = served

    def forgive(self) -> None:
        """Forget the debts of windows and recordings: all paths are dropped for others, or the user asks for a recording."""
        self._debts.clear()
        self._debt, self._in_debt, self._on_trial = 0, False, None

    @property
    def _owed(self) -> int:
        return sum([debt.owed for debt in self._debts])

    @property
    def owes_much(self) -> bool:
        """Whether so many recordings have not earned their cost that the next one should be another: 6 small ones, or 2 large ones."""
        return self._owed >= _MUCH

    @property
    def is_discouraged(self) -> bool:
        """Whether the next recording has to wait because too many paths have not earned their cost."""
        return self._owed >= _LIMIT

    @property
    def unrecorded_calls(self) -> int:
        """Number of calls since the last search for unused paths that could not be recorded for lack of room."""
        return self._calls_for_room + self._paying_calls_for_room

    def is_wasteful(self) -> bool:
        """Whether many more paths were recorded than have earned their cost."""
        return self._owed >= (_LIMIT // 2 if len(self._debts) >= _WASTEFUL else _LIMIT + _MOST)

    def discourage(self) -> None:
        """Note that the last recording is of a path that no later call takes, as the next one would be: recordings wait from now
        on."""
        self._failures = max(self._failures, config.max_failures - 1)
        self._debts.append(_Debt([0], max(0, _LIMIT - self._owed), 0, 128))
        self._calls_to_wait = max(self._calls_to_wait, FIRST_WAIT)

    def note_failure(self, lasting: bool) -> int:
        """Note a failed recording.  lasting: whether the function is the cause, and not its environment.  Returns the number of
        calls to wait for."""
        self._failures += 1
        beyond = self._failures - config.max_failures
        if not lasting:
            self._failures = min(self._failures, config.max_failures)
            beyond = min(beyond, 0)
        self._calls_to_wait = 0 if beyond < 0 else FIRST_WAIT << min(beyond, _MOST_DOUBLINGS)
        return self._calls_to_wait

    def note_error(self) -> int:
        """Note a recording that ended in an error.  Returns the number of calls to wait for."""
        self._errors += 1
        self._calls_to_wait = 0 if self._errors < _ERRORS else _ERRORS << min(self._errors - _ERRORS, _MOST_DOUBLINGS)
        return self._calls_to_wait


class _CodeHistory:
    """The compiled functions of one code object.  fruitless: what those in a row owe that were recorded and served no call.
    has_waited: whether one had to wait for its recording.  last: the debt of the last one."""

    __slots__ = ("fruitless", "has_waited", "last")

    def __init__(self) -> None:
        self.fruitless = 0
        self.has_waited = False
        self.last: _Debt | None = None


_histories: WeakTable[_CodeHistory] = WeakTable()


def forget_code() -> None:
    """Forget the histories of all code objects."""
    _histories.clear()


def _code(function: Any) -> CodeType | None:
    while type(function) is MethodType:
        function = function.__func__
    return function.__code__ if type(function) is FunctionType else None
