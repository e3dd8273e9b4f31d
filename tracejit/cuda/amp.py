"""tracejit.cuda.amp: mixed precision under the names that PyTorch had first.  There is no CUDA: they warn and change nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracejit import amp
from tracejit.core.dtypes import DType, float16
from tracejit.core.missing import missing_names

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]

__getattr__ = missing_names(__name__)


def custom_fwd(fwd: Callable[..., Any] | None = None, *, cast_inputs: DType | None = None) -> Any:
    """amp.custom_fwd(..., device_type="cuda"): decorates `forward` of a Function."""
    return amp.custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


def custom_bwd(bwd: Callable[..., Any] | None = None) -> Any:
    """amp.custom_bwd(..., device_type="cuda"): decorates `backward` of a Function whose forward has custom_fwd."""
    return amp.custom_bwd(bwd, device_type="cuda")


class autocast(amp.autocast):  # noqa: N801  (PyTorch's name)
    """amp.autocast("cuda")."""

    def __init__(self, enabled: bool = True, dtype: Any = float16, cache_enabled: bool = True) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(amp.GradScaler):
    """amp.GradScaler("cuda")."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
