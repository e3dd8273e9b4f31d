"""autocast: a mode of the thread, in which products are computed in bfloat16 or float16 and losses in float32.

What it makes of which function is said at the functions (core/precision.py).  Casts of parameters are not kept from one use to the next:
`cache_enabled` changes nothing but time.  A recording is guarded by the mode it began in and leaves the one it ended in.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from tracejit.core.dtypes import DType, as_dtype, bfloat16, float16, note_autocast
from tracejit.core.interpreter import state
from tracejit.core.interrupts import covers_its_entry
from tracejit.core.library_warnings import warn

__all__ = [
    "autocast", "get_autocast_dtype", "get_autocast_gpu_dtype", "is_autocast_available", "is_autocast_cpu_enabled", "is_autocast_enabled",
]  # fmt: skip

F = TypeVar("F", bound=Callable[..., Any])
_OTHER_DEVICES = ("cuda", "mps", "xpu", "hpu", "mtia", "maia", "xla", "ipu")


def _kind(name: str, device_type: Any) -> str:
    if not isinstance(device_type, str):
        raise ValueError(f"{name}: expected `device_type` of type `str`, got: `{type(device_type)}`")
    if device_type not in ("cpu", *_OTHER_DEVICES):
        raise RuntimeError(f"User specified an unsupported autocast device_type '{device_type}'")
    return device_type


def is_autocast_available(device_type: str) -> bool:
    """Whether there are such devices, and autocast for them: "cpu"."""
    return device_type == "cpu"


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether the thread is in an enabled autocast of devices of this type; as in PyTorch, of "cuda" unless another is given."""
    return _kind("is_autocast_enabled", device_type) == "cpu" and state.autocast is not None


def get_autocast_dtype(device_type: str) -> DType:
    """The dtype of the innermost autocast; outside, the one that it has by default."""
    if _kind("get_autocast_dtype", device_type) != "cpu":
        return float16
    return bfloat16 if state.autocast is None else state.autocast


def is_autocast_cpu_enabled() -> bool:
    """is_autocast_enabled("cpu"), under its older name."""
    return is_autocast_enabled("cpu")


def get_autocast_gpu_dtype() -> DType:
    """get_autocast_dtype("cuda"), under its older name."""
    return get_autocast_dtype("cuda")


class autocast:  # noqa: N801  (PyTorch's name)
    """`with autocast("cpu", dtype=bfloat16):`, or a decorator: products become `dtype` (bfloat16 by default), losses float32.

    enabled=False: as if there were none around.  Devices that are not there, and dtypes that are not for this, disable it with a
    warning.  Raises RuntimeError for an unknown device."""

    def __init__(self, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: bool | None = None) -> None:
        self.device = _kind("autocast", device_type)
        self.fast_dtype = get_autocast_dtype(device_type) if dtype is None else as_dtype(dtype, "autocast")
        self._enabled = bool(enabled)
        self._previous: Any = ()  # (mode, what it was before): a stack of pairs, which one assignment pops
        if self.device != "cpu":
            if self._enabled:
                warn(f"User provided device_type of '{device_type}', but {device_type.upper()} is not available. Disabling")
            self._enabled = False
        elif self._enabled and not self.fast_dtype.is_reduced:
            warn(
                "In CPU autocast, but the target dtype is not supported. Disabling autocast.\n"
                f"CPU Autocast only supports dtype of {bfloat16!r}, {float16!r} currently."
            )
            self._enabled = False
        note_autocast()

    def _mode(self) -> DType | None:
        """What the mode is inside; autocast of other devices leaves that of this one as it is."""
        if self.device != "cpu":
            return state.autocast
        return self.fast_dtype if self._enabled else None

    def __enter__(self) -> autocast:
        mode = self._mode()
        self._previous = state.autocast, self._previous
        state.autocast = mode
        return self

    @covers_its_entry
    def __exit__(self, *exception: object) -> None:
        try:
            del exception
        finally:
            state.autocast, self._previous = self._previous

    def __call__(self, function: F) -> F:
        there, mode = self.device == "cpu", self._mode()

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            previous = state.autocast
            try:
                state.autocast = mode if there else previous
                return function(*args, **kwargs)
            finally:
                state.autocast = previous

        return wrapper  # type: ignore[return-value]
