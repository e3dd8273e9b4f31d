"""The tape and the backward pass.

How a tensor is made of an array or of a saved output is installed here by tensor/methods.py (`api.install`) and tensor/eager.py
(`tape.install`), on import.

Must not know: how a primitive is evaluated, the class Tensor (but for the attributes that tape.py names), the compiler.  The
node of a compiled program (compiled.py) is handed a plan and does not know how programs are made.
Start reading: tape.py, then engine.py, then api.py (`backward`, `grad`).
"""

from tracejit.autograd import anomaly, function, functional, graph
from tracejit.autograd.anomaly import detect_anomaly, set_detect_anomaly
from tracejit.autograd.api import backward, grad
from tracejit.autograd.function import Function
from tracejit.autograd.grad_mode import enable_grad, inference_mode, no_grad, set_grad_enabled
from tracejit.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck
from tracejit.autograd.variable import Variable
from tracejit.core.missing import missing_names

__all__ = [
    "Function", "GradcheckError", "Variable", "anomaly", "backward", "detect_anomaly", "enable_grad", "function", "functional", "grad",
    "gradcheck", "gradgradcheck", "graph", "inference_mode", "no_grad", "set_detect_anomaly", "set_grad_enabled",
]  # fmt: skip

__getattr__ = missing_names(__name__)
