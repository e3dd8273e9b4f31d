"""Promotion of operands, once, at the door.

`promote(op, operands)` returns operands whose tensors have one dtype, inserting `cast` operations through the door, so that
casts are on the tape and in traces like any other operation.  Values are anything with `dtype` (a DType) and `ndim`; Python
scalars stay what they are: weakly typed, they take the dtype of the tensor operands.  Follows PyTorch's rules (core/dtypes.py).

After it an elementwise primitive sees tensors of one dtype (but for the condition of `where`), and broadcasts them itself.  Operands that
are moved and not computed with (`cat`, the scatters) have one dtype and exactly the shapes that their rules ask for: public functions
convert.  Numbers such as the values of `full` and `pad` are never tensors; the positions of `select` and `dynamic_slice` are numbers, or
tensors int64 without dimensions where the program computes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracejit.core import dtypes
from tracejit.core.numbers import settled
from tracejit.core.op import REGISTRY, Op, Promotion

__all__ = ["common_dtype", "is_settled", "promote", "with_tensor"]

_SCALARS = (bool, int, float)
_F32, _F64, _BOOL = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.bool_)
_TO_BOOL, _TO_FLOAT = Promotion.BOOL, Promotion.FLOAT  # members of an enumeration take 0.1 us to find on Python 3.11


def common_dtype(operands: tuple[Any, ...], promotion: Promotion = Promotion.COMMON) -> dtypes.DType:
    """The dtype that an elementwise operation computes in."""
    dimensioned: dtypes.DType | None = None
    zero_dim: dtypes.DType | None = None
    scalar: dtypes.DType | None = None
    for x in operands:
        if isinstance(x, (bool, int, float, np.generic)):
            kind = dtypes.of_scalar(settled(x))
            scalar = kind if scalar is None else dtypes.promote_types(scalar, kind)
        elif x is None:
            raise TypeError("expected a tensor or a number, got None")
        elif x.ndim:
            dimensioned = x.dtype if dimensioned is None else dtypes.promote_types(dimensioned, x.dtype)
        else:
            zero_dim = x.dtype if zero_dim is None else dtypes.promote_types(zero_dim, x.dtype)
    result = dtypes.result_dtype(dimensioned, zero_dim, scalar)
    if promotion is Promotion.FLOAT and not result.is_floating_point:
        return dtypes.default_dtype()
    return dtypes.bool_ if promotion is Promotion.BOOL else result


def promote(op: Op, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Operands with every tensor cast to the dtype that `op` computes in; `operands` itself where nothing is to do.

    For `where` (trait "condition first") the first operand does not take part: it must be bool."""
    promotion = op.promotion
    if promotion is Promotion.NONE:
        return operands
    _refuse_none(op, operands)
    first = 1 if op.is_choice else 0
    part = operands[first:]
    target = common_dtype(part, promotion)
    if all(isinstance(x, _SCALARS) or x.dtype is target for x in part):
        return operands
    cast = REGISTRY["cast"]
    return operands[:first] + tuple(x if isinstance(x, _SCALARS) or x.dtype is target else cast.of(x, dtype=target) for x in part)


def is_settled(op: Op, arrays: Sequence[Any]) -> bool:
    """Whether the operands plainly have the dtype computed in: the common cases, decided fast."""
    promotion, target, numbers = op.promotion, None, None
    for a in arrays[1:] if op.is_choice else arrays:
        if isinstance(a, np.ndarray):
            dtype = a.dtype
            if target is None:
                target = dtype
            elif dtype is not target:
                return False
        elif numbers is None or numbers is int:
            numbers = type(a)
    if target is _F32 or target is _F64:
        return promotion is not _TO_BOOL
    if target is None or promotion is _TO_FLOAT:
        return False
    if target is _BOOL or promotion is _TO_BOOL:
        return target is _BOOL and numbers is None
    return (numbers is None or numbers is int) and target.kind not in dtypes.FLOATING_KINDS


def with_tensor(op: Op, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """The operands of an operation that promotes, the first number as a tensor where all are numbers: its dtype is the one that PyTorch
    gives a tensor of it, and not the one in which NumPy computes."""
    if op.promotion is Promotion.NONE or not all(isinstance(x, _SCALARS) for x in operands):
        return operands
    dtype = dtypes.bool_ if op.is_choice else common_dtype(operands, op.promotion)
    return (REGISTRY["full"](operands[0], shape=(), dtype=dtype), *operands[1:])


def _refuse_none(op: Op, operands: tuple[Any, ...]) -> None:
    """Raises TypeError where an operand is missing."""
    for position, x in enumerate(operands, 1):
        if x is None:
            raise TypeError(f"{op.name}(): argument {position} must be Tensor, not NoneType")
