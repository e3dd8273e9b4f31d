"""What a row of the benchmark is: one computation, and its implementations.

Invariants: all implementations of a row start from the same numbers and do the same work in float32, so that their results can be
compared call by call.  A `Side` owns its own copy of all state; nothing is shared between sides but read-only input arrays.
Must not know how rows are timed or printed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["Build", "Side", "Workload", "as_arrays", "relative_difference", "unchanged"]

Transform = Callable[[Any], Any]
"""`tracejit.compile`, `torch.compile`, or `unchanged`."""

Build = Callable[[Any, Transform], "Side"]
"""`build(framework, transform)`: the same source runs on any module with PyTorch's interface; `transform` is applied to the function
whose content the row names in `inside`."""


def unchanged(function: Any) -> Any:
    """The transform of the eager side."""
    return function


@dataclass(frozen=True)
class Side:
    """One implementation, ready to be called again and again.

    run: the timed call; `results`: the arrays to compare, given what `run` returned last; `function`: what the transform returned;
    before_check: what precedes each call that is compared, and no timed one."""

    run: Callable[[], Any]
    results: Callable[[Any], list[np.ndarray]]
    function: Any = None
    before_check: Callable[[], object] = lambda: None


@dataclass(frozen=True)
class Workload:
    """One row of the table.

    name: selects the row (`--rows`); inside: what the compiled function contains; products: makes a callable that does only the row's
    matrix products, in NumPy; numpy: the same computation written by hand, where the eager engine could be blamed for the ratio;
    tolerance: greatest relative distance of compiled from eager results; compiled: False for rows that measure the eager engine;
    beside: other compiled functions to time with it, which compute something else (their own rows compare their results)."""

    name: str
    title: str
    inside: str
    build: Build
    products: Callable[[], Callable[[], object]] | None = None
    numpy: Callable[[], Side] | None = None
    tolerance: float = 1e-5
    peer_tolerance: float = 1e-3
    compiled: bool = True
    beside: Mapping[str, Build] = field(default_factory=dict)
    notes: Sequence[str] = field(default_factory=tuple)


def as_arrays(results: Any) -> list[np.ndarray]:
    """Tensors of either framework (or a tuple of them) as NumPy arrays of their own."""
    items = results if isinstance(results, tuple | list) else (results,)
    return [np.array(item.detach().numpy(), copy=True) for item in items]


def relative_difference(actual: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    """The largest over the arrays of |actual - expected| / |expected|, in the Euclidean norm, computed in float64.

    Infinite where shapes differ or where one side has NaN or infinity and the other has not the same."""
    if len(actual) != len(expected):
        return float("inf")
    worst = 0.0
    for a, b in zip(actual, expected, strict=True):
        if a.shape != b.shape:
            return float("inf")
        if a.size == 0 or np.array_equal(a, b, equal_nan=True):
            continue
        distance = float(np.linalg.norm(a.astype(np.float64) - b.astype(np.float64)))
        scale = float(np.linalg.norm(b.astype(np.float64)))
        if not np.isfinite(distance) or scale == 0.0:
            return float("inf")
        worst = max(worst, distance / scale)
    return worst
