"""What a loop of Python costs, and a scan: recording and compiling an RNN's step, value and gradients, by its time steps.

Run as `python -m benchmarks.unrolled`.  The cache of compiled code is off.  A call is recorded, then compiled with its backward program;
the gradients of the compiled call are compared with eager ones in the same run.  A full garbage collection, which looks at all objects of
the process and takes as long as half a thousand steps, comes before what is timed, not at some time within.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tracejit
from benchmarks.table import duration

__all__ = ["LENGTHS", "main"]

LENGTHS = (10, 100, 1000)
HIDDEN = 32
TOLERANCE = 1e-4


def _step(length: int, rolled: bool = False) -> tuple[Any, list[Any]]:
    """A function of nothing that gives the loss and fills the gradients of some parameters, and these.  rolled: its loop is a scan."""
    generator = np.random.default_rng(length)

    def parameter(*shape: int) -> Any:
        return tracejit.tensor(generator.normal(0, 0.1, shape).astype(np.float32), requires_grad=True)

    inputs = tracejit.tensor(generator.normal(size=(length, 1, HIDDEN)).astype(np.float32))
    parameters = [parameter(HIDDEN, HIDDEN), parameter(HIDDEN, HIDDEN), parameter(HIDDEN)]

    wx, wh, bias = parameters

    def cell(hidden: Any, x: Any) -> Any:
        return (x @ wx + hidden @ wh + bias).tanh(), None

    def unrolled() -> Any:
        hidden = tracejit.zeros(1, HIDDEN)
        for x in inputs:
            hidden, _ = cell(hidden, x)
        return (hidden * hidden).sum()

    def scanned() -> Any:
        hidden, _ = tracejit.scan(cell, tracejit.zeros(1, HIDDEN), inputs)
        return (hidden * hidden).sum()

    return scanned if rolled else unrolled, parameters


def _gradients(function: Any, parameters: list[Any]) -> list[np.ndarray]:
    for p in parameters:
        p.grad = None
    function().backward()
    return [p.grad.numpy().copy() for p in parameters]


def main() -> None:
    """Print a line for each length.  Raises AssertionError where a compiled gradient is not the eager one."""
    with tracejit.config.override(cache=False, compile_wait=math.inf):
        step, parameters = _step(2)  # what is imported and made once
        warm = tracejit.compile(step)
        for _ in range(2):
            _gradients(warm, parameters)
        for rolled in (False, True):
            _print([(length, *_measured(length, rolled)) for length in LENGTHS], "as a scan" if rolled else "a loop of Python")


def _measured(length: int, rolled: bool) -> tuple[float, float, float, float]:
    """Seconds of an eager call, of the first compiled one, of the second, and of one to come."""
    step, parameters = _step(length, rolled)
    eager = _median(lambda: _gradients(step, parameters), 3)
    compiled = tracejit.compile(step)
    gc.collect()
    start = time.perf_counter()
    _gradients(compiled, parameters)
    recorded = time.perf_counter()
    found = _gradients(compiled, parameters)
    built = time.perf_counter()
    assert compiled.stats.compiled_calls, compiled.explain()
    assert ("  loop of " in compiled.explain(verbose=True)) == (length >= (10 if rolled else 100)), compiled.explain()
    for a, b in zip(found, _gradients(step, parameters), strict=True):
        np.testing.assert_allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE * np.abs(b).max())
    later = _median(lambda: _gradients(compiled, parameters), 9)
    return eager, recorded - start, built - recorded, later


def _median(action: Callable[[], Any], times: int) -> float:
    found = []
    gc.collect()
    for _ in range(times):
        begun = time.perf_counter()
        action()
        found.append(time.perf_counter() - begun)
    return float(np.median(found))


def _print(rows: list[tuple[int, float, float, float, float]], form: str) -> None:
    """Compiling is what two calls take beyond an eager one, which the first of them is as well."""
    total = {length: first + second for length, _, first, second, _ in rows}
    beyond = {length: first - eager + second for length, eager, first, second, _ in rows}
    print(f"RNN of {HIDDEN} hidden units, {form}: value and gradients")
    heads = ("eager call", "first call", "second call", "both / of 10", "less eager / of 10", "later calls")
    print(f"{'steps':>6}" + "".join([f"{head:>20}" for head in heads]))
    for length, eager, first, second, later in rows:
        ratios = [f"{part[length] / part[LENGTHS[0]]:.2f}" for part in (total, beyond)]
        columns = [*map(duration, (eager, first, second)), *ratios, duration(later)]
        print(f"{length:>6}" + "".join([f"{column:>20}" for column in columns]))


if __name__ == "__main__":
    main()
