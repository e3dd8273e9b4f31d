"""One program, eager and some other ways: what differs, and what was replayed."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType
from typing import Any

import tracejit
from tests.fuzz.compare import Difference, compare
from tests.fuzz.noise import rounding_noise
from tests.fuzz.run import EAGER, ROUNDS, WAYS, Log, Program, Way, run

__all__ = ["Endless", "Outcome", "check", "ways_of"]

# What is run how often.  A program that is recorded and replayed by the interpreter has passed all of capture, at a fraction of the time.
SHARES = (("interpret cold", 0.5), ("reference cold", 0.15), ("llvm cold", 0.15), ("llvm hot", 0.2))


ENDLESS = 10.0  # seconds


class Endless(BaseException):
    """A program does not end.  No program catches it."""


@contextmanager
def _patience(seconds: float) -> Iterator[None]:
    """Raise Endless in what takes longer; only around eager calls, and where signals are received."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(signal_number: int, frame: object) -> None:
        raise Endless

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@dataclass
class Outcome:
    """What became of a program.  calls and replays: in the witnessed round, of calls that return, over all ways."""

    difference: Difference | None = None
    way: str = ""
    unstable: bool = False
    calls: int = 0
    replays: int = 0
    total_calls: int = 0
    reasons: tuple[str, ...] = ()


def ways_of(seed: int) -> list[Way]:
    """How the program of a seed is run."""
    return [WAYS[random.Random(seed * 7 + 1).choices([n for n, _ in SHARES], [w for _, w in SHARES])[0]]]


def check(
    program: Program,
    ways: Sequence[Way],
    *,
    rounds: int = ROUNDS,
    compiler: Callable[[Any], Any] = tracejit.compile,
    witnessed: bool = True,
) -> Outcome:
    """Compare all ways with eager; the first difference ends it."""
    code = program.code()
    with _patience(ENDLESS):
        eager = run(program, code, EAGER, rounds=rounds, witnessed=witnessed)
    outcome = Outcome(total_calls=len(eager.seen) * (1 + len(ways)))
    for way in ways:
        log = run(program, code, way, rounds=rounds, compiler=compiler, witnessed=witnessed)
        difference, unstable = compare(eager.seen, log.seen, _noisy(program, code, rounds, witnessed))
        outcome.unstable |= unstable
        if difference is None:
            difference = _alarmed(eager, log)
        outcome.reasons += log.reasons
        for replayed, returned in zip(log.replayed, eager.returned[-len(log.replayed) :] if log.replayed else (), strict=True):
            outcome.calls += returned
            outcome.replays += replayed and returned
        if difference is not None:
            outcome.difference, outcome.way = difference, str(way)
            break
    return outcome


def _alarmed(eager: Log, other: Log) -> Difference | None:
    """What NumPy warned of in a compiled call, and not in the eager one.  What nobody asks for is not computed, so it may warn of less."""
    for number, (mine, theirs) in enumerate(zip(eager.alarms, other.alarms, strict=True)):
        if not theirs <= mine:
            return Difference(number, "alarms", "warnings of NumPy", repr(sorted(mine)), repr(sorted(theirs)))
    return None


def _noisy(program: Program, code: CodeType, rounds: int, witnessed: bool) -> Callable[[int], Any]:
    def noisy(seed: int) -> Any:
        with rounding_noise(seed):
            return run(program, code, EAGER, rounds=rounds, witnessed=witnessed).seen

    return noisy
