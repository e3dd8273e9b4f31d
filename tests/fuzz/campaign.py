"""Many programs: worker processes that take seeds in turn, and a summary that can be added up.

A worker is a process of its own for a few hundred seeds, so that a crash or an endless loop is one program's result like any other, and
nothing accumulates.  What a worker finds it makes smaller before it goes on.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz.check import Endless, check, ways_of
from tests.fuzz.generate import written
from tests.fuzz.run import WAYS, Program, Way
from tests.fuzz.shrink import shrink

__all__ = ["Summary", "campaign", "examine", "reproducer", "work"]

CHUNK = 400  # at most so many seeds of one process
PATIENCE = 300.0  # seconds without a word from a worker, which may be making a program smaller
SHRINKS = 4  # failures of one kind that a process makes smaller


@dataclass
class Result:
    """What became of the program of a seed."""

    seed: int
    way: str = ""
    signature: str = ""
    difference: str = ""
    text: str = ""
    endless: bool = False
    unstable: bool = False
    must_replay: bool = False
    calls: int = 0
    replays: int = 0
    total_calls: int = 0
    reasons: tuple[str, ...] = ()
    used: tuple[str, ...] = ()


@dataclass
class Summary:
    """Results added up."""

    programs: int = 0
    total_calls: int = 0
    endless: int = 0
    unstable: int = 0
    must: int = 0
    calls: int = 0
    replays: int = 0
    all_calls: int = 0
    all_replays: int = 0
    seconds: float = 0.0
    failing: list[int] = field(default_factory=list)
    differences: Counter[str] = field(default_factory=Counter)
    not_replayed: Counter[str] = field(default_factory=Counter)
    ways: Counter[str] = field(default_factory=Counter)
    used: Counter[str] = field(default_factory=Counter)

    def add(self, result: Result) -> None:
        """One more program."""
        self.programs += 1
        self.total_calls += result.total_calls
        self.endless += result.endless
        self.unstable += result.unstable
        self.ways[result.way] += 1
        self.used.update(result.used)
        if result.signature:
            self.differences[result.signature] += 1
            self.failing.append(result.seed)
        self.all_calls += result.calls
        self.all_replays += result.replays
        if result.must_replay:
            self.must += 1
            self.calls += result.calls
            self.replays += result.replays
            if result.replays < result.calls:
                self.not_replayed.update(result.reasons or ("no reason",))

    @property
    def share(self) -> float:
        """The share of calls that were replayed, of those that should be."""
        return self.replays / self.calls if self.calls else 0.0

    def __str__(self) -> str:
        rate = self.programs / max(self.seconds, 1e-9)
        every = f"{self.all_replays} of {self.all_calls} of all programs"
        must = f"{self.replays} of {self.calls} calls of {self.must} programs that should be ({self.share:.1%})"
        lines = [
            f"{self.programs} programs, {self.total_calls} calls in {self.seconds:.0f} s ({rate:.1f} programs a second)",
            f"ways: {_counts(self.ways)}",
            f"replayed: {must}, {every}; otherwise: {_counts(self.not_replayed)}",
            f"explained by roundings at a decision: {self.unstable} programs; given up, for eager took too long: {self.endless}",
            f"differences: {sum(self.differences.values())} ({_counts(self.differences)})",
        ]
        return "\n".join(lines)


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {n}" for name, n in counter.most_common(12)) or "none"


def examine(
    seed: int, ways: Sequence[Way] | None = None, *, shrinking: Callable[[str], bool] = lambda signature: False
) -> Result:
    """Run the program of a seed; what differs is made smaller if `shrinking` says so for its signature."""
    program, maker = written(seed)
    ways = ways or ways_of(seed)
    outcome = check(program, ways)
    result = Result(seed, str(ways[0]), must_replay=program.must_replay, used=tuple(maker.used))
    result.unstable, result.reasons = outcome.unstable, outcome.reasons
    result.calls, result.replays, result.total_calls = outcome.calls, outcome.replays, outcome.total_calls
    if outcome.difference is not None:
        result.signature, result.difference, result.text = outcome.difference.signature, str(outcome.difference), program.text
        if shrinking(result.signature):
            result.way, result.text, result.difference = reproducer(program, outcome.way, result.signature)
    return result


def reproducer(program: Program, way: str, signature: str, seconds: float = 40.0) -> tuple[str, str, str]:
    """(way, text, difference): the simplest way and a small program that differ as the given one does."""

    def difference(text: str, name: str, rounds: int) -> Any:
        try:
            candidate = Program(text, "shrunk", most_elements=program.most_elements)
            found = check(candidate, [WAYS[name]], rounds=rounds, witnessed=rounds > 3).difference
        except (Exception, Endless):
            return None
        return found if found is not None and found.signature == signature else None

    candidates = [(name, rounds) for name in dict.fromkeys(["interpret cold", "llvm cold", way]) for rounds in (1, 2, 3, 4)]
    for name, rounds in candidates:
        if difference(program.text, name, rounds):
            break
    else:
        return way, program.text, "not seen again"
    text = shrink(program.text, lambda candidate: difference(candidate, name, rounds) is not None, seconds)
    return name, text, str(difference(text, name, rounds))


def work(seeds: Sequence[int], ways: Sequence[Way] | None, shrinking: bool = True) -> Iterator[dict[str, Any]]:
    """What a worker says: {"begin": seed}, then the result, for each seed."""
    met: Counter[str] = Counter()

    def once_more(signature: str) -> bool:
        met[signature] += 1
        return shrinking and met[signature] <= SHRINKS

    for seed in seeds:
        yield {"begin": seed}
        try:
            yield asdict(examine(seed, ways, shrinking=once_more))
        except Endless:
            yield asdict(Result(seed, endless=True))
        except Exception as error:
            yield asdict(Result(seed, signature="harness", difference=f"{type(error).__name__}: {error}"))


class _Worker:
    """A process at work on some seeds."""

    def __init__(self, seeds: range, arguments: Sequence[str]) -> None:
        command = [sys.executable, "-W", "ignore", "-m", "tests.fuzz", "--worker", f"{seeds.start}:{seeds.stop}", *arguments]
        environment = {**os.environ, "TRACEJIT_CACHE": "0", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0, env=environment)
        self.unread = b""
        self.seeds = seeds
        self.current = seeds.start
        self.heard = time.monotonic()

    def said(self) -> list[dict[str, Any]] | None:
        """What it said since it was last listened to; None at its end."""
        self.heard = time.monotonic()
        received = os.read(self.process.stdout.fileno(), 1 << 20)  # type: ignore[union-attr]
        *lines, self.unread = (self.unread + received).split(b"\n")
        return [json.loads(line) for line in lines] if received else None

    def left(self) -> range:
        """The seeds after the current one."""
        return range(self.current + 1, self.seeds.stop)


def campaign(
    seeds: range,
    jobs: int,
    findings: Path | None,
    arguments: Sequence[str],
    report: Callable[[Result], None],
    progress: Callable[[Summary], None] = lambda summary: None,
) -> Summary:
    """Run the programs of seeds in worker processes.  Findings are appended to a file, one JSON object each.  progress: told after each
    program what there is so far."""
    summary = Summary()
    started = time.monotonic()
    chunk = max(1, min(CHUNK, -(-len(seeds) // jobs)))
    waiting = [range(s, min(s + chunk, seeds.stop)) for s in range(seeds.start, seeds.stop, chunk)]
    selector = selectors.DefaultSelector()
    workers: list[_Worker] = []

    def take(result: Result) -> None:
        summary.add(result)
        summary.seconds = time.monotonic() - started
        progress(summary)
        if result.signature:
            report(result)
            if findings is not None:
                with findings.open("a") as file:
                    file.write(json.dumps(asdict(result)) + "\n")

    def start(part: range) -> None:
        if len(part):
            worker = _Worker(part, arguments)
            workers.append(worker)
            selector.register(worker.process.stdout, selectors.EVENT_READ, worker)  # type: ignore[arg-type]

    def end(worker: _Worker, kind: str) -> None:
        selector.unregister(worker.process.stdout)  # type: ignore[arg-type]
        if kind:
            worker.process.kill()
        status = worker.process.wait()
        workers.remove(worker)
        if status:
            difference = "no word" if kind else "the process ended"
            take(Result(worker.current, signature=kind or f"crash {status}", difference=difference))
            start(worker.left())

    try:
        while waiting or workers:
            while waiting and len(workers) < jobs:
                start(waiting.pop(0))
            for key, _ in selector.select(timeout=5):
                worker: _Worker = key.data
                said = worker.said()
                if said is None:
                    end(worker, "")
                    continue
                for one in said:
                    if "begin" in one:
                        worker.current = one["begin"]
                    else:
                        take(Result(**one))
            for worker in [w for w in workers if time.monotonic() - w.heard > PATIENCE]:
                end(worker, "hang")
    finally:
        for worker in workers:
            worker.process.kill()
    summary.seconds = time.monotonic() - started
    return summary
