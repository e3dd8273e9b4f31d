"""Mixed precision: autocast, scaling of gradients, and what operations of the program's own say about both.

`autocast` sets `state.autocast` of the thread; which functions compute in which dtype is marked on the functions
(core/precision.py).

Must not know: any particular function, the compiler.
Start reading: autocast_mode.py, then grad_scaler.py.
"""

from tracejit.amp.autocast_mode import autocast, get_autocast_dtype, is_autocast_available, is_autocast_enabled
from tracejit.amp.custom import custom_bwd, custom_fwd
from tracejit.amp.grad_scaler import GradScaler
from tracejit.core.missing import missing_names

__all__ = [
    "GradScaler", "autocast", "custom_bwd", "custom_fwd", "get_autocast_dtype", "is_autocast_available", "is_autocast_enabled",
]  # fmt: skip

__getattr__ = missing_names(__name__)
