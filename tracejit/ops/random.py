"""Random draws.

The state of a generator is a tensor, int64[2]: the seed and the counter.  A draw is a primitive that reads the state; the counter then
moves on by an ordinary in-place write of `random_advance`'s result to that tensor.  So the order of draws is the order of
writes and reads of one tensor, in a trace as in eager mode, and a program that draws commits the new counter with its other writes.

A draw of n elements uses ceil(n / 4) counter values for float32 and ceil(n / 2) for wider elements, whatever the shape.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tracejit.core import dtypes, philox
from tracejit.core.aval import Aval
from tracejit.core.dtypes import DType
from tracejit.core.op import Effect, Kind
from tracejit.core.shapes import product
from tracejit.ops.declare import custom
from tracejit.ops.samples import Samples, cases

__all__ = ["advance_for", "random_advance", "random_exponential", "random_integers", "random_normal", "random_uniform"]

Shape = tuple[int, ...]


def _states(**attributes: Any) -> Samples:
    shapes: tuple[Shape, ...] = ((5,), (2, 3), (), (0, 2))
    return cases(*((np.array([7, 3]), {"shape": shape, **attributes}) for shape in shapes))


def _drawn(state: Aval, shape: Shape, dtype: DType) -> Aval:
    return Aval(shape, dtype)


_draw = partial(custom, Kind.RANDOM, effect=Effect.RANDOM, traits=("not differentiable",))


@_draw(_drawn, nest="uniform", samples=_states(dtype=dtypes.float32))
def random_uniform(state: Any, shape: Shape, dtype: DType) -> Any:
    """Numbers in [0, 1): multiples of 2**-24 (float32), 2**-53 (float64), 2**-11 (float16) or 2**-8 (bfloat16)."""
    numbers = philox.uniform(int(state[0]), int(state[1]), product(shape), dtype is dtypes.float64).reshape(shape)
    if dtype.is_reduced:
        digits = np.float32(2.0**11 if dtype is dtypes.float16 else 2.0**8)
        numbers = dtypes.converted(np.floor(numbers * digits) / digits, dtype)
    return numbers


@_draw(_drawn, nest="normal", samples=_states(dtype=dtypes.float64))
def random_normal(state: Any, shape: Shape, dtype: DType) -> Any:
    """Numbers of the standard normal distribution."""
    numbers = philox.normal(int(state[0]), int(state[1]), product(shape), dtype is dtypes.float64).reshape(shape)
    return dtypes.converted(numbers, dtype) if dtype.is_reduced else numbers


@_draw(_drawn, nest="exponential", samples=_states(dtype=dtypes.float64))
def random_exponential(state: Any, shape: Shape, dtype: DType) -> Any:
    """Positive numbers of the exponential distribution of rate 1."""
    numbers = philox.exponential(int(state[0]), int(state[1]), product(shape), dtype is dtypes.float64).reshape(shape)
    return dtypes.converted(numbers, dtype) if dtype.is_reduced else numbers


@_draw(lambda state, shape: Aval(shape, dtypes.int64), nest="integers", samples=_states())
def random_integers(state: Any, shape: Shape) -> Any:
    """int64 numbers in [0, 2**63)."""
    return philox.positive_integers(int(state[0]), int(state[1]), product(shape)).reshape(shape)


@custom(
    Kind.RANDOM,
    lambda state, count: state,
    nest="advance",
    traits=("not differentiable",),
    samples=cases((np.array([7, 3]), {"count": 5})),
)
def random_advance(state: Any, count: int) -> Any:
    """The state after `count` counter values were used."""
    return state + np.array([0, count], np.int64)


def advance_for(shape: Shape, wide: bool) -> int:
    """How far a draw of this shape moves the counter."""
    return philox.blocks_for(product(shape), wide)
