"""The command line: `python -m benchmarks [--rows NAME,...] [--peers torch jax] [--threads N] [--json FILE] [--quick]`,
or `python -m benchmarks --pythons PATH...` for small rows on several interpreters.

Exits with 1 if any implementation computed something else than the eager engine, or if training did not reach its accuracy.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

import tracejit
from benchmarks import digits, environment, first_call, goals, plot, pythons, table
from benchmarks.peers import PEERS, load
from benchmarks.rows import RowResult, WrongResults, run_row, select
from tracejit.config import override

__all__ = ["main"]


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="tracejit eager against compiled; see docs/benchmarks.md"
    )
    parser.add_argument(
        "--rows", default="", help="names separated by commas; NAME* for all that begin so; 'digits' for the training"
    )
    parser.add_argument(
        "--peers", nargs="*", default=[], choices=PEERS, help="columns of other libraries, which must be installed"
    )
    parser.add_argument(
        "--pythons",
        nargs="+",
        default=[],
        metavar="PATH",
        help="compare compiled calls on these interpreters instead; each can import NumPy, Numba and SciPy",
    )
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument(
        "--first-call",
        action="store_true",
        help="also time fresh processes to the end of their second step, cold and warm; with JAX if it is among the peers",
    )
    parser.add_argument("--plot", type=Path, help="also draw the ratios into this SVG file")
    parser.add_argument(
        "--threads", type=int, default=1, help="threads of tracejit, BLAS and torch, 0 for their own choice; JAX always chooses"
    )
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of the measuring time and fewer epochs: a smoke test, noisy figures"
    )
    arguments = parser.parse_args(argv)
    if arguments.pythons and (arguments.peers or arguments.first_call or arguments.plot):
        parser.error("--pythons compares compiled calls alone: not with --peers, --first-call or --plot")
    return arguments


def _start_up() -> float:
    """Seconds of the first compilation in this process, which loads Numba; kept out of the rows' first calls."""
    start = time.perf_counter()
    negate = tracejit.compile(lambda x: -x)
    negate(tracejit.zeros(2))
    return time.perf_counter() - start


def _starts(arguments: argparse.Namespace, names: Sequence[str]) -> tuple[list[first_call.Start], list[str]]:
    """The starts of those of the rows that are measured in fresh processes."""
    contenders = [name for name in first_call.CONTENDERS if name == "tracejit" or name in arguments.peers]
    wanted = [name for name in first_call.ROWS if name in names]
    return first_call.measure(wanted, contenders, 1 if arguments.quick else 3, arguments.threads)


def _run_pythons(arguments: argparse.Namespace) -> int:
    try:
        chosen = pythons.workloads([name for name in arguments.rows.split(",") if name])
        document, problems = pythons.run(arguments.pythons, chosen, arguments.threads, arguments.quick)
    except (ValueError, pythons.InterpreterError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return _finish(arguments, document, problems)


def _finish(arguments: argparse.Namespace, document: dict[str, Any], problems: Sequence[str]) -> int:
    """Write the document where it is wanted, tell problems; the exit status."""
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")
    for problem in problems:
        print(f"FAILED: {problem}", file=sys.stderr)
    return 1 if problems else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print, and return the exit status."""
    arguments = _arguments(argv)
    if arguments.pythons:
        return _run_pythons(arguments)
    with override(cache=False, compile_wait=math.inf):  # first calls compile, whatever earlier processes left in files, and wait
        return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    names = [name for name in arguments.rows.split(",") if name]
    with_digits = not names or "digits" in names
    wanted = [name for name in names if name != "digits"]
    try:
        workloads = select(wanted) if wanted or not names else []
        peers, peer_notes = load(arguments.peers, arguments.threads)
    except (ValueError, ModuleNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2

    start = time.perf_counter()
    if arguments.threads:
        threadpool_limits(arguments.threads)  # after the peers are loaded: they bring libraries of their own
        tracejit.set_num_threads(arguments.threads)
    surroundings = environment.describe(arguments.threads)
    print(environment.one_line(surroundings))
    for note in peer_notes:
        print(note)
    results: list[RowResult] = []
    problems: list[str] = []
    if workloads:
        if any(w.compiled for w in workloads):
            print(f"start-up of the compiler in this process (once): {table.duration(_start_up())}")
        others = ["numpy", *dict.fromkeys(name for w in workloads for name in w.beside), *peers]
        print("\n" + table.header(others))
    for workload in workloads:
        try:
            result = run_row(workload, peers, 0.1 if arguments.quick else 1.0)
        except WrongResults as error:
            problems.append(str(error))
            print(f"{workload.title}: WRONG RESULTS: {error}", flush=True)
            continue
        results.append(result)
        print(table.line(result, others), flush=True)
    if results:
        print(table.summary(results))
        print(goals.summary(results))
    if with_digits:
        report, wrong = digits.compare(20 if arguments.quick else 30)
        print("\n" + report)
        problems += wrong
    starts: list[first_call.Start] = []
    if arguments.first_call:
        starts, wrong = _starts(arguments, [w.name for w in workloads])
        print("\n" + first_call.report(starts) if starts else "\nfirst call: none of the rows is a training step")
        problems += wrong
    print(f"\n{time.perf_counter() - start:.0f} s in all")
    if arguments.plot is not None and any(row.compiled is not None for row in results):
        arguments.plot.write_text(plot.svg(results, environment.one_line(surroundings)))
    document = {
        "environment": surroundings,
        "quick": arguments.quick,
        "peers": peer_notes,
        "rows": [r.as_dict() for r in results],
        "first_call": [s.as_dict() for s in starts],
        "problems": problems,
    }
    return _finish(arguments, document, problems)


if __name__ == "__main__":
    sys.exit(main())
