"""Element types and PyTorch's type promotion.

A `DType` is a singleton with PyTorch's name; it wraps exactly one NumPy dtype.  NumPy has none for bfloat16: that is ml_dtypes', which
is imported where the first tensor of it is made.  float16 and bfloat16 are *reduced*: numbers are stored in them, and computed with
in float32 (core/promotion.py).  Promotion follows PyTorch: only a
*category* (bool < integer < floating point) that is higher among dimensionless tensors or Python scalars than among
dimensioned tensors changes the result (https://docs.pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc).
This module knows nothing of tensors.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tracejit.core.interrupts import is_foreign
from tracejit.core.lazy import lazy_module
from tracejit.core.naming import package_name

__all__ = [
    "ALL",
    "FLOATING_KINDS",
    "LEGACY",
    "DType",
    "UnsupportedDType",
    "as_dtype",
    "autocast_was_made",
    "bfloat16",
    "bool_",
    "canonical",
    "converted",
    "default_dtype",
    "float16",
    "float32",
    "float64",
    "from_numpy_dtype",
    "int8",
    "int16",
    "int32",
    "int64",
    "note_autocast",
    "promote_types",
    "set_default_dtype",
    "uint8",
]

BOOL, INTEGER, FLOATING, COMPLEX = 0, 1, 2, 3
_ml_dtypes = lazy_module("ml_dtypes")


class DType:
    """An element type.  Compare by identity; `numpy` is the NumPy dtype with the same layout."""

    __module__ = "tracejit"  # where programs find it
    __qualname__ = "dtype"
    __slots__ = ("category", "is_complex", "is_floating_point", "is_reduced", "is_signed", "itemsize", "name", "numpy")

    def __init__(self, name: str, numpy_type: Any, category: int) -> None:
        """numpy_type: None for bfloat16, whose dtype is looked up where it is first asked for."""
        self.name: Final = name
        self.category: Final = category
        self.is_floating_point: Final = category == FLOATING
        self.is_complex: Final = category == COMPLEX
        self.numpy: np.dtype[Any]
        if numpy_type is None:
            self.itemsize = 2
            self.is_signed = True
        else:
            self.numpy = np.dtype(numpy_type)
            self.itemsize = self.numpy.itemsize
            self.is_signed = self.numpy.kind in "ifc"
        self.is_reduced: Final = self.is_floating_point and self.itemsize == 2

    def __getattr__(self, name: str) -> Any:
        if name != "numpy":
            raise AttributeError(f"{self!r} has no attribute {name!r}")
        try:
            kind = _ml_dtypes.bfloat16
        except ImportError as error:
            if is_foreign(error):
                raise
            raise RuntimeError(
                f"tensors of {self!r} need the package ml_dtypes, which is not installed: pip install 'tracejit[bfloat16]'"
            ) from None
        found = self.numpy = np.dtype(kind)
        FROM_NUMPY[found] = self
        return found

    def __repr__(self) -> str:
        return f"{package_name()}.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _by_name, (self.name,)

    def __copy__(self) -> DType:
        return self

    def __deepcopy__(self, memo: object) -> DType:
        return self


class UnsupportedDType(DType):
    """The name of a dtype of PyTorch's that no tensor has here: programs compare with it.  Asking for a tensor of it raises TypeError."""

    __slots__ = ("remedy",)

    def __init__(self, name: str, numpy_type: Any, category: int, remedy: str) -> None:
        super().__init__(name, numpy_type, category)
        self.remedy: Final = remedy
        del self.numpy

    def __getattr__(self, name: str) -> Any:
        if name == "numpy":
            raise TypeError(f"tensors cannot have the dtype {self!r}: {self.remedy}")
        return super().__getattr__(name)


bool_ = DType("bool", np.bool_, BOOL)
uint8 = DType("uint8", np.uint8, INTEGER)
int8 = DType("int8", np.int8, INTEGER)
int16 = DType("int16", np.int16, INTEGER)
int32 = DType("int32", np.int32, INTEGER)
int64 = DType("int64", np.int64, INTEGER)
float16 = DType("float16", np.float16, FLOATING)
bfloat16 = DType("bfloat16", None, FLOATING)
float32 = DType("float32", np.float32, FLOATING)
float64 = DType("float64", np.float64, FLOATING)

ALL: Final = (bool_, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64)
FROM_NUMPY: Final[dict[np.dtype[Any], DType]] = {d.numpy: d for d in ALL if d is not bfloat16}
"""bfloat16 is in it from the first tensor on."""
FLOATING_KINDS: Final = "fV"
"""NumPy's `kind` of the floating-point dtypes: bfloat16 is an extension type there, the only one that tensors hold."""
_WIDER = "use a signed integer dtype with more bits, such as int64"
_PAIRS = "keep real and imaginary parts in two tensors, as the functions of fft take and give them"
UNSUPPORTED: Final = (
    *[UnsupportedDType(f"uint{n}", f"uint{n}", INTEGER, _WIDER) for n in (16, 32, 64)],
    *[UnsupportedDType(f"complex{n}", f"complex{n}", COMPLEX, _PAIRS) for n in (64, 128)],
)
_NAMES: Final = {d.name: d for d in (*ALL, *UNSUPPORTED)}
_default = float32
_autocast_was_made = False
_without_autocast: DType | None = _default
"""The default dtype as long as there was no autocast in the process, None from then on: guards of recordings that were made before need
not ask for two things."""


