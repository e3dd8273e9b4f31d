"""Random draws.

The state of a generator is a tensor, int64[2]: the seed and the counter.  A draw is a primitive that reads the state; the counter then
moves on by an ordinary in-place write of `random_advance`'s result to that tensor.  So the order of draws is the order of
writes and reads of one tensor, in a trace as in eager mode, and a program that draws commits the new counter with its other writes.

Eager code and a program read the counter and move it on in one step, without a call in between, so no other thread comes between.  A
program with host steps moves it on at once by all that it will draw (runtime/host.py).

A draw of n elements uses ceil(n / 4) counter values for float32 and ceil(n / 2) for wider elements, whatever the shape.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tracejit.core import dtypes, philox
from tracejit.core.aval import Aval
from tracejit.core.dtypes import DType
from tracejit.core.floating import quietly
from tracejit.core.kernels import repaying
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


def _numbers(form: str, state: Any, shape: Shape, dtype: DType) -> Any:
    """An array of this shape and dtype, by the kernel of this form, or by NumPy: both give the same bits."""
    seed, counter = state
    count = shape[0] if len(shape) == 1 else product(shape)
    each = 2 if dtype.itemsize > 4 else 4
    blocks = -(-count // each)
    draw = repaying(form, dtype, 60.0 + 0.1 * blocks)
    if draw is None:
        return quietly(philox.DRAWS[form], int(seed), int(counter), count, each == 2).reshape(shape)
    out = np.empty(blocks * each, dtype.numpy)
    draw(out, blocks, int(seed), int(counter))
    if blocks * each != count:
        out = out[:count]
    return out if len(shape) == 1 else out.reshape(shape)


@_draw(_drawn, nest="uniform", samples=_states(dtype=dtypes.float32))
def random_uniform(state: Any, shape: Shape, dtype: DType) -> Any:
    """Numbers in [0, 1): multiples of 2**-24 (float32), 2**-53 (float64), 2**-11 (float16) or 2**-8 (bfloat16)."""
    if not dtype.is_reduced:
        return _numbers("uniform", state, shape, dtype)
    digits = np.float32(2.0**11 if dtype is dtypes.float16 else 2.0**8)
    return dtypes.converted(np.floor(_numbers("uniform", state, shape, dtypes.float32) * digits) / digits, dtype)


@_draw(_drawn, nest="normal", samples=_states(dtype=dtypes.float64))
def random_normal(state: Any, shape: Shape, dtype: DType) -> Any:
    """Numbers of the standard normal distribution."""
    if not dtype.is_reduced:
        return _numbers("normal", state, shape, dtype)
    return quietly(dtypes.converted, _numbers("normal", state, shape, dtypes.float32), dtype)


@_draw(_drawn, nest="exponential", samples=_states(dtype=dtypes.float64))
def random_exponential(state: Any, shape: Shape, dtype: DType) -> Any:
    """Positive numbers of the exponential distribution of rate 1."""
    if not dtype.is_reduced:
        return _numbers("exponential", state, shape, dtype)
    return quietly(dtypes.converted, _numbers("exponential", state, shape, dtypes.float32), dtype)


@_draw(lambda state, shape: Aval(shape, dtypes.int64), nest="integers", samples=_states())
def random_integers(state: Any, shape: Shape) -> Any:
    """int64 numbers in [0, 2**63)."""
    return _numbers("integers", state, shape, dtypes.int64)


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
    count = shape[0] if len(shape) == 1 else product(shape)
    return -(-count // (2 if wide else 4))
