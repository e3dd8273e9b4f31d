"""Element types and PyTorch's type promotion.

A `DType` is a singleton with PyTorch's name; it wraps exactly one NumPy dtype.  Promotion follows PyTorch: only a
*category* (bool < integer < floating point) that is higher among dimensionless tensors or Python scalars than among
dimensioned tensors changes the result (https://docs.pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc).
This module knows nothing of tensors.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tracejit.core.interrupts import is_foreign

__all__ = [
    "ALL",
    "LEGACY",
    "DType",
    "as_dtype",
    "bool_",
    "canonical",
    "default_dtype",
    "float32",
    "float64",
    "from_numpy_dtype",
    "int8",
    "int16",
    "int32",
    "int64",
    "promote_types",
    "set_default_dtype",
    "uint8",
]

BOOL, INTEGER, FLOATING = 0, 1, 2


class DType:
    """An element type.  Compare by identity; `numpy` is the NumPy dtype with the same layout."""

    __slots__ = ("_torch_order", "category", "is_floating_point", "is_signed", "itemsize", "name", "numpy")

    def __init__(self, name: str, numpy_type: Any, category: int) -> None:
        self.name: Final = name
        self.numpy: Final[np.dtype[Any]] = np.dtype(numpy_type)
        self.category: Final = category
        self.itemsize: Final = self.numpy.itemsize
        self.is_floating_point: Final = category == FLOATING
        self.is_signed: Final = self.numpy.kind in "if"

    def __repr__(self) -> str:
        return f"tracejit.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _by_name, (self.name,)

    def __copy__(self) -> DType:
        return self

    def __deepcopy__(self, memo: object) -> DType:
        return self


bool_ = DType("bool", np.bool_, BOOL)
uint8 = DType("uint8", np.uint8, INTEGER)
int8 = DType("int8", np.int8, INTEGER)
int16 = DType("int16", np.int16, INTEGER)
int32 = DType("int32", np.int32, INTEGER)
int64 = DType("int64", np.int64, INTEGER)
float32 = DType("float32", np.float32, FLOATING)
float64 = DType("float64", np.float64, FLOATING)

ALL: Final = (bool_, uint8, int8, int16, int32, int64, float32, float64)
FROM_NUMPY: Final[dict[np.dtype[Any], DType]] = {d.numpy: d for d in ALL}
_NAMES: Final = {d.name: d for d in ALL}
_default = float32


def _by_name(name: str) -> DType:
    return _NAMES[name]


def from_numpy_dtype(dtype: Any) -> DType:
    """The `DType` of a NumPy dtype.  Raises TypeError for one that tensors cannot hold (complex, object, big-endian ...)."""
    try:
        return FROM_NUMPY[np.dtype(dtype)]
    except KeyError as error:
        if is_foreign(error):
            raise
        raise TypeError(
            f"tracejit has no dtype for NumPy's {np.dtype(dtype)!r}; supported are {', '.join(d.name for d in ALL)}. "
            "Convert the array first, e.g. with array.astype(numpy.float32)"
        ) from None


_BUILTIN: Final[dict[Any, DType]] = {bool: bool_, int: int64, float: float64}
LEGACY: Final = {
    "FloatTensor": float32, "DoubleTensor": float64, "LongTensor": int64, "IntTensor": int32, "ShortTensor": int16, "CharTensor": int8,
    "ByteTensor": uint8, "BoolTensor": bool_,
}  # fmt: skip
"""PyTorch's older names of tensors by their dtype."""


def as_dtype(dtype: Any, name: str) -> DType:
    """The `DType` that an argument `dtype` of the function `name` stands for: Python's bool, int and float stand for bool, int64 and
    float64.  Raises TypeError for anything else."""
    if type(dtype) is DType:
        return dtype
    found = _BUILTIN.get(dtype) if isinstance(dtype, type) else None
    if found is None:
        raise TypeError(
            f"{name}(): argument 'dtype' must be a dtype such as tracejit.float32, got {dtype!r} of type {type(dtype).__name__}"
        )
    return found


def canonical(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array with the very dtype object of its `DType`, which programs compare by identity: longlong is not int64, and pickles bring
    dtypes of their own.  Its dtype must be one that tensors can hold."""
    dtype = FROM_NUMPY[array.dtype].numpy
    return array if array.dtype is dtype else array.view(dtype)


def default_dtype() -> DType:
    """The floating-point dtype of new tensors made from Python floats: float32 unless `set_default_dtype` changed it."""
    return _default


def set_default_dtype(dtype: DType) -> None:
    """Set the dtype of tensors made from Python floats.  Raises TypeError unless `dtype` is float32 or float64."""
    global _default
    if not isinstance(dtype, DType) or not dtype.is_floating_point:
        raise TypeError(f"set_default_dtype(): dtype must be float32 or float64, got {dtype!r}")
    _default = dtype


def _promote(a: DType, b: DType) -> DType:
    if a is b:
        return a
    if a.category != b.category:
        return a if a.category > b.category else b
    if a.itemsize != b.itemsize and uint8 not in (a, b):
        return a if a.itemsize > b.itemsize else b
    if uint8 in (a, b):  # uint8 with int8 needs int16; with a wider signed integer, that one
        other = b if a is uint8 else a
        return int16 if other is int8 else other
    raise AssertionError((a, b))


_PROMOTION: Final = {(a, b): _promote(a, b) for a in ALL for b in ALL}


def promote_types(type1: DType, type2: DType) -> DType:
    """The smallest dtype that holds both, by PyTorch's table."""
    return _PROMOTION[type1, type2]


def of_scalar(value: object) -> DType:
    """The dtype that a Python scalar brings to promotion."""
    kind = type(value)
    if kind is bool:
        return bool_
    if isinstance(value, bool):
        return bool_
    if isinstance(value, int):
        return int64
    if isinstance(value, float):
        return _default
    raise TypeError(f"expected a bool, int or float, got {kind.__name__}")


def result_dtype(dimensioned: DType | None, zero_dim: DType | None, scalar: DType | None) -> DType:
    """Promote the three priority classes of operands, each already promoted within itself (None: no such operand)."""
    result = dimensioned
    for lower in (zero_dim, scalar):
        if lower is None:
            continue
        if result is None or lower.category > result.category:
            result = lower
    assert result is not None
    return result
