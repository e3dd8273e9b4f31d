"""Train a classifier of handwritten digits with the whole training step compiled: forward, backward and Adam are one program.

Run it: `python examples/digits_training.py` (needs scikit-learn for the images).
"""

from __future__ import annotations

import time

import numpy as np
from sklearn.datasets import load_digits

import tracejit as tj
from tracejit import nn, optim
from tracejit.data import DataLoader, TensorDataset

EPOCHS = 25


def main() -> dict[str, float]:
    """Train, print accuracy; return what the tests look at."""
    tj.manual_seed(1)
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images = tj.tensor((digits.data[order] / 16).astype(np.float32))
    labels = tj.tensor(digits.target[order].astype(np.int64))
    held_out = 360
    loader = DataLoader(TensorDataset(images[held_out:], labels[held_out:]), batch_size=64, shuffle=True)

    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.Adam(model.parameters(), lr=3e-3)

    # Everything that changes state is inside, so a step is one call into machine code.  model, criterion and optimizer are read
    # from outside: the recorded program is used only as long as they are the same.
    @tj.compile
    def step(x: tj.Tensor, y: tj.Tensor) -> tj.Tensor:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    start = time.perf_counter()
    for epoch in range(EPOCHS):
        # A Python number may change from call to call without a new recording.
        optimizer.param_groups[0]["lr"] = 3e-3 * (1 - epoch / EPOCHS)
        total = sum(step(x, y).item() for x, y in loader)
        if epoch % 5 == 4:
            print(f"epoch {epoch + 1:2}: mean loss {total / len(loader):.4f}")
    print(f"{step.stats.calls} steps in {time.perf_counter() - start:.2f} s")

    # The last batch of an epoch is smaller, so there is more than one recording; explain() tells.
    print(step.explain())
    with tj.no_grad():
        accuracy = (model(images[:held_out]).argmax(1) == labels[:held_out]).numpy().mean()
    print(f"accuracy on {held_out} held-out digits: {accuracy:.2%}")
    return {"accuracy": float(accuracy), "calls": step.stats.calls, "compiled_calls": step.stats.compiled_calls}


if __name__ == "__main__":
    main()
