"""The tape and the backward pass."""

from tracejit.autograd import function, functional, graph
from tracejit.autograd.api import backward, grad
from tracejit.autograd.function import Function
from tracejit.autograd.grad_mode import enable_grad, no_grad, set_grad_enabled
from tracejit.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck

__all__ = [
    "Function", "GradcheckError", "backward", "enable_grad", "function", "functional", "grad", "gradcheck", "gradgradcheck", "graph",
    "no_grad", "set_grad_enabled",
]  # fmt: skip
