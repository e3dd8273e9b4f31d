"""tracejit.accelerator: what programs ask about the device besides the CPU.  There is none: every question is answered so."""

from __future__ import annotations

from typing import Any, NoReturn

from tracejit.core.missing import missing_names

__all__ = [
    "current_accelerator", "current_device_index", "current_stream", "device_count", "empty_cache", "is_available", "memory_allocated",
    "set_device_index", "set_stream", "synchronize",
]  # fmt: skip


def is_available() -> bool:
    """False."""
    return False


def current_accelerator(check_available: bool = False) -> None:
    """None."""


def device_count() -> int:
    """0."""
    return 0


def memory_allocated(device_index: Any = None) -> int:
    """0 bytes."""
    return 0


def empty_cache() -> None:
    """Frees nothing: no memory of a device is kept."""


def _refusing(name: str) -> Any:
    def function(*args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(f"accelerator.{name}(): tracejit computes on the CPU only; ask accelerator.is_available() first")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "Raises RuntimeError: there is no device."
    return function


current_device_index = _refusing("current_device_index")
set_device_index = _refusing("set_device_index")
current_stream = _refusing("current_stream")
set_stream = _refusing("set_stream")
synchronize = _refusing("synchronize")

__getattr__ = missing_names(__name__)
