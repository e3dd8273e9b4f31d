"""Small rows on several interpreters side by side: `python -m benchmarks --pythons PATH... [--rows NAME,...] [--json FILE] [--quick]`.

Each interpreter has a process of its own, all of them at once, and an environment of its own, in which NumPy, Numba and SciPy can be
imported; tracejit is that of this checkout.  In each of them a row's compiled calls are compared with eager ones, then warmed up.  Then
the processes take turns of a millisecond, in an order drawn anew in each round, while the others wait: noise of the machine hits all
alike.  With one thread they share a core, since cores differ in what else they do.  Ratios compare figures of the same round; what is
printed are medians.  A row has no figures unless all its timed calls were served by a program.

Here paths become machine code after a few calls, so that the calls that are compared are of the kind that is timed.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import goals
from benchmarks.environment import limits
from benchmarks.measure import in_turn, paired_ratio
from benchmarks.rows import select
from benchmarks.table import digits
from benchmarks.workload import Workload

__all__ = ["NAMES", "Interpreter", "InterpreterError", "PythonsRow", "interpreters", "measure", "run", "summary", "workloads"]

NAMES = (
    "a*b+1", "mlp_sgd_1", "mlp_adam_1", "rnn_3", "everyday_tiny_*", "parameters_*", "sgd_200", "object_state",
)  # fmt: skip
"""What is measured where no rows are named: rows whose cost is calls more than arithmetic."""

_SAMPLE = 1e-3  # seconds
_ROUNDS, _QUICK_ROUNDS = 200, 20
_SETTINGS = {"TRACEJIT_COMPILE_WAIT": "inf", "TRACEJIT_HOT_CALLS": "3"}
_TITLE, _TIME, _RATIO = 41, 12, 8


class InterpreterError(Exception):
    """An interpreter that cannot be measured, with its path and the reason."""


@dataclass(frozen=True)
class PythonsRow:
    """What was measured for a row.  samples: seconds per call, by rounds, of each interpreter by its label; difference: the greatest
    of compiled from eager results; notes: what is worth knowing about an interpreter."""

    name: str
    title: str
    inside: str
    samples: dict[str, list[float]]
    difference: float
    notes: tuple[str, ...]

    def seconds(self) -> dict[str, float]:
        """The median of each interpreter."""
        return {label: statistics.median(figures) for label, figures in self.samples.items()}

    def ratio(self, label: str, other: str) -> float:
        """The time of one interpreter / another's."""
        return paired_ratio(self.samples[label], self.samples[other])

    def as_dict(self) -> dict[str, Any]:
        """For --json."""
        return asdict(self)


