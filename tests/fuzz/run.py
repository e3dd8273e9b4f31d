"""Runs a program some way, and writes down what can be seen after every call.

A program is text that defines `target`, what is compiled; `calls`, functions of the compiled target; and `observe()`, the state of
its world.
Each run loads the text anew, so the worlds of different ways have nothing in common.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import random
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any
from unittest import mock

import numpy as np

import tracejit
from tests.fuzz.facts import Facts, facts
from tests.fuzz.values import environment
from tracejit.capture import tensors
from tracejit.capture.handlers import arrays, prologue_arrays
from tracejit.capture.session import record
from tracejit.compiled.compile import CompiledFunction
from tracejit.config import override
from tracejit.report.performance import Warned

__all__ = ["EAGER", "WAYS", "Log", "Program", "Way", "run"]

ROUNDS = 3
RECORD = record.__code__
LIBRARY = re.compile(
    r"\w+\(\)(: | is deprecated)"
)  # what the library itself warns of: when a call is recorded, not when it is replayed


@dataclass(frozen=True)
class Way:
    """A backend, and how many calls an entry serves before it becomes machine code (0: never).  outlines: whether all loops are taken
    for such whose steps take different paths (tracejit/capture/branching_loops.py) from the first recording on."""

    backend: str
    hot_calls: int
    outlines: bool = False

    def __str__(self) -> str:
        return f"{self.backend} {'hot' if self.hot_calls else 'cold'}{' outlined' if self.outlines else ''}"


EAGER = None
WAYS = {str(way): way for way in (Way("interpret", 0), Way("reference", 0), Way("numba", 0), Way("llvm", 0), Way("llvm", 1))}
OUTLINED = Way("llvm", 0, outlines=True)
WAYS[str(OUTLINED)] = OUTLINED


@dataclass
class Program:
    """Text, and what its writer knows of it.  `must_replay`: it holds nothing but what a compiler should replay.  `most_elements`: of how
    many elements of an array recordings take each by itself, for programs small as these to have arrays above that; None: as users have
    it."""

    text: str
    name: str = "program"
    must_replay: bool = False
    for_torch: bool = False
    uses: tuple[str, ...] = ()
    most_elements: int | None = None

    @property
    def filename(self) -> str:
        """Under which name its source is found."""
        return f"<fuzz {self.name}>"

    def code(self) -> CodeType:
        """The compiled text, with its source where capture looks for it.  Raises SyntaxError."""
        linecache.cache[self.filename] = (len(self.text), None, self.text.splitlines(keepends=True), self.filename)
        return compile(self.text, self.filename, "exec", dont_inherit=True)


@dataclass
class Log:
    """What was seen after each call, in all rounds; what the last calls left; and which calls of the last round were replayed.  alarms:
    what NumPy warned of in each call."""

    seen: list[Facts]
    replayed: list[bool]
    returned: list[bool]
    alarms: list[set[str]] = field(default_factory=list)
    reasons: tuple[str, ...] = ()
    stats: Any = None


@contextlib.contextmanager
def _limited(most_elements: int | None) -> Iterator[None]:
    """Have recordings take that many elements of an array each by itself."""
    with contextlib.ExitStack() as patches:
        for module in (arrays, prologue_arrays, tensors) if most_elements is not None else ():
            patches.enter_context(mock.patch.object(module, "MOST_ELEMENTS", most_elements))
        yield


@cache
def _names(framework: Any) -> dict[str, Any]:
    return environment(framework)


def run(
    program: Program,
    code: CodeType,
    way: Way | None,
    *,
    rounds: int = ROUNDS,
    compiler: Callable[[Any], Any] = tracejit.compile,
    framework: Any = tracejit,
    for_torch: bool = False,
    witnessed: bool = False,
) -> Log:
    """All calls, `rounds` times, and once more under the witness if that is asked for."""
    if way is None:
        return _run(program, code, lambda target: target, rounds, framework, for_torch, witnessed)
    with override(backend=way.backend, hot_calls=way.hot_calls, verify=True):
        outlining = _outlining(compiler, code, program.text.count("\n") + 1) if way.outlines else compiler
        return _run(program, code, outlining, rounds, tracejit, False, witnessed)


def _outlining(compiler: Callable[[Any], Any], code: CodeType, lines: int) -> Callable[[Any], Any]:
    """A compiler whose functions outline the loops of a program of so many lines."""

    def compiled(target: Any) -> Any:
        function = compiler(target)
        if isinstance(function, CompiledFunction):
            function._policy.branching_lines.update(dict.fromkeys(_nested(code), frozenset(range(1, lines + 1))))
        return function

    return compiled


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _run(
    program: Program,
    code: CodeType,
    compiler: Callable[[Any], Any],
    rounds: int,
    framework: Any,
    for_torch: bool,
    witnessed: bool,
) -> Log:
    random.seed(0)
    np.random.seed(0)
    framework.manual_seed(0)
    module = sys.modules["fuzzed"] = ModuleType("fuzzed")  # dataclasses look for the module of a class
    world = vars(module)
    world.update(_names(framework))
    log = Log([], [], [])
    given: list[Any] = []
    kept: list[Any] = []
    with (
        _limited(program.most_elements),
        contextlib.redirect_stdout(io.StringIO()) as printed,
        warnings.catch_warnings(record=True) as warned,
        mock.patch.object(
            Warned, "give", lambda *_: None
        ),  # what a compiled function says of itself, which may be an error in a program
    ):
        warnings.simplefilter("always")
        exec(code, world)
        if not callable(world["target"]):
            raise TypeError("a program defines `target`, a callable")
        compiled = compiler(world["target"])

        def function(*args: Any, **kwargs: Any) -> Any:
            given.append((args, kwargs))
            return compiled(*args, **kwargs)

        def one(call: Callable[[Any], Any], keep: bool) -> None:
            given.clear()
            try:
                outcome: tuple[Any, ...] = ("returned", call(function))
            except Exception as error:
                outcome = ("raised", type(error).__name__, "" if for_torch else str(error))
            log.returned.append(outcome[0] == "returned")
            text = printed.getvalue()
            printed.seek(0)
            printed.truncate()
            told: dict[str, Any] = {"printed": text}
            if not for_torch:
                of_program = [w for w in warned if w.category is not RuntimeWarning and not LIBRARY.match(str(w.message))]
                told["warned"] = [(w.category.__name__, str(w.message), Path(w.filename).name, w.lineno) for w in of_program]
            log.alarms.append({str(w.message) for w in warned if w.category is RuntimeWarning})
            warned.clear()
            log.seen.append(facts(for_torch, outcome=outcome, arguments=given, world=world["observe"](), **told))
            if keep:
                kept.append(outcome)

        try:
            for round_ in range(rounds):
                for number, call in enumerate(world["calls"]):
                    one(call, keep=(round_ + number) % 2 == 0)
            log.seen.append(facts(for_torch, kept=kept))
            if witnessed:
                log.returned.clear()
                for call in world["calls"]:
                    with _witness(program.filename, world["target"]) as entered:
                        one(call, keep=False)
                    log.replayed.append(not entered)
        finally:
            framework.set_grad_enabled(True)
    log.reasons = tuple(sorted({r.code for r in getattr(compiled, "reasons", ())}))
    log.stats = getattr(compiled, "stats", None)
    return log


@contextlib.contextmanager
def _witness(filename: str, target: Any) -> Iterator[list[str]]:
    """Notes whether Python of the target, or a recording, is entered.  A recording has a hook of its own, under which this one is blind."""
    entered: list[str] = []
    codes = set(_codes(target))

    def notice(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and (frame.f_code in codes or frame.f_code is RECORD):
            entered.append(frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(notice)
    try:
        yield entered
    finally:
        sys.setprofile(before)


def _codes(target: Any) -> Iterator[CodeType]:
    """The code that a call of the target begins with."""
    names = ("__call__", "forward")
    for found in (target, getattr(target, "__func__", None), *(vars(type(target)).get(name) for name in names)):
        code = getattr(found, "__code__", None)
        if code is not None:
            yield code
