"""What loops cost whose steps take different paths: the programs of branching_programs.py, each of them compiled as a whole.

Run as `python -m benchmarks.branching [--quick] [NAME...]`.  Each program is called eagerly and compiled, from the same seeds and
with the same inputs, and every result must be equal; then by torch, as the same program, and by Numba and JAX, as what one writes
by hand for them. The first `FIRST` compiled calls include all recording and compiling, and the cache of compiled code is off;
Numba and JAX have compiled before they are timed. Exits with 1 if a program fails or gives something else than eagerly.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import tracejit
from benchmarks.branching_programs import Function, Program, select
from benchmarks.table import digits, duration
from benchmarks.workload import unchanged

__all__ = ["GOALS", "PEERS", "Measured", "check_alike", "check_equal", "main", "measure", "prepared", "side_of"]

FIRST = 3
BLOCK = 5  # calls of one side in a row: what another one does between them empties caches
SECONDS, MOST = 1.0, 200  # of all sides of a program, once `FIRST` calls are over, and how many calls that may be
PEERS = ("torch", "numba", "jax")
GOALS = {
    "first": f"the first {FIRST} calls take at most 3 times as long as eagerly",
    "eager": "the third call and, in their median, those after it are at least 20 times as fast as eagerly",
    "numba": "those after it take at most twice as long as Numba's by hand",
    "jax": "they take less time than JAX's by hand",
}

Prepared = Callable[[int], Callable[[], Any]]


def prepared(library: Any, function: Function, program: Program) -> Prepared:
    """The calls of a program that is built for a library: given its number, all that is not timed is done, and what is timed
    returned."""

    def prepare(call: int) -> Callable[[], Any]:
        inputs = [
            library.tensor(value) if isinstance(value, np.ndarray | np.generic) else value for value in program.inputs(call)
        ]
        library.manual_seed(call)
        return lambda: function(*inputs)

    return prepare


def side_of(name: str, program: Program) -> Prepared | None:
    """The calls of a program by a peer; None if it is not installed or does not have the program."""
    if importlib.util.find_spec(name) is None:
        return None
    if name == "torch":
        torch = importlib.import_module("torch")
        torch.set_num_threads(1)
        return prepared(torch, program.build(torch, unchanged), program)
    if name == "jax" and name not in sys.modules:
        os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
    module = importlib.import_module(f"benchmarks.branching_{name}")
    return (lambda call: module.side(program, call)) if program.name in module.SIDES else None


def _leaves(result: Any) -> list[Any]:
    return [leaf for part in result for leaf in _leaves(part)] if isinstance(result, tuple | list) else [result]


def check_equal(what: str, expected: Any, given: Any) -> None:
    """Raises AssertionError where results differ: numbers of Python and shapes at all, tensors by more than rounding."""
    for a, b in zip(_leaves(expected), _leaves(given), strict=True):
        if isinstance(a, tracejit.Tensor):
            np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=2e-4, atol=2e-5, err_msg=what)
        elif isinstance(a, float):
            np.testing.assert_allclose(b, a, rtol=1e-6, err_msg=what)
        else:
            assert (type(a), a) == (type(b), b), f"{what}: {a!r} eagerly, {b!r} compiled"


def _numbers(result: Any) -> np.ndarray:
    return np.concatenate([np.ravel(np.asarray(leaf, np.float64)) for leaf in _leaves(result)])


def check_alike(what: str, expected: Any, given: Any, draws: bool = False) -> None:
    """Raises AssertionError where another library gives something else than rounding explains, which may add or spare a step; or,
    where it draws its own numbers, what has another size or is not finite."""
    a, b = _numbers(expected), _numbers(given)
    assert a.shape == b.shape and np.isfinite(b).all(), f"{what}: {b!r}"
    if not draws:
        counts = np.concatenate([np.full(np.asarray(leaf).size, type(leaf) is int) for leaf in _leaves(expected)])
        allowed = np.where(counts, 1.0 + 0.1 * abs(a), 0.02 + 0.02 * abs(a))
        assert (abs(a - b) <= allowed).all(), f"{what}: {a!r} eagerly, {b!r} there"


def _timed(side: Prepared, call: int) -> tuple[float, Any]:
    run = side(call)
    begun = time.perf_counter()
    result = run()
    return time.perf_counter() - begun, result


@dataclass(frozen=True)
class Measured:
    """eager, compiled, peers: seconds of a later call; first: the total of the first compiled calls over eager's; third: how many
    times as fast as eagerly the last of these was; and what happened in all calls."""

    eager: float
    compiled: float
    first: float
    third: float
    calls: int
    compiled_calls: int
    piecewise_calls: int
    recordings: int
    peers: dict[str, float] = field(default_factory=dict)

    def against(self, peer: str) -> float | None:
        """The time of a compiled call over a peer's, if there is one."""
        return self.compiled / self.peers[peer] if peer in self.peers else None

    @property
    def met(self) -> dict[str, bool]:
        """Whether each goal is met; a peer's only if it is there."""
        met = {"first": self.first <= 3.0, "eager": min(self.third, self.eager / self.compiled) >= 20.0}
        for peer, most in (("numba", 2.0), ("jax", 1.0)):
            ratio = self.against(peer)
            if ratio is not None:
                met[peer] = ratio <= most if peer == "numba" else ratio < most
        return met


