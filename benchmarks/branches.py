"""What branches cost that are decided by values: a network that takes one of two layers, at random, once or twice on its way.

Run as `python -m benchmarks.branches`.  Each function is called with inputs of random sides until all its paths are served by machine
code; then its calls are timed in turn with those of the same network whose sides are given, so that its path is straight, and their
results are compared.

A second table is of loops whose steps go one of two ways each, which run in pieces (docs/loops.md): their calls against eager ones of the
same inputs, whose results are the same.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tracejit
from benchmarks.table import duration
from tracejit import nn, optim

__all__ = ["main"]

INPUTS = 256
BLOCKS = 200
CALLS = 32  # of a block
WARM = 40000  # until paths are machine code, and side traces go on from their exits
LOOP_WARM = 500


def _network(branches: int) -> tuple[Callable[..., Any], Callable[..., Any], list[Any]]:
    """The loss of an input, by its own sides and by given ones, and the parameters.  Sides cost the same."""
    tracejit.manual_seed(0)
    first, *layers = [nn.Linear(64, 64) for _ in range(2 * branches + 2)]

    def loss(x: Any, sides: tuple[bool, ...] | None = None) -> Any:
        hidden = first(x).tanh()
        for k in range(branches):
            if sides[k] if sides is not None else hidden[0, k] > 0:
                hidden = layers[2 * k](hidden).tanh()
            else:
                hidden = layers[2 * k + 1](hidden).tanh()
        return layers[-1](hidden).pow(2).mean()

    straight = (True,) * branches
    return loss, lambda x: loss(x, straight), [p for layer in (first, *layers) for p in layer.parameters()]


def _step(loss: Callable[..., Any], parameters: list[Any]) -> Callable[..., Any]:
    optimizer = optim.SGD(parameters, lr=0.0)  # so that all calls for an input have the same results

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        value = loss(x)
        value.backward()
        optimizer.step()
        return value.detach()

    return step


def _seconds(call: Callable[..., Any], inputs: list[Any]) -> float:
    begun = time.perf_counter()
    for x in inputs:
        call(x)
    return time.perf_counter() - begun


def _measure(branches: int, with_gradients: bool) -> None:
    own, straight, parameters = _network(branches)
    if with_gradients:
        own, straight = _step(own, parameters), _step(straight, parameters)
    branching, alone = tracejit.compile(own), tracejit.compile(straight)
    generator = np.random.default_rng(0)
    inputs = [tracejit.tensor(generator.normal(size=(16, 64)).astype(np.float32)) for _ in range(INPUTS)]
    with tracejit.set_grad_enabled(with_gradients):
        for x in inputs:
            np.testing.assert_allclose(branching(x).item(), own(x).item(), rtol=1e-5)
        for k in range(WARM):
            branching(inputs[k % INPUTS]), alone(inputs[k % INPUTS])
        for x in inputs:
            np.testing.assert_allclose(branching(x).item(), own(x).item(), rtol=1e-5)
        times: tuple[list[float], list[float]] = [], []
        for block in range(BLOCKS):
            some = [inputs[(block * CALLS + k) % INPUTS] for k in range(CALLS)]
            times[0].append(_seconds(branching, some))
            times[1].append(_seconds(alone, some))
    ratio = statistics.median([a / b for a, b in zip(*times, strict=True)])
    each, least = (statistics.median(t) / CALLS for t in times)
    what = "step" if with_gradients else "forward"
    paths = f"{branching.stats.traces} paths"
    print(f"{f'{branches} branches, {what}':<24}{paths:>10}{duration(least):>12}{duration(each):>12}{ratio:>8.2f}")


def _cells(xs: Any, one: Any, other: Any) -> Any:
    hidden = tracejit.zeros(xs.shape[1])
    for x in xs:
        side = one if (hidden * x).sum() > 0 else other
        hidden = tracejit.tanh(side(hidden) + x)
    return hidden


def _metropolis(noise: Any, chances: Any, scale: Any) -> Any:
    x, energy, kept = tracejit.zeros(noise.shape[1]), tracejit.zeros(()), 0
    for step, chance in zip(noise, chances, strict=True):
        proposed = x + 0.3 * step
        after = ((proposed / scale) ** 2).sum() / 2
        if chance < tracejit.exp(energy - after):
            x, energy = proposed, after
            kept += 1
    return x * kept


def _loop(name: str, function: Callable[..., Any], inputs: list[tuple[Any, ...]]) -> None:
    compiled = tracejit.compile(function)
    with tracejit.no_grad():
        for k in range(LOOP_WARM):
            compiled(*inputs[k % len(inputs)])
        for given in inputs:
            np.testing.assert_allclose(compiled(*given).numpy(), function(*given).numpy(), rtol=1e-4, atol=1e-5)
        times = [
            (_seconds(lambda given: compiled(*given), inputs), _seconds(lambda given: function(*given), inputs)) for _ in range(9)
        ]
    assert compiled.stats.piecewise_calls, compiled.explain()
    found, eager = (statistics.median(column) / len(inputs) for column in zip(*times, strict=True))
    ratio = statistics.median([b / a for a, b in times])
    print(f"{name:<24}{compiled.stats.traces:>4} paths{duration(eager):>12}{duration(found):>12}{ratio:>7.1f}x")


def _loops() -> None:
    """Print the second table."""
    generator = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return tracejit.tensor(generator.normal(size=shape).astype(np.float32))

    print(f"{'loop of 20 steps':<24}{'':>10}{'eager':>12}{'in pieces':>12}{'gain':>8}")
    sides = nn.Linear(32, 32), nn.Linear(32, 32)
    _loop("one of two cells", _cells, [(normal(20, 32), *sides) for _ in range(INPUTS)])
    chances = [tracejit.tensor(generator.uniform(size=20).astype(np.float32)) for _ in range(INPUTS)]
    _loop("accepted or rejected", _metropolis, [(normal(20, 32), chance, normal(32).abs() + 1) for chance in chances])


def main() -> None:
    """Print the tables."""
    tracejit.set_num_threads(1)
    print(f"{'network':<24}{'':>10}{'straight':>12}{'branching':>12}{'ratio':>8}")
    with tracejit.config.override(compile_wait=float("inf")):
        for branches in (1, 2):
            for with_gradients in (False, True):
                _measure(branches, with_gradients)
        _loops()


if __name__ == "__main__":
    main()
