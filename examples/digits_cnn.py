"""A small convolutional network in the manner of MNIST's, on the 8x8 digits that scikit-learn ships: two convolutions, a pooling, dropout.

Reaches a training loss below 0.15, and over 92 % of the held-out digits, within 10 epochs.
Run it: `python examples/digits_cnn.py` (needs scikit-learn and tqdm).
"""

from __future__ import annotations

from tqdm import tqdm

import tracejit as tj
from tracejit import nn, optim
from tracejit.data import DataLoader, digits


class Net(nn.Module):
    """8x8 images -> log-probabilities of ten digits."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.dropout = nn.Dropout(0.25)
        self.fc1 = nn.Linear(32 * 4 * 4, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x: tj.Tensor) -> tj.Tensor:
        """x (batch, 64)."""
        x = nn.functional.relu(self.conv1(x.view(-1, 1, 8, 8)))
        x = nn.functional.max_pool2d(nn.functional.relu(self.conv2(x)), 2)
        x = self.dropout(tj.flatten(x, 1))
        return nn.functional.log_softmax(self.fc2(nn.functional.relu(self.fc1(x))), dim=1)


def main(epochs: int = 10) -> dict[str, float]:
    """Train; return what the tests look at."""
    tj.manual_seed(0)
    training, held_out = digits()
    loader = DataLoader(training, batch_size=64, shuffle=True, drop_last=True)
    model = Net()
    optimizer = optim.Adam(model.parameters(), lr=3e-3)

    @tj.compile
    def step(x: tj.Tensor, y: tj.Tensor) -> tj.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.nll_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    bar = tqdm(range(epochs), desc="epochs")
    for _ in bar:
        losses = [step(x, y).item() for x, y in loader]
        mean = sum(losses) / len(losses)
        bar.set_postfix(loss=f"{mean:.3f}")
    model.eval()
    images, labels = held_out.tensors
    with tj.no_grad():
        accuracy = (model(images).argmax(1) == labels).float().mean().item()
    print(f"loss {mean:.3f}, accuracy on {len(held_out)} held-out digits {accuracy:.1%}")
    return {"loss": mean, "accuracy": accuracy}


if __name__ == "__main__":
    main()
