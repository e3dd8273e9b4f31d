"""`Variable`: what tensors on the tape were once wrapped in.

Every tensor is one, and making one gives a detached tensor of the same memory."""

from __future__ import annotations

from typing import Any

from tracejit.autograd.tape import is_tensor
from tracejit.core.library_warnings import warn
from tracejit.ops.movement.views import detach

__all__ = ["Variable"]


class _VariableType(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return is_tensor(instance)

    def __call__(cls, data: Any, requires_grad: bool = False, volatile: bool | None = None) -> Any:
        """`data` apart from the tape, as a leaf that requires gradients if asked for.  Raises TypeError for anything but a tensor."""
        if not is_tensor(data):
            raise TypeError(f"Variable data has to be a tensor, but got {data.__class__.__name__}")
        if volatile is not None:
            warn("volatile was removed and now has no effect. Use `with no_grad():` instead.")
        out = detach(data)
        return out.requires_grad_() if requires_grad else out


class Variable(metaclass=_VariableType):
    """PyTorch's older name of a tensor on the tape: `Variable(x)` is x.detach(), `isinstance(x, Variable)` whether x is a tensor."""
