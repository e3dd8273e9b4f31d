"""Modules that PyTorch spreads over devices and processes.  There is one device here, on which the module runs as it is; processes:
replicas.py."""

from __future__ import annotations

from typing import Any

from tracejit.functions import cat
from tracejit.nn.module import Module
from tracejit.nn.replicas import DistributedDataParallel
from tracejit.tensor import Tensor

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel", "gather", "parallel_apply", "replicate", "scatter"]


class DataParallel(Module):
    """Runs `module`, as PyTorch's does where there are no GPUs; `device_ids` must be None or empty."""

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0) -> None:
        super().__init__()
        if device_ids:
            raise AssertionError(f"DataParallel(): there are no devices {device_ids}: tracejit computes on the CPU only")
        self.module = module
        self.device_ids: list[int] = []
        self.dim = dim

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """What the module makes of the inputs."""
        return self.module(*inputs, **kwargs)


def data_parallel(
    module: Module, inputs: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0, module_kwargs: Any = None
) -> Any:
    """What the module makes of the inputs, which are a tuple, or one argument; see DataParallel."""
    parallel = DataParallel(module, device_ids, output_device, dim)
    return parallel(*(inputs if isinstance(inputs, tuple) else (inputs,)), **(module_kwargs or {}))


def _only_the_cpu(name: str, devices: Any) -> None:
    """Raises AssertionError for devices that there are not."""
    others = [d for d in (devices if isinstance(devices, list | tuple) else [devices]) if str(d) not in ("cpu", "-1", "None")]
    if others:
        raise AssertionError(f"{name}(): there are no devices {others}: tracejit computes on the CPU only")


def scatter(inputs: Any, target_gpus: Any, dim: int = 0) -> Any:
    """`inputs` cut along `dim` into a part for each device; here for the CPUs named: tensors are cut, containers rebuilt, others repeated.

    Raises AssertionError for other devices."""
    _only_the_cpu("scatter", target_gpus)
    count = len(target_gpus)

    def parts(x: Any) -> list[Any]:
        if isinstance(x, Tensor):
            return list(x.chunk(count, dim))
        if isinstance(x, tuple | list) and x:
            columns = zip(*map(parts, x), strict=True)
            return [type(x)(*column) if hasattr(x, "_fields") else type(x)(column) for column in columns]
        if isinstance(x, dict) and x:
            return [
                type(x)(pairs)
                for pairs in zip(*([(key, part) for part in parts(value)] for key, value in x.items()), strict=True)
            ]
        return [x] * count

    return parts(inputs)


def gather(outputs: Any, target_device: Any, dim: int = 0) -> Any:
    """Results of devices put together along `dim`: the inverse of scatter().  Raises AssertionError for other devices than the CPU."""
    _only_the_cpu("gather", target_device)
    first = outputs[0]
    if isinstance(first, Tensor):
        return cat([x.reshape(1) if not x.ndim else x for x in outputs], dim)
    if isinstance(first, dict):
        return type(first)((key, gather([x[key] for x in outputs], target_device, dim)) for key in first)
    if isinstance(first, tuple | list):
        columns = [gather(column, target_device, dim) for column in zip(*outputs, strict=True)]
        return type(first)(*columns) if hasattr(first, "_fields") else type(first)(columns)
    return first


def replicate(network: Module, devices: Any, detach: bool = False) -> list[Module]:
    """The module, for each device.  Raises AssertionError for other devices than the CPU."""
    _only_the_cpu("replicate", devices)
    return [network] * len(devices)


def parallel_apply(modules: Any, inputs: Any, kwargs_tup: Any = None, devices: Any = None) -> list[Any]:
    """What each module makes of its inputs, one after the other."""
    options = kwargs_tup or [{}] * len(modules)
    given = [x if isinstance(x, list | tuple) else (x,) for x in inputs]
    return [module(*x, **named) for module, x, named in zip(modules, given, options, strict=True)]
