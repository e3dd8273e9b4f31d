"""What nodes save: tensors with the version that they had, or what the program's hooks have made of them.

Hooks (`saved_tensors_hooks`) are those of the thread; they see what is saved while they are active.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tracejit.autograd.tape import Node, changed_in_place, edge_of, make_tensor, with_contents

__all__ = ["SavedTensor", "active_hooks"]

Hooks = tuple[Callable[[Any], Any], Callable[[Any], Any]]


class _Active(threading.local):
    def __init__(self) -> None:
        self.hooks: list[Hooks] = []


active_hooks = _Active()


class SavedTensor:
    """One saved tensor, None included.  An output of the node that saves it (`index`) is made anew: the node does not hold itself."""

    __slots__ = ("_contents", "_edge", "_memory", "_packed", "_packing", "_position", "_tensor", "_version")

    def __init__(self, tensor: Any, index: int | None) -> None:
        self._packing = active_hooks.hooks[-1] if active_hooks.hooks and tensor is not None else None
        self._position = index
        self._tensor: Any = None
        self._contents: Any = None
        self._memory = self._packed = self._edge = None
        if tensor is None:
            return
        self._memory = tensor._storage
        self._version = 0 if self._memory is None else self._memory.version
        if self._packing is not None:
            self._edge = edge_of(tensor) if tensor.requires_grad and index is None else None
            self._packed = self._packing[0](tensor.detach())
            self._memory = None
        elif index is None:
            self._tensor = tensor
        else:
            self._contents = tensor._array

    def unpack(self, node: Any) -> Any:
        """The tensor.  Raises RuntimeError where its contents have changed since."""
        if self._packing is not None:
            value = self._packing[1](self._packed)
            if self._position is not None:
                return make_tensor(value._array, (node, self._position), value._storage)
            if self._edge is None:
                return value
            target, index = self._edge
            if isinstance(target, Node):
                return make_tensor(value._array, (target, index), value._storage)
            return with_contents(target, value._array)
        storage = self._memory if self._tensor is None else self._tensor._storage
        if storage is not None and storage.version != self._version:
            array = self._contents if self._tensor is None else self._tensor._array
            raise changed_in_place(node.name(), array.shape)
        if self._position is not None:
            return make_tensor(self._contents, (node, self._position), storage)
        return self._tensor
