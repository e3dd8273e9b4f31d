"""Cold and warm starts: seconds from the start of a process to the end of its second compiled call.

Everything is inside: the interpreter, imports, building the model, recording, compiling, and two calls.  Cold: the library's cache on disk
is an empty directory of its own.  Warm: the next process, with the directory that the cold one left.  Libraries take turns, and the
figures are medians.  The processes' results are compared, so that a cache which loads something wrong is not fast but wrong.
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

from benchmarks.table import duration

__all__ = ["LIBRARIES", "ROWS", "Start", "measure", "report"]

ROWS = ("mlp_sgd_64", "mlp_adam_64", "transformer_block")
LIBRARIES = ("tracejit", "jax")
_LONGEST = 300.0  # seconds for a process
_TOLERANCE = 1e-3
_CACHE_SETTINGS = {
    "tracejit": {"TRACEJIT_CACHE": "1", "TRACEJIT_CACHE_DIR": "{directory}"},
    "jax": {
        "JAX_COMPILATION_CACHE_DIR": "{directory}",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    },
    "torch": {"TORCHINDUCTOR_CACHE_DIR": "{directory}"},
}


@dataclass(frozen=True)
class Start:
    """Starts of one row with one library: seconds of each cold and each warm process; files: how many the cache held after the first."""

    row: str
    library: str
    cold: list[float]
    warm: list[float]
    files: int

    def as_dict(self) -> dict[str, Any]:
        """For --json."""
        return {**asdict(self), "cold_median": statistics.median(self.cold), "warm_median": statistics.median(self.warm)}


def _timed(library: str, row: str, directory: Path, threads: int) -> tuple[float, float]:
    """Seconds until the process said `ready`, and the first number of its results.  Raises RuntimeError where it fails."""
    environment = dict(os.environ)
    environment.update({name: value.format(directory=directory) for name, value in _CACHE_SETTINGS[library].items()})
    if threads:
        environment.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads)))
    command = [sys.executable, "-m", "benchmarks.first_call_child", library, row]
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
            raise RuntimeError(f"the process of {library} for {row} ended with status {status}: {errors.read()[-2000:]}")
    return seconds, float(json.loads(rest))


def measure(rows: Sequence[str], libraries: Sequence[str], repeats: int, threads: int) -> tuple[list[Start], list[str]]:
    """Start `repeats` pairs of processes, cold and warm, of each library for each row; what was measured, and problems (wrong results).

    Raises RuntimeError where a process fails."""
    starts: list[Start] = []
    problems: list[str] = []
    for row in rows:
        found: dict[str, Start] = {library: Start(row, library, [], [], 0) for library in libraries}
        values: dict[str, list[float]] = {library: [] for library in libraries}
        for repeat in range(repeats):
            for library in libraries if repeat % 2 == 0 else reversed(libraries):
                with tempfile.TemporaryDirectory(prefix="tracejit-benchmark-") as directory:
                    for figures in (found[library].cold, found[library].warm):
                        seconds, value = _timed(library, row, Path(directory), threads)
                        figures.append(seconds)
                        values[library].append(value)
                    files = sum(path.is_file() for path in Path(directory).rglob("*"))
                    found[library] = Start(row, library, found[library].cold, found[library].warm, files)
        expected = values[libraries[0]][0]
        for library, seen in values.items():
            worst = max(abs(value - expected) for value in seen)
            if not worst <= _TOLERANCE * max(abs(expected), 1.0):
                problems.append(f"first call of {row}: results of {library} differ by {worst:.2e}")
        starts += found.values()
    return starts, problems


def report(starts: Sequence[Start]) -> str:
    """A line for each row: cold and warm of each library, and the first library's time over the others'."""
    lines = [
        "from the start of a process to the end of its second compiled call; the cache on disk empty (cold), then filled (warm)"
    ]
    libraries = list(dict.fromkeys(start.library for start in starts))
    lines.append("row".ljust(22) + "".join(f"{library} {kind}".rjust(18) for library in libraries for kind in ("cold", "warm")))
    for row in dict.fromkeys(start.row for start in starts):
        here = {start.library: start for start in starts if start.row == row}
        medians = {
            library: (statistics.median(here[library].cold), statistics.median(here[library].warm)) for library in libraries
        }
        reference = medians[libraries[0]]
        line = row.ljust(22)
        for library in libraries:
            for own, first in zip(medians[library], reference, strict=True):
                line += (duration(own) + ("" if library == libraries[0] else f" ({own / first:.2f})")).rjust(18)
        empty = [library for library in libraries if here[library].files == 0]
        lines.append(line + (f"  nothing cached: {', '.join(empty)}" if empty else ""))
    return "\n".join(lines)
