"""Sample inputs of primitives, for the test matrix that is derived from the registry.

A sample is (operands, attributes): operands are NumPy arrays and Python scalars.  Makers return a callable, so that little is
computed before a test asks.  Each covers a plain, a strided, a dimensionless and an empty tensor; those of two operands also
broadcasting and numbers.  Values are fixed, in no order, and away from the points where a derivative jumps; they are fractions of
multiples of the golden ratio, since importing NumPy's generators would take a tenth of the time that importing the library takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

__all__ = ["Sample", "Samples", "binary", "bools", "cases", "floats", "integer_binary", "integers", "truth_binary", "unary"]

Sample = tuple[tuple[Any, ...], dict[str, Any]]
Samples = Callable[[], Iterator[Sample]]


def _fractions(count: int, seed: int) -> np.ndarray[Any, Any]:
    """Numbers in [0, 1), evenly spread and in no order: the fractions of the golden ratio's multiples by squares (Weyl's quadratic
    sequence)."""
    return (np.arange(count) + 29 * seed + 1) ** 2 * ((math.sqrt(5) - 1) / 2) % 1.0


def floats(*shape: int, low: float = -2.0, high: float = 2.0, seed: int = 0) -> np.ndarray[Any, Any]:
    """float64 values in [low, high), well apart from each other and, with even odds, from 0."""
    count = math.prod(shape)
    spread = low + (high - low) * (np.arange(count) + 0.37) / max(count, 1)
    return spread[_fractions(count, seed).argsort()].reshape(shape)


def integers(*shape: int, low: int = 0, high: int = 3, seed: int = 0) -> np.ndarray[Any, Any]:
    """int64 values in [low, high)."""
    return (low + np.floor(_fractions(math.prod(shape), seed) * (high - low))).astype(np.int64).reshape(shape)


def bools(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Truth values."""
    return (_fractions(math.prod(shape), seed) < 0.5).reshape(shape)


def cases(*samples: tuple[Any, ...], **attributes: Any) -> Samples:
    """Samples given as tuples of operands, each optionally ending in a dict of its own attributes."""

    def make() -> Iterator[Sample]:
        for sample in samples:
            own = sample[-1] if sample and isinstance(sample[-1], dict) else {}
            operands = sample[:-1] if own else sample
            yield tuple(operands), {**attributes, **own}

    return make


def unary(low: float = -2.0, high: float = 2.0, **attributes: Any) -> Samples:
    """One floating-point operand with values in [low, high)."""

    def make() -> Iterator[Sample]:
        yield (floats(5, low=low, high=high),), attributes
        yield (floats(2, 3, low=low, high=high, seed=1).T,), attributes
        yield (floats(low=low, high=high),), attributes
        yield (floats(0, 2),), attributes

    return make


def binary(
    low: float = -2.0, high: float = 2.0, other_low: float | None = None, other_high: float | None = None, number: Any = 1.5
) -> Samples:
    """Two floating-point operands, the second in [other_low, other_high), and a number in the place of either."""
    below = low if other_low is None else other_low
    above = high if other_high is None else other_high

    def make() -> Iterator[Sample]:
        yield (floats(5, low=low, high=high), floats(5, low=below, high=above, seed=1)), {}
        yield (floats(2, 3, low=low, high=high).T, floats(3, 1, low=below, high=above, seed=2)), {}
        yield (floats(low=low, high=high), floats(2, 2, low=below, high=above, seed=3)), {}
        yield (floats(0, 2), floats(1, 2, low=below, high=above)), {}
        if number is not None:
            yield (floats(4, low=low, high=high), number), {}
            yield (number, floats(4, low=below, high=above)), {}

    return make


def integer_binary(low: int = -5, high: int = 6, other_low: int | None = None) -> Samples:
    """Two int64 operands."""

    def make() -> Iterator[Sample]:
        below = low if other_low is None else other_low
        yield (integers(6, low=low, high=high), integers(6, low=below, high=high, seed=1)), {}
        yield (integers(2, 3, low=low, high=high).T, integers(3, 1, low=below, high=high, seed=2)), {}
        yield (integers(0, 2), integers(1, 2, low=below, high=high)), {}
        yield (integers(4, low=low, high=high), 3), {}

    return make


def truth_binary() -> Samples:
    """Two bool operands."""
    return cases((bools(5), bools(5, seed=1)), (bools(2, 3).T, bools(3, 1, seed=2)), (bools(0, 2), bools(1, 2)), (bools(4), True))
