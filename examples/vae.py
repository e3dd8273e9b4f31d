"""A variational autoencoder (Kingma and Welling, 2014) of the 8x8 digits.

The loss, reconstruction and divergence for each image, falls below 29 within 20 epochs (it begins at about 45).
Run it: `python examples/vae.py` (needs scikit-learn and tqdm).
"""

from __future__ import annotations

from tqdm import tqdm

import tracejit as tj
from tracejit import nn, optim
from tracejit.data import DataLoader, digits


class VAE(nn.Module):
    """64 pixels -> the mean and logarithm of the variance of 8 numbers -> 64 logits."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 128), nn.ReLU())
        self.mean = nn.Linear(128, 8)
        self.log_variance = nn.Linear(128, 8)
        self.decoder = nn.Sequential(nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 64))

    def forward(self, x: tj.Tensor) -> tuple[tj.Tensor, tj.Tensor, tj.Tensor]:
        """(logits of the pixels, mean, logarithm of the variance), with one draw for each image."""
        h = self.encoder(x)
        mean, log_variance = self.mean(h), self.log_variance(h)
        z = mean + tj.exp(0.5 * log_variance) * tj.randn_like(mean)
        return self.decoder(z), mean, log_variance


def loss_of(logits: tj.Tensor, x: tj.Tensor, mean: tj.Tensor, log_variance: tj.Tensor) -> tj.Tensor:
    """The negative lower bound of the likelihood, for each image."""
    reconstruction = nn.functional.binary_cross_entropy_with_logits(logits, x, reduction="sum")
    divergence = -0.5 * (1 + log_variance - mean * mean - log_variance.exp()).sum()
    return (reconstruction + divergence) / x.shape[0]


def main(epochs: int = 20) -> dict[str, float]:
    """Train; return what the tests look at."""
    tj.manual_seed(0)
    training, _ = digits()
    loader = DataLoader(training, batch_size=64, shuffle=True, drop_last=True)
    model = VAE()
    optimizer = optim.Adam(model.parameters(), lr=2e-3)

    @tj.compile
    def step(x: tj.Tensor) -> tj.Tensor:
        optimizer.zero_grad()
        logits, mean, log_variance = model(x)
        loss = loss_of(logits, x, mean, log_variance)
        loss.backward()
        optimizer.step()
        return loss.detach()

    first = last = 0.0
    bar = tqdm(range(epochs), desc="epochs")
    for _ in bar:
        losses = [step(x).item() for x, _ in loader]
        last = sum(losses) / len(losses)
        first = first or losses[0]
        bar.set_postfix(loss=f"{last:.2f}")
    with tj.no_grad():
        image = tj.sigmoid(model.decoder(tj.randn(1, 8))).view(8, 8)
    print("\n".join("".join(" .:-=+*#%@"[min(9, int(v * 10))] * 2 for v in row) for row in image.tolist()))
    return {"first": first, "last": last}


if __name__ == "__main__":
    main()
