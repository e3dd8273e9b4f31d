"""The table of paths: the entries of a compiled function, which of them a call tries first, and how many there may be.

Lookup.  The table fills the *slots* that the dispatcher reads (cpython/dispatcher.py; dispatch.py has their layout).  A call tries the
first entry; of a function with arguments of several sizes, the first entry for the sizes of the call.  If that does not serve the call,
bridges.py asks the `candidates`: all entries while there are `_FEW_PATHS`; those of the call's sizes, and those that serve any sizes, while
there are `MANY_PATHS`; beyond that those of the call's sizes alone.

Capacity.  There is at most one path for each of `config.max_sizes` sizes, and less than `config.max_entries` beside them.  What fits none
runs eagerly, as a user of torch.compile would expect: to record every new path in turn would cost more than it gains.  Paths that served
no call since they were last looked at make room (`drop_unused`); when they are looked at is for the policy to say (tier_policy.py).

Interrupts and threads: whatever belongs together is written by assignments in a row, between which CPython calls nothing; so neither an
exception of a signal handler nor another thread meets one half of it.  Tuples of entries are replaced as a whole.  What threads may lose
of each other's work is which entry is tried first, never a result: every entry checks its own guards.

The table must not know why a path is recorded, dropped, or not asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from tracejit.capture.recording.entry import MISS, Exit
from tracejit.compiled.dispatch import FALLBACK, SERVE, exit_handler, nothing_recorded
from tracejit.compiled.pieces import Pieces
from tracejit.compiled.recorded_path import Entry
from tracejit.compiled.symbolic_paths import SymbolicPaths, of_tensors
from tracejit.config import config
from tracejit.cpython.dispatcher import FRONT, SIZED
from tracejit.cpython.size_table import Shapes, SizeTable
from tracejit.report.performance import Advice

__all__ = ["MANY_PATHS", "FunctionState", "Handler", "PathTable", "StateHandlers"]

MANY_PATHS: Final = 64
_FEW_PATHS: Final = 8

Handler = Callable[[tuple[Any, ...], dict[str, Any]], Any]


class FunctionState(Enum):
    """What serves the next call of a function that machine code does not.

    ::

                  a path is installed
        FRESH ----------------------------> SERVING
          ^ <---------------------------------+ |
          |     the first path is dropped       | the steps of a loop take different ways (from FRESH, too)
          |                                     v
          +------------------------------- IN_PIECES
                the function is redefined

        FRESH, SERVING or IN_PIECES -- it does not pay (or nothing can be recorded) --> RESTING -- so many calls later --> back
        FRESH, SERVING or IN_PIECES -- there is something to warn of -----------------> WARNING -- the next call --------> back
        any of them ----------------- a path has become machine code ------------------> STALE ---- the next call --------> back

    `clear()` leads to FRESH.  "Back" is decided by `PathTable.set_first`."""

    FRESH = auto()
    """Nothing: there is no entry to try first."""
    SERVING = auto()
    """The first entry, or the first one for the sizes of the call."""
    IN_PIECES = auto()
    """The function in pieces (pieces.py)."""
    RESTING = auto()
    """The function itself, for a number of calls that machine code counts down."""
    WARNING = auto()
    """A warning is given before anything of the call is done."""
    STALE = auto()
    """The slots are filled again: they do not have the machine code of some entry yet."""


# As globals they cost a look, as attributes of an Enum 0.1 us on Python 3.11.
_FRESH, _SERVING, _IN_PIECES, _RESTING, _WARNING, _STALE = FunctionState


class StateHandlers(NamedTuple):
    """What serves a call in the states in which no entry is tried first.  Each answers as an entry does: with a result, MISS or an Exit;
    or with UNSERVED."""

    in_pieces: Handler
    resting: Handler
    warning: Handler
    stale: Handler


class PathTable:
    """entries: all of them.  first: the entry that is tried first; by_sizes: those for each sizes of the arguments, the one tried first in
    front; size_table: what machine code knows of these.  symbolic: the recordings that stand for several sizes.  pieces: in which the
    function runs.  handlers: set once, before the first call."""

    __slots__ = (
        "_advice", "_is_stale", "by_sizes", "entries", "first", "handlers", "pieces", "size_table", "slots", "state", "symbolic",
    )  # fmt: skip

    def __init__(self, slots: list[Any], symbolic: SymbolicPaths, advice: Advice) -> None:
        """slots: of the dispatcher; advice: says whether a warning is due."""
        self.slots = slots
        self.symbolic = symbolic
        self._advice = advice
        self.handlers: StateHandlers
        self._is_stale = False
        self.pieces: Pieces | None
        self.entries: tuple[Entry, ...]
        self.by_sizes: dict[Shapes, tuple[Entry, ...]]
        self.size_table: SizeTable
        self._empty()
        self.state: FunctionState = _FRESH
        self.first: Entry | None = None

    def _empty(self, pieces: Pieces | None = None) -> None:
        self.pieces, self.entries, self.by_sizes, self.size_table = pieces, (), {}, SizeTable()

    def clear(self) -> None:
        """As if the function had not been called yet."""
        dropped = self.entries
        self._is_stale = False
        self._empty()
        self.symbolic = SymbolicPaths(self.symbolic.dynamic, self.symbolic.is_shallow)
        self.set_first(None)
        _drop(dropped)

    # -- lookup
    def serve(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call, or UNSERVED."""
        result = self.slots[SERVE](args, kwargs)
        return result if result.__class__ is not Exit else self.slots[FALLBACK](args, kwargs, result.number)

    def set_first(self, entry: Entry | None) -> None:
        """The entry is tried first from now on; none of them in a function that runs in pieces.  Leaves the states RESTING, WARNING and
        STALE, unless there is a reason for one of the latter two."""
        slots, machine, sized = self.slots, None, None
        serve: Handler
        if self.pieces is not None:
            entry, state, serve = None, _IN_PIECES, self.handlers.in_pieces
        elif entry is None:
            state, serve = _FRESH, nothing_recorded
        elif len(self.by_sizes) > 1:
            state, serve = _SERVING, self._serve_by_sizes
            sized = None if self.symbolic.is_shallow else self.size_table.items  # machine code looks into containers
        else:
            state, serve, machine = _SERVING, entry.run, entry.machine
        self.state, self.first, slots[SERVE], slots[FRONT], slots[SIZED] = state, entry, serve, machine, sized
        # Asked when the slots are filled: a thread in the background sets the mark first and the slot then (mark_stale).
        if self._is_stale and entry is not None:
            self.state, slots[SERVE] = _STALE, self.handlers.stale
        if self._advice.is_due:
            self.state, slots[SERVE], slots[FRONT], slots[SIZED] = _WARNING, self.handlers.warning, None, None

    def set_first_for(self, sizes: Shapes, entry: Entry) -> None:
        """The entry is tried first for arguments of these sizes from now on."""
        self.by_sizes[sizes] = (entry, *[other for other in self.by_sizes.get(sizes, ()) if other is not entry])
        if entry.machine is not None:
            # Machine code looks for the shapes of tensors alone.
            self.size_table.put(of_tensors(sizes), (entry.machine, exit_handler(self.slots, entry)))

    def _serve_by_sizes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        known = self.by_sizes.get(self.symbolic.shapes(args, kwargs))
        entry = self.first = self.first if known is None else known[0]
        return MISS if entry is None else entry.serve(args, kwargs)

    def candidates(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Entry, ...]:
        """The entries to ask for a call that the first one and its bridges do not serve."""
        entries = self.entries
        if len(entries) <= _FEW_PATHS:
            return entries
        of_sizes = self.by_sizes.get(self.symbolic.shapes(args, kwargs), ())
        if len(entries) > MANY_PATHS:
            return of_sizes
        return (*of_sizes, *[entry for entry in entries if not entry.is_sized and entry not in of_sizes])

    # -- states in which the slots have no entry
    def rest(self) -> None:
        """No entry is tried until `set_first` is called."""
        slots = self.slots
        self.state, slots[SERVE], slots[FRONT], slots[SIZED] = _RESTING, self.handlers.resting, None, None

    def mark_stale(self) -> None:
        """The next call that machine code does not serve fills the slots again, whatever is first before.  For any thread."""
        self._is_stale = True
        self.state, self.slots[SERVE] = _STALE, self.handlers.stale

    def refresh(self) -> None:
        """Fill the slots, and the size table, with the machine code that entries have now."""
        self._is_stale = False
        for sizes, entries in list(self.by_sizes.items()):
            self.set_first_for(sizes, entries[0])
        self.set_first(self.first)

    def enter_pieces(self, pieces: Pieces) -> tuple[Entry, ...]:
        """The function runs in pieces from now on.  Returns the entries, which are dropped."""
        dropped = self.entries
        self._empty(pieces)
        self.set_first(None)
        _drop(dropped)
        return dropped

    def leave_pieces(self) -> None:
        """The function is recorded as a whole again."""
        self.pieces = None
        self.set_first(None)

    # -- capacity
    def add(self, entry: Entry, sizes: Shapes, exited: Entry | None, number: int) -> None:
        """A new entry, recorded for a call of these sizes, which `exited` has left at exit `number`, or (None) which no entry began to
        serve."""
        self.entries = (*self.entries, entry)
        if exited is not None:
            exited.bridges[number] = entry
            self.by_sizes[sizes] = (*self.by_sizes.get(sizes, ()), entry)
        else:
            if self.first is not None:
                self.first.bridges[0] = entry
            self.set_first_for(sizes, entry)
            self.set_first(entry)

    def is_full(self, sizes: Shapes | None = None) -> bool:
        """Whether there are as many paths as there may be for calls of these sizes, or of any."""
        entries, sized = len(self.entries), len(self.by_sizes)
        if sizes is None or sizes in self.by_sizes:
            return entries - sized >= config.max_entries - 1 or (sizes is None and sized >= config.max_sizes)
        return sized >= config.max_sizes or entries >= config.max_sizes + config.max_entries

    def drop_unused(self) -> list[Entry]:
        """Drop the entries that served no call since the last time, and return them."""
        kept = tuple([entry for entry in self.entries if entry.uses != entry.uses_seen])
        dropped = [entry for entry in self.entries if entry not in kept]
        for entry in kept:
            entry.uses_seen = entry.uses
            entry.unlink(dropped)
            entry.unbridged = [0, 0]
        sized = self.by_sizes
        self.entries, self.by_sizes, self.size_table = kept, {}, SizeTable()
        for sizes, entries in sized.items():
            for entry in reversed(entries):
                if entry in kept:
                    self.set_first_for(sizes, entry)
        self.set_first(self.first if self.first in kept else None)
        _drop(dropped)
        return dropped


def _drop(entries: Iterable[Entry]) -> None:
    for entry in entries:
        entry.drop()
