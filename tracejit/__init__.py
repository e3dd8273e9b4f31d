"""tracejit: eager autograd over NumPy arrays, written the way PyTorch is written to, and a tracing JIT."""

from tracejit import autograd
from tracejit.tensor import eager as _eager
from tracejit.compile import CompiledFunction, compile
from tracejit.autograd.grad_mode import enable_grad, is_grad_enabled, no_grad, set_grad_enabled
from tracejit.core.dtypes import DType as dtype
from tracejit.core.dtypes import bool_, default_dtype, float32, float64, int8, int16, int32, int64, promote_types, set_default_dtype, uint8
from tracejit.ops.public import FUNCTIONS as _FUNCTIONS
from tracejit import data, functional, linalg, nn, optim, random
from tracejit.random import Generator
from tracejit.tensor import Size, Tensor, as_tensor, from_numpy, tensor

bool = bool_  # PyTorch's name
float = float32
double = float64
long = int64
int = int32
get_default_dtype = default_dtype
globals().update(_FUNCTIONS)
