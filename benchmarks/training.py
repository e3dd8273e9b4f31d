"""Training-step rows: a multilayer perceptron, forward, backward and optimizer inside one compiled function.

The labels alternate between two contradictory sets, so that the loss cannot go to zero however long the row is timed: vanishing
gradients would turn the optimizers' state into subnormal numbers, which every implementation computes slowly.
What is compared is the loss and the change of every parameter since the start, not the parameters: they hardly move.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.workload import Side, Transform, Workload

__all__ = ["ADAM_SIZES", "ROWS", "SIZES", "Sizes", "initial"]

SGD_RATE = 0.01
ADAM_RATE, ADAM_BETA1, ADAM_BETA2, ADAM_EPSILON = 1e-3, 0.9, 0.999, 1e-8


@dataclass(frozen=True)
class Sizes:
    """Features, hidden units, classes, rows in a batch."""

    features: int
    hidden: int
    classes: int
    batch: int


SIZES = (Sizes(784, 128, 10, 64), Sizes(64, 32, 10, 1), Sizes(784, 512, 10, 512))
ADAM_SIZES = SIZES[:2]


def initial(sizes: Sizes) -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]:
    """A batch, the two sets of labels, and the parameters (weights as (outputs, inputs))."""
    random = np.random.default_rng(1)
    x = random.standard_normal((sizes.batch, sizes.features)).astype(np.float32)
    first = random.integers(0, sizes.classes, sizes.batch)
    shapes = [(sizes.hidden, sizes.features), (sizes.hidden,), (sizes.classes, sizes.hidden), (sizes.classes,)]
    bounds = [sizes.features**-0.5] * 2 + [sizes.hidden**-0.5] * 2
    parameters = [random.uniform(-k, k, shape).astype(np.float32) for shape, k in zip(shapes, bounds, strict=True)]
    return x, [first, (first + 1) % sizes.classes], parameters


def _build(sizes: Sizes, make_optimizer: Callable[[Any, Any], Any]) -> Callable[[Any, Transform], Side]:
    def build(framework: Any, transform: Transform) -> Side:
        nn = framework.nn
        batch, labels, start = initial(sizes)
        model = nn.Sequential(nn.Linear(sizes.features, sizes.hidden), nn.Tanh(), nn.Linear(sizes.hidden, sizes.classes))
        with framework.no_grad():
            for parameter, value in zip(model.parameters(), start, strict=True):
                parameter.copy_(framework.tensor(value))
        optimizer = make_optimizer(framework.optim, model.parameters())
        criterion = nn.CrossEntropyLoss()

        @transform
        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        x = framework.tensor(batch)
        following = itertools.cycle([framework.tensor(y) for y in labels]).__next__

        def results(loss: Any) -> list[np.ndarray]:
            changes = [p.detach().numpy() - before for p, before in zip(model.parameters(), start, strict=True)]
            return [np.asarray(loss.numpy()), *changes]

        return Side(lambda: step(x, following()), results, step)

    return build


def _numpy(sizes: Sizes, adam: bool) -> Callable[[], Side]:
    def build() -> Side:
        x, labels, start = initial(sizes)
        parameters = [p.copy() for p in start]
        first_moments = [np.zeros_like(p) for p in start]
        second_moments = [np.zeros_like(p) for p in start]
        rows = np.arange(sizes.batch)
        following = itertools.cycle(labels).__next__
        count = itertools.count(1).__next__

        def step() -> np.floating[Any]:
            y = following()
            w1, b1, w2, b2 = parameters
            h = x @ w1.T
            h += b1
            np.tanh(h, out=h)
            z = h @ w2.T
            z += b2
            z -= z.max(1, keepdims=True)
            e = np.exp(z)
            total = e.sum(1, keepdims=True)
            loss = (np.log(total[:, 0]) - z[rows, y]).mean()
            dz = e / total
            dz[rows, y] -= 1
            dz /= np.float32(sizes.batch)
            dh = dz @ w2
            dh *= 1 - h * h
            gradients = (dh.T @ x, dh.sum(0), dz.T @ h, dz.sum(0))
            if not adam:
                for p, g in zip(parameters, gradients, strict=True):
                    g *= np.float32(SGD_RATE)
                    p -= g
                return loss
            t = count()
            rate = np.float32(ADAM_RATE / (1 - ADAM_BETA1**t))
            correction = np.float32((1 - ADAM_BETA2**t) ** -0.5)
            for p, g, m, v in zip(parameters, gradients, first_moments, second_moments, strict=True):
                m *= np.float32(ADAM_BETA1)
                m += np.float32(1 - ADAM_BETA1) * g
                g *= g
                g *= np.float32(1 - ADAM_BETA2)
                v *= np.float32(ADAM_BETA2)
                v += g
                denominator = np.sqrt(v)
                denominator *= correction
                denominator += np.float32(ADAM_EPSILON)
                p -= rate * m / denominator
            return loss

        def results(loss: Any) -> list[np.ndarray]:
            return [np.asarray(loss), *(p - before for p, before in zip(parameters, start, strict=True))]

        return Side(step, results)

    return build


def _products(sizes: Sizes) -> Callable[[], Callable[[], object]]:
    def build() -> Callable[[], object]:
        x, _, (w1, _, w2, _) = initial(sizes)
        h = np.ones((sizes.batch, sizes.hidden), np.float32)
        dz = np.ones((sizes.batch, sizes.classes), np.float32)

        def products() -> None:
            np.matmul(x, w1.T)
            np.matmul(h, w2.T)
            np.matmul(dz, w2)
            np.matmul(dz.T, h)
            np.matmul(h.T, x)

        return products

    return build


def _sgd(optim: Any, parameters: Any) -> Any:
    return optim.SGD(parameters, lr=SGD_RATE)


def _adam(optim: Any, parameters: Any) -> Any:
    return optim.Adam(parameters, lr=ADAM_RATE, betas=(ADAM_BETA1, ADAM_BETA2), eps=ADAM_EPSILON)


def _row(name: str, make_optimizer: Callable[[Any, Any], Any], sizes: Sizes) -> Workload:
    adam = make_optimizer is _adam
    return Workload(
        name=f"mlp_{name.lower()}_{sizes.batch}",
        title=f"MLP step {sizes.features}-{sizes.hidden}-{sizes.classes}, {name}, batch {sizes.batch}",
        inside=f"zero_grad, forward, cross entropy, backward, {name} step",
        build=_build(sizes, make_optimizer),
        products=_products(sizes),
        numpy=_numpy(sizes, adam),
        # Adam divides a gradient by its own size: rounding of the few gradients near zero becomes visible.
        tolerance=1e-3 if adam else 1e-4,
        peer_tolerance=1e-2 if adam else 1e-3,
    )


ROWS = (*(_row("SGD", _sgd, sizes) for sizes in SIZES), *(_row("Adam", _adam, sizes) for sizes in ADAM_SIZES))
