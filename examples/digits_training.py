"""Train a classifier of handwritten digits with the whole training step compiled: forward, backward and Adam are one program.

Run it: `python examples/digits_training.py` (needs scikit-learn for the images).
"""

from __future__ import annotations

import time

import tracejit as tj
from tracejit import nn, optim
from tracejit.data import DataLoader, digits

EPOCHS = 25


def main() -> dict[str, float]:
    """Train, print accuracy; return what the tests look at."""
    tj.manual_seed(1)
    training, held_out = digits()
    loader = DataLoader(training, batch_size=32, shuffle=True)

    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.Adam(model.parameters(), lr=2e-3)

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
        optimizer.param_groups[0]["lr"] = 2e-3 * (1 - epoch / EPOCHS)
        total = sum(step(x, y).item() for x, y in loader)
        if epoch % 5 == 4:
            print(f"epoch {epoch + 1:2}: mean loss {total / len(loader):.4f}")
    print(f"{step.stats.calls} steps in {time.perf_counter() - start:.2f} s")

    # The last batch of an epoch is smaller, so there is more than one recording; explain() tells.
    print(step.explain())
    images, labels = held_out.tensors
    with tj.no_grad():
        accuracy = (model(images).argmax(1) == labels).float().mean().item()
    print(f"accuracy on {len(held_out)} held-out digits: {accuracy:.2%}")
    return {"accuracy": accuracy, "calls": step.stats.calls, "compiled_calls": step.stats.compiled_calls}


if __name__ == "__main__":
    main()
