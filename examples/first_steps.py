"""First steps: tensors, the graph that remembers how they were computed, gradients, and the first compiled function.

Run it: `python examples/first_steps.py`.
"""

from __future__ import annotations

import tracejit as tj


def curve(x: tj.Tensor) -> tj.Tensor:
    """The sum of sin(x) * exp(-x^2 / 4)."""
    return (tj.sin(x) * tj.exp(-x * x / 4)).sum()


def main() -> dict[str, float]:
    """Print each step; return what the tests look at."""
    # A tensor is a NumPy array with a memory.  The default dtype is float32, as in PyTorch.
    a = tj.tensor([[1.0, 2.0], [3.0, 4.0]])
    b = tj.ones(2)
    print("a @ b =", (a @ b).tolist())

    # Views share memory: a change through one is seen through the other.
    first_row = a[0]
    first_row += 10
    print("after first_row += 10, a =", a.tolist())

    # requires_grad asks for a gradient; from then on each result knows the operation that made it.
    x = tj.linspace(-2, 2, 5).requires_grad_()
    y = curve(x)
    print("y =", y)
    node = y.grad_fn
    while node is not None:  # the first operand's history, back to the leaf
        print("   ", node.name if hasattr(node, "name") else type(node).__name__)
        following = [edge for edge, _ in node.next_functions if edge is not None]
        node = following[0] if following else None

    # backward() walks that graph in reverse and leaves the gradient in x.grad.
    y.backward()
    print("dy/dx =", [round(value, 4) for value in x.grad.tolist()])

    # Gradients are ordinary tensors, so they have gradients too.
    (slope,) = tj.autograd.grad(curve(x), x, create_graph=True)
    (curvature,) = tj.autograd.grad(slope.sum(), x)
    print("d2y/dx2 =", [round(value, 4) for value in curvature.tolist()])

    # compile: the first call runs eagerly and is recorded; later calls run one fused program.
    fast = tj.compile(curve)
    for _ in range(3):
        value = fast(x)
    print("compiled:", value.item(), "eager:", curve(x).item())
    print(f"{fast.stats.calls} calls, {fast.stats.compiled_calls} of them compiled, {fast.stats.traces} recorded")
    print(fast.graph())
    return {
        "eager": curve(x).item(),
        "compiled": value.item(),
        "slope": slope[2].item(),
        "curvature": curvature[2].item(),
        "compiled_calls": fast.stats.compiled_calls,
    }


if __name__ == "__main__":
    main()
