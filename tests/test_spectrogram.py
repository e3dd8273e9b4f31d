"""stft: Fourier transforms of windows of a signal, beside torch's."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import tracejit

OPTIONS: list[dict[str, Any]] = [
    {}, {"hop_length": 3}, {"win_length": 6}, {"win_length": 7, "hop_length": 5}, {"center": False}, {"normalized": True},
    {"onesided": False}, {"pad_mode": "constant"},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("shape", [(40,), (2, 33)], ids=str)
def test_values_and_gradients_are_those_of_torch(options: dict[str, Any], shape: tuple[int, ...]) -> None:
    torch, found = pytest.importorskip("torch"), []
    signal = np.random.default_rng(0).normal(size=shape)
    for library in (tracejit, torch):
        x = library.tensor(signal, requires_grad=True)
        window = library.hann_window(options.get("win_length", 8), dtype=library.float64)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y = library.stft(x, 8, window=window, return_complex=False, **options)
        (y * library.arange(1.0, y.numel() + 1).reshape(y.shape)).sum().backward()
        found.append((y.detach().numpy(), x.grad.numpy()))
    for ours, theirs in zip(*found, strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


def test_a_pair_of_parts_stands_for_complex_numbers_and_refuses_their_arithmetic() -> None:
    x = tracejit.tensor(np.random.default_rng(1).normal(size=20), requires_grad=True)
    parts = x.stft(8, return_complex=True)
    with pytest.warns(UserWarning, match="return_complex=False is deprecated"):
        both = tracejit.stft(x, 8, return_complex=False)
    assert tracejit.equal(tracejit.stack(tuple(parts), -1), both) and parts.real.shape == (5, 11)
    for use in (
        lambda: parts * parts,
        lambda: parts + parts,
        lambda: 2 * parts,
        lambda: abs(parts),
        lambda: -parts,
        lambda: parts / 2,
    ):
        with pytest.raises(TypeError, match="pair of real tensors"):
            use()
    assert tracejit.compile(lambda v: v.stft(8, return_complex=True).real)(x).shape == (5, 11)


def test_sizes_that_do_not_fit_are_errors() -> None:
    x = tracejit.ones(20)
    for options, what in (
        ({}, "requires the return_complex parameter"), ({"hop_length": 0, "return_complex": True}, "hop_length > 0"),
        ({"win_length": 9, "return_complex": True}, "win_length <= n_fft"), ({"window": x, "return_complex": True}, "win_length=8"),
        ({"pad_mode": "circular", "return_complex": True}, "'reflect' or 'constant'"),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=what):
            tracejit.stft(x, 8, **options)
    with pytest.raises(RuntimeError, match="cannot be reflected"):
        tracejit.stft(tracejit.ones(4), 8, return_complex=True)
    with pytest.raises(RuntimeError, match="expected 0 < n_fft <= 4"):
        tracejit.stft(tracejit.ones(4), 8, center=False, return_complex=True)
