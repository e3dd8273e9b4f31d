"""Where a recording went one way or another by values, and when it is not worth going on with.

A branch in a loop that comes out one way in some steps and another way in others makes 2**n paths of n steps: no later call takes the one
that is being recorded.  Recording costs several times what an eager call does, and compiling a long graph more than that, so a recording
that has become long is given up once one of its branches has come out this way and that often enough.  A `while` loop that values end has
one path for each trip count: it is given up where it has become longer still.

A branch is told by the instructions at which all frames of instrumented code stand, so each run of a line in a loop is the same one, and
runs of one function for different callers are not.  It must not know what is made of that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, Final

from tracejit.capture.call_sites import instrumented_frames
from tracejit.capture.syntax.convert import ends_while, original_of
from tracejit.core.package_files import is_own_frame

__all__ = ["Branch", "Branches", "Site"]

_RUNS: Final = 16
"""Of a branch, before it is blamed."""
_ALTERNATIONS: Final = 2
_LONG: Final = 750
"""Nodes of a recording that is given up where steps of a loop go different ways."""
_LONGER: Final = 2000
"""The same where it is the number of steps alone that values decide."""
_SHOWN: Final = 4


@dataclass(frozen=True, slots=True)
class Site:
    """A line that runs in a function of the program.  code: of the function, None where it is not known; names: its globals."""

    code: CodeType | None
    file: str
    line: int
    names: dict[str, Any] | None = field(default=None, repr=False, compare=False)


class Branch:
    """sites: the lines at which the functions of the program stood, the outermost first.  runs: how often it was decided; alternations: how
    often otherwise than the last time.  values: some of those that decided.  ends_while: whether one of its outcomes ends a `while` loop.
    is_fixed: whether it was decided by numbers from outside, which are most likely the same in the next call (attributes of layers).
    calls_compiled: whether one of the functions but the first was called as a compiled one."""

    __slots__ = ("_last", "alternations", "calls_compiled", "ends_while", "is_fixed", "runs", "sites", "values")

    def __init__(
        self,
        sites: tuple[Site, ...],
        first: Any = None,
        ends_while: bool = False,
        is_fixed: bool = False,
        calls_compiled: bool = False,
    ) -> None:
        """first: how it comes out when it is decided first."""
        self.sites = sites
        self.is_fixed = is_fixed
        self.ends_while = ends_while
        self.calls_compiled = calls_compiled
        self.runs = self.alternations = 0
        self.values: list[str] = []
        self._last = first

    @classmethod
    def at(cls, where: str) -> Branch:
        """One at "file:line", of which nothing else is known."""
        file, _, line = where.rpartition(":")
        return cls((Site(None, file, int(line or 0)),))

    def add(self, outcome: Any) -> None:
        """It was decided once more."""
        self.runs += 1
        if outcome != self._last:
            self.alternations += 1
            self._last = outcome
        if len(self.values) < _SHOWN and (value := repr(outcome)) not in self.values:
            self.values.append(value)

    def is_hopeless(self, nodes: int) -> bool:
        """Whether no later call takes the path of a recording that has so many nodes."""
        if self.runs < _RUNS or self.is_fixed:
            return False
        return nodes >= (_LONG if self.alternates else _LONGER if self.ends_while else math.inf)

    @property
    def where(self) -> str:
        """The innermost "file:line"."""
        return f"{self.sites[-1].file}:{self.sites[-1].line}"

    @property
    def alternates(self) -> bool:
        """Whether it came out this way and that from one run to the next, and will otherwise in the next call."""
        return self.alternations >= _ALTERNATIONS and not self.is_fixed

    def text(self) -> str:
        """What is wrong with it, for a reader."""
        if self.alternates:
            return f"a branch in a loop comes out in different ways ({', '.join(self.values)}) from step to step"
        return f"values decide how many steps a loop has, {self.runs} in this call"


class Branches:
    """Those of one recording.  may_give_up: whether this is a reason to end it; where not, they are counted."""

    def __init__(self) -> None:
        self.may_give_up = False
        self._found: dict[tuple[Any, ...], Branch] = {}
        self._compiled: set[CodeType] = set()

    def follow(self, function: Any) -> None:
        """The recording follows this function, which is called as a compiled one."""
        while type(function) is MethodType:
            function = function.__func__
        function = function if type(function) is FunctionType else getattr(type(function), "forward", None)
        if type(function) is FunctionType:
            self._compiled.add(function.__code__)

    def note(self, outcome: Any, nodes: int, is_fixed: bool) -> str:
        """The program is at a branch, which has come out so, and the recording has so many nodes.  is_fixed: see Branch.  Why the recording
        is to be given up; empty where it goes on."""
        frames = list(instrumented_frames())
        key = tuple([x for frame in frames for x in (id(frame.f_code), frame.f_lasti)])
        branch = self._found.get(key)
        if branch is None:
            branch = self._found[key] = self._begun(outcome, frames, is_fixed)
        branch.add(outcome)
        return branch.text() if self.may_give_up and branch.is_hopeless(nodes) else ""

    def in_program(self) -> tuple[Branch, ...]:
        """Those in functions of the program that were decided more than once."""
        return tuple([branch for branch in self._found.values() if branch.runs > 1 and branch.sites])

    def _begun(self, outcome: Any, frames: list[FrameType], is_fixed: bool) -> Branch:
        """frames: the innermost first."""
        sites: list[Site] = []
        of_program = [x for x in frames if not is_own_frame(x)]
        line = None  # in a comprehension, which is part of the function around it
        for frame in of_program:
            line = frame.f_lineno if line is None else line
            code = original_of(frame.f_code)
            if code is not None:
                sites.append(Site(code, code.co_filename, line, frame.f_globals))
                line = None
        is_end = bool(of_program) and ends_while(of_program[0].f_code, of_program[0].f_lineno)
        calls_compiled = any(site.code in self._compiled for site in sites[:-1])
        return Branch(tuple(reversed(sites)), outcome, is_end, is_fixed, calls_compiled)
