"""What loops cost whose steps go different ways: samplers, integrators and solvers as people write them, the whole loop compiled.

Run as `python -m benchmarks.branching [NAME...]`.  Each program is called `CALLS` times eagerly and `CALLS` times compiled, in turn and
from the same seeds, and every result must be equal.  The first `FIRST` compiled calls include all recording and compiling.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tracejit
from benchmarks.table import duration

__all__ = ["PROGRAMS", "Program", "main", "measure"]

FIRST, CALLS = 10, 20

Transform = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass(frozen=True)
class Program:
    """build: given `tracejit.compile` or the identity, what is measured, a function of the number of its call."""

    name: str
    inside: str
    build: Callable[[Transform], Callable[[int], Any]]


def _metropolis(transform: Transform) -> Callable[[int], Any]:
    def density(x: Any) -> Any:
        return tracejit.exp(-0.5 * (x * x).sum())

    @transform
    def sample(x: Any, scale: float, steps: int) -> Any:
        accepted = 0
        for _ in range(steps):
            proposed = x + scale * tracejit.randn(3)
            if tracejit.rand(()) < density(proposed) / density(x):
                x, accepted = proposed, accepted + 1
        return x, accepted

    return lambda call: sample(tracejit.ones(3), 0.8, 1000)


def _hmc(transform: Transform) -> Callable[[int], Any]:
    def energy(q: Any) -> Any:
        return 0.5 * (q * q).sum() + 0.05 * (q**4).sum()

    def force(q: Any) -> Any:
        q = q.detach().requires_grad_()
        return tracejit.autograd.grad(energy(q), q)[0]

    @transform
    def transition(q: Any, step: float) -> Any:
        p = tracejit.randn(4)
        begun = energy(q) + 0.5 * (p * p).sum()
        moved, p = q, p - 0.5 * step * force(q)
        for k in range(8):
            moved = moved + step * p
            p = p - (step if k < 7 else 0.5 * step) * force(moved)
        ended = energy(moved) + 0.5 * (p * p).sum()
        if tracejit.rand(()) < tracejit.exp(begun - ended):
            return moved, True
        return q, False

    for _ in range(40):
        transition(tracejit.ones(4), 0.4)

    @transform
    def chain(q: Any, step: float, transitions: int) -> Any:
        kept, accepted = [], 0
        for _ in range(transitions):
            q, moved = transition(q, step)
            accepted += moved
            kept.append(q)
        return tracejit.stack(kept), accepted

    return lambda call: chain(tracejit.ones(4), 0.4, 200)


def _heun(transform: Transform) -> Callable[[int], Any]:
    weight = tracejit.tensor([[-0.5, 3.0], [-3.0, -0.5]])

    def slope(t: float, y: Any) -> Any:
        return tracejit.tanh(weight @ y) + 0.5 * math.sin(5.0 * t)

    @transform
    def solve(y: Any, end: float, tolerance: float) -> Any:
        t, dt, rejected = 0.0, 0.1, 0
        while t < end:
            dt = min(dt, end - t)
            first = slope(t, y)
            second = slope(t + dt, y + dt * first)
            error = (0.5 * dt * (second - first)).abs().max().item()
            if error <= tolerance:
                t, y = t + dt, y + 0.5 * dt * (first + second)
            else:
                rejected += 1
            dt = dt * min(2.0, max(0.3, 0.9 * math.sqrt(tolerance / (error + 1e-12))))
        return y, t, rejected

    return lambda call: solve(tracejit.tensor([1.0 + 0.01 * call, 0.5]), 10.0, 1e-4)


def _ball(transform: Transform) -> Callable[[int], Any]:
    @transform
    def bounce(height: Any, speed: Any, dt: float, steps: int) -> Any:
        heights, bounces = [], 0
        for _ in range(steps):
            speed = speed - 9.81 * dt
            height = height + speed * dt
            if height < 0:
                height, speed = -height, -0.9 * speed
                bounces += 1
            heights.append(height)
        return tracejit.stack(heights), bounces

    return lambda call: bounce(tracejit.tensor(1.0 + 0.01 * call), tracejit.tensor(0.0), 0.01, 1000)


def _rejection(transform: Transform) -> Callable[[int], Any]:
    @transform
    def draw(count: int) -> Any:
        found = []
        for _ in range(count):
            while True:
                x = 6.0 * tracejit.rand(()) - 3.0
                if tracejit.rand(()) < tracejit.exp(-0.5 * x * x):
                    break
            found.append(x)
        return tracejit.stack(found)

    return lambda call: draw(300)


def _newton(transform: Transform) -> Callable[[int], Any]:
    """Minimises a valley that bends, from many positions, by damped steps of Newton's method; steps are halved until they lead down."""

    def value(x: Any) -> Any:
        return (1.0 - x[0]) ** 2 + 100.0 * (x[1] - x[0] * x[0]) ** 2

    def gradient(x: Any) -> Any:
        inner = x[1] - x[0] * x[0]
        return tracejit.stack([-2.0 * (1.0 - x[0]) - 400.0 * x[0] * inner, 200.0 * inner])

    def curvature(x: Any) -> Any:
        mixed = -400.0 * x[0]
        rows = [2.0 - 400.0 * (x[1] - 3.0 * x[0] * x[0]), mixed, mixed, tracejit.full((), 200.0)]
        return tracejit.stack(rows).reshape(2, 2)

    @transform
    def minimise(starts: Any) -> Any:
        ends, taken = [], 0
        for x in starts:
            here = value(x)
            for _ in range(50):
                slope = gradient(x)
                if slope.abs().max() < 1e-3:
                    break
                step = -tracejit.linalg.solve(curvature(x) + tracejit.eye(2), slope)
                rate = 1.0
                while True:
                    moved = x + rate * step
                    there = value(moved)
                    if there <= here + 1e-4 * rate * (slope * step).sum() or rate < 1e-6:
                        break
                    rate = 0.5 * rate
                x, here, taken = moved, there, taken + 1
            ends.append(x)
        return tracejit.stack(ends), taken

    def starts(call: int) -> Any:
        return tracejit.tensor(np.random.default_rng(call).uniform(-1.5, 1.5, (20, 2)).astype(np.float32))

    return lambda call: minimise(starts(call))


