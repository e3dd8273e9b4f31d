"""Timing of implementations against each other.

A shared machine drifts, so the sides are measured in turn within each round, and ratios are taken round by round; the figures reported are
medians.  What ran before leaves its mark (caches, thread pools still spinning, memory given back to the system): so the order within a
round is drawn anew each time, and each sample is preceded by one call that is not timed.  The garbage collector is off.  Must not know
what is being measured.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial

__all__ = ["calls_per_sample", "in_turn", "interleaved", "paired_ratio", "sample"]

_SHORTEST_SAMPLE = 2e-4  # seconds; the clock and the loop around the calls cost well under a thousandth of it
_FEWEST_ROUNDS = 5
_MOST_ROUNDS = 60


def sample(call: Callable[[], object], count: int, before: int = 1) -> float:
    """Seconds per call of `count` calls, after `before` calls that are not timed."""
    for _ in range(before):
        call()
    clock = time.perf_counter
    repeat = range(count)
    start = clock()
    for _ in repeat:
        call()
    return (clock() - start) / count


def calls_per_sample(call: Callable[[], object], seconds: float) -> int:
    """Warm up, and find how many calls make a sample of about `seconds`."""
    count, spent = 1, 0.0
    while True:
        duration = sample(call, count, before=0)
        spent += duration * count
        if duration * count >= min(seconds, _SHORTEST_SAMPLE) and spent >= min(seconds, 0.02):
            return max(1, round(max(seconds, _SHORTEST_SAMPLE) / duration))
        count *= 2


def in_turn(samplers: Mapping[str, Callable[[], float]], seconds: float, most: int = _MOST_ROUNDS) -> dict[str, list[float]]:
    """One figure of each sampler in each round, in an order drawn anew; `most` rounds, fewer where `seconds` are over before."""
    names = list(samplers)
    figures: dict[str, list[float]] = {name: [] for name in names}
    shuffled = random.Random(0)
    start = time.perf_counter()
    for turn in range(most):
        if turn >= _FEWEST_ROUNDS and time.perf_counter() - start > seconds:
            break
        for name in shuffled.sample(names, len(names)):
            figures[name].append(samplers[name]())
    return figures


def interleaved(sides: Mapping[str, Callable[[], object]], seconds_each: float) -> dict[str, list[float]]:
    """Seconds per call of each side, one figure per round; about `seconds_each` spent on each side (more where one call takes longer)."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        counts = {name: calls_per_sample(call, seconds_each / _MOST_ROUNDS) for name, call in sides.items()}
        samplers = {name: partial(sample, call, counts[name]) for name, call in sides.items()}
        return in_turn(samplers, seconds_each * len(sides))
    finally:
        if was_enabled:
            gc.enable()


def paired_ratio(slow: list[float], fast: list[float]) -> float:
    """The median over the rounds of slow / fast."""
    return statistics.median(a / b for a, b in zip(slow, fast, strict=True))
