"""Memory shared with other libraries: DLPack both ways, the buffer protocol, and whatever NumPy can read."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from tracejit.core.devices import require_cpu
from tracejit.core.dtypes import FROM_NUMPY, as_dtype
from tracejit.tensor.base import Tensor
from tracejit.tensor.construction import as_tensor, from_numpy, tensor

__all__ = ["DLDeviceType", "asarray", "dlpack", "dlpack_device", "from_dlpack", "frombuffer"]


class DLDeviceType(enum.IntEnum):
    """The numbers that DLPack gives to devices; there is one here."""

    kDLCPU = 1


def dlpack_device(self: Tensor) -> tuple[DLDeviceType, int]:
    """Where the memory is, in DLPack's numbers."""
    return DLDeviceType.kDLCPU, 0


def dlpack(
    self: Tensor,
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: Any = None,
    copy: bool | None = None,
) -> Any:
    """A DLPack capsule of the same memory.  Raises BufferError for a tensor that requires grad."""
    if self.requires_grad:
        raise BufferError("__dlpack__(): cannot export a tensor that requires grad; use tensor.detach()")
    if stream is not None:
        raise BufferError("__dlpack__(): stream must be None on the CPU")
    return self.numpy().__dlpack__(max_version=max_version, dl_device=dl_device, copy=copy)


def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor of the memory of anything that has `__dlpack__` (NumPy, JAX, PyTorch ...); a copy if asked for or read-only.

    Raises RuntimeError for what has none, TypeError for a dtype that tensors have not."""
    require_cpu("from_dlpack", device)
    if not hasattr(ext_tensor, "__dlpack__"):
        raise RuntimeError(f"from_dlpack(): expected an object with __dlpack__, got {ext_tensor.__class__.__name__}")
    array = np.from_dlpack(ext_tensor)
    if copy is False and not array.flags.writeable:
        raise ValueError("from_dlpack(): the memory is read-only, but tensors can be written to; it cannot be had without a copy")
    return tensor(array) if copy or not array.flags.writeable else from_numpy(array)


def asarray(obj: Any, *, dtype: Any = None, device: Any = None, copy: bool | None = None, requires_grad: bool = False) -> Tensor:
    """A tensor of numbers, sequences, arrays or memory: it shares memory where that is possible and `copy` is not true.

    Raises ValueError where copy=False cannot be had."""
    require_cpu("asarray", device)
    chosen = None if dtype is None else as_dtype(dtype, "asarray")
    if hasattr(obj, "__dlpack__") and not isinstance(obj, Tensor | np.ndarray | np.generic):
        obj = from_dlpack(obj)
    out = tensor(obj, dtype=chosen) if copy else as_tensor(obj, dtype=chosen)
    shared = out is obj or (isinstance(obj, Tensor | np.ndarray) and np.may_share_memory(out._array, getattr(obj, "_array", obj)))
    if copy is False and not shared:
        raise ValueError(
            f"asarray(): copy=False, but {obj.__class__.__name__} cannot be had as a tensor of {out.dtype.name} without a copy"
        )
    if requires_grad:
        return out.detach().requires_grad_() if out is obj else out.requires_grad_()
    return out


def frombuffer(buffer: Any, *, dtype: Any, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """A vector of the memory of an object with the buffer protocol; a copy if that is read-only.  Raises ValueError for wrong sizes."""
    array = np.frombuffer(buffer, as_dtype(dtype, "frombuffer").numpy, count, offset)
    out = from_numpy(array) if array.flags.writeable and array.dtype in FROM_NUMPY else tensor(array)
    return out.requires_grad_() if requires_grad else out
