"""Tensors made from nothing: fills, ranges, constants."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tracejit.core.array_constant import ArrayConstant
from tracejit.core.aval import Aval
from tracejit.core.dtypes import DType, bool_, converted, float32, float64, from_numpy_dtype, int64
from tracejit.core.floating import called_quietly, quietly
from tracejit.core.interpreter import state
from tracejit.core.numbers import NUMBERS, PLAIN
from tracejit.core.op import Kind
from tracejit.ops.declare import custom, require_numbers
from tracejit.ops.samples import cases

__all__ = ["ArrayConstant", "arange", "constant", "eye", "full", "tensors_in_place_of_numbers", "zero_gradient"]


def _full_rule(value: Any, shape: tuple[int, ...], dtype: DType) -> Aval:
    require_numbers("full", value)
    return Aval(shape, dtype)


@custom(
    Kind.CREATION,
    _full_rule,
    element=lambda b, at, value, shape, dtype: b.number(value, dtype),
    traits=("uniform", "quiet"),
    samples=cases(
        (1.5, {"shape": (2, 3), "dtype": float32}), (2, {"shape": (), "dtype": int64}), (True, {"shape": (0, 2), "dtype": bool_})
    ),
)
def full(value: Any, shape: tuple[int, ...], dtype: DType) -> Any:
    """A tensor of one number."""
    if type(value) in PLAIN and not value and math.copysign(1.0, value) > 0:
        return np.zeros(shape, dtype.numpy)
    if dtype is float32 or dtype is float64:
        out = np.empty(shape, dtype.numpy)
        called_quietly(state.run_quietly, out.fill, value)
        return out
    return quietly(np.full, shape, quietly(np.float32, value) if dtype.is_reduced else value, dtype.numpy)


@full.vjp()
def _(c: Any, g: Any) -> Any:
    return None


def zero_gradient(c: Any, g: Any, i: int) -> Any:
    """Zeros, of the kind of the cotangent `g`, for operand `i` of a function that is constant almost everywhere; None where they are not
    needed."""
    return full.beside(g, 0.0, shape=c.avals[i].shape, dtype=c.avals[i].dtype) if c.needs[i] else None


def tensors_in_place_of_numbers(c: Any, g: Any) -> list[Any]:
    """The operands that a vjp has saved, with numbers among them as tensors without dimensions, of the kind of the cotangent `g` and of the
    others' dtype: for rules that apply functions to one operand alone.  A number has no dtype, so its function would have NumPy's."""
    if not any(type(x) in NUMBERS for x in c.inputs):
        return list(c.inputs)
    dtype = next(aval.dtype for aval in c.avals if isinstance(aval, Aval))
    return [full.beside(g, x, shape=(), dtype=dtype) if type(x) in NUMBERS else x for x in c.inputs]


def _arange_rule(start: Any, step: Any, length: int, dtype: DType) -> Aval:
    require_numbers("arange", start, step)
    return Aval((length,), dtype)


def _arange_element(b: Any, at: Any, start: Any, step: Any, length: int, dtype: DType) -> Any:
    wide = float64 if float in map(b.kind, (start, step)) else int64
    return b.cast(b.number(start, wide) + b.cast(b.coordinate(at[0]), wide) * b.number(step, wide), dtype)


@custom(
    Kind.CREATION,
    _arange_rule,
    element=_arange_element,
    samples=cases(
        (0, 1, {"length": 5, "dtype": int64}),
        (0.5, 0.25, {"length": 3, "dtype": float32}),
        (2, -1, {"length": 0, "dtype": float64}),
    ),
    traits=("not differentiable", "quiet"),
)
def arange(start: Any, step: Any, length: int, dtype: DType) -> Any:
    """start + i * step for i in range(length), computed in float64 (int64 for integers) and rounded once to `dtype`."""
    counted = np.arange(length)
    if not (type(start) is type(step) is int and start == 0 and step == 1):
        counted = quietly(lambda: start + counted * step)
    return counted if counted.dtype is dtype.numpy else quietly(converted, counted, dtype)


@custom(
    Kind.CREATION,
    lambda rows, columns, dtype: Aval((rows, columns), dtype),
    element=lambda b, at, rows, columns, dtype: b.cast(b.eq(b.coordinate(at[0]), b.coordinate(at[1])), dtype),
    samples=cases(({"rows": 3, "columns": 2, "dtype": float32},), ({"rows": 0, "columns": 2, "dtype": int64},)),
    traits=("not differentiable", "quiet"),
)
def eye(rows: int, columns: int, dtype: DType) -> Any:
    """Ones on the diagonal, zeros elsewhere."""
    return np.eye(rows, columns, dtype=dtype.numpy)


@custom(
    Kind.CREATION,
    lambda array: Aval(array.array.shape, from_numpy_dtype(array.array.dtype)),
    samples=cases(({"array": ArrayConstant(np.arange(6.0).reshape(2, 3))},), ({"array": ArrayConstant(np.zeros(0, np.int64))},)),
    traits=("not differentiable", "quiet"),
)
def constant(array: ArrayConstant) -> Any:
    """A copy of data known when the program was written: tensor([1, 2, 3]), masks made by NumPy ..."""
    return array.array.copy()
