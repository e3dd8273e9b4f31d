"""Predicting the next character of the Zen of Python with an RNN, a GRU and a transformer.

Each begins near log(alphabet), about 3.6, and falls below 2.0 within 120 steps.
Run it: `python examples/characters.py` (needs tqdm).
"""

from __future__ import annotations

import codecs
import contextlib
import importlib
import io

from tqdm import tqdm

import tracejit as tj
from tracejit import nn, optim

WINDOW, WIDTH, BATCH = 24, 48, 16


def text() -> str:
    """The Zen of Python, which `import this` prints."""
    with contextlib.redirect_stdout(io.StringIO()):
        module = importlib.import_module("this")
    return codecs.decode(module.s, "rot13").lower()


class Recurrent(nn.Module):
    """Characters (batch, steps) -> logits of the next ones, by nn.RNN or nn.GRU."""

    def __init__(self, kind: type[nn.Module], alphabet: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(alphabet, WIDTH)
        self.layer = kind(WIDTH, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, alphabet)

    def forward(self, x: tj.Tensor) -> tj.Tensor:
        """(batch, steps, alphabet)."""
        outputs, _ = self.layer(self.embedding(x))
        return self.head(outputs)


class Transformer(nn.Module):
    """The same by one layer of attention to what came before."""

    def __init__(self, alphabet: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(alphabet, WIDTH)
        self.position = nn.Parameter(tj.randn(WINDOW, WIDTH) * 0.1)
        self.layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.head = nn.Linear(WIDTH, alphabet)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(WINDOW))

    def forward(self, x: tj.Tensor) -> tj.Tensor:
        """(batch, steps, alphabet)."""
        return self.head(self.layer(self.embedding(x) + self.position, src_mask=self.mask))


def train(name: str, model: nn.Module, data: tj.Tensor, alphabet: int, steps: int) -> tuple[float, float]:
    """The first loss, and the mean of the last ten."""
    optimizer = optim.Adam(model.parameters(), lr=6e-3)

    @tj.compile
    def step(x: tj.Tensor, y: tj.Tensor) -> tj.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x).view(-1, alphabet), y.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = []
    bar = tqdm(range(steps), desc=name)
    for _ in bar:
        at = tj.randint(0, len(data) - WINDOW - 1, (BATCH,)).unsqueeze(1) + tj.arange(WINDOW)
        losses.append(step(data[at], data[at + 1]).item())
        bar.set_postfix(loss=f"{losses[-1]:.3f}")
    return losses[0], sum(losses[-10:]) / len(losses[-10:])


def main(steps: int = 120) -> dict[str, tuple[float, float]]:
    """Train each; return what the tests look at."""
    tj.manual_seed(0)
    source = text()
    letters = sorted(set(source))
    data = tj.tensor([letters.index(c) for c in source])
    models = {
        "RNN": Recurrent(nn.RNN, len(letters)),
        "GRU": Recurrent(nn.GRU, len(letters)),
        "transformer": Transformer(len(letters)),
    }
    return {name: train(name, model, data, len(letters), steps) for name, model in models.items()}


if __name__ == "__main__":
    main()
