"""The process that `pythons.py` starts with each interpreter: prepares rows, and times some calls of them whenever it is asked.

Run as `python -m benchmarks.pythons_child`.  It writes one line of JSON that describes it; then it answers each line of standard input, a
list of a request's name and its arguments, with one line.  Between requests it does nothing, so that it takes no time from the others.
What rows print goes to standard error.
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):  # noqa: UP036  # the interpreter is whichever was given
    sys.exit("tracejit needs Python 3.11 or later")

import gc
import json
import os
from typing import Any

import numba
import numpy
import scipy

import tracejit
from benchmarks.measure import calls_per_sample, sample
from benchmarks.rows import WrongResults, check_results, select
from benchmarks.workload import unchanged
from tracejit.report import system

__all__ = ["Timed", "describe", "main"]

_WARM_CALLS = 300


def describe() -> dict[str, Any]:
    """What the column's head needs, what tells interpreters apart, and what the library does not use in this one, with reasons."""
    features = system.facts()["interpreter"]
    return {
        "version": ".".join(map(str, sys.version_info[:3])) + getattr(sys, "abiflags", ""),
        "minor": list(sys.version_info[:2]),
        "implementation": sys.implementation.name,
        "executable": sys.executable,
        "identity": [sys.prefix, os.path.realpath(sys.executable)],
        "versions": {module.__name__: module.__version__ for module in (numpy, numba, scipy)},
        "unused": {name: state for name, state in features.items() if state != "in use"},
    }


class Timed:
    """A row whose results have been compared; its compiled function, warm."""

    def __init__(self, name: str, seconds: float) -> None:
        """seconds: how long a sample takes.  Raises WrongResults."""
        (workload,) = select([name])
        sides = {"eager": workload.build(tracejit, unchanged), "compiled": workload.build(tracejit, tracejit.compile)}
        differences, _ = check_results(workload, sides)
        self.difference = differences["compiled"]
        self._run, self._function = sides["compiled"].run, sides["compiled"].function
        for _ in range(_WARM_CALLS):
            self._run()
        self._count = max(
            [calls_per_sample(self._run, seconds) for _ in range(3)]
        )  # another process may have had the core in between
        self._called = 0
        self._before = self._function.stats.compiled_calls
        gc.collect()

    def sample(self) -> float:
        """Seconds per call; some calls before that bring back into caches what other processes have driven out."""
        before = self._count // 2 + 1
        self._called += self._count + before
        return sample(self._run, self._count, before)

    def finish(self) -> dict[str, Any]:
        """calls since the row was prepared, and how many of them were served by a program; how calls get to it, and what there is
        to say about eager ones."""
        compiled = self._function.stats.compiled_calls - self._before
        told = self._function.explain(True).splitlines()
        entries = [line.strip().removeprefix("calls: ") for line in told if line.strip().startswith("calls: ")]
        return {"calls": self._called, "compiled": compiled, "entries": entries, "explanation": told[0] if told else ""}


def main() -> None:
    """Answer requests until there are no more."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    gc.disable()
    answers.write(json.dumps(describe()) + "\n")
    timed: Timed | None = None
    for line in sys.stdin:
        request, *arguments = json.loads(line)
        answer: Any
        if request == "prepare":
            timed = None
            try:
                timed = Timed(*arguments)
                answer = {"difference": timed.difference}
            except WrongResults as error:
                answer = {"wrong": str(error)}
        else:
            assert timed is not None
            answer = timed.sample() if request == "sample" else timed.finish()
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
