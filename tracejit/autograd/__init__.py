"""The tape and the backward pass."""

from tracejit.autograd.api import backward, grad
from tracejit.autograd.grad_mode import enable_grad, no_grad, set_grad_enabled

__all__ = ["backward", "enable_grad", "grad", "no_grad", "set_grad_enabled"]
