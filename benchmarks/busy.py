"""What another busy process costs: training steps with large products and nests, alone and beside a process that computes.

Run as `python -m benchmarks.busy [--rounds N] [--processes N]`.  The steps are called for a while, a process that computes in Python is
started, they are called again, it is ended; so many rounds.  Printed are medians over all calls, and how many times as long a call takes
beside the process.  It competes for the processor with all threads that compute: with as many cores as there are, a step that uses all of
them has a share of them left, and what is beyond that is lost in waiting.  torch, where it is installed, runs the same source.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import tracejit
from benchmarks.environment import describe, one_line
from benchmarks.table import duration

__all__ = ["main"]

_SECONDS: Final = 0.5  # of calls of a step, in each round and state
_LONGEST: Final = 120  # seconds that the other process lives at most, should nobody end it
_SPINNING: Final = f"import time; end = time.time() + {_LONGEST}\nwhile time.time() < end: sum(range(10000))"


def _step(library: Any, hidden: int, batch: int) -> Callable[[], Any]:
    """A step of SGD of a network 784-hidden-10."""
    nn = library.nn
    library.manual_seed(0)
    network = nn.Sequential(nn.Linear(784, hidden), nn.ReLU(), nn.Linear(hidden, 10))
    optimizer = importlib.import_module(f"{library.__name__}.optim").SGD(network.parameters(), lr=0.01)
    x, labels = library.randn(batch, 784), library.randint(0, 10, (batch,))

    def step() -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(x), labels)
        loss.backward()
        optimizer.step()
        return loss

    return step


def _chain(library: Any) -> Callable[[], Any]:
    """Elementwise functions of a million numbers and their sum."""
    x = library.randn(1_000_000)
    return lambda: (x.tanh() * (-x * x).exp()).sum()


def _sides() -> dict[str, Callable[[], Any]]:
    sizes = {"MLP 784-512-10, batch 512": (512, 512), "MLP 784-128-10, batch 64": (128, 64)}
    sides: dict[str, Callable[[], Any]] = {}
    for name, (hidden, batch) in sizes.items():
        sides[f"{name}, compiled"] = tracejit.compile(_step(tracejit, hidden, batch))
        sides[f"{name}, eager"] = _step(tracejit, hidden, batch)
        if importlib.util.find_spec("torch"):
            sides[f"{name}, torch"] = _step(importlib.import_module("torch"), hidden, batch)
    sides["elementwise chain, compiled"] = tracejit.compile(_chain(tracejit))
    return sides


@contextmanager
def _busy(processes: int) -> Iterator[None]:
    """So many processes compute meanwhile."""
    started = [subprocess.Popen([sys.executable, "-c", _SPINNING]) for _ in range(processes)]
    try:
        time.sleep(0.2)  # they have started
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def _times(call: Callable[[], Any]) -> list[float]:
    figures: list[float] = []
    end = time.perf_counter() + _SECONDS
    while not figures or time.perf_counter() < end:
        begun = time.perf_counter()
        call()
        figures.append(time.perf_counter() - begun)
    return figures


def _measure(rounds: int, processes: int) -> dict[str, tuple[float, float, float]]:
    """Of each row the median time of a call alone and beside the processes, and the median of the rounds' ratios of the two."""
    sides = _sides()
    with tracejit.config.override(compile_wait=float("inf")):
        for call in sides.values():
            for _ in range(30):
                call()
    alone: dict[str, list[float]] = {name: [] for name in sides}
    beside: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, call in sides.items():
            alone[name].append(statistics.median(_times(call)))
        with _busy(processes):
            for name, call in sides.items():
                beside[name].append(statistics.median(_times(call)))
    return {
        name: (
            statistics.median(alone[name]),
            statistics.median(beside[name]),
            statistics.median([b / a for a, b in zip(alone[name], beside[name], strict=True)]),
        )
        for name in sides
    }


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.busy", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=1, help="how many processes compute beside the steps")
    options = parser.parse_args(arguments)
    print(one_line(describe(0)))
    print(f"{'':<36}{'alone':>12}{'beside':>12}{'ratio':>8}")
    for name, (quiet, busy, ratio) in _measure(options.rounds, options.processes).items():
        print(f"{name:<36}{duration(quiet):>12}{duration(busy):>12}{ratio:>8.2f}")


if __name__ == "__main__":
    main()
