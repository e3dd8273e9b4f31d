"""What the library has found on this machine, and a self-test; for a first look, and for bug reports.

The self-test takes some ten seconds.  Exit status: 0, or 1 where something fails.
"""

# Its programs are compiled because the module is run as `__main__`: functions of the library's own modules are not.

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from tracejit import nn, optim
from tracejit.compiled.compile import compile
from tracejit.config import config, override
from tracejit.cpython import c_api
from tracejit.nn import functional as F
from tracejit.random import manual_seed
from tracejit.report.system import facts, text
from tracejit.tensor import Tensor, tensor

_STEPS = 12
_HOT = 4  # calls before the Python around a program becomes machine code, in the hot test


def _train(compiled: bool) -> list[float]:
    """The losses of a small network that learns to tell three classes apart, and the sum of its parameters at the end."""
    generator = np.random.default_rng(0)
    manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 3))
    optimizer = optim.Adam(model.parameters(), lr=0.01)
    inputs = tensor(generator.normal(size=(32, 8)).astype(np.float32))
    targets = tensor(generator.integers(0, 3, 32))

    def step(inputs: Tensor, targets: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    run: Any = compile(step, wait=True) if compiled else step
    losses = [float(run(inputs, targets)) for _ in range(_STEPS)]
    if compiled and run.stats.compiled_calls < _STEPS - 3:
        raise AssertionError(f"expected {_STEPS - 3} compiled calls of {_STEPS}:\n{run.explain()}")
    if compiled and config.hot_calls and c_api.supported() and "from machine code" not in run.explain(verbose=True):
        raise AssertionError(f"expected calls from machine code:\n{run.explain(verbose=True)}")
    return [*losses, float(sum(float(p.detach().sum()) for p in model.parameters()))]


def _training(hot_calls: int) -> None:
    with override(hot_calls=hot_calls):
        np.testing.assert_allclose(_train(True), _train(False), rtol=1e-4, atol=1e-5)


def _branches() -> None:
    """Both ways of a branch on a tensor, through a loop of any length."""

    def walk(x: Tensor, steps: int) -> Tensor:
        for _ in range(steps):
            x = x * 0.5 if x.sum() > 1 else x + 1
        return x

    compiled = compile(walk, wait=True)
    for k in range(12):
        given = tensor([1.0, 0.5, 0.0]) * (k % 4)
        np.testing.assert_array_equal(compiled(given, 3).numpy(), walk(given, 3).numpy())
    if not compiled.stats.compiled_calls:
        raise AssertionError(f"expected compiled calls:\n{compiled.explain()}")


_TESTS: dict[str, Callable[[], None]] = {
    "a training step, called from Python": lambda: _training(0),
    "a training step, called from machine code": lambda: _training(_HOT),
    "branches on tensors": _branches,
}


def self_test() -> dict[str, dict[str, Any]]:
    """Name of a test -> whether it passed, its seconds, and what it raised."""
    results: dict[str, dict[str, Any]] = {}
    for name, test in _TESTS.items():
        begin = time.perf_counter()
        error = ""
        try:
            test()
        except Exception:  # whatever it is, it is what the report is for
            error = traceback.format_exc()
        results[name] = {"passed": not error, "seconds": round(time.perf_counter() - begin, 2), "error": error}
    return results


def main(arguments: list[str]) -> int:
    """Print the report; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tracejit", description=__doc__)
    parser.add_argument("--json", action="store_true", help="as JSON, for bug reports")
    as_json = parser.parse_args(arguments).json
    found = facts()
    if not as_json:
        print(text(found), flush=True)
    results = self_test()
    passed = all(result["passed"] for result in results.values())
    if as_json:
        print(json.dumps({**found, "self-test": results}, indent=2))
    else:
        for name, result in results.items():
            print(f"self-test   {name}: {'passed' if result['passed'] else 'FAILED'} ({result['seconds']} s)")
            if result["error"]:
                print(result["error"])
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
