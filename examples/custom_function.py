"""Operations of one's own: an `autograd.Function` with a backward pass by hand, and a `library.custom_op` that a compiled step calls.

Both are the third Legendre polynomial of PyTorch's tutorial; fitted to a sine, the squared error falls below 20 within 1,000 steps.
Run it: `python examples/custom_function.py` (needs tqdm).
"""

from __future__ import annotations

import math
from typing import Any

from tqdm import tqdm

import tracejit as tj
from tracejit.library import custom_op


class LegendrePolynomial3(tj.autograd.Function):
    """(5 x ** 3 - 3 x) / 2."""

    @staticmethod
    def forward(ctx: Any, x: tj.Tensor) -> tj.Tensor:
        """The value."""
        ctx.save_for_backward(x)
        return 0.5 * (5 * x**3 - 3 * x)

    @staticmethod
    def backward(ctx: Any, gradient: tj.Tensor) -> tj.Tensor:
        """The gradient of x, given that of the value."""
        (x,) = ctx.saved_tensors
        return gradient * 1.5 * (5 * x**2 - 1)


@custom_op("examples::legendre3", mutates_args=())
def legendre3(x: tj.Tensor) -> tj.Tensor:
    """The same in NumPy: compiled functions call it on the host."""
    values = x.numpy()
    return tj.from_numpy(0.5 * (5 * values**3 - 3 * values))


legendre3.register_fake(lambda x: tj.empty_like(x))
legendre3.register_autograd(
    lambda ctx, gradient: gradient * 1.5 * (5 * ctx.saved_tensors[0] ** 2 - 1),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


def fit(polynomial: Any, steps: int, compiled: bool) -> tuple[float, float]:
    """Fit a + b * polynomial(c + d * x) to sin(x); the first and the last squared error."""
    x = tj.linspace(-math.pi, math.pi, 2000)
    y = tj.sin(x)
    a, b, c, d = (tj.full((), start, requires_grad=True) for start in (0.0, -1.0, 0.0, 0.3))

    def step() -> tj.Tensor:
        loss = (a + b * polynomial(c + d * x) - y).pow(2).sum()
        gradients = tj.autograd.grad(loss, [a, b, c, d])
        with tj.no_grad():
            for parameter, gradient in zip((a, b, c, d), gradients, strict=True):
                parameter -= 5e-6 * gradient
        return loss.detach()

    run = tj.compile(step) if compiled else step
    losses = [run().item() for _ in tqdm(range(steps), desc="compiled" if compiled else "eager")]
    return losses[0], losses[-1]


def main(steps: int = 1000) -> dict[str, tuple[float, float]]:
    """Fit twice; return what the tests look at."""
    return {
        "Function": fit(LegendrePolynomial3.apply, steps, compiled=False),
        "custom_op": fit(legendre3, steps, compiled=True),
    }


if __name__ == "__main__":
    main()
