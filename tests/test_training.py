"""Training end to end, eagerly: a classifier of handwritten digits, and a curve that PyTorch follows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from against_torch import classes, numbers

import tracejit
from tracejit import data, nn, optim


def test_a_classifier_of_handwritten_digits_learns_them() -> None:
    pytest.importorskip("sklearn")
    tracejit.manual_seed(0)
    train, test = data.digits(seed=1)  # whatever trains on split 0 reaches 96 %
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, 10))
    optimizer = optim.Adam(model.parameters(), lr=3e-3)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20)
    criterion = nn.CrossEntropyLoss()
    for _ in range(20):
        for x, y in data.DataLoader(train, batch_size=64, shuffle=True):
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
        schedule.step()
    model.eval()
    images, labels = test.tensors
    with tracejit.no_grad():
        accuracy = (model(images).argmax(1) == labels).float().mean().item()
    assert accuracy >= 0.97


def losses(library: Any, state: dict[str, np.ndarray], optimizer: str, options: dict[str, Any]) -> list[float]:
    nn_ = library.nn
    model = nn_.Sequential(nn_.Linear(6, 8), nn_.LayerNorm(8), nn_.GELU(), nn_.Linear(8, 3)).double()
    model.load_state_dict({key: library.tensor(value) for key, value in state.items()})
    stepper = getattr(library.optim, optimizer)(model.parameters(), **options)
    seen = []
    for i in range(20):
        stepper.zero_grad()
        loss = nn_.CrossEntropyLoss(label_smoothing=0.1)(
            model(library.tensor(numbers(12, 6, seed=i))), library.tensor(classes(12, count=3, seed=i))
        )
        loss.backward()
        nn_.utils.clip_grad_norm_(list(model.parameters()), 0.5)
        stepper.step()
        seen.append(loss.item())
    return seen


@pytest.mark.parametrize(
    ("optimizer", "options"), [("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}), ("AdamW", {"lr": 0.01})]
)
def test_a_training_run_follows_torch(optimizer: str, options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    tracejit.manual_seed(0)
    start = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3)).double()
    state = {key: value.numpy().copy() for key, value in start.state_dict().items()}
    np.testing.assert_allclose(losses(tracejit, state, optimizer, options), losses(torch, state, optimizer, options), rtol=1e-9)
