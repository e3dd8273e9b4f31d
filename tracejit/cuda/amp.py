"""tracejit.cuda.amp: mixed precision under the names that PyTorch had first.  There is no CUDA: they warn and change nothing."""

from __future__ import annotations

import functools
from typing import Any

from tracejit import amp
from tracejit.core.dtypes import float16
from tracejit.core.missing import missing_names

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]

custom_fwd = functools.partial(amp.custom_fwd, device_type="cuda")
custom_bwd = functools.partial(amp.custom_bwd, device_type="cuda")
__getattr__ = missing_names(__name__)


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
