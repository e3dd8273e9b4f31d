"""The table of paths: those of a compiled function, which of them a call tries first, and how many there may be.

Lookup.  The table fills the *slots* that the dispatcher reads (cpython/dispatcher.py; dispatch.py has their layout).  A call
tries the first path; if the function has paths for several sizes of its arguments, the first path for the sizes of the call.
If that does not serve the call, bridges.py tries the `candidates`.  Those are all paths, if there are at most `_FEW_PATHS`; the
paths for the call's sizes and the paths that serve any sizes, if there are at most `MANY_PATHS`; beyond that only the paths
for the call's sizes.

Capacity.  There is at most one path for each of `config.max_sizes` sizes, and less than `config.max_entries` more.  Calls beyond
that run eagerly, as users of torch.compile expect: recording every new path in turn would cost more than it gains.  Paths that
have served no call since the last search make room (`drop_unused`); tier_policy.py decides when to search.

Interrupts and threads: data that belong together are written by assignments in a row, between which CPython calls nothing.  So
neither an exception of a signal handler nor another thread sees half of a change.  Tuples of paths are replaced as a whole.  A
race of threads may lose which path is tried first, but never a result, since each path checks its own guards.

The table must not know why a path is recorded, dropped or skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto
from itertools import chain
from typing import Any, Final, NamedTuple

from tracejit.capture.recording.entry import MISS, Exit
from tracejit.compiled.dispatch import FALLBACK, SERVE, fallback_call, nothing_recorded
from tracejit.compiled.pieces import Pieces
from tracejit.compiled.recorded_path import RecordedPath
from tracejit.compiled.symbolic_paths import SymbolicPaths, of_tensors
from tracejit.config import config
from tracejit.cpython.dispatcher import FRONT, SIZED
from tracejit.cpython.size_table import Reach, Shapes, SizeTable
from tracejit.report.performance import Advice

__all__ = ["MANY_PATHS", "FunctionState", "PathTable", "Serve", "ServeByState"]

MANY_PATHS: Final = 64
_FEW_PATHS: Final = 8
_MOST_OTHERS: Final = 15
"""Paths that machine code tries after the first one; each takes about as long as a guard or two."""

Serve = Callable[[tuple[Any, ...], dict[str, Any]], Any]


class FunctionState(Enum):
    """The state of a compiled function: what the SERVE slot does with a call.

    ::

                  a path is installed
        FRESH ----------------------------> SERVING
          ^ <---------------------------------+ |
          |     the first path is dropped       | the steps of a loop branch differently (from FRESH, too)
          |                                     v
          +------------------------------- IN_PIECES
                the function is redefined

        FRESH, SERVING or IN_PIECES -- it does not pay (or nothing can be recorded) --> RESTING -- so many calls later --> back
        FRESH, SERVING or IN_PIECES -- a warning is due ------------------------------> WARNING -- the next call --------> back
        any of them ----------------- a path has become machine code ------------------> STALE ---- the next call --------> back

    `clear()` leads to FRESH.  `PathTable.set_first` decides which state "back" is."""

    FRESH = auto()
    """There is no path to try first."""
    SERVING = auto()
    """Tries the first path, or the first one for the sizes of the call."""
    IN_PIECES = auto()
    """Calls the function in pieces (pieces.py)."""
    RESTING = auto()
    """Calls the function itself, for a number of calls that machine code counts down."""
    WARNING = auto()
    """Gives a warning, then serves the call."""
    STALE = auto()
    """Fills the slots again, which do not have the machine code of some path yet, then serves the call."""


# Globals, since reading an attribute of an Enum takes 0.1 us on Python 3.11.
_FRESH, _SERVING, _IN_PIECES, _RESTING, _WARNING, _STALE = FunctionState


class ServeByState(NamedTuple):
    """The SERVE slots of the states in which no path is tried first.  Each returns what a path returns (a result, MISS or an
    Exit), or UNSERVED."""

    in_pieces: Serve
    resting: Serve
    warning: Serve
    stale: Serve


class PathTable:
    """The table of one function.  paths: all paths.  first: the one that is tried first.  by_sizes: sizes of arguments -> the
    paths for these, the one that is tried first in front.  size_table: the same for machine code.  symbolic: the recordings
    with symbolic sizes. pieces: set while the function runs in pieces.  serve_by_state: set once, before the first call."""

    __slots__ = (
        "_advice", "_fronts", "_is_stale", "by_sizes", "first", "paths", "pieces", "serve_by_state", "size_table", "slots", "state",
        "symbolic",
    )  # fmt: skip

    def __init__(self, slots: list[Any], symbolic: SymbolicPaths, advice: Advice) -> None:
        """slots: of the dispatcher.  advice: knows whether a warning is due."""
        self.slots = slots
        self.symbolic = symbolic
        self._advice = advice
        self.serve_by_state: ServeByState
        self._is_stale = False
        self.pieces: Pieces | None
        self.paths: tuple[RecordedPath, ...]
        self.by_sizes: dict[Shapes, tuple[RecordedPath, ...]]
        self.size_table: SizeTable
        self._fronts: dict[RecordedPath, tuple[Any, ...] | None]  # what machine code tries where a path is the first one
        self._empty()
        self.state: FunctionState = _FRESH
        self.first: RecordedPath | None = None

    def _empty(self, pieces: Pieces | None = None) -> None:
        self.pieces, self.paths, self.by_sizes, self.size_table, self._fronts = pieces, (), {}, SizeTable(), {}

    def clear(self, reach: Reach | None = None) -> None:
        """Reset to the state before the first call.  reach: what is looked at from now on, if not what has been."""
        dropped = self.paths
        self._is_stale = False
        self._empty()
        self.symbolic = SymbolicPaths(self.symbolic.dynamic, reach or self.symbolic.reach)
        self.set_first(None)
        _drop(dropped)

    # -- lookup
    def serve(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call, or UNSERVED."""
        result = self.slots[SERVE](args, kwargs)
        return result if result.__class__ is not Exit else self.slots[FALLBACK](args, kwargs, result.number)

    def set_first(self, path: RecordedPath | None) -> None:
        """Try this path first from now on (none, if the function runs in pieces).  Leaves the states RESTING, WARNING and STALE,
        unless there is still a reason for WARNING or STALE."""
        slots, machine, sized = self.slots, None, None
        serve: Serve
        if self.pieces is not None:
            path, state, serve = None, _IN_PIECES, self.serve_by_state.in_pieces
        elif path is None:
            state, serve = _FRESH, nothing_recorded
        else:
            if path not in self._fronts:
                self._fronts[path] = self._tried(path, self.paths)
            state, serve, machine = _SERVING, path.run, self._fronts[path]
            if len(self.by_sizes) > 1:
                serve = self._serve_by_sizes
                sized = self.size_table.items if self.symbolic.reach is Reach.ALL else None  # machine code looks at all
        self.state, self.first, slots[SERVE], slots[FRONT], slots[SIZED] = state, path, serve, machine, sized
        # Read after the slots are filled, since the background thread sets the mark before the slot (mark_stale).
        if self._is_stale and path is not None:
            self.state, slots[SERVE] = _STALE, self.serve_by_state.stale
        if self._advice.is_due:
            self.state, slots[SERVE], slots[FRONT], slots[SIZED] = _WARNING, self.serve_by_state.warning, None, None

    def set_first_for(self, sizes: Shapes, path: RecordedPath) -> None:
        """Try this path first for arguments of these sizes from now on."""
        known = self.by_sizes.get(sizes, ())
        if known[:1] != (path,):
            self.by_sizes[sizes] = (path, *[other for other in known if other is not path])
            self._put_in_size_table(sizes, path)

    def _put_in_size_table(self, sizes: Shapes, path: RecordedPath) -> None:
        # Machine code looks paths up by the shapes of tensors alone, without integers.
        alike = [found for key, found in self.by_sizes.items() if of_tensors(key) == of_tensors(sizes)]
        if (tried := self._tried(path, dict.fromkeys(chain(*alike)))) is not None:
            self.size_table.put(of_tensors(sizes), tried)

    def _tried(self, path: RecordedPath, others: Iterable[RecordedPath]) -> tuple[Any, ...] | None:
        """What machine code tries (cpython/dispatcher.py): this path, then others, those that have served most first; None if this
        path is no machine code."""
        if path.machine is None:
            return None
        known = sorted(
            [other for other in others if other is not path and other.machine is not None], key=lambda other: -other.uses
        )
        return fallback_call(self.slots, path), path.machine, *[other.machine for other in known[:_MOST_OTHERS]]

    def _serve_by_sizes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        paths = self.by_sizes.get(self.symbolic.shapes(args, kwargs))
        path = self.first = self.first if paths is None else paths[0]
        return MISS if path is None else path.serve(args, kwargs)

    def sizes_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Shapes | None:
        """The sizes of a call's arguments, before it has changed any; None where it does not matter, since to find them takes longer than
        to try some paths."""
        return self.symbolic.shapes(args, kwargs) if len(self.paths) > _FEW_PATHS or len(self.by_sizes) > 1 else None

    def candidates(self, sizes: Shapes | None) -> tuple[RecordedPath, ...]:
        """The paths to try for a call of these sizes (`sizes_of`) that the first one and its bridges do not serve."""
        paths = self.paths
        if sizes is None or len(paths) <= _FEW_PATHS:
            return paths
        of_sizes = self.by_sizes.get(sizes, ())
        if len(paths) > MANY_PATHS:
            return of_sizes
        return (*of_sizes, *[path for path in paths if not path.is_sized and path not in of_sizes])

    # -- states in which the slots have no path
    def rest(self) -> None:
        """Enter RESTING: no path is tried until `set_first` is called."""
        slots = self.slots
        self.state, slots[SERVE], slots[FRONT], slots[SIZED] = _RESTING, self.serve_by_state.resting, None, None

    def mark_stale(self) -> None:
        """Enter STALE: the next call that machine code does not serve fills the slots again.  May be called by any thread."""
        self._is_stale = True
        self.state, self.slots[SERVE] = _STALE, self.serve_by_state.stale

    def refresh(self) -> None:
        """Fill the slots, and the size table, with the machine code that paths have now."""
        self._is_stale = False
        self._fronts.clear()
        for sizes, paths in list(self.by_sizes.items()):
            self._put_in_size_table(sizes, paths[0])
        self.set_first(self.first)

    def drop_all(self) -> tuple[RecordedPath, ...]:
        """Drop all paths and return them: the function is recorded anew."""
        dropped = self.paths
        self._empty()
        self.set_first(None)
        _drop(dropped)
        return dropped

    def enter_pieces(self, pieces: Pieces) -> tuple[RecordedPath, ...]:
        """Enter IN_PIECES.  Drops all paths and returns them."""
        dropped = self.paths
        self._empty(pieces)
        self.set_first(None)
        _drop(dropped)
        return dropped

    def leave_pieces(self) -> None:
        """Leave IN_PIECES: the function is recorded as a whole again."""
        self.pieces = None
        self.set_first(None)

    # -- capacity
    def add(self, path: RecordedPath, sizes: Shapes, exited: RecordedPath | None, number: int) -> None:
        """Add a new path, recorded for a call of these sizes.  exited, number: the path that this call had left, and the exit;
        None if all paths had missed."""
        self.paths = (*self.paths, path)
        self._fronts.clear()
        if exited is not None:
            exited.bridges[number] = path
            self.by_sizes[sizes] = (*self.by_sizes.get(sizes, ()), path)
        else:
            if self.first is not None:
                self.first.bridges[0] = path
            self.set_first_for(sizes, path)
            self.set_first(path)

    def is_full(self, sizes: Shapes | None = None) -> bool:
        """Whether there is no room for another path for these sizes.  None: whether there is none for sizes that have a path, or
        none for new sizes."""
        paths, sized = len(self.paths), len(self.by_sizes)
        if sizes is None or sizes in self.by_sizes:
            return paths - sized >= config.max_entries - 1 or (sizes is None and sized >= config.max_sizes)
        return sized >= config.max_sizes or paths >= config.max_sizes + config.max_entries

    def drop_unused(self) -> list[RecordedPath]:
        """Drop the paths that have served no call since the last time, and return them."""
        kept = tuple([path for path in self.paths if path.uses != path.uses_seen])
        dropped = [path for path in self.paths if path not in kept]
        for path in kept:
            path.uses_seen = path.uses
            path.unlink(dropped)
            path.unbridged = [0, 0]
        sized = {sizes: tuple([path for path in paths if path in kept]) for sizes, paths in self.by_sizes.items()}
        self.paths, self.by_sizes, self.size_table = kept, {sizes: paths for sizes, paths in sized.items() if paths}, SizeTable()
        self.first = self.first if self.first in kept else None
        self.refresh()
        _drop(dropped)
        return dropped


def _drop(paths: Iterable[RecordedPath]) -> None:
    for path in paths:
        path.drop()
