"""tracejit.distributed: what programs ask about process groups.  There are none: every question is answered so, and none can be made."""

from __future__ import annotations

from typing import Any, NoReturn

from tracejit.core.missing import missing_names

__all__ = [
    "all_gather", "all_reduce", "barrier", "broadcast", "destroy_process_group", "get_rank", "get_world_size", "init_process_group",
    "is_available", "is_gloo_available", "is_initialized", "is_mpi_available", "is_nccl_available", "is_torchelastic_launched",
]  # fmt: skip


def is_available() -> bool:
    """False."""
    return False


def is_initialized() -> bool:
    """False."""
    return False


def is_nccl_available() -> bool:
    """False."""
    return False


def is_gloo_available() -> bool:
    """False."""
    return False


def is_mpi_available() -> bool:
    """False."""
    return False


def is_torchelastic_launched() -> bool:
    """False."""
    return False


def _refusing(name: str) -> Any:
    def function(*args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(f"distributed.{name}(): there are no process groups in tracejit; ask distributed.is_available() first")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "Raises RuntimeError: there are no process groups."
    return function


init_process_group = _refusing("init_process_group")
destroy_process_group = _refusing("destroy_process_group")
get_rank = _refusing("get_rank")
get_world_size = _refusing("get_world_size")
barrier = _refusing("barrier")
broadcast = _refusing("broadcast")
all_reduce = _refusing("all_reduce")
all_gather = _refusing("all_gather")

__getattr__ = missing_names(__name__)
