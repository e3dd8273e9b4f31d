"""Calling a module with other parameters, under the name that this has had in PyTorch's nn.utils; func.functional_call is the newer one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracejit.nn.functional_call import functional_call as call
from tracejit.nn.functional_call import replaced_members as _reparametrize_module
from tracejit.nn.module import Module

__all__ = ["_reparametrize_module", "functional_call"]


def functional_call(
    module: Module,
    parameters_and_buffers: Mapping[str, Any],
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """module(*args, **kwargs) with these tensors, by dotted name, as its parameters and buffers for the time of the call.

    Raises RuntimeError, if strict, for names that are missing or too many."""
    return call(module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict)
