"""Training steps of networks: eager, compiled, and by other libraries, with the memory of a step.

Run as `python -m benchmarks.networks [--threads N] [--columns NAME,...] [--json FILE] [--quick] [NAME...]`.  Each column trains each
network with the same weights and data: tracejit eagerly and compiled, torch eagerly and compiled, and JAX where the step is written for it.

Each column first runs in a process of its own (networks_child.py), for its first call and the memory of a step.  Then all columns are built
in this process: losses and some gradients of their first steps are compared with eager's, and steps are timed in turn.  Exits with 1
where they differ by more than the network's tolerance; a column that fails to run is named with its error, and has no figures.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

import tracejit
from benchmarks import environment
from benchmarks.measure import interleaved, paired_ratio
from benchmarks.network_models import NETWORKS, Network, select
from benchmarks.network_sides import COLUMNS, LIBRARIES, installed, limit_threads, make_side
from benchmarks.table import digits, duration
from benchmarks.workload import Side, relative_difference
from tracejit.config import override

__all__ = ["NetworkResult", "main", "measure", "run_child"]

STEPS: Final = 3  # steps that are compared
_SECONDS, _QUICK_SECONDS = 2.0, 0.02  # of each column of a row
_LONGEST: Final = 600.0  # seconds for a process
_GOALS: Final = {"torch": 0.6, "torch.compile": 0.9, "jax": 0.8}  # compiled's time over the column's
_EAGER_GOAL: Final = 1.0  # eager's time over torch's
_MEMORY_GOALS: Final = {"eager": 1.1, "torch": 1.0}  # compiled's peak over the column's
_LEAST: Final = 1 << 20  # bytes: a smaller peak is what a process does beside the step


@dataclass
class NetworkResult:
    """One row.

    times: seconds of a step in each round; ratios: of compiled's time over a column's, medians of ratios within a round; first_calls:
    seconds; peaks, kept: bytes (networks_child.py); difference: the greatest distance from eager; failures: why a column did not run;
    replayed: which part of compiled's steps after the first ran compiled."""

    name: str
    title: str
    times: dict[str, list[float]] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    eager_ratio: float | None = None
    first_calls: dict[str, float] = field(default_factory=dict)
    peaks: dict[str, int] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)
    differences: dict[str, float] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    replayed: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """For --json."""
        medians = {column: statistics.median(times) for column, times in self.times.items()}
        return {**asdict(self), "medians": medians, "missed": self.missed()}

    def memory_ratio(self, column: str) -> float | None:
        """Compiled's peak over a column's; None where that is below what can be told from other memory of the process."""
        own, other = self.peaks.get("compiled"), self.peaks.get(column)
        return own / other if own is not None and other is not None and other >= _LEAST else None

    def missed(self) -> list[str]:
        """The goals that are missed, of those that can be judged."""
        missed = [f"{column} {self.ratios[column]:.2f}" for column, most in _GOALS.items() if self.ratios.get(column, 0.0) > most]
        missed += [f"eager/torch {self.eager_ratio:.2f}"] if (self.eager_ratio or 0.0) > _EAGER_GOAL else []
        memory = ((column, self.memory_ratio(column) or 0.0, most) for column, most in _MEMORY_GOALS.items())
        return [*missed, *(f"memory/{column} {ratio:.2f}" for column, ratio, most in memory if ratio > most)]


def run_child(column: str, network: Network, threads: int, tiny: bool) -> dict[str, Any]:
    """What the process of a column says.  Raises RuntimeError where it fails, or takes too long."""
    command = [sys.executable, "-m", "benchmarks.networks_child", column, network.name, str(threads), *(["tiny"] if tiny else [])]
    allocator = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    surroundings = {**os.environ, **environment.limits(threads), **allocator}
    home = Path(__file__).resolve().parent.parent
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=surroundings, cwd=home, timeout=_LONGEST, check=False)
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"no result after {_LONGEST:.0f} s") from error
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()] or ["nothing said"]
        raise RuntimeError(f"status {done.returncode}: {next((s for s in reversed(said) if 'Error' in s), said[-1])[:300]}")
    document: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return document


def measure(network: Network, columns: Sequence[str], threads: int, quick: bool, note: Callable[[str], None]) -> NetworkResult:
    """quick: tiny sizes and few rounds.  note: told which column is at work.

    Raises AssertionError where a column computes something else than eager."""
    result = NetworkResult(network.name, network.title)
    sizes = network.tiny if quick else network.sizes
    sides: dict[str, Side] = {}
    for column in columns:
        side = make_side(column, network, sizes)
        if side is None:
            continue
        note(f"{network.name}: process of {column}")
        try:
            figures = run_child(column, network, threads, quick)
        except RuntimeError as error:
            result.failures[column] = str(error)
            continue
        result.first_calls[column] = figures["first_call"]
        if figures["peak"] is not None:
            result.peaks[column], result.kept[column] = figures["peak"], figures["kept"]
        sides[column] = side
    note(f"{network.name}: comparing {', '.join(sides)}")
    _compare(network, sides, result)
    if (compiled := sides.get("compiled")) is not None:
        called, replayed = compiled.function.stats.calls, compiled.function.stats.compiled_calls
    note(f"{network.name}: timing {', '.join(sides)}")
    result.times = interleaved({name: side.run for name, side in sides.items()}, _QUICK_SECONDS if quick else _SECONDS)
    if compiled is not None:
        stats = compiled.function.stats
        result.replayed = (stats.compiled_calls - replayed) / (stats.calls - called)
        own = result.times["compiled"]
        result.ratios = {name: paired_ratio(own, times) for name, times in result.times.items() if name != "compiled"}
    if "eager" in result.times and "torch" in result.times:
        result.eager_ratio = paired_ratio(result.times["eager"], result.times["torch"])
    return result


