"""Rows about modules: a transformer block, optimizers' steps over many parameters, the cost of a call by number of parameters, and
state of an object that a call changes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.elementwise import latency_inputs
from benchmarks.training import ADAM_BETA1, ADAM_BETA2, ADAM_EPSILON, ADAM_RATE
from benchmarks.workload import Side, Transform, Workload, as_arrays

__all__ = [
    "ADAM_TENSORS",
    "BATCH",
    "CHANNELS",
    "HEADS",
    "LENGTH",
    "PARAMETER_COUNTS",
    "ROWS",
    "STEP_PARAMETERS",
    "adam_inputs",
    "block_inputs",
    "many_parameters",
]

LENGTH, CHANNELS, HEADS, BATCH = 64, 64, 4, 8
ADAM_TENSORS = 50
PARAMETER_COUNTS = (2, 20, 200)
STEP_PARAMETERS, STEP_RATE = 200, 1e-3


def block_inputs() -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """x and a weighting of the result, (BATCH, LENGTH, CHANNELS); the parameters in the block's order (weights as (outputs, inputs))."""
    random = np.random.default_rng(7)
    c = CHANNELS
    x, weighting = (random.standard_normal((BATCH, LENGTH, c)).astype(np.float32) for _ in range(2))
    shapes = [(c,), (c,), (3 * c, c), (3 * c,), (c, c), (c,), (c,), (c,), (4 * c, c), (4 * c,), (c, 4 * c), (c,)]
    parameters = [(random.standard_normal(shape) * shape[-1] ** -0.5).astype(np.float32) for shape in shapes]
    for scale in (0, 6):
        parameters[scale] += 1
    return x, weighting, parameters


