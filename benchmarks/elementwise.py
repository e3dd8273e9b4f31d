"""Elementwise rows: call latency, and a chain of elementary functions with its gradient, from 10 elements to 4 million.

At 3 and 10 elements the rows measure what a call costs; at 4 million what memory traffic costs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.workload import Side, Transform, Workload, as_arrays

__all__ = ["EAGER_CHAIN", "GELU_SIZES", "GELU_SLOPE", "GELU_WEIGHT", "ROWS", "gelu_input", "latency_inputs"]

GELU_SLOPE = 0.7978845608028654  # sqrt(2 / pi)
GELU_WEIGHT = 0.044715
GELU_SIZES = (10, 1_000, 100_000, 4_000_000)


def latency_inputs() -> tuple[np.ndarray, np.ndarray]:
    """Two arrays of 3 elements."""
    return np.array([1.0, 2.0, 3.0], np.float32), np.array([0.5, -1.0, 4.0], np.float32)


def _latency(framework: Any, transform: Transform) -> Side:
    a, b = (framework.tensor(array) for array in latency_inputs())

    @transform
    def multiply_add(a: Any, b: Any) -> Any:
        return a * b + 1

    return Side(lambda: multiply_add(a, b), as_arrays, multiply_add)


def _latency_numpy() -> Side:
    a, b = latency_inputs()
    return Side(lambda: a * b + np.float32(1), lambda result: [result])


def gelu_input(n: int) -> np.ndarray:
    """n standard normal numbers."""
    return np.random.default_rng(0).standard_normal(n).astype(np.float32)


def _gelu(n: int) -> Workload:
    def build(framework: Any, transform: Transform) -> Side:
        x = framework.tensor(gelu_input(n)).requires_grad_()

        @transform
        def value_and_gradient(x: Any) -> Any:
            y = 0.5 * x * (1 + framework.tanh(GELU_SLOPE * (x + GELU_WEIGHT * x * x * x)))
            value = (y * framework.exp(-y * y)).sum()
            (gradient,) = framework.autograd.grad(value, x)
            return value.detach(), gradient

        return Side(lambda: value_and_gradient(x), as_arrays, value_and_gradient)

    def numpy() -> Side:
        x = gelu_input(n)

        def value_and_gradient() -> tuple[Any, Any]:
            square = x * x
            t = np.tanh(np.float32(GELU_SLOPE) * (x + np.float32(GELU_WEIGHT) * square * x))
            y = np.float32(0.5) * x * (1 + t)
            e = np.exp(-y * y)
            slope = np.float32(GELU_SLOPE) * (1 + np.float32(3 * GELU_WEIGHT) * square)
            dy = np.float32(0.5) * (1 + t) + np.float32(0.5) * x * (1 - t * t) * slope
            return (y * e).sum(), e * (1 - 2 * y * y) * dy

        return Side(value_and_gradient, lambda results: [np.asarray(r) for r in results])

    return Workload(
        name=f"gelu_{n}",
        title=f"gelu chain, n={n:,}",
        inside="y = gelu_tanh(x); (y*exp(-y*y)).sum() and autograd.grad",
        build=build,
        numpy=numpy,
        peer_tolerance=1e-4,
    )


def _eager_chain(framework: Any, transform: Transform) -> Side:
    x = framework.tensor(np.linspace(0.1, 0.8, 8, dtype=np.float32)).requires_grad_()
    w = framework.tensor(np.linspace(1.0, 0.3, 8, dtype=np.float32)).requires_grad_()

    @transform
    def forward_and_backward() -> Any:
        x.grad = None
        w.grad = None
        y = x * w  # 1
        y = framework.tanh(y) + x  # 2, 3
        y = y * y - w  # 4, 5
        y = framework.exp(-y)  # 6, 7
        y = y / (1 + y)  # 8, 9
        y = framework.sin(y) * w + 0.5  # 10, 11, 12
        y = framework.sqrt(y * y + 1)  # 13, 14, 15
        y = framework.log(y) * x  # 16, 17
        y = framework.sigmoid(y) - x * w  # 18, 19, 20
        loss = y.sum()  # 21
        loss.backward()
        return loss

    return Side(forward_and_backward, lambda loss: as_arrays((loss, x.grad, w.grad)), forward_and_backward)


EAGER_CHAIN = Workload(
    name="eager_chain",
    title="eager chain of 21 ops, n=8",
    inside="nothing: the eager engine alone, forward and backward()",
    build=_eager_chain,
    compiled=False,
)

ROWS = (
    Workload("a*b+1", "a*b+1, n=3", "a*b + 1, forward", _latency, numpy=_latency_numpy),
    *(_gelu(n) for n in GELU_SIZES),
)
