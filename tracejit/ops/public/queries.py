"""Public functions that answer with a Python value: comparisons of whole tensors, questions about dtypes.

What depends on contents is asked with bool(), so a recording guards it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.core import dtypes
from tracejit.core.numbers import plain_number
from tracejit.core.promotion import common_dtype
from tracejit.core.shapes import product, same
from tracejit.ops import reduce as primitives
from tracejit.ops.elementwise import comparison
from tracejit.ops.public.derive import public
from tracejit.ops.public.elementwise import isclose
from tracejit.ops.public.keywords import require_tensors


def _all(condition: Any) -> bool:
    return bool(primitives.all_(condition, dims=tuple(range(condition.ndim)), keepdim=False))


@public()
def equal(input: Any, other: Any) -> bool:
    """Whether two tensors have the same shape and the same elements.  Raises TypeError for what is no tensor."""
    if not hasattr(other, "ndim") or isinstance(other, np.ndarray | np.generic):
        raise TypeError(f"equal(): argument 'other' must be a Tensor, got {other.__class__.__name__}")
    return same(input._sizes, other._sizes) and _all(comparison.eq(input, other))


@public()
def allclose(input: Any, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Whether |input - other| <= atol + rtol * |other| everywhere."""
    return _all(isclose(input, other, rtol=rtol, atol=atol, equal_nan=equal_nan))


@public(method=False)
def numel(input: Any) -> int:
    """The number of elements."""
    return product(input._sizes)


@public()
def is_nonzero(input: Any) -> bool:
    """Whether the one element of a tensor is not 0.  Raises RuntimeError for any other number of elements."""
    if product(input._sizes) != 1:
        raise RuntimeError(f"is_nonzero(): expected a tensor of one element, got shape {list(input._sizes)}")
    return bool(input)


@public(method=False)
def is_floating_point(input: Any) -> bool:
    """Whether the dtype of a tensor is a floating-point one."""
    return bool(input.dtype.is_floating_point)


@public()
def is_complex(input: Any) -> bool:
    """False: there are no complex tensors."""
    require_tensors("is_complex", input=input)
    return False


@public()
def is_signed(input: Any) -> bool:
    """Whether the dtype of a tensor has negative numbers."""
    return bool(input.dtype.is_signed)


@public()
def is_same_size(input: Any, other: Any) -> bool:
    """Whether two tensors have the same shape."""
    return same(input._sizes, other._sizes)


@public("get_device", method=False)
def get_device(input: Any) -> int:
    """The number of the device that a tensor is on: -1, which is the CPU."""
    return int(input.get_device())


@public(method=False)
def result_type(tensor1: Any, tensor2: Any) -> dtypes.DType:
    """The dtype of what is computed from two operands, tensors or numbers."""
    return common_dtype((_operand(tensor1), _operand(tensor2)))


def _operand(x: Any) -> Any:
    number = plain_number(x)
    return x if number is None else number


@public(method=False)
def can_cast(from_: Any, to: Any) -> bool:
    """Whether promotion lets a result of dtype `from_` be stored in `to`: not a higher kind of number in a lower one."""
    source, target = dtypes.as_dtype(from_, "can_cast"), dtypes.as_dtype(to, "can_cast")
    return source.category <= target.category