def _block(framework: Any, transform: Transform) -> Side:
    nn, functional = framework.nn, framework.nn.functional
    x_values, weighting_values, start = block_inputs()

    class Block(nn.Module):  # type: ignore[misc,name-defined]  # the framework is a parameter
        def __init__(self) -> None:
            super().__init__()
            self.norm1 = nn.LayerNorm(CHANNELS)
            self.attention = nn.Linear(CHANNELS, 3 * CHANNELS)
            self.projection = nn.Linear(CHANNELS, CHANNELS)
            self.norm2 = nn.LayerNorm(CHANNELS)
            self.expand = nn.Linear(CHANNELS, 4 * CHANNELS)
            self.contract = nn.Linear(4 * CHANNELS, CHANNELS)

        def forward(self, x: Any) -> Any:
            batch, length, channels = x.shape
            split = self.attention(self.norm1(x)).reshape(batch, length, 3, HEADS, channels // HEADS).permute(2, 0, 3, 1, 4)
            query, key, value = split[0], split[1], split[2]
            scores = functional.softmax(query @ key.transpose(-2, -1) * (channels // HEADS) ** -0.5, dim=-1)
            x = x + self.projection((scores @ value).transpose(1, 2).reshape(batch, length, channels))
            return x + self.contract(functional.gelu(self.expand(self.norm2(x)), approximate="tanh"))

    block = Block()
    with framework.no_grad():
        for parameter, values in zip(block.parameters(), start, strict=True):
            parameter.copy_(framework.tensor(values))
    parameters = list(block.parameters())
    x, weighting = framework.tensor(x_values), framework.tensor(weighting_values)

    @transform
    def value_and_gradient(x: Any) -> Any:
        value = (block(x) * weighting).sum()
        return value.detach(), *framework.autograd.grad(value, parameters)

    return Side(lambda: value_and_gradient(x), as_arrays, value_and_gradient)


def _block_products() -> Callable[[], object]:
    x, _, (_, _, qkv, _, projection, _, _, _, expand, _, contract, _) = block_inputs()
    tokens = x.reshape(-1, CHANNELS)
    linears = [(np.ones((len(tokens), weight.shape[1]), np.float32), weight) for weight in (qkv, projection, expand, contract)]
    heads = np.ones((BATCH * HEADS, LENGTH, CHANNELS // HEADS), np.float32)
    scores = np.ones((BATCH * HEADS, LENGTH, LENGTH), np.float32)

    def products() -> None:
        for rows, weight in linears:
            outputs = np.matmul(rows, weight.T)
            np.matmul(outputs, weight)
            np.matmul(outputs.T, rows)
        for _ in range(2):
            np.matmul(heads, heads.transpose(0, 2, 1))  # scores, and their gradient
            np.matmul(scores, heads)  # the result, and the gradient of queries
            np.matmul(scores.transpose(0, 2, 1), heads)  # the gradients of keys and values

    return products


def adam_inputs() -> tuple[list[np.ndarray], list[np.ndarray]]:
    """ADAM_TENSORS parameters, (64, 64) and (64,) in turn, and their gradients."""
    random = np.random.default_rng(8)
    shapes = [(64, 64), (64,)] * (ADAM_TENSORS // 2)
    parameters, gradients = ([random.standard_normal(shape).astype(np.float32) for shape in shapes] for _ in range(2))
    return parameters, gradients


def _adam(framework: Any, transform: Transform) -> Side:
    start, gradients = adam_inputs()
    parameters = [framework.nn.Parameter(framework.tensor(values)) for values in start]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = framework.tensor(gradient)
    optimizer = framework.optim.Adam(parameters, lr=ADAM_RATE, betas=(ADAM_BETA1, ADAM_BETA2), eps=ADAM_EPSILON)

    @transform
    def step() -> None:
        optimizer.step()

    def results(_: Any) -> list[np.ndarray]:
        return [p.detach().numpy() - before for p, before in zip(parameters, start, strict=True)]

    return Side(step, results, step)


def _adam_numpy() -> Side:
    start, gradients = adam_inputs()
    parameters = [p.copy() for p in start]
    first, second = ([np.zeros_like(p) for p in start] for _ in range(2))
    count = itertools.count(1).__next__

    def step() -> None:
        t = count()
        rate = np.float32(ADAM_RATE / (1 - ADAM_BETA1**t))
        correction = np.float32((1 - ADAM_BETA2**t) ** -0.5)
        for p, g, m, v in zip(parameters, gradients, first, second, strict=True):
            m *= np.float32(ADAM_BETA1)
            m += np.float32(1 - ADAM_BETA1) * g
            v *= np.float32(ADAM_BETA2)
            v += np.float32(1 - ADAM_BETA2) * g * g
            denominator = np.sqrt(v)
            denominator *= correction
            denominator += np.float32(ADAM_EPSILON)
            p -= rate * m / denominator

    return Side(step, lambda _: [p - before for p, before in zip(parameters, start, strict=True)])


def many_parameters(count: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """x of 4 elements and `count` parameters like it."""
    random = np.random.default_rng(9)
    return random.standard_normal(4).astype(np.float32), [random.standard_normal(4).astype(np.float32) for _ in range(count)]


def _sum(framework: Any, values: list[np.ndarray]) -> Any:
    """A module that adds its parameters to its argument."""
    nn = framework.nn

    class Sum(nn.Module):  # type: ignore[misc,name-defined]  # the framework is a parameter
        def __init__(self) -> None:
            super().__init__()
            self.terms = nn.ParameterList([nn.Parameter(framework.tensor(v)) for v in values])

        def forward(self, x: Any) -> Any:
            for term in self.terms:
                x = x + term
            return x

    return Sum()


def _overhead(count: int) -> Workload:
    def build(framework: Any, transform: Transform) -> Side:
        x_values, values = many_parameters(count)
        x = framework.tensor(x_values)
        function = transform(_sum(framework, values))
        return Side(lambda: function(x), as_arrays, function)

    return Workload(
        name=f"parameters_{count}",
        title=f"call of a module with {count} parameters",
        inside=f"x + p1 + p2 ... of {count} parameters of 4 elements: forward, gradients possible",
        build=build,
        notes=("JAX computes the forward values alone",) if count == PARAMETER_COUNTS[0] else (),
    )


def _step(framework: Any, transform: Transform) -> Side:
    """Two targets in turn, so that gradients do not vanish."""
    x_values, start = many_parameters(STEP_PARAMETERS)
    model = _sum(framework, start)
    parameters = list(model.parameters())
    optimizer = framework.optim.SGD(parameters, lr=STEP_RATE)

    @transform
    def step(x: Any, target: Any) -> Any:
        optimizer.zero_grad()
        loss = ((model(x) - target) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    x = framework.tensor(x_values)
    following = itertools.cycle([framework.tensor(sign * x_values) for sign in (1, -1)]).__next__

    def results(loss: Any) -> list[np.ndarray]:
        return [np.asarray(loss.numpy()), *(p.detach().numpy() - before for p, before in zip(parameters, start, strict=True))]

    return Side(lambda: step(x, following()), results, step)


def _state(framework: Any, transform: Transform) -> Side:
    class Meter:
        def __init__(self) -> None:
            self.n = 0
            self.last = 0.0

        def update(self, x: Any, y: Any) -> Any:
            loss = ((x - y) ** 2).mean()
            self.n += 1
            self.last = loss.item()
            return loss

    meter = Meter()
    update = transform(meter.update)
    x, y = (framework.tensor(array) for array in latency_inputs())
    return Side(lambda: update(x, y), lambda loss: [*as_arrays(loss), np.array(meter.last), np.array(meter.n)], update)


ROWS = (
    Workload(
        name="transformer_block",
        title=f"transformer block, B={BATCH}, T={LENGTH}, C={CHANNELS}",
        inside=f"layer norm, attention with {HEADS} heads, layer norm, MLP with gelu; autograd.grad for 12 parameters",
        build=_block,
        products=_block_products,
        tolerance=1e-4,
    ),
    Workload(
        name=f"adam_{ADAM_TENSORS}",
        title=f"Adam step over {ADAM_TENSORS} parameters",
        inside="optimizer.step() with gradients that are there, 104,000 numbers in all",
        build=_adam,
        numpy=_adam_numpy,
        tolerance=1e-4,
        peer_tolerance=1e-3,
    ),
    *(_overhead(count) for count in PARAMETER_COUNTS),
    Workload(
        name=f"sgd_{STEP_PARAMETERS}",
        title=f"SGD step over {STEP_PARAMETERS} parameters",
        inside=f"zero_grad, x + p1 + p2 ... of {STEP_PARAMETERS} parameters of 4 elements, squared error, backward, SGD step",
        build=_step,
        tolerance=1e-4,
    ),
    Workload(
        name="object_state",
        title="a loss, counted and kept in an object",
        inside="squared error of 3 elements; `self.n += 1; self.last = loss.item()`",
        build=_state,
    ),
)
