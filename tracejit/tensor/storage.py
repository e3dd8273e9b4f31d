"""`tensor.storage()` and `tensor.untyped_storage()`: the memory that a tensor is a view of, as a sequence of its elements or bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tracejit.autograd.tape import mark_written
from tracejit.core.devices import CPU, device
from tracejit.core.dtypes import FROM_NUMPY, DType
from tracejit.core.interpreter import state
from tracejit.tensor.base import Tensor, storage_of

__all__ = ["TypedStorage", "UntypedStorage", "storage", "untyped_storage"]


class _Elements:
    """A sequence over memory; writing to it changes the tensors of that memory."""

    def __init__(self, array: np.ndarray[Any, Any], owner: Tensor) -> None:
        self._memory = array
        self._owner = owner

    @property
    def device(self) -> device:
        """The CPU."""
        return CPU

    def __len__(self) -> int:
        return self._memory.size

    def __getitem__(self, index: Any) -> Any:
        return self._memory[index].tolist()

    def __setitem__(self, index: Any, value: Any) -> None:
        self._memory[index] = value
        mark_written([storage_of(self._owner)])

    def __iter__(self) -> Iterator[Any]:
        return iter(self._memory.tolist())

    def tolist(self) -> list[Any]:
        """The elements."""
        return list(self)

    def size(self) -> int:
        """How many elements there are."""
        return self._memory.size

    def nbytes(self) -> int:
        """How many bytes there are."""
        return self._memory.nbytes

    def element_size(self) -> int:
        """The bytes of one element."""
        return self._memory.itemsize

    def data_ptr(self) -> int:
        """The address of the first element."""
        return int(self._memory.ctypes.data)

    def _describe(self, what: str) -> str:
        lines = "".join(f" {x}\n" for x in self)
        return f"{lines}[tracejit.storage.{type(self).__name__}({what}device=cpu) of size {len(self)}]"


class TypedStorage(_Elements):
    """The memory of a tensor as elements of its dtype."""

    @property
    def dtype(self) -> DType:
        """The dtype of the elements."""
        return FROM_NUMPY[self._memory.dtype]

    def untyped(self) -> UntypedStorage:
        """The same memory as bytes."""
        return UntypedStorage(self._memory.view(np.uint8), self._owner)

    def __repr__(self) -> str:
        return self._describe(f"dtype={self.dtype!r}, ")


class UntypedStorage(_Elements):
    """The memory of a tensor as bytes."""

    def __repr__(self) -> str:
        return self._describe("")


def storage(self: Tensor) -> TypedStorage:
    """The memory that the tensor is a view of, as elements.  Raises RuntimeError for memory of an array with gaps."""
    state.top.note("address taken", self)
    root = self._array if self._base is None else self._base._array
    flat = root.ravel(order="K")
    if root.size and not np.shares_memory(flat, root):
        raise RuntimeError(
            f"storage(): the memory, an array of shape {list(root.shape)} and strides {list(root.strides)}, has gaps"
        )
    return TypedStorage(flat, self)


def untyped_storage(self: Tensor) -> UntypedStorage:
    """The memory that the tensor is a view of, as bytes.  Raises RuntimeError for memory of an array with gaps."""
    return storage(self).untyped()
