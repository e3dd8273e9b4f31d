"""Training a classifier of handwritten digits (scikit-learn's 1,797 images of 8 x 8) twice: eagerly, and with the whole step compiled.

Both runs begin from the same parameters and see the same batches in the same order; their loss curves must coincide and both must reach
the same accuracy on digits held out from training.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from tqdm import tqdm

import tracejit
from benchmarks.table import duration
from benchmarks.workload import unchanged
from tracejit.data import digits

__all__ = ["ACCURACY", "Training", "compare", "train"]

ACCURACY = 0.97
_HIDDEN, _BATCH, _RATE = 256, 32, 2e-3


@dataclass(frozen=True)
class Training:
    """One run: losses of every step, accuracy on held-out digits, seconds of the first epoch and of all."""

    losses: np.ndarray
    accuracy: float
    first_epoch: float
    seconds: float


def train(transform: Any, epochs: int, description: str) -> Training:
    """Train 64-128-10 with Adam; `transform` is applied to the whole step: zero_grad, forward, backward, optimizer."""
    training, held_out = digits()  # 20 % held out, with the same share of each digit
    train_x, train_y = (t.numpy() for t in training.tensors)
    test_x, test_y = held_out.tensors
    tracejit.manual_seed(0)
    nn = tracejit.nn
    model = nn.Sequential(nn.Linear(64, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, 10))
    optimizer = tracejit.optim.Adam(model.parameters(), lr=_RATE)
    criterion = nn.CrossEntropyLoss()

    @transform
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    random = np.random.default_rng(0)
    losses: list[float] = []
    start, first_epoch = time.perf_counter(), 0.0
    with tqdm(total=epochs, desc=description, unit="epoch", leave=False, mininterval=0.5) as progress:
        for epoch in range(epochs):
            order = random.permutation(len(train_x))
            for i in range(0, len(order), _BATCH):
                rows = order[i : i + _BATCH]
                losses.append(step(tracejit.from_numpy(train_x[rows]), tracejit.from_numpy(train_y[rows])).item())
            if epoch == 0:
                first_epoch = time.perf_counter() - start
            progress.set_postfix(loss=f"{losses[-1]:.4f}")
            progress.update()
    seconds = time.perf_counter() - start
    with tracejit.no_grad():
        accuracy = (model(test_x).argmax(1) == test_y).numpy().mean()
    return Training(np.array(losses), float(accuracy), first_epoch, seconds)


def compare(epochs: int) -> tuple[str, list[str]]:
    """Train both ways: a report of a few lines, and what is wrong (nothing, or it must fail loudly)."""
    eager = train(unchanged, epochs, "digits, eager")
    compiled = train(tracejit.compile, epochs, "digits, compiled")
    gap = float(np.abs(eager.losses - compiled.losses).max())
    lines = [f"digits, 64-{_HIDDEN}-10, Adam, batch {_BATCH} (last one smaller), {epochs} epochs, {len(eager.losses)} steps"]
    lines += [
        f"  {name:9} accuracy {run.accuracy:.2%}   loss {run.losses[0]:.4f} -> {run.losses[-1]:.6f}   "
        f"first epoch {duration(run.first_epoch)}, in all {duration(run.seconds)}"
        for name, run in (("eager", eager), ("compiled", compiled))
    ]
    lines.append(f"  greatest difference of the loss curves {gap:.1e}")
    problems = []
    if not gap <= 1e-2:
        problems.append(f"digits: the loss curves part by {gap:.2e} > 1e-2")
    if abs(eager.accuracy - compiled.accuracy) > 0.003:
        problems.append(f"digits: accuracy {eager.accuracy:.2%} eager, {compiled.accuracy:.2%} compiled")
    if min(eager.accuracy, compiled.accuracy) < ACCURACY:
        problems.append(f"digits: accuracy {min(eager.accuracy, compiled.accuracy):.2%} is below {ACCURACY:.0%}")
    return "\n".join(lines), problems
