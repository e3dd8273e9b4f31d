"""Rows "loops": value and gradients of loops of Python over time, which become loops of the program (docs/loops.md)."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.workload import Side, Transform, Workload, as_arrays

__all__ = [
    "LENGTHS",
    "LSTM_BATCH",
    "LSTM_HIDDEN",
    "LSTM_STEPS",
    "ROWS",
    "RUNGE_STEPS",
    "lstm_inputs",
    "rnn_inputs",
    "runge_inputs",
]

LENGTHS = (20, 100)
RNN_HIDDEN = 32
LSTM_STEPS, LSTM_BATCH, LSTM_HIDDEN = 100, 16, 128
RUNGE_STEPS, RUNGE_SIZE, RUNGE_STEP = 1000, 4, 0.01


def rnn_inputs(length: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """A sequence (length, 1, hidden) and the parameters wx, wh, bias."""
    random = np.random.default_rng(length)
    shapes = [(RNN_HIDDEN, RNN_HIDDEN), (RNN_HIDDEN, RNN_HIDDEN), (RNN_HIDDEN,)]
    sequence = random.standard_normal((length, 1, RNN_HIDDEN)).astype(np.float32)
    return sequence, [(random.standard_normal(shape) * 0.15).astype(np.float32) for shape in shapes]


def lstm_inputs() -> tuple[np.ndarray, list[np.ndarray]]:
    """A sequence (steps, batch, hidden) and the parameters of an LSTM cell, as PyTorch's have them."""
    random = np.random.default_rng(7)
    shapes = [(4 * LSTM_HIDDEN, LSTM_HIDDEN), (4 * LSTM_HIDDEN, LSTM_HIDDEN), (4 * LSTM_HIDDEN,), (4 * LSTM_HIDDEN,)]
    sequence = random.standard_normal((LSTM_STEPS, LSTM_BATCH, LSTM_HIDDEN)).astype(np.float32)
    return sequence, [(random.uniform(-1, 1, shape) * LSTM_HIDDEN**-0.5).astype(np.float32) for shape in shapes]


def runge_inputs() -> tuple[np.ndarray, np.ndarray]:
    """The matrix of a system dy/dt = -tanh(w @ y), and where it begins."""
    random = np.random.default_rng(8)
    return random.standard_normal((RUNGE_SIZE, RUNGE_SIZE)).astype(np.float32), random.standard_normal(RUNGE_SIZE).astype(
        np.float32
    )


def _rnn(length: int) -> Workload:
    def build(framework: Any, transform: Transform) -> Side:
        sequence, parameters = rnn_inputs(length)
        xs = framework.tensor(sequence)
        wx, wh, bias = (framework.tensor(p).requires_grad_() for p in parameters)
        zero = framework.zeros(1, RNN_HIDDEN)

        @transform
        def value_and_gradient(xs: Any) -> Any:
            h = zero
            for x in xs:
                h = framework.tanh(x @ wx + h @ wh + bias)
            value = (h * h).sum()
            return value.detach(), *framework.autograd.grad(value, (wx, wh, bias))

        return Side(lambda: value_and_gradient(xs), as_arrays, value_and_gradient)

    return Workload(
        name=f"loop_rnn_{length}",
        title=f"loop of Python, RNN cell, {length} steps",
        inside=f"h = tanh(x @ wx + h @ wh + b) for {length} x, hidden {RNN_HIDDEN}; autograd.grad of (h*h).sum()",
        build=build,
        tolerance=1e-4,
    )


def _lstm(framework: Any, transform: Transform) -> Side:
    sequence, arrays = lstm_inputs()
    cell = framework.nn.LSTMCell(LSTM_HIDDEN, LSTM_HIDDEN)
    with framework.no_grad():
        for parameter, array in zip(cell.parameters(), arrays, strict=True):
            parameter.copy_(framework.tensor(array))
    xs, zero = framework.tensor(sequence), framework.zeros(LSTM_BATCH, LSTM_HIDDEN)
    parameters = list(cell.parameters())

    @transform
    def value_and_gradient(xs: Any) -> Any:
        h = c = zero
        states = []
        for x in xs:
            h, c = cell(x, (h, c))
            states.append(h)
        value = (framework.stack(states) ** 2).mean()
        return value.detach(), *framework.autograd.grad(value, parameters)

    return Side(lambda: value_and_gradient(xs), as_arrays, value_and_gradient)


def _runge(framework: Any, transform: Transform) -> Side:
    matrix, start = runge_inputs()
    w, y0 = framework.tensor(matrix).requires_grad_(), framework.tensor(start)

    @transform
    def value_and_gradient(y0: Any) -> Any:
        def slope(y: Any) -> Any:
            return -framework.tanh(w @ y)

        y = y0
        for _ in range(RUNGE_STEPS):
            k1 = slope(y)
            k2 = slope(y + RUNGE_STEP / 2 * k1)
            k3 = slope(y + RUNGE_STEP / 2 * k2)
            k4 = slope(y + RUNGE_STEP * k3)
            y = y + RUNGE_STEP / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        value = (y * y).sum()
        return value.detach(), *framework.autograd.grad(value, (w,))

    return Side(lambda: value_and_gradient(y0), as_arrays, value_and_gradient)


ROWS = (
    *map(_rnn, LENGTHS),
    Workload(
        name="loop_lstm",
        title=f"loop of Python, LSTM cell, {LSTM_STEPS} steps",
        inside=f"an LSTMCell, hidden {LSTM_HIDDEN}, batch {LSTM_BATCH}, {LSTM_STEPS} times; autograd.grad of the mean of squares",
        build=_lstm,
        tolerance=1e-4,
    ),
    Workload(
        name="loop_runge_kutta",
        title=f"loop of Python, Runge-Kutta, {RUNGE_STEPS} steps",
        inside=f"four slopes -tanh(w @ y) of {RUNGE_SIZE} values in each step; autograd.grad of (y*y).sum()",
        build=_runge,
        tolerance=1e-3,
    ),
)