def _compare(network: Network, sides: dict[str, Side], result: NetworkResult) -> None:
    """The first steps of all sides, which are to give what the first side gives. A peer that fails is named, and no side any more."""
    for number in range(STEPS):
        given: dict[str, list[np.ndarray]] = {}
        for column in list(sides):
            try:
                given[column] = sides[column].results(sides[column].run())
            except Exception as error:
                if LIBRARIES[column] == "tracejit":
                    raise
                result.failures[column] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
                del sides[column]
        reference = next(iter(given.values()), [])
        for column, values in given.items():
            apart = relative_difference(values, reference)
            assert apart <= network.tolerance, (
                f"{network.name}, step {number}: losses or gradients of {column} are {apart:.1e} away from those of "
                f"{next(iter(given))}, relatively; at most {network.tolerance:g} is rounding"
            )
            result.differences[column] = max(apart, result.differences.get(column, 0.0))


_WIDTH: Final = 24


def _header(columns: Sequence[str]) -> str:
    return "network".ljust(44) + "".join(column.rjust(_WIDTH) for column in columns) + "  goals missed"


def _lines(row: NetworkResult, columns: Sequence[str]) -> str:
    """Times and, in brackets, compiled's over the column's; then peaks of memory in the same way; then first calls."""

    def cell(figure: str, ratio: float | None) -> str:
        return figure if ratio is None else f"{figure} ({digits(ratio)})"

    def megabytes(column: str) -> str:
        return f"{digits(row.peaks[column] / 1e6)} MB" if column in row.peaks else "-"

    medians = {column: statistics.median(times) for column, times in row.times.items()}
    steps = "".join(cell(duration(medians.get(c)), row.ratios.get(c)).rjust(_WIDTH) for c in columns)
    memory = "".join(cell(megabytes(c), None if c == "compiled" else row.memory_ratio(c)).rjust(_WIDTH) for c in columns)
    first = "".join(duration(row.first_calls.get(c)).rjust(_WIDTH) for c in columns)
    lines = [row.title.ljust(44) + steps + "  " + (", ".join(row.missed()) or "none"),
             "    peak memory of a step".ljust(44) + memory, "    first call".ljust(44) + first]  # fmt: skip
    if row.replayed is not None and row.replayed < 1:
        lines.append(f"    {row.replayed:.0%} of the steps ran compiled")
    return "\n".join([*lines, *(f"    {column} does not run here: {why}" for column, why in row.failures.items())])


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.networks", description="training steps of networks; see docs/benchmarks.md"
    )
    parser.add_argument("--threads", type=int, default=1, help="threads of tracejit, BLAS and torch, 0 for their own choice")
    parser.add_argument(
        "--columns", default="", help=f"of {', '.join(COLUMNS)}, separated by commas; all whose library is installed by default"
    )
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument(
        "--quick", action="store_true", help="tiny networks and few steps: a smoke test, its figures mean nothing"
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(n.name for n in NETWORKS)}; all of them without any"
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; 1 if results differ, 2 for names that there are not."""
    options = _arguments(argv)
    columns = [name for name in options.columns.split(",") if name] or [column for column in COLUMNS if installed(column)]
    try:
        if unknown := set(columns) - set(COLUMNS):
            raise ValueError(f"no column is called {', '.join(sorted(unknown))}; there are {', '.join(COLUMNS)}")
        networks = select(options.names)
        limit_threads(options.threads, *columns)
    except (ValueError, ModuleNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    surroundings = environment.describe(options.threads)
    print(environment.one_line(surroundings))
    absent = {LIBRARIES[column] for column in COLUMNS if not installed(column)}
    print("\n".join([*(f"{library} is not installed: pip install {library}" for library in sorted(absent)), _header(columns)]))
    rows: list[NetworkResult] = []
    problems: list[str] = []
    with override(cache=False, compile_wait=math.inf):
        tracejit.compile(lambda x: x + 1)(tracejit.ones(1))  # what a process does once
        for network in networks:
            try:
                rows.append(measure(network, columns, options.threads, options.quick, _note))
            except AssertionError as error:
                problems.append(str(error))
                print(f"{network.title}: WRONG RESULTS: {error}", flush=True)
                continue
            print(_lines(rows[-1], columns), flush=True)
    met = sum(not row.missed() for row in rows)
    print(f"all goals met on {met} of {len(networks)} networks")
    if options.json is not None:
        document = {
            "environment": surroundings,
            "quick": options.quick,
            "rows": [row.as_dict() for row in rows],
            "problems": problems,
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 1 if problems else 0


def _note(text: str) -> None:
    """Progress, on the error output, so that the table stays whole."""
    print(f"  ... {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
