"""Modules that PyTorch spreads over devices.  There is one device here, on which the module runs as it is."""

from __future__ import annotations

from typing import Any, NoReturn

from tracejit.nn.module import Module

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel"]


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


class DistributedDataParallel(Module):
    """Raises RuntimeError: there are no process groups."""

    def __init__(self, module: Module, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        _refuse()


def _refuse() -> NoReturn:
    raise RuntimeError(
        "DistributedDataParallel(): there are no process groups in tracejit; train the module itself, in one process"
    )
