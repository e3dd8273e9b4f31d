"""How long the steps of a program take, measured by running them on made-up arrays, for reports.

The arrays hold one number, and zeros where they are integers, truth values or saved bytes, so that positions are within range.  Nothing of
the user's is read or written.  Times of steps that depend on data (a loop that stops early, sparse updates) may be other ones in calls.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tracejit.lowering.steps import Address, ArraySpec, LoopCall, ProgramStep
from tracejit.runtime.debug import step_times
from tracejit.runtime.program import Program

__all__ = ["measured"]

_MOST_BYTES: Final = 1 << 28
_MOST_STEPS: Final = 64
_VALUES: Final = (1.0, -1.0, 0.0)  # tried in turn, since branches decide by values


def measured(program: Any) -> Sequence[float] | None:
    """Microseconds of each step of a program, the best of five runs; None where it is not one piece of machine code, is large, has a
    loop that data ends, or leaves by an exit on such arrays."""
    if not isinstance(program, Program):
        return None
    lowered = program.lowered
    specs = lowered.spec.arrays[: lowered.arrays]
    size = lowered.arena_bytes + sum(math.prod(spec.shape) * spec.dtype.itemsize for spec in lowered.spec.arrays)
    if size > _MOST_BYTES or len(lowered.spec.steps) > _MOST_STEPS or any(map(_ends_by_data, lowered.spec.steps)):
        return None
    if lowered.slab_size and lowered.slab_size > _MOST_BYTES:
        return None
    numbers = [1.0 if kind is float else 0 for _, kind in lowered.scalars]
    for value in _VALUES:
        try:
            return [time for _, time in step_times(lowered, [_array(spec, value) for spec in specs], numbers)]
        except RuntimeError:  # it has left by an exit
            continue
    return None


def _ends_by_data(step: ProgramStep) -> bool:
    return isinstance(step, LoopCall) and (isinstance(step.count, Address) or any(map(_ends_by_data, step.steps)))


def _array(spec: ArraySpec, value: float) -> np.ndarray[Any, Any]:
    """An array of this shape, dtype and strides in memory of its own."""
    kind, size = spec.dtype.numpy, spec.dtype.itemsize
    spans = [(n - 1) * s for n, s in zip(spec.shape, spec.strides, strict=True)] if all(spec.shape) else []
    low, high = sum(min(span, 0) for span in spans), sum(max(span, 0) for span in spans)
    memory = np.zeros((high - low) // size + 1, kind)
    if spec.dtype.is_floating_point:
        memory.fill(value)
    array: np.ndarray[Any, Any] = as_strided(memory[-low // size :], spec.shape, spec.strides)
    return array
