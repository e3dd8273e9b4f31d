"""scikit-learn's handwritten digits: 1,797 images of 8 x 8 (Alpaydin and Kaynak, 1998, https://archive.ics.uci.edu/dataset/80).

Read from the file that scikit-learn is installed with, without importing scikit-learn, which takes a second.
"""

from __future__ import annotations

import gzip
import importlib.util
from pathlib import Path

import numpy as np

from tracejit.data.dataset import TensorDataset
from tracejit.tensor import tensor

__all__ = ["digits"]

_FILE = ("datasets", "data", "digits.csv.gz")


def digits(test_fraction: float = 0.2, seed: int = 0) -> tuple[TensorDataset, TensorDataset]:
    """(training set, test set) of (image, label): float32 rows of 64 numbers in [0, 1], and int64 labels.

    The split is the same for the same arguments, and keeps each digit's share in both sets.
    Raises ValueError unless 0 < test_fraction < 1, ModuleNotFoundError where scikit-learn is not installed."""
    if not 0.0 < test_fraction < 1.0:
        raise ValueError(f"digits(): test_fraction must be between 0 and 1, got {test_fraction}")
    table = _table()
    images, labels = (table[:, :-1] / 16.0).astype(np.float32), table[:, -1].astype(np.int64)
    generator = np.random.default_rng(seed)
    held_out = np.zeros(len(labels), bool)
    for digit in range(10):
        positions = np.flatnonzero(labels == digit)
        held_out[generator.permutation(positions)[: round(len(positions) * test_fraction)]] = True
    train, test = (TensorDataset(tensor(images[part]), tensor(labels[part])) for part in (~held_out, held_out))
    return train, test


def _table() -> np.ndarray:
    """Rows of 64 intensities from 0 to 16, and the label."""
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        raise ModuleNotFoundError(
            "digits(): the images come with scikit-learn, which is not installed; run: pip install tracejit[bench]"
        )
    with gzip.open(Path(package.origin).parent.joinpath(*_FILE), "rt", encoding="ascii") as file:
        return np.loadtxt(file, delimiter=",")
