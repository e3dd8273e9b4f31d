"""The long run, and a look at single programs.  See the package."""

from __future__ import annotations

import argparse
import json
import resource
import sys
from pathlib import Path

from tests.fuzz.campaign import Result, Summary, campaign, examine, work
from tests.fuzz.generate import generate
from tests.fuzz.operations import operations
from tests.fuzz.run import WAYS

MEMORY = 6 << 30  # bytes that a worker may take: a program that asks for more gets a MemoryError


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--programs", type=int, default=1000, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="the first one's seed; the last line of a run tells where to go on")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes")
    parser.add_argument("--every", type=int, default=500, help="how many programs there are to a line of progress")
    parser.add_argument("--ways", default="", help=f"comma-separated, of {', '.join(WAYS)}; all of them for each program")
    parser.add_argument("--findings", type=Path, help="a file to which differences are appended, one JSON object a line")
    parser.add_argument("--no-shrink", action="store_true", help="do not make failing programs smaller")
    parser.add_argument("--show", type=int, metavar="SEED", help="print one program and what became of it")
    parser.add_argument("--coverage", action="store_true", help="print which public functions were not reached")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    ways = [WAYS[name.strip()] for name in options.ways.split(",")] if options.ways else None
    if options.worker:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        out, sys.stdout = sys.stdout, sys.stderr
        first, last = map(int, options.worker.split(":"))
        for said in work(range(first, last), ways, not options.no_shrink):
            print(json.dumps(said), file=out, flush=True)
        return
    if options.show is not None:
        print(generate(options.show).text)
        result = examine(options.show, ways, shrinking=lambda signature: True)
        print(result.difference or "no difference", f"({result.way})", result.text, sep="\n")
        if result.signature:
            raise SystemExit(1)
        return
    arguments = [*(["--ways", options.ways] if options.ways else []), *(["--no-shrink"] if options.no_shrink else [])]

    def report(result: Result) -> None:
        print(f"-- seed {result.seed}, {result.way}: {result.signature}\n   {result.difference[:300]}\n{result.text}", flush=True)

    def progress(summary: Summary) -> None:
        if summary.programs % options.every == 0:
            rate = summary.programs / max(summary.seconds, 1e-9)
            left = (options.programs - summary.programs) / rate
            found = len(summary.failing)
            print(f"{summary.programs} programs in {summary.seconds:.0f} s, {found} differ, {left:.0f} s to go", flush=True)

    seeds = range(options.seed, options.seed + options.programs)
    summary = campaign(seeds, options.jobs, options.findings, arguments, report, progress)
    print(summary)
    if summary.failing:
        print(f"seeds that differ: {' '.join(map(str, sorted(summary.failing)))}")
    if options.coverage:
        missing = sorted({o.key for o in operations()} - set(summary.used))
        print(f"{len(missing)} of {len(operations())} operations were not reached: {' '.join(missing)}")
    print(f"go on with --seed {seeds.stop}")
    if summary.failing:
        raise SystemExit(1)


main()
