"""A recurrent network written as a plain Python loop, trained to add up a sequence.

The loop is ordinary Python: it runs while the call is recorded, and the program contains its five steps.  `h` and the list of
outputs are local to the function, so they cost nothing on replay.

Run it: `python examples/rnn_loop.py`.
"""

from __future__ import annotations

import tracejit as tj
from tracejit import nn, optim

STEPS, HIDDEN, BATCH = 5, 16, 32


class Cell(nn.Module):
    """h' = tanh(W x + U h), and a reading of it."""

    def __init__(self) -> None:
        super().__init__()
        self.input = nn.Linear(1, HIDDEN)
        self.hidden = nn.Linear(HIDDEN, HIDDEN)
        self.reading = nn.Linear(HIDDEN, 1)

    def forward(self, sequence: tj.Tensor) -> tj.Tensor:
        """sequence (steps, batch, 1) -> the reading after each step, (steps, batch, 1)."""
        h = tj.zeros(sequence.shape[1], HIDDEN)
        readings = []
        for t in range(sequence.shape[0]):
            h = tj.tanh(self.input(sequence[t]) + self.hidden(h))
            readings.append(self.reading(h))
        return tj.stack(readings)


def main() -> dict[str, float]:
    """Train on sums of random numbers; return what the tests look at."""
    tj.manual_seed(0)
    model = Cell()
    optimizer = optim.Adam(model.parameters(), lr=0.01)

    @tj.compile
    def step(sequence: tj.Tensor, target: tj.Tensor) -> tj.Tensor:
        optimizer.zero_grad()
        loss = ((model(sequence) - target) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = []
    for i in range(400):
        sequence = tj.rand(STEPS, BATCH, 1) - 0.5
        losses.append(step(sequence, sequence.cumsum(0)).item())
        if i % 100 == 99:
            print(f"step {i + 1}: loss {losses[-1]:.5f}")
    stats = step.stats
    print(f"{stats.calls} steps, {stats.compiled_calls} compiled, {stats.machine_calls} calls into machine code")
    return {"first": losses[0], "last": losses[-1], "calls": stats.calls, "compiled_calls": stats.compiled_calls}


if __name__ == "__main__":
    main()
