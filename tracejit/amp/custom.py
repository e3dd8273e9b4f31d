"""custom_fwd and custom_bwd: what forward and backward of an operation of the program's own do under autocast."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from tracejit.amp.autocast_mode import autocast, get_autocast_dtype, is_autocast_enabled
from tracejit.core.dtypes import DType, float64
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.tensor import Tensor

__all__ = ["custom_bwd", "custom_fwd"]


def _converted(value: Any, dtype: DType) -> Any:
    """Arguments with their floating-point tensors as `dtype`, float64 excepted."""
    if isinstance(value, Tensor):
        kind = value.dtype
        return cast(value, dtype=dtype) if kind.is_floating_point and kind is not float64 and kind is not dtype else value
    if isinstance(value, Mapping):
        return {_converted(k, dtype): _converted(v, dtype) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_converted(v, dtype) for v in value)
    return value


def custom_fwd(fwd: Callable[..., Any] | None = None, *, device_type: str, cast_inputs: DType | None = None) -> Any:
    """Decorates `forward` of a Function.  cast_inputs: under autocast the tensors become this dtype, and forward runs without autocast;
    else forward runs in the autocast around the call, and backward, decorated with custom_bwd, in the same one."""
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def forward(*args: Any, **kwargs: Any) -> Any:
        context = args[0]
        context._dtype = get_autocast_dtype(device_type)
        enabled = is_autocast_enabled(device_type)
        context._fwd_used_autocast = enabled and cast_inputs is None
        if cast_inputs is None or not enabled:
            return fwd(*args, **kwargs)
        with autocast(device_type, enabled=False):
            return fwd(context, *_converted(args[1:], cast_inputs), **_converted(kwargs, cast_inputs))

    return forward


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str) -> Any:
    """Decorates `backward` of a Function whose forward is decorated with custom_fwd: it runs in the same autocast."""
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def backward(*args: Any, **kwargs: Any) -> Any:
        context = args[0]
        with autocast(device_type, dtype=context._dtype, enabled=context._fwd_used_autocast):
            return bwd(*args, **kwargs)

    return backward
