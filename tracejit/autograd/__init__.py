"""The tape and the backward pass."""

from tracejit.autograd.api import backward, grad
from tracejit.autograd.grad_mode import enable_grad, no_grad, set_grad_enabled
from tracejit.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck
from tracejit.core.missing import missing_names

__all__ = ["GradcheckError", "backward", "enable_grad", "grad", "gradcheck", "gradgradcheck", "no_grad", "set_grad_enabled"]

__getattr__ = missing_names(__name__)
