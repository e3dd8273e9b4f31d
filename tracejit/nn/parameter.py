"""`Parameter`: a tensor that modules and optimizers find, and that wants gradients unless told otherwise."""

from __future__ import annotations

from typing import Any

from tracejit.tensor import Tensor, storage_of

__all__ = ["Parameter"]


class Parameter(Tensor):
    """A leaf tensor that is part of a module.  It shares the memory of `data` if that is a Tensor."""

    def __init__(self, data: Any = (), requires_grad: bool = True) -> None:
        if isinstance(data, Tensor):
            Tensor.__init__(self, ())
            self._array = data._array
            self._storage = storage_of(data)
        else:
            Tensor.__init__(self, data)
        if requires_grad:
            self.requires_grad_()
