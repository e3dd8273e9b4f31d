"""Predicting sine waves with an LSTM and LBFGS, as in PyTorch's time sequence example.

The mean squared error of the next value falls below 0.005 within 8 steps of 10 iterations each.
Run it: `python examples/time_series_lstm.py` (needs tqdm).
"""

from __future__ import annotations

import math

from tqdm import tqdm

import tracejit as tj
from tracejit import nn, optim


class Sequence(nn.Module):
    """Values (steps, batch, 1) -> predictions of the next ones."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(1, hidden)
        self.linear = nn.Linear(hidden, 1)

    def forward(self, values: tj.Tensor) -> tj.Tensor:
        """One prediction for each step."""
        outputs, _ = self.lstm(values)
        return self.linear(outputs)


def main(steps: int = 8, length: int = 60, waves: int = 16) -> dict[str, float]:
    """Train; return what the tests look at."""
    tj.manual_seed(0)
    phases = tj.rand(waves) * 2 * math.pi
    data = tj.sin(tj.arange(length + 1).float().unsqueeze(1) / 5 + phases).unsqueeze(2)
    model = Sequence(24)
    optimizer = optim.LBFGS(model.parameters(), lr=0.8, max_iter=10, line_search_fn="strong_wolfe")

    def closure() -> tj.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(data[:-1]), data[1:])
        loss.backward()
        return loss

    losses = []
    bar = tqdm(range(steps), desc="steps")
    for _ in bar:
        losses.append(float(optimizer.step(closure)))
        bar.set_postfix(loss=f"{losses[-1]:.5f}")
    last = closure().item()
    print(f"mean squared error {losses[0]:.4f} at first, {last:.5f} at last")
    return {"first": losses[0], "last": last}


if __name__ == "__main__":
    main()
