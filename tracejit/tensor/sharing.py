"""Tensors and arrays of NumPy that share their memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracejit.autograd.tape import Storage
from tracejit.tensor.base import Tensor, storage_of, wrap
from tracejit.tensor.rebinding import rebound

__all__ = ["is_shared", "shared_array", "shield", "tensor_on"]


def shield(x: Tensor) -> None:
    """Make sure that nobody outside has, or can get, the very array object that `x` is bound to, and change its shape: what others
    hold are views, whose `base` is the array that owns the memory."""
    if x._array.base is None:
        x._array = x._array.view()
        rebound()


def is_shared(array: np.ndarray[Any, Any], tensors: Sequence[Tensor]) -> bool:
    """Whether one of `tensors` may lie in the memory of `array`."""
    for x in tensors:
        storage = x._storage
        if storage is not None and storage.exposed and np.may_share_memory(array, x._array):
            return True
    return False


def shared_array(x: Tensor) -> np.ndarray[Any, Any]:
    """What `x.numpy()` gives, whether gradients are required or not."""
    storage_of(x).exposed = True
    return x._array.view()


def tensor_on(array: np.ndarray[Any, Any], canonical: np.dtype[Any]) -> Tensor:
    """A tensor on the memory of an array; canonical: its dtype, in the order of bytes of the machine."""
    plain = array.dtype is canonical and type(array) is np.ndarray
    own = array.view() if plain else array.view(np.ndarray).view(canonical)  # the shape of `array` is the caller's to change
    out = wrap(own)
    out._storage = Storage(exposed=True)
    return out
