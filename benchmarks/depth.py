"""What a layer more costs: recording and compiling a transformer, its gradients and its training step, by its number of layers.

Run as `python -m benchmarks.depth`.  The cache of compiled code is off.  Each first call has a process of its own, in which another
function was compiled before, so that what is imported and made once is not counted.  Figures are CPU time on one thread, the least of a
few processes, which what else runs on the machine changes little; depths take turns.  The losses and the parameters after the calls are
compared with those of an eager model in the same process.  Stages are told apart by wrapping the functions that do them; the time of one
inside another is not the other's.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import tracejit
from benchmarks.table import duration
from tracejit import nn, optim
from tracejit.compiled import recording_driver
from tracejit.native import machine_code
from tracejit.runtime import program

__all__ = ["COMPUTATIONS", "DEPTHS", "GOAL", "main", "measure"]

DEPTHS = (2, 6, 12)
COMPUTATIONS = ("forward", "gradients", "SGD", "Adam")
GOAL = 1.5  # the first call of 12 layers over that of 2
REPEATS = 3
CALLS = 8
BATCH, LENGTH, WIDTH, HEADS, INNER = 4, 16, 64, 4, 128
TOLERANCE = 1e-3

_THREADS = ("TRACEJIT_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")

_STAGES = (
    ("recording", recording_driver, "record"),
    ("passes", recording_driver, "Executable"),
    ("lowering", program, "lower"),
    ("text", program, "compile_program"),
    ("LLVM", machine_code, "compile_text"),
    ("entry", recording_driver, "RecordedPath"),
)
"""What the first call's time goes to, each with the function or the class that does it."""


class _Stages:
    """Seconds spent in each stage."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._within: list[float] = []  # per stage that is under way, seconds of those inside it

    @contextmanager
    def timed(self) -> Iterator[None]:
        """In the block, stages are timed."""
        with ExitStack() as patches:
            for stage, owner, name in _STAGES:
                patches.enter_context(mock.patch.object(owner, name, self._measured(stage, getattr(owner, name))))
            yield

    def _measured(self, stage: str, action: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*args: Any, **kwargs: Any) -> Any:
            self._within.append(0.0)
            start = time.process_time()
            try:
                return action(*args, **kwargs)
            finally:
                seconds = time.process_time() - start
                self.seconds[stage] += seconds - self._within.pop()
                if self._within:
                    self._within[-1] += seconds

        return measured


def _computation(layers: int, name: str) -> tuple[Callable[[Any], Any], list[Any]]:
    """What is computed of a transformer's encoder, which gives the loss, and its parameters: the loss alone, with gradients, or a step of
    an optimizer."""
    tracejit.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, INNER, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, layers)
    parameters = list(model.parameters())
    steps = optim.Adam(parameters, lr=1e-4) if name == "Adam" else optim.SGD(parameters, lr=1e-2)

    def forward(x: Any) -> Any:
        with tracejit.no_grad():
            return (model(x) ** 2).mean()

    def gradients(x: Any) -> Any:
        steps.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        return loss.detach()

    def training(x: Any) -> Any:
        loss = gradients(x)
        steps.step()
        return loss

    return {"forward": forward, "gradients": gradients}.get(name, training), parameters


def _unrelated(x: Any) -> Any:
    return (x * 2.0).sum()


def measure(layers: int, name: str) -> dict[str, float]:
    """CPU seconds of the first call, the second, a later one, and the stages of the first, in a process that has not met such a model.

    Raises AssertionError where a result is not the eager one's."""
    with tracejit.config.override(cache=False, compile_wait=math.inf):
        tracejit.compile(_unrelated)(tracejit.ones(3))
        x = tracejit.tensor(np.random.default_rng(0).normal(size=(BATCH, LENGTH, WIDTH)).astype(np.float32))
        step, parameters = _computation(layers, name)
        compiled = tracejit.compile(step)
        stages = _Stages()
        losses, seconds = [], []
        for k in range(CALLS):
            with stages.timed() if k == 0 else nullcontext():
                start = time.process_time()
                losses.append(compiled(x))
                seconds.append(time.process_time() - start)
        traces, replayed = compiled.stats.traces, compiled.stats.compiled_calls
        assert replayed == len(losses) - traces, compiled.explain()
        eager, expected = _computation(layers, name)
        for loss in losses:
            np.testing.assert_allclose(loss.numpy(), eager(x).numpy(), rtol=TOLERANCE)
        for found, parameter in zip(parameters, expected, strict=True):
            np.testing.assert_allclose(found.detach().numpy(), parameter.detach().numpy(), rtol=TOLERANCE, atol=TOLERANCE)
    return {"first": seconds[0], "second": seconds[1], "later": statistics.median(seconds[2:]), **stages.seconds}


def _in_process(layers: int, name: str) -> dict[str, float]:
    """`measure` in a new process.  Raises CalledProcessError where it fails."""
    command = [sys.executable, "-m", "benchmarks.depth", str(layers), name]
    environment = os.environ | dict.fromkeys(_THREADS, "1")
    home = Path(__file__).resolve().parent.parent
    done = subprocess.run(command, cwd=home, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def main(arguments: Sequence[str] = ()) -> None:
    """Print a line for each depth and computation; with a depth and a computation as arguments, figures of this process as JSON."""
    if arguments:
        layers, name = arguments
        print(json.dumps(measure(int(layers), name)))
        return
    stages = [stage for stage, _, _ in _STAGES]
    print(
        f"a transformer's encoder, width {WIDTH}, {HEADS} heads, batches of {BATCH} x {LENGTH}; "
        f"goal: the first call of {DEPTHS[-1]} layers at most {GOAL} of that of {DEPTHS[0]}"
    )
    head = f"{'':<10}{'layers':>7}{'first call':>13}{'/ of ' + str(DEPTHS[0]):>9}{'second':>10}{'later':>10}"
    print(head + "".join(f"{name:>12}" for name in stages))
    for computation in COMPUTATIONS:
        runs = [{depth: _in_process(depth, computation) for depth in DEPTHS} for _ in range(REPEATS)]
        for depth in DEPTHS:
            figures, fewest = ({name: min(run[d][name] for run in runs) for name in runs[0][d]} for d in (depth, DEPTHS[0]))
            ratio = figures["first"] / fewest["first"]
            line = f"{computation:<10}{depth:>7}{duration(figures['first']):>13}{ratio:>9.2f}"
            line += f"{duration(figures['second']):>10}{duration(figures['later']):>10}"
            print(line + "".join(f"{duration(figures[name]):>12}" for name in stages))


if __name__ == "__main__":
    main(sys.argv[1:])
