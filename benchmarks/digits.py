"""Training a classifier of handwritten digits (scikit-learn's 1,797 images of 8 x 8) twice: eagerly, and with the whole step compiled.

Both runs begin from the same parameters and see the same batches in the same order; their loss curves must coincide and both must reach
the same accuracy on digits held out from training.  A fifth of the digits is few (random splits give 95 to 99 %), so this is five-fold
cross-validation: each way trains five times, and each digit is held out once.
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

__all__ = ["ACCURACY", "Training", "compare", "split_of", "train"]

ACCURACY = 0.97
_HIDDEN, _BATCH, _RATE, _SPLITS = 256, 32, 2e-3, 5
_CURVES = 0.01  # rounding differs, and 1,350 steps of Adam amplify it; a step gone wrong parts the curves by their own size


@dataclass(frozen=True)
class Training:
    """One run: losses of every step, accuracy on held-out digits, seconds of the first epoch and of all; (recordings, programs) of
    the first epoch and of all, where there are some."""

    losses: np.ndarray
    accuracy: float
    first_epoch: float
    seconds: float
    made: tuple[tuple[int, int], ...] = ()


def split_of(number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images and labels to train with, images and labels held out: every fifth of all the digits, beginning with `number`."""
    training, test = digits()
    images, labels = (np.concatenate([a.numpy(), b.numpy()]) for a, b in zip(training.tensors, test.tensors, strict=True))
    held_out = np.arange(len(labels)) % _SPLITS == number
    return images[~held_out], labels[~held_out], images[held_out], labels[held_out]


def train(transform: Any, epochs: int, description: str, split: int = 0) -> Training:
    """Train with Adam on split number `split`; `transform` is applied to the whole step: zero_grad, forward, backward, optimizer."""
    train_x, train_y, test_x, test_y = split_of(split)
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
    made: list[tuple[int, int]] = []
    with tqdm(total=epochs, desc=description, unit="epoch", leave=False, mininterval=0.5) as progress:
        for epoch in range(epochs):
            order = random.permutation(len(train_x))
            for i in range(0, len(order), _BATCH):
                rows = order[i : i + _BATCH]
                losses.append(step(tracejit.from_numpy(train_x[rows]), tracejit.from_numpy(train_y[rows])).item())
            if epoch == 0:
                first_epoch = time.perf_counter() - start
            if epoch in (0, epochs - 1) and (stats := getattr(step, "stats", None)) is not None:
                made.append((stats.traces, stats.programs_compiled))
            progress.set_postfix(loss=f"{losses[-1]:.4f}")
            progress.update()
    seconds = time.perf_counter() - start
    with tracejit.no_grad():
        accuracy = (model(tracejit.from_numpy(test_x)).argmax(1).numpy() == test_y).mean()
    return Training(np.array(losses), float(accuracy), first_epoch, seconds, tuple(made))


def compare(epochs: int) -> tuple[str, list[str]]:
    """Train both ways on each split: a report of a few lines, and what is wrong (nothing, or it must fail loudly)."""
    eager, compiled = [], []
    for split in range(_SPLITS):
        eager.append(train(unchanged, epochs, f"digits, split {split}, eager", split))
        compiled.append(train(tracejit.compile, epochs, f"digits, split {split}, compiled", split))
    steps = len(eager[0].losses)
    lines = [
        f"digits, 64-{_HIDDEN}-10, Adam, batch {_BATCH} (last one smaller), {epochs} epochs of {steps // epochs} steps; "
        f"on {_SPLITS} splits, times of one"
    ]
    for name, runs in (("eager", eager), ("compiled", compiled)):
        accuracies = [run.accuracy for run in runs]
        lines.append(
            f"  {name:9} held-out accuracy {np.mean(accuracies):.2%} ({min(accuracies):.2%} to {max(accuracies):.2%})   "
            f"loss {runs[0].losses[0]:.4f} -> {runs[0].losses[-1]:.6f}   "
            f"first epoch {duration(float(np.median([run.first_epoch for run in runs])))}, "
            f"in all {duration(float(np.median([run.seconds for run in runs])))}"
        )
    gap = max(float(np.abs(a.losses - b.losses).max()) for a, b in zip(eager, compiled, strict=True))
    (recordings, programs), (all_recordings, all_programs) = max(run.made for run in compiled)
    lines.append(
        f"  first epoch {recordings} recordings and {programs} programs, for whole batches and the smaller one; "
        f"in later epochs {all_recordings - recordings} and {all_programs - programs}"
    )
    lines.append(f"  greatest difference of the loss curves {gap:.1e}")
    problems = []
    if not gap <= _CURVES:
        problems.append(f"digits: the loss curves part by {gap:.2e} > {_CURVES:g}")
    for split, (a, b) in enumerate(zip(eager, compiled, strict=True)):
        if abs(a.accuracy - b.accuracy) > 0.003:
            problems.append(f"digits: on split {split} accuracy {a.accuracy:.2%} eager, {b.accuracy:.2%} compiled")
    mean = min(np.mean([run.accuracy for run in runs]) for runs in (eager, compiled))
    if mean < ACCURACY:
        problems.append(f"digits: mean accuracy {mean:.2%} is below {ACCURACY:.0%}")
    return "\n".join(lines), problems
