"""The branches of a recording that values decide, and the rule by which a recording is given up because of them.

A branch in a loop whose outcome differs from step to step makes 2**n paths of n steps, so no later call takes the path that is
being recorded.  Recording costs several times as much as an eager call, and compiling a long graph costs more than that.  So a
recording is given up when it is long and the outcomes of one of its branches have alternated often enough.  A `while` loop whose
condition depends on values has one path for each trip count; it is given up when the recording is longer still.  Where the loop
can be outlined, so that the next recording has it as one node, both is decided after fewer steps.  So is it for a loop whose steps
leave gradients in leaves: a recording of all its steps is as long as a training run.

A branch is identified by the current instructions of all frames of instrumented code.  So the runs of a line in a loop are one
branch, and runs of a function for different callers are different branches.  This module must not know what follows when a
recording is given up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, Final

from tracejit.capture.call_sites import instrumented_frames
from tracejit.capture.syntax.convert import ends_while, original_of
from tracejit.capture.syntax.outlined_loops import may_be_outlined
from tracejit.capture.syntax.pieces import Position
from tracejit.core.package_files import is_own_frame

__all__ = ["Branch", "Branches", "Recursion", "Site"]

_RUNS: Final = 16
"""A branch with fewer runs does not end a recording."""
_RUNS_OUTLINED: Final = 6
"""The same of a branch in a loop that can be outlined."""
_ALTERNATIONS: Final = 2
_LONG: Final = 750
"""Number of nodes from which a recording is given up if the outcomes of a branch alternate."""
_LONGER: Final = 2000
"""Number of nodes from which it is given up if values decide the trip count of a `while` loop."""
_LONG_OUTLINED: Final = 100
_LONGER_OUTLINED: Final = 400
"""The same of loops that can be outlined."""
_LONGEST_OUTLINED: Final = 1500
"""Number of nodes from which it is given up if a loop can be outlined, and values decide a branch in each of its steps."""
_PASSES: Final = 6
"""The number of backward passes that leave gradients in one leaf from which a recording is given up if the loop around them can be
outlined."""
_SHOWN: Final = 4
"""Number of outcomes that a branch keeps for its message."""


@dataclass(frozen=True, slots=True)
class Site:
    """A line that was running in a function of the user.  code: of the function, None if unknown; names: its globals; position: of
    the expression that was running."""

    code: CodeType | None
    file: str
    line: int
    names: dict[str, Any] | None = field(default=None, repr=False, compare=False)
    position: Position = field(default=(None, None, None, None), repr=False, compare=False)


class Branch:
    """A branch that values decide.

    sites: the lines at which the functions of the user were, the outermost first.  runs: number of decisions.  alternations:
    number of decisions whose outcome differed from the one before.  values: some of the outcomes, as texts.  ends_while: whether
    one of its outcomes ends a `while` loop.  is_fixed: whether numbers from outside decide it, which are most likely the same in
    the next call (attributes of layers).  calls_compiled: whether a function other than the first was called as a compiled
    function.  trains: whether it is no branch, but a backward pass that leaves gradients in leaves."""

    __slots__ = (
        "_is_in_loop", "_last", "alternations", "calls_compiled", "ends_while", "is_fixed", "runs", "sites", "trains", "values",
    )  # fmt: skip

    def __init__(
        self,
        sites: tuple[Site, ...],
        first: Any = None,
        ends_while: bool = False,
        is_fixed: bool = False,
        calls_compiled: bool = False,
    ) -> None:
        """first: its first outcome."""
        self.sites = sites
        self.is_fixed = is_fixed
        self.ends_while = ends_while
        self.calls_compiled = calls_compiled
        self.trains = False
        self.runs = self.alternations = 0
        self.values: list[str] = []
        self._last = first
        self._is_in_loop: bool | None = None

    @classmethod
    def at(cls, where: str) -> Branch:
        """A branch of which only the line, "file:line", is known."""
        file, _, line = where.rpartition(":")
        return cls((Site(None, file, int(line or 0)),))

    def add(self, outcome: Any) -> None:
        """Count one more decision."""
        self.runs += 1
        if outcome != self._last:
            self.alternations += 1
            self._last = outcome
        if len(self.values) < _SHOWN and (value := repr(outcome)) not in self.values:
            self.values.append(value)

    def has_run_long(self, nodes: int, gives_up_soon: bool) -> bool:
        """Whether a recording with so many nodes is to be given up because of this branch.  gives_up_soon: whether the loop
        around it may be a node of the next recording, or run in pieces."""
        if gives_up_soon:
            least = _LONG_OUTLINED if self.alternates else _LONGER_OUTLINED if self.ends_while else _LONGEST_OUTLINED
            return self.runs >= _RUNS_OUTLINED and nodes >= least
        return self.runs >= _RUNS and nodes >= (_LONG if self.alternates else _LONGER if self.ends_while else math.inf)

    def is_in_loop(self) -> bool:
        """Whether it is in a loop that can be outlined."""
        if self._is_in_loop is None:
            self._is_in_loop = any(x.code is not None and may_be_outlined(x.code, x.line, x.names) for x in self.sites)
        return self._is_in_loop

    @property
    def where(self) -> str:
        """The innermost "file:line"."""
        return f"{self.sites[-1].file}:{self.sites[-1].line}"

    @property
    def alternates(self) -> bool:
        """Whether its outcome changes from run to run, and so most likely from call to call."""
        return self.alternations >= _ALTERNATIONS and not self.is_fixed

    def text(self) -> str:
        """The reason for giving up, for the user."""
        if self.trains:
            return f"each step of a loop takes gradients, {self.runs} in this call"
        if self.alternates:
            return f"a branch in a loop comes out in different ways ({', '.join(self.values)}) from step to step"
        if self.ends_while:
            return f"values decide how many steps a loop has, {self.runs} in this call"
        return f"values decide a branch in each step of a loop, {self.runs} in this call"


class Recursion:
    """The recursive calls of one recording: calls of functions that are running already.

    calls: by code of functions, where they call what leads to a recursive call: the position of the call or of its callee, and the
    name of the function that is called.  functions: the codes of those that are called recursively, directly or by others.
    has_branches: whether values have decided a branch in these, or in what they call.  shape: equal for recordings whose recursive
    calls come in the same order."""

    __slots__ = ("calls", "functions", "has_branches", "shape")

    def __init__(self) -> None:
        self.calls: dict[CodeType, set[tuple[Position, str]]] = {}
        self.functions: set[CodeType] = set()
        self.has_branches = False
        self.shape = 0

    def note(self, sites: Sequence[Site], callee: CodeType) -> None:
        """Note a call of `callee`.  sites: where the functions that are running call the next one."""
        codes = [site.code for site in sites]
        if callee not in codes:
            return
        self.functions.update([code for code in codes[codes.index(callee) :] if code is not None])
        for site, called in zip(sites, [*codes[1:], callee], strict=True):
            if site.code is not None and called is not None:
                self.calls.setdefault(site.code, set()).add((site.position, called.co_name))
        self.shape = hash((self.shape, len(sites), sites[-1].line))

    def is_around(self, branch: Branch) -> bool:
        """Whether a branch is in one of these functions, or in what they call."""
        return any(site.code in self.functions for site in branch.sites)


class Branches:
    """The branches of one recording.

    may_give_up: whether they may end the recording; if not, they are only counted.  gives_up_soon: whether few steps of a loop are
    enough for that.  may_outline: whether the next recording may outline loops.  recursion: of functions that call themselves."""

    def __init__(self, unwatched: Callable[[Callable[[], bool]], bool]) -> None:
        """unwatched: calls a function that is not a part of the recorded call."""
        self.may_give_up = self.gives_up_soon = self.may_outline = False
        self.recursion = Recursion()
        self._unwatched = unwatched
        self._branches: dict[tuple[Any, ...], Branch] = {}  # by the current instructions of the frames
        self._gradients: dict[int, int] = {}  # how many have arrived at a leaf, by its id; a recording keeps leaves alive
        self._compiled: set[CodeType] = set()  # of functions that were called as compiled ones
        self._positions: dict[tuple[CodeType, int], Position] = {}  # by instrumented code and instruction

    def follow(self, function: Any) -> None:
        """Note that the recorded call calls `function`, a compiled function, which the recording follows."""
        while type(function) is MethodType:
            function = function.__func__
        function = function if type(function) is FunctionType else getattr(type(function), "forward", None)
        if type(function) is FunctionType:
            self._compiled.add(function.__code__)

    def note(self, outcome: Any, nodes: int, is_fixed: bool) -> str:
        """Note the outcome of the branch at which the user's code is.  nodes: number of nodes of the recording.  is_fixed: see
        Branch.  Returns why the recording is to be given up; "" if it is not."""
        frames = list(instrumented_frames())
        key = tuple([x for frame in frames for x in (id(frame.f_code), frame.f_lasti)])
        branch = self._branches.get(key)
        if branch is None:
            branch = self._branches[key] = self._new_branch(outcome, frames, is_fixed)
            self.recursion.has_branches |= self.recursion.is_around(branch)
        branch.add(outcome)
        if not self.may_give_up or branch.is_fixed:
            return ""
        gives_up_soon = self.gives_up_soon and branch.has_run_long(nodes, True) and self._unwatched(branch.is_in_loop)
        return branch.text() if branch.has_run_long(nodes, gives_up_soon) else ""

    def note_gradient(self, leaf: Any) -> str:
        """Note that a backward pass of the user's code has sent a gradient to a leaf.  Returns what `note` does."""
        passes = self._gradients[id(leaf)] = self._gradients.get(id(leaf), 0) + 1
        if passes != _PASSES or not (self.may_give_up and self.may_outline):
            return ""
        branch = self._new_branch(None, list(instrumented_frames()), is_fixed=False)
        branch.trains, branch.runs = True, passes
        if not self._unwatched(branch.is_in_loop):
            return ""
        self._branches["backward", id(leaf)] = branch
        return branch.text()

    def note_call(self, code: CodeType) -> None:
        """Note that the user's code calls a function.  code: its instrumented code."""
        frames = list(instrumented_frames())
        if any(frame.f_code is code for frame in frames) and (callee := original_of(code)) is not None:
            self.recursion.note(self._sites(frames), callee)

    def in_program(self) -> tuple[Branch, ...]:
        """The branches in functions of the user that were decided more than once."""
        return tuple([branch for branch in self._branches.values() if branch.runs > 1 and branch.sites])

    def _new_branch(self, outcome: Any, frames: list[FrameType], is_fixed: bool) -> Branch:
        """frames: of instrumented code, the innermost first."""
        of_program = [x for x in frames if not is_own_frame(x)]
        sites = self._sites(of_program)
        is_end = bool(of_program) and ends_while(of_program[0].f_code, of_program[0].f_lineno)
        calls_compiled = any(site.code in self._compiled for site in sites[1:])
        return Branch(sites, outcome, is_end, is_fixed, calls_compiled)

    def _sites(self, frames: Iterable[FrameType]) -> tuple[Site, ...]:
        """The lines at which functions of the user are, the outermost first.  frames: of instrumented code, the innermost first."""
        sites: list[Site] = []
        inner = None  # the frame of a comprehension, which counts as a part of the function around it
        for frame in frames:
            if is_own_frame(frame):
                continue
            inner = inner or frame
            code = original_of(frame.f_code)
            if code is not None:
                sites.append(Site(code, code.co_filename, inner.f_lineno, frame.f_globals, self._position(inner)))
                inner = None
        return tuple(reversed(sites))

    def _position(self, frame: FrameType) -> Position:
        """Where a frame is."""
        key = frame.f_code, frame.f_lasti
        if key not in self._positions:
            self._positions[key] = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
        return self._positions[key]
