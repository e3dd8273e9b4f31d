"""The same call in tracejit and in PyTorch, on the same numbers: values and gradients must agree.  Skips where torch is missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tracejit


def torch() -> Any:
    """PyTorch, or a skipped test."""
    return pytest.importorskip("torch")


def numbers(*shape: int, seed: int = 0, dtype: str = "float64", low: float = -2.0, high: float = 2.0) -> np.ndarray:
    """Uniform random numbers."""
    return np.random.default_rng(seed).uniform(low, high, shape).astype(dtype)


def classes(*shape: int, count: int, seed: int = 0) -> np.ndarray:
    """Random class indices."""
    return np.random.default_rng(seed).integers(0, count, shape)


def as_tracejit(value: Any, requires_grad: bool = False) -> Any:
    return (
        tracejit.tensor(value, requires_grad=requires_grad and value.dtype.kind == "f")
        if isinstance(value, np.ndarray)
        else value
    )


def as_torch(value: Any, requires_grad: bool = False) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    return torch().tensor(value, requires_grad=requires_grad and value.dtype.kind == "f")


def assert_close(ours: Any, theirs: Any, tolerance: float = 1e-12, what: str = "value") -> None:
    """Equal shapes and dtypes, close numbers; `theirs` is a torch tensor."""
    expected = theirs.detach().numpy()
    actual = ours.detach().numpy()
    assert actual.shape == expected.shape, (what, actual.shape, expected.shape)
    assert actual.dtype == expected.dtype, (what, actual.dtype, expected.dtype)
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance, err_msg=what)


def agree(name: str, *args: Any, tolerance: float = 1e-12, gradients: bool = True, **kwargs: Any) -> None:
    """nn.functional.<name>(*args, **kwargs) in both; arrays become tensors that require gradients if they are floating-point."""
    both(
        lambda f, given, options: getattr(f.nn.functional, name)(*given, **options),
        args,
        kwargs,
        tolerance=tolerance,
        gradients=gradients,
    )


def both(
    run: Callable[[Any, Sequence[Any], dict[str, Any]], Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    *,
    tolerance: float = 1e-12,
    gradients: bool = True,
) -> None:
    """run(framework, args, kwargs) in both: results and gradients agree."""
    ours = [as_tracejit(a, gradients) for a in args], {k: as_tracejit(v, gradients) for k, v in kwargs.items()}
    theirs = [as_torch(a, gradients) for a in args], {k: as_torch(v, gradients) for k, v in kwargs.items()}
    result, expected = run(tracejit, *ours), run(torch(), *theirs)
    assert_close(result, expected, tolerance)
    if not gradients:
        return
    weights = numbers(*expected.shape, seed=7, dtype=str(expected.dtype).split(".")[1])
    result.backward(as_tracejit(weights))
    expected.backward(as_torch(weights))
    pairs = [*zip(ours[0], theirs[0], strict=True), *((ours[1][k], theirs[1][k]) for k in kwargs)]
    for position, (mine, other) in enumerate(pairs):
        if isinstance(mine, tracejit.Tensor) and mine.requires_grad:
            if other.grad is None:
                assert mine.grad is None or not mine.grad.numpy().any(), f"gradient {position}"
            else:
                assert mine.grad is not None, f"gradient {position} is missing"
                assert_close(mine.grad, other.grad, tolerance, f"gradient {position}")
