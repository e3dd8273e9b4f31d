# ruff: noqa: N999  (PyTorch's name)
"""tracejit._C: questions that programs put to the compiled part of PyTorch, which this library has not, and the answers that hold here."""

from __future__ import annotations

from typing import Any

from tracejit.core.missing import missing_names
from tracejit.linalg import LinAlgError as _LinAlgError

__all__ = ["_LinAlgError", "_get_tracing_state", "_jit_set_profiling_executor", "_jit_set_profiling_mode", "_log_api_usage_once"]


def _get_tracing_state() -> None:
    """None: there is no tracing into TorchScript."""


def _log_api_usage_once(event: str) -> None:
    """Counts nothing."""


def _jit_set_profiling_mode(enabled: bool) -> bool:
    """False, the mode before: TorchScript's executor, which is not here, profiles nothing."""
    return False


_jit_set_profiling_executor: Any = _jit_set_profiling_mode

__getattr__ = missing_names(__name__)
