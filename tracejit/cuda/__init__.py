"""tracejit.cuda: what programs ask about CUDA.  There is none: every question is answered so, and nothing can be put there.

Functions that only prepare, wait or count do nothing; those that need a device raise AssertionError, as a PyTorch without CUDA
does.

Must not know: tensors' contents, the compiler.
Start reading: this file; amp.py has the older names of mixed precision.
"""

from __future__ import annotations

from typing import Any, NoReturn

from tracejit.core.missing import absent, missing_names
from tracejit.cuda import amp

__all__ = [
    "BoolTensor", "ByteTensor", "CUDAGraph", "CharTensor", "DoubleTensor", "Event", "FloatTensor", "HalfTensor", "IntTensor", "LongTensor",
    "OutOfMemoryError", "ShortTensor", "Stream", "amp", "current_device", "current_stream", "device", "device_count", "empty_cache",
    "get_device_capability", "get_device_name", "get_device_properties", "get_rng_state", "get_sync_debug_mode", "graph", "init",
    "ipc_collect", "is_available", "is_bf16_supported", "is_initialized", "make_graphed_callables", "manual_seed", "manual_seed_all",
    "max_memory_allocated", "max_memory_cached", "max_memory_reserved", "memory_allocated", "memory_cached", "memory_reserved",
    "memory_stats", "memory_summary", "reset_max_memory_allocated", "reset_peak_memory_stats", "seed", "seed_all", "set_device",
    "set_rng_state", "set_sync_debug_mode", "stream", "synchronize", "utilization",
]  # fmt: skip


class OutOfMemoryError(RuntimeError):
    """Never raised: there is no memory of a device."""


_ONLY_CPU = "tracejit computes on the CPU only, not with CUDA enabled"
_initialized = False


def _refuse(name: str) -> NoReturn:
    raise AssertionError(f"cuda.{name}(): {_ONLY_CPU}; ask cuda.is_available() first")


def is_available() -> bool:
    """False."""
    return False


def is_initialized() -> bool:
    """False."""
    return False


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """False."""
    return False


def device_count() -> int:
    """0."""
    return 0


def init() -> None:
    """Raises AssertionError: there is no CUDA."""
    _refuse("init")


def current_device() -> int:
    """Raises AssertionError: there is no device."""
    _refuse("current_device")


def set_device(device: Any) -> None:
    """Raises AssertionError for a device; a negative index means none and is accepted."""
    if not (isinstance(device, int) and device < 0):
        _refuse("set_device")


def get_device_name(device: Any = None) -> str:
    """Raises AssertionError: there is no device."""
    _refuse("get_device_name")


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """Raises AssertionError: there is no device."""
    _refuse("get_device_capability")


def get_device_properties(device: Any = None) -> Any:
    """Raises AssertionError: there is no device."""
    _refuse("get_device_properties")


def synchronize(device: Any = None) -> None:
    """Raises AssertionError: there is no device to wait for."""
    _refuse("synchronize")


def current_stream(device: Any = None) -> Any:
    """Raises AssertionError: there is no device."""
    _refuse("current_stream")


def get_rng_state(device: Any = "cuda") -> Any:
    """Raises AssertionError: there is no device."""
    _refuse("get_rng_state")


def _nothing(name: str, doc: str, result: Any = None) -> Any:
    def function(*args: Any, **kwargs: Any) -> Any:
        return result

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


manual_seed = _nothing("manual_seed", "Seeds nothing: no device draws random numbers.")
manual_seed_all = _nothing("manual_seed_all", "Seeds nothing: no device draws random numbers.")
seed = _nothing("seed", "Seeds nothing: no device draws random numbers.")
seed_all = _nothing("seed_all", "Seeds nothing: no device draws random numbers.")
empty_cache = _nothing("empty_cache", "Frees nothing: no memory of a device is kept.")
ipc_collect = _nothing("ipc_collect", "Frees nothing: no memory of a device is shared.")
reset_peak_memory_stats = _nothing("reset_peak_memory_stats", "Counts nothing.")
reset_max_memory_allocated = _nothing("reset_max_memory_allocated", "Counts nothing.")
memory_allocated = _nothing("memory_allocated", "0 bytes.", 0)
memory_reserved = _nothing("memory_reserved", "0 bytes.", 0)
max_memory_allocated = _nothing("max_memory_allocated", "0 bytes.", 0)
max_memory_reserved = _nothing("max_memory_reserved", "0 bytes.", 0)
memory_cached, max_memory_cached = memory_reserved, max_memory_reserved  # the older names


def _absent_type(name: str) -> Any:
    return absent("tracejit.cuda", name, f"type {name} not available: {_ONLY_CPU}", TypeError)


def _absent_on_cpu(name: str) -> Any:
    return absent("tracejit.cuda", name, f"cuda.{name}(): {_ONLY_CPU}; ask cuda.is_available() first", AssertionError)


CUDAGraph, Event, Stream, graph = (_absent_on_cpu(name) for name in ("CUDAGraph", "Event", "Stream", "graph"))
make_graphed_callables, utilization = _absent_on_cpu("make_graphed_callables"), _absent_on_cpu("utilization")
get_sync_debug_mode, set_sync_debug_mode = _absent_on_cpu("get_sync_debug_mode"), _absent_on_cpu("set_sync_debug_mode")
memory_stats, memory_summary, set_rng_state = (
    _absent_on_cpu(name) for name in ("memory_stats", "memory_summary", "set_rng_state")
)
FloatTensor, DoubleTensor, HalfTensor = _absent_type("FloatTensor"), _absent_type("DoubleTensor"), _absent_type("HalfTensor")
LongTensor, IntTensor, ShortTensor = _absent_type("LongTensor"), _absent_type("IntTensor"), _absent_type("ShortTensor")
ByteTensor, BoolTensor, CharTensor = _absent_type("ByteTensor"), _absent_type("BoolTensor"), _absent_type("CharTensor")


class _Context:
    """A context that changes nothing."""

    def __init__(self, where: Any = None) -> None:
        pass

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exception: object) -> None:
        del exception


class device(_Context):  # noqa: N801  (PyTorch's name)
    """Selects no device, as PyTorch's does where there is none."""


class stream(_Context):  # noqa: N801
    """Selects no stream, as PyTorch's does where there is none."""


__getattr__ = missing_names(__name__)
