"""Settings that PyTorch has for choices that do not arise here: they are remembered, and change nothing."""

from __future__ import annotations

from typing import Any

from tracejit.core import dtypes
from tracejit.core.devices import CPU, device, require_cpu

__all__ = [
    "are_deterministic_algorithms_enabled", "get_default_device", "get_deterministic_debug_mode", "get_float32_matmul_precision",
    "get_num_interop_threads",
    "set_default_device", "set_default_tensor_type", "set_deterministic_debug_mode", "set_float32_matmul_precision", "set_flush_denormal",
    "set_num_interop_threads", "use_deterministic_algorithms",
]  # fmt: skip

_settings: dict[str, Any] = {"deterministic": 0, "precision": "highest", "interop": 1}


def set_default_device(device: Any) -> None:
    """Accepts the CPU, and None.  Raises for other devices as `to` does."""
    require_cpu("set_default_device", device)


def get_default_device() -> device:
    """The CPU."""
    return CPU


def set_default_tensor_type(t: Any) -> None:
    """The older form of set_default_dtype(): FloatTensor, DoubleTensor, or one of their names."""
    name = str(t).rpartition(".")[2] if isinstance(t, str) else None
    dtype = dtypes.LEGACY.get(name) if name is not None else getattr(t, "dtype", None)
    if dtype is None:
        raise TypeError(f"set_default_tensor_type(): expected FloatTensor, DoubleTensor or a name of them, got {t!r}")
    dtypes.set_default_dtype(dtype)


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Accepted: all algorithms are deterministic."""
    _settings["deterministic"] = (1 if warn_only else 2) if mode else 0


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """use_deterministic_algorithms() by a number or its name: 0 "default", 1 "warn", 2 "error".  Raises RuntimeError for others."""
    modes = ("default", "warn", "error")
    if debug_mode not in (*modes, 0, 1, 2):
        raise RuntimeError(
            f"set_deterministic_debug_mode(): expected 'default', 'warn', 'error' or their numbers 0, 1, 2, got {debug_mode!r}"
        )
    _settings["deterministic"] = modes.index(debug_mode) if isinstance(debug_mode, str) else debug_mode


def get_deterministic_debug_mode() -> int:
    """0, 1 or 2: what set_deterministic_debug_mode() or use_deterministic_algorithms() was told last."""
    return int(_settings["deterministic"])


def are_deterministic_algorithms_enabled() -> bool:
    """What use_deterministic_algorithms() was told last."""
    return bool(_settings["deterministic"])


def set_float32_matmul_precision(precision: str) -> None:
    """Accepted: products of float32 are always computed in float32.  Raises RuntimeError for an unknown precision."""
    if precision not in ("highest", "high", "medium"):
        raise RuntimeError(f"set_float32_matmul_precision(): expected 'highest', 'high' or 'medium', got {precision!r}")
    _settings["precision"] = precision


def get_float32_matmul_precision() -> str:
    """What set_float32_matmul_precision() was told last."""
    return str(_settings["precision"])


def set_flush_denormal(mode: bool) -> bool:
    """False: denormal numbers are kept."""
    return False


def set_num_interop_threads(number: int) -> None:
    """Accepted: operations are not run side by side."""
    _settings["interop"] = int(number)


def get_num_interop_threads() -> int:
    """What set_num_interop_threads() was told last."""
    return int(_settings["interop"])
