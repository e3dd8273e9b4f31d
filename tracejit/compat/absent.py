"""Modules of PyTorch's that can be imported here and not used: a table of their names, and of what to do instead.

A program that imports one of these names for a part that it does not run is not stopped.  Whatever it calls of them raises
NotImplementedError; nothing is an instance of their classes; and a name that is not in the table is missing, so hasattr() tells.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from tracejit.core.missing import absent, missing_names

__all__ = ["absent_module", "is_absent"]

_PROCESSES = (
    "there are no process groups for parts of a module: each process has all of it, by nn.parallel.DistributedDataParallel"
)
_EXTENSIONS = (
    "tracejit loads no operators written in C++ or CUDA: write the operator in Python, or with Numba and library.custom_op()"
)
_FUSED = "tracejit has no sparse or fused attention of blocks: use nn.functional.scaled_dot_product_attention() with attn_mask"
_GRAPHS = "tracejit does not give out models as graphs to be changed: change the module, or read compile(model).graph()"
_MODULES: Final[dict[str, tuple[str, str]]] = {
    "torch._inductor.config": ("", "tracejit.compile() has no settings of Inductor: see tracejit.config"),
    "torch.classes": ("load_library", _EXTENSIONS),
    "torch.cuda.graphs": ("CUDAGraph graph graph_pool_handle make_graphed_callables", "tracejit computes on the CPU only"),
    "torch.cuda.nccl": ("all_gather all_reduce broadcast reduce reduce_scatter version", _PROCESSES),
    "torch.cuda.sparse": (
        "ByteTensor DoubleTensor FloatTensor HalfTensor IntTensor LongTensor",
        "tracejit computes on the CPU only",
    ),
    "torch.distributed.checkpoint": (
        "FileSystemReader FileSystemWriter load load_state_dict save save_state_dict",
        "each process has the whole model: use serialization.save_by_rank_0() and load()",
    ),
    "torch.distributed.checkpoint.state_dict": (
        "StateDictOptions get_model_state_dict get_optimizer_state_dict get_state_dict set_model_state_dict set_optimizer_state_dict "
        "set_state_dict",
        "each process has the whole model: use state_dict() and load_state_dict()",
    ),
    "torch.distributed.device_mesh": ("DeviceMesh init_device_mesh", _PROCESSES),
    "torch.distributed.fsdp": (
        "BackwardPrefetch CPUOffload FSDPModule FullStateDictConfig FullyShardedDataParallel LocalStateDictConfig MixedPrecision "
        "MixedPrecisionPolicy ShardingStrategy StateDictType fully_shard",
        _PROCESSES,
    ),
    "torch.distributed.fsdp.wrap": (
        "ModuleWrapPolicy always_wrap_policy enable_wrap lambda_auto_wrap_policy size_based_auto_wrap_policy "
        "transformer_auto_wrap_policy wrap",
        _PROCESSES,
    ),
    "torch.distributed.fsdp.fully_sharded_data_parallel": (
        "BackwardPrefetch CPUOffload FullStateDictConfig FullyShardedDataParallel MixedPrecision ShardingStrategy StateDictType",
        _PROCESSES,
    ),
    "torch.distributed.nn": (
        "RemoteModule all_gather all_reduce all_to_all broadcast gather reduce reduce_scatter scatter",
        _PROCESSES,
    ),
    "torch.distributed.nn.functional": (
        "all_gather all_reduce all_to_all broadcast gather reduce reduce_scatter scatter",
        _PROCESSES,
    ),
    "torch.distributed.optim": ("DistributedOptimizer PostLocalSGDOptimizer ZeroRedundancyOptimizer", _PROCESSES),
    "torch.distributed.rpc": (
        "RRef TensorPipeRpcBackendOptions get_worker_info init_rpc remote rpc_async rpc_sync shutdown",
        _PROCESSES,
    ),
    "torch.distributed.tensor": ("DTensor DeviceMesh Partial Replicate Shard distribute_module distribute_tensor", _PROCESSES),
    "torch.distributed.tensor.parallel": (
        "ColwiseParallel PrepareModuleInput PrepareModuleOutput RowwiseParallel SequenceParallel loss_parallel parallelize_module",
        _PROCESSES,
    ),
    "torch.export": (
        "Dim ExportedProgram draft_export export load register_dataclass save unflatten",
        "tracejit does not write models as programs: save(model.state_dict(), file), and export it from another library",
    ),
    "torch.futures": (
        "Future collect_all wait_all",
        "operations are done when they return: use concurrent.futures for what is to run beside others",
    ),
    "torch.fx": ("Graph GraphModule Interpreter Node Proxy Tracer Transformer replace_pattern symbolic_trace wrap", _GRAPHS),
    "torch.fx.experimental.proxy_tensor": ("make_fx", _GRAPHS),
    "torch.fx.node": ("Argument Node Target map_arg", _GRAPHS),
    "torch.fx.proxy": ("GraphAppendingTracer Proxy TracerBase", _GRAPHS),
    "torch.mps": (
        "Event current_allocated_memory driver_allocated_memory empty_cache get_rng_state manual_seed seed set_rng_state synchronize",
        "tracejit computes on the CPU only: ask backends.mps.is_available() first",
    ),
    "torch.nn.attention.flex_attention": ("BlockMask and_masks create_block_mask create_mask flex_attention or_masks", _FUSED),
    "torch.sparse": (
        "ByteTensor DoubleTensor FloatTensor HalfTensor IntTensor LongTensor addmm log_softmax mm softmax sum to_sparse_semi_structured",
        "tensors are dense: use a dense tensor, or index_add() and scatter_add() along lists of indices",
    ),
    "torch.utils.benchmark": (
        "Compare Fuzzer Measurement Timer",
        "tracejit has no timer of its own: use timeit, and `python -m benchmarks` in the repository",
    ),
    "torch.utils.collect_env": (
        "SystemEnv get_cpu_info get_env_info get_gcc_version get_gpu_info get_nvidia_driver_version get_pretty_env_info main run",
        "tracejit does not describe the machine: print version.__version__, platform.platform() and numpy.show_config()",
    ),
    "torch.utils.cpp_extension": (
        "BuildExtension CUDAExtension CppExtension include_paths library_paths load load_inline verify_ninja_availability",
        _EXTENSIONS,
    ),
    "torch.utils.mobile_optimizer": (
        "optimize_for_mobile",
        "tracejit does not write TorchScript: save(model.state_dict(), file)",
    ),
}
"""Their names, and what to do instead."""

_VALUES: Final[dict[str, dict[str, Any]]] = {
    "torch.utils.cpp_extension": dict.fromkeys(("CUDA_HOME", "CUDNN_HOME", "ROCM_HOME")),
}
"""Names of theirs with an answer that holds here: no toolkit is installed for this library."""


def is_absent(name: str) -> bool:
    """Whether a module under a name of PyTorch's is in the table."""
    return name in _MODULES


def absent_module(name: str) -> ModuleType | None:
    """The module under a name of PyTorch's that is in the table, or that holds one which is; None for others."""
    below = [key for key in _MODULES if key == name or key.startswith(name + ".")]
    if not below:
        return None
    names, remedy = _MODULES.get(name, ("", ""))
    out = ModuleType(name, f"{name}: it can be imported, and not used. {remedy}.".replace(". .", "."))
    out.__path__ = []
    out.__dict__.update({key: absent(name, key, f"{name}.{key}: {remedy}") for key in names.split()})
    out.__dict__.update(_VALUES.get(name, {}))
    out.__dict__["__getattr__"] = _submodules(name, remedy)
    return out


def _submodules(name: str, remedy: str) -> Callable[[str], Any]:
    """The `__getattr__` of an absent module: imports what is below it; raises AttributeError for a name that it has not."""
    missing = missing_names(name)

    def find(key: str) -> Any:
        below = f"{name}.{key}"
        if any(known == below or known.startswith(below + ".") for known in _MODULES):
            __import__(below)
            return sys.modules[below]
        if remedy and not key.startswith("__"):
            raise AttributeError(f"module {name!r} has no attribute {key!r}: {remedy}")
        return missing(key)

    return find
