"""From Python data to the NumPy array of a tensor.  Knows tensors only as objects with `_array`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.autograd.tape import DataStorage
from tracejit.core import dtypes
from tracejit.core.dtypes import FROM_NUMPY, DType
from tracejit.core.floating import quietly
from tracejit.core.interpreter import state
from tracejit.core.interrupts import is_foreign
from tracejit.core.numbers import plain_number
from tracejit.core.recorded_number import RecordedNumber
from tracejit.ops.public.movement import shape_of
from tracejit.tensor.size import Size

__all__ = ["contents", "is_data_of", "number_in", "require_numbers", "to_array"]

ndarray = np.ndarray


def to_array(data: Any, dtype: DType | None) -> np.ndarray[Any, Any]:
    """A fresh array of tensor contents.  Raises TypeError for what no tensor holds."""
    if hasattr(data, "_array"):
        array = state.top.take_list(data).copy()
    elif isinstance(data, ndarray | np.generic):
        array = np.array(data, order="C", dtype=data.dtype.newbyteorder("=") if not data.dtype.isnative else None)
    else:
        if isinstance(data, list | tuple) and _holds_tensors(data):
            data = _plain(data)
        try:
            array = np.array(data, order="C")
        except ValueError as error:
            if is_foreign(error):
                raise
            raise _ragged(data, error) from None
        if array.dtype == np.float64:
            if dtype is None and not _has_doubles(data):
                array = quietly(array.astype, dtypes.default_dtype().numpy)
        elif array.size == 0 and dtype is None:
            array = array.astype(dtypes.default_dtype().numpy)
    if dtype is not None and array.dtype != dtype.numpy:
        array = quietly(dtypes.converted, array, dtype)
    if array.dtype not in FROM_NUMPY:
        if isinstance(data, list | tuple | RecordedNumber) or not hasattr(type(data), "__array__"):
            if array.dtype == object or array.dtype.kind in "US":
                raise _no_number(data)
        else:
            require_numbers("tensor", data, array)
        dtypes.from_numpy_dtype(array.dtype)
    return dtypes.canonical(array)


def require_numbers(name: str, data: Any, array: np.ndarray[Any, Any]) -> None:
    """Raise TypeError for an array, or for what NumPy makes an array of, whose dtype is that of dates, texts or objects."""
    kind = array.dtype.kind
    if kind in "biufcV":
        return
    source = f"{data.__class__.__name__} of dtype {array.dtype}"
    dtypes_of: Any = getattr(data, "dtypes", None)
    columns = dict(dtypes_of.items()) if hasattr(data, "columns") and hasattr(dtypes_of, "items") else {}
    if odd := [f"{column!r} ({dtype})" for column, dtype in columns.items() if getattr(dtype, "kind", "O") not in "biuf"]:
        source = f"{data.__class__.__name__} with the column{'s' * (len(odd) > 1)} {', '.join(odd)}"
    elif kind == "O" and array.size:
        wrong = next((x for x in array.flat if not isinstance(x, bool | int | float | np.generic)), array.flat[0])
        source += f" holding {wrong.__class__.__name__}"
    how = "int64" if kind in "mM" else "float64"
    raise TypeError(f"{name}(): expected numbers, got {source}; convert it first, e.g. with .astype({how!r}), or leave it out")


def contents(name: str, data: tuple[Any, ...], dtype: DType) -> np.ndarray[Any, Any]:
    """The array of a tensor that a constructor of PyTorch's makes of its arguments: sizes (the contents are zeros), or data.

    A tensor's own array, and an array of `dtype` that can be written to, are not copied."""
    if not data:
        return np.zeros(0, dtype.numpy)
    if len(data) != 1 or isinstance(plain_number(data[0]), int) or isinstance(data[0], Size):
        return np.zeros(shape_of(name, data), dtype.numpy)
    (source,) = data
    if hasattr(source, "_array"):
        return source._array  # type: ignore[no-any-return]
    if isinstance(source, ndarray) and source.dtype is dtype.numpy and source.flags.writeable:
        return source.view(ndarray)
    if plain_number(source) is not None or not hasattr(source, "__len__"):
        raise TypeError(f"{name}(): data must be a sequence or sizes, got {source.__class__.__name__}; use tensor() for a number")
    return to_array(source, dtype)


def _holds_tensors(data: Any) -> bool:
    return any(hasattr(x, "_array") or (isinstance(x, list | tuple) and _holds_tensors(x)) for x in data)