PROGRAMS = (
    Program("metropolis", "1,000 proposals of 3 numbers", _metropolis),
    Program("hmc", "200 calls of a compiled transition of 8 leapfrog steps", _hmc),
    Program("heun", "steps of Heun's method whose size a tolerance decides", _heun),
    Program("ball", "1,000 steps of a ball that bounces", _ball),
    Program("rejection", "300 numbers by rejection", _rejection),
    Program("newton", "Newton's method with a line search from 20 positions", _newton),
)


def _leaves(result: Any) -> list[Any]:
    return [leaf for part in result for leaf in _leaves(part)] if isinstance(result, tuple | list) else [result]


def _check_equal(name: str, call: int, expected: Any, given: Any) -> None:
    """Raises AssertionError where results differ: numbers of Python and shapes at all, tensors by more than rounding."""
    pairs = list(zip(_leaves(expected), _leaves(given), strict=True))
    for a, b in pairs:
        what = f"{name}, call {call}"
        if isinstance(a, tracejit.Tensor):
            np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=2e-4, atol=2e-5, err_msg=what)
        elif isinstance(a, float):
            np.testing.assert_allclose(b, a, rtol=1e-6, err_msg=what)
        else:
            assert (type(a), a) == (type(b), b), f"{what}: {a!r} eagerly, {b!r} compiled"


def _timed(program: Callable[[int], Any], call: int) -> tuple[float, Any]:
    tracejit.manual_seed(call)
    begun = time.perf_counter()
    result = program(call)
    return time.perf_counter() - begun, result


@dataclass(frozen=True)
class Measured:
    """eager: seconds of a call; first: the total of the first calls, and later: that of a call after them, over eager's; compiled,
    piecewise, recordings: of the function measured, of its `CALLS` calls."""

    eager: float
    first: float
    later: float
    compiled: int
    piecewise: int
    recordings: int


def measure(program: Program, calls: int = CALLS, first: int = FIRST) -> Measured:
    """Raises AssertionError where a compiled call does not give what the eager one gives."""
    functions: list[Any] = []

    def compiling(function: Callable[..., Any]) -> Callable[..., Any]:
        functions.append(tracejit.compile(function))
        return functions[-1]  # type: ignore[no-any-return]

    eager, compiled = program.build(lambda function: function), program.build(compiling)
    times: list[tuple[float, float]] = []
    for call in range(calls):
        expected_in, expected = _timed(eager, call)
        given_in, given = _timed(compiled, call)
        _check_equal(program.name, call, expected, given)
        times.append((expected_in, given_in))
    begun, later = times[:first], times[first:]
    stats = functions[-1].stats
    return Measured(
        eager=statistics.median([a for a, _ in times]),
        first=sum(b for _, b in begun) / sum(a for a, _ in begun),
        later=statistics.median([b / a for a, b in later]),
        compiled=stats.compiled_calls,
        piecewise=stats.piecewise_calls,
        recordings=stats.traces,
    )


def main(names: Sequence[str] = ()) -> None:
    """Print the table; with names, of these programs alone."""
    tracejit.set_num_threads(1)
    tracejit.compile(lambda x: x + 1)(tracejit.ones(1))  # what a process does once
    print(f"{'program':<12}{'eager/call':>12}{'first 10':>10}{'later':>8}{'compiled':>10}{'pieces':>8}{'recorded':>10}  inside")
    for program in PROGRAMS:
        if names and program.name not in names:
            continue
        found = measure(program)
        print(
            f"{program.name:<12}{duration(found.eager):>12}{found.first:>9.2f}x{found.later:>7.2f}x{found.compiled:>10}"
            f"{found.piecewise:>8}{found.recordings:>10}  {program.inside}",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
