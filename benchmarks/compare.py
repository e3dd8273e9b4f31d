"""Two runs of the benchmark against each other: `python benchmarks/compare.py BEFORE.json AFTER.json [--threshold 1.1] [--against eager]`.

Machines drift between runs, so times are never compared with times.  Each row's compiled call is divided, round by round, by another side
of the same round (eager by default; `numpy` is code that does not change with the library), and the medians of these ratios are compared.
A row is slower when its ratio grew by more than the threshold and by more than three standard errors of the two medians.
Exit status: 0; 1 where a row became slower, is gone or computed wrong results; 2 where the files cannot be compared.
Needs nothing but the standard library, and knows nothing of the rows.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Change", "compare", "main"]

_STANDARD_ERRORS = 3.0
_DEVIATION = 1.4826  # a normal distribution's standard deviation in medians of absolute deviations
_OF_MEDIAN = math.sqrt(math.pi / 2)  # the standard error of a median in those of a mean


@dataclass(frozen=True)
class Change:
    """A row in both runs.  factor: its normalised time after / before, above 1 is slower; error: one standard error of log(factor)."""

    name: str
    before: float
    after: float
    factor: float
    error: float
    verdict: str


def _log_median(samples: Mapping[str, Sequence[float]], against: str) -> tuple[float, float]:
    """The median of log(compiled / against) over rounds, and its standard error."""
    logs = [math.log(c / a) for c, a in zip(samples["compiled"], samples[against], strict=True)]
    middle = statistics.median(logs)
    spread = _DEVIATION * statistics.median(abs(value - middle) for value in logs)
    return middle, _OF_MEDIAN * spread / math.sqrt(len(logs))


def compare(before: Mapping[str, Any], after: Mapping[str, Any], threshold: float, against: str) -> list[Change]:
    """The rows that both documents have with a compiled side and the side `against`; in the order of `before`.

    verdict: slower, faster, same, or noise (beyond the threshold, but not beyond the noise of the two runs)."""
    later = {row["name"]: row["samples"] for row in after["rows"]}
    changes = []
    for row in before["rows"]:
        pair = (row["samples"], later.get(row["name"], {}))
        if not all("compiled" in samples and against in samples for samples in pair):
            continue
        (first, error1), (second, error2) = (_log_median(samples, against) for samples in pair)
        moved, error = second - first, math.hypot(error1, error2)
        verdict = "same"
        if abs(moved) > math.log(threshold):
            verdict = "noise" if abs(moved) <= _STANDARD_ERRORS * error else "slower" if moved > 0 else "faster"
        changes.append(Change(row["name"], math.exp(first), math.exp(second), math.exp(moved), error, verdict))
    return changes


def _eager_moved(before: Mapping[str, Any], after: Mapping[str, Any]) -> float | None:
    """How much eager's time moved against NumPy's, over the rows that have both: a faster eager engine makes compiled look slower."""

    def of(document: Mapping[str, Any]) -> dict[str, float]:
        rows = {row["name"]: row["samples"] for row in document["rows"]}
        return {name: statistics.median(s["eager"]) / statistics.median(s["numpy"]) for name, s in rows.items() if "numpy" in s}

    first, second = of(before), of(after)
    both = [second[name] / first[name] for name in first if name in second]
    return statistics.median(both) if both else None


def _load(file: Path) -> dict[str, Any]:
    """Raises ValueError for a file that is no output of --json."""
    try:
        document = json.loads(file.read_text())
    except OSError as error:
        raise ValueError(f"{file}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{file} is no JSON: {error}") from error
    if not isinstance(document, dict) or not all(
        isinstance(row, dict) and "samples" in row for row in document.get("rows", [None])
    ):
        raise ValueError(f"{file} has no rows with samples: it must be written by `python -m benchmarks --json FILE`")
    return document


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Lines about the environments, where they differ."""
    first, second = before.get("environment", {}), after.get("environment", {})
    lines = [
        f"note: {key} differs: {first.get(key)} before, {second.get(key)} after"
        for key in ("processor", "processors", "threads", "python", "versions")
        if first.get(key) != second.get(key)
    ]
    if before.get("peers") != after.get("peers"):
        lines.append(
            "note: the runs had different peers, which leave their marks on caches and on the allocator: measure again with the same"
        )
    if before.get("quick") or after.get("quick"):
        lines.append("note: a run was a --quick one: its figures are noisy")
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """Print the comparison and return the exit status."""
    parser = argparse.ArgumentParser(prog="compare.py", description="what became slower between two runs; see docs/benchmarks.md")
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--threshold", type=float, default=1.1, help="a factor that matters (1.1)")
    parser.add_argument("--against", default="eager", help="the side that times are divided by: eager, numpy, jax ...")
    arguments = parser.parse_args(argv)
    try:
        if not arguments.threshold > 1:
            raise ValueError(f"--threshold is a factor above 1, not {arguments.threshold:g}")
        before, after = _load(arguments.before), _load(arguments.after)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    changes = compare(before, after, arguments.threshold, arguments.against)
    if not changes:
        print(f"error: no row has a compiled side and {arguments.against!r} in both files", file=sys.stderr)
        return 2
    for line in _differences(before, after):
        print(line)
    print(f"{'row':24}{'compiled/' + arguments.against:>20}{'after':>10}{'factor':>10}{'+-':>8}")
    for change in sorted(changes, key=lambda c: -c.factor):
        mark = "" if change.verdict == "same" else f"  {change.verdict}"
        noise = math.expm1(_STANDARD_ERRORS * change.error)
        print(f"{change.name:24}{change.before:20.4f}{change.after:10.4f}{change.factor:9.2f}x{noise:8.0%}{mark}")
    moved = _eager_moved(before, after)
    if arguments.against == "eager" and moved is not None and not 1 / arguments.threshold < moved < arguments.threshold:
        print(f"note: eager itself takes {moved:.2f}x of its former time against numpy; --against numpy leaves that out")
    compared = {change.name for change in changes}
    gone = [
        row["name"]
        for row in before["rows"]
        if "compiled" in row["samples"] and row["name"] not in {r["name"] for r in after["rows"]}
    ]
    slower = [change.name for change in changes if change.verdict == "slower"]
    faster = [change.name for change in changes if change.verdict == "faster"]
    wrong = after.get("problems", [])
    print(f"{len(compared)} rows: {len(slower)} slower, {len(faster)} faster")
    for name, texts in (("slower", slower), ("faster", faster), ("gone", gone), ("wrong results", wrong)):
        if texts:
            print(f"{name}: {', '.join(texts)}")
    return 1 if slower or gone or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