class _Sides:
    """The sides of a program: the times of their calls, and checks of what they give."""

    def __init__(self, program: Program, peers: Sequence[str]) -> None:
        self.program = program
        self.functions: list[Any] = []
        self.eager = prepared(tracejit, program.build(tracejit, unchanged), program)
        self.compiled = prepared(tracejit, program.build(tracejit, self._compile), program)
        found = {name: side_of(name, program) for name in peers}
        self.peers = {name: side for name, side in found.items() if side is not None}
        self.times: dict[str, list[float]] = {name: [] for name in ("eager", "compiled", *self.peers)}

    def _compile(self, function: Function) -> Function:
        self.functions.append(tracejit.compile(function))
        return self.functions[-1]

    def compare(self, calls: Sequence[int]) -> list[Any]:
        """Times calls, eager ones and then compiled ones, and returns their results, which are equal."""
        expected = [self._call("eager", self.eager, call) for call in calls]
        given = [self._call("compiled", self.compiled, call) for call in calls]
        for call, a, b in zip(calls, expected, given, strict=True):
            check_equal(f"{self.program.name}, call {call}", a, b)
        return expected

    def warm(self, expected: Any) -> None:
        """Calls peers until they have compiled, the first time as call 0, whose result is checked."""
        for name, side in self.peers.items():
            check_alike(f"{self.program.name} by {name}, call 0", expected, side(0)(), self.program.draws)
            side(1)()

    def time_peers(self, calls: Sequence[int]) -> None:
        for name, side in self.peers.items():
            for call in calls:
                self._call(name, side, call)

    def _call(self, name: str, side: Prepared, call: int) -> Any:
        seconds, result = _timed(side, call)
        self.times[name].append(seconds)
        return result


def measure(program: Program, seconds: float = SECONDS, most: int = MOST, peers: Sequence[str] = PEERS) -> Measured:
    """Raises AssertionError where a compiled call does not give what the eager one gives, or a peer something else."""
    sides = _Sides(program, peers)
    results = [sides.compare([call])[0] for call in range(FIRST)]
    eager, compiled = sides.times["eager"][:], sides.times["compiled"][:]
    sides.warm(results[0])
    begun, call = time.perf_counter(), FIRST
    while call == FIRST or (time.perf_counter() - begun < seconds and call < most):
        calls = range(call, call + BLOCK)
        sides.compare(calls)
        sides.time_peers(calls)
        call += BLOCK
    later = {name: statistics.median(times[-(call - FIRST) :]) for name, times in sides.times.items()}
    stats = sides.functions[-1].stats
    return Measured(
        eager=later.pop("eager"),
        compiled=later.pop("compiled"),
        first=sum(compiled) / sum(eager),
        third=eager[-1] / compiled[-1],
        calls=stats.calls,
        compiled_calls=stats.compiled_calls,
        piecewise_calls=stats.piecewise_calls,
        recordings=stats.traces,
        peers=later,
    )


_COLUMNS = (
    ("eager", 9), ("first 3", 9), ("third", 8), ("later", 9), ("speedup", 9), ("/ numba", 9), ("/ jax", 8), ("/ torch", 9),
    ("recorded", 10), ("compiled", 10), ("pieces", 8),
)  # fmt: skip


def _header() -> str:
    return f"{'program':<16}" + "".join(name.rjust(width) for name, width in _COLUMNS) + "  goals missed"


def _line(program: Program, found: Measured) -> str:
    def ratio(value: float | None) -> str:
        return "-" if value is None else f"{digits(value)}x"

    cells = (
        duration(found.eager), ratio(found.first), ratio(found.third), duration(found.compiled),
        ratio(found.eager / found.compiled),
        *(ratio(found.against(peer)) for peer in ("numba", "jax", "torch")),
        str(found.recordings), f"{found.compiled_calls}/{found.calls}", str(found.piecewise_calls),
    )  # fmt: skip
    figures = "".join(cell.rjust(width) for cell, (_, width) in zip(cells, _COLUMNS, strict=True))
    return f"{program.name:<16}{figures}  {', '.join(goal for goal, met in found.met.items() if not met) or 'none'}"


def _summary(rows: Sequence[Measured]) -> str:
    lines = [f"{name:<8}{sum(row.met.get(name, False) for row in rows):>3} of {sum(name in row.met for row in rows):<4}{said}"
             for name, said in GOALS.items()]  # fmt: skip
    met = sum(all(row.met.values()) for row in rows)
    return "\n".join(["goals met", *lines, f"{'all':<8}{met:>3} of {len(rows)}"])


def main(arguments: Sequence[str] = ()) -> int:
    """Prints the table; with names, of these programs alone."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.branching", description="loops whose steps take different paths")
    parser.add_argument("--quick", action="store_true", help="few calls: a smoke test, noisy figures")
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs; all of them without any")
    options = parser.parse_args(list(arguments))
    try:
        programs = select(options.names)
    except ValueError as error:
        parser.error(str(error))
    tracejit.set_num_threads(1)
    tracejit.compile(lambda x: x + 1)(tracejit.ones(1))  # what a process does once
    rows, failures = [], 0
    print(_header())
    with threadpool_limits(limits=1), tracejit.config.override(cache=False):
        for program in programs:
            try:
                rows.append(measure(program, 0.0 if options.quick else SECONDS))
            except Exception as error:
                failures += 1
                print(f"{program.name:<16}failed: {type(error).__name__}: {' '.join(str(error).split())[:300]}", flush=True)
                continue
            print(_line(program, rows[-1]), flush=True)
    print(_summary(rows))
    print("\n".join(["inside", *(f"{program.name:<16}{program.inside}" for program in programs)]))
    for name in PEERS:
        if importlib.util.find_spec(name) is None:
            print(f"{name} is not installed: pip install {name}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
