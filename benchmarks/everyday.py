"""Rows "everyday steps": the training step as people write it, against the same step without the line that is theirs.

All train a perceptron by SGD, forward, backward and optimizer inside one compiled function; each row has one thing more inside: a
number that is returned, kept or printed, dropout, a scheduler, clipped gradients.  Beside each row the bare step is timed, compiled as
well; `everyday_bare` compares that with eager.  The perceptron is that of the other training rows, and once more, in the rows "everyday
tiny", one whose step takes a few microseconds: there what Python itself takes to format, print or compute a number shows.  Masks are drawn
from one seed for each checked call, so that sides agree; torch draws others.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.training import SGD_RATE, SIZES, Sizes, initial
from benchmarks.workload import Side, Transform, Workload

__all__ = ["ROWS", "TINY"]

TINY = Sizes(64, 32, 10, 16)
_CLIPPED = 1.0
_DROPPED = 0.1
_PERIOD = 50
_ANY_MASK = 100.0

Step = Callable[..., Any]
Write = Callable[[Any, Any, Any, Any, Callable[[Any, Any], Any]], Step]
"""What the compiled function is: given the framework, model, optimizer, parameters and the criterion."""


def _finished(optimizer: Any, loss: Any) -> Any:
    loss.backward()
    optimizer.step()
    return loss


def _bare(framework: Any, model: Any, optimizer: Any, parameters: Any, criterion: Any) -> Step:
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        return _finished(optimizer, criterion(model(x), y)).detach()

    return step


def _item(framework: Any, model: Any, optimizer: Any, parameters: Any, criterion: Any) -> Step:
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        return _finished(optimizer, criterion(model(x), y)).item()

    return step


def _append(framework: Any, model: Any, optimizer: Any, parameters: Any, criterion: Any) -> Step:
    losses: list[float] = []

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = _finished(optimizer, criterion(model(x), y))
        losses.append(loss.item())
        return loss.detach()

    return step


def _printed(framework: Any, model: Any, optimizer: Any, parameters: Any, criterion: Any) -> Step:
    log = open(os.devnull, "w")  # noqa: SIM115  # for as long as the step is called

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = _finished(optimizer, criterion(model(x), y))
        print(f"loss {loss.item():.4f}", file=log)
        return loss.detach()

    return step


def _scheduler(framework: Any, model: Any, optimizer: Any, parameters: Any, criterion: Any) -> Step:
    scheduler = framework.optim.lr_scheduler.CosineAnnealingLR(optimizer, _PERIOD, eta_min=SGD_RATE / 2)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = _finished(optimizer, criterion(model(x), y))
        scheduler.step()
        return loss.detach()

    return step


def _clipped(framework: Any, model: Any, optimizer: Any, parameters: Any, criterion: Any) -> Step:
    clip = framework.nn.utils.clip_grad_norm_

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        clip(model.parameters(), _CLIPPED)
        optimizer.step()
        return loss.detach()

    return step


def _build(write: Write, sizes: Sizes, dropout: bool = False) -> Callable[[Any, Transform], Side]:
    def build(framework: Any, transform: Transform) -> Side:
        nn = framework.nn
        batch, labels, start = initial(sizes)
        layers = [nn.Linear(sizes.features, sizes.hidden), nn.Tanh(), nn.Linear(sizes.hidden, sizes.classes)]
        if dropout:
            layers.insert(2, nn.Dropout(_DROPPED))
        model = nn.Sequential(*layers)
        with framework.no_grad():
            for parameter, value in zip(model.parameters(), start, strict=True):
                parameter.copy_(framework.tensor(value))
        parameters = list(model.parameters())
        optimizer = framework.optim.SGD(model.parameters(), lr=SGD_RATE)
        step = transform(write(framework, model, optimizer, parameters, nn.CrossEntropyLoss()))
        x = framework.tensor(batch)
        following = itertools.cycle([framework.tensor(y) for y in labels]).__next__
        seeds = itertools.count().__next__

        def results(loss: Any) -> list[np.ndarray]:
            changes = [p.detach().numpy() - before for p, before in zip(parameters, start, strict=True)]
            return [np.asarray(loss if isinstance(loss, float) else loss.numpy()), *changes]

        return Side(lambda: step(x, following()), results, step, lambda: framework.manual_seed(seeds()))

    return build


def _row(name: str, inside: str, write: Write, dropout: bool, notes: tuple[str, ...], sizes: Sizes) -> Workload:
    size = "everyday_tiny" if sizes is TINY else "everyday"
    return Workload(
        name=f"{size}_{name}",
        title=f"{size.replace('_', ' ')} step: {name}",
        inside=f"zero_grad, forward, cross entropy, backward, SGD step, batch {sizes.batch}{inside}",
        build=_build(write, sizes, dropout),
        tolerance=1e-4,
        peer_tolerance=_ANY_MASK if dropout else 1e-3,
        notes=notes,
        beside={} if write is _bare and not dropout else {"bare": _build(_bare, sizes)},
    )


_PRINTED = "Python takes 0.8 us to format and print a number"
_SCHEDULED = "the scheduler's own Python takes 4.5 us, in eager mode as here"
_STEPS: tuple[tuple[str, str, Write, bool, tuple[str, ...]], ...] = (
    ("bare", "", _bare, False, ()),
    ("item", ", `return loss.item()`", _item, False, ()),
    ("append", ", `losses.append(loss.item())`", _append, False, ()),
    ("printed", ', `print(f"loss {loss.item():.4f}")`', _printed, False, (_PRINTED,)),
    ("dropout", f", Dropout({_DROPPED:g})", _bare, True, ()),
    ("scheduler", ", `scheduler.step()` (cosine)", _scheduler, False, (_SCHEDULED,)),
    ("clipped", ", `clip_grad_norm_`", _clipped, False, ()),
)
ROWS = tuple(_row(*step, sizes) for sizes in (SIZES[0], TINY) for step in _STEPS)
