"""Cold and warm starts: seconds from the start of a process to the end of its second compiled call.

Everything is inside: the interpreter, imports, building the model, recording, compiling, and two calls.  Cold: the cache of compiled
code on disk is an empty directory of its own.  Warm: the next process, with the directory that the cold one left.  One start of each
contender before that is not timed: it leaves Python's bytecode, which installed packages have and a fresh checkout has not, and files
in the system's memory.  Contenders take turns, and the figures are medians.  The processes' results are compared, so that a cache which
loads something wrong is not fast but wrong.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.environment import limits
from benchmarks.table import duration

__all__ = ["CONTENDERS", "ROWS", "Start", "measure", "report"]

ROWS = ("mlp_sgd_64", "mlp_adam_64", "transformer_block")
CONTENDERS = ("tracejit", "jax")
_LONGEST = 300.0  # seconds for a process
_TOLERANCE = 1e-3
_CACHE_SETTINGS = {
    "tracejit": {"TRACEJIT_CACHE": "1", "TRACEJIT_CACHE_DIR": "{directory}", "TRACEJIT_COMPILE_WAIT": "inf"},
    "jax": {
        "JAX_COMPILATION_CACHE_DIR": "{directory}",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    },
    "torch": {"TORCHINDUCTOR_CACHE_DIR": "{directory}"},
}


@dataclass(frozen=True)
class Start:
    """Starts of one row with one contender: seconds of each cold and each warm process, and of its CPU time; files: how many the cache
    held after the first."""

    row: str
    contender: str
    cold: list[float]
    warm: list[float]
    cold_cpu: list[float]
    warm_cpu: list[float]
    files: int

    def medians(self) -> dict[str, float]:
        """The median of each list."""
        lists = {"cold": self.cold, "warm": self.warm, "cold_cpu": self.cold_cpu, "warm_cpu": self.warm_cpu}
        return {name: statistics.median(figures) for name, figures in lists.items()}

    def as_dict(self) -> dict[str, Any]:
        """For --json."""
        return {**asdict(self), **{f"{name}_median": figure for name, figure in self.medians().items()}}


@dataclass(frozen=True)
class Outcome:
    """What one process said: seconds until it was ready, seconds of CPU time until then, and the first number of its results."""

    seconds: float
    cpu: float
    value: float


def _timed(contender: str, row: str, directory: Path, threads: int) -> Outcome:
    """Start one process.  Raises RuntimeError where it fails."""
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment.update({name: value.format(directory=directory) for name, value in _CACHE_SETTINGS[contender].items()})
    environment.update(limits(threads))
    command = [sys.executable, "-m", "benchmarks.first_call_child", contender, row]
    home = Path(__file__).resolve().parent.parent
    with tempfile.TemporaryFile("w+") as errors:
        start = time.perf_counter()
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment, cwd=home)
        assert child.stdout is not None
        with child.stdout:
            said = child.stdout.readline().strip()
            seconds = time.perf_counter() - start
            rest = child.stdout.read()
        status = child.wait(_LONGEST)
        if status or said != "ready":
            errors.seek(0)
            raise RuntimeError(f"the process of {contender} for {row} ended with status {status}: {errors.read()[-2000:]}")
    cpu, value = json.loads(rest)
    return Outcome(seconds, cpu, value)


def measure(rows: Sequence[str], contenders: Sequence[str], repeats: int, threads: int) -> tuple[list[Start], list[str]]:
    """Start `repeats` pairs of processes, cold and warm, of each contender for each row; what was measured, and problems (wrong results).

    Raises RuntimeError where a process fails."""
    for contender in contenders if rows else ():
        with tempfile.TemporaryDirectory(prefix="tracejit-benchmark-") as directory:
            _timed(contender, rows[0], Path(directory), threads)
    starts: list[Start] = []
    problems: list[str] = []
    for row in rows:
        outcomes: dict[str, list[tuple[Outcome, Outcome]]] = {contender: [] for contender in contenders}  # pairs cold, warm
        files: dict[str, int] = {}
        for repeat in range(repeats):
            for contender in contenders if repeat % 2 == 0 else reversed(contenders):
                with tempfile.TemporaryDirectory(prefix="tracejit-benchmark-") as directory:
                    cold, warm = (_timed(contender, row, Path(directory), threads) for _ in range(2))
                    outcomes[contender].append((cold, warm))
                    files[contender] = sum(path.is_file() for path in Path(directory).rglob("*"))
        expected = outcomes[contenders[0]][0][0].value
        for contender, pairs in outcomes.items():
            worst = max(abs(outcome.value - expected) for pair in pairs for outcome in pair)
            if not worst <= _TOLERANCE * max(abs(expected), 1.0):
                problems.append(f"first call of {row}: results of {contender} differ by {worst:.2e}")
            colds, warms = [cold for cold, _ in pairs], [warm for _, warm in pairs]
            starts.append(
                Start(
                    row,
                    contender,
                    cold=[outcome.seconds for outcome in colds],
                    warm=[outcome.seconds for outcome in warms],
                    cold_cpu=[outcome.cpu for outcome in colds],
                    warm_cpu=[outcome.cpu for outcome in warms],
                    files=files[contender],
                )
            )
    return starts, problems


def report(starts: Sequence[Start]) -> str:
    """Two lines for each row, elapsed and CPU time: cold and warm of each contender, and its time over the first contender's."""
    lines = [
        "from the start of a process to the end of its second compiled call; the cache on disk empty (cold), then filled (warm)"
    ]
    contenders = list(dict.fromkeys(start.contender for start in starts))
    lines.append(
        "row".ljust(22) + "".join(f"{contender} {kind}".rjust(18) for contender in contenders for kind in ("cold", "warm"))
    )
    for row in dict.fromkeys(start.row for start in starts):
        here = {start.contender: start for start in starts if start.row == row}
        reference = here[contenders[0]].medians()
        for title, suffix in ((row, ""), ("  of CPU time", "_cpu")):
            line = title.ljust(22)
            for contender in contenders:
                own = here[contender].medians()
                for kind in ("cold" + suffix, "warm" + suffix):
                    compared = "" if contender == contenders[0] else f" ({own[kind] / reference[kind]:.2f})"
                    line += (duration(own[kind]) + compared).rjust(18)
            lines.append(line)
        empty = [contender for contender in contenders if here[contender].files == 0]
        if empty:
            lines[-2] += f"  nothing cached: {', '.join(empty)}"
    return "\n".join(lines)
