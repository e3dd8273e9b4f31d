"""The accounts of a compiled function: what its paths gain, what trying and recording them costs, and what follows from that.

Both are counts and never seconds, so that which calls are compiled does not depend on luck.  The unit is half of what eager mode needs at
least to call one operation, 0.7 us: to try an entry in vain costs about as much, and so does to get as far as trying.

* Entries.  A call that an entry serves gains two for each operation that was recorded, and one for every 4,096 elements that only eager
  mode goes through: it does so for each operation, a program that has fused them once (recorded_path.py).  A call that the first entry
  does not serve costs one for itself, one for each entry tried in vain (two where that is Python), and for a program that was left at an
  exit as much as for the elements that it goes through.  Calls that are recorded are not counted.  A *window* is `WINDOW` calls that the
  first entry did not serve.  What a window lost is a debt, which later windows may pay back.  A function in debt that has as many paths
  as it may have drops those that served nothing (after one such loss, the next time after two ...), and records the next path once the
  last one has served a call.  If the debt stays, the function rests for `FIRST_WAIT` calls, then for four times as many, and so on, until
  as many windows in a row as there were losses have no debt.
* Recordings.  After `config.max_failures` failed recordings in a row the next one comes `FIRST_WAIT` calls later, then twice as many.
  After `_ERRORS` in a row that ended in an error it comes 8 calls later, then twice as many.  A function without entries rests
  meanwhile.  A recording, with the program that is made of it, is worth `_WORTH` served calls, and an instance of another one a single
  one.  Where `_WASTEFUL` recordings more were made than have earned what they are worth, the function runs in pieces if it can (pieces.py);
  where `_DISCOURAGING` more were, the next one comes `FIRST_WAIT` calls later, then twice as many, until enough calls have been served.
  The same holds at once where a recording shows that later calls take other paths, and the function cannot run in pieces (`discourage`).
* Room.  Where there is none for another path, unused entries are looked for after as many calls as an entry may have to wait for
  (`is_search_early`), after twice as many whenever some were dropped, and sooner for a path for other sizes that pays with one call.
* Code.  A function that is made and compiled anew for each call (a lambda in a loop) is treated as one: after `_FRUITLESS` functions of
  one code object in a row none of which has served a call, another one is recorded only when it has been called `FIRST_WAIT` times.

A call of a resting function goes from machine code to the function itself (cpython/dispatcher.py), which takes one from `resting_calls`:
that is the count of such calls, too.  The accounts must not know what an entry does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from types import CodeType, FunctionType, MethodType
from typing import Any, Final

from tracejit.compiled.recorded_path import FIRST_WAIT, Entry
from tracejit.config import config
from tracejit.core.weak_table import WeakTable

__all__ = ["WINDOW", "Accounts", "forget_code"]

WINDOW: Final = 64
_ERRORS: Final = 8
_FRUITLESS: Final = 32
_WASTEFUL: Final = 8
_DISCOURAGING: Final = 16
_WORTH: Final = 8
_MOST_DOUBLINGS: Final = 20


class Accounts:
    """The accounts of one compiled function.  Threads may lose increments of each other, never more."""

    __slots__ = (
        "_calls_for_room", "_calls_to_wait", "_code", "_cost", "_debt", "_drops", "_errors", "_failures", "_gained", "_granted",
        "_has_checked_code", "_has_recorded", "_in_debt", "_losses", "_on_trial", "_paying_calls_for_room", "_retired_gain",
        "_search_factor", "_served", "_unearned", "_window_calls", "_windows_without_debt", "resting_calls", "window",
    )  # fmt: skip

    def __init__(self, function: Any) -> None:
        self._code = _code(function)
        self._has_checked_code = False
        self._has_recorded = False
        self.resting_calls = ctypes.c_int64(0)
        """Calls that still go to the function at once; machine code counts it down."""
        self._granted = 0
        self.clear()

    def clear(self) -> None:
        """As if the function had not been called yet."""
        self.resting_calls.value = self._granted = 0
        self._window_calls = self._cost = 0  # of the window
        self._gained = self._retired_gain = 0  # totals: when the window began, and of dropped entries
        self._debt = 0  # what earlier windows have lost and no later one has paid back
        self._losses = self._windows_without_debt = 0  # windows with a debt, until as many in a row have none
        self._drops = 0  # how often paths made room after a loss
        self.window = WINDOW  # calls; as many as there are paths where these are more, since all of them are looked at in the end
        self._in_debt = False  # whether the last window had a debt
        self._on_trial: Entry | None = None  # the last path that was recorded in debt
        self._failures = self._errors = 0  # recordings in a row that failed, that ended in an error
        self._served = 0  # calls that entries had served when the last path was recorded
        self._unearned = 0  # what paths have to be worth, less the calls that were served meanwhile
        self._calls_to_wait = 0  # calls that no entry serves before the next recording
        self._calls_for_room = 0  # calls that there was no room to record since the last search for unused entries
        self._paying_calls_for_room = 0  # those among them whose paths would have paid for themselves
        self._search_factor = 1  # how often that many calls are needed; doubled where entries were dropped

    # -- calls that rest
    @property
    def direct_calls(self) -> int:
        """Calls so far that went to the function at once."""
        return self._granted - self.resting_calls.value

    @property
    def is_resting(self) -> bool:
        """Whether the next call goes to the function at once."""
        return self.resting_calls.value > 0

    def rest(self, calls: int) -> None:
        """So many calls from now on go to the function at once."""
        self._granted += calls - self.resting_calls.value
        self.resting_calls.value = calls

    def take_resting_call(self) -> bool:
        """Whether this call is one of those; asked where no machine code counts."""
        if self.resting_calls.value <= 0:
            return False
        self.resting_calls.value -= 1
        return True

    # -- entries
    def charge(self, cost: int, calls: int = 1) -> bool:
        """Calls that the first entry did not serve have tried entries in vain, each for so much.  Whether the window is over."""
        self._window_calls += calls
        self._cost += calls * (cost + 1)
        return self._window_calls >= self.window

    def close_window(self, entries: Iterable[Entry]) -> bool:
        """Begin another window.  Whether there is a debt."""
        total = self._retired_gain + sum([entry.gain for entry in entries])
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
        """Whether a loss may be answered by other paths: one more loss each time, since to record them costs as much each time."""
        return self._losses > self._drops

    def note_drop(self) -> None:
        """Paths were dropped after a loss: others get their turn, without debts."""
        self._drops += 1
        self._debt = 0
        self.note_search(True)

    def retire(self, entry: Entry) -> None:
        """An entry is dropped, and its gain stays."""
        self._retired_gain += entry.gain

    def rest_after_loss(self) -> int:
        """For how many calls the function is to rest after a loss; they pay the debt."""
        if self._losses < 2:
            return 0
        self._debt = 0
        return FIRST_WAIT << min(2 * (self._losses - 2), _MOST_DOUBLINGS)

    # -- recordings
    def wait_for_code(self) -> int:
        """For how many calls the first recording is to wait because other functions of this code served none.  Asked once."""
        if self._has_checked_code:
            return 0
        self._has_checked_code = True
        history = None if self._code is None else _histories.get(self._code)
        if history is None:
            return 0
        if history.last is not None:
            history.fruitless = 0 if history.last[0] else history.fruitless + 1
            history.last = None
        return FIRST_WAIT if history.fruitless >= _FRUITLESS else 0

    def is_first_wait_for_code(self) -> bool:
        """Whether no function of this code had to wait before."""
        history = None if self._code is None else _histories.get(self._code)
        if history is None or history.has_waited:
            return False
        history.has_waited = True
        return True

    def end_wait(self) -> None:
        """The calls to wait for rest instead."""
        self._calls_to_wait = 0

    def must_wait(self) -> bool:
        """Whether it is too early to record this call."""
        if self._on_trial is not None and not self._on_trial.uses:
            return True
        if self._calls_to_wait <= 0:
            return False
        self._calls_to_wait -= 1
        return True

    def is_search_early(self, pays: bool) -> bool:
        """There is no room for the path of this call: whether it is too early to search for unused entries.

        pays: whether the path would soon pay for itself."""
        if pays:
            self._paying_calls_for_room += 1
            return self._paying_calls_for_room < FIRST_WAIT
        self._calls_for_room += 1
        return self._calls_for_room < FIRST_WAIT * config.max_entries * self._search_factor

    def note_search(self, dropped: bool, pays: bool = False) -> None:
        """Unused entries were searched for.  pays: for the sake of a path that would soon pay for itself."""
        self._paying_calls_for_room = 0
        if not pays:
            self._calls_for_room = 0
            self._search_factor *= 2 if dropped else 1

    def note_recording(self, entry: Entry, served: int, is_instance: bool) -> None:
        """A path was recorded, or is an instance of another one.  served: how many calls others have served so far."""
        self._failures = self._errors = 0
        self._unearned = max(0, self._unearned + (1 if is_instance else _WORTH) - max(0, served - self._served))
        self._served = served
        beyond = self._unearned // _WORTH - _DISCOURAGING
        self._calls_to_wait = 0 if beyond < 0 else FIRST_WAIT << min(beyond, _MOST_DOUBLINGS)
        if self._in_debt:
            self._on_trial = entry
        if self._code is not None and not self._has_recorded:
            history = _histories.get(self._code)
            if history is None:
                history = _histories[self._code] = _CodeHistory()
            history.last = entry.executable.counter
        self._has_recorded = True

    @property
    def is_discouraged(self) -> bool:
        """Whether so many paths in vain make the next recording wait."""
        return self._unearned >= _DISCOURAGING * _WORTH

    @property
    def unrecorded_calls(self) -> int:
        """Calls since the last search for unused entries that there was no room to record."""
        return self._calls_for_room + self._paying_calls_for_room

    def is_wasteful(self) -> bool:
        """Whether many more paths were recorded than have earned what they are worth."""
        return self._unearned >= _WASTEFUL * _WORTH

    def discourage(self) -> None:
        """What has been recorded is a path that no later call takes, and the next one would be another: recordings wait from now on."""
        self._failures = max(self._failures, config.max_failures - 1)
        self._unearned = max(self._unearned, _DISCOURAGING * _WORTH)
        self._calls_to_wait = max(self._calls_to_wait, FIRST_WAIT)

    def note_failure(self, lasting: bool) -> int:
        """A recording failed; lasting: because of the program, not of what is around it.  For how many calls to wait."""
        self._failures += 1
        beyond = self._failures - config.max_failures
        if not lasting:
            self._failures = min(self._failures, config.max_failures)
            beyond = min(beyond, 0)
        self._calls_to_wait = 0 if beyond < 0 else FIRST_WAIT << min(beyond, _MOST_DOUBLINGS)
        return self._calls_to_wait

    def note_error(self) -> int:
        """A recording ended in an error.  For how many calls to wait."""
        self._errors += 1
        self._calls_to_wait = 0 if self._errors < _ERRORS else _ERRORS << min(self._errors - _ERRORS, _MOST_DOUBLINGS)
        return self._calls_to_wait


class _CodeHistory:
    """The functions of one code object: how many in a row were recorded and served no call, and the counter of the last one's path."""

    __slots__ = ("fruitless", "has_waited", "last")

    def __init__(self) -> None:
        self.fruitless = 0
        self.has_waited = False
        self.last: list[int] | None = None


_histories: WeakTable[_CodeHistory] = WeakTable()


def forget_code() -> None:
    """Forget how functions of the same code have fared."""
    _histories.clear()


def _code(function: Any) -> CodeType | None:
    while type(function) is MethodType:
        function = function.__func__
    return function.__code__ if type(function) is FunctionType else None
