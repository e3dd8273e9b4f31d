"""What operations on whole sequences have in common: loops over steps, states before each of them, gradients of what all share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracejit.core.aval import Aval
from tracejit.core.interpreter import Abstract, state
from tracejit.core.op import REGISTRY
from tracejit.core.shapes import size_range
from tracejit.ops.linalg import matmul, transpose_matrix
from tracejit.ops.movement.copies import cat
from tracejit.ops.movement.views import reshape, select, slice_

__all__ = ["StepFunction", "began_with", "columns_of", "filled_beside", "looped", "of_columns", "zeros_beside"]

StepFunction = Callable[[list[Any], list[Any], list[Any]], tuple[list[Any], list[Any]]]
"""(carried, slices, shared) -> (carried on, collected)."""


def columns_of(x: Any, n: int, i: int, j: int) -> Any:
    """Columns i * n to j * n of a matrix."""
    return slice_.of(x, dim=1, start=i * n, stop=j * n, step=1)


def _stack(parts: list[Any]) -> Any:
    rows = [reshape.of(x, shape=(1, *x.shape)) for x in parts]
    return cat.of(*rows, dim=0) if len(rows) > 1 else rows[0]


def looped(
    step: StepFunction, carried: list[Any], sliced: list[Any], shared: list[Any], reverse: bool
) -> tuple[list[Any], list[Any]]:
    """(what is carried in the end, what was collected, stacked) of a step for each slice, which is one loop where a graph is made."""
    first = sliced[0]
    if not isinstance(first, np.ndarray):
        interpreter = first.interpreter if isinstance(first, Abstract) else state.top
        found = interpreter.run_scan(step, carried, sliced, first.shape[0], reverse, shared)
        if found is not None:
            return found  # type: ignore[no-any-return]
    rows: list[list[Any]] = []
    for t in list(size_range(0, first.shape[0]))[:: -1 if reverse else 1]:
        carried, collected = step(carried, [select.of(x, t, dim=0) for x in sliced], shared)
        rows.append(collected)
    return carried, [_stack(list(column)) for column in zip(*(rows[::-1] if reverse else rows), strict=True)]


def began_with(states: Any, initial: Any, backwards: bool) -> Any:
    """The state that each step began with, given those that they ended with."""
    length, first = states.shape[0], reshape.of(initial, shape=(1, *initial.shape))
    if length == 1:
        return first
    start, stop = (1, length) if backwards else (0, length - 1)
    others = slice_.of(states, dim=0, start=start, stop=stop, step=1)
    return cat.of(others, first, dim=0) if backwards else cat.of(first, others, dim=0)


def filled_beside(reference: Any, aval: Aval, number: float) -> Any:
    """What `aval` describes, of the kind of `reference`, full of a number."""
    return REGISTRY["full"].beside(reference, number, shape=aval.shape, dtype=aval.dtype)


def zeros_beside(reference: Any, aval: Aval) -> Any:
    """Zeros like `aval`, of the kind of `reference`."""
    return filled_beside(reference, aval, 0.0)


def of_columns(states: Any, initial: Any, given: Any, backwards: bool) -> Any:
    """The cotangent of the matrix that the states before each step were multiplied with; given: that of the products."""
    length, batch, n = states.shape
    before = reshape.of(began_with(states, initial, backwards), shape=(length * batch, n))
    return matmul.of(transpose_matrix(before), reshape.of(given, shape=(length * batch, given.shape[2])))
