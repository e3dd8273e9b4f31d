"""`Parameter`: a tensor that modules and optimizers find, and that wants gradients unless told otherwise."""

from __future__ import annotations

from typing import Any

from tracejit.tensor import Tensor, share

__all__ = ["Parameter"]


class Parameter(Tensor):
    """A leaf tensor that is part of a module.  It shares the memory of `data` if that is a Tensor."""

    def __init__(self, data: Any = (), requires_grad: bool = True) -> None:
        if isinstance(data, Tensor):
            Tensor.__init__(self, ())
            share(self, data)
        else:
            Tensor.__init__(self, data)
        if requires_grad:
            self.requires_grad_()
