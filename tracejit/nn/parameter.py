"""`Parameter`: a tensor that modules and optimizers find, and that wants gradients unless told otherwise."""

from __future__ import annotations

from typing import Any

from tracejit.core.dtypes import DType
from tracejit.ops.public.creation import empty
from tracejit.tensor import Tensor, begin_on

__all__ = ["Parameter", "UninitializedParameter"]


class Parameter(Tensor):
    """A leaf tensor that is part of a module; it shares the memory of the tensor `data`.  Raises AttributeError for anything else."""

    def __init__(self, data: Any = None, requires_grad: bool = True) -> None:
        if not isinstance(data, Tensor | None):
            raise AttributeError(f"Parameter(): {data.__class__.__name__!r} object is no tensor; make one of it with tensor()")
        begin_on(self, empty(0) if data is None else data)
        if requires_grad:
            self.requires_grad_()


class UninitializedParameter(Parameter):
    """A parameter whose shape is not known yet: it has no elements until `materialize`."""

    def __init__(self, requires_grad: bool = True, device: Any = None, dtype: DType | None = None) -> None:
        super().__init__(empty(0, device=device, dtype=dtype), requires_grad)

    def materialize(self, shape: Any, device: Any = None, dtype: DType | None = None) -> None:
        """Become a Parameter of this shape, with elements yet to be set."""
        self.take(empty(*shape, device=device, dtype=dtype or self.dtype))

    def take(self, contents: Tensor) -> None:
        """Become a Parameter with these contents."""
        self.data = contents.detach().to(self.dtype)
        self.__class__ = Parameter

    def __repr__(self) -> str:
        return "<UninitializedParameter>"
