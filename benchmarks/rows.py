"""Running one row: fresh sides, results compared call by call, then timed in turn.

The comparison comes first, on the very objects that are timed afterwards: the first call (recording and compiling), then
replays.  A difference beyond the row's tolerance raises `WrongResults`: a fast wrong answer must not get a line in the table.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

import tracejit
from benchmarks import elementwise, everyday, layers, loops, models, modules, statistics_rows, training
from benchmarks.measure import interleaved, paired_ratio
from benchmarks.workload import Side, Workload, relative_difference, unchanged

__all__ = ["CHECKED_CALLS", "ROWS", "RowResult", "WrongResults", "check_results", "run_row", "select"]

ROWS: tuple[Workload, ...] = (
    *elementwise.ROWS,
    *training.ROWS,
    *everyday.ROWS,
    *models.ROWS,
    *loops.ROWS,
    *statistics_rows.ROWS,
    *modules.ROWS,
    elementwise.EAGER_CHAIN,
    *layers.ROWS,
)
CHECKED_CALLS = 6
"""Calls compared before timing: both branches of a conditional row are recorded and replayed within them."""

_PRODUCTS_LIMIT = 0.30
_TARGETS = (2.0, 1.05)


class WrongResults(Exception):
    """An implementation of a row computed something else than the eager engine."""


@dataclass(frozen=True)
class RowResult:
    """What was measured for a row; times in seconds, None where there is nothing to measure.

    ratio: eager / compiled, the median over rounds of paired measurements; difference: see `relative_difference`; products: the time
    of the row's matrix products alone in NumPy as a fraction of eager's; replayed: fraction of the timed calls that ran compiled;
    others: medians of hand-written NumPy and peers; other_ratios: their time / compiled's (eager's in eager rows); samples: seconds per
    call of every side, by rounds."""

    name: str
    title: str
    inside: str
    eager: float
    compiled: float | None
    ratio: float | None
    target: float | None
    first_call: float | None
    difference: float | None
    products: float | None
    replayed: float | None
    others: dict[str, float] = field(default_factory=dict)
    other_ratios: dict[str, float] = field(default_factory=dict)
    rounds: int = 0
    samples: dict[str, list[float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def met(self) -> bool | None:
        """Whether the target was reached."""
        return None if self.ratio is None or self.target is None else self.ratio >= self.target

    def ratio_of(self, side: str) -> float | None:
        """The time of a side / compiled's; None where the row has no such side."""
        return self.ratio if side == "eager" else self.other_ratios.get(side)

    def as_dict(self) -> dict[str, Any]:
        """For --json."""
        return {**asdict(self), "met": self.met}


def select(names: Sequence[str]) -> list[Workload]:
    """The rows of these names, in the table's order; all for none.  A name ending in * takes every row it begins.

    Raises ValueError for a name that selects nothing."""
    if not names:
        return list(ROWS)
    chosen: set[str] = set()
    for name in names:
        found = {w.name for w in ROWS if w.name == name or (name.endswith("*") and w.name.startswith(name[:-1]))}
        if not found:
            raise ValueError(f"--rows: no row is called {name!r}; rows: {', '.join(w.name for w in ROWS)}")
        chosen |= found
    return [w for w in ROWS if w.name in chosen]


def check_results(workload: Workload, sides: Mapping[str, Side]) -> tuple[dict[str, float], dict[str, float]]:
    """Call every side CHECKED_CALLS times: the greatest difference from eager, and the time of the first call, of each.

    The first of the sides must be `eager`.  Raises WrongResults."""
    differences = dict.fromkeys(sides, 0.0)
    first_calls: dict[str, float] = {}
    for call in range(CHECKED_CALLS):
        expected: list[np.ndarray] = []
        for name, side in sides.items():
            side.before_check()
            start = time.perf_counter()
            returned = side.run()
            first_calls.setdefault(name, time.perf_counter() - start)
            actual = [np.array(a, copy=True) for a in side.results(returned)]
            if name == "eager":
                expected = actual
                continue
            difference = relative_difference(actual, expected)
            tolerance = workload.tolerance if name == "compiled" else workload.peer_tolerance
            if not difference <= tolerance:
                raise WrongResults(
                    f"{workload.name}: call {call + 1} of {name} differs from eager by {difference:.2e} > {tolerance:.0e}"
                )
            differences[name] = max(differences[name], difference)
    return differences, first_calls


def _replay_counters(side: Side) -> tuple[int, int]:
    stats = side.function.stats
    return stats.calls, stats.compiled_calls


def run_row(workload: Workload, peers: Mapping[str, Callable[[Workload], Side | None]], seconds: float) -> RowResult:
    """Compare and time one row, about `seconds` for each implementation.  Raises WrongResults."""
    sides: dict[str, Side] = {"eager": workload.build(tracejit, unchanged)}
    if workload.compiled:
        sides["compiled"] = workload.build(tracejit, tracejit.compile)
    if workload.numpy is not None:
        sides["numpy"] = workload.numpy()
    for name, make in peers.items():
        side = make(workload)
        if side is not None:
            sides[name] = side

    differences, first_calls = check_results(workload, sides)
    for name, build in workload.beside.items():
        sides[name] = build(tracejit, tracejit.compile)
        for _ in range(CHECKED_CALLS):
            sides[name].run()
    timed: dict[str, Callable[[], object]] = {name: side.run for name, side in sides.items()}
    if workload.products is not None:
        timed["products"] = workload.products()
    before = _replay_counters(sides["compiled"]) if workload.compiled else (0, 0)
    figures = interleaved(timed, seconds)

    notes = list(workload.notes)
    replayed = None
    if workload.compiled:
        calls, compiled_calls = (after - b for after, b in zip(_replay_counters(sides["compiled"]), before, strict=True))
        replayed = compiled_calls / calls if calls else 0.0
        if replayed < 1.0:
            notes.append(
                f"{calls - compiled_calls} of {calls} timed calls ran eagerly: {_first_line(sides['compiled'].function.explain(True))}"
            )
    medians = {name: statistics.median(samples) for name, samples in figures.items()}
    reference = "compiled" if workload.compiled else "eager"
    products = paired_ratio(figures["products"], figures["eager"]) if "products" in figures else None
    target = (_TARGETS[0] if (products or 0.0) < _PRODUCTS_LIMIT else _TARGETS[1]) if workload.compiled else None
    others = [name for name in sides if name not in ("eager", "compiled")]
    return RowResult(
        name=workload.name,
        title=workload.title,
        inside=workload.inside,
        eager=medians["eager"],
        compiled=medians.get("compiled"),
        ratio=paired_ratio(figures["eager"], figures["compiled"]) if workload.compiled else None,
        target=target,
        first_call=first_calls.get("compiled"),
        difference=differences["compiled"] if workload.compiled else None,
        products=products,
        replayed=replayed,
        others={name: medians[name] for name in others},
        other_ratios={name: paired_ratio(figures[name], figures[reference]) for name in others},
        rounds=len(figures["eager"]),
        samples=figures,
        notes=tuple(notes),
    )


def _first_line(text: Any) -> str:
    return next((line.strip() for line in str(text).splitlines() if line.strip()), "explain() is empty")
