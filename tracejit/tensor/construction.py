"""Tensors made from data: a copy (`tensor`), the same memory (`from_numpy`), whichever is possible (`as_tensor`)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tracejit.core import dtypes
from tracejit.core.devices import require_cpu
from tracejit.core.dtypes import FROM_NUMPY
from tracejit.core.interpreter import state
from tracejit.core.library_warnings import warn_once
from tracejit.ops.creation import ArrayConstant, constant
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.ops.movement.copies import cat
from tracejit.ops.movement.views import detach, reshape
from tracejit.tensor.base import Tensor, wrap
from tracejit.tensor.contents import require_numbers, to_array

__all__ = ["as_tensor", "from_numpy", "tensor"]

ndarray = np.ndarray
_READ_ONLY: Final = (
    "from_numpy(): the array is read-only, and so is the tensor: in-place operations on it raise; pass array.copy() to write to it. "
    "This is said once"
)


def tensor(data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False) -> Tensor:
    """A tensor with a copy of `data`: a number, nested sequences of numbers, a NumPy array or a Tensor.

    Floats become the default dtype, integers int64, unless `dtype` says otherwise; arrays keep theirs.  Raises TypeError for
    other contents."""
    if device is not None:
        require_cpu("tensor", device)
    if dtype is not None:
        dtype = dtypes.as_dtype(dtype, "tensor")
    if (joined := _joined(data)) is not None:
        out = joined if dtype is None or joined.dtype is dtype else cast(joined, dtype=dtype)
        return out.requires_grad_() if requires_grad else out  # type: ignore[no-any-return]
    array = to_array(data, dtype)
    out = constant(array=ArrayConstant(array)) if state.top is not state.base else wrap(array)
    return out.requires_grad_() if requires_grad else out  # type: ignore[no-any-return]


def _joined(data: Any) -> Tensor | None:
    """A list of tensors of one dtype, each of which holds one number, as operations of tensors; None for other data."""
    if type(data) not in (list, tuple) or not data or not all(isinstance(x, Tensor) and x.numel() == 1 for x in data):
        return None
    if len({x.dtype for x in data}) > 1:
        return None
    return cat.of(*[reshape.of(detach.of(x), shape=(1,)) for x in data], dim=0)  # type: ignore[no-any-return]


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """`data` as a tensor, without a copy where possible: a tensor of the dtype is returned, an array of it shares its memory.

    All else is copied, as by tensor(), which says what is raised."""
    require_cpu("as_tensor", device)
    if dtype is not None:
        dtype = dtypes.as_dtype(dtype, "as_tensor")
    if isinstance(data, Tensor):
        return data if dtype is None or data.dtype is dtype else cast(data, dtype=dtype)  # type: ignore[no-any-return]
    if (
        isinstance(data, ndarray)
        and data.dtype in FROM_NUMPY
        and (dtype is None or data.dtype == dtype.numpy)
        and data.flags.writeable
    ):
        return from_numpy(data)
    return tensor(data, dtype=dtype)


def from_numpy(array: np.ndarray[Any, Any]) -> Tensor:
    """A tensor that shares the memory of `array`.

    Of a read-only array (as `to_numpy()` of pandas gives) it is one that cannot be written to: in-place operations raise RuntimeError.
    A warning says so once in a process.  Raises TypeError for other dtypes than tensors have."""
    if not isinstance(array, ndarray):
        like = hasattr(array, "__array__") and not isinstance(array, Tensor)
        hint = "; as_tensor() takes it, and numpy.asarray() makes an array of it" if like else ""
        raise TypeError(f"from_numpy(): expected a numpy.ndarray, got {array.__class__.__name__}{hint}")
    require_numbers("from_numpy", array, array)
    canonical = dtypes.from_numpy_dtype(array.dtype).numpy
    if not array.flags.writeable:
        warn_once(_READ_ONLY)
    return state.top.share_array(array, canonical)  # type: ignore[no-any-return]