def _by_name(name: str) -> DType:
    return _NAMES[name]


def from_numpy_dtype(dtype: Any) -> DType:
    """The `DType` of a NumPy dtype.  Raises TypeError for one that tensors cannot hold (complex, object, big-endian ...)."""
    try:
        return FROM_NUMPY[np.dtype(dtype)]
    except KeyError as error:
        if is_foreign(error):
            raise
        if getattr(np.dtype(dtype), "name", None) == "bfloat16" and np.dtype(dtype) == bfloat16.numpy:
            return bfloat16
        raise TypeError(
            f"tracejit has no dtype for NumPy's {np.dtype(dtype)!r}; supported are {', '.join(d.name for d in ALL)}. "
            "Convert the array first, e.g. with array.astype(numpy.float32)"
        ) from None


def converted(array: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """The elements as `dtype`, a copy; to and from reduced dtypes by way of float32, as PyTorch and compiled code convert."""
    here, target = array.dtype, dtype.numpy
    if (dtype.is_reduced or (here.itemsize == 2 and here.kind in FLOATING_KINDS)) and here != target:
        return array.astype(np.float32).astype(target)
    return array.astype(target)


_BUILTIN: Final[dict[Any, DType]] = {bool: bool_, int: int64, float: float64}
LEGACY: Final = {
    "FloatTensor": float32, "DoubleTensor": float64, "LongTensor": int64, "IntTensor": int32, "ShortTensor": int16, "CharTensor": int8,
    "ByteTensor": uint8, "BoolTensor": bool_, "HalfTensor": float16, "BFloat16Tensor": bfloat16,
}  # fmt: skip
"""PyTorch's older names of tensors by their dtype."""


def as_dtype(dtype: Any, name: str) -> DType:
    """The `DType` that an argument `dtype` of the function `name` stands for: Python's bool, int and float stand for bool, int64 and
    float64.  Raises TypeError for anything else."""
    if type(dtype) is DType:
        return dtype
    found = _BUILTIN.get(dtype) if isinstance(dtype, type) else None
    if isinstance(dtype, UnsupportedDType):
        raise TypeError(f"{name}(): tensors cannot have the dtype {dtype!r}: {dtype.remedy}")
    if found is None:
        raise TypeError(
            f"{name}(): argument 'dtype' must be a dtype such as tracejit.float32, got {dtype!r} of type {dtype.__class__.__name__}"
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
    """Set the dtype of tensors made from Python floats.  Raises TypeError unless `dtype` is one of floating point."""
    global _default, _without_autocast
    if not isinstance(dtype, DType) or not dtype.is_floating_point:
        raise TypeError(f"set_default_dtype(): dtype must be one of floating point such as float32 or float64, got {dtype!r}")
    _default = dtype
    _without_autocast = dtype
    if _autocast_was_made:  # also where another thread has made one meanwhile
        _without_autocast = None


def autocast_was_made() -> bool:
    """Whether there was an autocast in the process."""
    return _autocast_was_made


def note_autocast() -> None:
    """Somebody has made an autocast: from now on recordings ask for the mode of the thread."""
    global _autocast_was_made, _without_autocast
    _autocast_was_made = True
    _without_autocast = None


def _promote(a: DType, b: DType) -> DType:
    if a is b:
        return a
    if a.category != b.category:
        return a if a.category > b.category else b
    if a.is_reduced and b.is_reduced:
        return float32
    if a.itemsize != b.itemsize and uint8 not in (a, b):
        return a if a.itemsize > b.itemsize else b
    if uint8 in (a, b):  # uint8 with int8 needs int16; with a wider signed integer, that one
        other = b if a is uint8 else a
        return int16 if other is int8 else other
    raise AssertionError((a, b))


class _Promotions(dict[tuple[DType, DType], DType]):
    """The dtype of each pair."""

    def __missing__(self, pair: tuple[Any, Any]) -> DType:
        return self[as_dtype(pair[0], "promote_types"), as_dtype(pair[1], "promote_types")]


_PROMOTION: Final = _Promotions({(a, b): _promote(a, b) for a in ALL for b in ALL})


def promote_types(type1: DType, type2: DType) -> DType:
    """The smallest dtype that holds both, by PyTorch's table.  Raises TypeError for what is no dtype."""
    try:
        return _PROMOTION[type1, type2]
    except (KeyError, TypeError):
        position, given = next((i, x) for i, x in enumerate((type1, type2), 1) if type(x) is not DType)
        if isinstance(given, UnsupportedDType):
            as_dtype(given, "promote_types")
        raise TypeError(
            f"promote_types(): argument 'type{position}' (position {position}) must be dtype, not {given.__class__.__name__}"
        ) from None


EPSILON: Final = {float16: 2.0**-10, bfloat16: 2.0**-7, float32: 2.0**-23, float64: 2.0**-52}
"""The step from 1 to the next number."""
LARGEST: Final = {
    float16: 65504.0, bfloat16: 2.0**128 - 2.0**120, float32: 2.0**128 - 2.0**104, float64: float(np.finfo(np.float64).max),
}  # fmt: skip
"""The largest finite number."""


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
