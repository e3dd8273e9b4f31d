"""What a function costs whose sizes change: batches, and sequences, of 30 sizes in random order.

Run as `python -m benchmarks.sizes`.  The cache of compiled code is off, and paths become machine code after four calls.  Each size is
called until it is served by machine code; then its calls are timed against those of another compiled function that has met no other size,
and their results are compared: the same size again and again, and another one in each call.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import tracejit
from benchmarks.table import duration
from tracejit import nn, optim
from tracejit.llvm import driver

__all__ = ["COUNT", "main"]

COUNT = 30
LARGEST = 100
EXACT = 5  # sizes that are compared with programs of their own


def _training() -> tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]:
    """A step of a classifier, and its batches."""
    tracejit.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = optim.SGD(model.parameters(), lr=0.0)  # so that all calls for a batch have the same results

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def batch(n: int) -> tuple[Any, ...]:
        generator = np.random.default_rng(n)
        x = tracejit.tensor(generator.normal(size=(n, 64)).astype(np.float32))
        return x, tracejit.tensor(generator.integers(0, 10, n))

    return step, batch


def _attention() -> tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]:
    """A layer of a transformer, in eval mode, and its sequences."""
    tracejit.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()

    def encode(x: Any) -> Any:
        with tracejit.no_grad():
            return layer(x)

    return encode, lambda n: (tracejit.tensor(np.random.default_rng(n).normal(size=(2, n, 32)).astype(np.float32)),)


def _trained(forward: Callable[[Any], Any], parameters: list[Any]) -> tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]:
    """A training step of what reads a number from the states that `forward` makes of sequences, and these."""
    read = nn.Linear(32, 1)
    optimizer = optim.SGD([*parameters, *read.parameters()], lr=0.0)

    def step(xs: Any) -> Any:
        optimizer.zero_grad()
        loss = (read(forward(xs)) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, lambda n: (tracejit.tensor(np.random.default_rng(n).normal(size=(n, 4, 16)).astype(np.float32)),)


def _recurrent() -> tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]:
    """A recurrent cell in a loop of Python."""
    tracejit.manual_seed(0)
    cell = nn.RNNCell(16, 32)

    def last(xs: Any) -> Any:
        hidden = tracejit.zeros(4, 32)
        for x in xs:
            hidden = cell(x, hidden)
        return hidden

    return _trained(last, list(cell.parameters()))


def _scanned() -> tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]:
    """The same as a scan."""
    tracejit.manual_seed(0)
    cell = nn.RNNCell(16, 32)

    def over(hidden: Any, x: Any) -> Any:
        return cell(x, hidden), None

    return _trained(lambda xs: tracejit.scan(over, tracejit.zeros(4, 32), xs)[0], list(cell.parameters()))


def _network() -> tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]:
    """An LSTM."""
    tracejit.manual_seed(0)
    network = nn.LSTM(16, 32)
    return _trained(lambda xs: network(xs)[0], list(network.parameters()))


def _ragged() -> tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]:
    """A training step of a layer over sequences of several lengths, which are padded."""
    tracejit.manual_seed(0)
    read = nn.Linear(16, 1)
    optimizer = optim.SGD(read.parameters(), lr=0.0)

    def step(sequences: list[Any]) -> Any:
        optimizer.zero_grad()
        loss = (read(nn.utils.rnn.pad_sequence(sequences)) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    def lists(n: int) -> tuple[Any, ...]:
        generator = np.random.default_rng(n)
        lengths = generator.integers(2, n + 2, 4)
        return ([tracejit.tensor(generator.normal(size=(length, 16)).astype(np.float32)) for length in lengths],)

    return step, lists


def _median(call: Callable[[], Any]) -> float:
    times = []
    for _ in range(60):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def _in_turn(
    shared: Callable[..., Any], exact: Mapping[int, Callable[..., Any]], inputs: Callable[[int], tuple[Any, ...]]
) -> float:
    """What a call costs, against the programs of one size, where the sizes come in random order."""
    dice, given, ratios = random.Random(1), {n: inputs(n) for n in exact}, []
    for _ in range(40):
        order = [n for n in exact for _ in range(5)]
        dice.shuffle(order)
        begun = time.perf_counter()
        for n in order:
            shared(*given[n])
        between = time.perf_counter()
        for n in order:
            exact[n](*given[n])
        ratios.append((between - begun) / (time.perf_counter() - between))
    return statistics.median(ratios)


def _measure(
    name: str, make: Callable[[], tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]], sizes: list[int]
) -> None:
    function, inputs = make()
    shared, programs, first = tracejit.compile(function), [], []
    for n in sizes:
        given, before, begun = inputs(n), driver.compilations(), time.perf_counter()
        shared(*given)
        first.append(time.perf_counter() - begun)
        programs.append(driver.compilations() - before)
    ratios, exacts = [], {}
    for n in sizes[-EXACT:]:
        given, exact = inputs(n), tracejit.compile(function)
        exacts[n] = exact
        for f in (exact, shared):
            for _ in range(5):
                f(*given)
            assert f.stats.compiled_calls, f.explain()
        assert np.array_equal(shared(*given).numpy(), exact(*given).numpy()), f"{name}, size {n}: another result"
        rounds = [(_median(lambda: shared(*given)), _median(lambda: exact(*given))) for _ in range(5)]  # noqa: B023
        ratios.append(statistics.median(a / b for a, b in rounds))
    shares = [seconds for seconds, count in zip(first, programs, strict=True) if not count]
    print(f"{name:<26}{shared.stats.traces:>11}{sum(programs):>10}", end="")
    print(
        f"{duration(first[0]):>14}{duration(statistics.median(shares)):>16}{statistics.median(ratios):>16.2f}{max(ratios):>8.2f}"
        f"{_in_turn(shared, exacts, inputs):>12.2f}"
    )


def main() -> None:
    """Print a line for each function.  Raises AssertionError where a result is not that of a program of its size."""
    dice = random.Random(0)
    sizes = dice.sample(range(2, LARGEST), COUNT)
    print(
        f"{COUNT} sizes from 2 to {LARGEST - 1} in random order; later calls against those of a function that has met one size alone"
    )
    print(
        f"{'':<26}{'recordings':>11}{'programs':>10}{'first size':>14}{'size to come':>16}{'later calls':>16}{'most':>8}{'in turn':>12}"
    )
    with tracejit.config.override(cache=False, compile_wait=math.inf, hot_calls=4):
        _measure("training step, batches", _training, sizes)
        _measure("transformer layer, lengths", _attention, sizes)
        _measure("LSTM, lengths", _network, sizes)
        _measure("scan, lengths", _scanned, sizes)
        _measure("ragged lists", _ragged, sizes)
        _measure("recurrent step, lengths", _recurrent, sizes)


if __name__ == "__main__":
    main()
