"""`Parameter`: a tensor that modules and optimizers find, and that wants gradients unless told otherwise."""

from __future__ import annotations

from typing import Any

from tracejit.tensor import Tensor, fill, share
from tracejit.tensor.contents import to_array

__all__ = ["Parameter"]


class Parameter(Tensor):
    """A leaf tensor that is part of a module.  It shares the memory of `data` if that is a Tensor."""

    def __init__(self, data: Any = (), requires_grad: bool = True) -> None:
        fill(self, data._array if isinstance(data, Tensor) else to_array(data, None))
        if isinstance(data, Tensor):
            share(self, data)
        if requires_grad:
            self.requires_grad_()
