"""tracejit: eager autograd over NumPy arrays, written the way PyTorch is written to, and a tracing JIT.

This package has one folder for each layer, and docs/architecture.md is the map.  This file names what is public.

Must not know: how anything is done; it re-exports and has no logic.
Start reading: core/interpreter.py (the door), tensor/base.py (the eager library), compiled/__init__.py (the compiler).
"""

import sys as _sys
from math import e, inf, nan, pi

from tracejit import (
    _C,
    _dynamo,
    _utils,
    accelerator,
    amp,
    array_api,
    autograd,
    backends,
    cache,
    compiler,
    config,
    control_flow,
    cuda,
    data,
    distributed,
    distributions,
    examples,
    ffi,
    fft,
    func,
    functional,
    functions,
    hub,
    inference,
    jit,
    library,
    linalg,
    multiprocessing,
    nn,
    onnx,
    optim,
    optimize,
    profiler,
    quasirandom,
    random,
    serialization,
    special,
    testing,
    utils,
    version,
    vision,
)
from tracejit.amp import GradScaler
from tracejit.amp.autocast_mode import (
    autocast,
    get_autocast_dtype,
    get_autocast_gpu_dtype,
    is_autocast_available,
    is_autocast_cpu_enabled,
    is_autocast_enabled,
)  # fmt: skip
from tracejit.autograd.grad_mode import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from tracejit.compiled.compile import CompiledFunction, compile
from tracejit.compiled.profile import profile
from tracejit.compiled.shadow import shadow
from tracejit.control_flow import cond, map, scan, while_loop
from tracejit.core.devices import device
from tracejit.core.dtypes import UNSUPPORTED as _UNSUPPORTED_DTYPES
from tracejit.core.dtypes import DType as dtype
from tracejit.core.dtypes import (
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    promote_types,
    set_default_dtype,
    uint8,
)  # fmt: skip
from tracejit.core.dtypes import default_dtype as get_default_dtype
from tracejit.core.missing import missing_names
from tracejit.core.number_info import finfo, iinfo
from tracejit.core.settings import (
    are_deterministic_algorithms_enabled,
    get_default_device,
    get_deterministic_debug_mode,
    get_float32_matmul_precision,
    get_num_interop_threads,
    set_default_device,
    set_default_tensor_type,
    set_deterministic_debug_mode,
    set_float32_matmul_precision,
    set_flush_denormal,
    set_num_interop_threads,
    use_deterministic_algorithms,
)  # fmt: skip
from tracejit.func import vmap
from tracejit.functional import top_level as _top_level
from tracejit.functional.top_level import *  # noqa: F403
from tracejit.functions import *  # noqa: F403  (each name is listed there)
from tracejit.llvm.thread_pool import get_num_threads, set_num_threads
from tracejit.random import Generator, default_generator
from tracejit.report.misses import explain_misses
from tracejit.serialization import load, save
from tracejit.tensor import Size, Tensor, as_tensor, from_numpy, tensor
from tracejit.tensor import in_place_functions as _in_place_functions
from tracejit.tensor.dlpack import asarray, from_dlpack, frombuffer
from tracejit.tensor.foreach import FOREACH as _FOREACH
from tracejit.tensor.in_place_functions import *  # noqa: F403  (each name is listed there)
from tracejit.tensor.legacy import (
    BFloat16Tensor,
    BoolTensor,
    ByteTensor,
    CharTensor,
    DoubleTensor,
    FloatTensor,
    HalfTensor,
    IntTensor,
    LongTensor,
    ShortTensor,
)  # fmt: skip
from tracejit.tensor.marks import mark_dynamic, mark_static
from tracejit.tensor.representation import set_printoptions
from tracejit.tensor.shell import Layout as layout
from tracejit.tensor.shell import MemoryFormat as memory_format
from tracejit.tensor.shell import broadcast_shapes, is_tensor, strided, typename
from tracejit.version import __version__

bool = bool_  # PyTorch's names of the dtypes
float = float32
double = float64
half = float16
int = int32
short = int16
long = int64
uint16, uint32, uint64, complex64, complex128 = _UNSUPPORTED_DTYPES  # names to compare with
cfloat, cdouble = complex64, complex128
newaxis = None
contiguous_format, preserve_format = memory_format("contiguous_format"), memory_format("preserve_format")
channels_last, channels_last_3d = memory_format("channels_last"), memory_format("channels_last_3d")
__getattr__ = missing_names(__name__)

__all__ = [
    "BFloat16Tensor",
    "BoolTensor",
    "ByteTensor",
    "CharTensor",
    "CompiledFunction",
    "DoubleTensor",
    "FloatTensor",
    "Generator",
    "GradScaler",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "ShortTensor",
    "Size",
    "Tensor",
    "__version__",
    "accelerator",
    "amp",
    "are_deterministic_algorithms_enabled",
    "array_api",
    "as_tensor",
    "asarray",
    "autocast",
    "autograd",
    "backends",
    "bfloat16",
    "bool",
    "bool_",
    "broadcast_shapes",
    "cache",
    "cdouble",
    "cfloat",
    "channels_last",
    "channels_last_3d",
    "compile",
    "compiler",
    "complex64",
    "complex128",
    "cond",
    "config",
    "contiguous_format",
    "control_flow",
    "cuda",
    "data",
    "default_generator",
    "device",
    "distributed",
    "distributions",
    "double",
    "dtype",
    "e",
    "enable_grad",
    "explain_misses",
    "ffi",
    "fft",
    "finfo",
    "float",
    "float16",
    "float32",
    "float64",
    "from_dlpack",
    "from_numpy",
    "frombuffer",
    "func",
    "functional",
    "get_autocast_dtype",
    "get_autocast_gpu_dtype",
    "get_default_device",
    "get_default_dtype",
    "get_deterministic_debug_mode",
    "get_float32_matmul_precision",
    "get_num_interop_threads",
    "get_num_threads",
    "half",
    "hub",
    "iinfo",
    "inf",
    "inference",
    "inference_mode",
    "int",
    "int8",
    "int16",
    "int32",
    "int64",
    "is_autocast_available",
    "is_autocast_cpu_enabled",
    "is_autocast_enabled",
    "is_grad_enabled",
    "is_tensor",
    "jit",
    "layout",
    "library",
    "linalg",
    "load",
    "long",
    "memory_format",
    "multiprocessing",
    "nan",
    "newaxis",
    "nn",
    "no_grad",
    "onnx",
    "optim",
    "optimize",
    "pi",
    "preserve_format",
    "profile",
    "profiler",
    "promote_types",
    "quasirandom",
    "random",
    "save",
    "scan",
    "serialization",
    "set_default_device",
    "set_default_dtype",
    "set_default_tensor_type",
    "set_deterministic_debug_mode",
    "set_float32_matmul_precision",
    "set_flush_denormal",
    "set_grad_enabled",
    "set_num_interop_threads",
    "set_num_threads",
    "set_printoptions",
    "shadow",
    "short",
    "special",
    "strided",
    "tensor",
    "testing",
    "typename",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "use_deterministic_algorithms",
    "utils",
    "version",
    "vision",
    "vmap",
    "while_loop",
]  # fmt: skip
__all__ += [name for name in vars(functions) if not name.startswith("_")]
__all__ += _top_level.__all__
__all__ += [name for name in vars(_in_place_functions) if not name.startswith("_")]
globals().update(_FOREACH)
_standard_gamma = distributions.gamma.standard_gamma_of

examples.attach(_sys.modules[__name__])
