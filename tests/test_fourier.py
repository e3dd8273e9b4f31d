"""Fourier transforms: pairs of real tensors in the place of PyTorch's complex ones, with its values and gradients; compiled as eager."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracejit
from tests.against_torch import numbers, torch

PAIRS = ("fft", "ifft", "fft2", "ifft2", "fftn", "ifftn")
FROM_REAL = ("rfft", "rfft2", "rfftn", "ihfft", "ihfft2", "ihfftn")
TO_REAL = ("irfft", "irfft2", "irfftn", "hfft", "hfft2", "hfftn")


def options(name: str) -> list[dict[str, Any]]:
    """Keywords to try, by how many dimensions the transform has."""
    if name[-1] == "2":
        return [{}, {"s": (4, 7), "norm": "ortho"}, {"dim": (2, 0), "norm": "forward"}]
    if name[-1] == "n":
        return [{}, {"s": (6, 3)}, {"dim": (1, 0), "norm": "ortho"}]
    return [{}, {"n": 4, "dim": 1}, {"n": 9, "norm": "ortho"}, {"dim": 0, "norm": "forward"}]


CASES = [(name, keywords) for name in (*PAIRS, *FROM_REAL, *TO_REAL) for keywords in options(name)]


def weighed(parts: tuple[Any, ...], library: Any) -> Any:
    """A number that depends on all elements of the parts, on each differently."""
    total = 0
    for k, x in enumerate(parts):
        weights = library.arange(1, x.numel() + 1, dtype=x.dtype).reshape(x.shape) ** 0.5 + k
        total = total + (x * weights).sum()
    return total


def materialised(x: Any) -> Any:
    """A tensor of PyTorch's may be a negation that is still to be made."""
    return x.resolve_neg()


def of_ours(name: str, keywords: dict[str, Any], a: Any, b: Any) -> tuple[Any, ...]:
    found = getattr(tracejit.fft, name)(a if name in FROM_REAL else (a, b), **keywords)
    return (found.real, found.imag) if isinstance(found, tuple) else (found,)


def of_pytorch(name: str, keywords: dict[str, Any], a: Any, b: Any) -> tuple[Any, ...]:
    t = torch()
    found = getattr(t.fft, name)(a if name in FROM_REAL else t.complex(a, b), **keywords)
    return (found.real, found.imag) if found.is_complex() else (found,)


@pytest.mark.parametrize(("name", "keywords"), CASES)
def test_a_transform_has_the_values_and_gradients_of_pytorch(name: str, keywords: dict[str, Any]) -> None:
    first, second = numbers(3, 4, 5), numbers(3, 4, 5, seed=1)
    gradients = []
    parts = []
    for library, transform in ((tracejit, of_ours), (torch(), of_pytorch)):
        a, b = library.tensor(first, requires_grad=True), library.tensor(second, requires_grad=True)
        found = transform(name, keywords, a, b)
        weighed(found, library).backward()
        parts.append([x.detach().numpy() for x in map(materialised, found)])
        gradients.append([x.grad.numpy() for x in (a, b) if x.grad is not None])
    assert len(parts[0]) == len(parts[1]) and len(gradients[0]) == len(gradients[1])
    for ours, theirs in zip(parts[0] + gradients[0], parts[1] + gradients[1], strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("name", "keywords"), CASES)
def test_a_compiled_transform_gives_what_an_eager_one_gives(name: str, keywords: dict[str, Any]) -> None:
    compiled = tracejit.compile(lambda a, b: of_ours(name, keywords, a, b))
    for seed in (0, 0, 2):
        found = []
        for function in (lambda a, b: of_ours(name, keywords, a, b), compiled):
            a = tracejit.tensor(numbers(3, 4, 5, seed=seed), requires_grad=True)
            b = tracejit.tensor(numbers(3, 4, 5, seed=seed + 1), requires_grad=True)
            parts = function(a, b)
            weighed(parts, tracejit).backward()
            found.append([*(x.detach().numpy() for x in parts), *(x.grad.numpy() for x in (a, b) if x.grad is not None)])
        for eager, actual in zip(*found, strict=True):
            np.testing.assert_allclose(actual, eager, rtol=1e-12, atol=1e-12)
    assert compiled.stats.compiled_calls, compiled.explain()


def test_the_inverse_of_a_transform_gives_the_signal_back_and_keeps_float32() -> None:
    x = tracejit.tensor(numbers(2, 7, dtype="float32"))
    back = tracejit.fft.irfft(tracejit.fft.rfft(x), n=7)
    assert back.dtype is tracejit.float32
    np.testing.assert_allclose(back.numpy(), x.numpy(), atol=1e-6)
    assert tracejit.fft.ifft(tracejit.fft.fft(x)).imag.abs().max() < 1e-6


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_frequencies_are_those_of_pytorch(n: int) -> None:
    for name in ("fftfreq", "rfftfreq"):
        ours, theirs = getattr(tracejit.fft, name)(n, 0.1), getattr(torch().fft, name)(n, 0.1)
        assert str(ours.dtype).split(".")[1] == str(theirs.dtype).split(".")[1]
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6)
    for name in ("fftshift", "ifftshift"):
        x = numbers(n, 3)
        for dim in (None, 0, (1, 0)):
            ours, theirs = (
                getattr(tracejit.fft, name)(tracejit.tensor(x), dim),
                getattr(torch().fft, name)(torch().tensor(x), dim),
            )
            np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def test_what_complex_numbers_would_do_is_refused_with_what_to_do() -> None:
    parts = tracejit.fft.rfft(tracejit.ones(4))
    with pytest.raises(AttributeError, match="hypot"):
        parts.abs()
    with pytest.raises(RuntimeError, match="real input"):
        tracejit.fft.rfft(parts)
    with pytest.raises(RuntimeError, match="normalization"):
        tracejit.fft.fft(tracejit.ones(4), norm="both")
    with pytest.raises(RuntimeError, match="data points"):
        tracejit.fft.fft(tracejit.ones(4), n=0)