class Interpreter:
    """A process of an interpreter, and what it says of itself.  label: its version, and its number where versions are the same."""

    def __init__(self, path: str, process: subprocess.Popen[str], errors: Any) -> None:
        """Raises InterpreterError where it cannot import what is needed."""
        self.path, self._process, self._errors = path, process, errors
        self.description: dict[str, Any] = self._answer()
        self.label: str = self.description["version"]

    @property
    def is_3_11(self) -> bool:
        """Whether it is what the others are held to."""
        return self.description["implementation"] == "cpython" and self.description["minor"] == [3, 11]

    def ask(self, *request: Any) -> Any:
        """Its answer to a request, whose name comes first.  Raises InterpreterError where the process has ended."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended, and so has its output
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        return self._answer()

    def sample(self) -> float:
        """Seconds per call of the row that is prepared."""
        return float(self.ask("sample"))

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        try:
            return json.loads(line)
        except json.JSONDecodeError:
            pass
        self._process.kill()
        self._process.wait()
        self._errors.seek(0)
        said = [text for text in self._errors.read().splitlines() if text.strip()]
        raise InterpreterError(
            f"{self.path}: {said[-1] if said else f'it is no Python that can run the rows: it wrote {line!r}'}"
        )


@contextmanager
def _started(path: str, threads: int) -> Iterator[Interpreter]:
    program = shutil.which(path)
    if program is None:
        raise InterpreterError(f"{path}: there is no such program")
    command = [os.path.abspath(program), "-m", "benchmarks.pythons_child"]
    environment = {**os.environ, **limits(threads), **_SETTINGS}
    home = Path(__file__).resolve().parent.parent
    with ExitStack() as stack:
        errors = stack.enter_context(tempfile.TemporaryFile("w+"))
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment, cwd=home
            )
        except OSError as error:
            raise InterpreterError(f"{path}: {error.strerror}") from None
        stack.enter_context(process)  # which waits for its end
        if threads == 1 and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(process.pid, {max(os.sched_getaffinity(0))})
        assert process.stdin is not None
        try:
            yield Interpreter(path, process, errors)
        finally:
            with suppress(BrokenPipeError):  # requests that it did not live to read
                process.stdin.close()


@contextmanager
def interpreters(paths: Sequence[str], threads: int) -> Iterator[list[Interpreter]]:
    """A process of each, in the order given, until the block ends.

    Raises InterpreterError for a path that is no interpreter, cannot import what is needed, or is the same as another."""
    with ExitStack() as stack:
        started = [stack.enter_context(_started(path, threads)) for path in paths]
        for number, interpreter in enumerate(started):
            for other in started[:number]:
                if interpreter.description["identity"] == other.description["identity"]:
                    executable = interpreter.description["executable"]
                    raise InterpreterError(f"{other.path} and {interpreter.path} are the same interpreter ({executable})")
        labels = [interpreter.label for interpreter in started]
        for number, interpreter in enumerate(started, 1):
            if labels.count(interpreter.label) > 1:
                interpreter.label += f" ({number})"
        yield started


def workloads(names: Sequence[str]) -> list[Workload]:
    """The rows of these names, those of NAMES for none.  Raises ValueError for a row with nothing compiled, or a name of none."""
    chosen = select(names or NAMES)
    eager = [workload.name for workload in chosen if not workload.compiled]
    if eager:
        raise ValueError(f"--pythons: nothing is compiled in {', '.join(eager)}")
    return chosen


def _heading(started: Sequence[Interpreter]) -> str:
    """A line about each interpreter, and the names of the columns."""
    lines = []
    for interpreter in started:
        versions = ", ".join(f"{name} {version}" for name, version in interpreter.description["versions"].items())
        lines.append(f"{interpreter.label}: {interpreter.description['executable']}, {versions}")
        lines += [f"    not in use: {name}: {reason}" for name, reason in interpreter.description["unused"].items()]
    first, *others = [interpreter.label for interpreter in started]
    columns = first.rjust(_TIME) + "".join(label.rjust(_TIME) + "ratio".rjust(_RATIO) for label in others)
    return "\n".join([*lines, "", "row, us a call".ljust(_TITLE) + columns])


def measure(workload: Workload, started: Sequence[Interpreter], rounds: int) -> tuple[PythonsRow | None, list[str]]:
    """One row on all of the interpreters, and problems; no row where there are any."""
    problems: list[str] = []
    difference = 0.0
    for interpreter in started:
        answer = interpreter.ask("prepare", workload.name, _SAMPLE)
        if "wrong" in answer:
            problems.append(f"{interpreter.label}: {answer['wrong']}")
        else:
            difference = max(difference, answer["difference"])
    if problems:
        return None, problems
    samples = in_turn({interpreter.label: interpreter.sample for interpreter in started}, float("inf"), rounds)
    notes = []
    for interpreter in started:
        outcome = interpreter.ask("finish")
        if outcome["compiled"] != outcome["calls"]:
            problems.append(
                f"{interpreter.label}: {workload.name}: of {outcome['calls']} timed calls {outcome['compiled']} were served by a program: "
                f"{outcome['explanation']}"
            )
        notes += [f"{interpreter.label}: calls {entry}" for entry in outcome["entries"] if entry != "from machine code"]
    row = PythonsRow(workload.name, workload.title, workload.inside, samples, difference, tuple(notes))
    return (None if problems else row), problems


def _line(row: PythonsRow) -> str:
    """The figures of a row, and its notes."""
    first, *others = row.samples
    seconds = row.seconds()
    cells = _microseconds(seconds[first])
    for label in others:
        cells += _microseconds(seconds[label]) + f"{row.ratio(label, first):.2f}".rjust(_RATIO)
    return "\n".join([row.title.ljust(_TITLE) + cells, *(f"    {note}" for note in row.notes)])


def _microseconds(seconds: float) -> str:
    return digits(seconds * 1e6).rjust(_TIME)


def summary(rows: Sequence[PythonsRow], started: Sequence[Interpreter]) -> str:
    """A line for each goal and interpreter."""
    labels = [interpreter.label for interpreter in started]
    base = next((interpreter.label for interpreter in started if interpreter.is_3_11), None)
    lines = [
        goals.of_another_python(label, base, {row.name: row.ratio(label, base) for row in rows})
        for label in labels
        if base is not None and label != base
    ]
    for label in labels:
        lines += goals.of_parameters_on_any_python(label, {row.name: row.seconds()[label] for row in rows})
    return "\n".join(lines)


def run(paths: Sequence[str], chosen: Sequence[Workload], threads: int, quick: bool) -> tuple[dict[str, Any], list[str]]:
    """Measure and print; the document for --json, and problems.  Raises InterpreterError."""
    rows: list[PythonsRow] = []
    problems: list[str] = []
    with interpreters(paths, threads) as started:
        print(_heading(started), flush=True)
        for workload in chosen:
            row, wrong = measure(workload, started, _QUICK_ROUNDS if quick else _ROUNDS)
            problems += wrong
            if row is not None:
                rows.append(row)
            print(f"{workload.title}: FAILED" if row is None else _line(row), flush=True)
        print(summary(rows, started))
        descriptions = {interpreter.label: interpreter.description for interpreter in started}
    document = {"pythons": descriptions, "quick": quick, "rows": [row.as_dict() for row in rows], "problems": problems}
    return document, problems
