"""Rows with structure: an unrolled recurrent cell, softmax of a layer norm, and a branch on a tensor's value."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.workload import Side, Transform, Workload, as_arrays

__all__ = [
    "CONDITIONAL_FEATURES",
    "NORM_EPSILON",
    "RNN_SIZES",
    "RNN_STEPS",
    "ROWS",
    "conditional_inputs",
    "norm_inputs",
    "rnn_inputs",
]

RNN_STEPS = 5
RNN_SIZES = (3, 32)
NORM_EPSILON = 1e-5
CONDITIONAL_FEATURES = 16


def rnn_inputs(hidden: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """A sequence (steps, 1, hidden) and the parameters wx, wh, bias."""
    random = np.random.default_rng(2)
    scale = hidden**-0.5
    sequence = random.standard_normal((RNN_STEPS, 1, hidden)).astype(np.float32)
    shapes = [(hidden, hidden), (hidden, hidden), (hidden,)]
    return sequence, [(scale * random.standard_normal(shape)).astype(np.float32) for shape in shapes]


def _rnn(hidden: int) -> Workload:
    def build(framework: Any, transform: Transform) -> Side:
        sequence, parameters = rnn_inputs(hidden)
        x = framework.tensor(sequence)
        wx, wh, bias = (framework.tensor(p).requires_grad_() for p in parameters)
        zero = framework.zeros(1, hidden)

        @transform
        def value_and_gradient(x: Any) -> Any:
            h = zero
            for t in range(RNN_STEPS):
                h = framework.tanh(x[t] @ wx + h @ wh + bias)
            value = (h * h).sum()
            return value.detach(), *framework.autograd.grad(value, (wx, wh, bias))

        return Side(lambda: value_and_gradient(x), as_arrays, value_and_gradient)

    def numpy() -> Side:
        x, (wx, wh, bias) = rnn_inputs(hidden)

        def value_and_gradient() -> list[Any]:
            states = [np.zeros((1, hidden), np.float32)]
            for t in range(RNN_STEPS):
                states.append(np.tanh(x[t] @ wx + states[-1] @ wh + bias))
            h = states[-1]
            dh = 2 * h
            dwx, dwh, db = np.zeros_like(wx), np.zeros_like(wh), np.zeros_like(bias)
            for t in reversed(range(RNN_STEPS)):
                dz = dh * (1 - states[t + 1] * states[t + 1])
                dwx += x[t].T @ dz
                dwh += states[t].T @ dz
                db += dz[0]
                dh = dz @ wh.T
            return [(h * h).sum(), dwx, dwh, db]

        return Side(value_and_gradient, lambda results: [np.asarray(r) for r in results])

    def products() -> Callable[[], object]:
        x, (wx, wh, _) = rnn_inputs(hidden)
        row = np.ones((1, hidden), np.float32)

        def run() -> None:
            for t in range(RNN_STEPS):
                np.matmul(x[t], wx)
                np.matmul(row, wh)
                np.matmul(row.T, row)
                np.matmul(row.T, row)
                if t:
                    np.matmul(row, wh.T)

        return run

    return Workload(
        name=f"rnn_{hidden}",
        title=f"RNN cell, {RNN_STEPS} steps, hidden {hidden}",
        inside=f"h = tanh(x[t] @ wx + h @ wh + b), {RNN_STEPS} times; autograd.grad of (h*h).sum()",
        build=build,
        products=products,
        numpy=numpy,
    )


def norm_inputs() -> list[np.ndarray]:
    """x and a weighting, (512, 512); scale and shift, (512,)."""
    random = np.random.default_rng(3)
    return [random.standard_normal(shape).astype(np.float32) for shape in ((512, 512), (512, 512), (512,), (512,))]


def _norm(framework: Any, transform: Transform) -> Side:
    functional = framework.nn.functional
    x, weighting, scale, shift = (framework.tensor(array) for array in norm_inputs())
    wanted = (x.requires_grad_(), scale.requires_grad_(), shift.requires_grad_())

    @transform
    def value_and_gradient(x: Any) -> Any:
        y = functional.softmax(functional.layer_norm(x, (512,), scale, shift, NORM_EPSILON), dim=-1)
        value = (y * weighting).sum()
        return value.detach(), *framework.autograd.grad(value, wanted)

    return Side(lambda: value_and_gradient(x), as_arrays, value_and_gradient)


def _norm_numpy() -> Side:
    x, weighting, scale, shift = norm_inputs()

    def value_and_gradient() -> list[Any]:
        centred = x - x.mean(1, keepdims=True)
        inverse = 1 / np.sqrt((centred * centred).mean(1, keepdims=True) + np.float32(NORM_EPSILON))
        normal = centred * inverse
        z = normal * scale + shift
        e = np.exp(z - z.max(1, keepdims=True))
        y = e / e.sum(1, keepdims=True)
        weighted = y * weighting
        totals = weighted.sum(1, keepdims=True)
        dz = weighted - y * totals
        dn = dz * scale
        dx = inverse * (dn - dn.mean(1, keepdims=True) - normal * (dn * normal).mean(1, keepdims=True))
        return [totals.sum(), dx, (dz * normal).sum(0), dz.sum(0)]

    return Side(value_and_gradient, lambda results: [np.asarray(r) for r in results])


def conditional_inputs() -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Two inputs that take different branches; the weights (outputs, inputs) and biases of the two layers."""
    random = np.random.default_rng(4)
    n = CONDITIONAL_FEATURES
    x = random.standard_normal((1, n)).astype(np.float32)
    weights = [(random.standard_normal((n, n)) * n**-0.5).astype(np.float32) for _ in range(2)]
    return [x, -x], [weights[0], np.zeros(n, np.float32), weights[1], np.full(n, 0.1, np.float32)]


def _conditional(framework: Any, transform: Transform) -> Side:
    nn = framework.nn
    inputs, start = conditional_inputs()

    class ConditionalNet(nn.Module):  # type: ignore[misc,name-defined]  # the framework is a parameter
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(CONDITIONAL_FEATURES, CONDITIONAL_FEATURES)
            self.second = nn.Linear(CONDITIONAL_FEATURES, CONDITIONAL_FEATURES)

        def forward(self, x: Any) -> Any:
            h = self.first(x)
            h = framework.tanh(h) if h.sum() > 0 else -h
            return self.second(h)

    model = ConditionalNet()
    with framework.no_grad():
        for parameter, value in zip(model.parameters(), start, strict=True):
            parameter.copy_(framework.tensor(value))
    function = transform(model)
    following = itertools.cycle([framework.tensor(x) for x in inputs]).__next__
    return Side(lambda: function(following()), as_arrays, function)


def _conditional_products() -> Callable[[], object]:
    (x, _), (w1, _, w2, _) = conditional_inputs()
    return lambda: (np.matmul(x, w1.T), np.matmul(x, w2.T))


ROWS = (
    *(_rnn(hidden) for hidden in RNN_SIZES),
    Workload(
        name="softmax_layer_norm",
        title="softmax(layer_norm(x)), 512x512",
        inside="layer_norm, softmax, weighted sum, autograd.grad for x, scale and shift",
        build=_norm,
        numpy=_norm_numpy,
        tolerance=1e-4,
    ),
    Workload(
        name="conditional",
        title="conditional net, branch flips each call",
        inside="Linear; tanh(h) if h.sum() > 0 else -h; Linear: forward, gradients possible",
        build=_conditional,
        products=_conditional_products,
        notes=("JAX cannot branch on a value under jit: its column uses lax.cond, and records no gradient",),
    ),
)
