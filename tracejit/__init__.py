"""tracejit: eager autograd over NumPy arrays, written the way PyTorch is written to, and a tracing JIT."""

from tracejit import (
    autograd,
    cache,
    config,
    data,
    distributions,
    func,
    functional,
    functions,
    linalg,
    nn,
    optim,
    random,
    serialization,
    special,
    utils,
    vision,
)
from tracejit.autograd.grad_mode import enable_grad, is_grad_enabled, no_grad, set_grad_enabled
from tracejit.codegen.thread_pool import get_num_threads, set_num_threads
from tracejit.compile import CompiledFunction, compile
from tracejit.core.dtypes import DType as dtype
from tracejit.core.dtypes import bool_, float32, float64, int8, int16, int32, int64, promote_types, set_default_dtype, uint8
from tracejit.core.dtypes import default_dtype as get_default_dtype
from tracejit.func import vmap
from tracejit.functions import *  # noqa: F403  (each name is listed there)
from tracejit.random import Generator
from tracejit.serialization import load, save
from tracejit.shadow import shadow
from tracejit.tensor import Size, Tensor, as_tensor, from_numpy, tensor

bool = bool_  # PyTorch's names of the dtypes
float = float32
double = float64
int = int32
long = int64

__all__ = [
    "CompiledFunction",
    "Generator",
    "Size",
    "Tensor",
    "as_tensor",
    "autograd",
    "bool",
    "bool_",
    "cache",
    "compile",
    "config",
    "data",
    "distributions",
    "double",
    "dtype",
    "enable_grad",
    "float",
    "float32",
    "float64",
    "from_numpy",
    "func",
    "functional",
    "get_default_dtype",
    "get_num_threads",
    "int",
    "int8",
    "int16",
    "int32",
    "int64",
    "is_grad_enabled",
    "linalg",
    "load",
    "long",
    "nn",
    "no_grad",
    "optim",
    "promote_types",
    "random",
    "save",
    "serialization",
    "set_default_dtype",
    "set_grad_enabled",
    "set_num_threads",
    "shadow",
    "special",
    "tensor",
    "uint8",
    "utils",
    "vision",
    "vmap",
]  # fmt: skip
__all__ += [name for name in vars(functions) if not name.startswith("_")]
