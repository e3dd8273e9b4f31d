"""When a compiled function stops trying, and leaves its calls to the function itself: it *settles*.

Two accounts are kept, in counts and never in seconds, so that which calls are compiled does not depend on luck.  The unit is half of
what eager mode needs at least to call one operation, 0.7 us: to try an entry in vain costs about as much, and so does to get as far as
trying.

* Entries.  A call that an entry serves gains two for each operation that was recorded, and one for every 4,096 elements that only eager
  mode goes through: it does so for each operation, a program that has fused them once (recorded_path.py).  One that the entry in front
  does not serve costs one for itself, one for each entry tried in vain (two where that is Python), and for a program that was left as
  much as for the elements that it goes through; calls that are recorded are not counted.  After each `WINDOW` calls that the entry in
  front did not serve the account is closed.  What it lost is a debt, which later windows may make up for.  A function in debt that has as
  many paths as it may drops those that served nothing (after one such loss, the next time after two ...), and the next path is recorded
  once the last one has served a call.  If the debt stays it is left alone for `FIRST_WAIT` calls, then for four times as many, and so on,
  until as many windows in a row as there were losses have left no debt.
* Recordings.  After `config.max_failures` in a row that came to nothing the next one comes `FIRST_WAIT` calls later, then twice as many;
  after `_RAISED` in a row that ended in an error, after 8 calls, then twice as many.  A function without entries is left alone meanwhile.
  A recording, with the program that is made of it, is worth `_WORTH` served calls, and an instance of another one a single one.  Where
  `_WASTED` recordings more were made than have earned what they are worth, a function that can be is taken to pieces (pieces.py); where
  `_UNUSED` more were, the next one comes `FIRST_WAIT` calls later, then twice as many, until enough calls have been served.  So it does at
  once where a recording shows that later calls go other ways, and the function cannot be taken to pieces (`discourage`).
  Where there is no room for another path, it is looked for entries that are not used after so many calls as an entry may have to wait for
  (`is_crowded`), twice as many whenever something was dropped; and sooner for paths of other sizes that one call makes up for.
  A function made anew, and compiled, for each call (a lambda in a loop) is no better: after `_FRUITLESS` of one piece of code in
  a row none of which has served a call, one more is recorded only when it has been called `FIRST_WAIT` times.

A function that is left alone costs a call from machine code to the function (cpython/dispatcher.py), which takes one from `rest`: that is
the count of such calls, too. It must not know what an entry does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from types import CodeType, FunctionType, MethodType
from typing import Any, Final

from tracejit.compiled.recorded_path import FIRST_WAIT, Entry
from tracejit.config import config
from tracejit.core.weak_table import WeakTable

__all__ = ["WINDOW", "Settling", "forget_code"]

WINDOW: Final = 64
_RAISED: Final = 8
_FRUITLESS: Final = 32
_WASTED: Final = 8
_UNUSED: Final = 16
_WORTH: Final = 8
_FURTHEST: Final = 20  # doublings


class Settling:
    """The accounts of one compiled function.  Threads may lose increments of each other, never more."""

    __slots__ = (
        "_code", "_cost", "_crowded", "_debt", "_drops", "_failures", "_first", "_gained", "_good", "_granted", "_losses", "_newest",
        "_patience", "_paying", "_raised", "_recorded", "_retired", "_seen", "_served", "_trial", "_unused", "_wait", "rest", "window",
    )  # fmt: skip

    def __init__(self, function: Any) -> None:
        self._code = _code(function)
        self._first = True  # it was not about to be recorded yet
        self._recorded = False
        self.rest = ctypes.c_int64(0)
        """Calls that still go to the function at once; machine code counts it down."""
        self._granted = 0
        self.clear()

    def clear(self) -> None:
        """As if the function had not been called yet."""
        self.rest.value = self._granted = 0
        self._seen = self._cost = 0  # of the window
        self._gained = self._retired = 0  # totals: when the window began, and of entries that are gone
        self._debt = 0  # what earlier windows have lost, and none has made up for
        self._losses = self._good = 0  # windows that left a debt, until as many in a row have not
        self._drops = 0  # how often paths made room after a loss
        self.window = WINDOW  # calls; as many as there are paths where these are more, since all of them are looked at in the end
        self._trial = False  # whether the last window left a debt
        self._newest: Entry | None = None  # on trial: the last path that was recorded
        self._failures = self._raised = 0  # recordings in a row that came to nothing, that ended in an error
        self._served = 0  # calls that entries had served when the last path was recorded
        self._unused = 0  # what paths have to be worth, less the calls that were served meanwhile
        self._wait = 0  # calls that no entry serves before the next recording
        self._crowded = 0  # calls for want of room since the last look for entries that are not used
        self._paying = 0  # those among them whose paths would have made up for what they cost
        self._patience = 1  # how often that many are needed; doubled where entries were dropped

    # -- calls that are left alone
    @property
    def direct_calls(self) -> int:
        """Calls so far that went to the function at once."""
        return self._granted - self.rest.value

    def leave_alone(self, calls: int) -> None:
        """So many calls from now on go to the function at once."""
        self._granted += calls - self.rest.value
        self.rest.value = calls

    def takes_call(self) -> bool:
        """Whether this call is one of those; for who is no machine code."""
        if self.rest.value <= 0:
            return False
        self.rest.value -= 1
        return True

    # -- entries
    def charge(self, cost: int, calls: int = 1) -> bool:
        """Calls that the entry in front did not serve have tried entries in vain, each for so much.  Whether the window is over."""
        self._seen += calls
        self._cost += calls * (cost + 1)
        return self._seen >= self.window

    def close(self, entries: Iterable[Entry]) -> bool:
        """The window is over: whether there is a loss to make up for."""
        total = self._retired + sum([entry.gain for entry in entries])
        self._debt = max(0, self._debt + self._cost - (total - self._gained))
        self._seen = self._cost = 0
        self._gained = total
        self._newest = None
        self._trial = self._debt > 0
        if self._debt:
            self._losses += 1
            self._good = 0
        else:
            self._good += 1
            if self._good >= self._losses:
                self._losses = 0
        return self._debt > 0

    def may_drop(self) -> bool:
        """Whether a loss may be answered by other paths: one more loss each time, since to record them costs as much each time."""
        return self._losses > self._drops

    def dropped(self) -> None:
        """Other paths get their turn, without debts."""
        self._drops += 1
        self._debt = 0
        self.looked(True)

    def retired(self, entry: Entry) -> None:
        """An entry is dropped."""
        self._retired += entry.gain

    def period(self) -> int:
        """For how many calls to leave the function alone, after a loss; they settle the debt."""
        if self._losses < 2:
            return 0
        self._debt = 0
        return FIRST_WAIT << min(2 * (self._losses - 2), _FURTHEST)

    # -- recordings
    def waits_for_kin(self) -> int:
        """The function is about to be recorded: for how many calls to wait because others with its code served none.  Asked once."""
        if not self._first:
            return 0
        self._first = False
        kin = None if self._code is None else _kin.get(self._code)
        if kin is None:
            return 0
        if kin.last is not None:
            kin.fruitless = 0 if kin.last[0] else kin.fruitless + 1
            kin.last = None
        return FIRST_WAIT if kin.fruitless >= _FRUITLESS else 0

    def is_first_to_wait(self) -> bool:
        """Whether no function with its code has been told to wait before."""
        kin = None if self._code is None else _kin.get(self._code)
        if kin is None or kin.has_waited:
            return False
        kin.has_waited = True
        return True

    def waited(self) -> None:
        """The calls to wait for are left alone."""
        self._wait = 0

    def waits(self) -> bool:
        """Whether it is too early to record this call."""
        if self._newest is not None and not self._newest.uses:
            return True
        if self._wait <= 0:
            return False
        self._wait -= 1
        return True

    def is_crowded(self, pays: bool) -> bool:
        """There is no room for the path of this call: whether it is too early to look for entries that are not used.

        pays: whether the path would soon make up for what it costs."""
        if pays:
            self._paying += 1
            return self._paying < FIRST_WAIT
        self._crowded += 1
        return self._crowded < FIRST_WAIT * config.max_entries * self._patience

    def looked(self, dropped: bool, pays: bool = False) -> None:
        """There was a look for entries that are not used.  pays: for the sake of one that would soon make up for what it costs."""
        self._paying = 0
        if not pays:
            self._crowded = 0
            self._patience *= 2 if dropped else 1

    def recorded(self, entry: Entry, served: int, is_instance: bool) -> None:
        """A path was recorded, or is an instance of another one.  served: how many calls others have served so far."""
        self._failures = self._raised = 0
        self._unused = max(0, self._unused + (1 if is_instance else _WORTH) - max(0, served - self._served))
        self._served = served
        beyond = self._unused // _WORTH - _UNUSED
        self._wait = 0 if beyond < 0 else FIRST_WAIT << min(beyond, _FURTHEST)
        if self._trial:
            self._newest = entry
        if self._code is not None and not self._recorded:
            kin = _kin.get(self._code)
            if kin is None:
                kin = _kin[self._code] = _Kin()
            kin.last = entry.executable.counter
        self._recorded = True

    @property
    def gives_up(self) -> bool:
        """Whether so many paths in vain make the next recording wait."""
        return self._unused >= _UNUSED * _WORTH

    @property
    def unrecorded_calls(self) -> int:
        """Calls since the last look for entries that are not used that there was no room to record for."""
        return self._crowded + self._paying

    def is_wasteful(self) -> bool:
        """Whether many more paths were recorded than have earned what they are worth."""
        return self._unused >= _WASTED * _WORTH

    def discourage(self) -> None:
        """What has been recorded is a path that no later call takes, and the next one would be another: recordings wait from now on."""
        self._failures = max(self._failures, config.max_failures - 1)
        self._unused = max(self._unused, _UNUSED * _WORTH)
        self._wait = max(self._wait, FIRST_WAIT)

    def failed(self, lasting: bool) -> int:
        """A recording came to nothing; lasting: because of the program, not of what is around it.  For how many calls to wait."""
        self._failures += 1
        beyond = self._failures - config.max_failures
        if not lasting:
            self._failures = min(self._failures, config.max_failures)
            beyond = min(beyond, 0)
        self._wait = 0 if beyond < 0 else FIRST_WAIT << min(beyond, _FURTHEST)
        return self._wait

    def raised(self) -> int:
        """A recording ended in an error.  For how many calls to wait."""
        self._raised += 1
        self._wait = 0 if self._raised < _RAISED else _RAISED << min(self._raised - _RAISED, _FURTHEST)
        return self._wait


class _Kin:
    """The functions of one piece of code: how many in a row were recorded and served no call, and the counter of the last one's path."""

    __slots__ = ("fruitless", "has_waited", "last")

    def __init__(self) -> None:
        self.fruitless = 0
        self.has_waited = False
        self.last: list[int] | None = None


_kin: WeakTable[_Kin] = WeakTable()


def forget_code() -> None:
    """Forget how functions of the same code have fared."""
    _kin.clear()


def _code(function: Any) -> CodeType | None:
    while type(function) is MethodType:
        function = function.__func__
    return function.__code__ if type(function) is FunctionType else None
