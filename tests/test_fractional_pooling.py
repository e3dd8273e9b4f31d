"""Pooling over windows at random positions: given the numbers that are drawn, PyTorch's values, positions and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracejit
from tests.against_torch import numbers, torch

CASES = {
    "images": (2, (2, 3, 9, 7), 2, {"output_size": (4, 3)}),
    "images by ratio": (2, (2, 3, 10, 8), (3, 2), {"output_ratio": (0.6, 0.6)}),
    "one output": (2, (1, 2, 5, 6), 2, {"output_size": (1, 3)}),
    "volumes": (3, (2, 2, 6, 7, 5), 2, {"output_size": (3, 3, 2)}),
    "volumes by ratios": (3, (1, 2, 6, 8, 6), 2, {"output_ratio": (0.5, 0.4, 0.5)}),
}


def pooled(library: Any, rank: int, x: Any, window: Any, keywords: dict[str, Any], samples: Any) -> Any:
    function = getattr(library.nn.functional, f"fractional_max_pool{rank}d")
    return function(x, window, **keywords, return_indices=True, _random_samples=samples)


@pytest.mark.parametrize("name", CASES)
def test_values_positions_and_gradients_are_those_of_pytorch_and_compiled_ones_are_eager_ones(name: str) -> None:
    rank, shape, window, keywords = CASES[name]
    a = numbers(*shape)
    samples = np.random.default_rng(1).uniform(0, 1, (*shape[:2], rank))
    compiled = tracejit.compile(lambda x, s: pooled(tracejit, rank, x, window, keywords, s))
    results = []
    for library, function in (
        (torch(), lambda x, s: pooled(torch(), rank, x, window, keywords, s)),
        (tracejit, lambda x, s: pooled(tracejit, rank, x, window, keywords, s)),
        *([(tracejit, compiled)] * 3),
    ):
        x = library.tensor(a, requires_grad=True)
        values, positions = function(x, library.tensor(samples))
        (values * library.arange(1.0, values.numel() + 1, dtype=library.float64).reshape(values.shape)).sum().backward()
        results.append((values.detach().numpy(), positions.numpy(), x.grad.numpy()))
    for found in results[1:]:
        for ours, theirs in zip(found, results[0], strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    assert compiled.stats.compiled_calls, compiled.explain()


def test_modules_draw_their_positions_from_the_generator() -> None:
    tracejit.manual_seed(0)
    x = tracejit.tensor(numbers(2, 3, 9, 9))
    pool = tracejit.nn.FractionalMaxPool2d(2, output_ratio=0.5)
    assert pool(x).shape == (2, 3, 4, 4)
    values, positions = tracejit.nn.FractionalMaxPool3d(2, output_size=2, return_indices=True)(
        tracejit.tensor(numbers(1, 2, 5, 5, 5))
    )
    assert values.shape == positions.shape == (1, 2, 2, 2, 2)
    assert any((pool(x) != pool(x)).any().item() for _ in range(5))


def test_windows_that_do_not_fit_and_two_sizes_are_refused() -> None:
    with pytest.raises(RuntimeError, match="too large"):
        tracejit.nn.functional.fractional_max_pool2d(tracejit.ones(1, 1, 3, 3), 2, output_size=3)
    with pytest.raises(ValueError, match="only one"):
        tracejit.nn.FractionalMaxPool2d(2, output_size=2, output_ratio=0.5)