def _plain(data: Any) -> Any:
    """Nested sequences with NumPy's scalars, which have the same dtype, in the place of tensors."""
    return [_only(x) if hasattr(x, "_array") else _plain(x) if isinstance(x, list | tuple) else x for x in data]


def _only(tensor: Any) -> Any:
    """The one element of a tensor.  Raises ValueError for another number of them."""
    array = state.top.take_list(tensor)
    if array.size != 1:
        raise ValueError(
            "tensor(): only one element tensors can be converted to numbers in a list, got one of shape "
            f"{list(array.shape)}; use stack() or cat()"
        )
    return array.reshape(())[()]


def _has_doubles(data: Any) -> bool:
    """Whether nested sequences, of which NumPy makes an array of float64, hold what has a dtype by itself: its scalars, and arrays.  Floats
    of Python are of the default dtype."""
    if not isinstance(data, list | tuple):
        return isinstance(data, np.float64) or _is_array(type(data))
    for kind in set(map(type, data)):
        if issubclass(kind, np.float64):
            return True
        if issubclass(kind, list | tuple) or _is_array(kind):
            return any(_has_doubles(x) for x in data if isinstance(x, list | tuple) or _is_array(type(x)))
    return False


def _is_array(kind: type) -> bool:
    """Whether it is an array, or what NumPy takes for one: a column or table of pandas, an array of another library."""
    return hasattr(kind, "__array__") and not issubclass(kind, np.generic)


def _leaves(data: Any) -> list[Any]:
    """What nested sequences hold that is no sequence."""
    return [leaf for x in data for leaf in _leaves(x)] if isinstance(data, list | tuple) else [data]


def _no_number(data: Any) -> Exception:
    """What is raised for data that are no numbers: PyTorch's kinds of errors."""
    leaves = _leaves(data)
    bad = next((x for x in leaves if not isinstance(x, bool | int | float | np.generic | ndarray)), leaves[0] if leaves else data)
    expected = "tensor(): expected numbers or nested sequences of numbers"
    if isinstance(bad, str | bytes):
        if bad is data:
            return TypeError(f"{expected}, got {bad.__class__.__name__}")
        if bad is not leaves[0]:
            return TypeError(f"{expected}, got {bad!r} beside numbers")
        return ValueError(f"{expected}, got a sequence holding {bad!r}: too many dimensions {bad.__class__.__name__!r}")
    if isinstance(bad, int):
        return ValueError(f"{expected} that fit 64 bits: overflow at {bad}")
    if bad is None or isinstance(bad, dict | set):
        return RuntimeError(f"{expected}, got {bad.__class__.__name__}; could not infer dtype of it")
    return TypeError(f"{expected}, got {data.__class__.__name__} holding {bad.__class__.__name__}")


def _ragged(data: Any, error: ValueError) -> Exception:
    """What is raised for nested sequences that are no array: PyTorch's kinds of errors, the shape being that of the first members."""
    shape, first = [], data
    while isinstance(first, list | tuple):
        shape.append(len(first))
        first = first[0] if first else None
    expected = "tensor(): expected nested sequences of equal lengths"

    def fault(member: Any, depth: int) -> Exception | None:
        if isinstance(member, ndarray):
            return ValueError(f"{expected}, got {data.__class__.__name__}: {error}")
        if not isinstance(member, list | tuple):
            if not isinstance(member, bool | int | float | np.generic):
                return _no_number(member)
            return TypeError(f"{expected}, got {member!r}, not a sequence, beside one") if depth < len(shape) else None
        if depth == len(shape):
            return TypeError(f"{expected}, got {member.__class__.__name__} beside numbers")
        if len(member) != shape[depth]:
            return ValueError(f"{expected}, got one of length {len(member)} where the first has {shape[depth]}")
        return next((found for x in member if (found := fault(x, depth + 1)) is not None), None)

    return fault(data, 0) or ValueError(f"{expected}, got {data.__class__.__name__}: {error}")


def is_data_of(x: Any, y: Any) -> bool:
    """Whether `x` is the memory of the tensor `y` as `y.data` gives it."""
    if type(getattr(x, "_storage", None)) is not DataStorage or y._base is not None:
        return False
    a, b = x._array, y._array
    return (a.shape, a.strides, a.dtype, a.ctypes.data) == (b.shape, b.strides, b.dtype, b.ctypes.data)


def number_in(name: str, tensor: Any) -> Any:
    """The number that Python's function `name` is to convert.  Raises ValueError, as PyTorch does, for other than one element."""
    if tensor.numel() != 1:
        raise ValueError(
            f"{name}(): only tensors of one element can be converted to Python numbers, got shape {list(tensor.shape)}"
        )
    return tensor.item()
