"""Gradient accumulation: four small batches, one step of the optimizer.

backward() adds to `.grad`.  Inside a compiled function that is an effect on the parameters, committed after the program's last check;
so accumulating over four batches of 16 gives the gradient of one batch of 64, compiled or not.

Run it: `python examples/gradient_accumulation.py`.
"""

from __future__ import annotations

import tracejit as tj
from tracejit import nn, optim

PARTS = 4


def main() -> dict[str, float]:
    """Train a model in parts and its twin in whole batches; return what the tests look at."""
    tj.manual_seed(0)
    x, target = tj.randn(64, 10), tj.randn(64, 1)
    in_parts, whole = (nn.Sequential(nn.Linear(10, 20), nn.Tanh(), nn.Linear(20, 1)) for _ in range(2))
    whole.load_state_dict(in_parts.state_dict())
    criterion = nn.MSELoss()
    accumulating = optim.SGD(in_parts.parameters(), lr=0.05, momentum=0.9)
    plain = optim.SGD(whole.parameters(), lr=0.05, momentum=0.9)

    # Only the forward and backward pass of one part is compiled: when to step stays a decision of ordinary Python.
    @tj.compile
    def accumulate(x: tj.Tensor, target: tj.Tensor) -> tj.Tensor:
        loss = criterion(in_parts(x), target) / PARTS
        loss.backward()
        return loss.detach()

    for epoch in range(20):
        accumulating.zero_grad()
        loss = sum(accumulate(a, b).item() for a, b in zip(x.chunk(PARTS), target.chunk(PARTS), strict=True))
        accumulating.step()

        plain.zero_grad()
        expected = criterion(whole(x), target)
        expected.backward()
        plain.step()
        if epoch % 5 == 0:
            print(f"epoch {epoch:2}: loss in parts {loss:.6f}, of the whole batch {expected.item():.6f}")

    pairs = zip(in_parts.parameters(), whole.parameters(), strict=True)
    worst = max((a - b).abs().max().item() for a, b in pairs)
    stats = accumulate.stats
    print(f"greatest difference between the two models' parameters: {worst:.1e}")
    print(
        f"{stats.calls} parts, {stats.compiled_calls} compiled; recorded {stats.traces} times: without and with a .grad to add to"
    )
    return {"worst": worst, "calls": stats.calls, "compiled_calls": stats.compiled_calls, "loss": loss}


if __name__ == "__main__":
    main()
